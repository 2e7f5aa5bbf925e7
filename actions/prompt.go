package actions

import "fmt"

// prompt is a list of say and play actions, the second and last level of nesting.
type prompt struct {
	to   *[]Action
	name string
}

func (t prompt) reset() { *t.to = nil }

func (t prompt) decode(p *parser, n *node) error {
	if n.kind != kindList {
		return fmt.Errorf("must be a list of say and play actions, was %s", n.describe())
	}
	if p.prompt {
		return fmt.Errorf("must not be nested in another prompt")
	}
	p.prompt = true
	list, err := p.list(n, p.path+"."+t.name)
	p.prompt = false
	if err != nil {
		return err
	}
	if len(list) == 0 {
		list = nil // an empty prompt is no prompt, in the canonical form too
	}
	*t.to = list
	return nil
}

func (t prompt) encode() (any, bool) {
	objects := make([]any, len(*t.to))
	for i, action := range *t.to {
		objects[i] = encodeAction(action)
	}
	return objects, len(objects) > 0
}
