package models

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm/clause"
)

// ErrDeckCurrency says that a deck's rates are in another currency than the account that it is for.
var ErrDeckCurrency = errors.New("the rate deck has another currency")

// lockDecks keeps others from making another deck the default one meanwhile.
func (s *Store) lockDecks(ctx context.Context) error { return s.lock(ctx, "rate_decks") }

// CreateRateDeck inserts a deck and fills ID, times and, where it is empty, Unlisted (UnlistedNext). As the default deck it takes the place of the one
// of its currency. ErrNameExists where a deck has the name.
func (s *Store) CreateRateDeck(ctx context.Context, deck *RateDeck) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *deck
		row.ID, row.CreatedAt = NewID(PrefixDeck), tx.Now()
		row.UpdatedAt = row.CreatedAt
		if row.Unlisted == "" {
			row.Unlisted = UnlistedNext
		}
		if err := tx.onlyDefault(ctx, &row); err != nil {
			return err
		}
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "create rate deck %q", row.Name)
		}
		*deck = row
		return nil
	})
}

// onlyDefault has no other deck than this one be the default one of its currency.
func (s *Store) onlyDefault(ctx context.Context, deck *RateDeck) error {
	if !deck.IsDefault {
		return nil
	}
	if err := s.lockDecks(ctx); err != nil {
		return err
	}
	err := s.write(ctx).Exec("UPDATE rate_decks SET is_default = ?, updated_at = ? WHERE currency = ? AND is_default AND id <> ?",
		false, micros(s.Now()), deck.Currency, deck.ID).Error
	return explain(err, "unset the default deck of %s", deck.Currency)
}

// RateDeck returns a deck, or ErrNotFound.
func (s *Store) RateDeck(ctx context.Context, id string) (*RateDeck, error) {
	var row RateDeck
	if err := s.read(ctx).Where("id = ?", id).Take(&row).Error; err != nil {
		return nil, explain(err, "rate deck %q", id)
	}
	return &row, nil
}

// RateDecks returns a page of decks, newest first, and the cursor of the next page; those with a name or of a currency only where these are given.
func (s *Store) RateDecks(ctx context.Context, name, currency string, page Page) ([]RateDeck, string, error) {
	query := s.read(ctx)
	if name != "" {
		query = query.Where("name = ?", name)
	}
	if currency != "" {
		query = query.Where("currency = ?", currency)
	}
	rows, next, err := paged(query, page, func(d *RateDeck) (time.Time, string) { return d.CreatedAt, d.ID })
	return rows, next, explain(err, "list rate decks")
}

// DeckUse is how many rates a deck has, those that are over too, and whose it is: how many customers and undeleted trunks have it for their own.
type DeckUse struct{ Rates, Customers, Trunks int64 }

// DeckUse counts the rates and the users of a deck.
func (s *Store) DeckUse(ctx context.Context, id string) (DeckUse, error) {
	var use DeckUse
	err := s.read(ctx).Raw(`SELECT (SELECT COUNT(*) FROM rates WHERE deck_id = ?), (SELECT COUNT(*) FROM customers WHERE rate_deck_id = ?),
		(SELECT COUNT(*) FROM trunks WHERE rate_deck_id = ? AND deleted_at IS NULL)`, id, id, id).Row().Scan(&use.Rates, &use.Customers, &use.Trunks)
	return use, explain(err, "count what rate deck %q has", id)
}

// EditRateDeck is RateDeck for a transaction that goes on to change the deck. ErrNotFound as there.
func (s *Store) EditRateDeck(ctx context.Context, id string) (*RateDeck, error) {
	var row RateDeck
	err := s.write(ctx).Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).Where("id = ?", id).Take(&row).Error
	if err != nil {
		return nil, explain(err, "rate deck %q", id)
	}
	return &row, nil
}

