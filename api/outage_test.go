package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/calls"
	"tandem/models"
	"tandem/models/modelstest"
)

// killable is a bench on a PostgreSQL that the test may kill and start.
func killable(t *testing.T) (*modelstest.Separate, *bench) {
	t.Helper()
	server := modelstest.StartSeparate(t)
	store, err := models.Open(t.Context(), models.Config{URL: server.URL(), Key: modelstest.Key})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Migrate(t.Context()))
	return server, newBench(t, store, Config{})
}

// TestDatabaseAway: reads and writes are refused as long as the database is away, and not a moment longer; what was refused may be
// sent again with its Idempotency-Key.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	server, b := killable(t)
	app := object{"name": "a", "answer_url": "https://a.example/"}
	first := b.postOnce("before", "/v1/applications", app).is(201)
	call := b.callBody()
	server.Kill()
	for _, refused := range []response{
		b.get("/v1/me"), b.get("/v1/calls"), b.postOnce("k", "/v1/applications", app), b.postOnce("c", "/v1/calls", call),
		b.patch("/v1/applications/"+first.str("id"), object{"name": "b"}), b.postOnce("before", "/v1/applications", app),
	} {
		refused.refused(codeUnavailable, "")
		require.Equal(t, "5", refused.header.Get("Retry-After"))
		require.NotContains(t, string(refused.body), "tandem-pg", "nothing of the database's address is told")
	}
	require.NotContains(t, b.logs.String(), "request failed", "an outage is not told with each request")
	require.NoError(t, server.Start(t.Context()))
	require.Equal(t, first.body, b.postOnce("before", "/v1/applications", app).is(201).body)
	made := b.postOnce("k", "/v1/applications", app).is(201)
	require.Equal(t, made.body, b.postOnce("k", "/v1/applications", app).is(201).body)
	b.postOnce("c", "/v1/calls", call).is(201)
	require.Equal(t, 1, b.calls.count())
}

// lossy makes calls and loses the answers to the commits.
type lossy struct{ Calls }

func (l lossy) Create(ctx context.Context, request calls.CreateRequest) (*models.Call, error) {
	if _, err := l.Calls.Create(ctx, request); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("commit: %w", models.ErrUnreachable)
}

// TestCommitIsLost: a call that was made although its request was refused is not made again for its key.
func TestCommitIsLost(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		body := b.callBody()
		b.server.calls = lossy{b.calls}
		b.postOnce("k", "/v1/calls", body).refused(codeUnavailable, "")
		again := b.postOnce("k", "/v1/calls", body).is(201)
		require.NotEmpty(b.t, again.header.Get(headerReplayed))
		require.Equal(b.t, 1, b.calls.count())
		require.Len(b.t, b.get("/v1/calls").data(), 1)
	})
}

// TestStorageFull: a full disk is told as what it is, and what is there can be read.
func TestStorageFull(t *testing.T) {
	t.Parallel()
	server, b := killable(t)
	app := object{"name": "a", "answer_url": "https://a.example/"}
	b.postOnce("a", "/v1/applications", app).is(201)
	server.SetFull(t, "applications", true)
	refused := b.postOnce("k", "/v1/applications", app).refused(codeStorageFull, "")
	require.Equal(t, "5", refused.header.Get("Retry-After"))
	b.get("/v1/applications").is(200)
	server.SetFull(t, "applications", false)
	b.postOnce("k", "/v1/applications", app).is(201)
}

// overloaded takes no call.
type overloaded struct{ Calls }

func (overloaded) Create(context.Context, calls.CreateRequest) (*models.Call, error) {
	return nil, fmt.Errorf("%w: 9 calls are live", calls.ErrOverloaded)
}

func TestOverloaded(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	body := b.callBody()
	b.server.calls = overloaded{b.calls}
	refused := b.postOnce("k", "/v1/calls", body).refused(codeOverloaded, "")
	require.Equal(t, "2", refused.header.Get("Retry-After"))
	b.server.calls = b.calls
	b.postOnce("k", "/v1/calls", body).is(201)
}

// waiting keeps its requests until it is let go.
type waiting struct {
	Calls
	begun, release chan struct{}
}

func (w waiting) Create(ctx context.Context, request calls.CreateRequest) (*models.Call, error) {
	w.begun <- struct{}{}
	<-w.release
	return w.Calls.Create(ctx, request)
}

// TestRequestsAreBounded: more requests at a time than there are places are refused at once; those that have one are answered.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	const places = 3
	b := newBench(t, modelstest.Open(t), Config{MaxRequests: places})
	body := b.callBody()
	slow := waiting{b.calls, make(chan struct{}), make(chan struct{})}
	b.server.calls = slow
	answers := make([]response, places)
	var clients sync.WaitGroup
	for i := range places {
		clients.Go(func() { answers[i] = b.post("/v1/calls", body) })
		<-slow.begun
	}
	b.get("/v1/me").refused(codeOverloaded, "")
	close(slow.release)
	clients.Wait()
	for _, answer := range answers {
		answer.is(http.StatusCreated)
	}
	b.get("/v1/me").is(200)
}
