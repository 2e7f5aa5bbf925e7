package models

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// Kinds of ledger entries.
const (
	LedgerTopup  = "topup"
	LedgerCall   = "call"
	LedgerAdjust = "adjust"
)

// MaxBalanceMicros is the highest balance, and the highest credit limit: a million million units. What sums of both come to is an int64 in every
// statement; SQLite would make numbers with fractions of what is not.
const MaxBalanceMicros = 1_000_000_000_000 * 1_000_000

// ErrBalanceRange says that a balance would be higher than MaxBalanceMicros.
var ErrBalanceRange = errors.New("balance out of range")

// LedgerEntry is one change of a customer's balance: AmountMicros is negative where money leaves, BalanceMicros the balance
// after it. Key makes it happen once.
type LedgerEntry struct {
	ID         string
	CustomerID string
	// Seq is its place among the customer's: they changed the balance in this order.
	Seq           int64
	Key           string
	Kind          string
	AmountMicros  int64
	BalanceMicros int64
	CallID        *string
	Note          string
	// Actor is who made it, as the audit trail calls them; empty for what calls cost.
	Actor string
	// CreatedAt is when it was made, for a call's debit the time of its settlement.
	CreatedAt time.Time `gorm:"serializer:moment;autoCreateTime:false"`
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
	if amount == 0 {
		return // a free call locks no balance
	}
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
			_, err := tx.move(ctx, customerID, from-to, 0, noEntry)
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
		entry = nil
		at := tx.settling()
		var settled []struct {
			HoldMicros               int64
			ApplicationID, Direction string
		}
		err := tx.write(ctx).Raw(`UPDATE calls SET settled_at = ? WHERE id = ? AND customer_id = ? AND settled_at IS NULL
			RETURNING hold_micros, application_id, direction`, micros(at), callID, customerID).Scan(&settled).Error
		if err != nil {
			return explain(err, "settle call %q", callID)
		}
		if len(settled) == 0 {
			return fmt.Errorf("settle call %q: %w", callID, ErrStale)
		}
		if settled[0].HoldMicros != hold {
			return fmt.Errorf("settle call %q: it holds %d, not %d", callID, settled[0].HoldMicros, hold)
		}
		tx.tx.counts(callID, counting{settled[0].ApplicationID, settled[0].Direction})
		if hold == 0 && cost == 0 {
			return nil // a free call locks no balance
		}
		tx.atEnd(func() error {
			entries := oneEntry
			if cost == 0 {
				entries = noEntry
			}
			account, err := tx.move(ctx, customerID, hold, -cost, entries)
			if err != nil {
				return fmt.Errorf("settle call %q: %w", callID, err)
			}
			if cost == 0 {
				return nil
			}
			entry = &LedgerEntry{Key: "call:" + callID, Kind: LedgerCall, AmountMicros: -cost, CallID: &callID, CreatedAt: at}
			if err := tx.record(ctx, account, entry); err != nil {
				return err
			}
			if err := tx.fell(ctx, account); err != nil {
				return err
			}
			return tx.addSpent(ctx, callID, cost)
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return entry, nil
}

// Credit changes a balance by amount (negative to take) under a key of the caller's choice and returns the ledger entry; the
// entry that is there already where the key was used before. ErrInsufficientBalance where it would leave less than is held, ErrBalanceRange where it
// would be more than MaxBalanceMicros. The entry names who is in the context's audit entry, see WithAudit.
func (s *Store) Credit(ctx context.Context, customerID, key, kind string, amount int64, note string) (*LedgerEntry, error) {
	var entry *LedgerEntry
	err := s.InTx(ctx, func(tx *Store) error {
		// The balance first: its row lock makes two credits with one key come one after the other.
		if _, err := tx.move(ctx, customerID, 0, 0, noEntry); err != nil {
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
		customer, err := tx.Customer(ctx, customerID)
		switch {
		case err != nil:
			return fmt.Errorf("credit customer %q: %w", customerID, err)
		case amount > MaxBalanceMicros-customer.BalanceMicros:
			return fmt.Errorf("credit customer %q with %d: %w", customerID, amount, ErrBalanceRange)
		case amount < -2*MaxBalanceMicros:
			return fmt.Errorf("credit customer %q with %d: %w", customerID, amount, ErrInsufficientBalance)
		}
		account, err := tx.move(ctx, customerID, 0, amount, oneEntry)
		if err != nil {
			return fmt.Errorf("credit customer %q: %w", customerID, err)
		}
		entry = &LedgerEntry{Key: key, Kind: kind, AmountMicros: amount, Note: note, Actor: actor(ctx), CreatedAt: tx.Now()}
		if err := tx.record(ctx, account, entry); err != nil {
			return err
		}
		if amount > 0 {
			return tx.arm(ctx, account)
		}
		return tx.fell(ctx, account)
	})
	if err != nil {
		return nil, err
	}
	return entry, nil
}

// How many places in the ledger a change of the account takes.
const (
	noEntry  = 0
	oneEntry = 1
)

// move releases a hold, changes the balance, takes places in the ledger, and returns what the account came to. The row is locked from here to the end
// of the transaction.
func (s *Store) move(ctx context.Context, customerID string, release, amount int64, entries int) (*account, error) {
	var moved []account
	err := s.write(ctx).Raw(`UPDATE customers SET held_micros = held_micros - ?, balance_micros = balance_micros + ?, ledger_seq = ledger_seq + ?, updated_at = ?
		WHERE id = ? AND balance_micros + credit_limit_micros + ? >= held_micros - ? RETURNING `+accountColumns,
		release, amount, entries, micros(s.Now()), customerID, amount, release).Scan(&moved).Error
	if err != nil {
		return nil, explain(err, "change balance")
	}
	if len(moved) == 1 {
		return &moved[0], nil
	}
	if _, err := s.Customer(ctx, customerID); err != nil {
		return nil, err
	}
	return nil, ErrInsufficientBalance
}

// record writes the entry of a change that move has made.
func (s *Store) record(ctx context.Context, account *account, entry *LedgerEntry) error {
	entry.ID = NewID(PrefixLedger)
	entry.CustomerID, entry.Seq, entry.BalanceMicros = account.ID, account.LedgerSeq, account.BalanceMicros
	return explain(s.write(ctx).Create(entry).Error, "write ledger entry %q", entry.Key)
}

// settling is the moment at which the transaction settles: that of the call's settlement, of its debit and of the lines of its bill.
func (s *Store) settling() time.Time {
	if s.tx.settling.IsZero() {
		s.tx.settling = s.Now()
	}
	return s.tx.settling
}

// LedgerFilter narrows a reading of a ledger; zero fields do not.
type LedgerFilter struct {
	Kind   string
	CallID string
	// From is the first moment, Before the first one that is not meant any more.
	From, Before *time.Time
}

func (f *LedgerFilter) scope(query *gorm.DB) *gorm.DB {
	if f.Kind != "" {
		query = query.Where("kind = ?", f.Kind)
		if f.Kind != LedgerCall {
			query = query.Where("kind <> 'call'") // says that the index of payments is enough
		}
	}
	if f.CallID != "" {
		query = query.Where("call_id = ? AND kind = 'call'", f.CallID)
	}
	if f.From != nil {
		query = query.Where("created_at >= ?", micros(*f.From))
	}
	if f.Before != nil {
		query = query.Where("created_at < ?", micros(*f.Before))
	}
	return query
}

// ledgerCursor is the word in the cursors of ListLedger.
const ledgerCursor = "ledger"

// ListLedger returns a page of a customer's ledger, newest first, and the cursor of the next page: the balance of each entry is that of the one
// behind it and its own amount, whatever is written meanwhile.
func (s *Store) ListLedger(ctx context.Context, customerID string, filter LedgerFilter, page Page) ([]LedgerEntry, string, error) {
	query := filter.scope(s.read(ctx).Where("customer_id = ?", customerID))
	if page.Cursor != "" {
		before, err := decodePosition(ledgerCursor, page.Cursor)
		if err != nil {
			return nil, "", err
		}
		query = query.Where("seq < ?", before)
	}
	var rows []LedgerEntry
	if err := query.Order("seq DESC").Limit(page.limit() + 1).Find(&rows).Error; err != nil {
		return nil, "", explain(err, "list ledger")
	}
	limit := page.limit()
	if len(rows) <= limit {
		return rows, "", nil
	}
	return rows[:limit], encodePosition(ledgerCursor, rows[limit-1].Seq), nil
}
