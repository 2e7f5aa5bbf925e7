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

var dialVerb = verb{
	name: "dial",
	make: func() Action { return &Dial{} },
	doc:  "Calls one or more targets and connects the caller to the one that answers.",
	results: []result{
		{"outcome", resultWord, []string{"interrupted"}, "Only when live control interrupted it."},
		{"dial_status", resultWord, []string{"answered", "busy", "no_answer", "failed", "canceled", "machine"}, "What became of it; with several targets, of the one that answered or of the last that said something."},
		{"reason", resultText, nil, "Why, as in the reason of a call."},
		{"leg_id", resultText, nil, "The target's leg, as in GET /v1/calls/:id/legs."},
		{"seconds", resultNumber, nil, "How long the connection lasted."},
		{"sip_code", resultNumber, nil, "The SIP status of the target."},
		{"cause", resultText, nil, "The switch's word for the end."},
		{"answered_by", resultWord, []string{"human", "machine", "unknown"}, "The verdict of machine_detection."},
		{"legs", resultList, nil, "With several targets: each one's leg_id, to, dial_status, reason, sip_code and seconds."},
		{"refused", resultList, nil, "With several targets: to and reason (destination_not_allowed, customer_limit, application_limit, spend_limit, insufficient_balance) of each that the limits of the account or the application, or the balance, did not let the call dial."},
	},
	example: `{"action": "dial", "to": ["+14155550123", {"sip": "sip:anna@pbx.example", "timeout": 15}],
 "strategy": "sequential", "timeout": 20, "ringback": "ringback_us",
 "confirm": {"prompt": [{"action": "say", "text": "Press 1 to take the call."}]}}`,
}

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
		{name: "to", required: true, value: targets{to: &a.To}, doc: "Who is called."},
		{name: "strategy", value: choice{to: &a.Strategy, fallback: StrategySimultaneous, words: []string{StrategySimultaneous, StrategySequential}}, doc: "Whether several targets are called at once or one after the other."},
		{name: "caller_id", value: text{to: &a.CallerID, max: maxNumber, rule: number}, doc: "The number shown to the targets; without it, the call's own."},
		{name: "timeout", value: seconds{to: &a.Timeout, fallback: 30 * time.Second, min: minRing, max: maxRing}, doc: "How long each target may ring that names no time of its own."},
		{name: "max_seconds", value: seconds{to: &a.MaxSeconds, fallback: maxCallTime, min: time.Second, max: maxCallTime}, doc: "Ends the connection."},
		{name: "answer_on_bridge", value: boolean{to: &a.AnswerOnBridge, fallback: true}, doc: "Answers an unanswered caller only when a target answers."},
		{name: "ringback", value: ringback{to: &a.Ringback}, doc: "What the caller hears meanwhile; without it, what the target's carrier sends."},
		{name: "confirm", value: confirmation{to: &a.Confirm}, doc: "Asks whoever answers for a key before the caller is connected."},
		{name: "machine_detection", value: detection{to: &a.MachineDetection}, doc: "Judges whether a human or a machine answers; true takes the defaults."},
		{name: "record", value: boolean{to: &a.Record}, doc: "Records the connected parties."},
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
