package calls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tandem/esl"
	"tandem/models"
)

// What happens when a node connects, first or again. Every channel of the snapshot and every call of this node that the
// database holds live is one of these:
//
//   - a session's channel that lives: the session goes on. If an application was running, a marker queued behind it tells
//     when it has completed, should that completion have been lost.
//   - a session's channel that is gone: the call ends as its CDR says, and otherwise as node_lost, billed until the node was lost.
//   - a live call without a session, left by an earlier controller, whose channel lives: it gets a session, which goes on where
//     the call stands, see resume.go.
//   - a live call without a session whose channel is gone: it ends as its CDR says, and otherwise as node_lost, billed until the
//     last sign of life, see orphan.go.
//   - a parked inbound channel that has no call: it arrived while nobody listened, and is treated as if it arrived now.
//   - a channel whose call has ended: it is hung up, nobody pays for it.
//   - any other channel is not ours, such as the other leg of a bridge.
//
// A node whose Core-UUID has changed has lost the channels of the earlier process, and its list may still name them: each is asked for. That
// all calls are lost cannot be said: the process that was noted is not always the one before, and there may be calls of this one already.
func (n *node) resync(snapshot esl.Snapshot, up int) {
	present := make(map[string]bool, len(snapshot.Channels))
	if !snapshot.Restarted {
		for _, c := range snapshot.Channels {
			present[c.UUID] = true
		}
	}
	for _, s := range n.m.sessions() {
		if s.node == n {
			_, there := n.m.carries(s, present)
			s.box.put(message{up: &nodeUp{restarted: snapshot.Restarted, present: there}})
		}
	}
	if !n.m.goWork(func() { n.adopt(snapshot, present, up) }) {
		n.log.Debug("node connected while stopping")
	}
}

// adopt deals with the channels and calls that have no session, waiting for a database that is away. When the connection is lost
// meanwhile, its return begins anew.
func (n *node) adopt(snapshot esl.Snapshot, present map[string]bool, up int) {
	for delay := storeRetry; n.connected(); delay = min(2*delay, storeRetryMax) {
		ctx, cancel := context.WithTimeout(n.m.ctx, time.Minute)
		err := n.tryAdopt(ctx, snapshot, present)
		if !storeAway(err) {
			err = errors.Join(err, n.admitArrivals(ctx, up))
		}
		cancel()
		if err == nil || !storeAway(err) || n.m.ctx.Err() != nil {
			if err != nil {
				n.log.Error("live calls of the node not taken over", "error", err)
				n.stopLooking(up)
			}
			return
		}
		n.log.Warn("live calls of the node are taken over when the database is back", "error", err)
		select {
		case <-time.After(delay):
		case <-n.m.ctx.Done():
		}
	}
}

func (n *node) tryAdopt(ctx context.Context, snapshot esl.Snapshot, present map[string]bool) error {
	calls, err := n.m.cfg.Store.LiveCalls(ctx, n.row.ID)
	if err != nil {
		return fmt.Errorf("read the live calls: %w", err)
	}
	var listed, missing []*models.Call
	claimed := make(map[string]bool, len(calls))
	for i := range calls {
		call := &calls[i]
		claimed[call.ChannelID] = true
		if n.m.callSession(call.ID) != nil || n.m.channelSession(call.ChannelID) != nil {
			continue // also an inbound call that was stored a moment ago, whose session does not know its name yet
		}
		switch waits, err := n.m.waitsForDial(ctx, call); {
		case err != nil:
			return err
		case waits:
			continue
		}
		if present[call.ChannelID] {
			listed = append(listed, call)
		} else {
			missing = append(missing, call)
		}
	}
	// Those that surely live first: they are not to wait for the dead.
	left, err := n.readEstate(ctx, listed)
	if err != nil {
		return err
	}
	n.takeOver(listed, left)
	others := slices.DeleteFunc(slices.Clone(snapshot.Channels), func(c esl.Channel) bool { return claimed[c.UUID] })
	return errors.Join(n.sortOutAll(ctx, others), n.sortOutMissing(ctx, missing))
}

// checks is how many channels the switch is asked for at a time.
const checks = 16

