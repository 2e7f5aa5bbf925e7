package lab_test

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sink is the customer's server: the answer_url of every application, the receiver of every webhook, and a judge of both.
type sink struct {
	url    string
	secret []byte
	plan   chaosPlan
	health atomic.Int32

	mu       sync.Mutex
	calls    map[string]*tale // by call
	events   map[string]uint64
	probes   map[string]bool // the numbers that have been probed
	repeated int
	refused  int // requests that it failed on purpose
	problems problems
	written  *bufio.Writer
	conns    map[net.Conn]struct{}
}

// tale is what the customer was told of a call.
type tale struct {
	application string
	events      []told
	asked       []string // what was asked, in order
	gathered    string   // the outcome of its gather, and the digits
	commanded   bool     // the API was told to do something with it
}

// told is a webhook.
type told struct {
	ID, Type string
	Sequence int
	At       time.Time // when it came first
	Call     object
	Data     object
}

// What the customer's server does.
const (
	healthy int32 = iota
	dead          // connections are closed as soon as they are made
	failing       // everything is answered with 500
	slow          // everything takes seconds
)

func newSink(t *testing.T, w *chaosWorld) *sink {
	t.Helper()
	s := &sink{secret: []byte("0123456789abcdef0123456789abcdef"), plan: w.plan, calls: map[string]*tale{}, events: map[string]uint64{},
		probes: map[string]bool{}, conns: map[net.Conn]struct{}{}}
	file, err := os.Create(filepath.Join(w.folder, "webhooks.jsonl"))
	require.NoError(t, err)
	s.written = bufio.NewWriterSize(file, 1<<20)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.url = "http://" + listener.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /answer", s.answer)
	mux.HandleFunc("POST /answer/{round}", s.answer)
	mux.HandleFunc("POST /hook", s.hook)
	server := &http.Server{Handler: mux, ConnState: s.follow, ReadHeaderTimeout: time.Minute}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = server.Close()
		served.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		require.NoError(t, s.written.Flush())
		require.NoError(t, file.Close())
	})
	return s
}

func (s *sink) secretText() string {
	return "whsec_" + base64.StdEncoding.EncodeToString(s.secret)
}

// follow keeps the connections, and resets those that come while the server is dead.
func (s *sink) follow(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case state == http.StateNew && s.health.Load() == dead:
		s.refused++
		resetConn(conn)
	case state == http.StateNew:
		s.conns[conn] = struct{}{}
	case state == http.StateClosed:
		delete(s.conns, conn)
	}
}

// turn changes what the server does from now on.
func (s *sink) turn(to int32) {
	s.health.Store(to)
	if to != dead {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		resetConn(conn)
	}
}

func resetConn(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// ill does what a server that is not well does, and tells whether that was the answer.
func (s *sink) ill(w http.ResponseWriter, r *http.Request) bool {
	switch s.health.Load() {
	case failing, dead:
		s.mu.Lock()
		s.refused++
		s.mu.Unlock()
		w.WriteHeader(http.StatusInternalServerError)
		return true
	case slow:
		return !rest(r.Context(), 2*time.Second)
	default:
		return false
	}
}

// read takes a request in whose signature is right.
func (s *sink) read(r *http.Request) (object, []byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil, err
	}
	mac := hmac.New(sha256.New, s.secret)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); !slices.Contains(strings.Fields(r.Header.Get("webhook-signature")), want) {
		return nil, nil, fmt.Errorf("no signature of %s matches", r.URL.Path)
	}
	var parsed object
	return parsed, body, json.Unmarshal(body, &parsed)
}

func (s *sink) hook(w http.ResponseWriter, r *http.Request) {
	if s.ill(w, r) {
		return
	}
	event, body, err := s.read(r)
	if err != nil {
		// A sender that died in the middle of its request is nobody's fault.
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	sum := fnv.New64a()
	_, _ = sum.Write(body)
	s.mu.Lock()
	defer s.mu.Unlock()
	id := event.text("id")
	if before, known := s.events[id]; known {
		s.repeated++
		if before != sum.Sum64() {
			s.problems.add("an event came again with other content", "%s", id)
		}
		return
	}
	s.events[id] = sum.Sum64()
	_, _ = s.written.Write(append(body, '\n'))
	call := event.part("call")
	if call == nil {
		return // of a trunk
	}
	t := s.tale(call.text("id"))
	t.application = call.text("application_id")
	t.events = append(t.events, told{ID: id, Type: event.text("type"), Sequence: event.number("sequence"), At: time.Now(), Call: call, Data: event.part("data")})
	if want := len(t.events); event.number("sequence") != want {
		s.problems.add("a webhook came out of order", "%s of %s has the sequence %d and came as number %d", id, call.text("id"), event.number("sequence"), want)
	}
}

func (s *sink) tale(call string) *tale {
	t := s.calls[call]
	if t == nil {
		t = &tale{}
		s.calls[call] = t
	}
	return t
}

func (s *sink) answer(w http.ResponseWriter, r *http.Request) {
	if s.ill(w, r) {
		return
	}
	body, _, err := s.read(r)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	q := question{object: body, path: r.URL.Path}
	id := q.call().text("id")
	s.mu.Lock()
	if q.call().text("from") == loadProbe {
		s.probes[q.call().text("to")] = true
		s.mu.Unlock()
		_ = json.NewEncoder(w).Encode([]object{{"action": "reject"}})
		return
	}
	t := s.tale(id)
	t.asked = append(t.asked, fmt.Sprintf("%s %s %s", r.URL.Path, q.result().text("id"), q.result().text("outcome")))
	if q.result().text("action") == "gather" {
		t.gathered = q.result().text("outcome") + " " + q.result().text("digits")
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.plan.flowOf(id, q.call().text("direction"))[roundOf(r.PathValue("round"))])
}

func (s *sink) probed(number string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.probes[number]
}

// snapshot returns the tales, which nobody changes any more once all is settled.
func (s *sink) snapshot() map[string]*tale {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}
