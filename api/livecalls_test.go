package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/billing"
	"tandem/calls"
	"tandem/esl"
	"tandem/esl/simswitch"
	"tandem/models"
	"tandem/models/modelstest"
)

// phone is a bench whose API stands before the real call manager, which drives a simulated switch behind the real Event Socket
// client, and whose application lives in the test.
type phone struct {
	*bench
	app   string
	ended chan models.Call
	asked chan map[string]any

	mu      sync.Mutex
	answers []object
}

// onPhones runs a test on both databases.
func onPhones(t *testing.T, fn func(p *phone)) {
	t.Helper()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) { fn(newPhone(t, store)) })
}

func newPhone(t *testing.T, store *models.Store) *phone {
	t.Helper()
	p := &phone{bench: newBench(t, store, Config{}), ended: make(chan models.Call, 64), asked: make(chan map[string]any, 64)}
	server := httptest.NewServer(http.HandlerFunc(p.answer))
	t.Cleanup(server.Close)
	t.Cleanup(server.Client().CloseIdleConnections)
	node := &models.Node{Name: "n", ESLAddr: "127.0.0.1:1", ConfDir: t.TempDir(), IsActive: true}
	require.NoError(t, store.CreateNode(t.Context(), node))
	trunk := modelstest.OutboundTrunk(t, store, p.customer)
	gateways := filepath.Join(node.ConfDir, "tandem", "gateways")
	require.NoError(t, os.MkdirAll(gateways, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(gateways, trunk.GatewayName+".xml"), fmt.Appendf(nil,
		"<include>\n<gateway name=%q>\n<param name=\"proxy\" value=\"127.0.0.1:5080\"/>\n<param name=\"register\" value=\"false\"/>\n</gateway>\n</include>\n",
		trunk.GatewayName), 0o600))
	sim, err := simswitch.New(simswitch.Config{Password: "secret", ConfDir: node.ConfDir})
	require.NoError(t, err)
	require.NoError(t, sim.Start())
	t.Cleanup(func() { require.NoError(t, sim.Close()) })

	rater, err := billing.New(billing.Config{OutboundPerMinuteMicros: 60_000})
	require.NoError(t, err)
	manager, err := calls.NewManager(calls.Config{
		Store: store, Rater: rater, Client: server.Client(), OnEnd: func(call models.Call) { p.ended <- call },
	})
	require.NoError(t, err)
	require.NoError(t, manager.Start(t.Context()))
	handler := &lateHandler{}
	socket, err := esl.NewNode(esl.Config{Addr: sim.Addr(), Password: "secret", Handler: handler})
	require.NoError(t, err)
	handler.Handler = manager.AddNode(*node, socket)
	require.NoError(t, socket.Start(t.Context()))
	t.Cleanup(socket.Stop)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		require.NoError(t, manager.Stop(ctx))
	})
	require.NoError(t, socket.WaitUp(t.Context()))
	p.server.calls = manager
	p.app = p.post("/v1/applications", object{"name": "phone", "answer_url": server.URL, "events": []string{"*"}}).is(201).str("id")
	return p
}

// lateHandler is the handler of a node that has to exist before its handler.
type lateHandler struct{ esl.Handler }

// says sets what the application wants of its calls.
func (p *phone) says(actions ...object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers = actions
}

func (p *phone) answer(w http.ResponseWriter, r *http.Request) {
	var question map[string]any
	if err := json.NewDecoder(r.Body).Decode(&question); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	body, err := json.Marshal(p.answers)
	p.mu.Unlock()
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	p.asked <- question
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// dial places a call to a number of the simulated switch and returns its path.
func (p *phone) dial(to string, more object) string {
	p.t.Helper()
	body := object{"application_id": p.app, "from": "+15550100001", "to": to}
	for name, value := range more {
		body[name] = value
	}
	return "/v1/calls/" + p.post("/v1/calls", body).is(201).str("id")
}

// until waits until a call has completed the action of an id.
func (p *phone) until(path, id string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return slices.Contains(did(p.journal(path)), id) }, 15*time.Second, 10*time.Millisecond, "202 says accepted")
}

// end waits until a call has ended and returns it as the API shows it.
func (p *phone) end() map[string]any {
	p.t.Helper()
	select {
	case call := <-p.ended:
		return p.get("/v1/calls/" + call.ID).is(200).json()
	case <-time.After(15 * time.Second):
		p.t.Fatal("no call has ended")
		return nil
	}
}

// journal returns the events of a call.
func (p *phone) journal(path string) []map[string]any {
	p.t.Helper()
	var events []map[string]any
	for _, item := range p.get(path + "/events?limit=200").is(200).data() {
		events = append(events, item.(map[string]any))
	}
	return events
}

