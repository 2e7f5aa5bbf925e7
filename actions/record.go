package actions

import "time"

// Formats of recordings.
const (
	// FormatWAV is 16-bit PCM in a RIFF file.
	FormatWAV = "wav"
	// FormatMP3 needs a node with mod_shout.
	FormatMP3 = "mp3"
)

// Record records the caller until a key, silence, the limit or the hangup.
type Record struct {
	Base
	// MaxSeconds ends the recording.
	MaxSeconds time.Duration
	// SilenceSeconds of silence end the recording; 0 never ends it for silence.
	SilenceSeconds time.Duration
	// FinishOnKey holds the keys that end the recording; empty for none.
	FinishOnKey string
	// Beep plays a tone before the recording begins.
	Beep bool
	// Format is FormatWAV or FormatMP3.
	Format string
}

// Verb returns "record".
func (*Record) Verb() string { return "record" }

func (a *Record) fields() []field {
	return []field{
		{name: "max_seconds", value: seconds{to: &a.MaxSeconds, fallback: time.Hour, min: time.Second, max: maxCallTime}},
		{name: "silence_seconds", value: seconds{to: &a.SilenceSeconds, fallback: 5 * time.Second, min: time.Second, max: 5 * time.Minute, zero: "off"}},
		{name: "finish_on_key", value: text{to: &a.FinishOnKey, fallback: "#", max: len(keypad), check: keys}},
		{name: "beep", value: boolean{to: &a.Beep, fallback: true}},
		{name: "format", value: choice{to: &a.Format, fallback: FormatWAV, words: []string{FormatWAV, FormatMP3}}},
		{name: "transcribe", value: later{}},
	}
}

// MarshalJSON writes the canonical form.
func (a *Record) MarshalJSON() ([]byte, error) { return marshalAction(a) }
