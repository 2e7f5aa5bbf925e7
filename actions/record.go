package actions

import "time"

// Formats of recordings.
const (
	// FormatWAV is 16-bit PCM in a RIFF file.
	FormatWAV = "wav"
	// FormatMP3 needs a node with mod_shout.
	FormatMP3 = "mp3"
)

var recordVerb = verb{
	name:  "record",
	make:  func() Action { return &Record{} },
	doc:   "Records the caller until a key, silence, the limit or the hang-up.",
	media: true,
	results: []result{
		outcomes("What ended the recording.", "key", "silence", "max", "failed"),
		{"recording_id", resultText, nil, "The recording, as in GET /v1/calls/:id/recordings."},
		{"seconds", resultNumber, nil, "How long it is."},
		{"key", resultText, nil, "The key of finish_on_key that ended it."},
	},
	example: `{"action": "record", "max_seconds": 120, "finish_on_key": "#", "result_url": "/message"}`,
}

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
		{name: "max_seconds", value: seconds{to: &a.MaxSeconds, fallback: time.Hour, min: time.Second, max: maxCallTime}, doc: "Ends the recording after a time."},
		{name: "silence_seconds", value: seconds{to: &a.SilenceSeconds, fallback: 5 * time.Second, min: time.Second, max: 5 * time.Minute, zero: "off"}, doc: "Ends the recording after a silence of this length."},
		{name: "finish_on_key", value: text{to: &a.FinishOnKey, fallback: "#", max: len(keypad), rule: keys}, doc: "Keys that end the recording; \"\" is none."},
		{name: "beep", value: boolean{to: &a.Beep, fallback: true}, doc: "Plays a tone before the recording begins."},
		{name: "format", value: recordingFormat(&a.Format), doc: "The format of the file; mp3 is refused where the node cannot write it."},
		{name: "transcribe", value: later{}, doc: "Transcripts are not offered by this version."},
	}
}

func recordingFormat(to *string) choice {
	return choice{to: to, fallback: FormatWAV, words: []string{FormatWAV, FormatMP3}}
}

// MarshalJSON writes the canonical form.
func (a *Record) MarshalJSON() ([]byte, error) { return marshalAction(a) }
