package api

import (
	"strconv"
	"strings"
	"time"

	"tandem/billing"
	"tandem/models"
)

// Bounds of a rate; docs/rates.md lists them.
const (
	// maxRateMicros is a million units of the currency, for a minute or for a connection.
	maxRateMicros = 1_000_000 * 1_000_000
	// maxRateSeconds bounds minimum and increment.
	maxRateSeconds = 3600
	// defaultIncrement is the increment, in seconds, of a rate that names none.
	defaultIncrement = 60
	// maxPrefixDigits is what an E.164 number has at most.
	maxPrefixDigits = 15
	// prefixEvery stands for the prefix of rates for every number, which is empty.
	prefixEvery = "*"
)

// rateCreate are the fields of a rate as a request names them, and a record of a file.
type rateCreate struct {
	Direction   *string `json:"direction" enum:"outbound,inbound" doc:"Default outbound."`
	Prefix      *string `json:"prefix" required:"true" doc:"The first digits of the numbers, with or without a plus; * for every number, sip for SIP URIs." example:"3120"`
	Destination *string `json:"destination" max:"100" doc:"What they are called." example:"Netherlands, Amsterdam"`
	PerMinute   *string `json:"per_minute" required:"true" doc:"Price of a minute in units of the deck's currency, with at most six decimals." example:"0.0125"`
	Connect     *string `json:"connect" doc:"Connection fee. Default 0." example:"0.01"`
	ConnectOn   *string `json:"connect_on" enum:"answer,attempt" doc:"When it is due: when somebody answers, or with each attempt that a carrier was given. Default answer."`
	Billing     *string `json:"billing" doc:"minimum/increment in seconds, instead of the two fields." example:"60/1"`
	Minimum     *int    `json:"minimum" minimum:"0" maximum:"3600" doc:"The least that an answered call is billed, in seconds. Default 0."`
	Increment   *int    `json:"increment" minimum:"1" maximum:"3600" doc:"The unit of billing in seconds: one that has begun is paid. Default 60."`
	ValidFrom   *string `json:"valid_from" doc:"A moment, or a day, which begins at midnight UTC; to the second. Default now." example:"2026-02-01"`
	ValidTo     *string `json:"valid_to" doc:"When it ends; without it never, or where the next rate of the prefix begins." example:"2026-03-01"`
}

// deckRateObject is a rate of a deck.
type deckRateObject struct {
	ID        string `json:"id" example:"rate_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	DeckID    string `json:"deck_id" example:"deck_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	Direction string `json:"direction" enum:"outbound,inbound"`
	priceObject
	ValidFrom string  `json:"valid_from" format:"date-time"`
	ValidTo   *string `json:"valid_to" format:"date-time" doc:"null: it does not end."`
	CreatedAt string  `json:"created_at" format:"date-time"`
}

// priceObject is what a call costs, as operators name it who set prices.
type priceObject struct {
	Prefix          string `json:"prefix" doc:"The digits that the number begins with; * for every number, sip for SIP URIs." example:"3120"`
	Destination     string `json:"destination"`
	PerMinute       string `json:"per_minute" example:"0.0125"`
	PerMinuteMicros int64  `json:"per_minute_micros"`
	Connect         string `json:"connect" example:"0.01"`
	ConnectMicros   int64  `json:"connect_micros"`
	ConnectOn       string `json:"connect_on" enum:"answer,attempt"`
	Minimum         int    `json:"minimum" doc:"Seconds."`
	Increment       int    `json:"increment" doc:"Seconds."`
}

// costObject is what an answered call of some seconds costs.
type costObject struct {
	Seconds       int    `json:"seconds"`
	BilledSeconds int64  `json:"billed_seconds"`
	Cost          string `json:"cost" example:"0.0225"`
	CostMicros    int64  `json:"cost_micros"`
}

// costSeconds are the lengths of calls whose cost is told of a price.
var costSeconds = []int{1, 30, 60, 61, 120, 3600}

func toPrice(r *models.Rate) priceObject {
	prefix, due := r.Prefix, r.ConnectOn
	if prefix == "" {
		prefix = prefixEvery
	}
	if due == "" {
		due = models.ConnectOnAnswer
	}
	return priceObject{
		Prefix: prefix, Destination: r.Destination, PerMinute: billing.FormatAmount(r.PerMinuteMicros), PerMinuteMicros: r.PerMinuteMicros,
		Connect: billing.FormatAmount(r.ConnectMicros), ConnectMicros: r.ConnectMicros, ConnectOn: due, Minimum: r.MinimumSeconds, Increment: r.IncrementSeconds,
	}
}

func toDeckRate(r *models.DeckRate) deckRateObject {
	price := r.Rate()
	return deckRateObject{
		ID: r.ID, DeckID: r.DeckID, Direction: r.Direction, priceObject: toPrice(&price), ValidFrom: stamp(r.ValidFrom), ValidTo: stampOrNil(r.ValidTo),
		CreatedAt: stamp(r.CreatedAt),
	}
}

