package lab_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// leaseWorld is an installation of two controllers on one PostgreSQL and one simulated switch, with an application of its own
// whose calls wait until they are told something.
type leaseWorld struct {
	*chaosWorld
	t   *testing.T
	app chaosApplication
}

// leaseOfTest is how long a controller that is gone keeps its node in these tests.
const leaseOfTest = 2 * time.Second

func newLeaseWorld(t *testing.T) *leaseWorld {
	t.Helper()
	w := &leaseWorld{chaosWorld: newChaosWorld(t, chaosPlan{seed: 1, lease: leaseOfTest, pace: 1}), t: t}
	waits := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, `[{"action":"answer"},{"action":"pause","seconds":300}]`)
	}))
	t.Cleanup(waits.Close)
	made := w.create(t, "/v1/applications", object{
		"name": "waits", "answer_url": waits.URL, "webhook_url": w.sink.url + "/hook", "webhook_secret": w.sink.secretText(), "events": []string{"*"},
	})
	w.app.id, w.app.key = made.text("id"), made.text("api_key")
	return w
}

// asks sends a request to a controller and wants it accepted.
func (w *leaseWorld) asks(c *controllerPart, method, path string, body any, status int) object {
	w.t.Helper()
	got, answer, err := w.ask(w.t.Context(), c, w.app.key, method, path, body, "")
	require.NoError(w.t, err)
	require.Equal(w.t, status, got, "%s %s: %v", method, path, answer)
	return answer
}

// calls places a call at a controller and waits until its list runs.
func (w *leaseWorld) calls(c *controllerPart) string {
	w.t.Helper()
	id := w.asks(c, http.MethodPost, "/v1/calls", object{"application_id": w.app.id, "from": "+15550100000", "to": "+15550200001"}, http.StatusCreated).text("id")
	w.done(id, "answer", chaosPatience)
	return id
}

// done waits until a call has done the action with an id, or of a verb, and says how often it has.
func (w *leaseWorld) done(call, action string, patience time.Duration) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.count(call, action) > 0 }, patience, 2*time.Millisecond, "call %s never did %s", call, action)
}

// count is how often a call has done an action, by the database.
func (w *leaseWorld) count(call, action string) int {
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	var n int
	err := w.database.QueryRowContext(ctx, `SELECT COUNT(*) FROM events WHERE call_id = $1 AND type = 'call.action_completed'
		AND (convert_from(body, 'UTF8')::jsonb -> 'data' ->> 'id' = $2 OR convert_from(body, 'UTF8')::jsonb -> 'data' ->> 'action' = $2)`, call, action).Scan(&n)
	if err != nil {
		w.t.Logf("events not read: %v", err)
		return 0
	}
	return n
}

// has waits until a controller holds the node, and is connected to it.
func (w *leaseWorld) has(want *controllerPart, patience time.Duration) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		var connected bool
		err := w.database.QueryRowContext(w.t.Context(), "SELECT connected_until IS NOT NULL FROM nodes").Scan(&connected)
		return err == nil && connected && w.holder(w.t.Context()) == want
	}, patience, 2*time.Millisecond, "%s never had the node", want.name)
}

// other is the controller that is not c.
func (w *leaseWorld) other(c *controllerPart) *controllerPart {
	return w.controllers[1-slices.Index(w.controllers[:], c)]
}

// mark is a list that leaves a trace under a name and waits on.
func mark(name string) object {
	return object{"mode": "replace", "actions": []object{{"action": "set", "id": name, "variables": object{name: "yes"}}, {"action": "pause", "seconds": 300}}}
}

// TestPausedControllerSendsNothing stops the controller that holds the node until its lease is over, has the other one take it, and
// wakes the first one up again: with requests in its queue, timers that are due, and sessions of every call in its memory. Not one byte
// of it may reach the switch.
func TestPausedControllerSendsNothing(t *testing.T) { //nolint:paralleltest // a lease must not run out because of another test
	w := newLeaseWorld(t)
	first := w.holder(t.Context())
	require.NotNil(t, first)
	second := w.other(first)
	var calls []string
	for range 10 {
		calls = append(calls, w.calls(first))
	}
	first.signal(syscall.SIGSTOP)
	stopped := time.Now()
	w.has(second, chaosPatience)
	took := time.Since(stopped)
	require.Less(t, took, leaseOfTest+3*time.Second)
	// The second one steers: it carries out what it is asked for.
	for _, call := range calls[:5] {
		w.asks(second, http.MethodPost, "/v1/calls/"+call+"/actions", mark("second"), http.StatusAccepted)
	}
	for _, call := range calls[:5] {
		w.done(call, "second", chaosPatience)
	}
	before := w.link.Heard()
	firsts := slices.DeleteFunc(slices.Clone(before), func(h lab.Heard) bool { return h.Opened.After(stopped) })
	require.NotEmpty(t, firsts)
	// What the first one is asked for meanwhile waits in its socket, and is the first thing that it does when it wakes up.
	answers, written := make(chan int, len(calls)), make(chan struct{}, len(calls))
	writing := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { written <- struct{}{} }})
	for _, call := range calls[5:] {
		go func() {
			status, _, err := w.ask(writing, first, w.app.key, http.MethodPost, "/v1/calls/"+call+"/actions", mark("late"), "")
			if err != nil {
				status = -1
			}
			answers <- status
		}()
	}
	for range calls[5:] {
		<-written
	}
	first.signal(syscall.SIGCONT)
	woken := time.Now()
	for range calls[5:] {
		require.Equal(t, http.StatusAccepted, <-answers, "any controller takes any request")
	}
	for _, call := range calls[5:] {
		w.done(call, "late", chaosPatience)
		require.Equal(t, 1, w.count(call, "late"))
	}
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(first.log)
		return err == nil && strings.Contains(string(text), "node was taken by another controller")
	}, chaosPatience, 5*time.Millisecond, "the first one never noticed")
	// And with time for whatever it may still have in mind.
	rest(t.Context(), 2*leaseOfTest)
	after := w.link.Heard()
	for i, h := range before {
		if h.Opened.Before(stopped) {
			require.Equal(t, h, after[i], "the first one has said something after it woke up")
		}
	}
	require.Len(t, after, len(before), "the first one has connected again")
	require.Equal(t, second, w.holder(t.Context()))
	for _, call := range calls {
		require.Equal(t, "in_progress", w.asks(first, http.MethodGet, "/v1/calls/"+call, nil, http.StatusOK).text("status"))
	}
	t.Logf("node taken %s after the pause began (lease %s); woken after %s with %d calls and %d requests: %d connections, 0 bytes",
		took.Round(time.Millisecond), leaseOfTest, woken.Sub(stopped).Round(time.Millisecond), len(calls), len(calls)-5, len(firsts))
}

