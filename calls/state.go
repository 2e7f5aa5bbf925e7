package calls

import "tandem/models"

// The states of a call, as the API shows them in `status`.
const (
	StatusQueued     = models.CallQueued
	StatusDialing    = models.CallDialing
	StatusRinging    = models.CallRinging
	StatusInProgress = models.CallInProgress
	StatusCompleted  = models.CallCompleted
	StatusBusy       = models.CallBusy
	StatusNoAnswer   = models.CallNoAnswer
	StatusRejected   = models.CallRejected
	StatusCanceled   = models.CallCanceled
	StatusFailed     = models.CallFailed
)

// The directions of a call.
const (
	DirectionInbound  = models.Inbound
	DirectionOutbound = models.Outbound
)

// trigger is what moves a call from one state to the next.
type trigger string

const (
	onCreate   trigger = "created by POST /v1/calls"
	onEnqueue  trigger = "created with start: false, or queue: true without room"
	onDispatch trigger = "POST /v1/calls/:id/start, or room for one that was queued"
	onArrive   trigger = "inbound CHANNEL_PARK"
	onProgress trigger = "CHANNEL_PROGRESS, CHANNEL_PROGRESS_MEDIA"
	onAnswer   trigger = "CHANNEL_ANSWER"
	onEnd      trigger = "CHANNEL_HANGUP_COMPLETE, refusal, timeout, cancel, node lost"
)

// transition is one arrow of the state table.
type transition struct {
	from  string // "" is a call that does not exist yet
	on    trigger
	to    []string // several only where the ending chooses
	event string
}

// unanswered are the states that a call which was never answered may end in.
var unanswered = []string{StatusBusy, StatusNoAnswer, StatusRejected, StatusCanceled, StatusFailed}

// transitions is the whole state table. These arrows are the only ones; what is not here is ignored.
var transitions = []transition{
	{"", onCreate, []string{StatusDialing}, "call.created"},
	{"", onEnqueue, []string{StatusQueued}, "call.created"},
	{"", onArrive, []string{StatusRinging}, "call.ringing"},
	{StatusQueued, onDispatch, []string{StatusDialing}, "call.dialing"},
	{StatusDialing, onProgress, []string{StatusRinging}, "call.ringing"},
	{StatusDialing, onAnswer, []string{StatusInProgress}, "call.answered"},
	{StatusRinging, onAnswer, []string{StatusInProgress}, "call.answered"},
	{StatusInProgress, onEnd, []string{StatusCompleted}, "call.completed"},
	{StatusQueued, onEnd, unanswered, "call.failed"},
	{StatusDialing, onEnd, unanswered, "call.failed"},
	{StatusRinging, onEnd, unanswered, "call.failed"},
}

// next returns the arrow that leaves a state on a trigger, and false when there is none: a late or repeated event.
func next(from string, on trigger) (transition, bool) {
	for _, t := range transitions {
		if t.from == from && t.on == on {
			return t, true
		}
	}
	return transition{}, false
}
