package calls

import (
	"tandem/actions"
	"tandem/esl"
)

// doPause plays silence, so that media keeps flowing.
func (s *session) doPause(a *actions.Pause) (outcome, error) {
	app, err := esl.Silence(a.Seconds)
	_, err = s.media(app, err, noTerminators, false)
	return outcome{}, err
}
