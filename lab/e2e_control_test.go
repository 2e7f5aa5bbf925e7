package lab_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// testLiveControl gives an answered call new actions, twice at once and under one Idempotency-Key, and asks for what is gone.
func testLiveControl(t *testing.T, s *system) {
	started := make(chan struct{})
	app := s.newApplication(t, s.customer, "live control", nil, func(q question) any {
		if q.kind() == "answer" {
			close(started)
			return []object{{"action": "pause", "seconds": 50}}
		}
		return []object{{"action": "hangup"}}
	})
	s.change(t, app, object{"events": []string{"*"}})
	call := s.callFrom(t, app, "+15550810700", nil).text("id")
	wait(soon(t), t, started, "the answer_url was never asked")
	path := "/v1/calls/" + call + "/actions"
	me := customer{key: app.key}

	status, answer := s.ask(t, me, http.MethodPost, path, object{"actions": []object{{"action": "say"}}})
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, []any{"actions", "actions[0].say.text"}, []any{answer.part("error")["field"], answer.part("error")["path"]})

	// The callee types 1234# one and a half seconds after it answered.
	status, answer = s.ask(t, me, http.MethodPost, path, object{"mode": "append", "actions": []object{{"action": "set", "variables": object{"appended": "yes"}}}})
	require.Equal(t, http.StatusAccepted, status, answer)
	status, answer = s.ask(t, me, http.MethodPost, path, object{"actions": []object{
		{"action": "gather", "id": "asked", "min_digits": 1, "finish_on_key": "#", "timeout": 10, "result_url": app.url + "/answer"},
	}})
	require.Equal(t, http.StatusAccepted, status, answer)
	end, events := app.ended(soon(t), t, s, call)
	require.Equal(t, "actions", end.part("call")["hangup_source"])
	asked := app.asked(call)
	require.Len(t, asked, 2)
	require.Equal(t, "1234", asked[1].result().text("digits"))
	require.Empty(t, asked[1].part("variables").text("appended"), "replace drops what was appended before")
	require.Contains(t, kinds(events), "call.dtmf")

	status, answer = s.ask(t, me, http.MethodPost, path, object{"actions": []object{{"action": "hangup"}}})
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, "call_not_active", answer.part("error").text("code"))
}

// testQueuedStartedRetried makes a call that waits, starts it, sees it fail, and tries it again.
func testQueuedStartedRetried(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "queued", nil, func(question) any { return []object{{"action": "hangup"}} })
	me := customer{key: app.key}
	call := s.make(t, me, "/v1/calls", object{"application_id": app.id, "from": "+15550100000", "to": "+15550810486", "start": false})
	require.Equal(t, "queued", call["status"])
	path := "/v1/calls/" + call.text("id")
	status, answer := s.ask(t, me, http.MethodPost, path+"/retry", nil)
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, "call_active", answer.part("error").text("code"))
	status, answer = s.ask(t, me, http.MethodPost, path+"/start", nil)
	require.Equal(t, http.StatusAccepted, status, answer)
	end, events := app.ended(soon(t), t, s, call.text("id"))
	require.Equal(t, "busy", end.part("call")["status"])
	require.Equal(t, []string{"call.created", "call.dialing"}, kinds(events)[:2])
	status, answer = s.ask(t, me, http.MethodPost, path+"/start", nil)
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, "call_not_active", answer.part("error").text("code"))

	again := s.make(t, me, path+"/retry", nil)
	require.Equal(t, call["id"], again["retry_of"])
	require.Equal(t, "+15550810486", again["to"])
	end, _ = app.ended(soon(t), t, s, again.text("id"))
	require.Equal(t, "busy", end.part("call")["status"])

	// One that waits is canceled without ever having been dialled.
	call = s.make(t, me, "/v1/calls", object{"application_id": app.id, "from": "+15550100000", "to": "+15550810001", "start": false})
	status, answer = s.ask(t, me, http.MethodPost, "/v1/calls/"+call.text("id")+"/cancel", nil)
	require.Equal(t, http.StatusAccepted, status, answer)
	end, events = app.ended(soon(t), t, s, call.text("id"))
	require.Equal(t, []string{"call.created", "call.failed"}, kinds(events))
	require.Equal(t, "canceled", end.part("call")["status"])
}

// testConference brings two calls into one room and steers them over the API.
func testConference(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "conference", nil, func(q question) any {
		if q.kind() == "answer" {
			return []object{{"action": "conference", "name": "board", "result_url": "/answer"}}
		}
		return []object{{"action": "hangup"}}
	})
	me := customer{key: app.key}
	first := s.callFrom(t, app, "+15550810001", nil).text("id")
	app.until(soon(t), t, first, "conference.joined")
	second := s.callFrom(t, app, "+15550810723", nil).text("id")
	app.until(soon(t), t, second, "conference.joined")

	list := s.list(t, app, "/v1/conferences")
	require.Len(t, list, 1)
	require.Equal(t, "board", list[0]["name"])
	room := "/v1/conferences/" + list[0].text("id")
	status, answer := s.ask(t, me, http.MethodPost, room+"/members/"+second+"/mute", nil)
	require.Equal(t, http.StatusAccepted, status, answer)
	require.Eventually(t, func() bool {
		_, answer, err := s.try(t.Context(), me, http.MethodGet, room, nil)
		return err == nil && reflect.DeepEqual([]object{{"call_id": first, "muted": false}, {"call_id": second, "muted": true}}, members(answer))
	}, 20*time.Second, 20*time.Millisecond, "202 says accepted; there is no event of a mute")

	status, answer = s.ask(t, me, http.MethodPost, room+"/members/"+second+"/kick", nil)
	require.Equal(t, http.StatusAccepted, status, answer)
	end, events := app.ended(soon(t), t, s, second)
	require.Equal(t, "completed", end.part("call")["reason"])
	require.Contains(t, kinds(events), "conference.left")
	require.Equal(t, "kicked", app.asked(second)[1].result()["outcome"])

	status, answer = s.ask(t, me, http.MethodPost, room+"/end", nil)
	require.Equal(t, http.StatusAccepted, status, answer)
	_, events = app.ended(soon(t), t, s, first)
	require.Contains(t, kinds(events), "conference.left")
	require.Empty(t, s.list(t, app, "/v1/conferences"))
}

