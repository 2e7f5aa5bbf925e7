package billing

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"tandem/models"
)

// ErrSuspended says that the customer begins no calls.
var ErrSuspended = errors.New("the customer is suspended")

// share is the part of a free balance that one call may hold beyond the least: a hundredth. So a balance that pays for the least of a hundred
// calls is never held by fewer, and a greater one holds calls for as long as a controller may be away.
const share = 100

// Reservation is what a call may use: the rate it was promised, what is held of the balance and for how many seconds that
// lasts, which is the cap to set in the switch.
type Reservation struct {
	Rate           models.Rate
	HoldMicros     int64
	GrantedSeconds int
	// Bounded says that the customer may have only so many calls: see models.Store.TakeCustomer.
	Bounded bool
}

// Give writes a reservation into the call that it is of.
func (r *Reservation) Give(call *models.Call) {
	rate := r.Rate
	call.Rate, call.PricePerMinuteMicros = &rate, rate.PerMinuteMicros
	call.HoldMicros, call.GrantedSeconds = r.HoldMicros, r.GrantedSeconds
}

// Reserve holds what a call's first leg may cost: a hundredth of the free balance, at least MinGrantSeconds and one increment, at most MaxGrantSeconds
// and maxSeconds (0: what the configuration says); models.ErrInsufficientBalance where not even the least is covered. It belongs in the
// transaction that creates the call with the same hold; that fails with models.ErrBalanceTaken where others have held some of the
// balance meanwhile; it is then to be tried again with ReserveLeast. Other errors: ErrSuspended, ErrUnlisted.
func (r *Rater) Reserve(ctx context.Context, tx *models.Store, leg Leg, maxSeconds int) (Reservation, error) {
	return r.reserve(ctx, tx, leg, maxSeconds, share)
}

// ReserveLeast is Reserve for the least that a call may be granted: where many contend for the last of a balance, each gets on.
func (r *Rater) ReserveLeast(ctx context.Context, tx *models.Store, leg Leg, maxSeconds int) (Reservation, error) {
	return r.reserve(ctx, tx, leg, maxSeconds, 0)
}

func (r *Rater) reserve(ctx context.Context, tx *models.Store, leg Leg, maxSeconds, part int) (Reservation, error) {
	var reservation Reservation
	err := tx.InTx(ctx, func(tx *models.Store) error {
		customer, err := tx.Customer(ctx, leg.CustomerID)
		if err != nil {
			return err
		}
		if reservation, err = r.offer(ctx, tx, customer, leg, maxSeconds, part); err != nil {
			return err
		}
		tx.HoldAtEnd(ctx, leg.CustomerID, reservation.HoldMicros)
		return nil
	})
	if err != nil {
		return Reservation{}, fmt.Errorf("reserve %s call of customer %q: %w", leg.Direction, leg.CustomerID, err)
	}
	return reservation, nil
}

func (r *Rater) offer(ctx context.Context, tx *models.Store, customer *models.Customer, leg Leg, maxSeconds, part int) (Reservation, error) {
	if customer.Status == models.CustomerSuspended {
		return Reservation{}, ErrSuspended
	}
	rate, err := r.quote(ctx, tx, customer, leg)
	if err != nil {
		return Reservation{}, err
	}
	free, most := customer.FreeMicros(), r.longest(maxSeconds)
	granted := min(r.least(&rate), most)
	if part > 0 {
		granted = max(granted, affordable(&rate, free/int64(part), min(r.cfg.MaxGrantSeconds, most)))
	}
	hold := rate.Cost(true, granted)
	if hold > free {
		return Reservation{}, fmt.Errorf("hold %d of customer %q: %w", hold, customer.ID, models.ErrInsufficientBalance)
	}
	if rate.PerMinuteMicros == 0 {
		most = min(r.cfg.MaxGrantSeconds, most) // any hold pays for all seconds
	}
	// Of increments that are begun, all is paid for: a call that gets no more must not end within them.
	granted = max(granted, affordable(&rate, hold, most))
	return Reservation{Rate: rate, HoldMicros: hold, GrantedSeconds: granted, Bounded: customer.Limits.Bounded()}, nil
}

// Offer says what a call would be promised if it was created now: nothing is held. LongestSeconds is how long the free balance would last for it
// alone, at most the longest that a call may last.
type Offer struct {
	Reservation
	LongestSeconds int
}

// Offer returns what Reserve would, and holds nothing. Errors as those of Reserve.
func (r *Rater) Offer(ctx context.Context, store *models.Store, leg Leg, maxSeconds int) (Offer, error) {
	customer, err := store.Customer(ctx, leg.CustomerID)
	if err != nil {
		return Offer{}, err
	}
	held, err := r.offer(ctx, store, customer, leg, maxSeconds, share)
	if err != nil {
		return Offer{}, fmt.Errorf("offer %s call of customer %q: %w", leg.Direction, leg.CustomerID, err)
	}
	return Offer{held, affordable(&held.Rate, customer.FreeMicros(), r.longest(maxSeconds))}, nil
}

// least is the shortest grant: the configured one, and one increment on top.
func (r *Rater) least(rate *models.Rate) int {
	return r.cfg.MinGrantSeconds + max(rate.IncrementSeconds, 1)
}

// affordable is the longest grant that an amount pays for, at most most, in whole increments where it is shorter; 0 where it pays for none.
func affordable(rate *models.Rate, amount int64, most int) int {
	if rate.Cost(true, most) <= amount {
		return most
	}
	seconds := sort.Search(most, func(seconds int) bool { return rate.Cost(true, seconds) > amount }) - 1
	return max(seconds, 0)
}
