package models

import (
	"context"
	"time"
)

// Statuses of a customer.
const (
	CustomerActive = "active"
	// CustomerSuspended begins no calls: what lives goes on.
	CustomerSuspended = "suspended"
)

// Customer owns everything else. Amounts are millionths of the currency unit.
type Customer struct {
	ID       string
	Name     string
	Currency string
	Status   string
	// BalanceMicros may be as far below zero as CreditLimitMicros; HeldMicros is what live calls hold.
	BalanceMicros     int64
	HeldMicros        int64
	CreditLimitMicros int64
	// LowBalanceMicros is the threshold of balance and credit at or below which the customer is told; nil is none.
	LowBalanceMicros *int64
	// LowTold and ExhaustedTold say that the customer was told and has had no more money since: see OnBalance.
	LowTold, ExhaustedTold bool
	// LedgerSeq is the place of the last entry of the ledger.
	LedgerSeq int64
	// RateDeckID is the customer's own deck, empty for the default one.
	RateDeckID string         `gorm:"serializer:reference"`
	Limits     CustomerLimits `gorm:"embedded"`
	CreatedAt  time.Time      `gorm:"serializer:moment;autoCreateTime:false"`
	UpdatedAt  time.Time      `gorm:"serializer:moment;autoUpdateTime:false"`
}

// FreeMicros is what calls may still hold: balance and credit, less what is held.
func (c *Customer) FreeMicros() int64 { return c.BalanceMicros + c.CreditLimitMicros - c.HeldMicros }

// CreateCustomer inserts a customer and fills ID, currency (default USD) and times. A positive BalanceMicros becomes the first
// ledger entry, so that the balance stays the sum of the ledger.
func (s *Store) CreateCustomer(ctx context.Context, customer *Customer) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *customer
		if row.ID == "" {
			row.ID = NewID(PrefixCustomer)
		}
		if row.Currency == "" {
			row.Currency = "USD"
		}
		if row.Status == "" {
			row.Status = CustomerActive
		}
		row.CreatedAt = tx.Now()
		row.UpdatedAt = row.CreatedAt
		opening := row.BalanceMicros
		row.BalanceMicros, row.HeldMicros, row.LedgerSeq = 0, 0, 0
		row.LowTold, row.ExhaustedTold = false, false
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "create customer %q", row.Name)
		}
		if opening != 0 {
			if _, err := tx.Credit(ctx, row.ID, "opening:"+row.ID, LedgerTopup, opening, "opening balance"); err != nil {
				return err
			}
		}
		stored, err := tx.Customer(ctx, row.ID)
		if err != nil {
			return err
		}
		*customer = *stored
		return nil
	})
}

// Customer returns a customer by ID, or ErrNotFound.
func (s *Store) Customer(ctx context.Context, id string) (*Customer, error) {
	var row Customer
	if err := s.read(ctx).Where("id = ?", id).Take(&row).Error; err != nil {
		return nil, explain(err, "customer %q", id)
	}
	return &row, nil
}

// ListCustomers returns a page of customers, newest first.
func (s *Store) ListCustomers(ctx context.Context, page Page) ([]Customer, string, error) {
	rows, next, err := paged(s.read(ctx).Model(&Customer{}), page, func(c *Customer) (time.Time, string) { return c.CreatedAt, c.ID })
	return rows, next, explain(err, "list customers")
}
