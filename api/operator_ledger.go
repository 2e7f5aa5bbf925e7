package api

import (
	"net/http"

	"tandem/models"
)

// ledgerVerdict says whether money adds up.
type ledgerVerdict struct {
	Holds      bool     `json:"holds" doc:"Whether every invariant holds."`
	Violations []string `json:"violations" doc:"What breaks one, in words."`
}

// differenceObject is an ended call that was billed other seconds than its switch recorded.
type differenceObject struct {
	CallID        string `json:"call_id"`
	NodeID        string `json:"node_id"`
	ChannelID     string `json:"channel_id"`
	BilledSeconds int    `json:"billed_seconds"`
	CDRSeconds    int    `json:"cdr_seconds" doc:"What the switch recorded."`
	FoundAt       string `json:"found_at" format:"date-time"`
}

func (s *Server) operatorLedgerRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/operator/v1/ledger/verify", id: "verifyLedger", tag: "ledger", summary: "Check the invariants of all balances",
			details: "A balance is the sum of its ledger, what is held the sum of the open holds, and each call is debited once, what it cost. It reads all of the ledger.",
			role:    models.RoleViewer, status: ok, response: ledgerVerdict{}, handle: s.verifyLedger},
		{method: http.MethodGet, path: "/operator/v1/ledger/differences", id: "listDifferences", tag: "ledger", summary: "List calls that were billed other seconds than their switch recorded",
			details: "Newest first. No money is moved for them.",
			role:    models.RoleViewer, status: ok, response: list[differenceObject]{}, handle: s.listDifferences},
	}
}

func (s *Server) verifyLedger(r *request) (any, error) {
	violations, err := s.store.VerifyLedger(r.ctx)
	if err != nil {
		return nil, err
	}
	if violations == nil {
		violations = []string{}
	}
	return ledgerVerdict{Holds: len(violations) == 0, Violations: violations}, nil
}

func (s *Server) listDifferences(r *request) (any, error) {
	found, err := s.store.BillingDifferences(r.ctx)
	if err != nil {
		return nil, err
	}
	return listOf(found, "", func(d *models.BillingDifference) differenceObject {
		return differenceObject{
			CallID: d.CallID, NodeID: d.NodeID, ChannelID: d.ChannelID, BilledSeconds: d.BilledSeconds, CDRSeconds: d.CDRSeconds, FoundAt: stamp(d.FoundAt),
		}
	}), nil
}
