package billing

import (
	"context"
	"fmt"
	"time"

	"tandem/models"
)

// Extension is what a call may use from now on.
type Extension struct {
	HoldMicros int64
	// Until is the moment at which the switch must have ended the call.
	Until time.Time
	// Last says that the balance does not pay for the least that a call is granted: it will end then, unless money comes.
	Last bool
}

// Covers reports until when what a call holds pays for an account, and whether that is at least the least that a call is granted: then nothing
// need be held for it to go on.
func (r *Rater) Covers(call *models.Call, account *Account, now, limit time.Time) (until time.Time, enough bool) {
	until = account.Until(call.HoldMicros, now, limit)
	return until, !until.Before(earliest(now.Add(r.step(account)), limit))
}

// Extend holds more for a call that goes on, so that its account is covered for longer: by a hundredth of the free balance, at least by the least grant
// from now, at most by MaxGrantSeconds, in whole increments, and never beyond limit. Where the free balance does not pay for the least, all that it
// pays for is held, and Last is set. models.ErrInsufficientBalance where it pays for nothing beyond what is held. It belongs in the transaction that
// stores the new grant, and sets the call's HoldMicros. The transaction fails with models.ErrBalanceTaken where others were faster, with
// models.ErrSpendLimit where that is more than may be spent on the day, and is to be tried again with greedy false, which takes no more than the least.
// Afterwards the switch is given the new cap, and only then the old one is deleted.
func (r *Rater) Extend(ctx context.Context, tx *models.Store, call *models.Call, account *Account, now, limit time.Time, greedy bool) (Extension, error) {
	customer, err := tx.Customer(ctx, call.CustomerID)
	if err != nil {
		return Extension{}, fmt.Errorf("extend call %q: %w", call.ID, err)
	}
	held, free := call.HoldMicros, max(customer.FreeMicros(), 0)
	before := account.Until(held, now, limit)
	next := Extension{Until: earliest(later(before, now.Add(r.step(account))), limit)}
	if greedy {
		reach := earliest(now.Add(time.Duration(r.cfg.MaxGrantSeconds)*time.Second), limit)
		next.Until = later(next.Until, account.Until(held+free/share, now, reach))
	}
	if account.Cost(next.Until) > held+free {
		next.Until, next.Last = account.Until(held+free, now, next.Until), true
		if !next.Until.After(before) {
			return Extension{}, fmt.Errorf("extend call %q, which holds %d, of a free balance of %d: %w", call.ID, held, free, models.ErrInsufficientBalance)
		}
	}
	next.HoldMicros = account.Cost(next.Until)
	// Of increments that are begun, all is paid for: a call that gets no more must not end within them.
	next.Until = later(next.Until, account.Until(next.HoldMicros, now, limit))
	if err := rehold(ctx, tx, call, next.HoldMicros); err != nil {
		return Extension{}, fmt.Errorf("extend call %q: %w", call.ID, err)
	}
	call.HoldMicros = next.HoldMicros
	return next, nil
}

// Repromise gives a call that nobody has answered yet another rate, and holds what it may cost then for as long as it was granted and may last, and
// what it has spent. Where that is more than it holds and a hundredth of the free balance, it is granted no longer than these pay for, but at least
// the least: a grant of a call that was free, or cheap, must not take what others need. It sets the call's rate, hold and grant. It belongs in the
// transaction that stores them, which fails with models.ErrSpendLimit where that is more than may be spent on the day.
// models.ErrInsufficientBalance where the balance does not pay for the least.
func (r *Rater) Repromise(ctx context.Context, tx *models.Store, call *models.Call, rate models.Rate, spent int64) error {
	customer, err := tx.Customer(ctx, call.CustomerID)
	if err != nil {
		return fmt.Errorf("price call %q anew: %w", call.ID, err)
	}
	account, free := Account{SpentMicros: spent, Legs: []Running{{Rate: rate}}}, max(customer.FreeMicros(), 0)
	costs := func(seconds int) int64 { return account.Cost(time.Time{}.Add(time.Duration(seconds) * time.Second)) }
	granted := min(call.GrantedSeconds, r.longest(call.MaxSeconds))
	if part := call.HoldMicros + free/share; costs(granted) > part {
		granted = min(granted, max(r.least(&rate), affordable(&rate, part-spent, granted)))
	}
	hold := costs(granted)
	if hold > call.HoldMicros+free {
		return fmt.Errorf("price call %q anew, which holds %d, for %d: %w", call.ID, call.HoldMicros, hold, models.ErrInsufficientBalance)
	}
	if err := rehold(ctx, tx, call, hold); err != nil {
		return fmt.Errorf("price call %q anew: %w", call.ID, err)
	}
	call.Rate, call.PricePerMinuteMicros, call.HoldMicros, call.GrantedSeconds = &rate, rate.PerMinuteMicros, hold, granted
	return nil
}

// rehold has a call hold another amount, within what may be spent on a day.
func rehold(ctx context.Context, tx *models.Store, call *models.Call, hold int64) error {
	if err := tx.TakeSpend(ctx, call.CustomerID, call.ApplicationID, call.TrunkID, hold-call.HoldMicros); err != nil {
		return err
	}
	return tx.Rehold(ctx, call.CustomerID, call.ID, call.HoldMicros, hold)
}

// step is the least by which a call is extended: the least grant of the leg with the longest increment.
func (r *Rater) step(account *Account) time.Duration {
	increment := 1
	for i := range account.Legs {
		increment = max(increment, account.Legs[i].Rate.IncrementSeconds)
	}
	return time.Duration(r.cfg.MinGrantSeconds+increment) * time.Second
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
