package actions

import "time"

// maxName is the longest name of a conference or queue, in characters.
const maxName = 64

// roomName checks the name of a conference or queue.
func roomName(s string) error {
	if err := notBlank(s); err != nil {
		return err
	}
	return characters(wordCharacters)(s)
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
	// WaitURL is what a member hears who waits for the start; empty for silence.
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
		{name: "name", required: true, value: text{to: &a.Name, max: maxName, check: roomName}},
		{name: "muted", value: boolean{to: &a.Muted}},
		{name: "start_on_enter", value: boolean{to: &a.StartOnEnter, fallback: true}},
		{name: "end_on_exit", value: boolean{to: &a.EndOnExit}},
		{name: "beep", value: boolean{to: &a.Beep}},
		{name: "max_members", value: integer{to: &a.MaxMembers, fallback: 50, min: 2, max: 250}},
		{name: "wait_url", value: link{to: &a.WaitURL}},
		{name: "record", value: boolean{to: &a.Record}},
		{name: "max_seconds", value: seconds{to: &a.MaxSeconds, fallback: maxCallTime, min: time.Second, max: maxCallTime}},
	}
}

// MarshalJSON writes the canonical form.
func (a *Conference) MarshalJSON() ([]byte, error) { return marshalAction(a) }
