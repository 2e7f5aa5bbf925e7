package calls

import (
	"context"
	"errors"
	"time"

	"tandem/esl"
	"tandem/models"
)

// The watchdog finds what fell between the parts. Everything it does can be done by several controllers at once, and twice: an
// end that another has written is stale.
//
//   - A CDR of a channel that is still taken to be alive: its hangup event was lost. It ends the call, or the leg, as the event
//     would have.
//   - A live call that nobody steers: it has no session at the controller that holds its node, or its node has no holder.
//   - A channel of a session that the switch does not list, and one that the switch lists and does not have ("stuck"): seen
//     twice in a row, since the list lags behind. The session asks the switch itself; a stuck channel is told of.
//   - A channel that lives though its call has ended: it is hung up.
//   - A recording that was to come from a node that was deleted meanwhile: it has failed.
//   - A settled call that was billed other seconds than its CDR says: it is told of, and nothing is changed.

const (
	// hearEvery is how often CDRs are compared with what is alive, unheardAfter how old one is before the hangup event is taken for
	// lost: the switch posts the CDR first (switch_core_state_machine.c, switch_core_session_reporting_state).
	hearEvery    = 5 * time.Second
	unheardAfter = 5 * time.Second
	// strayAfter is how old a call is before the watchdog cares for it.
	strayAfter = time.Minute
	// checkAfter is how old a CDR is before it is held against the bill, checkBatch how many are at a time.
	checkAfter = 30 * time.Second
	checkBatch = 500
)

// suspicion is what the last look found odd; only what is odd twice is acted on.
type suspicion struct {
	strays   map[string]bool // calls
	channels map[string]bool // of all nodes
	stuck    int
}

// watch is the watchdog's goroutine.
func (m *Manager) watch(ctx context.Context) {
	hear, look := time.NewTicker(min(hearEvery, m.cfg.WatchEvery)), time.NewTicker(m.cfg.WatchEvery)
	defer hear.Stop()
	defer look.Stop()
	last := &suspicion{}
	for {
		select {
		case <-hear.C:
			m.hearCDRs(ctx, m.cfg.Now().Add(-unheardAfter))
		case <-look.C:
			last = m.look(ctx, last)
		case <-ctx.Done():
			return
		}
	}
}

// look is one round of the watchdog. It returns what it found odd, for the next.
func (m *Manager) look(ctx context.Context, last *suspicion) *suspicion {
	found := &suspicion{strays: map[string]bool{}, channels: map[string]bool{}}
	m.findStrays(ctx, last, found)
	for _, n := range m.steered() {
		n.inspect(ctx, last, found)
	}
	m.stuck.Store(int64(found.stuck))
	m.checkBills(ctx)
	m.failLost(ctx)
	return found
}

// StuckChannels is how many channels the switches of this process list and do not have, by the watchdog's last look.
func (m *Manager) StuckChannels() int { return int(m.stuck.Load()) }

// steered returns the nodes of this process.
func (m *Manager) steered() []*node {
	m.mu.Lock()
	defer m.mu.Unlock()
	nodes := make([]*node, 0, len(m.nodes))
	for _, n := range m.nodes {
		nodes = append(nodes, n)
	}
	return nodes
}

// hearCDRs ends what is taken to be alive though its switch has recorded its end before a moment.
func (m *Manager) hearCDRs(ctx context.Context, before time.Time) {
	for _, n := range m.steered() {
		cdrs, err := m.cfg.Store.UnheardCDRs(ctx, n.row.ID, before)
		if err != nil {
			if ctx.Err() == nil {
				n.log.Error("unheard CDRs not read", "error", err)
			}
			return
		}
		for i := range cdrs {
			n.hear(ctx, &cdrs[i])
		}
	}
}

// hear tells a session of the end that it has missed.
func (n *node) hear(ctx context.Context, cdr *models.CDR) {
	log := n.log.With("fs_uuid", cdr.ChannelID, "cause", cdr.Cause)
	if s := n.m.channelSession(cdr.ChannelID); s != nil {
		ev, err := hangupOf(cdr)
		if err != nil {
			log.Error("hangup not made of a CDR", "error", err)
			return
		}
		if s.box.put(message{event: ev}) {
			log.Warn("hangup was not heard of: the CDR ends the channel")
		}
		return
	}
	call, err := n.m.cfg.Store.CallByChannel(ctx, cdr.ChannelID)
	switch {
	case errors.Is(err, models.ErrNotFound): // a leg, whose call has no session: it is ended with its call
	case err != nil:
		log.Error("call of a CDR not read", "error", err)
	case call.Live() && call.NodeID != nil && *call.NodeID == n.row.ID && n.m.callSession(call.ID) == nil:
		n.endOrphan(call)
	}
}

