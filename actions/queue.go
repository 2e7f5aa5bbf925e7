package actions

import "time"

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
		{name: "name", required: true, value: text{to: &a.Name, max: maxName, check: roomName}},
		{name: "wait_actions", value: nested{to: &a.WaitActions, in: waiting}},
		{name: "max_wait", value: seconds{to: &a.MaxWait, fallback: time.Hour, min: time.Second, max: maxCallTime}},
		{name: "priority", value: integer{to: &a.Priority, min: 0, max: 100}},
	}
}

// MarshalJSON writes the canonical form.
func (a *Enqueue) MarshalJSON() ([]byte, error) { return marshalAction(a) }

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
		{name: "name", required: true, value: text{to: &a.Name, max: maxName, check: roomName}},
		{name: "timeout", value: seconds{to: &a.Timeout, fallback: 30 * time.Second, min: time.Second, max: time.Hour, zero: "do not wait"}},
		{name: "max_seconds", value: seconds{to: &a.MaxSeconds, fallback: maxCallTime, min: time.Second, max: maxCallTime}},
	}
}

// MarshalJSON writes the canonical form.
func (a *Dequeue) MarshalJSON() ([]byte, error) { return marshalAction(a) }
