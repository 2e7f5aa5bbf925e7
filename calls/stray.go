package calls

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tandem/esl"
	"tandem/models"
)

// Kinds of strays: what fell between the parts of a node, and what reaping does about it.
const (
	// StrayUnsteered is a live call without a session whose channel lives. It is taken over.
	StrayUnsteered = "unsteered"
	// StrayGone is a live call with neither session nor channel. It is ended as its CDR says, and as lost where none comes.
	StrayGone = "gone"
	// StrayUnlisted is a channel of a session that the switch does not list. The switch is asked for it; where it has none, the call or leg ends.
	StrayUnlisted = "unlisted"
	// StrayStuck is a channel that the switch lists and does not have. A call that has it ends; the list has it until the switch starts again.
	StrayStuck = "stuck"
	// StrayStale is a channel that lives though its call has ended. It is hung up.
	StrayStale = "stale"
)

// Stray is something that fell between the parts of a node.
type Stray struct {
	Kind string `json:"kind"`
	// CallID is "" for a channel that is no call's own: a dialled party's, or one of nobody.
	CallID    string `json:"call_id"`
	ChannelID string `json:"channel_id"`
}

// stray is a Stray and what reaping it needs.
type stray struct {
	Stray
	node *node
	call *models.Call // of those that are about a call without a session
}

// ErrNotHeld is the answer to a question about a node that this controller does not hold.
var ErrNotHeld = errors.New("calls: the node is not this controller's")

// reapAfter is the time between the two looks of Reap: longer than the switch takes to bring its list up to date.
const reapAfter = 2 * time.Second

// suspicion is what one look found odd. What was odd the last time, too, is a stray.
type suspicion struct {
	calls    map[string]bool
	channels map[string]bool // of all nodes
	strays   []stray
}

func newSuspicion() *suspicion {
	return &suspicion{calls: map[string]bool{}, channels: map[string]bool{}}
}

// Strays returns what fell between the parts of a node that this controller holds, and Reap also does about it what the watchdog would have done
// within two of its rounds. Both look twice, two seconds apart, and take for lost only what was odd both times. ErrNotHeld for a node of others.
func (m *Manager) Strays(ctx context.Context, nodeID string) ([]Stray, error) {
	return m.strays(ctx, nodeID, false)
}

// Reap is as Strays says.
func (m *Manager) Reap(ctx context.Context, nodeID string) ([]Stray, error) {
	return m.strays(ctx, nodeID, true)
}

