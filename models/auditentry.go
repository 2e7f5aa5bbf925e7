package models

import (
	"context"
	"encoding/json"
	"time"
)

// Kinds of actors.
const (
	// ActorOperator is an operator's token, ActorKey a customer's API key, ActorCommand who ran a command of the command line on
	// the database itself.
	ActorOperator = "operator"
	ActorKey      = "api_key"
	ActorCommand  = "command"
)

// AuditEntry says who changed what. It is written in the transaction of the change and never changed.
type AuditEntry struct {
	ID        string
	ActorKind string
	// ActorID is the operator, the API key or, for ActorCommand, the user and host; ActorName what it was called then.
	ActorID   string
	ActorName string
	// Action is the operationId of the API's endpoint, or the command.
	Action string
	// CustomerID is whose things were changed, ObjectID what was; empty where there is no such.
	CustomerID string `gorm:"serializer:reference"`
	ObjectID   string
	// Detail is what was asked for, as a JSON object; it never holds a secret.
	Detail json.RawMessage `gorm:"serializer:optional"`
	// RequestID finds the request in the log, Remote is the address that it came from; both empty for ActorCommand.
	RequestID string
	Remote    string
	// CreatedAt is when the request came, or where that is not given, when the entry was written: what a request does on a switch comes after it.
	CreatedAt time.Time `gorm:"serializer:moment;autoCreateTime:false"`
}

// TableName implements gorm's schema.Tabler.
func (AuditEntry) TableName() string { return "audit_entries" }

// PendingAudit is an entry that the next write transaction of its context writes. It belongs to one goroutine; the entry may be
// completed until the function given to InTx returns.
type PendingAudit struct {
	Entry AuditEntry
	// Later keeps transactions from writing the entry as long as it is set: for what begins with transactions that change nothing.
	// The function given to InTx may take it back.
	Later bool
	// Written says that a transaction with the entry was committed.
	Written bool
}

type auditKey struct{}

// WithAudit returns a context whose first write transaction that is committed also writes the entry: what was changed and who
// changed it are there together, or neither is.
func WithAudit(ctx context.Context, pending *PendingAudit) context.Context {
	return context.WithValue(ctx, auditKey{}, pending)
}

// unaudited returns a context whose transactions write no entry.
func unaudited(ctx context.Context) context.Context {
	return WithAudit(ctx, &PendingAudit{Written: true})
}

// actor is who the context's entry says acts, empty where there is no entry.
func actor(ctx context.Context) string {
	if pending, ok := ctx.Value(auditKey{}).(*PendingAudit); ok {
		return pending.Entry.ActorName
	}
	return ""
}

// audited adds the context's entry to a transaction, where one is pending. The second function is to be told how it ended.
func audited(ctx context.Context, fn func(tx *Store) error) (func(tx *Store) error, func(err error)) {
	pending, ok := ctx.Value(auditKey{}).(*PendingAudit)
	if !ok || pending.Written {
		return fn, func(error) {}
	}
	wrote := false
	with := func(tx *Store) error {
		wrote = false
		if err := fn(tx); err != nil || pending.Later {
			return err
		}
		row := pending.Entry
		row.ID = NewID(PrefixAudit)
		if row.CreatedAt.IsZero() {
			row.CreatedAt = tx.Now()
		}
		wrote = true
		return explain(tx.write(ctx).Create(&row).Error, "write the audit entry of %s", row.Action)
	}
	return with, func(err error) { pending.Written = wrote && err == nil }
}

// Audit writes the context's pending entry by itself, where nothing has written it: for what was done without the database.
func (s *Store) Audit(ctx context.Context) error {
	pending, ok := ctx.Value(auditKey{}).(*PendingAudit)
	if !ok || pending.Written {
		return nil
	}
	pending.Later = false
	return s.InTx(ctx, func(*Store) error { return nil })
}

// AuditFilter narrows ListAudit; zero fields do not.
type AuditFilter struct {
	ActorKind  string
	ActorID    string
	Action     string
	CustomerID string
	ObjectID   string
	// CreatedAfter and CreatedBefore include the moment itself.
	CreatedAfter, CreatedBefore *time.Time
}

// ListAudit returns a page of the audit trail, newest first, and the cursor of the next page.
func (s *Store) ListAudit(ctx context.Context, filter AuditFilter, page Page) ([]AuditEntry, string, error) {
	query := s.read(ctx).Model(&AuditEntry{})
	for _, equal := range []struct{ column, value string }{
		{"actor_kind", filter.ActorKind}, {"actor_id", filter.ActorID}, {"action", filter.Action}, {"customer_id", filter.CustomerID},
	} {
		if equal.value != "" {
			query = query.Where(equal.column+" = ?", equal.value)
		}
	}
	if filter.ObjectID != "" {
		query = query.Where("object_id = ? AND object_id <> ''", filter.ObjectID)
	}
	if filter.CreatedAfter != nil {
		query = query.Where("created_at >= ?", micros(*filter.CreatedAfter))
	}
	if filter.CreatedBefore != nil {
		query = query.Where("created_at <= ?", micros(*filter.CreatedBefore))
	}
	rows, next, err := paged(query, page, func(e *AuditEntry) (time.Time, string) { return e.CreatedAt, e.ID })
	return rows, next, explain(err, "list the audit trail")
}
