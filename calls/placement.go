package calls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tandem/models"
)

// How new outbound calls are spread over the nodes.
const (
	// loadFresh is how long what a node said of its load counts. Controllers ask their nodes every few seconds.
	loadFresh = 30 * time.Second
	// roomUnknown is the free capacity that a node counts with whose load is not known: FreeSWITCH's default limit of sessions
	// (switch_core_session.c, switch_core_session_init).
	roomUnknown = 1000
	// roomReserve is the share of a node's sessions that is kept for the parties of calls that live: one in so many.
	roomReserve = 20
	// A node whose machine is idle for idleEase percent or more gets its whole share, one of idleFloor or less a twentieth, and in between in
	// proportion: it is not given up, since what keeps it busy may be what it is there for.
	idleEase, idleFloor = 30.0, 5.0
	leastEase           = 0.05
	// paceLimit is how long the calls that wait for their turn at a node may take, before others go elsewhere.
	paceLimit = 2 * time.Second
)

// errFull: there are nodes that take calls, and none has room for another one.
var errFull = fmt.Errorf("%w: no media node has room for another call", ErrOverloaded)

// berth is what new calls are placed on a node by. Manager.mu guards it.
type berth struct {
	// seen is the node as the database last had it; connected says that it was connected to some controller then.
	seen      models.ConnectedNode
	connected bool
	// placed is when calls were placed on it here that it may not have counted yet, oldest first.
	placed []time.Time
	// turn is the node's place in the rotation.
	turn float64
}

// seat is a node that a call may be placed on, with its share of the calls.
type seat struct {
	id    string
	berth *berth
	share float64
}

// share is how much of the new calls a node is to get, in relation to the others: by its weight, the sessions that it has free, and how busy its
// machine is. It is 0 where it takes none, and full says whether that is for want of room.
func (p *berth) share(now time.Time) (share float64, full bool) {
	load := &p.seen.Load
	if p.seen.Draining || p.seen.Weight <= 0 {
		return 0, false
	}
	weight := float64(p.seen.Weight)
	if load.MeasuredAt.IsZero() || now.Sub(load.MeasuredAt) > loadFresh {
		return weight * roomUnknown, false
	}
	if !load.Ready || load.OutboundPaused {
		return 0, false
	}
	room := load.MaxSessions - load.MaxSessions/roomReserve - load.Sessions - len(p.placed)
	if room <= 0 || load.MinIdleCPU > 0 && load.IdleCPU < load.MinIdleCPU {
		return 0, true
	}
	ease := min(max((load.IdleCPU-idleFloor)/(idleEase-idleFloor), leastEase), 1)
	return weight * float64(room) * ease, false
}

// rotate takes the seat whose turn it is, so that each gets its share and the turns of one lie as far apart as they can: a node with half of all
// shares gets every second call.
func rotate(seats []seat) *seat {
	var total float64
	best := &seats[0]
	for i := range seats {
		s := &seats[i]
		total += s.share
		s.berth.turn += s.share
		if s.berth.turn > best.berth.turn {
			best = s
		}
	}
	best.berth.turn -= total
	return best
}

// pick returns a node for a new outbound call: one of ours, or the id of another controller's. ErrNoNode where none takes calls, errFull where
// none of them has room.
func (m *Manager) pick(ctx context.Context) (ours *node, elsewhere string, err error) {
	ours, elsewhere, err = m.pickKnown()
	if !errors.Is(err, ErrNoNode) {
		return ours, elsewhere, err
	}
	// A controller that has just started, or has just lost its nodes, does not know yet who has them.
	if err := m.lookForNodes(ctx); err != nil {
		return nil, "", err
	}
	return m.pickKnown()
}

