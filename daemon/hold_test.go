package daemon

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// ups is a handler that tells when a connection is up.
type ups chan struct{}

func (u ups) HandleUp(esl.Snapshot) { u <- struct{}{} }
func (ups) HandleEvent(*esl.Event)  {}
func (ups) HandleDown(error)        {}
func simulated(t *testing.T) (addr string) {
	t.Helper()
	sim, err := startSimSwitch("127.0.0.1:0", "secret", t.TempDir(), nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sim.Close()) })
	return sim.Addr()
}

// taker is the fence of another controller, with its token.
type taker int64

func (taker) Held() bool                                         { return true }
func (taker) Check(context.Context) error                        { return nil }
func (t taker) Claim(ctx context.Context, conn *esl.Claim) error { return conn.Take(ctx, int64(t)) }

// connect connects to a switch behind a fence, and waits until it is up.
func connect(t *testing.T, addr string, fence esl.Fence) *esl.Node {
	t.Helper()
	up := make(ups, 10)
	conn, err := esl.NewNode(esl.Config{Addr: addr, Password: "secret", Handler: up, Fence: fence})
	require.NoError(t, err)
	require.NoError(t, conn.Start(t.Context()))
	t.Cleanup(conn.Stop)
	<-up
	return conn
}

// held is a lease of a node of a simulated switch, and how often it was told that the lease is lost.
func held(t *testing.T, store *models.Store, addr string) (h *hold, told *atomic.Int64) {
	t.Helper()
	node := modelstest.Node(t, store)
	asked := time.Now()
	token, ok, err := store.AcquireNode(t.Context(), node.ID, "first", time.Minute, 0)
	require.NoError(t, err)
	require.True(t, ok)
	h, told = newHold(asked, time.Minute), &atomic.Int64{}
	h.store, h.node, h.name, h.owner, h.token, h.logger = store, node.ID, node.Name, "first", token, slog.New(slog.DiscardHandler)
	h.safe, h.tell = &atomic.Bool{}, func() { told.Add(1) }
	h.conn = connect(t, addr, h)
	return h, told
}

// runOut ends the lease by our clock, as a pause does.
func (h *hold) runOut() { h.extend(time.Now()) }

const noChannel = "2f4d0e8c-0000-4000-8000-000000000001"

func TestHoldThatRanOutIsRenewed(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		h, told := held(t, store, simulated(t))
		require.True(t, h.Held())
		h.runOut()
		require.False(t, h.Held())
		_, err := h.conn.Exists(t.Context(), noChannel)
		require.NoError(t, err, "nobody has taken it: the lease is ours again")
		require.True(t, h.Held())
		require.Zero(t, told.Load())
	})
}

func TestHoldThatAnotherTook(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		h, told := held(t, store, simulated(t))
		require.NoError(t, store.ReleaseNode(t.Context(), h.node, "first", h.token))
		_, ok, err := store.AcquireNode(t.Context(), h.node, "second", time.Minute, 0)
		require.NoError(t, err)
		require.True(t, ok)
		h.runOut()
		for range 3 {
			_, err = h.conn.Exists(t.Context(), noChannel)
			require.ErrorIs(t, err, esl.ErrFenced)
		}
		require.EqualValues(t, 1, told.Load())
	})
}

// While the database is away, the switch says whose the node is: nobody takes it without writing into it.
func TestHoldOutlastsTheDatabase(t *testing.T) {
	t.Parallel()
	database := modelstest.StartSeparate(t)
	store, err := models.Open(t.Context(), models.Config{URL: database.URL(), Key: modelstest.Key})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	require.NoError(t, store.Migrate(t.Context()))
	addr := simulated(t)
	h, told := held(t, store, addr)
	database.Kill()
	for range 3 {
		h.runOut()
		_, err = h.conn.Exists(t.Context(), noChannel)
		require.NoError(t, err)
		require.True(t, h.Held())
	}
	// A new connection is ours by the same word.
	h.runOut()
	again := connect(t, addr, h)
	_, err = again.Exists(t.Context(), noChannel)
	require.NoError(t, err)
	again.Stop()
	// Another controller, whom the database gave the node, writes its token.
	connect(t, addr, taker(h.token+1))
	h.runOut()
	_, err = h.conn.Exists(t.Context(), noChannel)
	require.ErrorIs(t, err, esl.ErrFenced)
	require.EqualValues(t, 1, told.Load())
	// Neither the one nor the other can be asked.
	h.lost.Store(false)
	h.conn.Stop()
	err = h.Check(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, esl.ErrFenced, "not known is not lost")
	require.ErrorIs(t, err, esl.ErrDown, "commands wait, calls go on")
	require.False(t, h.Held())
}

// After an outage of the database whoever held a node comes first.
func TestKeeperDefersToTheHolderAfterAnOutage(t *testing.T) {
	t.Parallel()
	database := modelstest.StartSeparate(t)
	store, err := models.Open(t.Context(), models.Config{URL: database.URL(), Key: modelstest.Key})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	require.NoError(t, store.Migrate(t.Context()))
	keeper := newNodeKeeper(store, nil, nil, "keeper", time.Minute, slog.New(slog.DiscardHandler))
	ranOut := models.Node{LeaseOwner: "holder"}
	require.NoError(t, keeper.look(t.Context()))
	require.False(t, keeper.defers(ranOut, time.Now()), "the database was there all the time")
	database.Kill()
	require.Error(t, keeper.look(t.Context()))
	require.NoError(t, database.Start(t.Context()))
	require.NoError(t, keeper.look(t.Context()))
	require.True(t, keeper.defers(ranOut, time.Now()))
	require.False(t, keeper.defers(ranOut, time.Now().Add(time.Minute)), "a holder that has not come back within a lease is gone")
	require.False(t, keeper.defers(models.Node{LeaseOwner: ""}, time.Now()), "nobody held it, or it was given back")
	require.False(t, keeper.defers(models.Node{LeaseOwner: "keeper"}, time.Now()))
}

// A switch whose token is greater than the database's, which was restored from a copy perhaps, is taken with a token above it.
func TestKeeperTakesANodeWhoseTokenTheDatabaseHasForgotten(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		ctx := t.Context()
		addr := simulated(t)
		before := connect(t, addr, taker(50))
		node := &models.Node{Name: "one", ESLAddr: addr, Password: "secret", ConfDir: t.TempDir(), IsActive: true}
		require.NoError(t, store.CreateNode(ctx, node))
		logger := slog.New(slog.DiscardHandler)
		manager, syncer := keeperParts(t, store)
		keeper := newNodeKeeper(store, manager, syncer, "keeper", 2*time.Second, logger)
		keeper.start(ctx)
		t.Cleanup(func() { _ = keeper.stop(context.WithoutCancel(ctx)) })
		require.Eventually(t, func() bool {
			token, err := before.Controller(ctx)
			require.NoError(t, err)
			return token == 51
		}, 10*time.Second, 5*time.Millisecond)
		require.Eventually(t, func() bool {
			connected, err := store.ConnectedNodes(ctx)
			require.NoError(t, err)
			return len(connected) == 1
		}, 10*time.Second, 5*time.Millisecond, "it is steered, and the others are told")
		require.NoError(t, keeper.stop(ctx))
		free, err := store.FreeNodes(ctx, "another")
		require.NoError(t, err)
		require.Equal(t, []string{node.ID}, free)
	})
}
