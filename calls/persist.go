package calls

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tandem/models"
	"tandem/webhooks"
)

// storeRetryMax bounds the delay between two tries of a change that the database did not take.
const storeRetryMax = 2 * time.Second

// change runs fn in a transaction with a copy of the call and takes the copy over when it is durable. fn may run more than
// once. A database that is away is waited for: the switch holds the call meanwhile, and its events wait in the mailbox.
func (s *session) change(what string, fn func(ctx context.Context, tx *models.Store, call *models.Call) error) error {
	delay := 50 * time.Millisecond
	for {
		call, err := s.try(fn)
		switch {
		case err == nil:
			*s.call = *call
			s.notes = nil
			return nil
		case errors.Is(err, models.ErrStale):
			// Another controller has written the call's end. It owns the call.
			s.log.Warn("call changed elsewhere", "change", what)
			return errAbandoned
		case errors.Is(err, models.ErrClosed) || s.m.ctx.Err() != nil:
			s.log.Error("change not stored", "change", what, "error", err)
			return errAbandoned
		}
		s.log.Error("change not stored, trying again", "change", what, "error", err)
		select {
		case <-time.After(delay):
		case <-s.m.ctx.Done():
		}
		delay = min(2*delay, storeRetryMax)
	}
}

func (s *session) try(fn func(ctx context.Context, tx *models.Store, call *models.Call) error) (*models.Call, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.m.ctx), 30*time.Second)
	defer cancel()
	var call models.Call
	err := s.m.cfg.Store.InTx(ctx, func(tx *models.Store) error {
		call = *s.call
		for _, n := range s.notes {
			if err := emit(ctx, tx, &call, n.kind, n.data); err != nil {
				return err
			}
		}
		return fn(ctx, tx, &call)
	})
	if err != nil {
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
