package models

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// PostgreSQL keeps the plans of statements that a connection has prepared, and refuses one whose columns have changed since: a
// "SELECT *" after a migration that another process has made, as each step of a rolling upgrade is. Nothing of such a statement was
// done. Its transaction, or the statement where it stands alone, runs again, on a connection that has forgotten its plans.

// A plan is refused with feature_not_supported, as much else is; the routine tells them apart (plancache.c, RevalidateCachedQuery).
const (
	pgNotSupported = "0A000"
	pgRevalidate   = "RevalidateCachedQuery"
)

// stalePlan says whether a statement was refused because a table has changed since it was prepared.
func stalePlan(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == pgNotSupported && pg.Routine == pgRevalidate
}

// planKey is the name under which a connection notes of which schema its plans are.
const planKey = "tandem_schema"

// plans counts the changes of the schema that this process has noticed by its refused plans.
type plans struct{ schema atomic.Int64 }

// refused notes an error that is a refused plan, and reports whether it is one.
func (p *plans) refused(err error) bool {
	stale := stalePlan(err)
	if stale {
		p.schema.Add(1)
	}
	return stale
}

// begin notes that a connection is new and has no plans.
func (p *plans) begin(conn *pgx.Conn) { conn.PgConn().CustomData()[planKey] = p.schema.Load() }

// renew makes a connection that is used again forget the plans of an older schema.
func (p *plans) renew(ctx context.Context, conn *pgx.Conn) error {
	schema := p.schema.Load()
	if known, ok := conn.PgConn().CustomData()[planKey].(int64); ok && known == schema {
		return nil
	}
	if err := conn.DeallocateAll(ctx); err != nil {
		return driver.ErrBadConn
	}
	conn.PgConn().CustomData()[planKey] = schema
	return nil
}

// planTries is how often a statement that stands alone runs: more than once only where the schema has changed again.
const planTries = 3

// plannedPool is a pool whose single queries run again where their plan was refused. Those of transactions do not: the whole transaction does.
type plannedPool struct {
	*sql.DB
	plans *plans
}

// GetDBConn implements gorm.GetDBConnector.
func (p *plannedPool) GetDBConn() (*sql.DB, error) { return p.DB, nil }

// QueryContext is that of the pool.
func (p *plannedPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	for try := 1; ; try++ {
		rows, err := p.DB.QueryContext(ctx, query, args...) //nolint:rowserrcheck,sqlclosecheck // they are the caller's
		if !p.plans.refused(err) || try == planTries {
			return rows, err
		}
	}
}

// QueryRowContext is that of the pool.
func (p *plannedPool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	for try := 1; ; try++ {
		row := p.DB.QueryRowContext(ctx, query, args...)
		if !p.plans.refused(row.Err()) || try == planTries {
			return row
		}
	}
}