// sortOutMissing deals with live calls whose channels are not listed: almost all have ended.
func (n *node) sortOutMissing(ctx context.Context, calls []*models.Call) error {
	alive, places := make([]bool, len(calls)), make(chan struct{}, checks)
	var asking sync.WaitGroup
	for i, call := range calls {
		places <- struct{}{}
		asking.Go(func() {
			defer func() { <-places }()
			switch gone, err := n.gone(ctx, call); {
			case errors.Is(err, esl.ErrDown): // the next connection begins anew
			case err != nil:
				n.log.Error("orphan call not checked", "error", err)
			case gone:
				n.endOrphan(call)
			default:
				alive[i] = true
			}
		})
	}
	asking.Wait()
	var listed []*models.Call
	for i, call := range calls {
		if alive[i] {
			listed = append(listed, call)
		}
	}
	left, err := n.readEstate(ctx, listed)
	if err != nil {
		return err
	}
	n.takeOver(listed, left)
	return nil
}

// sortOutAll decides about channels that no live call names.
func (n *node) sortOutAll(ctx context.Context, channels []esl.Channel) error {
	names := make([]string, len(channels))
	for i := range channels {
		names[i] = channels[i].UUID
	}
	calls, err := n.m.cfg.Store.CallsByChannels(ctx, names)
	if err != nil {
		return err
	}
	for _, c := range channels {
		call := calls[c.UUID]
		if n.m.channelSession(c.UUID) == nil || call != nil && !call.Live() {
			n.sortOut(ctx, c, call)
		}
	}
	return nil
}

// sortOut decides about a channel that no live call names. call is the one that it is of, nil for none.
func (n *node) sortOut(ctx context.Context, c esl.Channel, call *models.Call) {
	log := n.log.With("fs_uuid", c.UUID)
	switch {
	case call != nil && !call.Live():
		log.Warn("channel of an ended call is hung up", "call_id", call.ID)
		if err := n.sw.Kill(ctx, c.UUID, causeNormal); err != nil && !errors.Is(err, esl.ErrNoSuchChannel) {
			log.Error("channel of an ended call not hung up", "error", err)
		}
	case call != nil: // it was stored a moment ago and has its session
	case c.Direction == DirectionInbound && c.Application == "park":
		ev, err := n.sw.Dump(ctx, c.UUID)
		if err != nil {
			log.Warn("parked channel not read", "error", err)
			return
		}
		if n.m.channelSession(c.UUID) == nil {
			n.arriveFrom(c.UUID, ev)
		}
	}
}

// handleUp goes on after the node's connection was rebuilt.
func (s *session) handleUp(up nodeUp) error {
	if s.ended {
		return nil // the switch has said how; only the parties' last words are waited for
	}
	if s.unplaced.Load() {
		return nil
	}
	if !up.present {
		if err := s.confirm(up.restarted); err != nil {
			return err
		}
	}
	if !s.answered || !s.parked {
		if err := s.catchUp(); err != nil {
			return err
		}
	}
	if s.running != "" && s.completed == nil && s.marker == "" && !s.unsure {
		if err := s.mark(); err != nil {
			return err
		}
	}
	return s.catchUpLegs()
}

// catchUp asks the switch whether the channel was answered while nobody listened. An outbound channel that is answered runs
// park, the only application that it was originated with.
func (s *session) catchUp() error {
	state, err := s.readChannel()
	if err != nil || state.Get("Answer-State") != "answered" {
		return err
	}
	s.parked = true
	return s.handleAnswer(microTime(state.Get("Caller-Channel-Answered-Time")))
}

// confirm asks the switch whether the channel lives, twice when it says no: an originate that it has just taken may not
// have its channel yet. A channel that is gone ends the call as lost.
func (s *session) confirm(atOnce bool) error {
	for try := 0; ; try++ {
		var alive bool
		err := s.order("ask for the channel", func(ctx context.Context) (err error) {
			alive, err = s.node.sw.Exists(ctx, s.channel)
			return err
		})
		if err != nil || alive {
			return err
		}
		if atOnce || try == 1 {
			s.ended, s.lost = true, true
			return errEnded
		}
		if err := s.pause(s.m.cfg.HangupGrace, nil); err != nil {
			return err
		}
	}
}
