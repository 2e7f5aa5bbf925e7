package calls

import (
	"context"
	"errors"
	"fmt"

	"tandem/models"
	"tandem/numbering"
)

// DestinationError says that the limits of the customer, or of the application, do not let calls go there. Subject is models.SubjectCustomer or
// models.SubjectApplication; Why names the entry, or the type of number, that says so.
type DestinationError struct{ Subject, Why string }

// Error says whose limits it is, and why.
func (e *DestinationError) Error() string {
	return "the " + e.Subject + " may not call there: " + e.Why
}

// Kinds of what limits refuse, for Observer: that on destinations, and those of models.LimitError, whosesoever they are.
const (
	RefusedDestination = "destination"
	RefusedMaxCalls    = models.LimitCalls
	RefusedMaxRate     = models.LimitRate
	RefusedDailyCalls  = models.LimitCallsPerDay
	RefusedDailySpend  = "max_spend_per_day"
)

// mayCall returns a *DestinationError where the limits of a customer, or those of an application where it is given, do not allow a number, or a SIP URI
// where number is empty.
func (m *Manager) mayCall(app *models.Application, limits *models.CustomerLimits, number, uri string) error {
	for _, of := range []struct {
		subject string
		policy  numbering.Policy
	}{
		{models.SubjectCustomer, numbering.Policy{Allow: limits.AllowedDestinations, Deny: limits.DeniedDestinations, Types: limits.AllowedDestinationTypes}},
		{models.SubjectApplication, within(&app.Limits)},
	} {
		verdict := of.policy.Number(number)
		if number == "" {
			verdict = of.policy.SIP(uri)
		}
		if !verdict.Allowed {
			m.cfg.Observer.Refused(RefusedDestination)
			m.cfg.Logger.Warn("destination not allowed", "customer_id", app.CustomerID, "application_id", app.ID, "to", models.MaskedNumber(number),
				"subject", of.subject, "reason", verdict.String())
			return &DestinationError{of.subject, verdict.String()}
		}
	}
	return nil
}

// within is where calls of an application or a trunk may go, of what the customer may call.
func within(limits *models.CallLimits) numbering.Policy {
	return numbering.Within(limits.AllowedDestinations, limits.DeniedDestinations, limits.AllowedDestinationTypes)
}

// refused counts a call or party that limits refuse, where err says that they do.
func (m *Manager) refused(err error) error {
	if full := (*models.LimitError)(nil); errors.As(err, &full) {
		kind := full.Limit
		if kind == models.LimitSpendPerDay {
			kind = RefusedDailySpend
		}
		m.cfg.Observer.Refused(kind)
		m.cfg.Logger.Warn("no more calls are taken now", "subject", full.Subject, "id", full.ID, "limit", full.Limit)
	}
	return err
}

// reasonOf is the reason of what a limit refuses.
func reasonOf(full *models.LimitError) string {
	switch {
	case full.Limit == models.LimitSpendPerDay:
		return ReasonSpendLimit
	case full.Subject == models.SubjectTrunk:
		return ReasonTrunkLimit
	case full.Subject == models.SubjectApplication:
		return ReasonApplicationLimit
	default:
		return ReasonCustomerLimit
	}
}

