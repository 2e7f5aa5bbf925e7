package actions

import "time"

// How several targets are called; see Dial.Strategy.
const (
	// StrategySimultaneous calls all at once; the first to answer wins.
	StrategySimultaneous = "simultaneous"
	// StrategySequential calls one after the other until one answers.
	StrategySequential = "sequential"
)

// maxTargets is the most targets of one dial.
const maxTargets = 10

// minRing and maxRing bound how long a target may ring.
const (
	minRing = 5 * time.Second
	maxRing = 10 * time.Minute
)

// Dial calls one or more targets and connects the caller to the one that answers.
type Dial struct {
	Base
	// To is who is called, 1 to 10.
	To []Target
	// Strategy is StrategySimultaneous or StrategySequential.
	Strategy string
	// CallerID is the E.164 number shown to the targets, empty for the call's own.
	CallerID string
	// Timeout is how long each target may ring that names no time of its own.
	Timeout time.Duration
	// MaxSeconds ends the connection.
	MaxSeconds time.Duration
	// AnswerOnBridge answers an unanswered caller only when a target answers.
	AnswerOnBridge bool
	// Ringback is what the caller hears meanwhile: the name of a tone (see ToneSpec), RingbackNone, an absolute URL of a
	// file, or empty for what the target's carrier sends.
	Ringback string
	// Confirm asks the party that answers for a key before it is connected; nil does not.
	Confirm *Confirm
	// MachineDetection judges whoever answers; nil does not.
	MachineDetection *MachineDetection
	// Record records the connected parties.
	Record bool
}

// Verb returns "dial".
func (*Dial) Verb() string { return "dial" }

func (a *Dial) fields() []field {
	return []field{
		{name: "to", required: true, value: targets{to: &a.To}},
		{name: "strategy", value: choice{to: &a.Strategy, fallback: StrategySimultaneous, words: []string{StrategySimultaneous, StrategySequential}}},
		{name: "caller_id", value: text{to: &a.CallerID, max: 16, check: number}},
		{name: "timeout", value: seconds{to: &a.Timeout, fallback: 30 * time.Second, min: minRing, max: maxRing}},
		{name: "max_seconds", value: seconds{to: &a.MaxSeconds, fallback: maxCallTime, min: time.Second, max: maxCallTime}},
		{name: "answer_on_bridge", value: boolean{to: &a.AnswerOnBridge, fallback: true}},
		{name: "ringback", value: ringback{to: &a.Ringback}},
		{name: "confirm", value: confirmation{to: &a.Confirm}},
		{name: "machine_detection", value: detection{to: &a.MachineDetection}},
		{name: "record", value: boolean{to: &a.Record}},
	}
}

// validate gives targets without a timeout of their own the one of the dial.
func (a *Dial) validate(*node) *fieldError {
	for i := range a.To {
		if a.To[i].Timeout == 0 {
			a.To[i].Timeout = a.Timeout
		}
	}
	return nil
}

// MarshalJSON writes the canonical form.
func (a *Dial) MarshalJSON() ([]byte, error) { return marshalAction(a) }
