package lab_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
	"tandem/models/modelstest"
)

const (
	outageNumber = "+15557000600"
	outageCaller = "+15551110600"
	outageProbe  = "+15552220600" // whose calls are rejected, or refused
	outageFor    = 8 * time.Second
	declined     = 603
)

// outageScene is `tandem serve` on a PostgreSQL of its own and a simulated switch.
type outageScene struct {
	*system
	sim      *simswitch.Switch
	database *modelstest.Separate
	app      *application
	probed   atomic.Int64
}

func newOutageScene(t *testing.T, env ...string) *outageScene {
	t.Helper()
	database := modelstest.StartSeparate(t)
	o := &outageScene{system: newSystem(t, database.URL()), database: database}
	o.env = append(append(o.env, "TANDEM_ACCEPT_TIMEOUT=3s", "TANDEM_NODE_LEASE=2s"), env...)
	confDir := t.TempDir()
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	sim, err := simswitch.New(simswitch.Config{Password: "secret", ConfDir: confDir})
	require.NoError(t, err)
	require.NoError(t, sim.Start())
	t.Cleanup(func() { require.NoError(t, sim.Close()) })
	o.sim = sim
	o.open(t, sim.Addr(), password, confDir)
	o.inboundTrunk(t, "127.0.0.1")
	o.make(t, o.customer, "/v1/trunks", object{"name": "out", "gateway_name": "out", "proxy": "127.0.0.1:5090"})
	o.app = o.newApplication(t, o.customer, "outage", nil, o.answer)
	o.make(t, o.customer, "/v1/dids", object{"number_e164": outageNumber, "application_id": o.app.id})
	require.Eventually(t, func() bool { return o.probe(t) == declined }, 30*time.Second, 100*time.Millisecond, "the node never took a call")
	return o
}

// answer is a flow of several actions, whose digits are typed while the database is away.
func (o *outageScene) answer(q question) any {
	switch {
	case q.call().text("from") == outageProbe:
		o.probed.Add(1)
		return []object{{"action": "reject", "reason": "declined"}}
	case q.kind() == "answer":
		return []object{{"action": "answer"}, {"action": "gather", "id": "digits", "num_digits": 2, "timeout": 60, "result_url": "/answer"}}
	case q.result().text("id") == "digits":
		return []object{
			{"action": "say", "text": "Thank you."}, {"action": "record", "max_seconds": 1}, {"action": "dial", "id": "party", "to": "+15550810701", "result_url": "/answer"},
		}
	default:
		return []object{{"action": "say", "text": "Bye."}, {"action": "hangup"}}
	}
}

// probe calls in and returns the status that the caller gets: 603 where the application rejects, 503 where nobody takes calls.
func (o *outageScene) probe(t *testing.T) int {
	t.Helper()
	channel, err := o.sim.CallIn(simswitch.IncomingCall{From: outageProbe, To: outageNumber})
	require.NoError(t, err)
	end, err := o.sim.Caller(channel).Wait(seconds(t, 30), func(r simswitch.Result) bool { return r.Ended })
	require.NoError(t, err)
	return end.SIPStatus
}

// create asks for a call and returns the status, the code and when to try again.
func (o *outageScene) create(t *testing.T) (status int, code, retryAfter string) {
	t.Helper()
	body, err := json.Marshal(object{"application_id": o.app.id, "from": "+15550000600", "to": "+15550810701"})
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+o.addr+"/v1/calls", bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+o.customer.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	var answer object
	require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
	return response.StatusCode, answer.part("error").text("code"), response.Header.Get("Retry-After")
}

