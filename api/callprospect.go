package api

import (
	"errors"

	"tandem/billing"
	"tandem/calls"
	"tandem/models"
)

// rateObject is what a leg was promised to cost.
type rateObject struct {
	Prefix           string `json:"prefix" doc:"The digits that the number begins with; empty for every number." example:"4420"`
	Destination      string `json:"destination" doc:"What the rate deck calls them." example:"United Kingdom, London"`
	PerMinute        string `json:"per_minute" doc:"Price of a minute, in units of the currency, exact." example:"0.012"`
	PerMinuteMicros  int64  `json:"per_minute_micros"`
	Connect          string `json:"connect" doc:"Connection fee." example:"0.00"`
	ConnectMicros    int64  `json:"connect_micros"`
	ConnectOn        string `json:"connect_on" enum:"answer,attempt" doc:"When the connection fee is due: once somebody has answered, or for each attempt."`
	MinimumSeconds   int    `json:"minimum_seconds" doc:"The least that an answered leg is billed."`
	IncrementSeconds int    `json:"increment_seconds" doc:"The unit of billing: each started one counts whole."`
}

func toRate(r *models.Rate) rateObject {
	on := r.ConnectOn
	if on == "" {
		on = models.ConnectOnAnswer
	}
	return rateObject{
		Prefix: r.Prefix, Destination: r.Destination, PerMinute: billing.FormatAmount(r.PerMinuteMicros), PerMinuteMicros: r.PerMinuteMicros,
		Connect: billing.FormatAmount(r.ConnectMicros), ConnectMicros: r.ConnectMicros, ConnectOn: on, MinimumSeconds: r.MinimumSeconds,
		IncrementSeconds: r.IncrementSeconds,
	}
}

// prospectObject is the answer to a call that is only asked about.
type prospectObject struct {
	DryRun bool          `json:"dry_run" doc:"true: no call was made."`
	Route  routeProspect `json:"route"`
	Rate   rateObject    `json:"rate"`
	// The amounts are of the customer's currency.
	Hold           string `json:"hold" doc:"What would be held of the balance at first, in units of the currency." example:"0.024"`
	HoldMicros     int64  `json:"hold_micros"`
	GrantedSeconds int    `json:"granted_seconds" doc:"For how long that pays. A call that lasts longer is held more for before."`
	LongestSeconds int    `json:"longest_seconds" doc:"How long the call could last if nothing else used the balance; at most the longest that a call may last."`
}

// routeProspect is by what way a call would be dialled first.
type routeProspect struct {
	TrunkID     string  `json:"trunk_id" example:"trunk_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	GatewayName string  `json:"gateway_name"`
	Number      string  `json:"number" doc:"What the carrier would be told to dial."`
	CallerID    *string `json:"caller_id" doc:"The number that would be shown; null for what the node shows."`
}

// foresee answers what creating a call would come to.
func (s *Server) foresee(r *request, wanted calls.CreateRequest) (any, error) {
	p, err := s.calls.Foresee(r.ctx, wanted)
	if errors.Is(err, models.ErrNotFound) {
		return nil, noApplication() // deleted since it was looked up
	}
	if err != nil {
		return nil, err
	}
	return prospectObject{
		DryRun: true,
		Route:  routeProspect{TrunkID: p.Trunk.ID, GatewayName: p.Trunk.GatewayName, Number: p.Number, CallerID: orNil(p.CallerID)},
		Rate:   toRate(&p.Offer.Rate), Hold: billing.FormatAmount(p.Offer.HoldMicros), HoldMicros: p.Offer.HoldMicros,
		GrantedSeconds: p.Offer.GrantedSeconds, LongestSeconds: p.Offer.LongestSeconds,
	}, nil
}
