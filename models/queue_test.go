package models_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"tandem/models"
	"tandem/models/modelstest"
)

// join puts a new call of the application into a queue.
func join(t testing.TB, s *models.Store, app *models.Application, node *models.Node, queue string, priority int) *models.QueueEntry {
	t.Helper()
	entry := &models.QueueEntry{CustomerID: app.CustomerID, Queue: queue, CallID: modelstest.Call(t, s, app).ID, NodeID: node.ID, Priority: priority}
	_, err := s.JoinQueue(t.Context(), entry)
	require.NoError(t, err)
	return entry
}

func TestQueue(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		app, node := modelstest.Application(t, s, modelstest.Customer(t, s, 0)), modelstest.Node(t, s)
		began := s.Now()
		call := modelstest.Call(t, s, app)
		entry := &models.QueueEntry{CustomerID: app.CustomerID, Queue: "support", CallID: call.ID, NodeID: node.ID, Priority: 3, State: "nonsense", TakenBy: "x"}
		position, err := s.JoinQueue(ctx, entry)
		require.NoError(t, err)
		require.Equal(t, 1, position)
		stored, err := s.QueueEntry(ctx, entry.ID)
		require.NoError(t, err)
		require.Equal(t, entry, stored)
		require.Regexp(t, "^qe_", entry.ID)
		require.Equal(t, models.QueueEntry{
			ID: entry.ID, CustomerID: app.CustomerID, Queue: "support", CallID: call.ID, NodeID: node.ID, Priority: 3, State: models.QueueWaiting, JoinedAt: began,
		}, *stored)
		_, err = s.JoinQueue(ctx, &models.QueueEntry{CustomerID: app.CustomerID, Queue: "sales", CallID: call.ID, NodeID: node.ID})
		require.ErrorIs(t, err, models.ErrInUse, "a call waits in one place")

		clock.Advance(time.Second)
		urgent := join(t, s, app, node, "support", 9)
		late := join(t, s, app, node, "support", 3)
		other := join(t, s, app, node, "sales", 0)
		for id, want := range map[string]int{urgent.ID: 1, entry.ID: 2, late.ID: 3, other.ID: 1} {
			position, err := s.QueuePosition(ctx, id)
			require.NoError(t, err)
			require.Equal(t, want, position)
		}
		queues, err := s.Queues(ctx, app.CustomerID)
		require.NoError(t, err)
		second := began.Add(time.Second)
		require.Equal(t, []models.QueueSummary{
			{Name: "sales", Waiting: 1, Present: 1, OldestJoinedAt: &second}, {Name: "support", Waiting: 3, Present: 3, OldestJoinedAt: &began},
		}, queues)

		_, err = s.TakeFromQueue(ctx, app.CustomerID, "support", "call_agent", modelstest.Node(t, s).ID)
		require.ErrorIs(t, err, models.ErrNotFound, "the calls are on another node")
		_, err = s.TakeFromQueue(ctx, app.CustomerID, "nobody", "call_agent", node.ID)
		require.ErrorIs(t, err, models.ErrNotFound)
		taken, err := s.TakeFromQueue(ctx, app.CustomerID, "support", "call_agent", node.ID)
		require.NoError(t, err)
		require.Equal(t, urgent.ID, taken.ID)
		require.Equal(t, []any{models.QueueTaken, "call_agent", &second}, []any{taken.State, taken.TakenBy, taken.TakenAt})
		_, err = s.QueuePosition(ctx, urgent.ID)
		require.ErrorIs(t, err, models.ErrStale)
		require.NoError(t, s.ReturnToQueue(ctx, urgent.ID))
		require.ErrorIs(t, s.ReturnToQueue(ctx, urgent.ID), models.ErrStale)
		require.ErrorIs(t, s.BridgeQueueEntry(ctx, urgent.ID), models.ErrStale)
		taken, err = s.TakeFromQueue(ctx, app.CustomerID, "support", "call_agent", node.ID)
		require.NoError(t, err)
		require.Equal(t, urgent.ID, taken.ID, "it kept its place")
		require.NoError(t, s.BridgeQueueEntry(ctx, urgent.ID))
		found, err := s.QueueEntryOfCall(ctx, app.CustomerID, urgent.CallID)
		require.NoError(t, err)
		require.Equal(t, models.QueueBridged, found.State)

		entries, err := s.QueueEntries(ctx, app.CustomerID, "support")
		require.NoError(t, err)
		require.Equal(t, []string{urgent.ID, entry.ID, late.ID}, []string{entries[0].ID, entries[1].ID, entries[2].ID})
		clock.Advance(time.Minute)
		require.NoError(t, s.LeaveQueue(ctx, urgent.ID, "bridged"))
		require.ErrorIs(t, s.LeaveQueue(ctx, urgent.ID, "hangup"), models.ErrStale)
		left, err := s.QueueEntry(ctx, urgent.ID)
		require.NoError(t, err)
		leftAt := s.Now()
		require.Equal(t, []any{models.QueueLeft, "bridged", &leftAt}, []any{left.State, left.Outcome, left.LeftAt})
		_, err = s.QueueEntryOfCall(ctx, app.CustomerID, urgent.CallID)
		require.ErrorIs(t, err, models.ErrNotFound)
		_, err = s.JoinQueue(ctx, &models.QueueEntry{CustomerID: app.CustomerID, Queue: "sales", CallID: urgent.CallID, NodeID: node.ID})
		require.NoError(t, err, "and it may wait again")

		foreign := modelstest.Customer(t, s, 0)
		_, err = s.JoinQueue(ctx, &models.QueueEntry{CustomerID: foreign.ID, Queue: "support", CallID: modelstest.Call(t, s, app).ID, NodeID: node.ID})
		require.ErrorIs(t, err, models.ErrNotFound)
		_, err = s.TakeFromQueue(ctx, foreign.ID, "support", "call_agent", node.ID)
		require.ErrorIs(t, err, models.ErrNotFound)
		_, err = s.QueueEntryOfCall(ctx, foreign.ID, entry.CallID)
		require.ErrorIs(t, err, models.ErrNotFound)
		entries, err = s.QueueEntries(ctx, foreign.ID, "support")
		require.NoError(t, err)
		require.Empty(t, entries)
		queues, err = s.Queues(ctx, foreign.ID)
		require.NoError(t, err)
		require.Empty(t, queues)
	})
}

