package actions

// maxTones is the most digits that one action sends.
const maxTones = 64

// toneCharacters are the keys, and w and W for a pause of half a second and of one second (FreeSWITCH's send_dtmf).
const toneCharacters = "0123456789ABCD*#wW"

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
		{name: "digits", required: true, value: text{to: &a.Digits, max: maxTones, check: someKeys}},
		{name: "tone_ms", value: integer{to: &a.ToneMS, fallback: 100, min: 50, max: 5000}},
	}
}

// MarshalJSON writes the canonical form.
func (a *DTMF) MarshalJSON() ([]byte, error) { return marshalAction(a) }

func keysAndPauses(s string) error { return characters(toneCharacters)(s) }

func someKeys(s string) error {
	if err := notBlank(s); err != nil {
		return err
	}
	return keysAndPauses(s)
}
