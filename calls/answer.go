package calls

import (
	"context"
	"time"

	"tandem/esl"
)

// doAnswer answers an inbound call; any other is answered already.
func (s *session) doAnswer() (outcome, error) {
	if s.answered {
		return outcome{}, nil
	}
	s.flow.idle = 0
	id, err := s.begin(esl.Answer())
	if err != nil {
		return outcome{}, err
	}
	return outcome{}, s.answer(id)
}

// capCall lets the switch end the call when what was reserved is used up, counted from now and later by delay.
func (s *session) capCall(delay time.Duration) error {
	limit := time.Duration(s.call.GrantedSeconds)*time.Second + delay
	return s.order("cap the call", func(ctx context.Context) error {
		return s.node.sw.SchedHangup(ctx, s.channel, limit, causeTimeLimit)
	})
}
