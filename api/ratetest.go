package api

import (
	"errors"
	"fmt"
	"time"

	"tandem/billing"
	"tandem/models"
)

var rateTestQuery = []param{
	{name: "number", kind: "string", doc: "What is dialled or, inbound, the number that is called: E.164, or a SIP URI."},
	{name: "direction", kind: "string", enum: []string{models.Outbound, models.Inbound}, doc: "Default outbound."},
	{name: "customer", kind: "string", doc: "Whose call it is; without one, of a customer with the configured currency and no deck."},
	{name: "trunk", kind: "string", doc: "What it goes over."},
	{name: "on", kind: "string", doc: "A day or a moment. Default now."},
}

var ratesQuery = []param{
	{name: "number", kind: "string", doc: "What is dialled or, inbound, your number that is called: E.164, or a SIP URI."},
	{name: "direction", kind: "string", enum: []string{models.Outbound, models.Inbound}, doc: "Default outbound."},
	{name: "trunk_id", kind: "string", doc: "The trunk that it goes over, where its price is another one."},
}

// Outcomes of the search for a rate.
const (
	outcomeRate          = "rate"
	outcomeConfiguration = "configuration"
	outcomeRefused       = "refused"
)

// rateStep is a deck that was asked, and what it said.
type rateStep struct {
	DeckID string          `json:"deck_id"`
	Deck   string          `json:"deck" doc:"Its name."`
	Of     string          `json:"of" enum:"trunk,customer,default" doc:"Whose deck it is."`
	Answer string          `json:"answer" enum:"rate,next,refuse"`
	Rate   *deckRateObject `json:"rate" doc:"null where it has none for the number."`
	Why    string          `json:"why" doc:"The same for people."`
}

// rateTestObject is what a call would cost, and why.
type rateTestObject struct {
	Number     string       `json:"number"`
	Direction  string       `json:"direction" enum:"outbound,inbound"`
	On         string       `json:"on" format:"date-time"`
	Currency   string       `json:"currency"`
	CustomerID *string      `json:"customer_id"`
	TrunkID    *string      `json:"trunk_id"`
	Steps      []rateStep   `json:"steps" doc:"The decks that were asked, in order; the last one has decided, unless the outcome is configuration."`
	Outcome    string       `json:"outcome" enum:"rate,configuration,refused" doc:"configuration: no deck has a rate, and the configured price counts."`
	Price      *priceObject `json:"price" doc:"null where the call is refused."`
	Unanswered string       `json:"unanswered" doc:"What an attempt costs that nobody answers." example:"0.00"`
	Costs      []costObject `json:"costs" doc:"What answered calls cost; empty where the call is refused."`
}

// ratesObject is what a call costs a customer.
type ratesObject struct {
	Number     string       `json:"number"`
	Direction  string       `json:"direction" enum:"outbound,inbound"`
	Currency   string       `json:"currency"`
	Refused    bool         `json:"refused" doc:"There is no price for the number: calls are refused."`
	Rate       *rateObject  `json:"rate" doc:"null where calls are refused."`
	Unanswered string       `json:"unanswered" doc:"What an attempt costs that nobody answers." example:"0.00"`
	Costs      []costObject `json:"costs" doc:"What answered calls cost; empty where calls are refused."`
}

// rateSearch is the question what a call costs.
type rateSearch struct {
	number, direction, currency string
	trunkDeck, customerDeck     string
	at                          time.Time
}

// ratePrice is its answer: what the decks said, and the rate, nil where the call is refused.
type ratePrice struct {
	answers []models.DeckAnswer
	outcome string
	rate    *models.Rate
}

func (s *Server) priceOf(r *request, q *rateSearch) (*ratePrice, error) {
	decks, err := s.store.DecksFor(r.ctx, q.currency, q.trunkDeck, q.customerDeck)
	if err != nil {
		return nil, err
	}
	answers, err := s.store.EffectiveRate(r.ctx, decks, q.direction, q.number, q.at)
	if err != nil {
		return nil, err
	}
	price := &ratePrice{answers: answers, outcome: outcomeConfiguration}
	if last := len(answers) - 1; last >= 0 && answers[last].Rate != nil {
		rate := answers[last].Rate.Rate()
		price.outcome, price.rate = outcomeRate, &rate
		return price, nil
	} else if last >= 0 && answers[last].Refuses() {
		price.outcome = outcomeRefused
		return price, nil
	}
	flat := s.flatRate(q.direction, q.number)
	price.rate = &flat
	return price, nil
}