// TestSimulatedOutage takes the database away for longer than a lease under a call that gathers, records and dials: the call goes on to its
// end, new ones are refused everywhere, and when the database is back all is written, once, without anybody starting anything.
func TestSimulatedOutage(t *testing.T) {
	t.Parallel()
	o := newOutageScene(t)
	_, err := o.sim.CallIn(simswitch.IncomingCall{From: outageCaller, To: outageNumber, Digits: "12", DigitsAfter: 6 * time.Second})
	require.NoError(t, err)
	asked := func(result string) func() bool {
		return func() bool {
			o.app.mu.Lock()
			defer o.app.mu.Unlock()
			for _, q := range o.app.questions {
				if q.call().text("from") == outageCaller && q.result().text("id") == result {
					return true
				}
			}
			return false
		}
	}
	require.Eventually(t, asked(""), 20*time.Second, 20*time.Millisecond)
	began := time.Now()
	o.database.Kill()
	require.Eventually(t, func() bool { return o.probe(t) == http.StatusServiceUnavailable }, 20*time.Second, 200*time.Millisecond)
	status, code, retry := o.create(t)
	require.Equal(t, []any{http.StatusServiceUnavailable, "unavailable", "5"}, []any{status, code, retry})
	require.Eventually(t, asked("party"), 30*time.Second, 50*time.Millisecond, "the flow stands still without a database")
	require.Equal(t, http.StatusServiceUnavailable, o.probe(t), "nobody is taken meanwhile")
	ofCaller := func(event object) bool { return terminal(event) && event.part("call").text("from") == outageCaller }
	ended, _ := o.app.count(ofCaller)
	require.Zero(t, ended, "no end is told that is not stored")
	if rest := outageFor - time.Since(began); rest > 0 {
		<-time.After(rest)
	}
	require.NoError(t, o.database.Start(t.Context()))

	require.Eventually(t, func() bool { n, _ := o.app.count(ofCaller); return n == 1 }, 60*time.Second, 50*time.Millisecond)
	status, list := o.ask(t, o.customer, http.MethodGet, "/v1/calls?from=%2B15551110600", nil)
	require.Equal(t, http.StatusOK, status, list)
	require.Len(t, list["data"], 1)
	call := object(list["data"].([]any)[0].(map[string]any))
	require.Equal(t, []string{"completed", "completed"}, []string{call.text("status"), call.text("reason")})
	events, _ := o.app.of(call.text("id"))
	for i, event := range events {
		require.Equal(t, i+1, event.number("sequence"), "%v", kinds(events))
	}
	require.Equal(t, "call.completed", events[len(events)-1].text("type"))
	require.Subset(t, kinds(events), []string{"call.ringing", "call.answered", "recording.started", "leg.answered", "leg.ended"})

	require.Eventually(t, func() bool { return o.probe(t) == declined }, 30*time.Second, 100*time.Millisecond)
	require.Eventually(t, func() bool { status, _, _ := o.create(t); return status == http.StatusCreated }, 30*time.Second, 100*time.Millisecond)
	require.Eventually(t, func() bool {
		_, me := o.ask(t, o.customer, http.MethodGet, "/v1/me", nil)
		return me.part("balance").number("reserved_micros") == 0
	}, 60*time.Second, 100*time.Millisecond)
	out, err := o.command(t, "ledger", "verify").CombinedOutput()
	require.NoError(t, err, string(out))
}

// TestSimulatedOverload fills a controller with the calls that it may hold: the next ones are refused by the API and, before they cost
// anything, by the dialplan; those that are there go on, and when one has ended the next is taken.
func TestSimulatedOverload(t *testing.T) {
	t.Parallel()
	const most = 3
	o := newOutageScene(t, "TANDEM_MAX_CALLS="+strconv.Itoa(most))
	channels := make([]string, most)
	for i := range channels {
		require.Eventually(t, func() bool { // a call of the scene's beginning may not have ended yet
			var err error
			channels[i], err = o.sim.CallIn(simswitch.IncomingCall{From: outageCaller, To: outageNumber})
			require.NoError(t, err)
			_, err = o.sim.Caller(channels[i]).Wait(seconds(t, 30), func(r simswitch.Result) bool { return r.Answered })
			return err == nil
		}, 30*time.Second, 50*time.Millisecond)
	}
	status, code, retry := o.create(t)
	require.Equal(t, []any{http.StatusServiceUnavailable, "overloaded", "2"}, []any{status, code, retry})
	require.Eventually(t, func() bool {
		return o.probe(t) == http.StatusServiceUnavailable && strings.Contains(o.story(), "not_taking_calls")
	}, 20*time.Second, 100*time.Millisecond, "the dialplan refuses")
	asked := o.probed.Load()
	for range 20 {
		require.Equal(t, http.StatusServiceUnavailable, o.probe(t))
	}
	require.Equal(t, asked, o.probed.Load())
	for _, channel := range channels {
		require.NoError(t, o.sim.Caller(channel).SendDTMF("12"))
	}
	require.Eventually(t, func() bool { return o.probe(t) == declined }, 60*time.Second, 100*time.Millisecond)
	ofCallers := func(event object) bool { return terminal(event) && event.part("call").text("from") == outageCaller }
	require.Eventually(t, func() bool { n, _ := o.app.count(ofCallers); return n == most }, 60*time.Second, 50*time.Millisecond)
	ended, _ := o.app.count(func(event object) bool { return ofCallers(event) && event.part("call").text("reason") == "completed" })
	require.Equal(t, most, ended)
}

// TestSimulatedDeadMan kills the only controller: for a moment callers are parked for the next one, then the switch itself refuses them, until
// there is one again.
func TestSimulatedDeadMan(t *testing.T) {
	t.Parallel()
	o := newOutageScene(t)
	o.stop(syscall.SIGKILL)
	began := time.Now()
	refused := time.Duration(0)
	require.Eventually(t, func() bool {
		channel, err := o.sim.CallIn(simswitch.IncomingCall{From: outageProbe, To: outageNumber, CancelAfter: time.Second})
		require.NoError(t, err)
		end, err := o.sim.Caller(channel).Wait(seconds(t, 30), func(r simswitch.Result) bool { return r.Ended })
		require.NoError(t, err)
		refused = time.Since(began)
		return end.SIPStatus == http.StatusServiceUnavailable
	}, 20*time.Second, 50*time.Millisecond)
	t.Logf("the switch refuses calls %s after its controller was killed", refused.Round(time.Millisecond))
	require.Less(t, refused, 6*time.Second)
	o.start(t)
	require.Eventually(t, func() bool { return o.probe(t) == declined }, 30*time.Second, 100*time.Millisecond)
}
