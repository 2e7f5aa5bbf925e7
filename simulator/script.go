package simulator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of a script.
const (
	// MaxScriptBytes is the size of the largest script.
	MaxScriptBytes = 64 << 10
	// MaxInputs is the number of inputs that a script may hold.
	MaxInputs = 200

	maxInputSeconds = 14_400
	maxHeaders      = 20
	maxVariables    = 50
)

// Script says who calls and what the caller and the others do. Everything has a default: the empty script is a caller who
// listens, says nothing and stays on the line.
type Script struct {
	// Direction is inbound (the default) or outbound: a call that the application placed and that was answered.
	Direction string `json:"direction,omitempty"`
	// From and To are the numbers of the call, E.164. Defaults: +15550100001 and +15550100002.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// SIPHeaders are the caller's X- headers.
	SIPHeaders map[string]string `json:"sip_headers,omitempty"`
	// Metadata is that of a placed call.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Input is what happens, in order.
	Input []Input `json:"input,omitempty"`
	// Expect is what must come out for the run to be ok.
	Expect *Expect `json:"expect,omitempty"`
}

// Input is one thing that the caller or another party does. Exactly one of its fields but At is set. It is used by the next
// action that can take it; At names that action by its id or verb where the order alone does not tell.
type Input struct {
	// At is the id or the verb of the action that takes this input.
	At string `json:"at,omitempty"`
	// Digits are typed during a gather, a record or a say that digits interrupt. A finishing key is typed like any other.
	Digits string `json:"digits,omitempty"`
	// Speech is said during a gather that listens to speech.
	Speech *Speech `json:"speech,omitempty"`
	// Silence: the caller says and types nothing. A gather times out.
	Silence bool `json:"silence,omitempty"`
	// Hangup: the caller hangs up.
	Hangup bool `json:"hangup,omitempty"`
	// Record is how a recording goes.
	Record *Recording `json:"record,omitempty"`
	// Dial is what becomes of a party that is called.
	Dial *Dial `json:"dial,omitempty"`
	// Machine is who answered, for machine detection: human, machine or unknown.
	Machine string `json:"machine,omitempty"`
	// Group is how a conference or a queue goes.
	Group *Group `json:"group,omitempty"`
}

// Speech is what was understood.
type Speech struct {
	Text string `json:"text"`
	// Confidence is from 0 to 1; default 0.9.
	Confidence float64 `json:"confidence,omitempty"`
}

// Recording is how a recording goes.
type Recording struct {
	// Seconds is how long it is.
	Seconds float64 `json:"seconds"`
	// EndedBy is silence (the default), key, max or hangup.
	EndedBy string `json:"ended_by,omitempty"`
}

// Dial is what becomes of a party that is called.
type Dial struct {
	// To is the party, a number or SIP URI; empty is whichever is called next.
	To string `json:"to,omitempty"`
	// Outcome is answered, busy, no_answer, declined, invalid_number or failed.
	Outcome string `json:"outcome"`
	// Seconds is how long the parties talk; default 30.
	Seconds float64 `json:"seconds,omitempty"`
	// EndedBy is callee (the default) or caller.
	EndedBy string `json:"ended_by,omitempty"`
}

// Group is how a stay in a conference or a queue goes.
type Group struct {
	// Outcome is left (the default: the caller is taken out and the list goes on), ended (of a conference) or hangup.
	Outcome string `json:"outcome,omitempty"`
	// Seconds is how long the stay is; default 30.
	Seconds float64 `json:"seconds,omitempty"`
}

// Expect is what must come out. What is not set is not checked.
type Expect struct {
	// Status and Reason are those of the call at its end.
	Status string `json:"status,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Actions are the verbs that run, in order.
	Actions []string `json:"actions,omitempty"`
	// Variables are the call's at the end; others may be there too.
	Variables map[string]string `json:"variables,omitempty"`
	// Errors is how many errors there may be. Without it none is right.
	Errors *int `json:"errors,omitempty"`
}

// FieldError refuses a field of a script.
type FieldError struct {
	// Field is the path of the field, for example "input[2].dial.outcome"; empty for the whole script.
	Field   string
	Message string
}

// Error returns the field and what is wrong with it.
func (e *FieldError) Error() string {
	if e.Field == "" {
		return "the script " + e.Message
	}
	return e.Field + " " + e.Message
}

// ParseScript reads and checks a script. An empty body is the empty script. The error is a *FieldError.
func ParseScript(body []byte) (*Script, error) {
	script := &Script{}
	if len(body) > MaxScriptBytes {
		return nil, &FieldError{Message: fmt.Sprintf("must be at most %d bytes, was %d", MaxScriptBytes, len(body))}
	}
	if len(bytes.TrimSpace(body)) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(script); err != nil {
			return nil, decodeError(err)
		}
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			return nil, &FieldError{Message: "must be one JSON object, more follows it"}
		}
	}
	if err := script.check(); err != nil {
		return nil, err
	}
	return script, nil
}

// decodeError words what encoding/json found.
func decodeError(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return &FieldError{Field: kind.Field, Message: fmt.Sprintf("must be %s, was a %s", kind.Type, kind.Value)}
	}
	message := strings.TrimPrefix(err.Error(), "json: ")
	if name, ok := strings.CutPrefix(message, "unknown field "); ok {
		return &FieldError{Field: strings.Trim(name, `"`), Message: "is not a field of a script"}
	}
	return &FieldError{Message: "is not valid JSON: " + message}
}

