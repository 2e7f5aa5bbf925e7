// Package billing prices calls and moves their money: what is reserved when a call begins and what is charged when it ends.
// Amounts are int64 millionths of the currency unit; nothing is ever rounded but a call's cost, up to the millionth.
package billing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/bits"

	"tandem/models"
)

const secondsPerMinute = 60

// Config holds the prices and the limits of a reservation. A price may be zero: such calls hold and cost nothing.
type Config struct {
	// OutboundPerMinuteMicros and InboundPerMinuteMicros are the prices of a minute.
	OutboundPerMinuteMicros int64
	InboundPerMinuteMicros  int64
	// IncrementSeconds is the unit of billing: each started increment counts whole. Default 60.
	IncrementSeconds int
	// MinGrantSeconds is the least that a customer must be able to pay for, with one increment on top. Default 60.
	MinGrantSeconds int
	// MaxGrantSeconds is the longest call that is granted. Default 3600.
	MaxGrantSeconds int
	// Logger hears of calls that ran past their grant. Default: discard.
	Logger *slog.Logger
}

// Rater prices, reserves and settles. It has no state but its configuration.
type Rater struct{ cfg Config }

// maxPriceMicros is a million units a minute: for a year, the cost still fits an int64.
const maxPriceMicros = 1_000_000 * 1_000_000

// maxSeconds is a year.
const maxSeconds = 366 * 24 * 3600

// New checks the configuration and returns a Rater.
func New(cfg Config) (*Rater, error) {
	cfg.IncrementSeconds = cmp.Or(cfg.IncrementSeconds, 60)
	cfg.MinGrantSeconds = cmp.Or(cfg.MinGrantSeconds, 60)
	cfg.MaxGrantSeconds = cmp.Or(cfg.MaxGrantSeconds, 3600)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	for _, price := range []int64{cfg.OutboundPerMinuteMicros, cfg.InboundPerMinuteMicros} {
		if price < 0 || price > maxPriceMicros {
			return nil, fmt.Errorf("price of %d micros a minute is not between 0 and %d", price, int64(maxPriceMicros))
		}
	}
	if cfg.IncrementSeconds < 1 || cfg.IncrementSeconds > 3600 {
		return nil, fmt.Errorf("billing increment of %d seconds is not between 1 and 3600", cfg.IncrementSeconds)
	}
	if cfg.MinGrantSeconds < 1 || cfg.MaxGrantSeconds < cfg.MinGrantSeconds+cfg.IncrementSeconds || cfg.MaxGrantSeconds > maxSeconds {
		return nil, fmt.Errorf("grants between %d and %d seconds: the greatest must be at least the least and one increment (%d), and at most %d",
			cfg.MinGrantSeconds, cfg.MaxGrantSeconds, cfg.IncrementSeconds, maxSeconds)
	}
	return &Rater{cfg: cfg}, nil
}

// Price returns the price of a minute in a direction (models.Outbound or models.Inbound).
func (r *Rater) Price(direction string) int64 {
	if direction == models.Outbound {
		return r.cfg.OutboundPerMinuteMicros
	}
	return r.cfg.InboundPerMinuteMicros
}

// Cost returns what seconds cost at a price per minute: every started increment whole, rounded up to the millionth.
func (r *Rater) Cost(pricePerMinute int64, seconds int) int64 {
	if seconds <= 0 || pricePerMinute <= 0 {
		return 0
	}
	increment := int64(r.cfg.IncrementSeconds)
	billed := (int64(seconds) + increment - 1) / increment * increment
	// The product of the greatest price and the longest call does not fit 64 bits.
	high, low := bits.Mul64(uint64(pricePerMinute), uint64(billed))
	low, carry := bits.Add64(low, secondsPerMinute-1, 0)
	high += carry
	if high >= secondsPerMinute {
		return math.MaxInt64
	}
	cost, _ := bits.Div64(high, low, secondsPerMinute)
	return int64(min(cost, math.MaxInt64))
}

// Reservation is what a call may use: the price it was made at, what is held of the balance and for how many seconds that
// lasts, which is the cap to set in the switch.
type Reservation struct {
	PricePerMinuteMicros int64
	HoldMicros           int64
	GrantedSeconds       int
	// Bounded says that the customer may have only so many calls: see models.Store.TakeCustomer.
	Bounded bool
}

// Reserve holds what a call in a direction may cost, as much as the free balance covers, at least MinGrantSeconds and one
// increment, at most MaxGrantSeconds; models.ErrInsufficientBalance where not even the least is covered. It belongs in the
// transaction that creates the call with the same hold; that fails with models.ErrBalanceTaken where others have held some of the
// balance meanwhile; it is then to be tried again with ReserveLeast.
func (r *Rater) Reserve(ctx context.Context, tx *models.Store, customerID, direction string) (Reservation, error) {
	return r.reserve(ctx, tx, customerID, direction, r.affordable)
}

