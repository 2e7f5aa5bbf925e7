package actions

import "time"

// How a transfer is made; see Transfer.Mode.
const (
	// TransferBlind calls the target and joins it when it answers; the call stays ours.
	TransferBlind = "blind"
	// TransferRefer asks the caller's own telephone or carrier to call the target (SIP REFER, RFC 3515) and lets go.
	TransferRefer = "refer"
	// TransferAttended calls the target, lets it hear Announce and joins it then.
	TransferAttended = "attended"
)

var transferVerb = verb{
	name: "transfer",
	make: func() Action { return &Transfer{} },
	doc:  "Hands the call to another party; when that succeeds the list is over, otherwise it goes on.",
	results: []result{
		{"outcome", resultWord, []string{"interrupted"}, "Only when live control interrupted it."},
		{"transfer_status", resultWord, []string{"completed", "accepted", "busy", "no_answer", "failed", "canceled", "rejected"}, "What became of it; accepted is all that a refer can tell when nothing more is heard of it."},
		{"sip_code", resultNumber, nil, "The SIP status of the target, or of the answer to a refer."},
		{"reason", resultText, nil, "Why, as in the reason of a call."},
		{"leg_id", resultText, nil, "The target's leg, as in GET /v1/calls/:id/legs."},
		{"seconds", resultNumber, nil, "How long the connection lasted."},
	},
	example: `{"action": "transfer", "to": "+14155550123", "mode": "attended",
 "announce": [{"action": "say", "text": "A caller about an invoice."}]}`,
}

// Transfer hands the call to another party. When that succeeds the list is over, otherwise it goes on.
type Transfer struct {
	Base
	// To is who takes the call.
	To Target
	// Mode is TransferBlind, TransferRefer or TransferAttended.
	Mode string
	// CallerID is the E.164 number shown to the target, empty for the call's own.
	CallerID string
	// Timeout is how long the target may ring.
	Timeout time.Duration
	// MaxSeconds ends the connection.
	MaxSeconds time.Duration
	// Announce is what the target of an attended transfer hears before it is joined: *Say and *Play.
	Announce []Action
	// Ringback is what the caller hears while the target rings: see Dial.Ringback.
	Ringback string
}

// Verb returns "transfer".
func (*Transfer) Verb() string { return "transfer" }

func (a *Transfer) fields() []field {
	return []field{
		{name: "to", required: true, value: target{to: &a.To}, doc: "Who takes the call."},
		{name: "mode", value: choice{to: &a.Mode, fallback: TransferBlind, words: []string{TransferBlind, TransferRefer, TransferAttended}}, doc: "blind calls the target and joins it when it answers; attended lets it hear announce first; refer has the caller's own carrier or telephone make the call."},
		{name: "caller_id", value: text{to: &a.CallerID, max: maxNumber, rule: number}, doc: "The number shown to the target; without it, the call's own."},
		{name: "timeout", value: seconds{to: &a.Timeout, fallback: 30 * time.Second, min: minRing, max: maxRing}, doc: "How long the target may ring."},
		{name: "max_seconds", value: seconds{to: &a.MaxSeconds, fallback: maxCallTime, min: time.Second, max: maxCallTime}, doc: "Ends the connection."},
		{name: "announce", value: nested{to: &a.Announce, in: announcement}, doc: "What the target of an attended transfer hears before it is joined."},
		{name: "ringback", value: ringback{to: &a.Ringback}, doc: "What the caller hears while the target rings; without it, what the target's carrier sends."},
	}
}

// validate refuses what the mode has no use for, and gives the target its time to ring.
func (a *Transfer) validate(*node) *fieldError {
	if a.Mode != TransferAttended && len(a.Announce) > 0 {
		return &fieldError{"announce", `is only for the mode "attended", was "` + a.Mode + `"`}
	}
	if a.Mode == TransferRefer {
		for _, f := range []struct{ name, value string }{
			{"caller_id", a.CallerID}, {"ringback", a.Ringback}, {"to.send_digits", a.To.SendDigits}, {"to.trunk_id", a.To.TrunkID},
		} {
			if f.value != "" {
				return &fieldError{f.name, `is not for the mode "refer": the caller's own telephone or carrier makes the call`}
			}
		}
	}
	if a.To.Timeout == 0 {
		a.To.Timeout = a.Timeout
	}
	return nil
}

func (*Transfer) rules() []schema {
	mode := func(word string) schema {
		return schema{"properties": schema{"mode": schema{"const": word}}, "required": []string{"mode"}}
	}
	byTarget := schema{"properties": schema{"to": without("send_digits", "trunk_id")}}
	return []schema{
		{"if": schema{"properties": schema{"announce": schema{"minItems": 1}}, "required": []string{"announce"}}, "then": mode(TransferAttended)},
		{"if": mode(TransferRefer), "then": schema{"allOf": []schema{
			byTarget, {"not": schema{"anyOf": []schema{having("caller_id"), having("ringback")}}},
		}}},
	}
}

// MarshalJSON writes the canonical form.
func (a *Transfer) MarshalJSON() ([]byte, error) { return marshalAction(a) }