// findStrays ends live calls that nobody steers.
func (m *Manager) findStrays(ctx context.Context, last, found *suspicion) {
	calls, err := m.cfg.Store.LiveCalls(ctx, "")
	if err != nil {
		if ctx.Err() == nil {
			m.log.Error("live calls not read", "error", err)
		}
		return
	}
	rows, err := m.cfg.Store.Nodes(ctx)
	if err != nil {
		m.log.Error("nodes not read", "error", err)
		return
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
		found.strays[call.ID] = true
		if last.strays[call.ID] {
			n.endStray(ctx, call)
		}
	}
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

// endStray ends a call that the watchdog has seen without a session twice.
func (n *node) endStray(ctx context.Context, call *models.Call) {
	log := n.log.With("call_id", call.ID, "fs_uuid", call.ChannelID)
	switch {
	case n.sw != nil && n.connected():
		gone, err := n.gone(ctx, call)
		if err != nil {
			log.Error("call without a session not checked", "error", err)
			return
		}
		if !gone {
			stray := []*models.Call{call}
			left, err := n.readEstate(ctx, stray)
			if err != nil {
				log.Error("call without a session not read", "error", err)
				return
			}
			log.Error("call without a session has a channel: it is taken over")
			n.takeOver(stray, left)
			return
		}
	case n.sw != nil && n.away() < n.m.cfg.NodeLostAfter:
		return // it may come back
	}
	log.Warn("call has neither channel nor node: it is ended")
	n.endOrphan(call)
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
func (n *node) inspect(ctx context.Context, last, found *suspicion) {
	if !n.connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, n.m.cfg.WatchEvery)
	defer cancel()
	listed, err := n.sw.Channels(ctx)
	if err != nil {
		n.log.Warn("channels of the switch not listed", "error", err)
		return
	}
	present := make(map[string]bool, len(listed))
	var nobodys []string
	for i := range listed {
		channel := listed[i].UUID
		present[channel] = true
		alive, err := n.sw.Exists(ctx, channel)
		switch {
		case err != nil:
			n.log.Warn("channel of the switch not asked for", "fs_uuid", channel, "error", err)
			return
		case !alive:
			if n.suspect(channel, last, found) {
				found.stuck++
				n.log.Warn("stuck channel: the switch lists it and does not have it", "fs_uuid", channel, "since", listed[i].Created)
				n.doubt(channel)
			}
		case n.m.channelSession(channel) == nil:
			if n.suspect(channel, last, found) {
				nobodys = append(nobodys, channel)
			}
		}
	}
	for _, s := range n.m.sessions() {
		if s.node != n || s.unplaced.Load() {
			continue
		}
		if channel, there := n.m.carries(s, present); !there && n.suspect(channel, last, found) {
			n.log.Warn("channel of a call is not listed by the switch", "fs_uuid", channel)
			n.doubt(channel)
		}
	}
	n.endStale(ctx, nobodys)
}

// suspect notes that something about a channel is odd, and says whether it was the last time, too.
func (n *node) suspect(channel string, last, found *suspicion) bool {
	found.channels[channel] = true
	return last.channels[channel]
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

// endStale hangs up those of the channels that belong to calls which have ended. Others are not ours.
func (n *node) endStale(ctx context.Context, channels []string) {
	stale, err := n.m.cfg.Store.EndedChannels(ctx, n.row.ID, channels)
	if err != nil {
		n.log.Error("channels not looked up", "error", err)
		return
	}
	for _, channel := range stale {
		n.log.Warn("channel of an ended call is hung up", "fs_uuid", channel)
		if err := n.sw.Kill(ctx, channel, causeNormal); err != nil && !errors.Is(err, esl.ErrNoSuchChannel) {
			n.log.Error("channel of an ended call not hung up", "fs_uuid", channel, "error", err)
		}
	}
}

// checkBills holds the CDRs against what was billed, and tells of what differs.
func (m *Manager) checkBills(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		var differences []models.BillingDifference
		var err error
		differences, more, err = m.cfg.Store.CheckCDRs(ctx, m.cfg.Now().Add(-checkAfter), checkBatch)
		if err != nil {
			if ctx.Err() == nil {
				m.log.Error("bills not checked", "error", err)
			}
			return
		}
		for _, d := range differences {
			m.log.Warn("call was billed other seconds than its CDR says", "call_id", d.CallID, "fs_uuid", d.ChannelID,
				"billed_seconds", d.BilledSeconds, "cdr_seconds", d.CDRSeconds)
		}
	}
}