// TestQueueTakers has sixteen takers, on two stores, empty a queue that calls still join, some of them changing their minds
// before the commit and some after it: no entry is given to two, and none is left over.
func TestQueueTakers(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		const entries, takers = 96, 16
		stores := []*models.Store{s, other}
		app, node := modelstest.Application(t, s, modelstest.Customer(t, s, 0)), modelstest.Node(t, s)
		calls := make([]*models.Call, entries)
		for i := range calls {
			calls[i] = modelstest.Call(t, s, app)
		}
		var mu sync.Mutex
		holder := map[string]int{} // entry to the taker that has it
		kept := map[string]int{}
		joined := make(chan struct{})
		var joins, group errgroup.Group
		for i, call := range calls {
			joins.Go(func() error {
				_, err := stores[i%2].JoinQueue(t.Context(), &models.QueueEntry{
					CustomerID: app.CustomerID, Queue: "q", CallID: call.ID, NodeID: node.ID, Priority: i % 3,
				})
				return err
			})
		}
		for taker := range takers {
			group.Go(func() error {
				store := stores[taker%2]
				for round := 0; ; round++ {
					allJoined := false
					select {
					case <-joined:
						allJoined = true
					default:
					}
					var entry *models.QueueEntry
					err := store.InTx(t.Context(), func(tx *models.Store) error {
						var err error
						if entry, err = tx.TakeFromQueue(t.Context(), app.CustomerID, "q", "call_taker", node.ID); err == nil && round%5 == 4 {
							err = errRefused
						}
						return err
					})
					switch {
					case errors.Is(err, errRefused):
						continue // undone: somebody else gets it
					case errors.Is(err, models.ErrNotFound) && allJoined:
						return nil
					case errors.Is(err, models.ErrNotFound):
						continue
					case err != nil:
						return err
					}
					mu.Lock()
					_, twice := holder[entry.ID]
					holder[entry.ID] = taker
					mu.Unlock()
					if twice {
						return errors.New("two takers have the entry " + entry.ID)
					}
					if round%7 == 6 {
						mu.Lock()
						delete(holder, entry.ID)
						mu.Unlock()
						if err := store.ReturnToQueue(t.Context(), entry.ID); err != nil {
							return err
						}
						continue
					}
					mu.Lock()
					kept[entry.ID]++
					mu.Unlock()
				}
			})
		}
		require.NoError(t, joins.Wait())
		close(joined)
		require.NoError(t, group.Wait())
		// A taker may find the queue empty while another has the last entry in hand and then returns it.
		for {
			entry, err := s.TakeFromQueue(t.Context(), app.CustomerID, "q", "call_last", node.ID)
			if errors.Is(err, models.ErrNotFound) {
				break
			}
			require.NoError(t, err)
			kept[entry.ID]++
		}
		require.Len(t, kept, entries)
		for id, times := range kept {
			require.Equal(t, 1, times, id)
		}
	})
}

