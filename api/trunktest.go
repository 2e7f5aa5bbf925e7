package api

import (
	"errors"
	"time"

	"tandem/dialplan"
	"tandem/models"
)

// Bounds of how long the call of a trunk's test may take until it rings, in seconds.
const (
	minTestRing = 5
	maxTestRing = 30
)

// trunkTestCreate says what to test beyond what is always tested.
type trunkTestCreate struct {
	To      *string `json:"to" doc:"An E.164 number to call, for a real call over the carrier that ends as soon as it rings. Without it none is made."`
	From    *string `json:"from" doc:"The E.164 number that the call shows, where caller_id_policy lets it."`
	Timeout *int    `json:"timeout" minimum:"5" maximum:"30" doc:"How long the call may take until it rings, in seconds. Default 15."`
}

// trunkReport is what a test has found.
type trunkReport struct {
	TrunkID    string      `json:"trunk_id"`
	Outcome    string      `json:"outcome" enum:"ok,warning,failed" doc:"The worst of the steps'."`
	DurationMS int64       `json:"duration_ms"`
	Steps      []trunkStep `json:"steps"`
}

// trunkStep is what one step of it has found.
type trunkStep struct {
	Step       string   `json:"step" enum:"configuration,dns,reachability,options,register,invite"`
	Outcome    string   `json:"outcome" enum:"ok,warning,failed,skipped"`
	Summary    string   `json:"summary" doc:"What was found, in a sentence."`
	Evidence   []string `json:"evidence" doc:"What shows it: records, answers, times; a line each."`
	Advice     string   `json:"advice,omitempty" doc:"What to do about it."`
	DurationMS int64    `json:"duration_ms"`
}

func toTrunkReport(r *dialplan.TrunkReport) trunkReport {
	report := trunkReport{TrunkID: r.TrunkID, Outcome: r.Outcome, DurationMS: r.Took.Milliseconds(), Steps: []trunkStep{}}
	for i := range r.Steps {
		step := &r.Steps[i]
		report.Steps = append(report.Steps, trunkStep{
			Step: step.Name, Outcome: step.Outcome, Summary: step.Summary, Evidence: append([]string{}, step.Evidence...), Advice: step.Advice,
			DurationMS: step.Took.Milliseconds(),
		})
	}
	return report
}

func (s *Server) testTrunk(r *request) (any, error) {
	in := body[trunkTestCreate](r)
	c := &checks{}
	test := dialplan.TrunkTest{}
	if in.To != nil {
		test.To = c.number("to", in.To)
	}
	if in.From != nil {
		test.From = c.number("from", in.From)
	}
	test.Ring = time.Duration(c.between("timeout", in.Timeout, minTestRing, maxTestRing)) * time.Second
	if err := c.failed(); err != nil {
		return nil, err
	}
	customer, err := s.customerOfTrunk(r, r.params["id"])
	if err != nil {
		return nil, err
	}
	trunk, err := s.store.Trunk(r.ctx, customer, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "trunk")
	}
	if trunk.Direction != models.Outbound {
		return nil, &Error{Code: codeInvalidRequest, Field: "id", Message: "only outbound trunks can be tested: an inbound one is tested by a call to it"}
	}
	if test.To != "" && r.operator == nil {
		if err := mayCall(r.ctx, s.store, customer, "to", test.To, ""); err != nil {
			return nil, err
		}
	}
	if s.dialplan == nil {
		return nil, &Error{Code: codeNoNodeAvailable, Message: "this service has no nodes that could test a trunk"}
	}
	// A test takes longer than a request of ours may, and bounds itself.
	report, err := s.dialplan.TestTrunk(s.base, trunk, test)
	if errors.Is(err, dialplan.ErrTestBusy) {
		return nil, &Error{Code: codeRateLimited, Message: "the trunk is being tested already, or too many others are; try again", RetryAfter: retryDefault}
	}
	if err != nil {
		return nil, err
	}
	return toTrunkReport(report), nil
}
