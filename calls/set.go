package calls

import "tandem/actions"

// doSet stores variables of the call in our database. None of them goes to the switch, whose set application expands what
// it is given.
func (s *session) doSet(a *actions.Set) (outcome, error) {
	s.setVariables(a.Variables)
	return outcome{}, nil
}
