package models

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"slices"
	"time"
)

// Roles of operators, each of which may do what the one before it may: a viewer reads; an operator does what the day asks for
// (drain a node, test a trunk, import numbers, hang up a call); an admin changes money, tokens, customers and nodes' passwords.
const (
	RoleViewer   = "viewer"
	RoleOperator = "operator"
	RoleAdmin    = "admin"
)

// Roles are the roles, from the least to the most.
var Roles = []string{RoleViewer, RoleOperator, RoleAdmin}

// RoleCovers reports whether a role may do what another is needed for. What is no role covers nothing, and nothing covers it.
func RoleCovers(have, need string) bool {
	needed := slices.Index(Roles, need)
	return needed >= 0 && slices.Index(Roles, have) >= needed
}

// Operator is a token by which a person or a program runs the installation. As with an APIKey, the token itself is shown once and
// not stored. It is worth nothing from ExpiresAt on, where that is set, and once it is revoked.
type Operator struct {
	ID         string
	Name       string
	Role       string
	Prefix     string
	Lookup     string
	Hash       []byte
	CreatedAt  time.Time  `gorm:"serializer:moment;autoCreateTime:false"`
	ExpiresAt  *time.Time `gorm:"serializer:moment"`
	LastUsedAt *time.Time `gorm:"serializer:moment"`
	RevokedAt  *time.Time `gorm:"serializer:moment"`
}

// TableName implements gorm's schema.Tabler.
func (Operator) TableName() string { return "operators" }

// OperatorTokenPrefix begins every operator's token, so that nobody takes one for a customer's key.
const OperatorTokenPrefix = "op_"

// newOperatorToken makes a token: the prefix and 32 random bytes in base64url.
func newOperatorToken() string {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails: crypto/rand.Read crashes the program instead
	return OperatorTokenPrefix + base64.RawURLEncoding.EncodeToString(raw[:])
}

// CreateOperator stores an operator with a new token and returns the token: the only time it can be seen.
func (s *Store) CreateOperator(ctx context.Context, operator *Operator) (string, error) {
	if !slices.Contains(Roles, operator.Role) {
		return "", fmt.Errorf("create operator %q: there is no role %q", operator.Name, operator.Role)
	}
	token := newOperatorToken()
	err := s.InTx(ctx, func(tx *Store) error {
		row := *operator
		if row.ID == "" {
			row.ID = NewID(PrefixOperator)
		}
		row.Lookup, row.Hash = keyDigest(token)
		row.Prefix = token[:shownChars]
		row.CreatedAt, row.ExpiresAt = tx.Now(), cut(row.ExpiresAt)
		row.LastUsedAt, row.RevokedAt = nil, nil
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "create operator %q", row.Name)
		}
		*operator = row
		return nil
	})
	if err != nil {
		return "", err
	}
	return token, nil
}

// AuthenticateOperator returns the operator whose token it is, or ErrNotFound for a token that is wrong, revoked or expired. The
// comparison takes the same time for every wrong token.
func (s *Store) AuthenticateOperator(ctx context.Context, token string) (*Operator, error) {
	lookup, hash := keyDigest(token)
	var rows []Operator
	if err := s.read(ctx).Where("lookup = ? AND revoked_at IS NULL", lookup).Find(&rows).Error; err != nil {
		return nil, explain(err, "authenticate operator")
	}
	now := s.Now()
	var found *Operator
	for i := range rows {
		if subtle.ConstantTimeCompare(rows[i].Hash, hash) == 1 && (rows[i].ExpiresAt == nil || now.Before(*rows[i].ExpiresAt)) {
			found = &rows[i]
		}
	}
	if found == nil {
		return nil, fmt.Errorf("authenticate operator: %w", ErrNotFound)
	}
	if found.LastUsedAt != nil && now.Sub(*found.LastUsedAt) < usedEvery {
		return found, nil
	}
	found.LastUsedAt = &now
	err := s.InTx(ctx, func(tx *Store) error {
		return tx.write(ctx).Exec("UPDATE operators SET last_used_at = ? WHERE id = ?", micros(now), found.ID).Error
	})
	if err != nil {
		// The token is right; that its use could not be noted is no reason to refuse it.
		s.logger.WarnContext(ctx, "operator use not noted", "operator_id", found.ID, "error", err)
	}
	return found, nil
}

// Operator returns an operator, also one whose token is revoked or expired. ErrNotFound where there is none.
func (s *Store) Operator(ctx context.Context, id string) (*Operator, error) {
	var row Operator
	if err := s.read(ctx).Where("id = ?", id).Take(&row).Error; err != nil {
		return nil, explain(err, "find operator %q", id)
	}
	return &row, nil
}

// ListOperators returns a page of operators, revoked and expired ones too, newest first.
func (s *Store) ListOperators(ctx context.Context, page Page) ([]Operator, string, error) {
	rows, next, err := paged(s.read(ctx).Model(&Operator{}), page, func(o *Operator) (time.Time, string) { return o.CreatedAt, o.ID })
	return rows, next, explain(err, "list operators")
}

// RevokeOperator makes an operator's token worthless at once and returns the operator. Revoking again changes nothing.
// ErrNotFound where there is none.
func (s *Store) RevokeOperator(ctx context.Context, id string) (*Operator, error) {
	var row Operator
	err := s.InTx(ctx, func(tx *Store) error {
		row = Operator{}
		now := tx.Now()
		if err := tx.write(ctx).Exec("UPDATE operators SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", micros(now), id).Error; err != nil {
			return explain(err, "revoke operator %q", id)
		}
		return explain(tx.write(ctx).Where("id = ?", id).Take(&row).Error, "revoke operator %q", id)
	})
	if err != nil {
		return nil, err
	}
	return &row, nil
}
