package actions

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxDigits is the most digits that one gather collects.
const maxDigits = 128

// Ways a caller may answer a gather; see Gather.Input.
const (
	// InputDigits takes the keys that the caller types.
	InputDigits = "digits"
	// InputSpeech takes what the caller says.
	InputSpeech = "speech"
)

var gatherVerb = verb{
	name:  "gather",
	make:  func() Action { return &Gather{} },
	doc:   "Collects what the caller types or says, while prompts play; the first key or word ends the prompt.",
	media: true,
	results: []result{
		outcomes("What came: an answer, none in time, or one that does not fit; failed when a prompt could not be had, or the node has no engine for speech.", "digits", "speech", "timeout", "invalid", "failed"),
		{"digits", resultText, nil, "The keys, without the one that ended the input."},
		{"terminator", resultText, nil, "The key of finish_on_key that ended the input."},
		{"speech", resultObject, nil, "What was said: text, and confidence between 0 and 1 where the engine tells it."},
		{"tries", resultNumber, nil, "How often the prompt was given."},
	},
	example: `{"action": "gather", "num_digits": 4, "tries": 3, "sensitive": true,
 "prompt": [{"action": "say", "text": "Please enter your code."}],
 "invalid_prompt": [{"action": "say", "text": "That is not a code."}],
 "result_url": "/code"}`,
}

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
		{name: "input", value: inputs{to: &a.Input}, doc: "How the caller may answer; speech is refused where the node has no engine for it."},
		{name: "num_digits", value: shorthand{integer{to: &a.numDigits, min: 1, max: maxDigits}}, doc: "Exactly how many digits make an answer: min_digits and max_digits in one."},
		{name: "min_digits", value: integer{to: &a.MinDigits, fallback: 1, min: 1, max: maxDigits}, doc: "The fewest digits that make an answer."},
		{name: "max_digits", value: integer{to: &a.MaxDigits, fallback: 20, min: 1, max: maxDigits}, doc: "The digits after which the answer is complete; at least min_digits."},
		{name: "timeout", value: seconds{to: &a.Timeout, fallback: 5 * time.Second, min: time.Second, max: time.Minute}, doc: "How long the first key or word may take after the prompt."},
		{name: "digit_timeout", value: seconds{to: &a.DigitTimeout, fallback: 3 * time.Second, min: time.Second, max: 20 * time.Second}, doc: "How long each further key may take."},
		{name: "finish_on_key", value: text{to: &a.FinishOnKey, fallback: "#", max: len(keypad), rule: keys}, doc: "Keys that end the input and are not part of it; \"\" is none."},
		{name: "valid_digits", value: text{to: &a.ValidDigits, max: len(keypad), rule: keys}, doc: "Keys that an answer may be made of; without it, all."},
		{name: "tries", value: integer{to: &a.Tries, fallback: 1, min: 1, max: 5}, doc: "How often the prompt is given before the outcome is timeout or invalid."},
		{name: "prompt", value: nested{to: &a.Prompt, in: prompting}, doc: "What the caller hears before each try."},
		{name: "invalid_prompt", value: nested{to: &a.InvalidPrompt, in: prompting}, doc: "What the caller hears after an answer that does not fit."},
		{name: "speech", value: listening{to: &a.Speech, gather: a}, doc: "How to listen; needs \"speech\" in input."},
		{name: "sensitive", value: boolean{to: &a.Sensitive}, doc: "Keeps the digits out of events, logs and recordings."},
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
		return &fieldError{"speech", `needs "speech" in input, which was ["` + strings.Join(a.Input, `", "`) + `"]`}
	case a.Hears(InputSpeech) && a.Speech.Language == "":
		for _, f := range a.Speech.fields() {
			f.value.reset()
		}
	}
	return nil
}

func (*Gather) rules() []schema {
	return []schema{
		{"not": schema{"required": []string{"num_digits"}, "anyOf": []schema{having("min_digits"), having("max_digits")}}},
		{"if": schema{"properties": schema{"speech": schema{"type": "object"}}, "required": []string{"speech"}},
			"then": schema{"properties": schema{"input": schema{"contains": schema{"const": InputSpeech}}}, "required": []string{"input"}}},
	}
}

// MarshalJSON writes the canonical form.
func (a *Gather) MarshalJSON() ([]byte, error) { return marshalAction(a) }

// inputs is the list of ways a caller may answer, each once.
type inputs struct{ to *[]string }

func (i inputs) reset() { *i.to = []string{InputDigits} }

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

func (inputs) allowed() string { return `["digits"], ["speech"] or ["digits", "speech"]` }

func (inputs) schema() schema {
	return schema{
		"type": "array", "items": schema{"type": "string", "enum": []string{InputDigits, InputSpeech}}, "minItems": 1, "uniqueItems": true,
		"default": []string{InputDigits},
	}
}
