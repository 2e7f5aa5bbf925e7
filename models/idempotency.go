package models

import (
	"context"
	"time"
)

// IdempotentResponse is the answer given to a request that carried an Idempotency-Key. RequestHash tells a repetition from
// another request under the same key. Body and RequestHash are sealed in the database: the answers that create a key hold it,
// and a plain hash of a request with a password in it would let the password be guessed.
type IdempotentResponse struct {
	CustomerID  string `gorm:"primaryKey"`
	Key         string `gorm:"primaryKey"`
	Method      string
	Path        string
	RequestHash string
	Status      int
	Body        []byte
	CreatedAt   time.Time `gorm:"serializer:moment;autoCreateTime:false"`
}

const idempotentTable = "idempotent_responses"

// place names the row for the seal of its body. No customer ID has a blank.
func (r *IdempotentResponse) place() string { return r.CustomerID + " " + r.Key }

// FindIdempotent returns the stored answer of a customer's key, or ErrNotFound.
func (s *Store) FindIdempotent(ctx context.Context, customerID, key string) (*IdempotentResponse, error) {
	var row IdempotentResponse
	if err := s.read(ctx).Where("customer_id = ? AND key = ?", customerID, key).Take(&row).Error; err != nil {
		return nil, explain(err, "idempotency key %q", key)
	}
	body, err := s.sealer.open(idempotentTable, "body", row.place(), string(row.Body))
	if err != nil {
		return nil, err
	}
	hash, err := s.sealer.open(idempotentTable, "request_hash", row.place(), row.RequestHash)
	if err != nil {
		return nil, err
	}
	row.Body, row.RequestHash = []byte(body), string(hash)
	return &row, nil
}

// SaveIdempotent stores an answer in the transaction that did the work. ErrIdempotencyKeyExists where the key has one: the
// work was done by another request, and this transaction must not be kept.
func (s *Store) SaveIdempotent(ctx context.Context, response *IdempotentResponse) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *response
		row.CreatedAt = tx.Now()
		row.Body = []byte(tx.sealer.seal(idempotentTable, "body", row.place(), Secret(row.Body)))
		row.RequestHash = tx.sealer.seal(idempotentTable, "request_hash", row.place(), Secret(row.RequestHash))
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "save answer of idempotency key %q", row.Key)
		}
		row.Body, row.RequestHash = response.Body, response.RequestHash
		*response = row
		return nil
	})
}

// PruneIdempotent forgets answers given before a time and returns how many.
func (s *Store) PruneIdempotent(ctx context.Context, before time.Time) (int64, error) {
	var pruned int64
	err := s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec("DELETE FROM idempotent_responses WHERE created_at < ?", micros(before))
		pruned = result.RowsAffected
		return explain(result.Error, "prune idempotency keys")
	})
	return pruned, err
}
