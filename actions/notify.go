package actions

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// maxPayload is the size of the largest notify payload, in bytes of compact JSON.
const maxPayload = 8 << 10

var notifyVerb = verb{
	name:    "notify",
	make:    func() Action { return &Notify{} },
	doc:     "Sends your own data to the webhook_url, as the event call.notify.",
	example: `{"action": "notify", "payload": {"step": "menu", "choice": 2}}`,
}

// Notify sends a call.notify event that carries the customer's own data.
type Notify struct {
	Base
	// Payload is any JSON value, compact.
	Payload json.RawMessage
}

// Verb returns "notify".
func (*Notify) Verb() string { return "notify" }

func (a *Notify) fields() []field {
	return []field{{name: "payload", required: true, value: payload{to: &a.Payload}, doc: "What the event carries."}}
}

// MarshalJSON writes the canonical form.
func (a *Notify) MarshalJSON() ([]byte, error) { return marshalAction(a) }

// payload is any JSON value up to a size.
type payload struct{ to *json.RawMessage }

func (v payload) reset() { *v.to = nil }

func (v payload) decode(_ *parser, n *node) error {
	var compact bytes.Buffer
	if err := json.Compact(&compact, n.raw); err != nil {
		return fmt.Errorf("must be JSON: %w", err)
	}
	if compact.Len() > maxPayload {
		return fmt.Errorf("must be at most %d bytes, was %d", maxPayload, compact.Len())
	}
	*v.to = compact.Bytes()
	return nil
}

func (v payload) encode() (any, bool) { return *v.to, len(*v.to) > 0 }

func (payload) allowed() string { return fmt.Sprintf("any JSON value of at most %d bytes", maxPayload) }

func (payload) schema() schema { return schema{} }
