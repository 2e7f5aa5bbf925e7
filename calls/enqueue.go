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

// Outcomes of a stay in a queue.
const (
	queueBridged     = "bridged"
	queueHangup      = "hangup"
	queueLeft        = "left"
	queueTimeout     = "timeout"
	queueInterrupted = "interrupted"
)

// ticket is a caller's place in a queue, from entering to leaving.
type ticket struct {
	entry    models.QueueEntry
	position int

	bond      *bond // with the taker who has taken the caller, nil while waiting
	connected bool  // the switch has connected the two
	released  bool  // the taker has said over
	bridging  bool  // the switch was told to connect the two

	limit  *deadline // of max_wait
	asked  bool      // the API wants the caller out
	closed bool      // no offer is taken any more
}

// offered takes an offer when the caller still waits.
func (t *ticket) offered(b *bond) bool {
	if t.bond != nil || t.closed || t.entry.ID != b.entryID {
		return false
	}
	t.bond, t.connected, t.released, t.bridging = b, false, false, false
	return true
}

// hear takes what the taker says.
func (t *ticket) hear(m *bondMessage) {
	switch m.step {
	case bondMade:
		t.connected = true
	case bondOver:
		t.released, t.bridging = true, m.bridging
	}
}

// over says that the caller waits no longer.
func (t *ticket) over() bool { return t.bond != nil || t.asked || t.limit.over() }

// doEnqueue puts the call into a queue and lets it hear the wait actions until a dequeue action of another call takes it, until
// max_wait is over, or until it is taken out. After a connection the call's own list goes on.
func (s *session) doEnqueue(a *actions.Enqueue) (outcome, error) {
	entry, err := s.storedEntry(a.Name)
	if err != nil {
		return outcome{}, err
	}
	undo, err := s.enterQueue()
	if err != nil {
		return outcome{}, err
	}
	t := &ticket{}
	if entry != nil {
		t.entry = *entry
		t.limit = s.deadline(a.MaxWait - s.m.cfg.Now().Sub(entry.JoinedAt))
		err = s.rejoinQueue(t)
	} else {
		t.limit = s.deadline(a.MaxWait)
		err = s.joinQueue(a, t)
	}
	defer t.limit.stop()
	if err != nil {
		return outcome{}, err
	}
	defer func() {
		// Also when the call has ended: whoever has taken it must not wait for it. The end of the call ends the entry then.
		t.closed = true
		if t.bond != nil {
			t.bond.tellTaker(bondOver)
			t.bond = nil
		}
	}()
	word, err := s.stayInQueue(a, t)
	if err != nil {
		return outcome{}, err
	}
	result := map[string]any{"outcome": word, "wait_seconds": seconds(t.entry.JoinedAt, t.entry.LeftAt), "position": t.position}
	if t.connected {
		result["seconds"] = seconds(*t.entry.LeftAt, s.nowPointer())
	}
	return outcome{result: result}, undo()
}

// enterQueue answers a caller who is not answered yet and prepares the channel for a bridge.
func (s *session) enterQueue() (undo func() error, err error) {
	if _, err := s.begin(esl.App{}); err != nil {
		return nil, err
	}
	if err := s.open(false); err != nil {
		return nil, err
	}
	return s.prepareJoin()
}

func (s *session) nowPointer() *time.Time {
	now := s.m.cfg.Now()
	return &now
}

// joinQueue stores the entry, tells of it and wakes a taker.
func (s *session) joinQueue(a *actions.Enqueue, t *ticket) error {
	id := models.NewID(models.PrefixQueueEntry)
	s.ticket, s.grouped = t, true
	err := s.change("queue.joined", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		t.entry = models.QueueEntry{ID: id, CustomerID: call.CustomerID, Queue: a.Name, CallID: call.ID, NodeID: s.node.row.ID, Priority: a.Priority}
		position, err := tx.JoinQueue(ctx, &t.entry)
		if err != nil {
			return fmt.Errorf("join queue %q: %w", a.Name, err)
		}
		t.position = position
		return emit(ctx, tx, call, "queue.joined", map[string]any{
			"queue": a.Name, "queue_entry_id": id, "position": position, "priority": a.Priority,
		})
	})
	if err != nil {
		return err
	}
	s.flow.idle = 0
	s.m.board.wake(t.key())
	return nil
}

func (t *ticket) key() queueKey {
	return queueKey{customerID: t.entry.CustomerID, name: t.entry.Queue, nodeID: t.entry.NodeID}
}

