package calls

import "tandem/actions"

// doRedirect asks another URL for the list.
func (s *session) doRedirect(a *actions.Redirect) (outcome, error) {
	target, err := resolve(s.app.AnswerURL, a.URL)
	if err != nil {
		return outcome{}, err
	}
	return outcome{ask: &question{kind: askAnswer, url: target}}, nil
}
