package models

import (
	"context"
	"fmt"
)

// BalanceLevel is how far down an account has come.
type BalanceLevel string

// Levels that a customer is told of.
const (
	// BalanceLow is a balance with credit at or below the customer's threshold.
	BalanceLow BalanceLevel = "low"
	// BalanceExhausted is an account with nothing left to hold a call.
	BalanceExhausted BalanceLevel = "exhausted"
)

// OnBalance registers the function that tells a customer of a level that its account has come down to. It is called in the transaction that brought
// it there, once until more money arms it again, and must write through it alone; its error undoes the transaction. The customer is as the transaction
// leaves it. It is registered before the store is used; without one nobody is told, and nothing is noted as told.
func (s *Store) OnBalance(tell func(ctx context.Context, tx *Store, customer *Customer, level BalanceLevel) error) {
	s.tellBalance = tell
}

// account is the money of a customer as a statement has left it.
type account struct {
	ID                                           string
	BalanceMicros, HeldMicros, CreditLimitMicros int64
	LowBalanceMicros                             *int64
	LowTold, ExhaustedTold                       bool
	LedgerSeq                                    int64
}

const accountColumns = "id, balance_micros, held_micros, credit_limit_micros, low_balance_micros, low_told, exhausted_told, ledger_seq"

func (a *account) low() bool {
	return a.LowBalanceMicros != nil && a.BalanceMicros+a.CreditLimitMicros <= *a.LowBalanceMicros
}

func (a *account) exhausted() bool { return a.BalanceMicros+a.CreditLimitMicros <= a.HeldMicros }

// fell tells of the levels that an account, whose row is locked, has come down to and that its customer was not told of.
func (s *Store) fell(ctx context.Context, a *account) error {
	low, exhausted := a.low() && !a.LowTold, a.exhausted() && !a.ExhaustedTold
	if !low && !exhausted || s.tellBalance == nil {
		return nil
	}
	if err := s.told(ctx, a.ID, a.LowTold || low, a.ExhaustedTold || exhausted); err != nil {
		return err
	}
	customer, err := s.Customer(ctx, a.ID)
	if err != nil {
		return err
	}
	if low {
		if err := s.tellBalance(ctx, s, customer, BalanceLow); err != nil {
			return fmt.Errorf("tell customer %q of a low balance: %w", a.ID, err)
		}
	}
	if exhausted {
		if err := s.tellBalance(ctx, s, customer, BalanceExhausted); err != nil {
			return fmt.Errorf("tell customer %q of an exhausted balance: %w", a.ID, err)
		}
	}
	return nil
}

// arm lets the levels be told again that an account, whose row is locked and which has got more, is above.
func (s *Store) arm(ctx context.Context, a *account) error {
	low, exhausted := a.LowTold && a.low(), a.ExhaustedTold && a.exhausted()
	if low == a.LowTold && exhausted == a.ExhaustedTold {
		return nil
	}
	if err := s.told(ctx, a.ID, low, exhausted); err != nil {
		return err
	}
	a.LowTold, a.ExhaustedTold = low, exhausted
	return nil
}

// told notes which levels a customer was told of.
func (s *Store) told(ctx context.Context, customerID string, low, exhausted bool) error {
	err := s.write(ctx).Exec("UPDATE customers SET low_told = ?, exhausted_told = ? WHERE id = ?", low, exhausted, customerID).Error
	return explain(err, "note what customer %q was told of its balance", customerID)
}

// BalanceShort tells a customer, whose call was refused because nothing is left to hold it, that its account is exhausted, unless it was told already.
// It has a transaction of its own where the caller has none: what the refused one would have written is gone.
func (s *Store) BalanceShort(ctx context.Context, customerID string) error {
	if s.tellBalance == nil {
		return nil
	}
	customer, err := s.Customer(ctx, customerID)
	if err != nil || customer.ExhaustedTold {
		return err
	}
	// The request that was refused has changed nothing that the audit trail would tell of.
	return s.InTx(unaudited(ctx), func(tx *Store) error {
		result := tx.write(ctx).Exec("UPDATE customers SET exhausted_told = ? WHERE id = ? AND exhausted_told = ?", true, customerID, false)
		if result.Error != nil {
			return explain(result.Error, "note what customer %q was told of its balance", customerID)
		}
		if result.RowsAffected == 0 {
			return nil // another refusal has just done it
		}
		customer, err := tx.Customer(ctx, customerID)
		if err != nil {
			return err
		}
		if err := tx.tellBalance(ctx, tx, customer, BalanceExhausted); err != nil {
			return fmt.Errorf("tell customer %q of an exhausted balance: %w", customerID, err)
		}
		return nil
	})
}

// SetAccount writes the name, the status, the credit limit and the threshold of a customer that EditCustomer has read in the same transaction, tells of
// the levels that its account is at then, and arms those that it is above. A threshold that is another than before is armed. ErrInsufficientBalance
// where balance and credit would not cover what is held.
func (s *Store) SetAccount(ctx context.Context, customer *Customer) error {
	return s.InTx(ctx, func(tx *Store) error {
		before, err := tx.EditCustomer(ctx, customer.ID)
		if err != nil {
			return err
		}
		row := *customer
		if before.BalanceMicros+row.CreditLimitMicros < before.HeldMicros {
			return fmt.Errorf("set the account of customer %q: %w", row.ID, ErrInsufficientBalance)
		}
		row.UpdatedAt = tx.Now()
		result := tx.write(ctx).Model(&Customer{}).Where("id = ?", row.ID).
			Select("name", "status", "credit_limit_micros", "low_balance_micros", "updated_at").Updates(&row)
		if err := changedOne(result, "set the account of customer %q", row.ID); err != nil {
			return err
		}
		now := account{
			ID: row.ID, BalanceMicros: before.BalanceMicros, HeldMicros: before.HeldMicros, CreditLimitMicros: row.CreditLimitMicros,
			LowBalanceMicros: row.LowBalanceMicros, LowTold: before.LowTold, ExhaustedTold: before.ExhaustedTold,
		}
		if !sameThreshold(before.LowBalanceMicros, row.LowBalanceMicros) && now.LowTold {
			now.LowTold = false
			if err := tx.told(ctx, row.ID, false, now.ExhaustedTold); err != nil {
				return err
			}
		}
		if row.CreditLimitMicros > before.CreditLimitMicros {
			if err := tx.arm(ctx, &now); err != nil {
				return err
			}
		}
		if err := tx.fell(ctx, &now); err != nil {
			return err
		}
		stored, err := tx.Customer(ctx, row.ID)
		if err != nil {
			return err
		}
		*customer = *stored
		return nil
	})
}

func sameThreshold(a, b *int64) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
