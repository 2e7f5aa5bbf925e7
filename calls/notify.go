package calls

import "tandem/actions"

// doNotify sends the application's own payload to its webhook, in order with the call's other events.
func (s *session) doNotify(a *actions.Notify) (outcome, error) {
	data := map[string]any{"payload": a.Payload}
	if id := a.Meta().ID; id != "" {
		data["id"] = id
	}
	// Together with the word that the action is done: it is told once, whatever happens to this process.
	s.note("call.notify", data)
	return outcome{}, nil
}
