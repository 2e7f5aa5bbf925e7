package calls

import (
	"context"
	"errors"
	"time"

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

// watch is the watchdog's goroutine.
func (m *Manager) watch(ctx context.Context) {
	hear, look := time.NewTicker(min(hearEvery, m.cfg.WatchEvery)), time.NewTicker(m.cfg.WatchEvery)
	defer hear.Stop()
	defer look.Stop()
	last := newSuspicion()
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
	m.looking.Lock()
	found := newSuspicion()
	if err := m.findUnsteered(ctx, "", last, found); err != nil && ctx.Err() == nil {
		m.log.Error("calls without a session not looked for", "error", err)
	}
	for _, n := range m.steered() {
		if !n.connected() {
			continue
		}
		if err := n.inspect(ctx, last, found); err != nil && ctx.Err() == nil {
			n.log.Warn("channels not held against the sessions", "error", err)
		}
	}
	stuck := 0
	for i := range found.strays {
		found.strays[i].reap(ctx)
		if found.strays[i].Kind == StrayStuck {
			stuck++
		}
	}
	m.stuck.Store(int64(stuck))
	m.looking.Unlock()
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
