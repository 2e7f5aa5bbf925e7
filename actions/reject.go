package actions

var rejectVerb = verb{
	name:    "reject",
	make:    func() Action { return &Reject{} },
	doc:     "Refuses a call that is not answered; an answered one is hung up.",
	example: `{"action": "reject", "reason": "busy"}`,
}

// Reject refuses a call that is not answered; an answered one is hung up.
type Reject struct {
	Base
	// Reason is ReasonBusy, ReasonDeclined, ReasonUnavailable or ReasonNotFound.
	Reason string
	// SIPCode is the status sent, 400 to 699; Parse sets it from the reason when the customer names none.
	SIPCode int
}

// Verb returns "reject".
func (*Reject) Verb() string { return "reject" }

func (a *Reject) fields() []field {
	return []field{
		{name: "reason", value: choice{to: &a.Reason, fallback: ReasonDeclined,
			words: []string{ReasonBusy, ReasonDeclined, ReasonUnavailable, ReasonNotFound}},
			doc: "Why."},
		{name: "sip_code", value: integer{to: &a.SIPCode, min: 400, max: 699}, doc: "The SIP status of the refusal; without it, that of the reason: 486, 603, 480, 404."},
	}
}

// validate gives the status that belongs to the reason.
func (a *Reject) validate(*node) *fieldError {
	if a.SIPCode == 0 {
		a.SIPCode = SIPCode(a.Reason)
	}
	return nil
}

// MarshalJSON writes the canonical form.
func (a *Reject) MarshalJSON() ([]byte, error) { return marshalAction(a) }

// SIPCode returns the SIP status that refuses a call for a reason (RFC 3261 §21).
func SIPCode(reason string) int {
	switch reason {
	case ReasonBusy:
		return 486
	case ReasonUnavailable:
		return 480
	case ReasonNotFound:
		return 404
	default:
		return 603
	}
}
