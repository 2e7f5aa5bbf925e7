package models

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Statement is what a customer's balance went through in a month, in UTC: Opening and the three sums make Closing, exactly, and that is the Opening of
// the next. What calls cost is negative.
type Statement struct {
	// Month is the first moment of the month, CreatedAt of the entries is in it.
	Month                                 time.Time
	OpeningMicros                         int64
	TopupMicros, AdjustMicros, CallMicros int64
	ClosingMicros                         int64
	// Entries is how many entries of the ledger it sums up.
	Entries int64
}

// MonthOf is the first moment of the month, in UTC, that a moment is in.
func MonthOf(at time.Time) time.Time {
	at = at.UTC()
	return time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// Statements returns the statements of a customer for all months from that in which it was created until this one, which is not over, newest first.
// ErrNotFound for no customer.
func (s *Store) Statements(ctx context.Context, customerID string) ([]Statement, error) {
	return s.statements(ctx, customerID, time.Time{})
}

// StatementOf returns the statement of a customer for the month that a moment is in. ErrNotFound for no customer, and for a month before the customer
// was created or that has not come yet.
func (s *Store) StatementOf(ctx context.Context, customerID string, at time.Time) (*Statement, error) {
	month := MonthOf(at)
	all, err := s.statements(ctx, customerID, month)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Month.Equal(month) {
			return &all[i], nil
		}
	}
	return nil, fmt.Errorf("statement of customer %q for %s: %w", customerID, month.Format("2006-01"), ErrNotFound)
}

// statements returns those from a month on, newest first: each opens with what it leaves of the balance, so older entries need not be read.
func (s *Store) statements(ctx context.Context, customerID string, since time.Time) ([]Statement, error) {
	var customer *Customer
	var days []struct {
		Day     int64
		Kind    string
		Amount  int64
		Entries int64
	}
	err := s.snapshot(ctx, func(tx *Store) error {
		var err error
		if customer, err = tx.Customer(ctx, customerID); err != nil {
			return err
		}
		if first := MonthOf(customer.CreatedAt); since.Before(first) {
			since = first
		}
		query := fmt.Sprintf(`SELECT created_at / %d AS day, kind, CAST(SUM(amount_micros) AS BIGINT) AS amount, COUNT(*) AS entries
			FROM ledger_entries WHERE customer_id = ? AND created_at >= ? GROUP BY 1, 2`, dayMicros)
		days = nil
		return explain(tx.read(ctx).Raw(query, customerID, micros(since)).Scan(&days).Error, "sum up the ledger of customer %q", customerID)
	})
	if err != nil {
		return nil, err
	}
	var months []Statement
	for month := MonthOf(s.Now()); !month.Before(since); month = month.AddDate(0, -1, 0) {
		months = append(months, Statement{Month: month})
	}
	for _, day := range days {
		month := MonthOf(time.UnixMicro(day.Day * dayMicros))
		i := slices.IndexFunc(months, func(m Statement) bool { return m.Month.Equal(month) })
		if i < 0 {
			// Another controller's clock is ahead at the end of a month.
			months = slices.Insert(months, 0, Statement{Month: month})
			i = 0
		}
		months[i].add(day.Kind, day.Amount, day.Entries)
	}
	closing := customer.BalanceMicros
	for i := range months {
		m := &months[i]
		m.ClosingMicros = closing
		m.OpeningMicros = closing - m.TopupMicros - m.AdjustMicros - m.CallMicros
		closing = m.OpeningMicros
	}
	return months, nil
}

func (m *Statement) add(kind string, amount, entries int64) {
	m.Entries += entries
	switch kind {
	case LedgerTopup:
		m.TopupMicros += amount
	case LedgerAdjust:
		m.AdjustMicros += amount
	default:
		m.CallMicros += amount
	}
}
