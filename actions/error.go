package actions

// Error says why a reply was refused and where: it is what a customer reads in the call.error event.
type Error struct {
	// Index is the position of the refused action in the top list, counted from 0, or -1 when the fault is not in an
	// action (bad JSON, too large, a bad variable).
	Index int
	// Action is the canonical verb, empty when the action could not be told.
	Action string
	// Field is the name of the refused field, empty when the whole action is refused.
	Field string
	// Path names the place in full, for example "actions[2].gather.prompt[0].say.text".
	Path string
	// Message says what is allowed and what was there instead.
	Message string
}

// Error returns the path and the message.
func (e *Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}