// TestQueueWaitsForAnUndoneTaker: PostgreSQL passes over what another transaction has in hand, but does not call the queue empty
// for it.
func TestQueueWaitsForAnUndoneTaker(t *testing.T) {
	t.Parallel()
	s := modelstest.OpenPostgres(t)
	app, node := modelstest.Application(t, s, modelstest.Customer(t, s, 0)), modelstest.Node(t, s)
	entry := join(t, s, app, node, "q", 0)
	held, found := make(chan struct{}), make(chan *models.QueueEntry, 1)
	var group errgroup.Group
	group.Go(func() error {
		<-held
		taken, err := s.TakeFromQueue(t.Context(), app.CustomerID, "q", "call_second", node.ID)
		found <- taken
		return err
	})
	err := s.InTx(t.Context(), func(tx *models.Store) error {
		if _, err := tx.TakeFromQueue(t.Context(), app.CustomerID, "q", "call_first", node.ID); err != nil {
			return err
		}
		close(held)
		awaitBlocked(t, s)
		return errRefused
	})
	require.ErrorIs(t, err, errRefused)
	require.NoError(t, group.Wait())
	require.Equal(t, entry.ID, (<-found).ID)
}

// awaitBlocked waits until a session of the database waits for a lock.
func awaitBlocked(t *testing.T, s *models.Store) {
	t.Helper()
	require.Eventually(t, func() bool {
		var blocked int
		err := models.Reader(s).Raw("SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Row().Scan(&blocked)
		return err == nil && blocked > 0
	}, 20*time.Second, 5*time.Millisecond)
}

// queueMachine is a queue's model: what waits, what is taken or bridged, by entry.
type queueMachine struct {
	s     *models.Store
	clock *modelstest.Clock
	ctx   context.Context //nolint:containedctx // a test's
	app   *models.Application
	node  *models.Node
	idle  []string // calls that are in no queue
	rows  map[string]*models.QueueEntry
}

// TestQueueModel runs random histories against a model in memory: places, who is taken next, and what is refused.
func TestQueueModel(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		app, node := modelstest.Application(t, s, modelstest.Customer(t, s, 0)), modelstest.Node(t, s)
		rapid.Check(t, func(rt *rapid.T) {
			m := &queueMachine{s: s, clock: clock, ctx: t.Context(), app: app, node: node, rows: map[string]*models.QueueEntry{}}
			for range 6 {
				m.idle = append(m.idle, modelstest.Call(t, s, app).ID)
			}
			rt.Repeat(map[string]func(*rapid.T){
				"": m.check, "join": m.join, "take": m.take, "return": m.step(models.QueueTaken, models.QueueWaiting),
				"bridge": m.step(models.QueueTaken, models.QueueBridged), "leave": m.leave,
			})
			for _, row := range m.rows {
				require.NoError(rt, s.LeaveQueue(m.ctx, row.ID, "hangup"))
			}
		})
	})
}

