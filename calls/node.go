package calls

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"tandem/esl"
	"tandem/models"
)

// node is one media node and the esl.Handler of its events.
type node struct {
	m   *Manager
	row models.Node
	sw  Switch
	log *slog.Logger

	mu       sync.Mutex
	up       bool
	closed   bool
	modules  map[string]bool // what the switch said of its modules since it was last up
	added    time.Time       // when it was given to this manager
	downAt   time.Time       // when the connection was last lost
	lostWhen *time.Timer     // runs while the node is away
	orphans  map[string]bool // calls that are being ended here without a session
	ups      int             // how often the node was connected
	looking  bool            // for the calls that are on the switch, since it was connected
	arrivals []*esl.Event    // channels that parked meanwhile

	pace      *pace
	witness   *witness
	placed    map[string]string // sound files that a remote node has, by ours
	inTransit map[string]bool   // recordings that a remote node is sending
	sending   chan struct{}     // holds a token for each of them

	burials chan struct{} // holds a token for each orphan whose end is being written
}

// newNode makes a node that is away. It is given up for lost when it does not come up in time; one without a switch is nobody's,
// and never comes up.
func newNode(m *Manager, row models.Node, sw Switch) *node {
	n := &node{
		m: m, row: row, sw: sw, log: m.log.With("node_id", row.ID, "node", row.Name), modules: map[string]bool{}, orphans: map[string]bool{},
		added: m.cfg.Now(), pace: newPace(), placed: map[string]string{}, inTransit: map[string]bool{}, sending: make(chan struct{}, uploadsAtOnce),
		witness: newWitness(m, row.ID), burials: make(chan struct{}, orphansAtOnce),
	}
	if sw != nil {
		n.lostWhen = time.AfterFunc(m.cfg.NodeLostAfter, n.giveUp)
	}
	return n
}

var _ esl.Handler = (*node)(nil)

// connected says whether the node can take a call now.
func (n *node) connected() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.up && !n.closed
}

// shut says that the node was taken away.
func (n *node) shut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}

// capable says whether the switch has loaded a module. It asks once for as long as the node is connected.
func (n *node) capable(ctx context.Context, module string) (bool, error) {
	n.mu.Lock()
	loaded, known := n.modules[module]
	n.mu.Unlock()
	if known {
		return loaded, nil
	}
	loaded, err := n.sw.HasModule(ctx, module)
	if err != nil {
		return false, fmt.Errorf("ask for %s: %w", module, err)
	}
	n.mu.Lock()
	n.modules[module] = loaded
	n.mu.Unlock()
	return loaded, nil
}

// lastSeen is the last moment at which the node was known to carry the calls that it has lost since.
func (n *node) lastSeen() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.downAt.IsZero() {
		return n.m.cfg.Now()
	}
	return n.downAt
}

// HandleEvent routes an event to its session, and a parked inbound leg that nobody knows to a new one. It never blocks.
func (n *node) HandleEvent(ev *esl.Event) {
	switch ev.Name() {
	case eventProgress, eventProgressMedia, eventAnswer, eventPark, eventExecuteComplete, eventHangupComplete, eventBridge, eventUnbridge, eventDTMF, eventRecordStop, eventCustom:
	default:
		return
	}
	if s := n.m.channelSession(ev.ChannelID()); s != nil {
		if !s.box.put(message{event: ev}) {
			n.log.Warn("event dropped: the session's mailbox is full", "fs_uuid", ev.ChannelID(), "event", ev.Name())
		}
		return
	}
	if ev.Name() == eventPark && ev.Get("Call-Direction") == DirectionInbound {
		n.arrive(ev)
	}
}

// HandleUp compares what the switch says it carries with the sessions, see recover.go.
func (n *node) HandleUp(snapshot esl.Snapshot) {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return
	}
	n.up = true
	n.ups++
	n.looking, n.arrivals = true, nil // they are in the list of channels
	n.modules = map[string]bool{}
	if n.lostWhen != nil {
		n.lostWhen.Stop()
		n.lostWhen = nil
	}
	up := n.ups
	n.mu.Unlock()
	n.resync(snapshot, up)
}

// HandleDown notes that the node is away. Its calls go on without us for a while: the switch holds them, with their caps.
func (n *node) HandleDown(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up || n.closed {
		return
	}
	n.up = false
	n.downAt = n.m.cfg.Now()
	n.log.Warn("node lost", "error", err)
	n.lostWhen = time.AfterFunc(n.m.cfg.NodeLostAfter, n.giveUp)
}

// giveUp ends the calls of a node that has been away for too long: those that have a session, and those that never got one
// because the node was away already when its lease was taken.
func (n *node) giveUp() {
	if n.connected() || n.shut() { // it may come back in the moment in which the timer fires
		return
	}
	n.log.Error("node is given up: its calls end as lost", "after", n.m.cfg.NodeLostAfter)
	n.lose()
	n.m.goWork(n.loseOrphans)
}

// loseOrphans ends the calls of a lost node that have no session.
func (n *node) loseOrphans() {
	ctx, cancel := context.WithTimeout(n.m.ctx, time.Minute)
	defer cancel()
	calls, err := n.m.cfg.Store.LiveCalls(ctx, n.row.ID)
	if err != nil { // the watchdog looks again
		n.log.Error("live calls of a lost node not read", "error", err)
		return
	}
	for i := range calls {
		if call := &calls[i]; call.Status != StatusQueued && n.m.callSession(call.ID) == nil {
			n.endOrphan(call)
		}
	}
}

// lose tells the sessions of this node that their channels are gone.
func (n *node) lose() {
	for _, s := range n.m.sessions() {
		if s.node == n {
			s.box.put(message{lost: true})
		}
	}
}

// close stops the node's timer and makes it take no more calls.
func (n *node) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.lostWhen != nil {
		n.lostWhen.Stop()
		n.lostWhen = nil
	}
}