// longest is the least of the limits on how long a call lasts, in seconds; 0 where there is none.
func longest(limits ...int) int {
	least := 0
	for _, limit := range limits {
		if limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

// withLimits makes the transaction that inserts or starts a call fail with a *models.LimitError where its application, or its trunk unless that is nil,
// has all the calls that it may have. The customer's limits are taken with the reservation.
func withLimits(ctx context.Context, app *models.Application, trunk *models.Trunk, also func(tx *models.Store, call *models.Call) error) func(tx *models.Store, call *models.Call) error {
	return func(tx *models.Store, call *models.Call) error {
		if app.Limits.Bounded() {
			tx.TakeApplication(ctx, app.ID, beginningOf(call))
		}
		if trunk != nil && trunk.Limits.Bounded() {
			tx.TakeTrunk(ctx, trunk.ID, models.Beginning{Lives: 1, Starts: 1, SpendMicros: call.HoldMicros})
		}
		if also == nil {
			return nil
		}
		return also(tx, call)
	}
}

// mayCallTarget reads the limits and checks a target of the session's call. It returns a *DestinationError, or what waiting for the
// database ends with.
func (s *session) mayCallTarget(number, uri string) error {
	limits, err := s.limits()
	if err != nil {
		return err
	}
	return s.m.mayCall(s.application(), limits, number, uri)
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

// application is that of the call with the limits that it has now: while the database is away, or when it is deleted, those that it had when the call
// came here.
func (s *session) application() *models.Application {
	if s.m.outage.err() != nil {
		return s.app
	}
	ctx, cancel := context.WithTimeout(s.m.ctx, storeTimeout)
	defer cancel()
	app, err := s.m.cfg.Store.Application(ctx, s.call.CustomerID, s.call.ApplicationID)
	if err != nil {
		return s.app
	}
	return app
}

// refuseTarget tells of a party that is not called because of limits. A controller that goes on with the action does not tell again.
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

// allow refuses the parties that the limits of the customer and the application do not let the call dial.
func (d *dialing) allow(verb string) error {
	limits, err := d.s.limits()
	if err != nil {
		return err
	}
	app := d.s.application()
	d.bounded, d.appBounded = limits.Bounded(), app.Limits.Bounded()
	for i, party := range d.parties {
		denied := (*DestinationError)(nil)
		if errors.As(d.s.m.mayCall(app, limits, party.target.Number, party.target.SIP), &denied) {
			if err := d.refuseTarget(verb, i, ReasonDestination, denied.Error()); err != nil {
				return err
			}
		}
	}
	return nil
}

// take has a transaction that inserts a leg count it. An attempt to reach the same party over another trunk is not another beginning.
func (d *dialing) take(ctx context.Context, tx *models.Store, l *leg) {
	if d.resumed != nil {
		return
	}
	b := models.Beginning{Lives: 1}
	if !l.party.begun {
		b.Starts = 1
	}
	if d.bounded {
		tx.TakeCustomer(ctx, l.row.CustomerID, b)
	}
	if d.appBounded {
		tx.TakeApplication(ctx, d.s.app.ID, b)
	}
}

// makeDo takes back a round that was not begun because the customer or the application would have more calls than it may: the first parties are called for whom there is
// room, the others are refused.
func (d *dialing) makeDo(legs []*leg, err error) error {
	full := (*models.LimitError)(nil)
	errors.As(d.s.m.refused(err), &full)
	d.legs = d.legs[:len(d.legs)-len(legs)]
	for n, l := range legs {
		if n < full.Room {
			l.party.tried--
			continue
		}
		if err := d.refuseTarget(d.verb(), l.party.index, reasonOf(full), "the "+full.Subject+" has all that it may have: "+full.Limit); err != nil {
			return err
		}
	}
	return nil
}

// refusals are the parties that were not called because of limits, as results tell of them.
func (d *dialing) refusals() []any {
	var all []any
	for _, party := range d.parties {
		if party.refused != "" {
			all = append(all, map[string]any{"to": targetName(party.target), "reason": party.refused})
		}
	}
	return all
}

// beginningOf is what a call counts for among those of its customer and its application. Whoever calls in is not slowed down by how fast they call out.
func beginningOf(call *models.Call) models.Beginning {
	b := models.Beginning{Lives: 1, SpendMicros: call.HoldMicros}
	if call.Direction == DirectionOutbound {
		b.Starts = 1
	}
	return b
}

// insertArrived stores an inbound call, with how long it may last.
func (m *Manager) insertArrived(ctx context.Context, call *models.Call, app *models.Application, trunk *models.Trunk) (*models.Call, error) {
	limits, err := m.cfg.Store.LimitsOf(ctx, call.CustomerID)
	if err != nil {
		return nil, fmt.Errorf("read the limits: %w", err)
	}
	call.MaxSeconds = longest(limits.MaxCallSeconds, app.Limits.MaxCallSeconds)
	if trunk != nil {
		call.MaxSeconds = longest(call.MaxSeconds, trunk.Limits.MaxCallSeconds)
	}
	stored, err := m.insert(ctx, call, onArrive, trunk, withLimits(ctx, app, trunk, nil))
	return stored, m.refused(err)
}