func kindsOf(events []map[string]any) []string {
	kinds := make([]string, len(events))
	for i, event := range events {
		kinds[i] = event["type"].(string)
	}
	return kinds
}

// did lists the actions of a call that have completed, by their ids.
func did(events []map[string]any) []string {
	var ids []string
	for _, event := range events {
		if data := event["data"].(map[string]any); event["type"] == "call.action_completed" {
			id, _ := data["id"].(string)
			ids = append(ids, id)
		}
	}
	return ids
}

// TestLiveFromQueuedToCanceled takes one call through everything: it waits, is started, is given another list, and is canceled.
func TestLiveFromQueuedToCanceled(t *testing.T) {
	t.Parallel()
	onPhones(t, func(p *phone) {
		p.says(object{"action": "set", "id": "begun", "variables": object{"step": "one"}}, object{"action": "pause", "id": "first", "seconds": 60})
		path := p.dial("+15550000001", object{"start": false})
		require.Equal(p.t, "queued", p.get(path).str("status"))
		require.Zero(p.t, p.get("/v1/me").json()["held_micros"], "what waits holds no money")
		hangup := object{"actions": []object{{"action": "hangup"}}}
		p.post(path+"/actions", hangup).refused(codeCallNotActive, "")
		p.post(path+"/retry", nil).refused(codeCallActive, "")

		started := p.postOnce("start", path+"/start", nil).is(202)
		require.Equal(p.t, "dialing", started.str("status"))
		again := p.postOnce("start", path+"/start", nil).is(202)
		require.Equal(p.t, string(started.body), string(again.body))
		require.Equal(p.t, "true", again.header.Get(headerReplayed))
		p.post(path+"/start", nil).refused(codeCallNotQueued, "")
		require.NotZero(p.t, p.get("/v1/me").json()["held_micros"])
		p.until(path, "begun")

		p.post(path+"/actions", object{"actions": []object{{"action": "pause", "seconds": -1}}}).refused(codeInvalidRequest, "actions")
		require.Equal(p.t, "in_progress", p.post(path+"/actions", object{"actions": []object{
			{"action": "set", "id": "second", "variables": object{"step": "two"}}, {"action": "pause", "id": "third", "seconds": 60},
		}}).is(202).str("status"))
		p.until(path, "second")
		require.Equal(p.t, map[string]any{"step": "two"}, p.get(path).json()["variables"])
		p.post(path+"/retry", nil).refused(codeCallActive, "")

		require.Equal(p.t, "in_progress", p.post(path+"/cancel", nil).is(202).str("status"))
		call := p.end()
		require.Equal(p.t, []any{"completed", "api_hangup", "api"}, pick(call, "status", "reason", "hangup_source"))
		events := p.journal(path)
		require.Equal(p.t, []string{"begun", "first", "second"}, did(events)[:3])
		require.Equal(p.t, []string{"call.created", "call.dialing", "call.ringing", "call.answered"}, kindsOf(events)[:4])
		require.Equal(p.t, "call.completed", kindsOf(events)[len(events)-1])
		for i, event := range events {
			require.EqualValues(p.t, i+1, event["sequence"])
		}
		require.Zero(p.t, p.get("/v1/me").json()["held_micros"])
		for _, command := range []string{"/cancel", "/start"} {
			p.post(path+command, nil).refused(codeCallNotActive, "")
		}
		p.post(path+"/actions", hangup).refused(codeCallNotActive, "")
		require.Len(p.t, p.asked, 1, "live control asks nobody")
	})
}

// TestLiveCancelOfQueued ends a call that nobody has dialled.
func TestLiveCancelOfQueued(t *testing.T) {
	t.Parallel()
	onPhones(t, func(p *phone) {
		path := p.dial("+15550000001", object{"start": false})
		require.Equal(p.t, "canceled", p.post(path+"/cancel", nil).is(202).str("status"))
		require.Equal(p.t, []any{"canceled", "canceled", "api"}, pick(p.end(), "status", "reason", "hangup_source"))
		require.Equal(p.t, []string{"call.created", "call.failed"}, kindsOf(p.journal(path)))
		p.post(path+"/start", nil).refused(codeCallNotActive, "")
		require.Empty(p.t, p.asked)
	})
}

// TestLiveCancelWhileRinging ends a call that rings.
func TestLiveCancelWhileRinging(t *testing.T) {
	t.Parallel()
	onPhones(t, func(p *phone) {
		path := p.dial("+15550000180", nil)
		require.Eventually(p.t, func() bool { return p.get(path).str("status") == "ringing" }, 15*time.Second, 10*time.Millisecond)
		p.post(path+"/cancel", nil).is(202)
		require.Equal(p.t, []any{"canceled", "canceled", "api"}, pick(p.end(), "status", "reason", "hangup_source"))
		require.Equal(p.t, []string{"call.created", "call.ringing", "call.failed"}, kindsOf(p.journal(path)))
	})
}

