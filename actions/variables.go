package actions

import (
	"fmt"
	"regexp"
)

// Limits of variables, in one action and in one reply.
const (
	maxVariables     = 50
	maxVariableBytes = 1 << 10
)

const variablePattern = `^[A-Za-z_][A-Za-z0-9_.-]{0,63}$`

var variableName = regexp.MustCompile(variablePattern)

// variables is an object of call variables. Numbers and booleans are taken as they are spelled.
type variables struct{ to *map[string]string }

func (variables) allowed() string {
	return fmt.Sprintf("an object of at most %d strings of %d bytes", maxVariables, maxVariableBytes)
}

func (v variables) reset() { *v.to = map[string]string{} }

func (v variables) decode(_ *parser, n *node) error {
	if n.kind != kindObject {
		return fmt.Errorf("must be an object of strings, was %s", n.describe())
	}
	if len(n.keys) > maxVariables {
		return fmt.Errorf("must hold at most %d variables, was %d", maxVariables, len(n.keys))
	}
	values := make(map[string]string, len(n.keys))
	for _, name := range n.keys {
		if !variableName.MatchString(name) {
			return fmt.Errorf("must have names of 1 to 64 letters, digits, _, . and - that begin with a letter or _, was %q", shorten(name))
		}
		item := n.values[name]
		var value string
		switch item.kind {
		case kindString:
			value = item.text
		case kindNumber, kindBool:
			value = string(item.raw)
		default:
			return fmt.Errorf("%q must be a string, was %s", name, item.describe())
		}
		if len(value) > maxVariableBytes {
			return fmt.Errorf("%q must be at most %d bytes, was %d", name, maxVariableBytes, len(value))
		}
		if err := checkControl(value); err != nil {
			return fmt.Errorf("%q %w", name, err)
		}
		values[name] = value
	}
	*v.to = values
	return nil
}

func (v variables) encode() (any, bool) {
	if *v.to == nil {
		return map[string]string{}, true
	}
	return *v.to, true
}

func (variables) schema() schema {
	return schema{
		"type": "object", "maxProperties": maxVariables, "propertyNames": schema{"pattern": variablePattern},
		"additionalProperties": schema{"type": []string{"string", "number", "boolean"}, "maxLength": maxVariableBytes, "pattern": withoutControl},
	}
}
