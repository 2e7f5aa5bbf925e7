package simulator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"tandem/models"
)

// collect reads the events of the call as they were stored: they are steps too.
func (r *run) collect(ctx context.Context, store *models.Store, customerID string) error {
	rows, _, err := store.ListCalls(ctx, customerID, models.CallFilter{}, models.Page{})
	if err != nil {
		return err
	}
	for _, call := range rows {
		events, err := store.CallEvents(ctx, customerID, call.ID)
		if err != nil {
			return err
		}
		for _, event := range events {
			var body struct {
				Data map[string]json.RawMessage `json:"data"`
			}
			if err := json.Unmarshal(event.Body, &body); err != nil {
				return fmt.Errorf("read event %s: %w", event.Type, err)
			}
			delete(body.Data, "call") // it is the same in every event; its end is in the report
			data, err := json.Marshal(body.Data)
			if err != nil {
				return fmt.Errorf("write event %s: %w", event.Type, err)
			}
			at := event.CreatedAt.Sub(r.clock.start)
			r.events = append(r.events, Step{Kind: StepEvent, at: at, AtMS: at.Milliseconds(), Event: event.Type, Data: data})
		}
	}
	return nil
}

// report sums the run up.
func (r *run) report() *Report {
	report := &Report{Path: r.path.with(r.events), UnusedInput: r.stage.cast.unused(), Problems: []string{}}
	switch {
	case r.ended == nil && r.path.overflowed():
		report.Problems = append(report.Problems, fmt.Sprintf("the call did not end within %d steps", maxSteps))
	case r.ended == nil:
		report.Problems = append(report.Problems, fmt.Sprintf("the call did not end within %s", r.s.cfg.Timeout))
	default:
		report.Call = outcome(r.ended)
	}
	for _, place := range report.UnusedInput {
		report.Problems = append(report.Problems, fmt.Sprintf("input[%d] was not used", place))
	}
	report.Problems = append(report.Problems, r.script.Expect.compare(report)...)
	report.OK = len(report.Problems) == 0
	return report
}

func outcome(call *models.Call) Outcome {
	out := Outcome{
		Status: call.Status, Reason: call.Reason, HangupSource: call.HangupSource, SIPCode: call.SIPCode, Variables: call.Variables,
	}
	if call.EndedAt != nil {
		out.Seconds = float64(call.EndedAt.Sub(call.CreatedAt).Milliseconds()) / 1000
	}
	if out.Variables == nil {
		out.Variables = map[string]string{}
	}
	return out
}

// compare says what came out otherwise than expected.
func (e *Expect) compare(report *Report) []string {
	if e == nil {
		e = &Expect{}
	}
	var problems []string
	differs := func(what, want, got string) {
		if want != "" && want != got {
			problems = append(problems, fmt.Sprintf("%s is %q, expected %q", what, got, want))
		}
	}
	differs("status", e.Status, report.Call.Status)
	differs("reason", e.Reason, report.Call.Reason)
	names := make([]string, 0, len(e.Variables))
	for name := range e.Variables {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if got, ok := report.Call.Variables[name]; !ok || got != e.Variables[name] {
			problems = append(problems, fmt.Sprintf("variable %s is %q, expected %q", name, got, e.Variables[name]))
		}
	}
	var verbs []string
	var errors []string
	for _, step := range report.Path {
		switch {
		case step.Kind == StepAction:
			verbs = append(verbs, step.Action)
		case step.Kind == StepEvent && step.Event == "call.error":
			errors = append(errors, message(step.Data))
		}
	}
	if e.Actions != nil && !slices.Equal(e.Actions, verbs) {
		problems = append(problems, fmt.Sprintf("the actions are %q, expected %q", verbs, e.Actions))
	}
	switch {
	case e.Errors == nil:
		for _, text := range errors {
			problems = append(problems, "error: "+text)
		}
	case *e.Errors != len(errors):
		problems = append(problems, fmt.Sprintf("there are %d errors, expected %d: %q", len(errors), *e.Errors, errors))
	}
	return problems
}

// message is what an error event says.
func message(data json.RawMessage) string {
	var said struct {
		Code    string `json:"code"`
		Path    string `json:"path"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(data, &said); err != nil {
		return string(data)
	}
	if said.Path != "" {
		return said.Code + ": " + said.Path + ": " + said.Message
	}
	return said.Code + ": " + said.Message
}
