package calls

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// idle is the load of a node that has all to give.
func idle(now time.Time) models.NodeLoad {
	return models.NodeLoad{MeasuredAt: now, Ready: true, MaxSessions: 2000, MaxRate: 200, IdleCPU: 90}
}

func TestShares(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tc := range map[string]struct {
		change func(*berth)
		share  float64
		full   bool
	}{
		"idle":                         {func(*berth) {}, 100 * 1900, false},
		"half the weight":              {func(p *berth) { p.seen.Weight = 50 }, 50 * 1900, false},
		"no weight":                    {func(p *berth) { p.seen.Weight = 0 }, 0, false},
		"draining":                     {func(p *berth) { p.seen.Draining = true }, 0, false},
		"sessions":                     {func(p *berth) { p.seen.Load.Sessions = 900 }, 100 * 1000, false},
		"placed since":                 {func(p *berth) { p.seen.Load.Sessions, p.placed = 900, make([]time.Time, 500) }, 100 * 500, false},
		"the reserve of parties":       {func(p *berth) { p.seen.Load.Sessions = 1899 }, 100, false},
		"full":                         {func(p *berth) { p.seen.Load.Sessions = 1900 }, 0, true},
		"more than full":               {func(p *berth) { p.seen.Load.Sessions = 2100 }, 0, true},
		"full by what was placed":      {func(p *berth) { p.placed = make([]time.Time, 1900) }, 0, true},
		"busy":                         {func(p *berth) { p.seen.Load.IdleCPU = 17.5 }, 100 * 1900 / 2, false},
		"very busy":                    {func(p *berth) { p.seen.Load.IdleCPU = 1 }, 100 * 1900 / 20, false},
		"too busy for itself":          {func(p *berth) { p.seen.Load.IdleCPU, p.seen.Load.MinIdleCPU = 40, 41 }, 0, true},
		"paused":                       {func(p *berth) { p.seen.Load.OutboundPaused = true }, 0, false},
		"shutting down":                {func(p *berth) { p.seen.Load.Ready = false }, 0, false},
		"never measured":               {func(p *berth) { p.seen.Load = models.NodeLoad{} }, 100 * roomUnknown, false},
		"not measured for long":        {func(p *berth) { p.seen.Load = models.NodeLoad{MeasuredAt: now.Add(-loadFresh - time.Second)} }, 100 * roomUnknown, false},
		"never measured, and draining": {func(p *berth) { p.seen.Load, p.seen.Draining = models.NodeLoad{}, true }, 0, false},
	} {
		p := &berth{seen: models.ConnectedNode{Weight: 100, Load: idle(now)}}
		tc.change(p)
		share, full := p.share(now)
		require.InDelta(t, tc.share, share, 1e-6, name)
		require.Equal(t, tc.full, full, name)
	}
}

// What was placed counts until the node has counted it.
func TestPlacedCallsCountUntilTheyAreCounted(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := &berth{seen: models.ConnectedNode{Weight: 1, Load: idle(now)}, placed: []time.Time{now.Add(-time.Minute), now.Add(-paceLimit - 1), now.Add(-paceLimit), now, now.Add(1)}}
	p.counted(now)
	require.Len(t, p.placed, 3)
	p.seen.Load.MeasuredAt = now.Add(time.Minute)
	p.counted(now)
	require.Empty(t, p.placed)
	p.placed, p.seen.Load = []time.Time{now}, models.NodeLoad{}
	p.counted(now)
	require.Empty(t, p.placed, "of a node that never says")
}

// Calls that are refused take nobody's room, and what a node that has fallen silent has not counted is not kept for ever.
func TestRoomIsGivenBack(t *testing.T) {
	t.Parallel()
	p := newPlaced(t, modelstest.Open(t))
	ctx := t.Context()
	require.NoError(t, p.store.SetNodeWeight(ctx, p.second.ID, 0))
	p.says(p.node.ID, func(h *models.NodeHealth) { h.MaxSessions = 40 })
	poor := modelstest.Customer(t, p.store, 0)
	app := modelstest.Application(t, p.store, poor)
	modelstest.OutboundTrunk(t, p.store, poor)
	for range 100 {
		_, err := p.manager.Create(ctx, CreateRequest{CustomerID: poor.ID, ApplicationID: app.ID, From: "+15550100001", To: "+15550100002"})
		require.ErrorIs(t, err, models.ErrInsufficientBalance)
	}
	require.Len(t, p.picks(38), 1)

	now := time.Now()
	silent := &berth{seen: models.ConnectedNode{Weight: 1, Load: idle(now.Add(-time.Hour))}, placed: []time.Time{now.Add(-2 * loadFresh), now}}
	silent.counted(now)
	require.Equal(t, []time.Time{now}, silent.placed)
}

