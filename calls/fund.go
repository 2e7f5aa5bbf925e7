package calls

import (
	"context"
	"errors"

	"tandem/billing"
	"tandem/models"
)

// A call's hold is for all of its legs: what it holds lasts the shorter the more of them run. A party is dialled when what is held pays for all of them
// for the least that a call is granted; where it does not, more is held, and where that cannot be had, the party is not called. The switch has the
// earlier cap before it is told to dial.

// fund prices the parties of a round, each by the first of its ways whose deck has a price, and sees to it that they are paid for. It returns those that
// are: the first ones for which the balance lasts.
func (d *dialing) fund(legs []*leg) ([]*leg, error) {
	s := d.s
	var priced []*leg
	for _, l := range legs {
		err := s.price(l)
		for errors.Is(err, billing.ErrUnlisted) {
			next := d.legTo(l.party)
			if next == nil {
				break
			}
			l, err = next, s.price(next)
		}
		switch {
		case errors.Is(err, billing.ErrUnlisted) && l.party.begun: // it ends with what the trunks before said
		case errors.Is(err, billing.ErrUnlisted):
			if err := d.refuseTarget(d.verb(), l.party.index, ReasonDestination, "there is no rate for the number"); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		default:
			priced = append(priced, l)
		}
	}
	for len(priced) > 0 {
		err := s.extend(priced...)
		if unpaid(err) {
			reason, why := ReasonInsufficientBalance, "the balance does not pay for another party"
			if errors.Is(err, models.ErrSpendLimit) {
				reason, why = ReasonSpendLimit, err.Error()
			}
			last := priced[len(priced)-1]
			priced = priced[:len(priced)-1]
			if err := d.refuseTarget(d.verb(), last.party.index, reason, why); err != nil {
				return nil, err
			}
			continue
		}
		return priced, err
	}
	return nil, nil
}

// price gives a party the rate that it is promised. While the database is away, where only the prices of the configuration are used, it is one of these.
func (s *session) price(l *leg) error {
	number := l.target.Number
	asked := billing.Leg{CustomerID: s.call.CustomerID, Direction: models.Outbound, Number: number}
	if number == "" {
		asked.Number = models.PrefixSIP
	}
	if l.over != nil {
		asked.TrunkDeckID = l.over.trunk.RateDeckID
	}
	rate, err := s.quote(asked)
	if err == nil {
		l.row.Rate = &rate
	}
	return err
}

// quote asks for the price of a leg, and waits for a database that is away where decks have to be looked into.
func (s *session) quote(leg billing.Leg) (models.Rate, error) {
	page, known := s.m.trunks.known(s.call.CustomerID)
	if away := s.m.outage.err() != nil; away && known && !page.decks {
		return s.m.cfg.Rater.Flat(leg.Direction, leg.Number), nil
	}
	var rate models.Rate
	var unlisted error
	err := s.lookUp("read the price", func(ctx context.Context) (err error) {
		rate, err = s.m.cfg.Rater.Quote(ctx, s.m.cfg.Store, leg)
		if errors.Is(err, billing.ErrUnlisted) {
			unlisted, err = err, nil
		}
		return err
	})
	return rate, errors.Join(err, unlisted)
}

// verb is the action's.
func (d *dialing) verb() string {
	if d.kind == models.LegTransfer {
		return "transfer"
	}
	return "dial"
}