// stayInQueue waits, and is connected, until the stay is over. It returns the outcome.
func (s *session) stayInQueue(a *actions.Enqueue, t *ticket) (string, error) {
	if t.connected {
		return queueBridged, s.stayBridged(t)
	}
	for {
		if t.bond == nil {
			heard := a.WaitActions
			if len(heard) == 0 {
				heard = t.limit.stillness()
			}
			if err := s.waitWith(heard, t.over); err != nil {
				return "", err
			}
		}
		switch {
		case t.bond != nil && !s.interrupted() && !t.asked:
			connected, err := s.meetTaker(t)
			if err != nil || connected {
				return queueBridged, err
			}
		case t.bond != nil:
			// Taken in the moment in which it was to leave. The taker was told nothing that it could act on.
			t.bond.tellTaker(bondOver)
			t.bond = nil
		}
		word := ""
		switch {
		case s.interrupted():
			word = queueInterrupted
		case t.asked:
			word = queueLeft
		case t.limit.over():
			word = queueTimeout
		}
		if word != "" {
			return word, s.leaveQueue(t, word, "")
		}
	}
}

// meetTaker tells the taker to connect the two, and follows the connection until it is over. It reports false when none came
// about: the entry is back in the queue then, unless the caller is to leave it.
func (s *session) meetTaker(t *ticket) (connected bool, err error) {
	s.reparked = false
	t.bond.tellTaker(bondReady)
	leaving := func() bool { return s.interrupted() || t.asked }
	if err := s.await(nil, func() bool { return t.connected || t.released || leaving() }); err != nil {
		return false, err
	}
	if !t.connected && !t.released {
		// The caller is to leave, and the taker may be about to bridge. Once it has heard of it, it never will.
		t.bond.tellTaker(bondOver)
		if err := s.await(nil, func() bool { return t.released }); err != nil {
			return false, err
		}
	}
	if !t.connected {
		if t.bridging {
			if err := s.settle(true); err != nil {
				return false, err
			}
		}
		t.bond.tellTaker(bondOver)
		t.bond = nil
		if leaving() {
			return false, nil
		}
		return false, s.returnToQueue(t)
	}
	if err := s.leaveQueue(t, queueBridged, t.bond.takerCall); err != nil {
		return false, err
	}
	if err := s.await(nil, func() bool { return t.released || s.interrupted() }); err != nil {
		return true, err
	}
	t.bond.tellTaker(bondOver)
	own := !t.released
	t.bond = nil
	if err := s.settle(own); err != nil {
		return true, err
	}
	return true, s.change("part", func(ctx context.Context, tx *models.Store, _ *models.Call) error {
		return moved(tx.LeaveQueue(ctx, t.entry.ID, queueBridged))
	})
}

// moved takes an entry or a membership that is no longer where it was for moved already: whoever moved it has told of it.
func moved(err error) error {
	if errors.Is(err, models.ErrStale) {
		return nil
	}
	return err
}

// returnToQueue puts the entry back where it was and wakes the next taker.
func (s *session) returnToQueue(t *ticket) error {
	err := s.change("return to the queue", func(ctx context.Context, tx *models.Store, _ *models.Call) error {
		return moved(tx.ReturnToQueue(ctx, t.entry.ID))
	})
	if err != nil {
		return err
	}
	s.m.board.wake(t.key())
	return nil
}

// leaveQueue takes the entry out of the queue and tells of it. One that was bridged is kept, as such, until the connection ends.
func (s *session) leaveQueue(t *ticket, word, peer string) error {
	now := s.m.cfg.Now()
	err := s.change("queue.left", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		return leaveQueue(ctx, tx, call, &t.entry, word, peer, now)
	})
	if err == nil {
		t.entry.LeftAt = &now
	}
	return err
}

// leaveQueue is the part of a change that ends a wait in a queue. An entry that has left already is left as it is.
func leaveQueue(ctx context.Context, tx *models.Store, call *models.Call, entry *models.QueueEntry, word, peer string, now time.Time) error {
	var err error
	switch word {
	case queueBridged:
		err = tx.BridgeQueueEntry(ctx, entry.ID)
	case queueInterrupted:
		word = queueLeft
		fallthrough
	default:
		err = tx.LeaveQueue(ctx, entry.ID, word)
	}
	if errors.Is(err, models.ErrStale) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("leave queue %q: %w", entry.Queue, err)
	}
	data := map[string]any{
		"queue": entry.Queue, "queue_entry_id": entry.ID, "outcome": word, "wait_seconds": seconds(entry.JoinedAt, &now),
	}
	if peer != "" {
		data["peer_call_id"] = peer
	}
	return emit(ctx, tx, call, "queue.left", data)
}
