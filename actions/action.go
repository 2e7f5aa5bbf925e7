package actions

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Limits of one answer_url reply.
const (
	// MaxBytes is the size of the largest reply that Parse accepts.
	MaxBytes = 64 << 10
	// MaxActions is the number of actions that one reply may hold, prompts included.
	MaxActions = 100
)

// Action is one validated step of a call flow. Its concrete type is a pointer to one of the verb structs of this package.
type Action interface {
	// Verb returns the canonical name of the action, for example "say", whatever alias the customer wrote.
	Verb() string
	// Meta returns the fields that every action has.
	Meta() Meta

	// fields returns the table of the verb's fields, bound to this value.
	fields() []field
	base() *Base
}

// Meta holds the fields common to all actions.
type Meta struct {
	// ID is the customer's own name for the action, at most 64 characters, echoed in results and events.
	ID string
	// ResultURL is where the result is posted, absolute or relative to the answer_url. Its reply replaces the list.
	ResultURL string
}

// Base gives an action its common fields; every verb struct embeds it.
type Base struct {
	ID        string
	ResultURL string
}

// Meta returns the fields that every action has.
func (b *Base) Meta() Meta { return Meta{ID: b.ID, ResultURL: b.ResultURL} }

func (b *Base) base() *Base { return b }

// Reply is what an answer_url says: the actions to run in order, and variables to merge into the call's.
type Reply struct {
	Actions   []Action
	Variables map[string]string
}

// Encode writes actions in their canonical form: canonical names, every field with its value, durations in seconds. The
// result is what Decode reads.
func Encode(list []Action) (json.RawMessage, error) {
	objects := make([]any, len(list))
	for i, action := range list {
		objects[i] = encodeAction(action)
	}
	out, err := marshal(objects)
	if err != nil {
		return nil, fmt.Errorf("encode %d actions: %w", len(list), err)
	}
	return out, nil
}

// encodeAction returns the canonical object of an action: the common fields and every field of the table that says
// something.
func encodeAction(action Action) map[string]any {
	object := encodeTable(table(action))
	object["action"] = action.Verb()
	return object
}

func marshalAction(action Action) ([]byte, error) { return marshal(encodeAction(action)) }

// marshal is json.Marshal without the escaping of <, > and &, which would lengthen every prompt for nothing.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}
