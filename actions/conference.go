package actions

import "time"

// maxName is the longest name of a conference or queue, in characters.
const maxName = 64

var conferenceVerb = verb{
	name:  "conference",
	make:  func() Action { return &Conference{} },
	doc:   "Puts the call into a room with your others of the same name.",
	media: true,
	results: []result{
		outcomes("Why the member left: removed, the end of the conference, the limit, or no room.", "kicked", "ended", "max_seconds", "full", "failed"),
		{"conference_id", resultText, nil, "The conference, as in GET /v1/conferences."},
		{"seconds", resultNumber, nil, "How long the member was in it."},
	},
	example: `{"action": "conference", "name": "standup", "beep": true, "end_on_exit": false, "max_members": 12}`,
}

// Conference puts the call into a room with others of the same name.
type Conference struct {
	Base
	// Name names the room among the customer's: 1 to 64 letters, digits, _, . and -.
	Name string
	// Muted lets the member only listen.
	Muted bool
	// StartOnEnter starts the conference when this member enters; members without it wait for one with it.
	StartOnEnter bool
	// EndOnExit ends the conference for all when this member leaves.
	EndOnExit bool
	// Beep tells the others of members who enter and leave.
	Beep bool
	// MaxMembers is how many the room takes.
	MaxMembers int
	// WaitURL is what members hear who are alone or wait for the start, when this call opens the conference; empty for
	// silence.
	WaitURL string
	// Record records the conference.
	Record bool
	// MaxSeconds ends this member's stay.
	MaxSeconds time.Duration
}

// Verb returns "conference".
func (*Conference) Verb() string { return "conference" }

func (a *Conference) fields() []field {
	return []field{
		{name: "name", required: true, value: text{to: &a.Name, max: maxName, rule: someWord}, doc: "The name of the room; yours only, another customer's of the same name is another room."},
		{name: "muted", value: boolean{to: &a.Muted}, doc: "The member only listens."},
		{name: "start_on_enter", value: boolean{to: &a.StartOnEnter, fallback: true}, doc: "The conference starts when this member enters; others wait for one with it."},
		{name: "end_on_exit", value: boolean{to: &a.EndOnExit}, doc: "The conference ends for all when this member leaves."},
		{name: "beep", value: boolean{to: &a.Beep}, doc: "The others hear who enters and leaves."},
		{name: "max_members", value: integer{to: &a.MaxMembers, fallback: 50, min: 2, max: 250}, doc: "How many members the room takes."},
		{name: "wait_url", value: link{to: &a.WaitURL}, doc: "An audio file for whoever is alone or waits for the start; that of the call that opened the conference counts."},
		{name: "record", value: boolean{to: &a.Record}, doc: "Records the conference."},
		{name: "max_seconds", value: seconds{to: &a.MaxSeconds, fallback: maxCallTime, min: time.Second, max: maxCallTime}, doc: "Ends this member's stay."},
	}
}

// MarshalJSON writes the canonical form.
func (a *Conference) MarshalJSON() ([]byte, error) { return marshalAction(a) }
