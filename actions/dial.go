package actions

import (
	"fmt"
	"time"
)

// Dial calls one target and connects the caller to it.
type Dial struct {
	Base
	// To is who is called.
	To Target
	// CallerID is the E.164 number shown to the target, empty for the call's own.
	CallerID string
	// Timeout is how long the target may ring.
	Timeout time.Duration
	// MaxSeconds ends the connection.
	MaxSeconds time.Duration
	// AnswerOnBridge answers an unanswered caller only when the target answers.
	AnswerOnBridge bool
	// Record records the connected parties.
	Record bool
}

// Verb returns "dial".
func (*Dial) Verb() string { return "dial" }

func (a *Dial) fields() []field {
	return []field{
		{name: "to", required: true, value: target{to: &a.To}},
		{name: "caller_id", value: text{to: &a.CallerID, max: 16, check: number}},
		{name: "timeout", value: seconds{to: &a.Timeout, fallback: 30 * time.Second, min: minRing, max: maxRing}},
		{name: "max_seconds", value: seconds{to: &a.MaxSeconds, fallback: maxCallTime, min: time.Second, max: maxCallTime}},
		{name: "answer_on_bridge", value: boolean{to: &a.AnswerOnBridge, fallback: true}},
		{name: "record", value: boolean{to: &a.Record}},
		{name: "strategy", value: later{}},
		{name: "ringback", value: later{}},
		{name: "confirm", value: later{}},
		{name: "machine_detection", value: later{}},
	}
}

// validate gives a target without a timeout of its own the one of the dial.
func (a *Dial) validate(*node) *fieldError {
	if a.To.Timeout == 0 {
		a.To.Timeout = a.Timeout
	}
	return nil
}

// MarshalJSON writes the canonical form.
func (a *Dial) MarshalJSON() ([]byte, error) { return marshalAction(a) }

// minRing and maxRing bound how long a target may ring.
const (
	minRing = 5 * time.Second
	maxRing = 10 * time.Minute
)

// Target is one party to call: a number or a SIP URI.
type Target struct {
	// Number is an E.164 number; empty when SIP is set.
	Number string
	// SIP is a SIP URI, checked against a narrow grammar; empty when Number is set.
	SIP string
	// TrunkID is the trunk to use for Number, empty for the customer's active one.
	TrunkID string
	// Timeout is how long this target may ring; Dial.Timeout when the target names none.
	Timeout time.Duration
	// SendDigits are keys sent once the target has answered.
	SendDigits string
}

// table returns the fields of a target written as an object.
func (t *Target) table() []field {
	return []field{
		{name: "number", value: text{to: &t.Number, max: 16, check: number}},
		{name: "sip", value: sipURI{to: &t.SIP}},
		{name: "trunk_id", value: text{to: &t.TrunkID, max: 64, check: characters(wordCharacters)}},
		{name: "timeout", value: seconds{to: &t.Timeout, min: minRing, max: maxRing, zero: "as the dial"}},
		{name: "send_digits", value: text{to: &t.SendDigits, max: maxTones, check: tones}},
	}
}

// target reads a number, a SIP URI, an object, or a list of exactly one of them.
type target struct{ to *Target }

func (t target) reset() { *t.to = Target{} }

func (t target) decode(p *parser, n *node) error {
	if n.kind == kindList {
		if len(n.items) > 1 {
			return fmt.Errorf("more than one target is not supported by this version, was a list of %d", len(n.items))
		}
		if len(n.items) == 0 {
			return fmt.Errorf("must name a target, was an empty list")
		}
		n = n.items[0]
	}
	switch n.kind {
	case kindString:
		if isSIP(n.text) {
			return sipURI{to: &t.to.SIP}.decode(p, n)
		}
		return text{to: &t.to.Number, max: 16, check: numberOrSIP}.decode(p, n)
	case kindObject:
		return t.object(p, n)
	default:
		return fmt.Errorf("must be an E.164 number, a SIP URI or an object, was %s", n.describe())
	}
}

func (t target) object(p *parser, n *node) error {
	table := t.to.table()
	for _, key := range n.keys {
		found := false
		for _, f := range table {
			if f.name != key {
				continue
			}
			found = true
			if err := f.value.decode(p, n.values[key]); err != nil {
				return p.fail("to."+key, err.Error())
			}
		}
		if !found {
			return p.fail("to", fmt.Sprintf("unknown field %q; allowed: %s", shorten(key), joinFields(table)))
		}
	}
	if (t.to.Number == "") == (t.to.SIP == "") {
		return fmt.Errorf("must name either number or sip")
	}
	if t.to.SIP != "" && t.to.TrunkID != "" {
		return p.fail("to.trunk_id", "is only for a number, not for sip")
	}
	return nil
}

func (t target) encode() (any, bool) {
	object := map[string]any{}
	for _, f := range t.to.table() {
		if value, ok := f.value.encode(); ok {
			object[f.name] = value
		}
	}
	return object, true
}
