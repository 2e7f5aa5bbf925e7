package actions

import (
	"fmt"
	"time"
)

// Confirm asks the party that answers a dial to press a key, so that a mailbox never gets the caller.
type Confirm struct {
	// Prompt is what the party hears: *Say and *Play; empty for a tone of the platform's.
	Prompt []Action
	// Key is the one key that connects.
	Key string
	// Timeout is how long the party has to press it.
	Timeout time.Duration
}

func (c *Confirm) fields() []field {
	return []field{
		{name: "prompt", value: nested{to: &c.Prompt, in: prompting}, doc: "What the party hears; without it, a tone."},
		{name: "key", value: text{to: &c.Key, fallback: "1", max: len(keypad), rule: oneKey}, doc: "The key that connects."},
		{name: "timeout", value: seconds{to: &c.Timeout, fallback: 10 * time.Second, min: time.Second, max: time.Minute}, doc: "How long the party has to press it."},
	}
}

// confirmation is a Confirm, or false or null for none.
type confirmation struct{ to **Confirm }

func (c confirmation) reset() { *c.to = nil }

func (c confirmation) decode(p *parser, n *node) error {
	if n.none() {
		*c.to = nil
		return nil
	}
	if n.kind != kindObject {
		return fmt.Errorf("must be %s, was %s", c.allowed(), n.describe())
	}
	confirm := &Confirm{}
	if err := p.object(n, confirm.fields()); err != nil {
		return err
	}
	*c.to = confirm
	return nil
}

func (c confirmation) encode() (any, bool) {
	if *c.to == nil {
		return nil, false
	}
	return encodeTable((*c.to).fields()), true
}

func (confirmation) allowed() string { return "an object with prompt, key and timeout" }

func (confirmation) schema() schema {
	return schema{"anyOf": []schema{none(), object((&Confirm{}).fields())}}
}
