package models

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm/clause"
)

// CustomerLimits bound what a customer may do; the zero value bounds nothing.
type CustomerLimits struct {
	// MaxCalls is how many calls of both directions, and parties that they have dialled, may live at a time, whichever controllers they are at; 0 is
	// no bound. Queued calls are not counted.
	MaxCalls int
	// MaxCallsPerSecond is how many outbound calls and dialled parties may begin in any one second; 0 is no bound.
	MaxCallsPerSecond int
	// AllowedDestinations and DeniedDestinations are where calls may go: see numbering.Policy. nil in the first allows everything.
	AllowedDestinations []string `gorm:"serializer:optional"`
	DeniedDestinations  []string `gorm:"serializer:optional"`
	// RequestsPerMinute is how many requests each API key may make; 0 leaves it to the configuration.
	RequestsPerMinute int
}

// Bounded says whether there is a bound on the number of calls.
func (l *CustomerLimits) Bounded() bool { return l.MaxCalls > 0 || l.MaxCallsPerSecond > 0 }

// ErrCustomerFull is what errors.Is finds in every *CustomerFullError.
var ErrCustomerFull = errors.New("the customer has all the calls that it may have now")

// CustomerFullError refuses calls of a customer that has as many as it may. Limit is max_calls or max_calls_per_second; Room is how many of those that
// the transaction begins there could be.
type CustomerFullError struct {
	CustomerID string
	Limit      string
	Room       int
}

// Error says which customer it is, and which limit.
func (e *CustomerFullError) Error() string {
	return fmt.Sprintf("customer %q is at its %s", e.CustomerID, e.Limit)
}

// Is reports ErrCustomerFull.
func (e *CustomerFullError) Is(target error) bool { return target == ErrCustomerFull }

// TakeCustomer makes the transaction, which inserts or starts calls or inserts legs of a customer, fail with a *CustomerFullError where the customer
// would then have more than it may. It holds exactly, as TakeTrunks does. What is taken in several steps adds up. Customers without a bound need not be
// named: one that has one costs all its calls a lock. A transaction that reaches no database checks nothing.
func (s *Store) TakeCustomer(ctx context.Context, customerID string, b Beginning) {
	if all := s.begin(ctx); all != nil {
		sum := all.customers[customerID]
		all.customers[customerID] = Beginning{sum.Lives + b.Lives, sum.Starts + b.Starts}
	}
}

var customerCeiling = ceiling{
	what: "customer", table: "customers", column: "customer_id", usage: "customer_usage", starts: "customer_starts",
	live: `SELECT (SELECT COUNT(*) FROM calls WHERE customer_id = ? AND status IN ` + liveStatuses + ` AND status <> '` + CallQueued + `')
		+ (SELECT COUNT(*) FROM legs WHERE customer_id = ? AND status <> 'ended')`,
}

func (s *Store) beginForCustomer(ctx context.Context, id string, b Beginning) error {
	full, err := s.take(ctx, &customerCeiling, id, b)
	if full != nil {
		return &CustomerFullError{CustomerID: id, Limit: full.name, Room: full.room}
	}
	return err
}

// LimitsOf returns the limits of a customer, or ErrNotFound.
func (s *Store) LimitsOf(ctx context.Context, customerID string) (CustomerLimits, error) {
	customer, err := s.Customer(ctx, customerID)
	if err != nil {
		return CustomerLimits{}, err
	}
	return customer.Limits, nil
}

// EditCustomer is Customer for a transaction that goes on to change the limits. ErrNotFound as there.
func (s *Store) EditCustomer(ctx context.Context, id string) (*Customer, error) {
	var row Customer
	err := s.write(ctx).Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).Where("id = ?", id).Take(&row).Error
	if err != nil {
		return nil, explain(err, "customer %q", id)
	}
	return &row, nil
}

// SetLimits writes the limits of a customer, or returns ErrNotFound. They count for what begins from the commit on.
func (s *Store) SetLimits(ctx context.Context, customer *Customer) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *customer
		row.UpdatedAt = tx.Now()
		result := tx.write(ctx).Model(&Customer{}).Where("id = ?", row.ID).
			Select("max_calls", "max_calls_per_second", "allowed_destinations", "denied_destinations", "requests_per_minute", "updated_at").Updates(&row)
		if err := changedOne(result, "set the limits of customer %q", row.ID); err != nil {
			return err
		}
		*customer = row
		return nil
	})
}
