package models_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// A controller whose node was taken by another changes nothing of the node's calls any more.
func TestFence(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		call, node, token := onNode(t, s)
		append1 := func(call *models.Call) error {
			return s.AppendEvent(ctx, &models.Event{CallID: call.ID, Type: "call.created", Fence: call.Fence}, body)
		}
		require.NoError(t, append1(call))
		call.Reason = "by the first"
		require.NoError(t, s.UpdateCall(ctx, call, "reason"))

		require.NoError(t, s.ReleaseNode(ctx, node.ID, "a", token))
		next, ok, err := s.AcquireNode(ctx, node.ID, "b", time.Minute, 0)
		require.NoError(t, err)
		require.True(t, ok)
		require.Greater(t, next, token)
		live, err := s.LiveCalls(ctx, node.ID)
		require.NoError(t, err)
		require.Len(t, live, 1)
		require.Equal(t, next, live[0].Fence)

		call.Reason = "by the first, too late"
		require.ErrorIs(t, s.UpdateCall(ctx, call, "reason"), models.ErrStale)
		require.ErrorIs(t, append1(call), models.ErrStale)
		ended := *call
		ended.Status = models.CallFailed
		require.ErrorIs(t, s.TransitionCall(ctx, &ended, []string{models.CallDialing}), models.ErrStale)
		late := &models.Call{
			CustomerID: call.CustomerID, ApplicationID: call.ApplicationID, NodeID: &node.ID, Fence: token, Direction: "inbound", Status: models.CallRinging,
			ChannelID: models.NewID("channel_"),
		}
		require.ErrorIs(t, s.CreateCall(ctx, late), models.ErrStale)

		taken := live[0]
		taken.Status = models.CallInProgress
		require.NoError(t, s.TransitionCall(ctx, &taken, []string{models.CallDialing}))
		require.NoError(t, append1(&taken))
		found, err := s.CallByID(ctx, call.ID)
		require.NoError(t, err)
		require.Equal(t, []any{"by the first", models.CallInProgress, int64(2)}, []any{found.Reason, found.Status, found.LastSequence})

		// Nobody tells anything of a call that has ended but its end.
		now := s.Now()
		taken.Status, taken.EndedAt = models.CallCompleted, &now
		require.NoError(t, s.TransitionCall(ctx, &taken, []string{models.CallInProgress}))
		last := &models.Event{CallID: call.ID, Type: "call.completed", Fence: taken.Fence}
		require.NoError(t, s.AppendEvent(ctx, last, body))
		for _, fence := range []int64{0, taken.Fence} {
			require.ErrorIs(t, s.AppendEvent(ctx, &models.Event{CallID: call.ID, Type: "call.dtmf", Fence: fence}, body), models.ErrStale)
		}
		require.ErrorIs(t, s.AppendEvent(ctx, &models.Event{CallID: "call_none", Type: "call.dtmf"}, body), models.ErrNotFound)
	})
}

// The insert of a call and the taking of its node are in line, whichever is first: a call with an old fence is never left over.
func TestFenceHoldsWhileACallIsInserted(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		placed, node, token := onNode(t, s)
		inserted, taken := make(chan struct{}), make(chan error, 1)
		go func() {
			<-inserted
			_, _, err := other.AcquireNode(ctx, node.ID, "a", time.Minute, 0)
			taken <- err
		}()
		call := &models.Call{
			CustomerID: placed.CustomerID, ApplicationID: placed.ApplicationID, NodeID: &node.ID, Fence: token, Direction: "outbound", Status: models.CallDialing,
			ChannelID: models.NewID("channel_"),
		}
		require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
			if err := tx.CreateCall(ctx, call); err != nil {
				return err
			}
			if other.Dialect() == models.DialectPostgres { // SQLite has one writer
				require.NoError(t, other.RenewNode(ctx, node.ID, "a", token, time.Minute, true), "the lease is renewed while calls are inserted")
			}
			select {
			case <-inserted:
			default:
				close(inserted)
			}
			// The taker reaches the database meanwhile, and must wait.
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			select {
			case err := <-taken:
				t.Errorf("the node was taken under a call that is being inserted: %v", err)
			case <-short.Done():
			}
			return nil
		}))
		require.NoError(t, <-taken)
		found, err := s.CallByID(ctx, call.ID)
		require.NoError(t, err)
		require.Equal(t, token+1, found.Fence)
	})
}

