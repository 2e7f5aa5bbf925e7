// Package billing prices calls and moves their money: what is reserved when a call begins, what is added while it lasts, and what is charged when it
// ends. Amounts are int64 millionths of the currency unit; nothing is ever rounded but the cost of a leg, up to the millionth.
package billing

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"tandem/models"
)

// Config holds the prices of numbers that no rate deck is for, and the limits of a reservation. A price may be zero: such calls hold and cost nothing.
type Config struct {
	// OutboundPerMinuteMicros and InboundPerMinuteMicros are the prices of a minute.
	OutboundPerMinuteMicros int64
	InboundPerMinuteMicros  int64
	// IncrementSeconds is their unit of billing: each started increment counts whole. Default 60.
	IncrementSeconds int
	// MinGrantSeconds is the least that a customer must be able to pay for, with one increment on top. Default 60.
	MinGrantSeconds int
	// MaxGrantSeconds is the longest that is held at a time. Default 3600.
	MaxGrantSeconds int
	// MaxCallSeconds is the longest that a call may last, where no limit says less. Default 14400.
	MaxCallSeconds int
	// Logger hears of calls that ran past their grant. Default: discard.
	Logger *slog.Logger
}

// Rater prices, reserves and settles. It has no state but its configuration.
type Rater struct{ cfg Config }

// MaxPriceMicros is the highest price of a minute, and the highest connection fee: a million units. For a year, the cost still fits an int64.
const MaxPriceMicros = 1_000_000 * 1_000_000

// maxSeconds is a year.
const maxSeconds = 366 * 24 * 3600

// New checks the configuration and returns a Rater.
func New(cfg Config) (*Rater, error) {
	cfg.IncrementSeconds = cmp.Or(cfg.IncrementSeconds, 60)
	cfg.MinGrantSeconds = cmp.Or(cfg.MinGrantSeconds, 60)
	cfg.MaxGrantSeconds = cmp.Or(cfg.MaxGrantSeconds, 3600)
	cfg.MaxCallSeconds = cmp.Or(cfg.MaxCallSeconds, 14400)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	for _, price := range []int64{cfg.OutboundPerMinuteMicros, cfg.InboundPerMinuteMicros} {
		if price < 0 || price > MaxPriceMicros {
			return nil, fmt.Errorf("price of %d micros a minute is not between 0 and %d", price, int64(MaxPriceMicros))
		}
	}
	if cfg.IncrementSeconds < 1 || cfg.IncrementSeconds > 3600 {
		return nil, fmt.Errorf("billing increment of %d seconds is not between 1 and 3600", cfg.IncrementSeconds)
	}
	if cfg.MinGrantSeconds < 1 || cfg.MaxGrantSeconds < cfg.MinGrantSeconds+cfg.IncrementSeconds || cfg.MaxGrantSeconds > maxSeconds {
		return nil, fmt.Errorf("grants between %d and %d seconds: the greatest must be at least the least and one increment (%d), and at most %d",
			cfg.MinGrantSeconds, cfg.MaxGrantSeconds, cfg.IncrementSeconds, maxSeconds)
	}
	if cfg.MaxCallSeconds < 1 || cfg.MaxCallSeconds > maxSeconds {
		return nil, fmt.Errorf("longest call of %d seconds is not between 1 and %d", cfg.MaxCallSeconds, maxSeconds)
	}
	return &Rater{cfg: cfg}, nil
}

// Longest is the longest that a call may last from its answer.
func (r *Rater) Longest(call *models.Call) time.Duration {
	return time.Duration(r.longest(call.MaxSeconds)) * time.Second
}

func (r *Rater) longest(limit int) int {
	if limit <= 0 {
		return r.cfg.MaxCallSeconds
	}
	return min(limit, r.cfg.MaxCallSeconds)
}

// RateOf is what a call was promised: one that began before there were rates has the price of a minute alone.
func (r *Rater) RateOf(call *models.Call) models.Rate {
	if call.Rate != nil {
		return *call.Rate
	}
	return models.Rate{PerMinuteMicros: call.PricePerMinuteMicros, IncrementSeconds: r.cfg.IncrementSeconds}
}
