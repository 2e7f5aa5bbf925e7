package actions

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// verbs is the table of all verbs: canonical name and a constructor of the zero value that holds the field table.
var verbs = []struct {
	name string
	make func() Action
}{
	{"answer", func() Action { return &Answer{} }},
	{"say", func() Action { return &Say{} }},
	{"play", func() Action { return &Play{} }},
	{"gather", func() Action { return &Gather{} }},
	{"record", func() Action { return &Record{} }},
	{"dial", func() Action { return &Dial{} }},
	{"pause", func() Action { return &Pause{} }},
	{"dtmf", func() Action { return &DTMF{} }},
	{"set", func() Action { return &Set{} }},
	{"redirect", func() Action { return &Redirect{} }},
	{"notify", func() Action { return &Notify{} }},
	{"hangup", func() Action { return &Hangup{} }},
	{"reject", func() Action { return &Reject{} }},
}

// aliases are the names other services use; they ease a migration.
var aliases = map[string]string{
	"talk":        "say",
	"input":       "gather",
	"connect":     "dial",
	"wait":        "pause",
	"send_digits": "dtmf",
	"recording":   "record_call",
}

// laterVerbs are of the vocabulary, but this version cannot do them.
var laterVerbs = []string{"record_call", "machine_detection", "transfer", "conference", "enqueue", "dequeue", "stream", "ai"}

// Names returns the canonical names of the verbs, in the order of the documentation.
func Names() []string {
	names := make([]string, len(verbs))
	for i, v := range verbs {
		names[i] = v.name
	}
	return names
}

// Parse reads an answer_url reply: a list of actions, or an object with "actions" and "variables". The whole reply is
// validated before anything is returned, so that a call never runs half of a faulty list. The error is an *Error.
func Parse(body []byte) (*Reply, error) {
	if len(body) > MaxBytes {
		return nil, &Error{Index: -1, Message: fmt.Sprintf("the reply must be at most %d bytes, was %d", MaxBytes, len(body))}
	}
	p := &parser{index: -1, limit: MaxActions}
	return p.parse(body)
}

// Decode reads a list that Encode wrote. Unlike Parse it sets no limit on size and number: the canonical form spells
// out defaults, and lists may have been joined since. The error is an *Error.
func Decode(list []byte) ([]Action, error) {
	p := &parser{index: -1}
	reply, err := p.parse(list)
	if err != nil {
		return nil, err
	}
	return reply.Actions, nil
}

// parser carries where in the reply validation stands, for the error.
type parser struct {
	index  int
	action string
	path   string
	prompt bool // inside a prompt, which may hold only say and play
	limit  int  // actions allowed, 0 for any number
	count  int
}

func (p *parser) fail(field, message string) error {
	path := p.path
	if field != "" && path != "" {
		path += "." + field
	} else if field != "" {
		path = field
	}
	return &Error{Index: p.index, Action: p.action, Field: field, Path: path, Message: message}
}

func (p *parser) parse(body []byte) (*Reply, error) {
	root, err := readJSON(body)
	if err != nil {
		var duplicate *duplicateError
		if errors.As(err, &duplicate) {
			return nil, duplicateAt(duplicate)
		}
		return nil, p.fail("", "the reply "+err.Error())
	}
	reply := &Reply{Variables: map[string]string{}}
	list := root
	if root.kind == kindObject {
		if list, err = p.envelope(root, reply); err != nil {
			return nil, err
		}
	}
	if list.kind != kindList {
		return nil, p.fail("actions", "must be a list of actions, was "+list.describe())
	}
	if reply.Actions, err = p.list(list, "actions"); err != nil {
		return nil, err
	}
	return reply, nil
}

// duplicateAt places a repeated key: "actions[2]" in the index, the rest in the path.
func duplicateAt(e *duplicateError) error {
	index := -1
	path := strings.TrimPrefix(e.path, ".")
	if strings.HasPrefix(path, "[") {
		path = "actions" + path
	}
	if _, err := fmt.Sscanf(path, "actions[%d]", &index); err != nil {
		index = -1
	}
	return &Error{Index: index, Field: e.key, Path: path, Message: e.Error()}
}

// envelope reads {"actions": […], "variables": {…}} and returns the list.
func (p *parser) envelope(root *node, reply *Reply) (*node, error) {
	for _, key := range root.keys {
		if key == "action" || key == "verb" {
			return nil, p.fail("", "the reply must be a list of actions, was a single action; put it between [ and ]")
		}
		if key != "actions" && key != "variables" {
			return nil, p.fail("", fmt.Sprintf("unknown field %q; allowed: actions, variables", shorten(key)))
		}
	}
	if vars, ok := root.values["variables"]; ok {
		if err := (variables{to: &reply.Variables}).decode(p, vars); err != nil {
			return nil, p.fail("variables", err.Error())
		}
	}
	list, ok := root.values["actions"]
	if !ok {
		return nil, p.fail("actions", "is missing; it must be a list of actions")
	}
	return list, nil
}