// Over any number of turns each seat gets its share, give or take less than two.
func TestRotationIsFair(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seats := make([]seat, rapid.IntRange(1, 8).Draw(t, "nodes"))
		var total float64
		for i := range seats {
			seats[i] = seat{id: fmt.Sprint(i), berth: &berth{}, share: float64(rapid.IntRange(1, 2000).Draw(t, "share"))}
			total += seats[i].share
		}
		got := map[string]int{}
		for turn := 1; turn <= 500; turn++ {
			got[rotate(seats).id]++
			for i := range seats {
				if fair := float64(turn) * seats[i].share / total; float64(got[seats[i].id]) < fair-2 || float64(got[seats[i].id]) > fair+2 {
					t.Fatalf("after %d turns seat %d has %d, not %.1f", turn, i, got[seats[i].id], fair)
				}
			}
		}
	})
}

// placed is a controller with one node of its own and one of another controller.
type placed struct {
	*scene
	second *models.Node
	tokens map[string]int64
}

func newPlaced(t *testing.T, store *models.Store) *placed {
	t.Helper()
	p := &placed{scene: heldScene(t, store, deaf), tokens: map[string]int64{}}
	p.second = &models.Node{Name: "second", ESLAddr: "127.0.0.1:8022", Password: "secret", ConfDir: t.TempDir(), IsActive: true}
	require.NoError(t, store.CreateNode(t.Context(), p.second))
	token, _, err := store.AcquireNode(t.Context(), p.second.ID, "another", time.Hour, 0)
	require.NoError(t, err)
	require.NoError(t, store.RenewNode(t.Context(), p.second.ID, "another", token, time.Hour, true))
	require.NoError(t, store.RenewNode(t.Context(), p.node.ID, "holder", p.node.LeaseToken, time.Hour, true))
	p.tokens[p.second.ID], p.tokens[p.node.ID] = token, p.node.LeaseToken
	_, err = store.Credit(t.Context(), p.customer.ID, "placed", models.LedgerTopup, 100*startBalance, "")
	require.NoError(t, err)
	p.look()
	return p
}

func (p *placed) look() {
	p.t.Helper()
	require.NoError(p.t, p.manager.lookForNodes(p.t.Context()))
}

// says has a node tell of its load.
func (p *placed) says(node string, change func(*models.NodeHealth)) {
	p.t.Helper()
	health := &models.NodeHealth{NodeID: node, MeasuredAt: p.store.Now(), Version: "1.10.12", Ready: true, MaxSessions: 2000, MaxRate: 200, IdleCPU: 90}
	change(health)
	require.NoError(p.t, p.store.RecordNodeHealth(p.t.Context(), p.tokens[node], health))
	p.look()
}

// picks counts where the next calls go.
func (p *placed) picks(calls int) map[string]int {
	p.t.Helper()
	got := map[string]int{}
	for range calls {
		n, id, err := p.manager.pick(p.t.Context())
		require.NoError(p.t, err)
		require.Equal(p.t, n != nil, id == p.node.ID)
		got[id]++
	}
	return got
}

// Calls go where there is room, by weight, and not where a node drains; whatever the controllers are that hold the nodes.
func TestPlacement(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		p := newPlaced(t, store)
		ctx := t.Context()
		ours, theirs := p.node.ID, p.second.ID
		require.Equal(t, map[string]int{ours: 5, theirs: 5}, p.picks(10), "nothing is known: one after the other")

		p.says(ours, func(*models.NodeHealth) {})
		p.says(theirs, func(h *models.NodeHealth) { h.MaxSessions = 6000 })
		got := p.picks(100)
		require.InDelta(t, 75, got[theirs], 2, "three times the room")
		require.NoError(t, store.SetNodeWeight(ctx, ours, 300))
		p.look()
		require.InDelta(t, 50, p.picks(100)[theirs], 3, "a third of the room, three times the weight")

		require.NoError(t, store.DrainNode(ctx, theirs, "op_1", ""))
		p.look()
		require.Equal(t, map[string]int{ours: 20}, p.picks(20))
		p.says(ours, func(h *models.NodeHealth) { h.Sessions = 1900 })
		_, _, err := p.manager.pick(ctx)
		require.ErrorIs(t, err, ErrOverloaded, "there is a node, and it is full")
		require.NoError(t, store.ResumeNode(ctx, theirs))
		p.look()
		require.Equal(t, map[string]int{theirs: 20}, p.picks(20))

		require.NoError(t, store.SetNodeWeight(ctx, theirs, 0))
		require.NoError(t, store.DrainNode(ctx, ours, "op_1", ""))
		p.look()
		_, _, err = p.manager.pick(ctx)
		require.ErrorIs(t, err, ErrNoNode)
	})
}

