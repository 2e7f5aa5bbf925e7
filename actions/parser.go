package actions

import (
	"errors"
	"slices"
	"strings"
)

// parser carries where in a document validation stands, for the error.
type parser struct {
	what   string // what the document is called: "the reply", "fallback_actions"
	list   string // what its list of actions is called
	index  int
	action string
	path   string   // of the action
	field  string   // inside the action
	in     *nesting // the kind of nested list, nil at the top
	limit  int      // actions allowed, 0 for any number
	count  int
}

// join puts a field behind the path of what holds it.
func join(path, field string) string {
	if path == "" || field == "" || strings.HasPrefix(field, "[") {
		return path + field
	}
	return path + "." + field
}

// refuse makes the error for a field below the current place, "" for the place itself.
func (p *parser) refuse(field, message string) *Error {
	field = join(p.field, field)
	return &Error{Index: p.index, Action: p.action, Field: field, Path: join(p.path, field), Message: message}
}

// decode reads a value at a field below the current place.
func (p *parser) decode(field string, v value, n *node) error {
	outer := p.field
	p.field = join(outer, field)
	err := v.decode(p, n)
	if err != nil {
		err = p.placed(err, v, n)
	}
	p.field = outer
	return err
}

// placed puts a value's refusal into its place, unless it has one.
func (p *parser) placed(err error, v value, n *node) error {
	var placed *Error
	if errors.As(err, &placed) {
		return placed
	}
	placed = p.refuse("", err.Error())
	placed.Allowed, placed.Got = v.allowed(), n.describe()
	return placed
}

// object reads the fields of a table from an object. The keys in also are read elsewhere.
func (p *parser) object(n *node, table []field, also ...string) error {
	for _, key := range n.keys {
		if !known(key, table) && !slices.Contains(also, key) {
			return p.unknownField(key, fieldNames(table))
		}
	}
	for _, f := range table {
		f.value.reset()
		given, ok := n.values[f.name]
		if !ok {
			if f.required {
				e := p.refuse(f.name, "is required; it must be "+f.value.allowed())
				e.Allowed = f.value.allowed()
				return e
			}
			continue
		}
		if err := p.decode(f.name, f.value, given); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) unknownField(key string, names []string) error {
	message := "unknown field" + meant(key, names)
	if !strings.HasSuffix(message, "?") {
		message += ";"
	}
	e := p.refuse(shorten(key), message+" allowed: "+strings.Join(names, ", "))
	e.Allowed, e.Got = "one of "+strings.Join(names, ", "), shorten(key)
	return e
}

func known(key string, table []field) bool {
	return slices.ContainsFunc(table, func(f field) bool { return f.name == key })
}

func fieldNames(table []field) []string {
	names := make([]string, len(table))
	for i, f := range table {
		names[i] = f.name
	}
	return names
}

// encodeTable returns the canonical object of a table: every field that says something.
func encodeTable(table []field) map[string]any {
	object := make(map[string]any, len(table)+1)
	for _, f := range table {
		if value, ok := f.value.encode(); ok {
			object[f.name] = value
		}
	}
	return object
}
