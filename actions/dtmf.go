package actions

var dtmfVerb = verb{
	name:    "dtmf",
	make:    func() Action { return &DTMF{} },
	doc:     "Sends keys to the caller.",
	media:   true,
	example: `{"action": "dtmf", "digits": "ww1234#", "tone_ms": 120}`,
}

// DTMF sends digits to the caller.
type DTMF struct {
	Base
	// Digits are the keys to send, with w and W for pauses.
	Digits string
	// ToneMS is the length of each tone in milliseconds.
	ToneMS int
}

// Verb returns "dtmf".
func (*DTMF) Verb() string { return "dtmf" }

func (a *DTMF) fields() []field {
	return []field{
		{name: "digits", required: true, value: text{to: &a.Digits, max: maxTones, rule: someDialled}, doc: "The keys; w waits for half a second, W for one."},
		{name: "tone_ms", value: integer{to: &a.ToneMS, fallback: 100, min: 50, max: 5000}, doc: "The length of each tone in milliseconds."},
	}
}

// MarshalJSON writes the canonical form.
func (a *DTMF) MarshalJSON() ([]byte, error) { return marshalAction(a) }
