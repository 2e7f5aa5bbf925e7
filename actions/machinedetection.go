package actions

import (
	"encoding/json"
	"fmt"
	"time"
)

// When a machine detection is done; see MachineDetection.Mode.
const (
	// ModeDetect is done when it knows human from machine.
	ModeDetect = "detect"
	// ModeMessageEnd is done, for a machine, when its greeting is over and a message can be left.
	ModeMessageEnd = "message_end"
)

// What follows when a machine was heard; see MachineDetection.OnMachine.
const (
	// OnMachineContinue goes on.
	OnMachineContinue = "continue"
	// OnMachineHangup hangs up.
	OnMachineHangup = "hangup"
)

var machineDetectionVerb = verb{
	name:  "machine_detection",
	make:  func() Action { return &MachineDetection{} },
	doc:   "Judges whether a human or a machine has answered the call.",
	media: true,
	results: []result{
		outcomes("Whether the judgement is made, or goes on in the background.", "done", "started", "failed"),
		{"answered_by", resultWord, []string{"human", "machine", "unknown"}, "The verdict."},
		{"beep", resultFlag, nil, "Whether the beep of a mailbox was heard."},
		{"after_ms", resultNumber, nil, "How long the verdict took, in milliseconds."},
	},
	example: `{"action": "machine_detection", "mode": "message_end", "async": false, "timeout": 20, "result_url": "/answered"}`,
}

// MachineDetection judges whether a human or a machine has answered. It is a verb for the call itself, and a setting of
// a dial and of a new outbound call, where its ID and ResultURL are empty.
type MachineDetection struct {
	Base
	// Mode is ModeDetect or ModeMessageEnd.
	Mode string
	// Async lets the call go on while it is judged; otherwise everything waits for the verdict.
	Async bool
	// Timeout is how long the judgement may take; then what was heard so far is judged.
	Timeout time.Duration
	// OnMachine is OnMachineContinue or OnMachineHangup.
	OnMachine string
}

// Verb returns "machine_detection".
func (*MachineDetection) Verb() string { return "machine_detection" }

func (a *MachineDetection) fields() []field {
	return []field{
		{name: "mode", value: choice{to: &a.Mode, fallback: ModeDetect, words: []string{ModeDetect, ModeMessageEnd}}, doc: "Done when human or machine is known, or, for a machine, when its greeting is over and a message can be left."},
		{name: "async", value: boolean{to: &a.Async, fallback: true}, doc: "Lets the call go on while it is judged; otherwise everything waits for the verdict."},
		{name: "timeout", value: seconds{to: &a.Timeout, fallback: 15 * time.Second, min: 3 * time.Second, max: time.Minute}, doc: "How long the judgement may take; then what was heard so far is judged."},
		{name: "on_machine", value: choice{to: &a.OnMachine, fallback: OnMachineContinue, words: []string{OnMachineContinue, OnMachineHangup}}, doc: "What follows when a machine was heard."},
	}
}

// MarshalJSON writes the settings alone, the form that ParseMachineDetection reads. In a list of actions Encode writes
// the verb and the common fields as well.
func (a *MachineDetection) MarshalJSON() ([]byte, error) { return marshal(encodeTable(a.fields())) }

// ParseMachineDetection reads the machine_detection of a new call: an object of settings, or true for the defaults;
// false, null and nothing at all are no detection, and then the result is nil. The error is an *Error whose Path begins
// with "machine_detection".
func ParseMachineDetection(raw json.RawMessage) (*MachineDetection, error) {
	var found *MachineDetection
	if len(raw) == 0 {
		return nil, nil
	}
	p := &parser{index: -1, what: "machine_detection"}
	root, err := p.read(raw)
	if err != nil {
		return nil, err
	}
	if err := p.decode("machine_detection", detection{to: &found}, root); err != nil {
		return nil, err
	}
	return found, nil
}

// detection is the setting: an object, true for the defaults, or false or null for none.
type detection struct{ to **MachineDetection }

func (d detection) reset() { *d.to = nil }

func (d detection) decode(p *parser, n *node) error {
	switch {
	case n.none():
		*d.to = nil
		return nil
	case n.kind == kindBool:
		n = &node{kind: kindObject}
	case n.kind != kindObject:
		return fmt.Errorf("must be %s, was %s", d.allowed(), n.describe())
	}
	found := &MachineDetection{}
	if err := p.object(n, found.fields()); err != nil {
		return err
	}
	*d.to = found
	return nil
}

func (d detection) encode() (any, bool) {
	if *d.to == nil {
		return nil, false
	}
	return encodeTable((*d.to).fields()), true
}

func (d detection) allowed() string { return "true, false or an object of settings" }

func (d detection) schema() schema {
	return schema{"anyOf": []schema{{"type": []string{"boolean", "null"}}, object((&MachineDetection{}).fields())}}
}