func (m *Manager) pickKnown() (ours *node, elsewhere string, err error) {
	now := m.cfg.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopping {
		return nil, "", ErrStopping
	}
	var seats []seat
	anyFull := false
	consider := func(id string, p *berth, late bool) {
		share, full := p.share(now)
		anyFull = anyFull || full || share > 0 && late
		if share > 0 && !late {
			seats = append(seats, seat{id, p, share})
		}
	}
	for id, n := range m.nodes {
		if n.connected() {
			consider(id, m.berths[id], n.pace.wait() > paceLimit)
		}
	}
	for id, p := range m.berths {
		if p.connected && m.nodes[id] == nil {
			consider(id, p, false)
		}
	}
	switch {
	case len(seats) == 0 && anyFull:
		return nil, "", errFull
	case len(seats) == 0:
		return nil, "", ErrNoNode
	}
	slices.SortFunc(seats, func(a, b seat) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	chosen := rotate(seats)
	chosen.berth.placed = append(chosen.berth.placed, now)
	return m.nodes[chosen.id], chosen.id, nil
}

// lookForNodes learns which nodes can take a call, and how many more.
func (m *Manager) lookForNodes(ctx context.Context) error {
	found, err := m.cfg.Store.ConnectedNodes(ctx)
	if err != nil {
		return fmt.Errorf("look for nodes: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.berths {
		p.connected = false
	}
	for _, seen := range found {
		p := m.berths[seen.ID]
		if p == nil {
			p = &berth{}
			m.berths[seen.ID] = p
		}
		p.seen, p.connected = seen, true
		p.counted(m.cfg.Now())
		if n := m.nodes[seen.ID]; n != nil {
			n.pace.limit(seen.Load.MaxRate)
		}
	}
	for id, p := range m.berths {
		if !p.connected && m.nodes[id] == nil {
			delete(m.berths, id)
		}
	}
	return nil
}

// counted forgets the calls that the node has counted among its sessions. One that was placed a moment before it did may have been waiting for its turn
// still. What a node that says nothing any more has not counted is of no use once its load is not.
func (p *berth) counted(now time.Time) {
	since := later(p.seen.Load.MeasuredAt, now.Add(-loadFresh)).Add(-paceLimit)
	begun := 0
	for begun < len(p.placed) && p.placed[begun].Before(since) {
		begun++
	}
	p.placed = slices.Delete(p.placed, 0, begun)
	if p.seen.Load.MeasuredAt.IsZero() {
		p.placed = nil // it never counts
	}
}

// unplace takes back that a call was placed on a node: it was not stored.
func (m *Manager) unplace(nodeID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.berths[nodeID]; p != nil && len(p.placed) > 0 {
		p.placed = p.placed[:len(p.placed)-1]
	}
}

// takeBerth makes a node of ours known before the database says anything of it. m.mu is held.
func (m *Manager) takeBerth(row *models.Node) {
	if m.berths[row.ID] == nil {
		m.berths[row.ID] = &berth{seen: models.ConnectedNode{ID: row.ID, Weight: row.Weight, Draining: row.Draining()}}
	}
}

// avoid notes that a node has turned out to take no calls any more, until it is looked for again.
func (m *Manager) avoid(nodeID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.berths[nodeID]; p != nil {
		p.seen.Draining = true
	}
}

// onNode places a call on a node and stores it there, and on another one where that node has begun to drain meanwhile. store gets the session that
// will dial, nil where that is another controller's, and the way that the call takes.
func (m *Manager) onNode(ctx context.Context, call *models.Call, app *models.Application, store func(s *session, over *way) (*models.Call, error)) (*models.Call, error) {
	for {
		s, ways, err := m.place(ctx, call, app)
		if err != nil {
			return nil, err
		}
		stored, err := overWays(call, s, ways, func(over *way) (*models.Call, error) { return store(s, over) })
		switch {
		case err == nil && s != nil:
			return s.dispatch(stored), nil
		case err == nil:
			return stored, nil
		case s != nil:
			m.forget(s)
		}
		m.unplace(*call.NodeID)
		if !errors.Is(err, models.ErrNodeDraining) {
			return nil, err
		}
		m.avoid(*call.NodeID)
	}
}
