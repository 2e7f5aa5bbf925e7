package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/webhooks"
)

const listenSecret = "a secret of the developer"

// ear is a developer's server: it checks each webhook as a receiver would.
type ear struct {
	*httptest.Server
	mu     sync.Mutex
	secret string
	ids    []string
	types  []string
	bad    []error
	answer func(n int) int
	heard  chan string
}

func newEar(t *testing.T, secret string) *ear {
	t.Helper()
	e := &ear{secret: secret, heard: make(chan string, 1000)}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e
}

func (e *ear) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil && e.secret != "" {
		err = webhooks.Verify(e.secret, r.Header, body, time.Now())
	}
	if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || r.UserAgent() != "Tandem-Webhooks/1" {
		e.bad = append(e.bad, fmt.Errorf("%s %v: %w", r.Method, r.Header, err))
	}
	var event listenEvent
	if err := json.Unmarshal(body, &event); err != nil || event.ID != r.Header.Get(webhooks.HeaderID) {
		e.bad = append(e.bad, fmt.Errorf("body %s: %w", body, err))
	}
	e.ids, e.types = append(e.ids, event.ID), append(e.types, event.Type)
	e.heard <- event.ID
	if e.answer != nil {
		w.WriteHeader(e.answer(len(e.ids)))
	}
}

func (e *ear) got(t *testing.T) (ids, types []string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	require.Empty(t, e.bad)
	return append([]string(nil), e.ids...), append([]string(nil), e.types...)
}

// wait returns once n webhooks were heard.
func (e *ear) wait(t *testing.T, n int) {
	t.Helper()
	limit := time.After(time.Minute)
	for range n {
		select {
		case <-e.heard:
		case <-limit:
			require.FailNow(t, "no webhook was heard")
		}
	}
}

// journalFake is an API with a journal of numbered events; its cursors are numbers.
type journalFake struct {
	*httptest.Server
	mu      sync.Mutex
	events  int
	refuse  func(w http.ResponseWriter) bool
	queries []url.Values
}

func newJournalFake(t *testing.T) *journalFake {
	t.Helper()
	f := &journalFake{}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *journalFake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries = append(f.queries, r.URL.Query())
	if r.URL.Path != "/v1/events" || r.Header.Get("Authorization") != "Bearer key" {
		http.Error(w, `{"error": {"code": "unauthorized", "message": "no such key"}}`, http.StatusUnauthorized)
		return
	}
	if f.refuse != nil && f.refuse(w) {
		return
	}
	at, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	if r.URL.Query().Get("cursor") == "now" {
		at = f.events
	}
	page := journalPage{Events: []json.RawMessage{}}
	for ; at < f.events && len(page.Events) < 5; at++ {
		page.Events = append(page.Events, json.RawMessage(fmt.Sprintf(`{"id":"evt_%d","type":"call.notify","sequence":%d,"call":{"id":"call_1"}}`, at+1, at+1)))
	}
	page.More, page.Next = at < f.events, strconv.Itoa(at)
	_ = json.NewEncoder(w).Encode(page)
}

func (f *journalFake) add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events += n
}

func (f *journalFake) refuseWith(refuse func(w http.ResponseWriter) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = refuse
}

// transcript is a writer that can be read while it is written.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
	wake chan struct{}
}

func newTranscript() *transcript { return &transcript{wake: make(chan struct{}, 1000)} }

func (s *transcript) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.wake <- struct{}{} }()
	return s.text.Write(p)
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// until returns once the text holds something.
func (s *transcript) until(t *testing.T, what string) {
	t.Helper()
	for limit := time.After(time.Minute); !strings.Contains(s.String(), what); {
		select {
		case <-s.wake:
		case <-limit:
			require.FailNow(t, "it was not said: "+what, s.String())
		}
	}
}

// listening is a `tandem listen` under way.
type listening struct {
	out, log *transcript
	stop     func() error
}

func listen(t *testing.T, opts ListenOptions) *listening {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &listening{out: newTranscript(), log: newTranscript()}
	opts.APIKey, opts.Interval, opts.Out, opts.Log = "key", 2*time.Millisecond, l.out, l.log
	ended := make(chan error, 1)
	go func() { ended <- Listen(ctx, opts) }()
	l.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { require.NoError(t, l.stop()) })
	return l
}

func numbered(from, to int) (ids []string) {
	for n := from; n <= to; n++ {
		ids = append(ids, fmt.Sprintf("evt_%d", n))
	}
	return ids
}

