package models

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kinds of ledger entries.
const (
	LedgerTopup  = "topup"
	LedgerCall   = "call"
	LedgerAdjust = "adjust"
)

// LedgerEntry is one change of a customer's balance: AmountMicros is negative where money leaves, BalanceMicros the balance
// after it. Key makes it happen once.
type LedgerEntry struct {
	ID            string
	CustomerID    string
	Key           string
	Kind          string
	AmountMicros  int64
	BalanceMicros int64
	CallID        *string
	Note          string
	CreatedAt     time.Time `gorm:"serializer:moment;autoCreateTime:false"`
}

// Hold reserves amount of a customer's free balance, or returns ErrInsufficientBalance and changes nothing. It belongs in the
// transaction that creates the call with the same HoldMicros.
func (s *Store) Hold(ctx context.Context, customerID string, amount int64) error {
	if amount < 0 {
		return fmt.Errorf("hold %d: negative amount", amount)
	}
	return s.InTx(ctx, func(tx *Store) error {
		// One conditional update: whoever comes second sees what the first one held.
		result := tx.write(ctx).Exec(`UPDATE customers SET held_micros = held_micros + ?, updated_at = ?
			WHERE id = ? AND balance_micros + credit_limit_micros - held_micros >= ?`, amount, micros(tx.Now()), customerID, amount)
		if result.Error != nil {
			return explain(result.Error, "hold %d of customer %q", amount, customerID)
		}
		if result.RowsAffected == 1 {
			return nil
		}
		if _, err := tx.Customer(ctx, customerID); err != nil {
			return err
		}
		return fmt.Errorf("hold %d of customer %q: %w", amount, customerID, ErrInsufficientBalance)
	})
}

// ErrBalanceTaken says that the balance which a transaction saw was held or spent by others before it ended. It is an ErrInsufficientBalance.
var ErrBalanceTaken = fmt.Errorf("taken by others meanwhile: %w", ErrInsufficientBalance)

// HoldAtEnd is Hold right before the commit of the transaction, where ErrBalanceTaken undoes it as a whole: nobody else waits for the balance
// while the rest of the transaction runs.
func (s *Store) HoldAtEnd(ctx context.Context, customerID string, amount int64) {
	s.atEnd(func() error {
		err := s.Hold(ctx, customerID, amount)
		if errors.Is(err, ErrInsufficientBalance) {
			return fmt.Errorf("hold %d of customer %q: %w", amount, customerID, ErrBalanceTaken)
		}
		return err
	})
}

// Rehold changes what a call holds from one amount to another, right before the commit of the transaction. ErrStale where the call is settled, is not the
// customer's or holds another amount; ErrBalanceTaken, which undoes the transaction, where the free balance does not cover the difference.
func (s *Store) Rehold(ctx context.Context, customerID, callID string, from, to int64) error {
	if to < 0 {
		return fmt.Errorf("hold %d for call %q: negative amount", to, callID)
	}
	if from == to {
		return nil
	}
	return s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec("UPDATE calls SET hold_micros = ?, updated_at = ? WHERE id = ? AND customer_id = ? AND hold_micros = ? AND settled_at IS NULL",
			to, micros(tx.Now()), callID, customerID, from)
		if result.Error != nil {
			return explain(result.Error, "hold %d for call %q", to, callID)
		}
		if result.RowsAffected == 0 {
			return fmt.Errorf("hold %d instead of %d for call %q: %w", to, from, callID, ErrStale)
		}
		if to > from {
			tx.HoldAtEnd(ctx, customerID, to-from)
			return nil
		}
		tx.atEnd(func() error {
			_, err := tx.move(ctx, customerID, from-to, 0)
			return err
		})
		return nil
	})
}

