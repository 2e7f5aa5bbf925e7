package models

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrKeyEnded says that the API key or the operator's token is revoked or has expired.
var ErrKeyEnded = errors.New("key has ended")

// RotateAPIKey makes a new key beside one of a customer's, with its name and application, and returns it, with its secret, and the moment
// from which the old key is worthless: grace from now, or earlier where it was to end before that. Without a grace the old key is revoked.
// ErrNotFound where the customer has no such key, ErrKeyEnded where it works no longer.
func (s *Store) RotateAPIKey(ctx context.Context, customerID, keyID string, grace time.Duration) (key *APIKey, secret string, until time.Time, err error) {
	err = s.InTx(ctx, func(tx *Store) error {
		var old APIKey
		if err := tx.write(ctx).Where("id = ? AND customer_id = ?", keyID, customerID).Take(&old).Error; err != nil {
			return explain(err, "rotate API key %q", keyID)
		}
		var err error
		if until, err = tx.retire(ctx, "api_keys", keyID, grace); err != nil {
			return err
		}
		key = &APIKey{CustomerID: old.CustomerID, ApplicationID: old.ApplicationID, Name: old.Name}
		secret, err = tx.CreateAPIKey(ctx, key, "")
		return err
	})
	if err != nil {
		return nil, "", time.Time{}, err
	}
	return key, secret, until, nil
}

// RotateOperator makes a new token beside an operator's, with its name and role and an end of its own (nil: none), and returns it as RotateAPIKey
// does a key.
func (s *Store) RotateOperator(ctx context.Context, id string, expiresAt *time.Time, grace time.Duration) (operator *Operator, token string, until time.Time, err error) {
	err = s.InTx(ctx, func(tx *Store) error {
		var old Operator
		if err := tx.write(ctx).Where("id = ?", id).Take(&old).Error; err != nil {
			return explain(err, "rotate token of operator %q", id)
		}
		var err error
		if until, err = tx.retire(ctx, "operators", id, grace); err != nil {
			return err
		}
		operator = &Operator{Name: old.Name, Role: old.Role, ExpiresAt: expiresAt}
		token, err = tx.CreateOperator(ctx, operator)
		return err
	})
	if err != nil {
		return nil, "", time.Time{}, err
	}
	return operator, token, until, nil
}

// retire ends a key or token after a grace, or at once without one, and returns when that is. It never gives one more time than it had.
func (s *Store) retire(ctx context.Context, table, id string, grace time.Duration) (time.Time, error) {
	now := s.Now()
	until := now.Add(grace)
	change := "expires_at = CASE WHEN expires_at < ? THEN expires_at ELSE ? END"
	values := []any{micros(until), micros(until), id, micros(now)}
	if grace <= 0 {
		change, values, until = "revoked_at = ?", []any{micros(now), id, micros(now)}, now
	}
	done := s.write(ctx).Exec("UPDATE "+table+" SET "+change+" WHERE id = ? AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)", values...)
	if done.Error != nil {
		return time.Time{}, explain(done.Error, "retire %q", id)
	}
	if done.RowsAffected == 0 {
		return time.Time{}, fmt.Errorf("retire %q: %w", id, ErrKeyEnded)
	}
	if grace <= 0 {
		return until, nil
	}
	var kept int64
	if err := s.write(ctx).Raw("SELECT expires_at FROM "+table+" WHERE id = ?", id).Scan(&kept).Error; err != nil {
		return time.Time{}, explain(err, "retire %q", id)
	}
	return time.UnixMicro(kept).UTC(), nil
}
