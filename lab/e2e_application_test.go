package lab_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// application is a customer's side: an answer_url that a function of the test answers, and a webhook receiver that checks
// signatures and order.
type application struct {
	id, key string
	// url is where it lives; files are served below url + "/files/".
	url string

	secret []byte
	answer func(question) any

	// repeated counts the webhooks that came again.
	repeated atomic.Int64

	mu        sync.Mutex
	questions []question
	events    []object
	byCall    map[string][]object
	seen      map[string]bool
	problems  []string
	changed   chan struct{}
}

// question is what a URL of the application was asked.
type question struct {
	object
	path string
}

// failure is the answer of a server that fails, by HTTP status.
type failure int

func (q question) kind() string   { return q.text("type") }
func (q question) result() object { return q.part("result") }
func (q question) call() object   { return q.part("call") }

func (o object) part(name string) object {
	m, _ := o[name].(map[string]any)
	return m
}

// newApplication makes an application of a customer and starts its server. files are served to play.
func (s *system) newApplication(t *testing.T, who customer, name string, files map[string][]byte, answer func(question) any) *application {
	t.Helper()
	a := &application{secret: []byte("0123456789abcdef0123456789abcdef"), answer: answer, changed: make(chan struct{}), byCall: map[string][]object{}, seen: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /answer", a.handleAnswer)
	mux.HandleFunc("POST /fallback", a.handleAnswer)
	mux.HandleFunc("POST /hook", a.handleEvent)
	mux.HandleFunc("GET /files/", func(w http.ResponseWriter, r *http.Request) {
		data, ok := files[strings.TrimPrefix(r.URL.Path, "/files/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "audio/wav")
		_, _ = w.Write(data)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	a.url = server.URL
	made := s.make(t, who, "/v1/applications", object{
		"name": name, "answer_url": a.url + "/answer", "webhook_url": a.url + "/hook",
		"webhook_secret": "whsec_" + base64.StdEncoding.EncodeToString(a.secret),
	})
	a.id, a.key = made.text("id"), made.text("api_key")
	t.Cleanup(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, problem := range a.problems {
			t.Error(problem)
		}
	})
	return a
}

// change changes the application.
func (s *system) change(t *testing.T, a *application, fields object) {
	t.Helper()
	status, answer := s.ask(t, customer{key: a.key}, http.MethodPatch, "/v1/applications/"+a.id, fields)
	require.Equal(t, http.StatusOK, status, answer)
}

// oneError returns the one call.error among events.
func oneError(t *testing.T, events []object) object {
	t.Helper()
	var found []object
	for _, event := range events {
		if event.text("type") == "call.error" {
			found = append(found, event.part("data"))
		}
	}
	require.Len(t, found, 1, "call.error in %v", kinds(events))
	return found[0]
}

func (a *application) handleAnswer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	q := question{path: r.URL.Path}
	if err == nil {
		err = json.Unmarshal(body, &q.object)
	}
	if err == nil {
		err = a.verify(r.Header, body)
	}
	if err != nil {
		a.complain("answer_url: %v", err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	a.questions = append(a.questions, q)
	a.mu.Unlock()
	answer := a.answer(q)
	if status, failed := answer.(failure); failed {
		w.WriteHeader(int(status))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (a *application) handleEvent(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var event object
	if err == nil {
		err = json.Unmarshal(body, &event)
	}
	if err == nil {
		err = a.verify(r.Header, body)
	}
	if err == nil && r.Header.Get("webhook-id") != event.text("id") {
		err = fmt.Errorf("webhook-id %q is not the event's id %q", r.Header.Get("webhook-id"), event.text("id"))
	}
	if err != nil {
		a.complain("webhook: %v", err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen[event.text("id")] {
		a.repeated.Add(1)
		return
	}
	a.seen[event.text("id")] = true
	a.events = append(a.events, event)
	id := event.part("call").text("id")
	a.byCall[id] = append(a.byCall[id], event)
	close(a.changed)
	a.changed = make(chan struct{})
}

// count returns how many events satisfy a condition so far, and a channel that is closed when there are more.
func (a *application) count(condition func(object) bool) (int, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, event := range a.events {
		if condition(event) {
			n++
		}
	}
	return n, a.changed
}

func (a *application) complain(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.problems = append(a.problems, fmt.Sprintf(format, args...))
}

// verify checks a signature by the Standard Webhooks rules, written here once more so that the product is not its own judge.
func (a *application) verify(h http.Header, body []byte) error {
	mac := hmac.New(sha256.New, a.secret)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", h.Get("webhook-id"), h.Get("webhook-timestamp"), body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	if !slices.Contains(strings.Fields(h.Get("webhook-signature")), want) {
		return fmt.Errorf("no signature matches in %q", h.Get("webhook-signature"))
	}
	return nil
}

// asked returns the questions about a call so far.
func (a *application) asked(call string) []question {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []question
	for _, q := range a.questions {
		if q.call().text("id") == call {
			list = append(list, q)
		}
	}
	return list
}

// of returns the events of a call so far, and a channel that is closed when there are more.
func (a *application) of(call string) ([]object, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.byCall[call]), a.changed
}

// first waits for the first event of a kind, of any call, and returns it: how the test learns of an inbound call.
func (a *application) first(ctx context.Context, t *testing.T, kind string) object {
	t.Helper()
	for {
		a.mu.Lock()
		events, changed := slices.Clone(a.events), a.changed
		a.mu.Unlock()
		for _, event := range events {
			if event.text("type") == kind {
				return event
			}
		}
		wait(ctx, t, changed, "no event "+kind)
	}
}

// until waits for an event of a call and returns all events of the call up to then.
func (a *application) until(ctx context.Context, t *testing.T, call, kind string) []object {
	t.Helper()
	for {
		events, changed := a.of(call)
		for _, event := range events {
			if event.text("type") == kind {
				return events
			}
		}
		wait(ctx, t, changed, fmt.Sprintf("no event %s of %s, only %v", kind, call, kinds(events)))
	}
}

// ended waits for the end of a call and checks what holds for every call: events in order and without a gap, both shapes of the
// body, exactly one terminal event, and the same end in GET /v1/calls/:id.
func (a *application) ended(ctx context.Context, t *testing.T, s *system, call string) (end object, events []object) {
	t.Helper()
	for end == nil {
		var changed <-chan struct{}
		events, changed = a.of(call)
		for _, event := range events {
			if terminal(event) {
				end = event
			}
		}
		if end == nil {
			wait(ctx, t, changed, fmt.Sprintf("%s did not end, only %v", call, kinds(events)))
		}
	}
	count := 0
	for i, event := range events {
		require.Equal(t, i+1, event.number("sequence"), "events %v", kinds(events))
		require.Equal(t, event["type"], event["event"])
		require.Equal(t, call, event.part("data").part("call").text("id"))
		if terminal(event) {
			count++
		}
	}
	require.Equal(t, 1, count, "terminal events in %v", kinds(events))
	status, got := s.ask(t, customer{key: a.key}, http.MethodGet, "/v1/calls/"+call, nil)
	require.Equal(t, http.StatusOK, status)
	for _, name := range []string{"status", "reason", "hangup_source", "cause", "sip_code", "from", "to", "direction"} {
		require.Equal(t, end.part("call")[name], got[name], name)
	}
	return end, events
}

func terminal(event object) bool {
	return event.text("type") == "call.completed" || event.text("type") == "call.failed"
}

func kinds(events []object) []string {
	list := make([]string, 0, len(events))
	for _, event := range events {
		list = append(list, event.text("type"))
	}
	return list
}

func wait(ctx context.Context, t *testing.T, changed <-chan struct{}, problem string) {
	t.Helper()
	select {
	case <-changed:
	case <-ctx.Done():
		require.FailNow(t, problem)
	}
}

// callFrom places a call of an application and returns it.
func (s *system) callFrom(t *testing.T, a *application, to string, more object) object {
	t.Helper()
	request := object{"application_id": a.id, "from": "+15550100000", "to": to}
	for name, value := range more {
		request[name] = value
	}
	call := s.make(t, customer{key: a.key}, "/v1/calls", request)
	require.Equal(t, "dialing", call["status"])
	return call
}

// says is a list of one say.
func says(text string) []object { return []object{{"action": "say", "text": text}} }

// soon is a context for one exchange of a call.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}
