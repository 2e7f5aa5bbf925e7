package actions

import (
	"errors"
	"fmt"
	"time"
)

// Target is one party to call: a number or a SIP URI.
type Target struct {
	// Number is an E.164 number; empty when SIP is set.
	Number string
	// SIP is a SIP URI, checked against a narrow grammar; empty when Number is set.
	SIP string
	// TrunkID is the trunk to use for Number, empty for the customer's active one.
	TrunkID string
	// Timeout is how long this target may ring; that of the dial or transfer when the target names none.
	Timeout time.Duration
	// SendDigits are keys sent once the target has answered.
	SendDigits string
}

// fields returns the table of a target written as an object.
func (t *Target) fields() []field {
	return []field{
		{name: "number", value: text{to: &t.Number, max: maxNumber, rule: number}, doc: "The number to call, through a trunk."},
		{name: "sip", value: sipURI{to: &t.SIP}, doc: "The SIP URI to call; either number or sip must be given."},
		{name: "trunk_id", value: text{to: &t.TrunkID, max: 64, rule: word}, doc: "The trunk for the number; without it, your active one."},
		{name: "timeout", value: seconds{to: &t.Timeout, min: minRing, max: maxRing, zero: "as the action"}, doc: "How long this target may ring."},
		{name: "send_digits", value: text{to: &t.SendDigits, max: maxTones, rule: dialled}, doc: "Keys that are sent once the target has answered; w waits for half a second, W for one."},
	}
}

// target reads a number, a SIP URI or an object.
type target struct{ to *Target }

func (t target) reset() { *t.to = Target{} }

func (t target) decode(p *parser, n *node) error {
	t.reset()
	switch {
	case n.kind == kindString && isSIP(n.text):
		return sipURI{to: &t.to.SIP}.decode(p, n)
	case n.kind == kindString:
		return text{to: &t.to.Number, max: maxURL, rule: numberOrSIP}.decode(p, n)
	case n.kind != kindObject:
		return fmt.Errorf("must be %s, was %s", t.allowed(), n.describe())
	}
	if err := p.object(n, t.to.fields()); err != nil {
		return err
	}
	switch {
	case t.to.Number == "" && t.to.SIP == "":
		return errors.New("must name either number or sip, has neither")
	case t.to.Number != "" && t.to.SIP != "":
		return errors.New("must name either number or sip, has both")
	}
	if t.to.SIP != "" && t.to.TrunkID != "" {
		return p.refuse("trunk_id", "is only for a number, not for sip")
	}
	return nil
}

func (t target) encode() (any, bool) { return encodeTable(t.to.fields()), true }

func (target) allowed() string {
	return "an E.164 number, a SIP URI or an object with number or sip"
}

func (target) schema() schema { return schema{"$ref": "#/$defs/target"} }

// targetSchema is what target refers to.
func targetSchema() schema {
	written := object((&Target{}).fields())
	written["oneOf"] = []schema{having("number"), having("sip")}
	written["dependentSchemas"] = schema{"sip": without("trunk_id")}
	return schema{"description": "A party to call.", "anyOf": []schema{text{max: maxNumber, rule: number}.schema(), sipURI{}.schema(), written}}
}

// targets is one target or a list of them.
type targets struct{ to *[]Target }

func (t targets) reset() { *t.to = nil }

func (t targets) decode(p *parser, n *node) error {
	if n.kind != kindList {
		one := make([]Target, 1)
		if err := (target{to: &one[0]}).decode(p, n); err != nil {
			return err
		}
		*t.to = one
		return nil
	}
	if len(n.items) == 0 || len(n.items) > maxTargets {
		return fmt.Errorf("must be 1 to %d targets, was %s", maxTargets, n.describe())
	}
	list := make([]Target, len(n.items))
	for i, item := range n.items {
		if err := p.decode(fmt.Sprintf("[%d]", i), target{to: &list[i]}, item); err != nil {
			return err
		}
	}
	*t.to = list
	return nil
}

func (t targets) encode() (any, bool) {
	objects := make([]any, len(*t.to))
	for i := range *t.to {
		objects[i], _ = target{to: &(*t.to)[i]}.encode()
	}
	return objects, len(objects) > 0
}

func (targets) allowed() string {
	return target{}.allowed() + fmt.Sprintf(", or a list of 1 to %d of them", maxTargets)
}

func (targets) schema() schema {
	one := target{}.schema()
	return schema{"anyOf": []schema{one, {"type": "array", "items": one, "minItems": 1, "maxItems": maxTargets}}}
}