func (m *Manager) strays(ctx context.Context, nodeID string, reap bool) ([]Stray, error) {
	m.mu.Lock()
	n := m.nodes[nodeID]
	m.mu.Unlock()
	switch {
	case n == nil:
		return nil, fmt.Errorf("look for strays of node %q: %w", nodeID, ErrNotHeld)
	case !n.connected():
		return nil, fmt.Errorf("look for strays of node %s: %w", n.row.Name, esl.ErrDown)
	}
	first, second := newSuspicion(), newSuspicion()
	if err := n.suspectAll(ctx, newSuspicion(), first); err != nil {
		return nil, err
	}
	select {
	case <-time.After(min(reapAfter, m.cfg.WatchEvery)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m.looking.Lock()
	defer m.looking.Unlock()
	if err := n.suspectAll(ctx, first, second); err != nil {
		return nil, err
	}
	channels := make([]string, len(second.strays))
	for i := range second.strays {
		channels[i] = second.strays[i].ChannelID
	}
	calls, err := m.cfg.Store.CallsByChannels(ctx, channels)
	if err != nil {
		return nil, err
	}
	found := make([]Stray, len(second.strays))
	for i := range second.strays {
		odd := &second.strays[i]
		if call := calls[odd.ChannelID]; odd.CallID == "" && call != nil {
			odd.CallID = call.ID
		}
		if reap {
			odd.reap(ctx)
		}
		found[i] = odd.Stray
	}
	return found, nil
}

// suspectAll is one look at a node.
func (n *node) suspectAll(ctx context.Context, last, found *suspicion) error {
	if err := n.m.findUnsteered(ctx, n.row.ID, last, found); err != nil {
		return err
	}
	return n.inspect(ctx, last, found)
}

// findUnsteered finds live calls that nobody steers, of one node or, with "", of all that are looked after here.
func (m *Manager) findUnsteered(ctx context.Context, nodeID string, last, found *suspicion) error {
	calls, err := m.cfg.Store.LiveCalls(ctx, nodeID)
	if err != nil {
		return err
	}
	rows, err := m.cfg.Store.Nodes(ctx)
	if err != nil {
		return err
	}
	nodes := make(map[string]*models.Node, len(rows))
	for i := range rows {
		nodes[rows[i].ID] = &rows[i]
	}
	now := m.cfg.Now()
	for i := range calls {
		call := &calls[i]
		if call.Status == StatusQueued || now.Sub(call.CreatedAt) < strayAfter || m.callSession(call.ID) != nil || m.channelSession(call.ChannelID) != nil {
			continue
		}
		n := m.guardian(call, nodes, now)
		if n == nil {
			continue
		}
		found.calls[call.ID] = true
		if !last.calls[call.ID] {
			continue
		}
		if kind := n.judge(ctx, call); kind != "" {
			found.strays = append(found.strays, stray{Stray: Stray{Kind: kind, CallID: call.ID, ChannelID: call.ChannelID}, node: n, call: call})
		}
	}
	return nil
}

// guardian is the node in whose name a call without a session here is looked after here: one of ours, or one that no controller
// holds. It is nil where another controller's watchdog does.
func (m *Manager) guardian(call *models.Call, nodes map[string]*models.Node, now time.Time) *node {
	var row models.Node
	if call.NodeID != nil {
		m.mu.Lock()
		ours := m.nodes[*call.NodeID]
		m.mu.Unlock()
		if ours != nil {
			return ours
		}
		known := nodes[*call.NodeID]
		if known != nil && known.LeaseUntil != nil && now.Sub(*known.LeaseUntil) < m.cfg.NodeLostAfter {
			return nil
		}
		if known != nil {
			row = *known
		}
		row.ID = *call.NodeID
	}
	return m.nobodys(row)
}

// nobodys is a node that no controller holds, for the calls that are left on it. It lives as long as the manager, so that an end
// that is being written is not begun again.
func (m *Manager) nobodys(row models.Node) *node {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.unheld[row.ID]
	if n == nil {
		n = newNode(m, row, nil)
		m.unheld[row.ID] = n
	}
	return n
}

// judge says which kind of stray a call without a session is, "" where that is not known yet.
func (n *node) judge(ctx context.Context, call *models.Call) string {
	switch {
	case n.sw != nil && n.connected():
		gone, err := n.gone(ctx, call)
		switch {
		case err != nil:
			n.log.Error("call without a session not checked", "call_id", call.ID, "fs_uuid", call.ChannelID, "error", err)
			return ""
		case !gone:
			return StrayUnsteered
		}
	case n.sw != nil && n.away() < n.m.cfg.NodeLostAfter:
		return "" // it may come back
	}
	return StrayGone
}

// away is for how long the node has been away, 0 while it is connected.
func (n *node) away() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.up {
		return 0
	}
	return n.m.cfg.Now().Sub(later(n.downAt, n.added))
}

// inspect compares the channels that the switch lists with those that it has, and with the sessions.
func (n *node) inspect(ctx context.Context, last, found *suspicion) error {
	ctx, cancel := context.WithTimeout(ctx, n.m.cfg.WatchEvery)
	defer cancel()
	listed, err := n.sw.Channels(ctx)
	if err != nil {
		return fmt.Errorf("list the channels of the switch: %w", err)
	}
	present := make(map[string]bool, len(listed))
	var nobodys []string
	for i := range listed {
		channel := listed[i].UUID
		present[channel] = true
		alive, err := n.sw.Exists(ctx, channel)
		switch {
		case err != nil:
			return fmt.Errorf("ask for channel %s: %w", channel, err)
		case !alive:
			n.suspect(StrayStuck, channel, last, found)
		case n.m.channelSession(channel) == nil:
			found.channels[channel] = true
			if last.channels[channel] {
				nobodys = append(nobodys, channel)
			}
		}
	}
	for _, s := range n.m.sessions() {
		if s.node != n || s.unplaced.Load() {
			continue
		}
		if channel, there := n.m.carries(s, present); !there {
			n.suspect(StrayUnlisted, channel, last, found)
		}
	}
	// Of the channels that no session has, those of calls that have ended are ours to hang up. Others are not ours.
	stale, err := n.m.cfg.Store.EndedChannels(ctx, n.row.ID, nobodys)
	if err != nil {
		return err
	}
	for _, channel := range stale {
		found.strays = append(found.strays, stray{Stray: Stray{Kind: StrayStale, ChannelID: channel}, node: n})
	}
	return nil
}

// suspect notes that something about a channel is odd: it is a stray if it was the last time, too.
func (n *node) suspect(kind, channel string, last, found *suspicion) {
	found.channels[channel] = true
	if !last.channels[channel] {
		return
	}
	found.strays = append(found.strays, stray{Stray: Stray{Kind: kind, ChannelID: channel}, node: n})
}

// reap does what its kind says.
func (s *stray) reap(ctx context.Context) {
	n, log := s.node, s.node.log.With("fs_uuid", s.ChannelID)
	if s.CallID != "" {
		log = log.With("call_id", s.CallID)
	}
	switch s.Kind {
	case StrayUnsteered:
		calls := []*models.Call{s.call}
		left, err := n.readEstate(ctx, calls)
		if err != nil {
			log.Error("call without a session not read", "error", err)
			return
		}
		log.Error("call without a session has a channel: it is taken over")
		n.takeOver(calls, left)
	case StrayGone:
		log.Warn("call has neither channel nor node: it is ended")
		n.endOrphan(s.call)
	case StrayUnlisted:
		log.Warn("channel of a call is not listed by the switch")
		n.doubt(s.ChannelID)
	case StrayStuck:
		log.Warn("stuck channel: the switch lists it and does not have it")
		n.doubt(s.ChannelID)
	case StrayStale:
		log.Warn("channel of an ended call is hung up")
		if err := n.sw.Kill(ctx, s.ChannelID, causeNormal); err != nil && !errors.Is(err, esl.ErrNoSuchChannel) {
			log.Error("channel of an ended call not hung up", "error", err)
		}
	}
}

// doubt makes the session of a channel ask the switch whether the channel lives.
func (n *node) doubt(channel string) {
	n.m.mu.Lock()
	s := n.m.byChannel[channel]
	n.m.mu.Unlock()
	if s != nil {
		s.box.put(message{up: &nodeUp{}})
	}
}
