package calls

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tandem/models"
	"tandem/webhooks"
)

// What bounds the tries of a change.
const (
	// storeTimeout bounds one try, from when its turn has come: a database that hangs holds a flow up no longer than that. Waiting behind the
	// changes of other calls is no sign of an outage.
	storeTimeout = 5 * time.Second
	// storeTries is how often a change is tried that the database refuses although it is there.
	storeTries    = 6
	storeRetry    = 50 * time.Millisecond
	storeRetryMax = 2 * time.Second
)

// transaction is what a change of a call does in the database.
type transaction func(ctx context.Context, tx *models.Store, call *models.Call) error

// change runs fn in a transaction with a copy of the call and takes the copy over when it is durable. fn may run more than
// once, but what it writes is written once, also where the answer to a commit is lost.
//
// While the database is away, the copy is taken over at once and what fn writes waits in the call's backlog, which is written in
// order before anything else when the database is back: the flow goes on. A change that cannot be made without the database
// (money, the end of the call, places in queues and conferences), and one for which the backlog has no room, waits for it: the
// switch holds the call meanwhile, and its events wait in the mailbox.
func (s *session) change(what string, fn transaction) error {
	mark := models.NewID(models.PrefixEvent)
	var kept *models.Call // what the last try would have made of the call
	delay := storeRetry
	for refused := 0; ; {
		if s.m.outage.holds(s) {
			if call := s.hold(mark, fn); call != nil {
				s.becomes(call)
				return nil
			}
			if err := s.awaitStore(); err != nil {
				return err
			}
		}
		call, err := s.try(mark, kept, fn)
		switch {
		case err == nil:
			s.m.outage.absent()
			s.becomes(call)
			return nil
		case errors.Is(err, errOrdered), errors.Is(err, models.ErrLimit), errors.Is(err, models.ErrInsufficientBalance):
			return err
		case errors.Is(err, models.ErrStale):
			// Another controller has written the call's end, or has it. It owns the call.
			s.log.Warn("call changed elsewhere", "change", what)
			return errAbandoned
		case errors.Is(err, models.ErrClosed) || s.m.ctx.Err() != nil:
			s.log.Error("change not stored", "change", what, "error", err)
			return errAbandoned
		case storeAway(err):
			kept = call
			s.m.outage.begin()
			continue
		}
		if refused++; refused == storeTries {
			return fmt.Errorf("store %s: %w", what, err)
		}
		s.log.Error("change not stored, trying again", "change", what, "error", err)
		select {
		case <-time.After(delay):
		case <-s.m.ctx.Done():
		}
		delay = min(2*delay, storeRetryMax)
	}
}

// lookUp reads from the database, waiting for one that is away; the call is watched meanwhile. That nothing is there is read's to say.
func (s *session) lookUp(what string, read func(ctx context.Context) error) error {
	for delay := storeRetry; ; delay = min(2*delay, storeRetryMax) {
		ctx, cancel := context.WithTimeout(s.m.ctx, storeTimeout)
		err := read(ctx)
		cancel()
		switch {
		case err == nil:
			return nil
		case s.m.ctx.Err() != nil:
			return errAbandoned
		case !storeAway(err):
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := s.pause(delay, nil); err != nil {
			return err
		}
	}
}

// storeAway says whether a change failed because the database is away, has no room, or does not answer in time.
func storeAway(err error) bool {
	return errors.Is(err, models.ErrUnreachable) || errors.Is(err, models.ErrStorageFull) || errors.Is(err, context.DeadlineExceeded)
}

// becomes takes over what a change has made of the call.
func (s *session) becomes(call *models.Call) {
	*s.call = *call
	s.notes, s.questions, s.flow.at.changed, s.orders.taken = nil, nil, false, nil
}

// try makes a change in a transaction. kept is what an earlier try has made of the call whose commit may have been made although
// it failed: when it was, nothing is written again. On an error, the call is what the change would make of it.
func (s *session) try(mark string, kept *models.Call, fn transaction) (*models.Call, error) {
	ctx := models.WithLimit(context.WithoutCancel(s.m.ctx), storeTimeout)
	call := kept
	err := s.m.cfg.Store.InTx(ctx, func(tx *models.Store) error {
		if kept != nil {
			if made, err := tx.Marked(ctx, mark); err != nil || made {
				return err
			}
		}
		tx.Mark(mark)
		made, err := s.apply(ctx, tx, fn)
		if err == nil {
			call = made
		}
		return err
	})
	return call, err
}

// apply makes a change, and what waits to be told with it, in a transaction, and returns the call as it is then.
func (s *session) apply(ctx context.Context, tx *models.Store, fn transaction) (*models.Call, error) {
	call := *s.call
	for _, n := range s.notes {
		if err := emit(ctx, tx, &call, n.kind, n.data); err != nil {
			return nil, err
		}
	}
	if err := tx.SaveAnswerRequests(ctx, s.questions); err != nil {
		return nil, err
	}
	if err := s.saveProgress(ctx, tx, &call); err != nil {
		return nil, err
	}
	if err := fn(ctx, tx, &call); err != nil {
		return nil, err
	}
	return &call, nil
}

// move takes the arrow that leaves the call's state on a trigger and stores it with its event. A trigger without an arrow
// is late or repeated, and ignored.
func (s *session) move(on trigger, edit func(call *models.Call)) error {
	arrow, ok := next(s.call.Status, on)
	if !ok {
		s.log.Debug("event ignored", "status", s.call.Status, "on", string(on))
		return nil
	}
	return s.change(arrow.event, func(ctx context.Context, tx *models.Store, call *models.Call) error {
		call.Status = arrow.to[0]
		if call.Status == StatusRinging {
			now := s.m.cfg.Now()
			call.RingingAt = &now
		}
		if edit != nil {
			edit(call)
		}
		return transit(ctx, tx, call, arrow, nil)
	})
}

// transit writes a call that has taken an arrow, and its event.
func transit(ctx context.Context, tx *models.Store, call *models.Call, arrow transition, data map[string]any) error {
	if err := tx.TransitionCall(ctx, call, []string{arrow.from}); err != nil {
		return fmt.Errorf("%s: %w", arrow.event, err)
	}
	return emit(ctx, tx, call, arrow.event, data)
}

// emit appends an event to the call.
func emit(ctx context.Context, tx *models.Store, call *models.Call, kind string, data map[string]any) error {
	if _, err := webhooks.Emit(ctx, tx, call, kind, data); err != nil {
		return fmt.Errorf("emit %s: %w", kind, err)
	}
	return nil
}

// note is an event that waits for the next change of the call.
type note struct {
	kind string
	data map[string]any
}

// note appends an event with the next change of the call, in the same transaction and before what that change tells: it
// costs no transaction of its own. The end of the call is such a change.
func (s *session) note(kind string, data map[string]any) { s.notes = append(s.notes, note{kind, data}) }

// tell appends an event that is no change of state.
func (s *session) tell(kind string, data map[string]any) error {
	return s.change(kind, func(ctx context.Context, tx *models.Store, call *models.Call) error {
		return emit(ctx, tx, call, kind, data)
	})
}
