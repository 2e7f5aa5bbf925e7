package api

import "tandem/models"

// rateObject is what a leg was promised to cost.
type rateObject struct {
	DeckID           *string `json:"deck_id" doc:"The rate deck; null for the price of the configuration."`
	Prefix           *string `json:"prefix" doc:"The digits that the number begins with; null where the rate is for every number."`
	Destination      *string `json:"destination" doc:"What the deck calls them."`
	PerMinute        string  `json:"per_minute" doc:"In units of the currency, exact to six decimals." example:"0.012000"`
	PerMinuteMicros  int64   `json:"per_minute_micros"`
	Connect          string  `json:"connect" doc:"The connection fee." example:"0.000000"`
	ConnectMicros    int64   `json:"connect_micros"`
	ConnectOn        string  `json:"connect_on" enum:"answer,attempt" doc:"When the connection fee is due: once somebody has answered, or for every attempt."`
	MinimumSeconds   int     `json:"minimum_seconds" doc:"The least that an answered leg is billed."`
	IncrementSeconds *int    `json:"increment_seconds" doc:"The unit of billing: each one begun counts whole. null for calls that ended before bills had lines."`
}

// chargeObject is a line of a call's bill.
type chargeObject struct {
	LegID         string     `json:"leg_id" doc:"The leg; the call's own id for the call itself."`
	Kind          string     `json:"kind" doc:"call: the call itself; dial, transfer, queue, attempt: another leg; waived: what a call cost beyond what there was to pay it, which nobody pays." example:"call"`
	Target        string     `json:"target" doc:"The number or SIP URI that was called."`
	TrunkID       *string    `json:"trunk_id"`
	Rate          rateObject `json:"rate"`
	Answered      bool       `json:"answered"`
	Seconds       int        `json:"seconds" doc:"For how long it was answered, as the switch counted."`
	BilledSeconds int64      `json:"billed_seconds" doc:"For how long it was charged: whole increments, at least the minimum."`
	Amount        string     `json:"amount" doc:"What it cost, exact to six decimals; negative where it is waived." example:"0.010000"`
	AmountMicros  int64      `json:"amount_micros"`
	CreatedAt     string     `json:"created_at" format:"date-time" doc:"When the call was settled."`
}

func toRate(rate *models.Rate) rateObject {
	on := rate.ConnectOn
	if on == "" {
		on = models.ConnectOnAnswer
	}
	return rateObject{
		DeckID: orNil(rate.DeckID), Prefix: orNil(rate.Prefix), Destination: orNil(rate.Destination),
		PerMinute: amount(rate.PerMinuteMicros), PerMinuteMicros: rate.PerMinuteMicros, Connect: amount(rate.ConnectMicros), ConnectMicros: rate.ConnectMicros,
		ConnectOn: on, MinimumSeconds: rate.MinimumSeconds, IncrementSeconds: orNilNumber(rate.IncrementSeconds),
	}
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