// UpdateRateDeck writes name, IsDefault and Unlisted of a deck. As the default deck it takes the place of the one of its currency. ErrNotFound, or
// ErrNameExists where another deck has the name.
func (s *Store) UpdateRateDeck(ctx context.Context, deck *RateDeck) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *deck
		row.UpdatedAt = tx.Now()
		if err := tx.onlyDefault(ctx, &row); err != nil {
			return err
		}
		result := tx.write(ctx).Model(&RateDeck{}).Where("id = ?", row.ID).Select("name", "is_default", "unlisted", "updated_at").Updates(&row)
		if err := changedOne(result, "update rate deck %q", row.ID); err != nil {
			return err
		}
		*deck = row
		return nil
	})
}

// DeleteRateDeck deletes a deck with its rates and imports. Calls keep what they were promised. ErrInUse while it is a customer's or an undeleted
// trunk's, or the default one; ErrNotFound.
func (s *Store) DeleteRateDeck(ctx context.Context, id string) error {
	return s.InTx(ctx, func(tx *Store) error {
		deck, err := tx.EditRateDeck(ctx, id)
		if err != nil {
			return err
		}
		use, err := tx.DeckUse(ctx, id)
		if err != nil {
			return err
		}
		if deck.IsDefault || use.Customers+use.Trunks > 0 {
			return fmt.Errorf("delete rate deck %q: %w", id, ErrInUse)
		}
		if err := tx.write(ctx).Exec("UPDATE trunks SET rate_deck_id = NULL WHERE rate_deck_id = ?", id).Error; err != nil {
			return explain(err, "take rate deck %q from deleted trunks", id)
		}
		return changedOne(tx.write(ctx).Exec("DELETE FROM rate_decks WHERE id = ?", id), "delete rate deck %q", id)
	})
}

// pinDeck keeps a deck from being deleted until the transaction ends. ErrNotFound where there is none, ErrDeckCurrency where it has another currency.
func (s *Store) pinDeck(ctx context.Context, id, currency string) error {
	var deck RateDeck
	err := s.write(ctx).Clauses(clause.Locking{Strength: clause.LockingStrengthShare}).Where("id = ?", id).Take(&deck).Error
	if err != nil {
		return explain(err, "rate deck %q", id)
	}
	if deck.Currency != currency {
		return fmt.Errorf("rate deck %q is in %s, the account in %s: %w", id, deck.Currency, currency, ErrDeckCurrency)
	}
	return nil
}

// SetCustomerDeck gives a customer a deck of its own, or with an empty id none. ErrNotFound where customer or deck are not there, ErrDeckCurrency.
func (s *Store) SetCustomerDeck(ctx context.Context, customerID, deckID string) error {
	return s.InTx(ctx, func(tx *Store) error {
		customer, err := tx.EditCustomer(ctx, customerID)
		if err != nil {
			return err
		}
		return tx.setDeck(ctx, "customers", customer.ID, deckID, customer.Currency)
	})
}

// SetTrunkDeck gives an undeleted trunk of a customer a deck of its own, or with an empty id none. Errors as SetCustomerDeck.
func (s *Store) SetTrunkDeck(ctx context.Context, customerID, trunkID, deckID string) error {
	return s.InTx(ctx, func(tx *Store) error {
		trunk, err := tx.EditTrunk(ctx, customerID, trunkID)
		if err != nil {
			return err
		}
		customer, err := tx.Customer(ctx, trunk.CustomerID)
		if err != nil {
			return err
		}
		return tx.setDeck(ctx, trunkTable, trunk.ID, deckID, customer.Currency)
	})
}

func (s *Store) setDeck(ctx context.Context, table, id, deckID, currency string) error {
	var deck *string
	if deckID != "" {
		if err := s.pinDeck(ctx, deckID, currency); err != nil {
			return err
		}
		deck = &deckID
	}
	result := s.write(ctx).Exec("UPDATE "+table+" SET rate_deck_id = ?, updated_at = ? WHERE id = ?", deck, micros(s.Now()), id)
	return changedOne(result, "set the rate deck of %q", id)
}
