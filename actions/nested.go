package actions

import (
	"fmt"
	"slices"
	"strings"
)

// nesting is a kind of list inside an action: what it may hold, and what its actions may not say. Such lists are the
// second and last level: none of the verbs in them holds a list of its own.
type nesting struct {
	// in says where, for messages: "not allowed in a prompt".
	in string
	// def is the name of its actions in the JSON Schema.
	def   string
	verbs []string
	max   int
}

var (
	prompting    = &nesting{in: "a prompt", def: "prompt_action", verbs: []string{"say", "play"}, max: MaxActions}
	announcement = &nesting{in: "an announcement", def: "prompt_action", verbs: []string{"say", "play"}, max: MaxActions}
	waiting      = &nesting{in: "wait_actions", def: "wait_action", verbs: []string{"say", "play", "pause"}, max: 20}
)

// nested is a list of actions inside an action.
type nested struct {
	to *[]Action
	in *nesting
}

func (t nested) reset() { *t.to = nil }

func (t nested) decode(p *parser, n *node) error {
	if n.kind != kindList || len(n.items) > t.in.max {
		return fmt.Errorf("must be %s, was %s", t.allowed(), n.describe())
	}
	outer := *p
	p.path, p.field = join(p.path, p.field), ""
	if err := p.countActions(n); err != nil {
		return err
	}
	p.in = t.in
	list, err := p.actions(n, p.path, false)
	count := p.count
	*p = outer
	p.count = count
	if err != nil {
		return err
	}
	if len(list) == 0 {
		list = nil // an empty list is none, in the canonical form too
	}
	*t.to = list
	return nil
}

func (t nested) encode() (any, bool) {
	objects := make([]any, len(*t.to))
	for i, action := range *t.to {
		objects[i] = encodeAction(action)
	}
	return objects, len(objects) > 0
}

func (t nested) allowed() string {
	return fmt.Sprintf("a list of at most %d actions: %s", t.in.max, strings.Join(t.in.verbs, ", "))
}

func (t nested) schema() schema {
	return schema{"type": "array", "maxItems": t.in.max, "items": schema{"$ref": "#/$defs/" + t.in.def}}
}

// checkVerb refuses a verb that the list may not hold; p stands at the action.
func (l *nesting) checkVerb(p *parser) error {
	if slices.Contains(l.verbs, p.action) {
		return nil
	}
	e := p.refuse("", fmt.Sprintf("is not allowed in %s; allowed: %s", l.in, strings.Join(l.verbs, ", ")))
	e.Allowed, e.Got = "one of "+strings.Join(l.verbs, ", "), p.action
	return e
}

// check refuses what the actions of the list may not say.
func (l *nesting) check(p *parser, action Action) error {
	if action.Meta().ResultURL != "" {
		return p.refuse("result_url", "is not allowed in "+l.in)
	}
	loop, early := 1, false
	switch a := action.(type) {
	case *Say:
		loop, early = a.Loop, a.Early
	case *Play:
		loop, early = a.Loop, a.Early
	}
	if loop == 0 {
		e := p.refuse("loop", fmt.Sprintf("must be between 1 and %d in %s, was 0", maxLoop, l.in))
		e.Allowed, e.Got = fmt.Sprintf("a whole number between 1 and %d", maxLoop), "0"
		return e
	}
	if early {
		return p.refuse("early", "is not allowed in "+l.in)
	}
	return nil
}
