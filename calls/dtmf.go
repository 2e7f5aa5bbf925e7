package calls

import (
	"time"

	"tandem/actions"
	"tandem/esl"
)

// doDTMF sends digits to the other side.
func (s *session) doDTMF(a *actions.DTMF) (outcome, error) {
	app, err := esl.SendDTMF(a.Digits, time.Duration(a.ToneMS)*time.Millisecond)
	_, err = s.media(app, err, noTerminators, false)
	return outcome{}, err
}
