package actions

import "time"

// maxCallTime bounds every duration that can be as long as a call.
const maxCallTime = 4 * time.Hour

// Play plays audio files, one after the other.
type Play struct {
	Base
	// URLs are the files, wav or mp3, 1 to 10 absolute URLs. We fetch them; the switch never does.
	URLs []string
	// Loop is how often the files are played; 0 is until the caller hangs up.
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
		{name: "url", required: true, value: links{to: &a.URLs, max: 10}},
		{name: "loop", value: integer{to: &a.Loop, fallback: 1, min: 0, max: maxLoop}},
		{name: "max_seconds", value: seconds{to: &a.MaxSeconds, min: time.Second, max: maxCallTime, zero: "no limit"}},
		{name: "early", value: boolean{to: &a.Early}},
	}
}

// MarshalJSON writes the canonical form.
func (a *Play) MarshalJSON() ([]byte, error) { return marshalAction(a) }