var (
	e164      = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)
	keypad    = regexp.MustCompile(`^[0-9A-D*#]{1,128}$`)
	reference = regexp.MustCompile(`^[^[:cntrl:]]{1,64}$`)
	xHeader   = regexp.MustCompile(`^[Xx]-[A-Za-z0-9-]{1,62}$`)
)

// check fills the defaults and refuses what cannot happen.
func (s *Script) check() error {
	if s.Direction == "" {
		s.Direction = "inbound"
	}
	if s.From == "" {
		s.From = "+15550100001"
	}
	if s.To == "" {
		s.To = "+15550100002"
	}
	if err := oneOf("direction", s.Direction, "inbound", "outbound"); err != nil {
		return err
	}
	for _, number := range []struct{ field, value string }{{"from", s.From}, {"to", s.To}} {
		if !e164.MatchString(number.value) {
			return &FieldError{number.field, "must be an E.164 number such as +14155550100"}
		}
	}
	if len(s.SIPHeaders) > maxHeaders {
		return &FieldError{"sip_headers", fmt.Sprintf("must hold at most %d headers", maxHeaders)}
	}
	for name, value := range s.SIPHeaders {
		if !xHeader.MatchString(name) || len(value) > 1024 || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' }) {
			return &FieldError{"sip_headers", fmt.Sprintf("must hold X- headers of at most 1024 bytes, was %q", name)}
		}
	}
	if len(s.Metadata) > maxVariables {
		return &FieldError{"metadata", fmt.Sprintf("must hold at most %d strings", maxVariables)}
	}
	if len(s.Input) > MaxInputs {
		return &FieldError{"input", fmt.Sprintf("must hold at most %d inputs, was %d", MaxInputs, len(s.Input))}
	}
	for i := range s.Input {
		if err := s.Input[i].check(fmt.Sprintf("input[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// check refuses an input that is none, or several.
func (in *Input) check(path string) error {
	set := 0
	for _, given := range []bool{
		in.Digits != "", in.Speech != nil, in.Silence, in.Hangup, in.Record != nil, in.Dial != nil, in.Machine != "", in.Group != nil,
	} {
		if given {
			set++
		}
	}
	if set != 1 {
		return &FieldError{path, fmt.Sprintf("must hold exactly one of digits, speech, silence, hangup, record, dial, machine, group; holds %d", set)}
	}
	if in.At != "" && !reference.MatchString(in.At) {
		return &FieldError{path + ".at", "must be the id or verb of an action, at most 64 characters"}
	}
	switch {
	case in.Digits != "" && !keypad.MatchString(in.Digits):
		return &FieldError{path + ".digits", "must be 1 to 128 of 0-9 A-D * #"}
	case in.Speech != nil:
		return in.Speech.check(path + ".speech")
	case in.Record != nil:
		if in.Record.EndedBy == "" {
			in.Record.EndedBy = "silence"
		}
		if err := oneOf(path+".record.ended_by", in.Record.EndedBy, "silence", "key", "max", "hangup"); err != nil {
			return err
		}
		return seconds(path+".record.seconds", in.Record.Seconds)
	case in.Dial != nil:
		return in.Dial.check(path + ".dial")
	case in.Machine != "":
		return oneOf(path+".machine", in.Machine, "human", "machine", "unknown")
	case in.Group != nil:
		return in.Group.check(path + ".group")
	}
	return nil
}

func (s *Speech) check(path string) error {
	if s.Confidence == 0 {
		s.Confidence = 0.9
	}
	if count := utf8.RuneCountInString(s.Text); count == 0 || count > 3000 {
		return &FieldError{path + ".text", "must be 1 to 3000 characters"}
	}
	if s.Confidence < 0 || s.Confidence > 1 {
		return &FieldError{path + ".confidence", "must be from 0 to 1"}
	}
	return nil
}

func (d *Dial) check(path string) error {
	if d.EndedBy == "" {
		d.EndedBy = "callee"
	}
	if d.Seconds == 0 {
		d.Seconds = 30
	}
	if err := oneOf(path+".outcome", d.Outcome, dialOutcomes()...); err != nil {
		return err
	}
	if err := oneOf(path+".ended_by", d.EndedBy, "callee", "caller"); err != nil {
		return err
	}
	return seconds(path+".seconds", d.Seconds)
}

func (g *Group) check(path string) error {
	if g.Outcome == "" {
		g.Outcome = "left"
	}
	if g.Seconds == 0 {
		g.Seconds = 30
	}
	if err := oneOf(path+".outcome", g.Outcome, "left", "ended", "hangup"); err != nil {
		return err
	}
	return seconds(path+".seconds", g.Seconds)
}

func seconds(field string, value float64) error {
	if value < 0 || value > maxInputSeconds {
		return &FieldError{field, fmt.Sprintf("must be from 0 to %d seconds", maxInputSeconds)}
	}
	return nil
}

func oneOf(field, value string, words ...string) error {
	if slices.Contains(words, value) {
		return nil
	}
	return &FieldError{field, fmt.Sprintf("must be one of %s, was %q", strings.Join(words, ", "), value)}
}