func members(conference object) []object {
	items, _ := conference["members"].([]any)
	list := make([]object, 0, len(items))
	for _, item := range items {
		member := object(item.(map[string]any))
		list = append(list, object{"call_id": member["call_id"], "muted": member["muted"]})
	}
	return list
}

// testQueue lets a caller wait, sees it in the API, and connects it with an agent's call.
func testQueue(t *testing.T, s *system) {
	waiting := s.newApplication(t, s.customer, "queue", nil, func(q question) any {
		if q.kind() == "answer" {
			return []object{{"action": "enqueue", "name": "sales", "result_url": "/answer", "wait_actions": []object{{"action": "say", "text": "Please hold the line."}}}}
		}
		return []object{{"action": "hangup"}}
	})
	agents := s.newApplication(t, s.customer, "agents", nil, func(q question) any {
		if q.kind() == "answer" {
			return []object{{"action": "dequeue", "name": "sales", "result_url": "/answer"}}
		}
		return []object{{"action": "hangup"}}
	})
	s.did(t, waiting, "+15557000030")
	leg, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230030", To: "+15557000030", NodeSIP: s.node.SIPAddr, App: lab.HangsUp(40 * time.Second)})
	require.NoError(t, err)
	caller := waiting.first(soon(t), t, "queue.joined").part("call").text("id")
	status, queue := s.ask(t, customer{key: waiting.key}, http.MethodGet, "/v1/queues/sales", nil)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, 1, queue.number("waiting"))
	entry := object(queue["entries"].([]any)[0].(map[string]any))
	require.Equal(t, []any{caller, "waiting", 1.0}, []any{entry["call_id"], entry["state"], entry["position"]})

	// The agent hangs up two seconds after answering, and with it the conversation ends; the caller's flow goes on.
	agent := s.callFrom(t, agents, "+15550810701", nil).text("id")
	agents.ended(soon(t), t, s, agent)
	end, events := waiting.ended(soon(t), t, s, caller)
	outcome, err := leg.Ended(soon(t))
	require.NoError(t, err)
	require.True(t, outcome.Answered)
	require.Equal(t, "actions", end.part("call")["hangup_source"])
	require.Contains(t, kinds(events), "queue.left")
	asked := waiting.asked(caller)
	require.Len(t, asked, 2)
	require.Equal(t, "bridged", asked[1].result()["outcome"])
	require.Empty(t, s.list(t, waiting, "/v1/queues"))
}

// testSimulation runs an application without a call, over the API and by the command of a customer's CI.
func testSimulation(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "simulation", nil, func(q question) any {
		if q.kind() == "answer" {
			return []object{{"action": "gather", "num_digits": 1, "result_url": "/answer"}}
		}
		if q.result().text("digits") == "1" {
			return []object{{"action": "dial", "id": "agent", "to": "+15550810001"}, {"action": "say", "text": "Nobody is there."}}
		}
		return []object{{"action": "say", "text": "Wrong key."}}
	})
	script := object{
		"input":  []object{{"digits": "1"}, {"at": "agent", "dial": object{"outcome": "busy"}}},
		"expect": object{"actions": []string{"gather", "dial", "say"}, "reason": "completed"},
	}
	status, report := s.ask(t, customer{key: app.key}, http.MethodPost, "/v1/applications/"+app.id+"/simulate", script)
	require.Equal(t, http.StatusOK, status, report)
	require.Equal(t, true, report["ok"], report["problems"])
	require.Empty(t, s.list(t, app, "/v1/calls?application_id="+app.id), "a simulation is no call")

	file := filepath.Join(t.TempDir(), "script.json")
	simulate := func(script object) (int, object) {
		raw, err := json.Marshal(script)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, raw, 0o600))
		cmd := s.command(t, "simulate", app.id, file, "-o", "json")
		cmd.Env = append(cmd.Env, "TANDEM_API_URL=http://"+s.addr, "TANDEM_API_KEY="+app.key)
		out, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			require.NoError(t, err)
		}
		var report object
		_ = json.Unmarshal(out, &report)
		return cmd.ProcessState.ExitCode(), report
	}
	code, report := simulate(script)
	require.Equal(t, 0, code, report)
	require.Equal(t, true, report["ok"])
	script["input"] = []object{{"digits": "2"}}
	code, report = simulate(script)
	require.Equal(t, 1, code, report)
	require.NotEmpty(t, report["problems"])
	code, _ = simulate(object{"input": []object{{"digits": "x"}}})
	require.Equal(t, 2, code)
}
