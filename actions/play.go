package actions

import "time"

// maxCallTime bounds every duration that can be as long as a call.
const maxCallTime = 4 * time.Hour

// maxURLs is the most files that one play names.
const maxURLs = 10

var playVerb = verb{
	name:  "play",
	make:  func() Action { return &Play{} },
	doc:   "Plays audio files, one after the other, or a tone.",
	media: true,
	results: []result{
		outcomes("How it ended.", "played", "max_seconds", "failed"),
		{"played_ms", resultNumber, nil, "How long it was heard, in milliseconds."},
	},
	example: `{"action": "play", "url": ["https://media.example/welcome.wav", "https://media.example/news.mp3"]}`,
}

// Play plays audio files, one after the other, or a tone.
type Play struct {
	Base
	// URLs are the files, wav or mp3, 1 to 10 absolute URLs; nil when Tone is set. We fetch them; the switch never does.
	URLs []string
	// Tone is the name of a signal, see ToneSpec; empty when URLs is set.
	Tone string
	// Loop is how often the files or the tone are played; 0 is until the caller hangs up.
	Loop int
	// MaxSeconds ends the playback; 0 is no limit.
	MaxSeconds time.Duration
	// Early plays as early media on a call that is not answered, instead of answering it.
	Early bool
}

// Verb returns "play".
func (*Play) Verb() string { return "play" }

func (a *Play) fields() []field {
	return []field{
		{name: "url", value: links{to: &a.URLs, max: maxURLs}, doc: "The file, or a list of files; either url or tone must be given."},
		{name: "tone", value: tone{to: &a.Tone}, doc: "The name of a signal, of which one period is played."},
		{name: "loop", value: integer{to: &a.Loop, fallback: 1, min: 0, max: maxLoop}, doc: "How often it is played; 0 is until the caller hangs up."},
		{name: "max_seconds", value: seconds{to: &a.MaxSeconds, min: time.Second, max: maxCallTime, zero: "no limit"}, doc: "Ends it after a time."},
		{name: "early", value: boolean{to: &a.Early}, doc: "Is heard before the call is answered, instead of answering it."},
	}
}

// validate wants exactly one thing to play.
func (a *Play) validate(*node) *fieldError {
	switch {
	case len(a.URLs) == 0 && a.Tone == "":
		return &fieldError{"url", "is required, unless tone is given"}
	case len(a.URLs) > 0 && a.Tone != "":
		return &fieldError{"tone", "cannot stand beside url; give one"}
	default:
		return nil
	}
}

func (*Play) rules() []schema { return []schema{{"oneOf": []schema{having("url"), having("tone")}}} }

// MarshalJSON writes the canonical form.
func (a *Play) MarshalJSON() ([]byte, error) { return marshalAction(a) }
