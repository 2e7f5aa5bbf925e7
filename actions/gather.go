package actions

import (
	"fmt"
	"slices"
	"time"
)

// keypad is what a caller can type.
const keypad = "0123456789ABCD*#"

// maxDigits is the most digits that one gather collects.
const maxDigits = 128

// Ways a caller may answer a gather; see Gather.Input.
const (
	// InputDigits takes the keys that the caller types.
	InputDigits = "digits"
	// InputSpeech takes what the caller says.
	InputSpeech = "speech"
)

// Gather collects what the caller types or says, while prompts play.
type Gather struct {
	Base
	// Input holds InputDigits, InputSpeech or both.
	Input []string
	// MinDigits and MaxDigits bound how many digits make an answer. The field num_digits sets both.
	MinDigits int
	MaxDigits int
	// Timeout is how long the first digit may take after the prompt, DigitTimeout each further one.
	Timeout      time.Duration
	DigitTimeout time.Duration
	// FinishOnKey holds the keys that end the input and are not part of it; empty for none.
	FinishOnKey string
	// ValidDigits holds the keys that an answer may be made of; empty for all.
	ValidDigits string
	// Tries is how often the prompt is given before the outcome is timeout or invalid.
	Tries int
	// Prompt is played before each try, InvalidPrompt after an answer that does not match. They hold *Say and *Play.
	Prompt        []Action
	InvalidPrompt []Action
	// Sensitive keeps the digits out of logs and events.
	Sensitive bool
	// Speech says how to listen; it is zero without InputSpeech.
	Speech Speech

	numDigits int
}

// Hears tells whether the gather takes an input, InputDigits or InputSpeech.
func (a *Gather) Hears(input string) bool { return slices.Contains(a.Input, input) }

// Verb returns "gather".
func (*Gather) Verb() string { return "gather" }

func (a *Gather) fields() []field {
	return []field{
		{name: "input", value: inputs{to: &a.Input}},
		{name: "num_digits", value: shorthand{integer{to: &a.numDigits, min: 1, max: maxDigits}}},
		{name: "min_digits", value: integer{to: &a.MinDigits, fallback: 1, min: 1, max: maxDigits}},
		{name: "max_digits", value: integer{to: &a.MaxDigits, fallback: 20, min: 1, max: maxDigits}},
		{name: "timeout", value: seconds{to: &a.Timeout, fallback: 5 * time.Second, min: time.Second, max: time.Minute}},
		{name: "digit_timeout", value: seconds{to: &a.DigitTimeout, fallback: 3 * time.Second, min: time.Second, max: 20 * time.Second}},
		{name: "finish_on_key", value: text{to: &a.FinishOnKey, fallback: "#", max: len(keypad), check: keys}},
		{name: "valid_digits", value: text{to: &a.ValidDigits, max: len(keypad), check: keys}},
		{name: "tries", value: integer{to: &a.Tries, fallback: 1, min: 1, max: 5}},
		{name: "prompt", value: nested{to: &a.Prompt, in: prompting}},
		{name: "invalid_prompt", value: nested{to: &a.InvalidPrompt, in: prompting}},
		{name: "sensitive", value: boolean{to: &a.Sensitive}},
		{name: "speech", value: listening{to: &a.Speech, gather: a}},
	}
}

// validate resolves num_digits and holds the bounds against each other.
func (a *Gather) validate(n *node) *fieldError {
	if a.numDigits > 0 {
		for _, other := range []string{"min_digits", "max_digits"} {
			if _, both := n.values[other]; both {
				return &fieldError{"num_digits", "sets min_digits and max_digits; give it or them, not both"}
			}
		}
		a.MinDigits, a.MaxDigits, a.numDigits = a.numDigits, a.numDigits, 0
	}
	if a.MaxDigits < a.MinDigits {
		return &fieldError{"max_digits", fmt.Sprintf("must be at least min_digits (%d), was %d", a.MinDigits, a.MaxDigits)}
	}
	given, ok := n.values["speech"]
	switch {
	case !a.Hears(InputSpeech) && ok && !given.none():
		return &fieldError{"speech", `needs "speech" in input`}
	case a.Hears(InputSpeech) && a.Speech.Language == "":
		for _, f := range a.Speech.fields() {
			f.value.reset()
		}
	}
	return nil
}

// MarshalJSON writes the canonical form.
func (a *Gather) MarshalJSON() ([]byte, error) { return marshalAction(a) }

// keys checks a set of keys: those of a keypad, each once.
func keys(s string) error {
	if err := characters(keypad)(s); err != nil {
		return err
	}
	for i := range s {
		for j := range i {
			if s[i] == s[j] {
				return fmt.Errorf("must name each key once, was %q", s)
			}
		}
	}
	return nil
}

// shorthand is an integer that stands for other fields and is therefore never written back.
type shorthand struct{ integer }

func (shorthand) encode() (any, bool) { return nil, false }

// inputs is the list of ways a caller may answer, each once.
type inputs struct{ to *[]string }

func (i inputs) reset() { *i.to = []string{InputDigits} }

func (inputs) allowed() string { return `["digits"], ["speech"] or ["digits", "speech"]` }

func (i inputs) decode(_ *parser, n *node) error {
	if n.kind != kindList || len(n.items) == 0 {
		return fmt.Errorf("must be %s, was %s", i.allowed(), n.describe())
	}
	list := make([]string, 0, len(n.items))
	for at, item := range n.items {
		known := item.kind == kindString && (item.text == InputDigits || item.text == InputSpeech)
		if !known || slices.Contains(list, item.text) {
			return fmt.Errorf("must be %s, has %s at [%d]", i.allowed(), item.describe(), at)
		}
		list = append(list, item.text)
	}
	*i.to = list
	return nil
}

func (i inputs) encode() (any, bool) { return *i.to, true }
