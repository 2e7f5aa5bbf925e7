package models

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/glebarez/go-sqlite"
	"github.com/jackc/pgx/v5/pgconn"
)

// How a database fails that is not there, or has no room. Every error of a Store that comes of it is one of these; all others
// are logic: another try would fail alike.
var (
	// ErrUnreachable: the database cannot be reached, does not answer, or takes no changes now (it starts, stops, is a standby,
	// has no connection left). The change may be tried again. Whether a commit that failed so was made is not known.
	ErrUnreachable = errors.New("the database is unreachable")
	// ErrStorageFull: the database has no room left. Nothing of the transaction was kept.
	ErrStorageFull = errors.New("the storage of the database is full")
)

// SQLSTATEs of PostgreSQL's appendix A that say that the server is at fault, not the statement.
const (
	pgDiskFull       = "53100"
	pgTooMany        = "53300" // too_many_connections
	pgReadOnly       = "25006" // read_only_sql_transaction: a standby, as after a failover
	pgQueryCanceled  = "57014" // statement_timeout, or an administrator
	pgAdminShutdown  = "57P01"
	pgCrashShutdown  = "57P02"
	pgCannotConnect  = "57P03" // cannot_connect_now: it starts or stops
	pgIdleSession    = "57P05"
	pgIdleInTx       = "25P03" // idle_in_transaction_session_timeout, see idleTimeout
	pgIOError        = "58030"
	pgClassConnect   = "08" // connection exceptions
	pgLockNotInTime  = "55P03"
	sqlitePrimary    = 0xff // the low byte of SQLite's extended result codes
	sqliteReadOnly   = 8
	sqliteIOError    = 10
	sqliteFull       = 13
	sqliteCannotOpen = 14
)

// away returns ErrUnreachable or ErrStorageFull for an error that comes of the database itself, nil for any other.
func away(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return awayPostgres(err, pg.Code)
	}
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		switch lite.Code() & sqlitePrimary {
		case sqliteFull:
			return ErrStorageFull
		case sqliteBusy, sqliteReadOnly, sqliteIOError, sqliteCannotOpen:
			return ErrUnreachable
		default:
			return nil
		}
	}
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return nil // whoever asked has gone
	case errors.As(err, &connect), errors.As(err, &network), errors.Is(err, context.DeadlineExceeded), pgconn.SafeToRetry(err),
		errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNREFUSED):
		return ErrUnreachable
	default:
		return nil
	}
}

func awayPostgres(err error, code string) error {
	var connect *pgconn.ConnectError
	switch code {
	case pgDiskFull:
		return ErrStorageFull
	case pgTooMany, pgReadOnly, pgQueryCanceled, pgAdminShutdown, pgCrashShutdown, pgCannotConnect, pgIdleSession, pgIdleInTx, pgIOError, pgLockNotInTime:
		return ErrUnreachable
	}
	if strings.HasPrefix(code, pgClassConnect) || errors.As(err, &connect) {
		return ErrUnreachable
	}
	return nil
}

// classify adds ErrUnreachable or ErrStorageFull to an error that comes of the database itself.
func classify(err error) error {
	if err == nil || errors.Is(err, ErrUnreachable) || errors.Is(err, ErrStorageFull) {
		return err
	}
	if kind := away(err); kind != nil {
		return fmt.Errorf("%w: %w", kind, err)
	}
	return err
}

// health is whether the last write transaction found the database.
type health struct {
	mu    sync.Mutex
	away  error // ErrUnreachable, ErrStorageFull or nil
	since time.Time
}

// Away returns ErrUnreachable or ErrStorageFull when that is how the last write transaction of this process failed, and nil
// since one was committed.
func (s *Store) Away() error {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.away
}

// AwayFor is Away where that has lasted for a time: one transaction that got no answer before its deadline is no outage yet.
func (s *Store) AwayFor(lasted time.Duration) error {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if time.Since(s.health.since) < lasted {
		return nil
	}
	return s.health.away
}

// observe notes how a transaction ended. The log is told of the beginning and the end of an outage, not of each failure.
func (c *core) observe(err error) {
	var kind error
	switch {
	case errors.Is(err, ErrStorageFull):
		kind = ErrStorageFull
	case errors.Is(err, ErrUnreachable):
		kind = ErrUnreachable
	case err != nil:
		return // it says nothing of the database
	}
	h := &c.health
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case kind == nil && h.away == nil, kind != nil && errors.Is(h.away, kind):
	case kind == nil:
		c.logger.Info("database takes changes again", "away_seconds", time.Since(h.since).Seconds())
	case errors.Is(kind, ErrStorageFull):
		c.logger.Error("storage of the database is full", "error", err)
	default:
		c.logger.Error("database is unreachable", "error", err)
	}
	if h.away == nil {
		h.since = time.Now()
	}
	h.away = kind
}

// Probe writes nothing in a transaction that may write: an error says that the database takes no changes now.
func (s *Store) Probe(ctx context.Context) error {
	return s.InTx(ctx, func(tx *Store) error {
		return explain(tx.write(ctx).Exec("UPDATE nodes SET updated_at = updated_at WHERE id = ''").Error, "probe the database")
	})
}
