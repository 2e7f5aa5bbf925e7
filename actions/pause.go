package actions

import "time"

var pauseVerb = verb{
	name:    "pause",
	make:    func() Action { return &Pause{} },
	doc:     "Waits in silence.",
	media:   true,
	example: `{"action": "pause", "seconds": 2.5}`,
}

// Pause waits.
type Pause struct {
	Base
	// Seconds is how long, between 0.1 s and 300 s.
	Seconds time.Duration
}

// Verb returns "pause".
func (*Pause) Verb() string { return "pause" }

func (a *Pause) fields() []field {
	return []field{
		{name: "seconds", value: seconds{to: &a.Seconds, fallback: time.Second, min: 100 * time.Millisecond, max: 5 * time.Minute}, doc: "How long."},
	}
}

// MarshalJSON writes the canonical form.
func (a *Pause) MarshalJSON() ([]byte, error) { return marshalAction(a) }
