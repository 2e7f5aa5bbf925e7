package actions

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Parse reads an answer_url reply: a list of actions, or an object with "actions" and "variables". The whole reply is
// validated before anything is returned, so that a call never runs half of a faulty list. The error is an *Error.
func Parse(body []byte) (*Reply, error) {
	p := &parser{what: "the reply", list: "actions", index: -1, limit: MaxActions}
	root, err := p.readLimited(body)
	if err != nil {
		return nil, err
	}
	reply := &Reply{Variables: map[string]string{}}
	list := root
	if root.kind == kindObject {
		if list, err = p.envelope(root, reply); err != nil {
			return nil, err
		}
	}
	if reply.Actions, err = p.root(list); err != nil {
		return nil, err
	}
	return reply, nil
}

// ParseList reads a list of actions that is stored or given to the API, such as fallback_actions: Parse without the
// envelope. what names the list in the error, which is an *Error whose Path begins with it.
func ParseList(raw json.RawMessage, what string) ([]Action, error) {
	p := &parser{what: what, list: what, index: -1, limit: MaxActions}
	root, err := p.readLimited(raw)
	if err != nil {
		return nil, err
	}
	return p.root(root)
}

// ParseWait reads an application's wait_actions, which callers hear round and round while its server is slow: 1 to 20
// say, play and pause, without result_url and without an endless loop. The error is an *Error whose Path begins with
// "wait_actions".
func ParseWait(raw json.RawMessage) ([]Action, error) {
	const what = "wait_actions"
	p := &parser{what: what, list: what, index: -1, limit: waiting.max, in: waiting}
	root, err := p.readLimited(raw)
	if err != nil {
		return nil, err
	}
	list, err := p.root(root)
	if err == nil && len(list) == 0 {
		return nil, p.refuse(what, fmt.Sprintf("must hold 1 to %d actions, has none", waiting.max))
	}
	return list, err
}

// Decode reads a list that Encode wrote. Unlike Parse it sets no limit on size and number: the canonical form spells
// out defaults, and lists may have been joined since. The error is an *Error.
func Decode(list []byte) ([]Action, error) {
	p := &parser{what: "the list", list: "actions", index: -1}
	root, err := p.read(list)
	if err != nil {
		return nil, err
	}
	return p.root(root)
}

// readLimited reads JSON that customers may choose the size of.
func (p *parser) readLimited(body []byte) (*node, error) {
	if len(body) > MaxBytes {
		return nil, p.refuse("", fmt.Sprintf("%s must be at most %d bytes, was %d", p.what, MaxBytes, len(body)))
	}
	return p.read(body)
}

func (p *parser) read(body []byte) (*node, error) {
	root, err := readJSON(body)
	if err != nil {
		var duplicate *duplicateError
		if errors.As(err, &duplicate) {
			return nil, p.duplicate(duplicate)
		}
		return nil, p.refuse("", p.what+" "+err.Error())
	}
	return root, nil
}

// duplicate places a repeated key: "actions[2]" in the index, the rest in the path.
func (p *parser) duplicate(e *duplicateError) error {
	index := -1
	path := strings.TrimPrefix(e.path, ".")
	if strings.HasPrefix(path, "[") {
		path = p.list + path
	}
	if _, err := fmt.Sscanf(strings.TrimPrefix(path, p.list), "[%d]", &index); err != nil {
		index = -1
	}
	return &Error{Index: index, Field: e.key, Path: path, Message: e.Error()}
}

// envelope reads {"actions": […], "variables": {…}} and returns the list.
func (p *parser) envelope(root *node, reply *Reply) (*node, error) {
	for _, key := range root.keys {
		if key == "action" || key == "verb" {
			return nil, p.refuse("", p.what+" must be a list of actions, was a single action; put it between [ and ]")
		}
		if key != "actions" && key != "variables" {
			return nil, p.unknownField(key, []string{"actions", "variables"})
		}
	}
	if vars, ok := root.values["variables"]; ok {
		if err := p.decode("variables", variables{to: &reply.Variables}, vars); err != nil {
			return nil, err
		}
	}
	list, ok := root.values["actions"]
	if !ok {
		return nil, p.refuse("actions", "is missing; it must be a list of actions")
	}
	return list, nil
}

// root parses the list of actions that a document is, or holds.
func (p *parser) root(n *node) ([]Action, error) {
	if n.kind != kindList {
		e := p.refuse(p.list, "must be a list of actions, was "+n.describe())
		e.Allowed, e.Got = "a list of actions", n.describe()
		return nil, e
	}
	if err := p.countActions(n); err != nil {
		return nil, err
	}
	return p.actions(n, p.list, true)
}

func (p *parser) countActions(n *node) error {
	p.count += len(n.items)
	if p.limit == 0 || p.count <= p.limit {
		return nil
	}
	return p.refuse("", fmt.Sprintf("%s must hold at most %d actions, nested ones included, has %d or more", p.what, p.limit, p.count))
}

// actions parses the actions of a list whose place is called name.
func (p *parser) actions(n *node, name string, top bool) ([]Action, error) {
	outer := *p
	list := make([]Action, 0, len(n.items))
	for i, item := range n.items {
		p.path, p.field = fmt.Sprintf("%s[%d]", name, i), ""
		if top {
			p.index = i
		}
		action, err := p.one(item)
		if err != nil {
			return nil, err
		}
		list = append(list, action)
		p.index, p.action, p.path, p.field = outer.index, outer.action, outer.path, outer.field
	}
	return list, nil
}

// one parses one action: finds its verb, then walks its table.
func (p *parser) one(n *node) (Action, error) {
	p.action = ""
	if n.kind != kindObject {
		e := p.refuse("", `must be an object with a field "action", was `+n.describe())
		e.Allowed, e.Got = `an object with a field "action"`, n.describe()
		return nil, e
	}
	action, err := p.verb(n)
	if err != nil {
		return nil, err
	}
	p.action = action.Verb()
	p.path += "." + p.action
	if p.in != nil {
		if err := p.in.checkVerb(p); err != nil {
			return nil, err
		}
	}
	if err := p.object(n, table(action), "action", "verb"); err != nil {
		return nil, err
	}
	if whole, ok := action.(interface{ validate(n *node) *fieldError }); ok {
		if err := whole.validate(n); err != nil {
			return nil, p.refuse(err.field, err.message)
		}
	}
	if p.in != nil {
		if err := p.in.check(p, action); err != nil {
			return nil, err
		}
	}
	return action, nil
}

// fieldError is a rule that spans several fields of one action.
type fieldError struct{ field, message string }

// verb finds the action that an object names.
func (p *parser) verb(n *node) (Action, error) {
	named, ok := n.values["action"]
	if alias, also := n.values["verb"]; also {
		if ok {
			return nil, p.refuse("", `"action" and "verb" are the same field; give one`)
		}
		named, ok = alias, true
	}
	allowed := "one of " + strings.Join(Names(), ", ")
	if !ok {
		e := p.refuse("", `names no action; add "action": `+allowed)
		e.Allowed = allowed
		return nil, e
	}
	message := "must be " + allowed + ", was " + named.describe()
	if named.kind == kindString {
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
			message = fmt.Sprintf("%q is not supported by this version; allowed: %s", name, strings.Join(Names(), ", "))
		} else {
			message += meant(name, slices.Concat(Names(), slices.Sorted(maps.Keys(aliases))))
		}
	}
	e := p.refuse("action", message)
	e.Allowed, e.Got = allowed, named.describe()
	return nil, e
}