// list parses the actions of a list whose place is called name.
func (p *parser) list(n *node, name string) ([]Action, error) {
	p.count += len(n.items)
	if p.limit > 0 && p.count > p.limit {
		return nil, p.fail("", fmt.Sprintf("the reply must hold at most %d actions, prompts included, has %d or more", p.limit, p.count))
	}
	outer := *p
	list := make([]Action, 0, len(n.items))
	for i, item := range n.items {
		p.path = fmt.Sprintf("%s[%d]", name, i)
		if !p.prompt {
			p.index = i
		}
		action, err := p.one(item)
		if err != nil {
			return nil, err
		}
		list = append(list, action)
		p.index, p.action, p.path = outer.index, outer.action, outer.path
	}
	return list, nil
}

// one parses one action: finds its verb, then walks its table.
func (p *parser) one(n *node) (Action, error) {
	p.action = ""
	if n.kind != kindObject {
		return nil, p.fail("", "must be an object with a field \"action\", was "+n.describe())
	}
	action, err := p.verb(n)
	if err != nil {
		return nil, err
	}
	p.action = action.Verb()
	p.path += "." + p.action

	table := append(action.base().commonFields(), action.fields()...)
	for _, key := range n.keys {
		known := slices.ContainsFunc(table, func(f field) bool { return f.name == key })
		if !known && key != "action" && key != "verb" {
			return nil, p.fail("", fmt.Sprintf("unknown field %q; allowed: %s", shorten(key), strings.Join(fieldNames(table), ", ")))
		}
	}
	for _, f := range table {
		f.value.reset()
		given, ok := n.values[f.name]
		if !ok {
			if f.required {
				return nil, p.fail(f.name, "is required")
			}
			continue
		}
		if err := f.value.decode(p, given); err != nil {
			var placed *Error
			if errors.As(err, &placed) {
				return nil, placed
			}
			return nil, p.fail(f.name, err.Error())
		}
	}
	if whole, ok := action.(interface{ validate(n *node) *fieldError }); ok {
		if err := whole.validate(n); err != nil {
			return nil, p.fail(err.field, err.message)
		}
	}
	return action, p.checkPrompt(action)
}

// fieldError is a rule that spans several fields of one action.
type fieldError struct{ field, message string }

func fieldNames(table []field) []string {
	names := make([]string, len(table))
	for i, f := range table {
		names[i] = f.name
	}
	return names
}

// verb finds the action that an object names.
func (p *parser) verb(n *node) (Action, error) {
	named, ok := n.values["action"]
	if alias, also := n.values["verb"]; also {
		if ok {
			return nil, p.fail("", `"action" and "verb" are the same field; give one`)
		}
		named, ok = alias, true
	}
	if !ok {
		return nil, p.fail("", "names no action; add \"action\": one of "+strings.Join(Names(), ", "))
	}
	if named.kind != kindString {
		return nil, p.fail("action", "must be one of "+strings.Join(Names(), ", ")+", was "+named.describe())
	}
	name := named.text
	if canonical, ok := aliases[name]; ok {
		name = canonical
	}
	for _, v := range verbs {
		if v.name == name {
			return v.make(), nil
		}
	}
	if slices.Contains(laterVerbs, name) {
		return nil, p.fail("action", fmt.Sprintf("%q is not supported by this version; allowed: %s", named.text, strings.Join(Names(), ", ")))
	}
	return nil, p.fail("action", fmt.Sprintf("must be one of %s, was %s", strings.Join(Names(), ", "), named.describe()))
}

// checkPrompt holds an action inside a prompt to what can be played while digits are collected.
func (p *parser) checkPrompt(action Action) error {
	if !p.prompt {
		return nil
	}
	if action.Meta().ResultURL != "" {
		return p.fail("result_url", "is not allowed inside a prompt")
	}
	switch a := action.(type) {
	case *Say:
		return p.checkPromptMedia(a.Loop, a.Early)
	case *Play:
		return p.checkPromptMedia(a.Loop, a.Early)
	default:
		return p.fail("", "is not allowed inside a prompt; allowed: say, play")
	}
}

func (p *parser) checkPromptMedia(loop int, early bool) error {
	if loop == 0 {
		return p.fail("loop", "must be between 1 and 100 inside a prompt, was 0")
	}
	if early {
		return p.fail("early", "is not allowed inside a prompt")
	}
	return nil
}