func (m *queueMachine) sorted(keep func(*models.QueueEntry) bool) []*models.QueueEntry {
	rows := slices.SortedFunc(maps.Values(m.rows), func(a, b *models.QueueEntry) int {
		return cmp.Or(b.Priority-a.Priority, a.JoinedAt.Compare(b.JoinedAt), cmp.Compare(a.ID, b.ID))
	})
	return slices.DeleteFunc(rows, func(r *models.QueueEntry) bool { return !keep(r) })
}

func waiting(r *models.QueueEntry) bool { return r.State == models.QueueWaiting }

func (m *queueMachine) join(rt *rapid.T) {
	if len(m.idle) == 0 {
		rt.Skip("all calls are in the queue")
	}
	m.clock.Advance(time.Duration(rapid.IntRange(0, 1).Draw(rt, "time")) * time.Microsecond)
	entry := &models.QueueEntry{
		CustomerID: m.app.CustomerID, Queue: "q", CallID: m.idle[0], NodeID: m.node.ID, Priority: rapid.IntRange(0, 2).Draw(rt, "priority"),
	}
	position, err := m.s.JoinQueue(m.ctx, entry)
	require.NoError(rt, err)
	m.idle = m.idle[1:]
	m.rows[entry.ID] = entry
	require.Equal(rt, 1+slices.Index(m.sorted(waiting), entry), position)
}

func (m *queueMachine) take(rt *rapid.T) {
	taken, err := m.s.TakeFromQueue(m.ctx, m.app.CustomerID, "q", "call_taker", m.node.ID)
	first := m.sorted(waiting)
	if len(first) == 0 {
		require.ErrorIs(rt, err, models.ErrNotFound)
		return
	}
	require.NoError(rt, err)
	require.Equal(rt, first[0].ID, taken.ID)
	m.rows[taken.ID] = taken
}

// any draws one of the entries that are there.
func (m *queueMachine) any(rt *rapid.T) *models.QueueEntry {
	if len(m.rows) == 0 {
		rt.Skip("the queue is empty")
	}
	return rapid.SampledFrom(m.sorted(func(*models.QueueEntry) bool { return true })).Draw(rt, "entry")
}

func (m *queueMachine) step(from, to string) func(*rapid.T) {
	return func(rt *rapid.T) {
		row := m.any(rt)
		err := m.s.BridgeQueueEntry
		if to == models.QueueWaiting {
			err = m.s.ReturnToQueue
		}
		if row.State != from {
			require.ErrorIs(rt, err(m.ctx, row.ID), models.ErrStale)
			return
		}
		require.NoError(rt, err(m.ctx, row.ID))
		row.State = to
		if to == models.QueueWaiting {
			row.TakenBy, row.TakenAt = "", nil
		}
	}
}

func (m *queueMachine) leave(rt *rapid.T) {
	row := m.any(rt)
	require.NoError(rt, m.s.LeaveQueue(m.ctx, row.ID, "left"))
	require.ErrorIs(rt, m.s.LeaveQueue(m.ctx, row.ID, "left"), models.ErrStale)
	delete(m.rows, row.ID)
	m.idle = append(m.idle, row.CallID)
}

func (m *queueMachine) check(rt *rapid.T) {
	entries, err := m.s.QueueEntries(m.ctx, m.app.CustomerID, "q")
	require.NoError(rt, err)
	want := m.sorted(func(*models.QueueEntry) bool { return true })
	require.Len(rt, entries, len(want))
	for i := range entries {
		require.Equal(rt, *want[i], entries[i])
	}
	for i, row := range m.sorted(waiting) {
		position, err := m.s.QueuePosition(m.ctx, row.ID)
		require.NoError(rt, err)
		require.Equal(rt, i+1, position)
	}
}