// shown is the price, what calls cost at it, and an attempt that nobody answers.
func (p *ratePrice) shown() (*priceObject, []costObject, string) {
	if p.rate == nil {
		return nil, []costObject{}, billing.FormatAmount(0)
	}
	price := toPrice(p.rate)
	return &price, toCosts(p.rate), billing.FormatAmount(p.rate.Cost(false, 0))
}

func (s *Server) testRate(r *request) (any, error) {
	c := &checks{}
	q := &rateSearch{number: c.dialled("number", r.param("number")), direction: models.Outbound, currency: s.currency, at: s.store.Now()}
	if r.param("direction") != nil {
		q.direction = c.oneOf("direction", r.param("direction"), models.Outbound, models.Inbound)
	}
	if at := c.moment("on", r.param("on")); at != nil {
		q.at = *at
	}
	customer, trunk := c.id("customer", r.param("customer")), c.id("trunk", r.param("trunk"))
	if err := c.failed(); err != nil {
		return nil, err
	}
	answer := rateTestObject{Number: q.number, Direction: q.direction, On: stamp(q.at), Steps: []rateStep{}}
	if trunk != "" {
		found, err := s.store.TrunkByID(r.ctx, trunk)
		if err == nil && (found.DeletedAt != nil || customer != "" && customer != found.CustomerID) {
			err = models.ErrNotFound
		}
		if err != nil {
			return nil, orNotFoundIn("trunk", err)
		}
		q.trunkDeck, customer, answer.TrunkID = found.RateDeckID, found.CustomerID, &found.ID
	}
	if customer != "" {
		found, err := s.store.Customer(r.ctx, customer)
		if err != nil {
			return nil, orNotFoundIn("customer", err)
		}
		q.customerDeck, q.currency, answer.CustomerID = found.RateDeckID, found.Currency, &found.ID
	}
	price, err := s.priceOf(r, q)
	if err != nil {
		return nil, err
	}
	for i := range price.answers {
		answer.Steps = append(answer.Steps, toStep(&price.answers[i], q))
	}
	answer.Currency, answer.Outcome = q.currency, price.outcome
	answer.Price, answer.Costs, answer.Unanswered = price.shown()
	return answer, nil
}

// orNotFoundIn says that what a query parameter names is not there.
func orNotFoundIn(field string, err error) error {
	if errors.Is(err, models.ErrNotFound) {
		return &Error{Code: codeNotFound, Field: field, Message: field + " not found"}
	}
	return err
}

func toStep(a *models.DeckAnswer, q *rateSearch) rateStep {
	step := rateStep{DeckID: a.Deck.ID, Deck: a.Deck.Name, Of: "default"}
	switch a.Deck.ID {
	case q.trunkDeck:
		step.Of = "trunk"
	case q.customerDeck:
		step.Of = "customer"
	}
	switch {
	case a.Rate != nil:
		rate := toDeckRate(a.Rate)
		step.Answer, step.Rate = "rate", &rate
		step.Why = fmt.Sprintf("its longest prefix that fits and is valid then is %s", rate.Prefix)
		if rate.ValidTo != nil {
			step.Why += ", until " + *rate.ValidTo
		}
	case a.Refuses():
		step.Answer, step.Why = "refuse", "it has no rate for the number, and has such calls refused"
	default:
		step.Answer, step.Why = "next", "it has no rate for the number"
	}
	return step
}

func (s *Server) getRates(r *request) (any, error) {
	c := &checks{}
	q := &rateSearch{number: c.dialled("number", r.param("number")), direction: models.Outbound, at: s.store.Now()}
	if r.param("direction") != nil {
		q.direction = c.oneOf("direction", r.param("direction"), models.Outbound, models.Inbound)
	}
	trunk := c.id("trunk_id", r.param("trunk_id"))
	if err := c.failed(); err != nil {
		return nil, err
	}
	customer, err := s.store.Customer(r.ctx, r.customer)
	if err != nil {
		return nil, orNotFound(err, "customer")
	}
	q.customerDeck, q.currency = customer.RateDeckID, customer.Currency
	if trunk != "" {
		found, err := s.store.Trunk(r.ctx, r.customer, trunk)
		if err != nil {
			return nil, orNotFoundIn("trunk_id", err)
		}
		q.trunkDeck = found.RateDeckID
	}
	price, err := s.priceOf(r, q)
	if err != nil {
		return nil, err
	}
	answer := ratesObject{Number: q.number, Direction: q.direction, Currency: q.currency, Refused: price.rate == nil}
	if price.rate != nil {
		rate := toRate(price.rate)
		answer.Rate = &rate
	}
	_, answer.Costs, answer.Unanswered = price.shown()
	return answer, nil
}
