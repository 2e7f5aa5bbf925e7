package models

import (
	"context"

	"gorm.io/gorm/clause"
)

// CustomerLimits bound what a customer may do; the zero value bounds nothing.
type CustomerLimits struct {
	CallLimits
	// RequestsPerMinute is how many requests each API key may make; 0 leaves it to the configuration.
	RequestsPerMinute int
}

// TakeCustomer makes the transaction, which inserts or starts calls or inserts legs of a customer, fail with a *LimitError that is ErrCustomerFull where the
// customer would then have more than it may. It holds exactly, as TakeTrunks does. What is taken in several steps adds up. Customers without a bound need not be
// named: one that has one costs all its calls a lock. A transaction that reaches no database checks nothing.
func (s *Store) TakeCustomer(ctx context.Context, customerID string, b Beginning) {
	if all := s.begin(ctx); all != nil {
		all.customers[customerID] = all.customers[customerID].plus(b)
	}
}

var customerCeiling = ceiling{
	what: SubjectCustomer, table: "customers", column: "customer_id", usage: "customer_usage", starts: "customer_starts",
	live: `SELECT (SELECT COUNT(*) FROM calls WHERE customer_id = ? AND status IN ` + liveStatuses + ` AND status <> '` + CallQueued + `')
		+ (SELECT COUNT(*) FROM legs WHERE customer_id = ? AND status <> 'ended')`,
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
			Select(columnsWith("requests_per_minute", "updated_at")).Updates(&row)
		if err := changedOne(result, "set the limits of customer %q", row.ID); err != nil {
			return err
		}
		*customer = row
		return nil
	})
}
