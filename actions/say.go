package actions

// maxLoop is how often a say or play may repeat.
const maxLoop = 100

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
		{name: "text", required: true, value: text{to: &a.Text, max: 3000, check: speakable}},
		{name: "voice", value: text{to: &a.Voice, max: 64, check: characters(wordCharacters)}},
		{name: "language", value: text{to: &a.Language, fallback: "en-US", max: 35, check: characters(wordCharacters)}},
		{name: "loop", value: integer{to: &a.Loop, fallback: 1, min: 0, max: maxLoop}},
		{name: "barge_in", value: boolean{to: &a.BargeIn}},
		{name: "early", value: boolean{to: &a.Early}},
	}
}

// wordCharacters are those of a voice or language name: none means anything to FreeSWITCH.
const wordCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

// MarshalJSON writes the canonical form.
func (a *Say) MarshalJSON() ([]byte, error) { return marshalAction(a) }