func TestConnectedAndFreeNodes(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		node := modelstest.Node(t, s)
		connected := func() []string {
			nodes, err := s.ConnectedNodes(ctx)
			require.NoError(t, err)
			ids := make([]string, len(nodes))
			for i := range nodes {
				ids[i] = nodes[i].ID
			}
			return ids
		}
		free := func(owner string) []string {
			ids, err := s.FreeNodes(ctx, owner)
			require.NoError(t, err)
			return ids
		}
		require.Equal(t, []string{node.ID}, free("b"))
		token, _, err := s.AcquireNode(ctx, node.ID, "a", time.Minute, 0)
		require.NoError(t, err)
		require.Empty(t, free("b"))
		require.Equal(t, []string{node.ID}, free("a"))
		require.Empty(t, connected())
		require.NoError(t, s.RenewNode(ctx, node.ID, "a", token, time.Minute, true))
		require.Equal(t, []string{node.ID}, connected())
		require.NoError(t, s.RenewNode(ctx, node.ID, "a", token, time.Minute, false))
		require.Empty(t, connected())
		require.NoError(t, s.RenewNode(ctx, node.ID, "a", token, time.Minute, true))
		clock.Advance(time.Minute)
		require.Empty(t, connected(), "nobody says so any more")
		require.Equal(t, []string{node.ID}, free("b"))
		require.NoError(t, s.RenewNode(ctx, node.ID, "a", token, time.Minute, true), "nobody has taken it")
		node.IsActive = false
		require.NoError(t, s.UpdateNode(ctx, node))
		require.Empty(t, connected())

		above, ok, err := s.AcquireNode(ctx, node.ID, "a", time.Minute, 100)
		require.NoError(t, err)
		require.True(t, ok)
		require.EqualValues(t, 101, above, "greater than the floor")
	})
}

// Without a clock of its own, a store on PostgreSQL counts leases by the database's, in the microseconds of every other time.
func TestLeaseByTheClockOfTheDatabase(t *testing.T) {
	t.Parallel()
	s := modelstest.OpenPostgres(t)
	ctx := t.Context()
	node := modelstest.Node(t, s)
	_, ok, err := s.AcquireNode(ctx, node.ID, "a", time.Minute, 0)
	require.NoError(t, err)
	require.True(t, ok)
	rows, err := s.Nodes(ctx)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Minute), *rows[0].LeaseUntil, 30*time.Second)
	_, ok, err = s.AcquireNode(ctx, node.ID, "b", time.Minute, 0)
	require.NoError(t, err)
	require.False(t, ok)
}

// However many changes of calls wait for a connection, leases do not.
func TestLeasesDoNotWaitForCalls(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		if s.Dialect() == models.DialectSQLite {
			t.Skip("SQLite has one writer")
		}
		ctx := t.Context()
		node := modelstest.Node(t, s)
		const writers = 16
		begun, done := make(chan struct{}, writers), make(chan struct{})
		var busy sync.WaitGroup
		defer busy.Wait()
		defer close(done)
		for range 2 * writers {
			busy.Go(func() {
				_ = s.InTx(ctx, func(*models.Store) error {
					begun <- struct{}{}
					<-done
					return nil
				})
			})
		}
		for range writers {
			<-begun
		}
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, s.InTx(short, func(*models.Store) error { return nil }), context.DeadlineExceeded, "there is no connection left")
		token, ok, err := s.AcquireNode(ctx, node.ID, "a", time.Minute, 0)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, s.RenewNode(ctx, node.ID, "a", token, time.Minute, true))
		free, err := s.FreeNodes(ctx, "b")
		require.NoError(t, err)
		require.Empty(t, free)
		require.NoError(t, s.ReleaseNode(ctx, node.ID, "a", token))
	})
}

// Whoever takes a node waits for a command that is being given to one of its calls, and not the other way round as well.
func TestTakingANodeWaitsForItsCalls(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		if s.Dialect() == models.DialectSQLite {
			t.Skip("SQLite has one writer")
		}
		ctx := t.Context()
		call, node, token := onNode(t, s)
		taken := make(chan error, 1)
		require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
			if _, err := tx.LockCall(ctx, call.CustomerID, call.ID); err != nil {
				return err
			}
			go func() {
				_, _, err := s.AcquireNode(ctx, node.ID, "a", time.Minute, 0)
				taken <- err
			}()
			require.Eventually(t, func() bool {
				var waiting int
				query := "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()"
				require.NoError(t, models.Reader(s).Raw(query).Row().Scan(&waiting))
				return waiting > 0
			}, time.Minute, time.Millisecond)
			require.NoError(t, models.Write(ctx, tx, "SELECT 1 FROM nodes WHERE id = ? FOR KEY SHARE NOWAIT", node.ID), "as the foreign key of a command does")
			_, err := tx.AddCommand(ctx, call.ID, models.CommandCancel, []byte(`{}`))
			return err
		}))
		require.NoError(t, <-taken)
		found, err := s.CallByID(ctx, call.ID)
		require.NoError(t, err)
		require.Equal(t, token+1, found.Fence)
	})
}
