package models

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"time"
)

// APIKey authenticates a customer's requests. The key itself is shown once and not stored: Lookup finds the row, Hash
// (SHA-256 of the key) proves it, Prefix is for people to tell keys apart. It is worth nothing from ExpiresAt on, which RotateAPIKey
// sets, and once it is revoked.
type APIKey struct {
	ID            string
	CustomerID    string
	ApplicationID *string
	Name          string
	Prefix        string
	Lookup        string
	Hash          []byte
	CreatedAt     time.Time  `gorm:"serializer:moment;autoCreateTime:false"`
	LastUsedAt    *time.Time `gorm:"serializer:moment"`
	RevokedAt     *time.Time `gorm:"serializer:moment"`
	// RequestsPerMinute is that of the customer's limits. Only AuthenticateKey fills it.
	RequestsPerMinute int        `gorm:"->"`
	ExpiresAt         *time.Time `gorm:"serializer:moment"`
}

// TableName implements gorm's schema.Tabler.
func (APIKey) TableName() string { return "api_keys" }

const (
	apiKeyPrefix = "tandem_"
	// shownChars of a key are kept for display, but never more than a third of a key somebody chose.
	shownChars = 12
	// usedEvery is how exact LastUsedAt is: a write for each request would cost more than the request.
	usedEvery = time.Minute
)

// NewAPIKeySecret makes an API key: "tandem_" and 32 random bytes in base64url.
func NewAPIKeySecret() string {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails: crypto/rand.Read crashes the program instead
	return apiKeyPrefix + base64.RawURLEncoding.EncodeToString(raw[:])
}

func keyDigest(secret string) (lookup string, hash []byte) {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:8]), sum[:]
}

// CreateAPIKey stores the hash of secret, or of a new one where secret is empty, and returns the secret: the only time it
// can be seen.
func (s *Store) CreateAPIKey(ctx context.Context, key *APIKey, secret string) (string, error) {
	if secret == "" {
		secret = NewAPIKeySecret()
	}
	err := s.InTx(ctx, func(tx *Store) error {
		row := *key
		if row.ID == "" {
			row.ID = NewID(PrefixKey)
		}
		row.Lookup, row.Hash = keyDigest(secret)
		row.Prefix = secret[:min(shownChars, len(secret)/3)]
		row.CreatedAt = tx.Now()
		row.LastUsedAt, row.RevokedAt, row.ExpiresAt = nil, nil, nil
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "create API key %q", row.Name)
		}
		*key = row
		return nil
	})
	if err != nil {
		return "", err
	}
	return secret, nil
}

// AuthenticateKey returns the key that secret is, or ErrNotFound for one that is wrong, revoked or expired. The comparison takes the same time for every
// wrong secret.
func (s *Store) AuthenticateKey(ctx context.Context, secret string) (*APIKey, error) {
	lookup, hash := keyDigest(secret)
	var rows []APIKey
	const limits = "api_keys.*, (SELECT requests_per_minute FROM customers WHERE customers.id = api_keys.customer_id) AS requests_per_minute"
	if err := s.read(ctx).Select(limits).Where("lookup = ? AND revoked_at IS NULL", lookup).Find(&rows).Error; err != nil {
		return nil, explain(err, "authenticate API key")
	}
	now := s.Now()
	var found *APIKey
	for i := range rows {
		if subtle.ConstantTimeCompare(rows[i].Hash, hash) == 1 && (rows[i].ExpiresAt == nil || now.Before(*rows[i].ExpiresAt)) {
			found = &rows[i]
		}
	}
	if found == nil {
		return nil, fmt.Errorf("authenticate API key: %w", ErrNotFound)
	}
	if err := s.touchKey(ctx, found); err != nil {
		// The key is right; that its use could not be noted is no reason to refuse it.
		s.logger.WarnContext(ctx, "api key use not noted", "key_id", found.ID, "error", err)
	}
	return found, nil
}

func (s *Store) touchKey(ctx context.Context, key *APIKey) error {
	now := s.Now()
	if key.LastUsedAt != nil && now.Sub(*key.LastUsedAt) < usedEvery {
		return nil
	}
	key.LastUsedAt = &now
	return s.InTx(ctx, func(tx *Store) error {
		return tx.write(ctx).Exec("UPDATE api_keys SET last_used_at = ? WHERE id = ?", micros(now), key.ID).Error
	})
}

// ListAPIKeys returns the keys of a customer, revoked ones too, newest first; with applicationID only those of that
// application.
func (s *Store) ListAPIKeys(ctx context.Context, customerID, applicationID string) ([]APIKey, error) {
	query := s.read(ctx).Where("customer_id = ?", customerID)
	if applicationID != "" {
		query = query.Where("application_id = ?", applicationID)
	}
	var rows []APIKey
	err := query.Order("created_at DESC, id DESC").Find(&rows).Error
	return rows, explain(err, "list API keys")
}

// RevokeAPIKey ends a key at once; an empty applicationID matches any. Revoking again changes nothing. ErrNotFound where the
// customer (and application) has no such key.
func (s *Store) RevokeAPIKey(ctx context.Context, customerID, applicationID, keyID string) error {
	return s.InTx(ctx, func(tx *Store) error {
		query := tx.write(ctx).Model(&APIKey{}).Where("id = ? AND customer_id = ?", keyID, customerID)
		if applicationID != "" {
			query = query.Where("application_id = ?", applicationID)
		}
		var row APIKey
		if err := query.Take(&row).Error; err != nil {
			return explain(err, "revoke API key %q", keyID)
		}
		err := tx.write(ctx).Exec("UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", micros(tx.Now()), keyID).Error
		return explain(err, "revoke API key %q", keyID)
	})
}
