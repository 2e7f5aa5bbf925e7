package calls

import (
	"context"

	"tandem/actions"
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
		s.ask(why)
		return outcome{}, errEnding
	}
	s.later = &why
	return outcome{}, s.order("schedule the hangup", func(ctx context.Context) error {
		return s.node.sw.SchedHangup(ctx, s.channel, a.AfterSeconds, why.cause)
	})
}
