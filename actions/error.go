package actions

// Error says why a reply was refused and where: it is what a customer reads in the call.error event.
type Error struct {
	// Index is the position of the refused action in the top list, counted from 0, or -1 when the fault is not in an
	// action (bad JSON, too large, a bad variable).
	Index int
	// Action is the canonical verb, empty when the action could not be told.
	Action string
	// Field is the name of the refused field, for example "text", "to[1].number" or "prompt", empty when the whole action
	// is refused. Inside a nested list it is the field of the action there.
	Field string
	// Path names the place in full, for example "actions[2].gather.prompt[0].say.text".
	Path string
	// Message says what is allowed and what was there instead.
	Message string
	// Allowed says what the field may hold, for example "a whole number between 1 and 128"; empty when the fault is not in
	// the value of one field.
	Allowed string
	// Got describes what was there, as the customer wrote it and cut to a readable length; empty with Allowed.
	Got string
}

// Error returns the path and the message.
func (e *Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}
