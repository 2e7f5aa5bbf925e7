package billing

import (
	"context"
	"errors"
	"fmt"

	"tandem/models"
)

// ErrUnlisted says that a deck has no rate for a number, and that calls to what it does not list are refused.
var ErrUnlisted = errors.New("the rate deck has no rate for the number")

// Leg is what a price is asked for.
type Leg struct {
	CustomerID string
	// Direction is models.Outbound or models.Inbound.
	Direction string
	// Number is the number that is called in E.164, models.PrefixSIP for a SIP URI.
	Number string
	// TrunkDeckID is the deck of the trunk that the leg goes over or comes by, empty for none.
	TrunkDeckID string
}

// Flat is the price of the configuration: what a leg costs that no deck is for. A SIP URI is free.
func (r *Rater) Flat(direction, number string) models.Rate {
	rate := models.Rate{IncrementSeconds: r.cfg.IncrementSeconds, PerMinuteMicros: r.cfg.InboundPerMinuteMicros}
	if direction == models.Outbound {
		rate.PerMinuteMicros = r.cfg.OutboundPerMinuteMicros
	}
	if number == models.PrefixSIP {
		rate.PerMinuteMicros = 0
	}
	return rate
}

// Quote returns what a leg that begins now costs: by the deck of its trunk, then that of the customer, then the default one of the customer's
// currency, then the prices of the configuration. ErrUnlisted where a deck refuses what it does not list, models.ErrNotFound for a customer that
// there is not.
func (r *Rater) Quote(ctx context.Context, store *models.Store, leg Leg) (models.Rate, error) {
	customer, err := store.Customer(ctx, leg.CustomerID)
	if err != nil {
		return models.Rate{}, err
	}
	return r.quote(ctx, store, customer, leg)
}

func (r *Rater) quote(ctx context.Context, store *models.Store, customer *models.Customer, leg Leg) (models.Rate, error) {
	decks, err := store.DecksFor(ctx, customer.Currency, leg.TrunkDeckID, customer.RateDeckID)
	if err != nil {
		return models.Rate{}, err
	}
	answers, err := store.EffectiveRate(ctx, decks, leg.Direction, leg.Number, store.Now())
	if err != nil {
		return models.Rate{}, err
	}
	if len(answers) > 0 {
		switch last := &answers[len(answers)-1]; {
		case last.Rate != nil:
			return last.Rate.Rate(), nil
		case last.Refuses():
			return models.Rate{}, fmt.Errorf("deck %q, %s %s: %w", last.Deck.ID, leg.Direction, models.MaskedNumber(leg.Number), ErrUnlisted)
		}
	}
	return r.Flat(leg.Direction, leg.Number), nil
}
