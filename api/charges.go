package api

import "tandem/models"

// chargeObject is a line of a call's bill.
type chargeObject struct {
	LegID         string     `json:"leg_id" doc:"The leg; the call's own id for the call itself."`
	Kind          string     `json:"kind" doc:"call: the call itself; dial, transfer, queue, attempt: another leg; waived: what a call cost beyond what there was to pay it, which nobody pays." example:"call"`
	Target        string     `json:"target" doc:"The number or SIP URI that was called."`
	TrunkID       *string    `json:"trunk_id"`
	Rate          rateObject `json:"rate" doc:"increment_seconds is 0 for calls that ended before bills had lines."`
	Answered      bool       `json:"answered"`
	Seconds       int        `json:"seconds" doc:"For how long it was answered, as the switch counted."`
	BilledSeconds int64      `json:"billed_seconds" doc:"For how long it was charged: whole increments, at least the minimum."`
	Amount        string     `json:"amount" doc:"What it cost, exact to six decimals; negative where it is waived." example:"0.010000"`
	AmountMicros  int64      `json:"amount_micros"`
	CreatedAt     string     `json:"created_at" format:"date-time" doc:"When the call was settled."`
}

func toCharge(line *models.Charge) chargeObject {
	return chargeObject{
		LegID: line.LegID, Kind: line.Kind, Target: line.Target, TrunkID: line.TrunkID, Rate: toRate(&line.Rate), Answered: line.Answered,
		Seconds: line.BilledSeconds, BilledSeconds: line.ChargedSeconds, Amount: amount(line.AmountMicros), AmountMicros: line.AmountMicros, CreatedAt: stamp(line.CreatedAt),
	}
}

func (s *Server) listCharges(r *request) (any, error) {
	call, err := s.store.Call(r.ctx, r.customer, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "call")
	}
	return s.chargesOf(r, call)
}

// chargesOf answers with the lines of a call's bill, which it has once it is settled.
func (s *Server) chargesOf(r *request, call *models.Call) (any, error) {
	lines, err := s.store.ChargesOf(r.ctx, call.CustomerID, call.ID)
	if err != nil {
		return nil, err
	}
	return listOf(lines, "", toCharge), nil
}
