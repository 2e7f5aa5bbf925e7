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
			words: []string{ReasonCompleted, ReasonBusy, ReasonDeclined, ReasonUnavailable, ReasonNotFound}}},
		{name: "after_seconds", value: seconds{to: &a.AfterSeconds, max: maxCallTime}},
	}
}

// MarshalJSON writes the canonical form.
func (a *Hangup) MarshalJSON() ([]byte, error) { return marshalAction(a) }
