package calls

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// How long the switch gets to connect two channels, and after how many failures a dequeue gives up.
const (
	bridgeGrace = 5 * time.Second
	bridgeTries = 3
)

// taking is what a taker does with a queue.
type taking struct {
	key   queueKey
	place *place

	bond      *bond // with the caller who was taken, nil while there is none
	ready     bool  // the caller's channel can be bridged
	gone      bool  // the caller has said over
	bridging  bool  // the switch was told to connect the two
	bridged   bool  // the switch has connected the two
	unbridged bool  // and has parted them
	since     time.Time

	failures int
	look     bool // the connection to the node was rebuilt: what it did meanwhile must be asked for
}

// hear takes what the caller says.
func (t *taking) hear(m *bondMessage) {
	switch m.step {
	case bondReady:
		t.ready = true
	case bondOver:
		t.gone = true
	}
}

// take begins a bond.
func (t *taking) take(b *bond) {
	t.bond, t.ready, t.gone, t.bridging, t.bridged, t.unbridged = b, false, false, false, false, false
}

// doDequeue connects the call with the first caller of a queue and comes back when one of the two has left the connection. With
// nobody in the queue it waits for someone, for as long as timeout says.
func (s *session) doDequeue(a *actions.Dequeue) (outcome, error) {
	undo, err := s.enterQueue()
	if err != nil {
		return outcome{}, err
	}
	t := &taking{key: queueKey{customerID: s.call.CustomerID, name: a.Name, nodeID: s.node.row.ID}}
	s.taking = t
	t.place = s.m.board.join(t.key, s)
	defer func() {
		s.endBond(t)
		s.taking = nil
		s.m.board.leave(t.key, t.place)
	}()
	if s.repeats {
		result, err := s.talkOn(a, t)
		if err != nil {
			return outcome{}, err
		}
		if result != nil {
			return outcome{result: result}, undo()
		}
	}
	_, begun := s.rounds()
	limit := s.deadline(a.Timeout - s.m.cfg.Now().Sub(begun))
	defer limit.stop()
	for {
		found, err := s.nextCaller(t, limit)
		if err != nil {
			return outcome{}, err
		}
		if !found {
			word := queueTimeout
			if s.interrupted() {
				word = queueInterrupted
			}
			return outcome{result: map[string]any{"outcome": word, "seconds": 0.0}}, undo()
		}
		connected, err := s.meetCaller(t)
		switch {
		case err != nil:
			return outcome{}, err
		case connected:
			result, err := s.talk(a, t)
			if err != nil {
				return outcome{}, err
			}
			return outcome{result: result}, undo()
		case t.failures >= bridgeTries:
			if err := undo(); err != nil {
				return outcome{}, err
			}
			return outcome{result: map[string]any{"outcome": "failed", "seconds": 0.0}}, s.skip(a, "", "the switch could not connect the calls")
		}
	}
}

// endBond tells the caller, once, that the taker wants no more of it.
func (s *session) endBond(t *taking) {
	if t.bond == nil {
		return
	}
	t.bond.caller.box.put(message{bond: &bondMessage{bond: t.bond, step: bondOver, bridging: t.bridging}})
	t.bond = nil
}

// nextCaller takes the first caller of the queue, waiting for one until the limit.
func (s *session) nextCaller(t *taking, limit *deadline) (found bool, err error) {
	for !s.interrupted() {
		entry, err := s.takeFromQueue(t)
		if err != nil {
			return false, err
		}
		if entry != nil {
			s.m.board.wake(t.key)
			caller := s.m.callSession(entry.CallID)
			if caller == nil {
				continue // it has ended, or is an earlier controller's to be ended, and takes its entry along
			}
			t.take(&bond{entryID: entry.ID, caller: caller, taker: s, callerCall: entry.CallID, takerCall: s.call.ID})
			if !t.bond.tellCaller(bondOffer) {
				t.bond = nil
				continue
			}
			s.flow.idle = 0
			return true, nil
		}
		if limit.over() {
			return false, nil
		}
		if !s.m.board.rest(t.key, t.place) {
			continue
		}
		if err := s.waitWith(limit.stillness(), func() bool { return s.m.board.woken(t.place) || limit.over() }); err != nil {
			return false, err
		}
		s.flow.idle = 0
	}
	return false, nil
}