// A node that has begun to drain since it was looked for gets no call all the same: the call goes to another one.
func TestCallDoesNotGoToANodeThatHasBegunToDrain(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		p := newPlaced(t, store)
		ctx := t.Context()
		// Nobody looks from here on.
		require.NoError(t, store.DrainNode(ctx, p.node.ID, "op_1", ""))
		for range 4 {
			require.Equal(t, p.second.ID, *p.create().NodeID)
		}
		require.Zero(t, p.manager.LiveCalls())

		queued := p.create(func(r *CreateRequest) { r.Queued = true })
		p.manager.mu.Lock()
		p.manager.berths[p.node.ID].seen.Draining = false
		p.manager.mu.Unlock()
		require.NoError(t, store.ResumeNode(ctx, p.node.ID))
		require.NoError(t, store.DrainNode(ctx, p.second.ID, "op_1", ""))
		started, err := p.manager.StartCall(ctx, p.customer.ID, queued.ID, nil)
		require.NoError(t, err)
		require.Equal(t, p.node.ID, *started.NodeID)

		require.NoError(t, store.DrainNode(ctx, p.node.ID, "op_1", ""))
		_, err = p.manager.Create(ctx, CreateRequest{CustomerID: p.customer.ID, ApplicationID: p.app.ID, From: "+15550100001", To: "+15550100002"})
		require.ErrorIs(t, err, ErrNoNode)
	})
}

// No second begins more sessions than the switch takes, however they are spread; what does not wait is counted and bounded.
func TestPace(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []int{2, 3, 30, 200} {
		synctest.Test(t, func(t *testing.T) {
			p := newPace()
			require.Zero(t, p.turn(), "nothing is known")
			p.limit(0)
			require.Zero(t, p.wait())
			p.limit(perSecond)
			begins := []time.Duration{}
			began := time.Now()
			for range 5 * perSecond {
				begins = append(begins, time.Since(began)+p.turn())
			}
			for i, from := range begins {
				within := 0
				for _, at := range begins[i:] {
					if at < from+time.Second {
						within++
					}
				}
				require.Less(t, within, max(perSecond, 3), "of a switch that takes %d", perSecond)
			}
			require.Less(t, begins[len(begins)-1], 16*time.Second)
			require.Greater(t, p.wait(), paceLimit)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		p := newPace()
		require.NoError(t, p.begin(t.Context()), "nothing is known")
		p.limit(6)
		began := time.Now()
		var told []time.Duration
		p.count(2)
		for range 12 { // that were brought together
			require.NoError(t, p.begin(t.Context()))
			told = append(told, time.Since(began))
		}
		second := paceSecond
		require.Equal(t, []time.Duration{0, 0, 0, second, second, second, second, second, 2 * second, 2 * second, 2 * second, 2 * second}, told)
		p.count(1000)
		ctx, cancel := context.WithTimeout(t.Context(), paceSecond/2)
		defer cancel()
		err := p.begin(ctx)
		require.ErrorIs(t, err, esl.ErrBusy)
		require.True(t, unsent(err), "it is stored that the call is yet to be dialled")
		require.LessOrEqual(t, len(p.begun), 1000)
	})
	synctest.Test(t, func(t *testing.T) {
		p := newPace()
		p.limit(101)
		p.count(100_000)
		require.InDelta(t, 1, p.wait().Seconds(), 0.1, "what comes in holds the others back by a second at most")
	})
}

// However long a node has more to dial than its switch takes, what had its turn is dialled: nothing piles up where commands of live calls would have to wait behind it.
func TestPaceKeepsUp(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []int{2, 3, 30, 200} {
		synctest.Test(t, func(t *testing.T) {
			p := newPace()
			p.limit(perSecond)
			var longest atomic.Int64
			var all sync.WaitGroup
			for began := time.Now(); time.Since(began) < 3*time.Minute; {
				<-time.After(p.turn())
				all.Go(func() {
					had := time.Now()
					if err := p.begin(t.Context()); err != nil {
						t.Error(err)
					}
					longest.Store(max(longest.Load(), int64(time.Since(had))))
				})
			}
			all.Wait()
			require.Less(t, time.Duration(longest.Load()), paceSecond/2, "of a switch that takes %d", perSecond)
		})
	}
}

// Calls wait for their turn at the switch before they are dialled, without a hitch for those that are ended meanwhile.
func TestDialsWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	p := newPlaced(t, modelstest.Open(t))
	require.NoError(t, p.store.SetNodeWeight(t.Context(), p.second.ID, 0))
	p.says(p.node.ID, func(h *models.NodeHealth) { h.MaxRate = 3 })
	p.answers("/answer", reply(`[{"action":"hangup"}]`))
	began := time.Now()
	created := make([]*models.Call, 3)
	for i := range created {
		created[i] = p.create()
	}
	// It is told of a connection that was made anew while a call waits: the switch knows nothing of it, and it goes on.
	p.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core"})
	for range created {
		require.Equal(t, ReasonCompleted, p.end().Reason)
	}
	require.GreaterOrEqual(t, time.Since(began), 1900*time.Millisecond, "one a second")

	// A node whose queue is too long is full.
	for range 4 {
		p.manager.nodes[p.node.ID].pace.turn()
	}
	_, err := p.manager.Create(t.Context(), CreateRequest{CustomerID: p.customer.ID, ApplicationID: p.app.ID, From: "+15550100001", To: "+15550100002"})
	require.ErrorIs(t, err, ErrOverloaded)
	ids := []string{}
	for _, call := range created {
		ids = append(ids, call.ID)
	}
	slices.Sort(ids)
	require.Len(t, slices.Compact(ids), 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.NoError(t, p.manager.Stop(ctx))
}