func TestListenForwards(t *testing.T) {
	t.Parallel()
	journal, receiver := newJournalFake(t), newEar(t, listenSecret)
	journal.add(3)
	run := listen(t, ListenOptions{APIURL: journal.URL, Forward: receiver.URL, Secret: listenSecret, Types: "call.*", ApplicationID: "app_1"})
	run.log.until(t, "forwarding events")
	require.Eventually(t, func() bool { // the end of the journal is asked for once
		journal.mu.Lock()
		defer journal.mu.Unlock()
		return len(journal.queries) > 1
	}, time.Minute, time.Millisecond)
	journal.add(12)
	receiver.wait(t, 12)
	run.out.until(t, "evt_15 ")
	require.NoError(t, run.stop())
	ids, _ := receiver.got(t)
	require.Equal(t, numbered(4, 15), ids, "what happened before is not forwarded, the rest in its order")
	lines := strings.Split(strings.TrimSpace(run.out.String()), "\n")
	require.Len(t, lines, 12)
	require.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3}  call\.notify +evt_4  call_1 +4  200 in \d+ ms$`, lines[0])
	require.NotContains(t, run.log.String(), listenSecret)
	query := journal.queries[0]
	require.Equal(t, []string{"now", "call.*", "app_1"}, []string{query.Get("cursor"), query.Get("type"), query.Get("application_id")})

	// And on from where it stopped.
	place := regexp.MustCompile(`go on with --from (\S+)`).FindStringSubmatch(run.log.String())
	require.NotNil(t, place)
	journal.add(2)
	again := listen(t, ListenOptions{APIURL: journal.URL, Forward: receiver.URL, Secret: listenSecret, From: place[1], JSON: true})
	receiver.wait(t, 2)
	again.out.until(t, "evt_17")
	require.NoError(t, again.stop())
	var line listenLine
	require.NoError(t, json.Unmarshal([]byte(strings.Split(again.out.String(), "\n")[0]), &line))
	require.Positive(t, line.LatencyMS)
	sequence := int64(16)
	require.Equal(t, listenLine{EventID: "evt_16", Type: "call.notify", CallID: "call_1", Sequence: &sequence, Status: 200, LatencyMS: line.LatencyMS}, line)

	// From the start, with a secret that is made and printed once.
	fresh := newEar(t, "")
	whole := listen(t, ListenOptions{APIURL: journal.URL, Forward: fresh.URL, From: ListenFromStart})
	whole.log.until(t, "signed with the secret whsec_")
	secret := regexp.MustCompile(`whsec_\S+`).FindString(whole.log.String())
	fresh.mu.Lock()
	fresh.secret = secret
	fresh.mu.Unlock()
	fresh.wait(t, 17)
	require.NoError(t, whole.stop())
	ids, _ = fresh.got(t)
	require.Equal(t, numbered(1, 17), ids)
}

// TestListenOutlastsFailures has the API refuse for a while, the receiver answer whatever it likes and be gone for a while: each
// event is forwarded once, in order.
func TestListenOutlastsFailures(t *testing.T) {
	t.Parallel()
	journal, receiver := newJournalFake(t), newEar(t, listenSecret)
	receiver.answer = func(n int) int { return []int{200, 500, 302, 410, 429}[n%5] }
	refusals := 0
	journal.refuseWith(func(w http.ResponseWriter) bool {
		if refusals++; refusals > 4 {
			return false
		}
		status := []int{503, 500, 429, 502}[refusals-1]
		http.Error(w, `{"error": {"code": "unavailable", "message": "the service is stopping; try again"}}`, status)
		return true
	})
	journal.add(7)
	run := listen(t, ListenOptions{APIURL: journal.URL, Forward: receiver.URL, Secret: listenSecret, From: ListenFromStart})
	run.log.until(t, "waiting for the API: the server answered 503 unavailable: the service is stopping; try again")
	receiver.wait(t, 7)
	run.log.until(t, "the API is back")
	require.Equal(t, 1, strings.Count(run.log.String(), "waiting for the API"), "it is said once")
	run.out.until(t, "evt_7 ")
	require.Contains(t, run.out.String(), "500 in ")
	require.NoError(t, run.stop())

	// The receiver's port is closed, and opened later.
	taken := receiver.Listener.Addr().String()
	receiver.Close()
	journal.add(3)
	run = listen(t, ListenOptions{APIURL: journal.URL, Forward: "http://" + taken, Secret: listenSecret, From: "7"})
	run.log.until(t, "waiting for http://"+taken)
	back := &ear{secret: listenSecret, heard: make(chan string, 1000)}
	var socket net.Listener
	require.Eventually(t, func() (open bool) {
		var config net.ListenConfig
		var err error
		socket, err = config.Listen(t.Context(), "tcp", taken)
		return err == nil
	}, time.Minute, time.Millisecond)
	server := &http.Server{Handler: back, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(socket)
	}()
	back.wait(t, 3)
	require.NoError(t, run.stop())
	require.NoError(t, server.Close())
	<-served
	ids, _ := back.got(t)
	require.Equal(t, numbered(8, 10), ids)
}

// TestListenKeepsItsPlace stops a run in the middle of a page: the next one goes on behind the last event that was forwarded.
func TestListenKeepsItsPlace(t *testing.T) {
	t.Parallel()
	journal, receiver := newJournalFake(t), newEar(t, listenSecret)
	journal.add(4)
	file := filepath.Join(t.TempDir(), "listen.json")
	opts := ListenOptions{APIURL: journal.URL, Forward: receiver.URL, Secret: listenSecret, From: ListenFromStart, CursorFile: file}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	halfway := opts
	halfway.APIKey, halfway.Interval, halfway.Log = "key", time.Millisecond, io.Discard
	halfway.Out = writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "evt_3 ") {
			cancel()
		}
		return len(p), nil
	})
	require.NoError(t, Listen(ctx, halfway))
	receiver.wait(t, 3)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.JSONEq(t, `{"cursor": "", "last_event_id": "evt_3"}`, string(raw))

	journal.add(9)
	run := listen(t, opts)
	receiver.wait(t, 10)
	run.out.until(t, "evt_13 ")
	require.NoError(t, run.stop())
	ids, _ := receiver.got(t)
	require.Equal(t, numbered(1, 13), ids)
	require.NotContains(t, run.log.String(), "--from", "the file has it")

	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	opts.APIKey, opts.Out, opts.Log = "key", io.Discard, io.Discard
	require.ErrorIs(t, Listen(t.Context(), opts), ErrListen)
	opts.CursorFile = filepath.Join(t.TempDir(), "no", "folder", "listen.json")
	err = Listen(t.Context(), opts)
	require.ErrorContains(t, err, "keep the cursor")
	require.NotErrorIs(t, err, ErrListen)
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	journal := newJournalFake(t)
	good := ListenOptions{APIURL: journal.URL, APIKey: "key", Forward: "http://127.0.0.1:1/hook", Out: io.Discard, Log: io.Discard}
	for name, edit := range map[string]func(*ListenOptions){
		"no forward":  func(o *ListenOptions) { o.Forward = "" },
		"bad forward": func(o *ListenOptions) { o.Forward = "localhost:3000" },
		"bad API":     func(o *ListenOptions) { o.APIURL = "ftp://127.0.0.1" },
		"no key":      func(o *ListenOptions) { o.APIKey = "" },
	} {
		opts := good
		edit(&opts)
		require.ErrorIs(t, Listen(t.Context(), opts), ErrListen, name)
	}
	wrong := good
	wrong.APIKey = "another"
	err := Listen(t.Context(), wrong)
	require.EqualError(t, err, "read the journal: the server answered 401 unauthorized: no such key")
	require.NotErrorIs(t, err, ErrListen)
	journal.refuseWith(func(w http.ResponseWriter) bool {
		http.Error(w, `{"error": {"code": "invalid_request", "message": "cursor must be a next_cursor that this list returned"}}`, http.StatusBadRequest)
		return true
	})
	require.ErrorIs(t, Listen(t.Context(), good), ErrListen)
	journal.refuseWith(func(w http.ResponseWriter) bool {
		_, _ = io.WriteString(w, `{"data": []}`)
		return true
	})
	require.ErrorContains(t, Listen(t.Context(), good), "no next_cursor")
}

// TestListenToDev follows a `tandem dev` that is stopped and started again between two calls: their events come once each, in
// their order, signed.
func TestListenToDev(t *testing.T) { //nolint:paralleltest // t.Setenv
	t.Setenv("TANDEM_HTTP_ADDR", "127.0.0.1:0")
	t.Setenv("TANDEM_DEV_API_KEY", "key")
	dir := filepath.Join(t.TempDir(), "data")
	var mu sync.Mutex
	var target *url.URL
	front := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		mu.Lock()
		defer mu.Unlock()
		r.SetURL(target)
	}, ErrorLog: nil})
	defer front.Close()
	aim := func(raw string) {
		parsed, err := url.Parse(raw)
		require.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		target = parsed
	}

	first := startDev(t, dir, DevOptions{})
	aim(first.url)
	receiver := newEar(t, listenSecret)
	run := listen(t, ListenOptions{APIURL: front.URL, Forward: receiver.URL, Secret: listenSecret, From: ListenFromStart, Types: "call.created,call.completed"})
	call := func(dev *devRun) {
		status, answer := post(t, dev.url+"/v1/calls", "key", map[string]string{"application_id": dev.app, "from": devNumber, "to": devCallee})
		require.Equal(t, http.StatusCreated, status, answer)
		dev.webhooks(t)
	}
	call(first)
	require.NoError(t, first.stop())
	run.log.until(t, "waiting for the API")
	second := startDev(t, dir, DevOptions{})
	call(second)
	aim(second.url)
	receiver.wait(t, 4)
	require.NoError(t, run.stop())
	_, types := receiver.got(t)
	require.Equal(t, []string{"call.created", "call.completed", "call.created", "call.completed"}, types)
	require.NoError(t, second.stop())
}
