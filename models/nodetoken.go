package models

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
)

// NewCDRToken makes a token for a node's reports: 32 random bytes in base64url.
func NewCDRToken() string {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails: crypto/rand.Read crashes the program instead
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// SetCDRToken makes token the one that proves a node's reports; the one before is worth nothing from then on. Only its SHA-256
// is stored. An empty token lets nobody report.
func (s *Store) SetCDRToken(ctx context.Context, nodeID, token string) error {
	var hash []byte
	if token != "" {
		sum := sha256.Sum256([]byte(token))
		hash = sum[:]
	}
	return s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec("UPDATE nodes SET cdr_token_hash = ?, updated_at = ? WHERE id = ?", hash, micros(tx.Now()), nodeID)
		return changedOne(result, "set CDR token of node %q", nodeID)
	})
}

// AuthenticateNode returns the id of the node with the name whose token it is, or ErrNotFound. The comparison takes the same
// time for every wrong token.
func (s *Store) AuthenticateNode(ctx context.Context, name, token string) (string, error) {
	var row struct {
		ID           string
		CDRTokenHash []byte `gorm:"column:cdr_token_hash"`
	}
	if err := s.read(ctx).Table(nodeTable).Select("id, cdr_token_hash").Where("name = ?", name).Take(&row).Error; err != nil {
		return "", explain(err, "authenticate node %q", name)
	}
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(row.CDRTokenHash, sum[:]) != 1 {
		return "", fmt.Errorf("authenticate node %q: %w", name, ErrNotFound)
	}
	return row.ID, nil
}
