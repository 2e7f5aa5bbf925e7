package actions

import (
	"fmt"
	"strings"
)

// field is one row of a table: a name, whether it must be given, the kind of value bound to a struct field, and one
// sentence for the customer. Tables are the only description of the vocabulary: parsing, the canonical form, the JSON
// Schema and the documentation all walk them.
type field struct {
	name     string
	required bool
	value    value
	doc      string
}

// value is a kind of field bound to the place that holds it.
type value interface {
	// reset puts the default in place.
	reset()
	// decode reads a customer's value. Its error is only the message, the parser adds where, unless it is an *Error.
	decode(p *parser, n *node) error
	// encode returns the canonical JSON value, and false when it need not be written.
	encode() (any, bool)
	// allowed says what the field may hold, to stand after "must be".
	allowed() string
	// schema says the same as JSON Schema, as far as that can be said there.
	schema() schema
}

// schema is a JSON Schema of draft 2020-12.
type schema = map[string]any

// boolean is true or false.
type boolean struct {
	to       *bool
	fallback bool
}

func (b boolean) reset() { *b.to = b.fallback }

func (b boolean) decode(_ *parser, n *node) error {
	if n.kind != kindBool {
		return fmt.Errorf("must be true or false, was %s", n.describe())
	}
	*b.to = n.boolean
	return nil
}

func (b boolean) encode() (any, bool) { return *b.to, *b.to || b.fallback }

func (boolean) allowed() string { return "true or false" }

func (b boolean) schema() schema { return schema{"type": "boolean", "default": b.fallback} }

// choice is one of a few words.
type choice struct {
	to       *string
	fallback string
	words    []string
}

func (c choice) reset() { *c.to = c.fallback }

func (c choice) decode(_ *parser, n *node) error {
	if n.kind != kindString {
		return fmt.Errorf("must be %s, was %s", c.allowed(), n.describe())
	}
	for _, word := range c.words {
		if n.text == word {
			*c.to = word
			return nil
		}
	}
	return fmt.Errorf("must be %s, was %s%s", c.allowed(), n.describe(), meant(n.text, c.words))
}

func (c choice) encode() (any, bool) { return *c.to, *c.to != "" || c.fallback != "" }

func (c choice) allowed() string { return "one of " + strings.Join(c.words, ", ") }

func (c choice) schema() schema {
	s := schema{"type": "string", "enum": c.words}
	if c.fallback != "" {
		s["default"] = c.fallback
	}
	return s
}

// later is a field of the vocabulary that this version cannot do. A neutral value (false or null) passes, so that a flow
// that switches the feature off explicitly still runs.
type later struct{}

func (later) reset() {}

func (later) decode(_ *parser, n *node) error {
	if n.none() {
		return nil
	}
	return fmt.Errorf("is not supported by this version; allowed: false, was %s", n.describe())
}

func (later) encode() (any, bool) { return nil, false }

func (later) allowed() string { return "false" }

func (later) schema() schema { return none() }

// none is the schema of a customer's way to switch an object off.
func none() schema { return schema{"enum": []any{false, nil}} }
