package calls

import (
	"context"
	"errors"

	"tandem/actions"
	"tandem/models"
)

// doHangup ends the call, or lets the switch end it in a while and goes on. A call that nobody has answered is refused.
func (s *session) doHangup(a *actions.Hangup) (outcome, error) {
	why := s.refusal(a.Reason, 0)
	if s.answered {
		why = intent{reason: a.Reason, source: SourceActions, cause: causeNormal}
		if a.Reason == actions.ReasonBusy {
			why.cause = causeBusy
		}
	}
	if a.AfterSeconds <= 0 {
		return outcome{}, s.endInAction(why)
	}
	s.later = &why
	return outcome{}, s.order("schedule the hangup", func(ctx context.Context) error {
		return s.node.sw.ScheduleKill(ctx, s.channel, laterGroup(s.channel), a.AfterSeconds, why.cause)
	})
}

// errOrdered: live control has more for the call than its session has heard of.
var errOrdered = errors.New("the call has commands that it has not heard of")

// endFlow ends the call because its list wants that, unless live control has more for it by now: then more reports true, and it returns nil.
// The end is stored in a transaction that finds no command which the session does not know; a list that comes later is refused (Direct). So
// no list is accepted and then lost to the end of the one before it.
func (s *session) endFlow(why intent, more func() bool) error {
	for {
		known := s.received.Load()
		if err := s.poll(); err != nil || more() {
			return err
		}
		s.ask(why)
		s.flow.at.changed = true
		err := s.change("ending", func(ctx context.Context, tx *models.Store, call *models.Call) error {
			last, err := tx.LastCommand(ctx, call.ID)
			if err == nil && last > known {
				err = errOrdered
			}
			return err
		})
		if err == nil {
			return errEnding
		}
		if !errors.Is(err, errOrdered) {
			return err
		}
		s.asked = nil
		s.takeLate()
	}
}

// endInAction is endFlow within an action, which is left where the list is replaced.
func (s *session) endInAction(why intent) error {
	if err := s.endFlow(why, s.interrupted); err != nil {
		return err
	}
	return errReplaced
}
