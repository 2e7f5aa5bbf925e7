package webhooks

import (
	"fmt"
	"slices"
	"strings"

	"tandem/models"
)

// Kinds of events. Kinds has what each of them tells.
const (
	KindCreated         = "call.created"
	KindDialing         = "call.dialing"
	KindRinging         = "call.ringing"
	KindRerouted        = "call.rerouted"
	KindAnswered        = "call.answered"
	KindCompleted       = "call.completed"
	KindFailed          = "call.failed"
	KindError           = "call.error"
	KindNotify          = "call.notify"
	KindMachineDetected = "call.machine_detected"
	KindDTMF            = "call.dtmf"
	KindActionCompleted = "call.action_completed"
	KindTransferred     = "call.transferred"

	KindLegRinging  = "leg.ringing"
	KindLegAnswered = "leg.answered"
	KindLegEnded    = "leg.ended"

	KindRecordingStarted   = "recording.started"
	KindRecordingAvailable = "recording.available"
	KindRecordingFailed    = "recording.failed"

	KindQueueJoined = "queue.joined"
	KindQueueLeft   = "queue.left"

	KindConferenceJoined = "conference.joined"
	KindConferenceLeft   = "conference.left"

	KindTrunkRegistered   = "trunk.registered"
	KindTrunkUnregistered = "trunk.unregistered"

	KindBalanceLow       = "balance.low"
	KindBalanceExhausted = "balance.exhausted"

	KindTest = "webhook.test"
)

// Types of the values in an event's data, as JSON has them.
const (
	TypeString  = "string"
	TypeInteger = "integer"
	TypeNumber  = "number"
	TypeBoolean = "boolean"
	TypeObject  = "object"
	TypeAny     = "any"
)

// Kind is a kind of event in the catalogue.
type Kind struct {
	// Name is what stands in type and event.
	Name string
	// When says when the event happens.
	When string
	// CallToo says that some of its events are of a call.
	CallToo bool
	// Fields are those of data. Events of a call have the call in it as well.
	Fields []Field
	// Example is what data may be.
	Example map[string]any
}

// Field is a value in an event's data.
type Field struct {
	Name string
	Type string
	// Present says when it is there; empty means always.
	Present string
	// Values are all that it may be; nil leaves it open.
	Values []any
	// Doc says what it is.
	Doc string
	// Fields are those of an object whose fields are known.
	Fields []Field
}

// OfCall reports whether all events of the kind tell of a call, which then stands in the body.
func (k *Kind) OfCall() bool {
	return !slices.ContainsFunc([]string{"trunk.", "balance.", "webhook."}, func(family string) bool { return strings.HasPrefix(k.Name, family) })
}

// Default reports whether an application is told of the kind that has not chosen its kinds.
func (k *Kind) Default() bool { return models.Wanted(nil, k.Name) }

// Find returns the kind of a name from the catalogue, and false where it has none.
func Find(name string) (*Kind, bool) {
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return nil, false
	}
	return &Kinds[i], true
}

// maxKinds bounds an application's choice; the whole catalogue fits.
const maxKinds = 64

// KindsError is an application's choice of kinds that cannot be taken.
type KindsError struct {
	// Index is the place in the list, -1 where the list itself is wrong, and Kind what stands there.
	Index int
	Kind  string
	// Allowed are the kinds, families and the word for all that may stand there.
	Allowed []string
	message string
}

// Error implements error: it names what is wrong and what is allowed.
func (e *KindsError) Error() string { return e.message }

// ParseKinds validates an application's choice of kinds: names from the catalogue, families ("call.*") and "*" for all. It
// returns them without repetition, in the order given; nil, the default set, for nil. The error is a *KindsError.
func ParseKinds(kinds []string) ([]string, error) {
	if kinds == nil {
		return nil, nil
	}
	allowed := Choices()
	if len(kinds) > maxKinds {
		return nil, &KindsError{Index: -1, Allowed: allowed, message: fmt.Sprintf("must have at most %d kinds, has %d", maxKinds, len(kinds))}
	}
	chosen := make([]string, 0, len(kinds))
	for i, kind := range kinds {
		if !slices.Contains(allowed, kind) {
			return nil, &KindsError{
				Index: i, Kind: kind, Allowed: allowed,
				message: fmt.Sprintf("[%d] is %q, which is no kind of event; allowed are %s", i, shorten(kind, 64), strings.Join(allowed, ", ")),
			}
		}
		if !slices.Contains(chosen, kind) {
			chosen = append(chosen, kind)
		}
	}
	return chosen, nil
}

// Choices returns all that an application's choice of kinds may hold: "*", the families and the kinds, in the catalogue's order.
func Choices() []string {
	choices := []string{"*"}
	for _, kind := range Kinds {
		family, _, _ := strings.Cut(kind.Name, ".")
		if family += ".*"; !slices.Contains(choices, family) {
			choices = append(choices, family)
		}
	}
	for _, kind := range Kinds {
		choices = append(choices, kind.Name)
	}
	return choices
}
