package actions

import "time"

// Reasons to refuse or end a call.
const (
	// ReasonCompleted ends a call as done; on an unanswered call it is read as declined.
	ReasonCompleted = "completed"
	// ReasonBusy refuses a call as busy (SIP 486).
	ReasonBusy = "busy"
	// ReasonDeclined refuses a call (SIP 603).
	ReasonDeclined = "declined"
	// ReasonUnavailable refuses a call as temporarily unavailable (SIP 480).
	ReasonUnavailable = "unavailable"
	// ReasonNotFound refuses a call to a number that does not exist (SIP 404).
	ReasonNotFound = "not_found"
)

var hangupVerb = verb{
	name:    "hangup",
	make:    func() Action { return &Hangup{} },
	doc:     "Ends the call, now or while further actions run; an unanswered call is refused.",
	example: `{"action": "hangup"}`,
}

// Hangup ends the call. An unanswered call is rejected.
type Hangup struct {
	Base
	// Reason is one of the Reason constants.
	Reason string
	// AfterSeconds delays the end while the following actions run; 0 is at once.
	AfterSeconds time.Duration
}

// Verb returns "hangup".
func (*Hangup) Verb() string { return "hangup" }

func (a *Hangup) fields() []field {
	return []field{
		{name: "reason", value: choice{to: &a.Reason, fallback: ReasonCompleted,
			words: []string{ReasonCompleted, ReasonBusy, ReasonDeclined, ReasonUnavailable, ReasonNotFound}},
			doc: "Why; on an unanswered call it chooses the refusal, and completed is declined."},
		{name: "after_seconds", value: seconds{to: &a.AfterSeconds, max: maxCallTime}, doc: "Ends the call after a time, while the following actions run; 0 is now."},
	}
}

// MarshalJSON writes the canonical form.
func (a *Hangup) MarshalJSON() ([]byte, error) { return marshalAction(a) }
