package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"tandem/models"
)

// OperatorToken is an operator as the command line shows one: as the operator API does. Token is set only by CreateOperator.
type OperatorToken struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Role       string     `json:"role"`
	Prefix     string     `json:"prefix"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	LastUsedAt *time.Time `json:"last_used_at"`
	RevokedAt  *time.Time `json:"revoked_at"`
	Token      string     `json:"token,omitempty"`
}

func operatorTokenOf(o *models.Operator, token string) OperatorToken {
	return OperatorToken{
		ID: o.ID, Name: o.Name, Role: o.Role, Prefix: o.Prefix, CreatedAt: o.CreatedAt.Truncate(time.Second),
		ExpiresAt: o.ExpiresAt, LastUsedAt: o.LastUsedAt, RevokedAt: o.RevokedAt, Token: token,
	}
}

// CreateOperator makes an operator with a token on the database itself: the first one has nobody to ask. expires is how long the
// token works, 0 for until it is revoked.
func (o *Operator) CreateOperator(ctx context.Context, name, role string, expires time.Duration) (OperatorToken, error) {
	if name = strings.TrimSpace(name); name == "" || len(name) > 100 {
		return OperatorToken{}, errors.New("create operator: name must have 1 to 100 characters")
	}
	operator := &models.Operator{Name: name, Role: role}
	if expires > 0 {
		at := o.store.Now().Add(expires)
		operator.ExpiresAt = &at
	}
	ctx, entry := commandAudit(ctx, "createOperator", map[string]any{"name": name, "role": role})
	var token string
	err := o.store.InTx(ctx, func(tx *models.Store) error {
		row := *operator
		var err error
		if token, err = tx.CreateOperator(ctx, &row); err != nil {
			return err
		}
		entry.Entry.ObjectID = row.ID
		*operator = row
		return nil
	})
	if err != nil {
		return OperatorToken{}, err
	}
	return operatorTokenOf(operator, token), nil
}

// Operators lists all operators, newest first.
func (o *Operator) Operators(ctx context.Context) ([]OperatorToken, error) {
	out := []OperatorToken{}
	for page := (models.Page{Limit: models.MaxPageLimit}); ; {
		operators, next, err := o.store.ListOperators(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("list operators: %w", err)
		}
		for i := range operators {
			out = append(out, operatorTokenOf(&operators[i], ""))
		}
		if next == "" {
			return out, nil
		}
		page.Cursor = next
	}
}

// RevokeOperator makes an operator's token worthless at once.
func (o *Operator) RevokeOperator(ctx context.Context, id string) error {
	ctx, entry := commandAudit(ctx, "revokeOperator", nil)
	entry.Entry.ObjectID = id
	_, err := o.store.RevokeOperator(ctx, id)
	return err
}

// operatorTokenFile is where `tandem dev` keeps an operator's token in its data folder.
const operatorTokenFile = "operator.token"

// seedOperator makes an admin's token for `tandem dev` and keeps it in a file of the data folder, unless the one there works.
func seedOperator(ctx context.Context, store *models.Store, dataDir string) error {
	file := filepath.Join(dataDir, operatorTokenFile)
	raw, err := os.ReadFile(file)
	if err == nil {
		_, err = store.AuthenticateOperator(ctx, strings.TrimSpace(string(raw)))
		if err == nil {
			return nil
		}
		if !errors.Is(err, models.ErrNotFound) {
			return fmt.Errorf("try the operator's token: %w", err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the operator's token: %w", err)
	}
	ctx, entry := commandAudit(ctx, "createOperator", map[string]any{"name": "tandem dev", "role": models.RoleAdmin})
	operator := &models.Operator{ID: models.NewID(models.PrefixOperator), Name: "tandem dev", Role: models.RoleAdmin}
	entry.Entry.ObjectID = operator.ID
	token, err := store.CreateOperator(ctx, operator)
	if err != nil {
		return err
	}
	temporary := file + ".new"
	if err := os.WriteFile(temporary, []byte(token+"\n"), 0o600); err != nil {
		return fmt.Errorf("keep the operator's token: %w", err)
	}
	if err := os.Rename(temporary, file); err != nil {
		return fmt.Errorf("keep the operator's token: %w", err)
	}
	return nil
}

// commandAudit returns a context whose next change of the database is in the audit trail as that of who runs this command.
func commandAudit(ctx context.Context, action string, detail map[string]any) (context.Context, *models.PendingAudit) {
	entry := &models.PendingAudit{Entry: models.AuditEntry{ActorKind: models.ActorCommand, ActorID: runner(), Action: action}}
	entry.Entry.ActorName = entry.Entry.ActorID
	if detail != nil {
		// It holds strings and numbers; the entry is worth having without it.
		entry.Entry.Detail, _ = json.Marshal(detail)
	}
	return models.WithAudit(ctx, entry), entry
}

// runner names who runs this command: user@host.
func runner() string {
	name := ""
	if current, err := user.Current(); err == nil {
		name = current.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return cmp.Or(name, "unknown") + "@" + cmp.Or(host, "unknown")
}
