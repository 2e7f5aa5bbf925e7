package actions

import "time"

var enqueueVerb = verb{
	name:  "enqueue",
	make:  func() Action { return &Enqueue{} },
	doc:   "Puts the call into a queue, until another call's dequeue takes it or its time is over.",
	media: true,
	results: []result{
		outcomes("Why the wait ended: connected, hung up, taken out through the API, or too long.", "bridged", "hangup", "left", "timeout"),
		{"wait_seconds", resultNumber, nil, "How long the caller waited."},
		{"position", resultNumber, nil, "The place in the queue at the beginning, from 1."},
		{"seconds", resultNumber, nil, "How long the connection lasted."},
	},
	example: `{"action": "enqueue", "name": "support", "max_wait": 600, "priority": 10,
 "wait_actions": [{"action": "say", "text": "Please wait."}, {"action": "play", "url": "https://media.example/music.mp3"}]}`,
}

// Enqueue puts the call into a queue, until a Dequeue takes it or its time is over.
type Enqueue struct {
	Base
	// Name names the queue among the customer's: 1 to 64 letters, digits, _, . and -.
	Name string
	// WaitActions are what the caller hears meanwhile, round and round: *Say, *Play and *Pause.
	WaitActions []Action
	// MaxWait is how long the caller waits before the list goes on.
	MaxWait time.Duration
	// Priority puts calls before those of a lower one.
	Priority int
}

// Verb returns "enqueue".
func (*Enqueue) Verb() string { return "enqueue" }

func (a *Enqueue) fields() []field {
	return []field{
		{name: "name", required: true, value: text{to: &a.Name, max: maxName, rule: someWord}, doc: "The name of the queue; yours only."},
		{name: "wait_actions", value: nested{to: &a.WaitActions, in: waiting}, doc: "What the caller hears meanwhile, round and round; without it, silence."},
		{name: "max_wait", value: seconds{to: &a.MaxWait, fallback: time.Hour, min: time.Second, max: maxCallTime}, doc: "How long the caller waits before the list goes on."},
		{name: "priority", value: integer{to: &a.Priority, min: 0, max: 100}, doc: "Calls of a higher priority are taken first."},
	}
}

// MarshalJSON writes the canonical form.
func (a *Enqueue) MarshalJSON() ([]byte, error) { return marshalAction(a) }

var dequeueVerb = verb{
	name:  "dequeue",
	make:  func() Action { return &Dequeue{} },
	doc:   "Connects the call with the first one that waits in a queue: the highest priority, then the longest wait.",
	media: true,
	results: []result{
		outcomes("Whether there was a call to connect, and how the connection ended.", "bridged", "timeout", "max_seconds", "failed"),
		{"peer_call_id", resultText, nil, "The call that had waited."},
		{"seconds", resultNumber, nil, "How long the connection lasted."},
	},
	example: `{"action": "dequeue", "name": "support", "timeout": 60}`,
}

// Dequeue connects the call with the first one that waits in a queue.
type Dequeue struct {
	Base
	// Name names the queue among the customer's.
	Name string
	// Timeout is how long to wait for a call when the queue is empty; 0 does not wait.
	Timeout time.Duration
	// MaxSeconds ends the connection.
	MaxSeconds time.Duration
}

// Verb returns "dequeue".
func (*Dequeue) Verb() string { return "dequeue" }

func (a *Dequeue) fields() []field {
	return []field{
		{name: "name", required: true, value: text{to: &a.Name, max: maxName, rule: someWord}, doc: "The name of the queue; yours only."},
		{name: "timeout", value: seconds{to: &a.Timeout, fallback: 30 * time.Second, min: time.Second, max: time.Hour, zero: "do not wait"}, doc: "How long to wait for a call when the queue is empty."},
		{name: "max_seconds", value: seconds{to: &a.MaxSeconds, fallback: maxCallTime, min: time.Second, max: maxCallTime}, doc: "Ends the connection."},
	}
}

// MarshalJSON writes the canonical form.
func (a *Dequeue) MarshalJSON() ([]byte, error) { return marshalAction(a) }
