package actions

var setVerb = verb{
	name:    "set",
	make:    func() Action { return &Set{} },
	doc:     "Sets variables of the call, which travel in every further request and event.",
	example: `{"action": "set", "variables": {"menu": "sales", "visits": 3}}`,
}

// Set sets variables of the call. They live in our database and travel in events and requests; the switch never sees
// them.
type Set struct {
	Base
	// Variables are at most 50, each value at most 1 KiB.
	Variables map[string]string
}

// Verb returns "set".
func (*Set) Verb() string { return "set" }

func (a *Set) fields() []field {
	return []field{{name: "variables", required: true, value: variables{to: &a.Variables}, doc: "The variables; numbers and booleans become strings."}}
}

// MarshalJSON writes the canonical form.
func (a *Set) MarshalJSON() ([]byte, error) { return marshalAction(a) }
