package simulator

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// Kinds of steps.
const (
	StepRequest = "request"
	StepAction  = "action"
	StepCommand = "command"
	StepInput   = "input"
	StepEvent   = "event"
)

// maxSteps bounds a report. A flow that is longer is stopped.
const maxSteps = 2000

// Step is one thing that happened, in order. Which fields are set depends on the kind.
type Step struct {
	Kind string `json:"kind"`
	// AtMS is when it happened, in milliseconds of the simulated call.
	AtMS int64 `json:"at_ms"`
	at   time.Duration

	// Of a request: what was asked and answered.
	Request *Exchange `json:"request,omitempty"`
	// Of an action that begins: its index in the list, its verb and the whole action in its canonical form.
	Index  *int            `json:"index,omitempty"`
	Action string          `json:"action,omitempty"`
	Fields json.RawMessage `json:"fields,omitempty"`
	// Of a command: what would have been sent over the Event Socket.
	Command string `json:"command,omitempty"`
	// Of an input: the place of the scripted input that was used, and the input.
	InputIndex *int   `json:"input_index,omitempty"`
	Input      *Input `json:"input,omitempty"`
	// Of an event: its type and data, as a webhook would carry them. Results are in call.action_completed, errors in
	// call.error.
	Event string          `json:"event,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// Exchange is one request to the application and its answer.
type Exchange struct {
	Method string          `json:"method"`
	URL    string          `json:"url"`
	Body   json.RawMessage `json:"body,omitempty"`
	// Status is that of the answer, 0 when there was none.
	Status int `json:"status"`
	// Reply is the answer's body as text, cut at 4 KiB.
	Reply string `json:"reply,omitempty"`
	// Error says why there was no answer.
	Error string `json:"error,omitempty"`
	// TookMS is how long the application really took, in milliseconds.
	TookMS int64 `json:"took_ms"`
}

// path gathers the steps of one run.
type path struct {
	clock *clock

	mu    sync.Mutex
	steps []Step
	full  chan struct{} // closed when there are too many
}

func newPath(c *clock) *path { return &path{clock: c, full: make(chan struct{})} }

func (p *path) add(step Step) {
	step.at = p.clock.Now().Sub(p.clock.start)
	step.AtMS = step.at.Milliseconds()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.steps) == maxSteps {
		return
	}
	p.steps = append(p.steps, step)
	if len(p.steps) == maxSteps {
		close(p.full)
	}
}

// overflowed says whether there were too many steps.
func (p *path) overflowed() bool {
	select {
	case <-p.full:
		return true
	default:
		return false
	}
}

// with returns the steps and some more, in the order of their times.
func (p *path) with(more []Step) []Step {
	p.mu.Lock()
	all := slices.Concat(p.steps, more)
	p.mu.Unlock()
	slices.SortStableFunc(all, func(a, b Step) int { return cmp.Compare(a.at, b.at) })
	return all
}

// clock is the simulated call's time. It stands still but for what the stage plays.
type clock struct {
	start time.Time

	mu  sync.Mutex
	now time.Time
}

func newClock() *clock {
	start := time.Now().UTC().Truncate(time.Millisecond)
	return &clock{start: start, now: start}
}

// Now returns the time. It moves a microsecond with each look, so that what comes later never looks older.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Microsecond)
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
