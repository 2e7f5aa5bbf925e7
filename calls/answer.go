package calls

import "tandem/esl"

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
