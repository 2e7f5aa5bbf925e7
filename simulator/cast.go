package simulator

import (
	"slices"

	"tandem/actions"
)

// cast hands out the scripted inputs, in order.
type cast struct {
	inputs []Input
	used   []bool
	path   *path
}

func newCast(script *Script, p *path) *cast {
	return &cast{inputs: script.Input, used: make([]bool, len(script.Input)), path: p}
}

// next returns the first unused input that is for this action and that it can take, and nil where the script has none. An
// input without At is only handed out when no earlier one waits for somebody else: the order of the script is kept.
func (c *cast) next(action actions.Action, takes func(in *Input) bool) *Input {
	blocked := false
	for i := range c.inputs {
		in := &c.inputs[i]
		if c.used[i] {
			continue
		}
		addressed := in.At != ""
		if addressed && !meant(in.At, action) {
			continue
		}
		if !takes(in) {
			blocked = blocked || !addressed
			continue
		}
		if blocked && !addressed {
			return nil
		}
		c.used[i] = true
		c.path.add(Step{Kind: StepInput, InputIndex: &i, Input: in})
		return in
	}
	return nil
}

// peek returns what next would, without using it.
func (c *cast) peek(action actions.Action, takes func(in *Input) bool) *Input {
	for i := range c.inputs {
		in := &c.inputs[i]
		if !c.used[i] && (in.At == "" || meant(in.At, action)) {
			if takes(in) {
				return in
			}
			return nil
		}
	}
	return nil
}

// meant says whether at names an action.
func meant(at string, action actions.Action) bool {
	return action != nil && (at == action.Meta().ID || at == action.Verb())
}

// unused are the places of the inputs that nobody took.
func (c *cast) unused() []int {
	left := []int{}
	for i, used := range c.used {
		if !used {
			left = append(left, i)
		}
	}
	return left
}

// hangsUp says whether the caller is scripted to hang up during this action. A hangup without At is for an action that waits
// for the caller.
func (c *cast) hangsUp(action actions.Action) bool {
	waits := action != nil && slices.Contains([]string{"gather", "record", "conference", "enqueue", "dequeue"}, action.Verb())
	return c.next(action, func(in *Input) bool { return in.Hangup && (waits || in.At != "") }) != nil
}