// TestLiveRetry places a call that met a busy number again, with what the first was given.
func TestLiveRetry(t *testing.T) {
	t.Parallel()
	onPhones(t, func(p *phone) {
		path := p.dial("+15550000486", object{"metadata": object{"order": "7"}, "record": true, "timeout": 33})
		old := p.end()
		require.Equal(p.t, "busy", old["status"])
		again := p.postOnce("again", path+"/retry", nil).is(201)
		require.Equal(p.t, again.str("id"), p.postOnce("again", path+"/retry", nil).is(201).str("id"))
		require.NotEqual(p.t, old["id"], again.str("id"))
		require.Equal(p.t, old["id"], again.json()["retry_of"])
		for _, field := range []string{"application_id", "from", "to", "metadata", "record", "timeout_seconds", "trunk_id"} {
			require.Equal(p.t, old[field], again.json()[field], field)
		}
		require.Equal(p.t, []any{again.str("id"), "busy"}, pick(p.end(), "id", "status"))
		require.Len(p.t, p.get("/v1/calls").data(), 2, "one key, one call")
		require.Nil(p.t, p.get(path).json()["retry_of"])
	})
}

// TestLiveAppendsAtOnce sends many lists at once: each is accepted, and each runs whole and once, however often its key came.
func TestLiveAppendsAtOnce(t *testing.T) {
	t.Parallel()
	onPhones(t, func(p *phone) {
		p.says(object{"action": "set", "id": "begun", "variables": object{"a": "b"}}, object{"action": "pause", "id": "hold", "seconds": 5})
		path := p.dial("+15550000001", nil)
		p.until(path, "begun")
		const clients = 6
		var group sync.WaitGroup
		answers := make([]response, 2*clients)
		for i := range clients {
			list := object{"mode": "append", "actions": []object{
				{"action": "set", "id": fmt.Sprintf("a%d", i), "variables": object{"last": fmt.Sprint(i)}},
				{"action": "set", "id": fmt.Sprintf("b%d", i), "variables": object{fmt.Sprintf("v%d", i): "yes"}},
			}}
			for twin := range 2 {
				group.Go(func() { answers[2*i+twin] = p.postOnce(fmt.Sprintf("key-%d", i), path+"/actions", list) })
			}
		}
		group.Wait()
		for i := range clients {
			require.Equal(p.t, string(answers[2*i].is(202).body), string(answers[2*i+1].is(202).body))
		}
		require.Equal(p.t, "completed", p.end()["reason"])
		ids := did(p.journal(path))
		require.Len(p.t, ids, 2+2*clients)
		require.Equal(p.t, []string{"begun", "hold"}, ids[:2])
		var seen []string
		for i := 2; i < len(ids); i += 2 {
			require.Equal(p.t, "b"+ids[i][1:], ids[i+1], "a list is not mixed with another: %v", ids)
			seen = append(seen, ids[i])
		}
		require.ElementsMatch(p.t, []string{"a0", "a1", "a2", "a3", "a4", "a5"}, seen)
	})
}

// TestLiveReplacesAtOnce sends two lists at once, each in the place of everything: what runs in the end is one of them, whole.
func TestLiveReplacesAtOnce(t *testing.T) {
	t.Parallel()
	onPhones(t, func(p *phone) {
		p.says(object{"action": "set", "id": "begun", "variables": object{"a": "b"}}, object{"action": "pause", "id": "hold", "seconds": 60}, object{"action": "set", "id": "never", "variables": object{"a": "c"}})
		path := p.dial("+15550000001", nil)
		p.until(path, "begun")
		var group sync.WaitGroup
		answers := make([]response, 2)
		for i := range answers {
			group.Go(func() {
				answers[i] = p.post(path+"/actions", object{"actions": []object{
					{"action": "set", "id": fmt.Sprintf("set-%d", i), "variables": object{"winner": fmt.Sprint(i)}}, {"action": "pause", "id": fmt.Sprintf("wait-%d", i), "seconds": 2},
				}})
			})
		}
		group.Wait()
		for _, answer := range answers {
			answer.is(202)
		}
		call := p.end()
		require.Equal(p.t, "completed", call["reason"])
		winner := call["variables"].(map[string]any)["winner"]
		ids := did(p.journal(path))
		require.NotContains(p.t, ids, "never", "what was replaced is dropped")
		require.Equal(p.t, []string{fmt.Sprint("set-", winner), fmt.Sprint("wait-", winner)}, ids[len(ids)-2:], "%v", ids)
	})
}
