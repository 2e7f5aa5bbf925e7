package webhooks

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/egress"
	"tandem/models"
	"tandem/models/modelstest"
)

func TestMain(m *testing.M) { modelstest.Main(m) }

// patience is how long a test waits for a signal before it fails.
const patience = 60 * time.Second

// request is one POST as a receiver saw it.
type request struct {
	ctx    context.Context // ends when whoever made the request hangs up
	header http.Header
	body   string
}

func (r request) id() string { return r.header.Get(HeaderID) }

// receiver is a customer's endpoint. answer decides about each request; it may block.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests []request
	arrived  chan request
}

func newReceiver(t testing.TB, answer func(w http.ResponseWriter, r request)) *receiver {
	t.Helper()
	rec := &receiver{arrived: make(chan request, 10_000)}
	rec.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the worker hung up
		}
		seen := request{ctx: r.Context(), header: r.Header.Clone(), body: string(body)}
		rec.mu.Lock()
		rec.requests = append(rec.requests, seen)
		rec.mu.Unlock()
		rec.arrived <- seen
		if answer != nil {
			answer(w, seen)
		}
	}))
	t.Cleanup(rec.Close)
	return rec
}

func (rec *receiver) seen() []request {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return append([]request(nil), rec.requests...)
}

// rig is a store with a customer, and workers that tell of their attempts.
type rig struct {
	t        testing.TB
	store    *models.Store
	clock    *modelstest.Clock
	customer *models.Customer
	client   *http.Client
	attempts chan Attempt
}

func newRig(t testing.TB, s *models.Store, clock *modelstest.Clock) *rig {
	t.Helper()
	client := egress.NewClient(egress.Config{AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowAnyPort: true})
	t.Cleanup(client.CloseIdleConnections)
	return &rig{
		t: t, store: s, clock: clock, client: client,
		customer: modelstest.Customer(t, s, 0),
		attempts: make(chan Attempt, 100_000),
	}
}

// application creates an application whose events go to a URL.
func (r *rig) application(url string) *models.Application {
	r.t.Helper()
	app := modelstest.Application(r.t, r.store, r.customer)
	app.WebhookURL = url
	require.NoError(r.t, r.store.UpdateApplication(r.t.Context(), app))
	return app
}

// worker starts a worker that is woken only by the store and by the test: its Poll is long, its jitter none, its
// leases outlast every leap of the clock, and a slow machine does not run its requests into their timeout.
func (r *rig) worker(edits ...func(*Config)) *Worker {
	r.t.Helper()
	cfg := Config{
		Store: r.store, Client: r.client, Workers: 8, PerEndpoint: 4, Poll: time.Hour, Lease: 10_000 * time.Hour, Timeout: 10 * time.Minute,
		Rand:      func() float64 { return 0.5 },
		OnAttempt: func(a Attempt) { r.attempts <- a },
	}
	for _, edit := range edits {
		edit(&cfg)
	}
	w, err := NewWorker(cfg)
	require.NoError(r.t, err)
	w.Start(r.t.Context())
	r.t.Cleanup(func() { r.stop(w) })
	return w
}

// stop stops a worker at once, and fails when that hangs.
func (r *rig) stop(w *Worker) {
	r.t.Helper()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.Stop(canceled())
	}()
	select {
	case <-stopped:
	case <-time.After(patience):
		require.FailNow(r.t, "the worker does not stop")
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// emit adds events to a call, each in its own transaction.
func (r *rig) emit(call *models.Call, n int) []*models.Event {
	r.t.Helper()
	var events []*models.Event
	for range n {
		err := r.store.InTx(r.t.Context(), func(tx *models.Store) error {
			event, err := Emit(r.t.Context(), tx, call, KindNotify, map[string]any{"payload": 1})
			events = append(events, event)
			return err
		})
		require.NoError(r.t, err)
	}
	return events
}

// call creates a call of an application with n events.
func (r *rig) call(app *models.Application, n int) (*models.Call, []*models.Event) {
	r.t.Helper()
	call := modelstest.Call(r.t, r.store, app)
	return call, r.emit(call, n)
}

// next waits for the next finished attempt.
func (r *rig) next() Attempt {
	r.t.Helper()
	select {
	case a := <-r.attempts:
		return a
	case <-time.After(patience):
		require.FailNow(r.t, "no attempt was finished")
		return Attempt{}
	}
}

// advance moves the clock and wakes the workers, as the passing of time would.
func (r *rig) advance(d time.Duration, workers ...*Worker) {
	r.clock.Advance(d)
	for _, w := range workers {
		w.Wake()
	}
}

func (r *rig) arrived(rec *receiver) request {
	r.t.Helper()
	select {
	case req := <-rec.arrived:
		return req
	case <-time.After(patience):
		require.FailNow(r.t, "no request arrived")
		return request{}
	}
}

// delivery returns what became of an event.
func (r *rig) delivery(event *models.Event) models.Delivery {
	r.t.Helper()
	rows, err := r.store.Deliveries(r.t.Context(), event.SubjectID)
	require.NoError(r.t, err)
	for _, row := range rows {
		if row.EventID == event.ID {
			return row
		}
	}
	require.FailNow(r.t, "the event has no delivery")
	return models.Delivery{}
}

func (r *rig) recorded(event *models.Event) []models.Attempt {
	r.t.Helper()
	rows, err := r.store.Attempts(r.t.Context(), event.ID)
	require.NoError(r.t, err)
	return rows
}

func (r *rig) endpoint(app *models.Application) *models.Endpoint {
	r.t.Helper()
	state, err := r.store.EndpointState(r.t.Context(), app.ID)
	require.NoError(r.t, err)
	return state
}

// gate holds requests back until it is opened or whoever made the request hangs up.
type gate struct{ open chan struct{} }

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) release() { close(g.open) }

func (g *gate) wait(r request) {
	select {
	case <-g.open:
	case <-r.ctx.Done():
	}
}

func sequence(t testing.TB, body string) (callID string, seq int64) {
	t.Helper()
	var event struct {
		Sequence int64 `json:"sequence"`
		Call     struct {
			ID string `json:"id"`
		} `json:"call"`
	}
	require.NoError(t, unmarshal(body, &event))
	return event.Call.ID, event.Sequence
}

// logs collects what a logger writes.
type logs struct {
	mu  sync.Mutex
	out strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

func itoa(n int) string { return strconv.Itoa(n) }