// SettleHold ends a call's account, once: it releases hold, takes cost from the balance and writes the ledger entry (none
// where the cost is zero), right before the commit of the transaction that it belongs to. ErrStale where the call is settled already or is not the customer's; ErrInsufficientBalance, and
// nothing changed, where cost would eat into what other calls hold. hold must be the call's HoldMicros.
func (s *Store) SettleHold(ctx context.Context, customerID, callID string, hold, cost int64) (*LedgerEntry, error) {
	if hold < 0 || cost < 0 {
		return nil, fmt.Errorf("settle call %q: negative amount", callID)
	}
	var entry *LedgerEntry
	err := s.InTx(ctx, func(tx *Store) error {
		now := micros(tx.Now())
		entry = nil
		var held []int64
		err := tx.write(ctx).Raw("UPDATE calls SET settled_at = ? WHERE id = ? AND customer_id = ? AND settled_at IS NULL RETURNING hold_micros",
			now, callID, customerID).Scan(&held).Error
		if err != nil {
			return explain(err, "settle call %q", callID)
		}
		if len(held) == 0 {
			return fmt.Errorf("settle call %q: %w", callID, ErrStale)
		}
		if held[0] != hold {
			return fmt.Errorf("settle call %q: it holds %d, not %d", callID, held[0], hold)
		}
		tx.atEnd(func() error {
			balance, err := tx.move(ctx, customerID, hold, -cost)
			if err != nil {
				return fmt.Errorf("settle call %q: %w", callID, err)
			}
			if cost == 0 {
				return nil
			}
			entry = &LedgerEntry{
				CustomerID: customerID, Key: "call:" + callID, Kind: LedgerCall, AmountMicros: -cost, BalanceMicros: balance, CallID: &callID,
			}
			return tx.record(ctx, entry)
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return entry, nil
}

// Credit changes a balance by amount (negative to take) under a key of the caller's choice and returns the ledger entry; the
// entry that is there already where the key was used before. ErrInsufficientBalance where it would leave less than is held.
func (s *Store) Credit(ctx context.Context, customerID, key, kind string, amount int64, note string) (*LedgerEntry, error) {
	var entry *LedgerEntry
	err := s.InTx(ctx, func(tx *Store) error {
		// The balance first: its row lock makes two credits with one key come one after the other.
		if _, err := tx.move(ctx, customerID, 0, 0); err != nil {
			return fmt.Errorf("credit customer %q: %w", customerID, err)
		}
		var known []LedgerEntry
		if err := tx.write(ctx).Where("customer_id = ? AND key = ?", customerID, key).Find(&known).Error; err != nil {
			return explain(err, "credit customer %q", customerID)
		}
		if len(known) > 0 {
			entry = &known[0]
			return nil
		}
		balance, err := tx.move(ctx, customerID, 0, amount)
		if err != nil {
			return fmt.Errorf("credit customer %q: %w", customerID, err)
		}
		entry = &LedgerEntry{CustomerID: customerID, Key: key, Kind: kind, AmountMicros: amount, BalanceMicros: balance, Note: note}
		return tx.record(ctx, entry)
	})
	if err != nil {
		return nil, err
	}
	return entry, nil
}

// move releases a hold, changes the balance and returns it.
func (s *Store) move(ctx context.Context, customerID string, release, amount int64) (int64, error) {
	var balance []int64
	err := s.write(ctx).Raw(`UPDATE customers SET held_micros = held_micros - ?, balance_micros = balance_micros + ?, updated_at = ?
		WHERE id = ? AND balance_micros + credit_limit_micros + ? >= held_micros - ? RETURNING balance_micros`,
		release, amount, micros(s.Now()), customerID, amount, release).Scan(&balance).Error
	if err != nil {
		return 0, explain(err, "change balance")
	}
	if len(balance) == 1 {
		return balance[0], nil
	}
	if _, err := s.Customer(ctx, customerID); err != nil {
		return 0, err
	}
	return 0, ErrInsufficientBalance
}

func (s *Store) record(ctx context.Context, entry *LedgerEntry) error {
	entry.ID = NewID(PrefixLedger)
	entry.CreatedAt = s.Now()
	return explain(s.write(ctx).Create(entry).Error, "write ledger entry %q", entry.Key)
}

// ListLedger returns a page of a customer's ledger, newest first, and the cursor of the next page.
func (s *Store) ListLedger(ctx context.Context, customerID string, page Page) ([]LedgerEntry, string, error) {
	query := s.read(ctx).Where("customer_id = ?", customerID)
	rows, next, err := paged(query, page, func(e *LedgerEntry) (time.Time, string) { return e.CreatedAt, e.ID })
	return rows, next, explain(err, "list ledger")
}