// takeFromQueue takes the first caller in the database, nil when there is none.
func (s *session) takeFromQueue(t *taking) (*models.QueueEntry, error) {
	var entry *models.QueueEntry
	begun := s.m.cfg.Store.Now()
	tries := 0
	err := s.change("take from the queue", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		tries++
		if tries > 1 {
			// The first try may have been committed although it failed: what it took is ours.
			var err error
			if entry, err = takenSince(ctx, tx, t.key, call.ID, begun); err != nil || entry != nil {
				return err
			}
		}
		taken, err := tx.TakeFromQueue(ctx, t.key.customerID, t.key.name, call.ID, t.key.nodeID)
		if errors.Is(err, models.ErrNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("take from queue %q: %w", t.key.name, err)
		}
		entry = taken
		return nil
	})
	return entry, err
}

// takenSince is the entry of a queue that a call has taken since a moment and not bridged yet.
func takenSince(ctx context.Context, tx *models.Store, key queueKey, callID string, since time.Time) (*models.QueueEntry, error) {
	entries, err := tx.QueueEntries(ctx, key.customerID, key.name)
	if err != nil {
		return nil, fmt.Errorf("read queue %q: %w", key.name, err)
	}
	for _, e := range entries {
		if e.State == models.QueueTaken && e.TakenBy == callID && e.TakenAt != nil && !e.TakenAt.Before(since) {
			return &e, nil
		}
	}
	return nil, nil
}

// meetCaller waits until the caller is ready and connects the two. It reports false when the caller has gone, the call is
// interrupted, or the switch did not do it; the channel is parked then.
func (s *session) meetCaller(t *taking) (connected bool, err error) {
	if err := s.await(nil, func() bool { return t.ready || t.gone || s.interrupted() }); err != nil {
		return false, err
	}
	if t.gone || s.interrupted() {
		s.endBond(t)
		return false, nil
	}
	t.bridging, s.reparked = true, false
	commanded, err := s.commandBridge(t)
	if err == nil {
		grace := bridgeGrace
		if !commanded {
			grace = settleGrace // a caller who has hung up is about to say so
		}
		err = s.pause(grace, func() bool { return t.bridged || t.gone || t.look || s.interrupted() })
	}
	if err == nil && t.look {
		err = s.lookAtBridge(t)
	}
	if err != nil {
		return false, err
	}
	if t.bridged && !t.gone {
		t.since = s.m.cfg.Now()
		t.bond.tellCaller(bondMade)
		return true, nil
	}
	if !t.gone && !s.interrupted() {
		t.failures++
	}
	s.endBond(t)
	return false, s.settle(true)
}

// commandBridge tells the switch to connect the two channels. It reports false when the switch refuses, which it does when one
// of them is gone: that is no word on the call's own, whose hangup tells for itself.
func (s *session) commandBridge(t *taking) (bool, error) {
	for {
		ctx, cancel := s.command()
		err := s.node.sw.BridgeChannels(ctx, s.channel, t.bond.caller.channel)
		cancel()
		var refused *esl.CommandError
		switch {
		case err == nil || errors.Is(err, esl.ErrNoReply):
			return true, nil // without a reply, the switch may have done it all the same
		case errors.As(err, &refused):
			s.log.Info("calls not connected", "error", err)
			return false, nil
		case !unsent(err):
			return false, fmt.Errorf("connect the calls: %w", err)
		}
		if err := s.awaitUp(); err != nil {
			return false, err
		}
		if t.gone || s.interrupted() {
			return false, nil
		}
	}
}

// lookAtBridge asks the switch, after the connection to it was rebuilt, whether the two channels are connected.
func (s *session) lookAtBridge(t *taking) error {
	t.look = false
	var state *esl.Event
	err := s.order("read the channel", func(ctx context.Context) (err error) {
		state, err = s.node.sw.Dump(ctx, s.channel)
		return err
	})
	if err != nil {
		return err
	}
	// The variable is there for as long as the bridge (switch_ivr_bridge.c, audio_bridge_thread).
	if state.Variable("bridge_to") == t.bond.caller.channel {
		t.bridged = true
	} else {
		t.unbridged = true
	}
	return nil
}

// talk follows a connection until one of the two has left it.
func (s *session) talk(a *actions.Dequeue, t *taking) (map[string]any, error) {
	peer := t.bond.callerCall
	limit := s.deadline(a.MaxSeconds)
	defer limit.stop()
	for !t.unbridged && !t.gone && !limit.over() && !s.interrupted() {
		err := s.await(nil, func() bool { return t.unbridged || t.gone || t.look || limit.over() || s.interrupted() })
		if err == nil && t.look {
			err = s.lookAtBridge(t)
		}
		if err != nil {
			return nil, err
		}
	}
	parted := t.unbridged || t.gone
	result := map[string]any{"outcome": queueBridged, "peer_call_id": peer, "seconds": seconds(t.since, s.nowPointer())}
	if !parted && limit.over() {
		result["outcome"] = "max_seconds"
	}
	s.endBond(t)
	return result, s.settle(!parted)
}