// TestTermHandsOver ends the holder by SIGTERM and measures how soon the other one steers its calls.
func TestTermHandsOver(t *testing.T) { //nolint:paralleltest // it measures
	w := newLeaseWorld(t)
	var taken, steered []time.Duration
	var calls []string
	for range 5 {
		calls = append(calls, w.calls(w.either()))
	}
	for round := range 6 {
		first := w.holder(t.Context())
		require.NotNil(t, first)
		second := w.other(first)
		began := time.Now()
		ended := make(chan time.Duration, 1)
		go func() {
			first.down(syscall.SIGTERM, 20*time.Second)
			ended <- time.Since(began)
		}()
		w.has(second, chaosPatience)
		taken = append(taken, time.Since(began))
		name := "round" + string(rune('a'+round))
		w.asks(second, http.MethodPost, "/v1/calls/"+calls[0]+"/actions", mark(name), http.StatusAccepted)
		w.done(calls[0], name, chaosPatience)
		steered = append(steered, time.Since(began))
		require.Less(t, <-ended, 20*time.Second)
		first.up()
		w.answers(t, first)
	}
	for _, call := range calls {
		require.Equal(t, "in_progress", w.asks(w.either(), http.MethodGet, "/v1/calls/"+call, nil, http.StatusOK).text("status"), "nothing is hung up")
	}
	slices.Sort(taken)
	slices.Sort(steered)
	for _, c := range w.controllers {
		require.Empty(t, c.ended)
	}
	t.Logf("SIGTERM to the next controller connected: median %s, worst %s; to its next command on a call: median %s, worst %s",
		taken[len(taken)/2].Round(time.Millisecond), taken[len(taken)-1].Round(time.Millisecond),
		steered[len(steered)/2].Round(time.Millisecond), steered[len(steered)-1].Round(time.Millisecond))
	require.Less(t, taken[len(taken)-1], leaseOfTest, "sooner than a lease runs out")
}

// TestAcceptedCommandsOutliveKill accepts commands at one controller whose holder is stopped, so that it cannot have done them, and kills
// the holder then. The other one does each of them once.
func TestAcceptedCommandsOutliveKill(t *testing.T) { //nolint:paralleltest // it measures
	w := newLeaseWorld(t)
	first := w.holder(t.Context())
	require.NotNil(t, first)
	second := w.other(first)
	var calls []string
	for range 5 {
		calls = append(calls, w.calls(w.either()))
	}
	first.signal(syscall.SIGSTOP)
	for _, call := range calls[:4] {
		w.asks(second, http.MethodPost, "/v1/calls/"+call+"/actions", mark("accepted"), http.StatusAccepted)
		more := mark("appended")
		more["mode"] = "append"
		w.asks(second, http.MethodPost, "/v1/calls/"+call+"/actions", more, http.StatusAccepted)
	}
	w.asks(second, http.MethodPost, "/v1/calls/"+calls[4]+"/cancel", nil, http.StatusAccepted)
	placed := w.asks(second, http.MethodPost, "/v1/calls", object{"application_id": w.app.id, "from": "+15550100000", "to": "+15550200002"}, http.StatusCreated).text("id")
	began := time.Now()
	first.down(syscall.SIGKILL, chaosPatience)
	for _, call := range calls[:4] {
		w.done(call, "accepted", chaosPatience)
	}
	took := time.Since(began)
	w.done(placed, "answer", chaosPatience)
	require.Eventually(t, func() bool {
		return w.asks(second, http.MethodGet, "/v1/calls/"+calls[4], nil, http.StatusOK).text("reason") == "api_hangup"
	}, chaosPatience, 10*time.Millisecond)
	for _, call := range calls[:4] {
		require.Equal(t, 1, w.count(call, "accepted"), "once")
		skip := object{"mode": "append", "actions": []object{{"action": "hangup"}}}
		w.asks(second, http.MethodPost, "/v1/calls/"+call+"/actions", skip, http.StatusAccepted)
		require.Equal(t, "in_progress", w.asks(second, http.MethodGet, "/v1/calls/"+call, nil, http.StatusOK).text("status"))
	}
	t.Logf("commands of %d calls done %s after kill -9 of their holder (lease %s)", 4, took.Round(time.Millisecond), leaseOfTest)
}