func toCosts(r *models.Rate) []costObject {
	costs := make([]costObject, len(costSeconds))
	for i, seconds := range costSeconds {
		cost := r.Cost(true, seconds)
		costs[i] = costObject{Seconds: seconds, BilledSeconds: r.Billed(seconds), Cost: billing.FormatAmount(cost), CostMicros: cost}
	}
	return costs
}

// rate accepts the fields of a rate; one that does not say from when on it is valid begins at a moment. What is optional may be empty, as in a record.
func (c *checks) rate(in *rateCreate, from time.Time) models.DeckRate {
	rate := models.DeckRate{Direction: models.Outbound, ConnectOn: models.ConnectOnAnswer, IncrementSeconds: defaultIncrement, ValidFrom: from}
	if in.Direction != nil {
		rate.Direction = c.oneOf("direction", in.Direction, models.Outbound, models.Inbound)
	}
	c.required("prefix", in.Prefix)
	rate.Prefix = c.prefix("prefix", in.Prefix)
	rate.Destination = strings.TrimSpace(c.text("destination", in.Destination, maxNameLength))
	c.required("per_minute", in.PerMinute)
	rate.PerMinuteMicros, rate.ConnectMicros = c.price("per_minute", in.PerMinute), c.price("connect", in.Connect)
	if in.ConnectOn != nil {
		rate.ConnectOn = c.oneOf("connect_on", in.ConnectOn, models.ConnectOnAnswer, models.ConnectOnAttempt)
	}
	switch {
	case in.Billing != nil && (in.Minimum != nil || in.Increment != nil):
		c.refuse("billing", "billing says minimum and increment: give it, or these")
	case in.Billing != nil:
		rate.MinimumSeconds, rate.IncrementSeconds = c.billing("billing", *in.Billing)
	default:
		rate.MinimumSeconds = c.between("minimum", in.Minimum, 0, maxRateSeconds)
		if in.Increment != nil {
			rate.IncrementSeconds = c.between("increment", in.Increment, 1, maxRateSeconds)
		}
	}
	if at := c.moment("valid_from", in.ValidFrom); at != nil {
		rate.ValidFrom = *at
	}
	if rate.ValidTo = c.moment("valid_to", in.ValidTo); rate.ValidTo != nil && !rate.ValidTo.After(rate.ValidFrom) {
		c.refuse("valid_to", "valid_to must be after valid_from, %s", stamp(rate.ValidFrom))
	}
	return rate
}

// prefix accepts how numbers begin, and returns it as it is stored.
func (c *checks) prefix(field string, value *string) string {
	if value == nil {
		return ""
	}
	digits := strings.TrimPrefix(*value, "+")
	switch {
	case *value == prefixEvery:
		return ""
	case *value == models.PrefixSIP:
		return models.PrefixSIP
	case digits == "" || len(digits) > maxPrefixDigits || strings.Trim(digits, "0123456789") != "" || digits[0] == '0':
		c.refuse(field, "%s must be the first digits of E.164 numbers, such as 3120 or +3120, at most %d; * for every number, or sip", field, maxPrefixDigits)
		return ""
	}
	return digits
}

// price accepts an amount that a minute or a connection may cost.
func (c *checks) price(field string, value *string) int64 {
	if value == nil {
		return 0
	}
	micros, err := billing.ParseAmount(*value)
	if err != nil || micros < 0 || micros > maxRateMicros {
		c.refuse(field, "%s must be an amount such as 0.0125, between 0 and %d, with at most six decimals", field, maxRateMicros/1_000_000)
		return 0
	}
	return micros
}

// billing accepts minimum and increment in the usual notation.
func (c *checks) billing(field, value string) (minimum, increment int) {
	first, second, found := strings.Cut(value, "/")
	minimum, err := strconv.Atoi(strings.TrimSpace(first))
	increment, err2 := strconv.Atoi(strings.TrimSpace(second))
	if !found || err != nil || err2 != nil || minimum < 0 || increment < 1 || minimum > maxRateSeconds || increment > maxRateSeconds {
		c.refuse(field, "%s must be minimum/increment in seconds, such as 60/1, each at most %d", field, maxRateSeconds)
		return 0, defaultIncrement
	}
	return minimum, increment
}

// moment accepts a timestamp, or a day, which begins at midnight UTC, and cuts it to the second.
func (c *checks) moment(field string, value *string) *time.Time {
	if value == nil {
		return nil
	}
	at, err := parseMoment(*value)
	if err != nil || at.Year() < 1970 {
		c.refuse(field, "%s must be a day such as 2026-01-31, or a timestamp such as 2026-01-31T12:00:00Z", field)
		return nil
	}
	at = at.Truncate(time.Second)
	return &at
}

// dialled accepts what a call goes to, or comes in for: a number, or sip, or a SIP URI, which have the rates of the prefix sip.
func (c *checks) dialled(field string, value *string) string {
	c.required(field, value)
	if value == nil {
		return ""
	}
	if *value == models.PrefixSIP || isSIPURI(*value) {
		return models.PrefixSIP
	}
	number := plus(*value)
	return c.number(field, &number)
}