// ReserveLeast is Reserve for the least that a call may be granted: where many contend for the last of a balance, each gets on.
func (r *Rater) ReserveLeast(ctx context.Context, tx *models.Store, customerID, direction string) (Reservation, error) {
	return r.reserve(ctx, tx, customerID, direction, func(int64, int64) int { return r.least() })
}

func (r *Rater) reserve(ctx context.Context, tx *models.Store, customerID, direction string, grant func(price, free int64) int) (Reservation, error) {
	price := r.Price(direction)
	reservation := Reservation{PricePerMinuteMicros: price}
	err := tx.InTx(ctx, func(tx *models.Store) error {
		customer, err := tx.Customer(ctx, customerID)
		if err != nil {
			return err
		}
		reservation.Bounded = customer.Limits.Bounded()
		free := customer.BalanceMicros - customer.HeldMicros
		reservation.GrantedSeconds = grant(price, free)
		if reservation.HoldMicros = r.Cost(price, reservation.GrantedSeconds); reservation.HoldMicros > free {
			return fmt.Errorf("hold %d of customer %q: %w", reservation.HoldMicros, customerID, models.ErrInsufficientBalance)
		}
		tx.HoldAtEnd(ctx, customerID, reservation.HoldMicros)
		return nil
	})
	if err != nil {
		return Reservation{}, fmt.Errorf("reserve %s call of customer %q: %w", direction, customerID, err)
	}
	return reservation, nil
}

func (r *Rater) least() int { return r.cfg.MinGrantSeconds + r.cfg.IncrementSeconds }

// affordable returns the longest grant that free covers, within the limits; the least grant where it covers less.
func (r *Rater) affordable(price, free int64) int {
	if r.Cost(price, r.cfg.MaxGrantSeconds) <= free {
		return r.cfg.MaxGrantSeconds
	}
	// Not the greatest: so price is positive. Whole increments whose rounded-up cost is covered; the product stays in range
	// because the quotient is below MaxGrantSeconds.
	increment := int64(r.cfg.IncrementSeconds)
	seconds := quotient(free, price) / increment * increment
	return max(int(seconds), r.least())
}

// quotient returns the seconds that free pays for: floor(free × 60 / price) without overflow.
func quotient(free, price int64) int64 {
	if free <= 0 {
		return 0
	}
	return free/price*secondsPerMinute + free%price*secondsPerMinute/price
}

// Settle charges a call that ended, once: it sets BilledSeconds, CostMicros and SettledAt, releases the hold and writes the
// ledger entry; models.ErrStale where that was done before. Only billedSeconds, as the switch counted them, make the cost. A
// call that outran its cap may cost more than its hold: the rest comes from the free balance as far as that goes, never from
// what other calls hold, and is logged.
func (r *Rater) Settle(ctx context.Context, tx *models.Store, call *models.Call, billedSeconds int) error {
	if billedSeconds < 0 {
		return fmt.Errorf("settle call %q: %d billed seconds", call.ID, billedSeconds)
	}
	settled := *call
	settled.BilledSeconds = billedSeconds
	err := tx.InTx(ctx, func(tx *models.Store) error {
		settled.CostMicros = r.Cost(call.PricePerMinuteMicros, billedSeconds)
		if settled.CostMicros > call.HoldMicros {
			covered, err := r.cover(ctx, tx, call, settled.CostMicros)
			if err != nil {
				return err
			}
			r.cfg.Logger.WarnContext(ctx, "call cost more than its hold", "call_id", call.ID, "hold_micros", call.HoldMicros,
				"cost_micros", settled.CostMicros, "charged_micros", covered, "billed_seconds", billedSeconds, "granted_seconds", call.GrantedSeconds)
			settled.CostMicros = covered
		}
		if _, err := tx.SettleHold(ctx, call.CustomerID, call.ID, call.HoldMicros, settled.CostMicros); err != nil {
			return err
		}
		if err := tx.UpdateCall(ctx, &settled, "billed_seconds", "cost_micros"); err != nil {
			return err
		}
		stored, err := tx.CallByID(ctx, call.ID)
		if err != nil {
			return err
		}
		settled.SettledAt = stored.SettledAt
		return nil
	})
	if err != nil {
		return fmt.Errorf("settle call %q: %w", call.ID, err)
	}
	call.BilledSeconds, call.CostMicros, call.SettledAt, call.UpdatedAt = settled.BilledSeconds, settled.CostMicros, settled.SettledAt, settled.UpdatedAt
	return nil
}

// cover returns how much of cost the call's hold and the customer's free balance pay.
func (r *Rater) cover(ctx context.Context, tx *models.Store, call *models.Call, cost int64) (int64, error) {
	// Holding nothing takes the row's lock: the free balance cannot change before it is charged.
	if err := tx.Hold(ctx, call.CustomerID, 0); err != nil {
		return 0, err
	}
	customer, err := tx.Customer(ctx, call.CustomerID)
	if err != nil {
		return 0, err
	}
	return min(cost, call.HoldMicros+customer.BalanceMicros-customer.HeldMicros), nil
}
