package actions

// maxLoop is how often a say or play may repeat, and maxSpoken the longest text, in characters.
const (
	maxLoop   = 100
	maxSpoken = 3000
)

var sayVerb = verb{
	name:  "say",
	make:  func() Action { return &Say{} },
	doc:   "Speaks a text.",
	media: true,
	results: []result{
		outcomes("How it ended; interrupted by a key with barge_in, or by live control.", "played", "failed"),
		{"digit", resultText, nil, "The key that ended it."},
		{"played_ms", resultNumber, nil, "How long it was heard, in milliseconds."},
	},
	example: `{"action": "say", "text": "Hello, and welcome.", "language": "en-US", "barge_in": true}`,
}

// Say speaks a text.
type Say struct {
	Base
	// Text is what is spoken, at most 3,000 characters.
	Text string
	// Voice is the voice's name, empty for the operator's default.
	Voice string
	// Language is a language tag such as "en-US".
	Language string
	// Loop is how often the text is spoken; 0 is until the caller hangs up.
	Loop int
	// BargeIn lets a digit of the caller end the speech.
	BargeIn bool
	// Early speaks as early media on a call that is not answered, instead of answering it.
	Early bool
}

// Verb returns "say".
func (*Say) Verb() string { return "say" }

func (a *Say) fields() []field {
	return []field{
		{name: "text", required: true, value: text{to: &a.Text, max: maxSpoken, rule: speakable}, doc: "What is spoken; it must not contain ${ or #{, and not begin with {."},
		{name: "voice", value: text{to: &a.Voice, max: 64, rule: word}, doc: "The name of a voice; without it, the operator's voice for the language."},
		{name: "language", value: text{to: &a.Language, fallback: "en-US", max: 35, rule: word}, doc: "The language of the text, as a tag such as de-DE."},
		{name: "loop", value: integer{to: &a.Loop, fallback: 1, min: 0, max: maxLoop}, doc: "How often it is spoken; 0 is until the caller hangs up."},
		{name: "barge_in", value: boolean{to: &a.BargeIn}, doc: "Lets any key of the caller end it."},
		{name: "early", value: boolean{to: &a.Early}, doc: "Is heard before the call is answered, instead of answering it."},
	}
}

// MarshalJSON writes the canonical form.
func (a *Say) MarshalJSON() ([]byte, error) { return marshalAction(a) }
