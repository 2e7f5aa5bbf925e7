package calls

import (
	"context"
	"errors"
	"fmt"

	"tandem/models"
	"tandem/numbering"
)

// DestinationError says that the customer's limits do not let calls go there. Why names the entry that says so.
type DestinationError struct{ Why string }

// Error says why.
func (e *DestinationError) Error() string {
	return "the customer may not call there: " + e.Why
}

// Kinds of what the limits of customers refuse, for Observer.
const (
	RefusedDestination = "destination"
	RefusedMaxCalls    = "max_calls"
	RefusedMaxRate     = "max_calls_per_second"
)

func policyOf(limits *models.CustomerLimits) numbering.Policy {
	return numbering.Policy{Allow: limits.AllowedDestinations, Deny: limits.DeniedDestinations}
}

// mayCall returns a *DestinationError where the limits of a customer do not allow a number, or a SIP URI where number is empty.
func (m *Manager) mayCall(customerID string, limits *models.CustomerLimits, number, uri string) error {
	policy := policyOf(limits)
	verdict := policy.Number(number)
	if number == "" {
		verdict = policy.SIP(uri)
	}
	if verdict.Allowed {
		return nil
	}
	m.cfg.Observer.Refused(RefusedDestination)
	m.cfg.Logger.Warn("destination not allowed", "customer_id", customerID, "to", models.MaskedNumber(number), "reason", verdict.String())
	return &DestinationError{verdict.String()}
}

// refused counts a call or party that a customer's limits refuse, where err says that they do.
func (m *Manager) refused(err error) error {
	if full := (*models.CustomerFullError)(nil); errors.As(err, &full) {
		m.cfg.Observer.Refused(full.Limit)
		m.cfg.Logger.Warn("customer takes no more calls now", "customer_id", full.CustomerID, "limit", full.Limit)
	}
	return err
}

// mayCallTarget reads the limits and checks a target of the session's call. It returns a *DestinationError, or what waiting for the
// database ends with.
func (s *session) mayCallTarget(number, uri string) error {
	limits, err := s.limits()
	if err != nil {
		return err
	}
	return s.m.mayCall(s.call.CustomerID, limits, number, uri)
}

// limits are those of the call's customer: while the database is away, as they were last read.
func (s *session) limits() (*models.CustomerLimits, error) {
	for {
		page, err := s.knownPage()
		if err == nil {
			return &page.limits, nil
		}
		if !storeAway(err) {
			return nil, err
		}
		s.m.outage.begin()
		if err := s.await(s.m.outage.ended(), nil); err != nil {
			return nil, err
		}
	}
}

// refuseTarget tells of a party that is not called because of the customer's limits. A controller that goes on with the action does not tell again.
func (d *dialing) refuseTarget(verb string, i int, reason, why string) error {
	d.parties[i].refused = reason
	if d.s.resumed != nil {
		return nil
	}
	field := "to"
	if d.kind == models.LegDial {
		field = fmt.Sprintf("to[%d]", i)
	}
	return d.s.failVerb(verb, reason, field, why)
}

// allow refuses the parties that the customer's limits do not let the call dial.
func (d *dialing) allow(verb string) error {
	limits, err := d.s.limits()
	if err != nil {
		return err
	}
	d.bounded = limits.Bounded()
	for i, party := range d.parties {
		denied := (*DestinationError)(nil)
		if errors.As(d.s.m.mayCall(d.s.call.CustomerID, limits, party.target.Number, party.target.SIP), &denied) {
			if err := d.refuseTarget(verb, i, ReasonDestination, denied.Error()); err != nil {
				return err
			}
		}
	}
	return nil
}

// take has a transaction that inserts a leg count it. An attempt to reach the same party over another trunk is not another beginning.
func (d *dialing) take(ctx context.Context, tx *models.Store, l *leg) {
	if !d.bounded || d.resumed != nil {
		return
	}
	b := models.Beginning{Lives: 1}
	if l.party.tried == 1 {
		b.Starts = 1
	}
	tx.TakeCustomer(ctx, l.row.CustomerID, b)
}

// makeDo takes back a round that was not begun because the customer would have more calls than it may: the first parties are called for whom there is
// room, the others are refused.
func (d *dialing) makeDo(legs []*leg, err error) error {
	full := (*models.CustomerFullError)(nil)
	errors.As(d.s.m.refused(err), &full)
	d.legs = d.legs[:len(d.legs)-len(legs)]
	for n, l := range legs {
		if n < full.Room {
			l.party.tried--
			continue
		}
		if err := d.refuseTarget(d.verb(), l.party.index, ReasonCustomerLimit, "the account has all the calls that it may have: "+full.Limit); err != nil {
			return err
		}
	}
	return nil
}

// refusals are the parties that were not called because of the customer's limits, as results tell of them.
func (d *dialing) refusals() []any {
	var all []any
	for _, party := range d.parties {
		if party.refused != "" {
			all = append(all, map[string]any{"to": targetName(party.target), "reason": party.refused})
		}
	}
	return all
}

// beginningOf is what a call counts for among those of its customer. Whoever calls in is not slowed down by how fast the customer calls out.
func beginningOf(call *models.Call) models.Beginning {
	if call.Direction == DirectionOutbound {
		return models.Beginning{Lives: 1, Starts: 1}
	}
	return models.Beginning{Lives: 1}
}
