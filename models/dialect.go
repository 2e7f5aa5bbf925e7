package models

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// connectTimeout bounds connecting to PostgreSQL, unless its URL says otherwise (connect_timeout).
const connectTimeout = 5 * time.Second

// idleTimeout is after how long PostgreSQL ends a transaction that has no statement under way: a process that was stopped or swapped out in the
// middle of one must not hold up the others, who wait for its locks. Ours run a statement after the other, and run again when they are cut off.
const idleTimeout = 2 * time.Second

// leasers is how many connections to PostgreSQL are kept for the leases of nodes.
const leasers = 2

// busyTimeout is how long SQLite waits for another process that writes.
const busyTimeout = 10 * time.Second

// writers returns how many write transactions run at a time.
func (c *core) writers(cfg Config) int {
	if c.dialect == DialectSQLite {
		return 1
	}
	return max(1, cmp.Or(cfg.Writers, 16))
}

// connect opens the writers and the pool of readers.
func (c *core) connect(cfg Config) error {
	scheme, rest, _ := strings.Cut(cfg.URL, ":")
	switch scheme {
	case DialectSQLite:
		c.dialect = DialectSQLite
		return c.connectSQLite(rest, cmp.Or(cfg.MaxConnections, 4))
	case DialectPostgres, "postgresql":
		c.dialect = DialectPostgres
		return c.connectPostgres(cfg.URL, c.writers(cfg), cmp.Or(cfg.MaxConnections, 8))
	default:
		return errors.New(`database URL must begin with "sqlite:" or "postgres://"`)
	}
}

func (c *core) connectSQLite(path string, readers int) error {
	if path == "" || strings.HasPrefix(path, ":memory:") || strings.HasPrefix(path, "file:") {
		return fmt.Errorf("SQLite database %q: a path to a file is needed", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("locate SQLite database: %w", err)
	}
	// The file holds call details and, sealed, secrets: for its owner only. SQLite gives -wal and -shm the same mode.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open SQLite database: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("open SQLite database: %w", err)
	}
	pragmas := []string{
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
		"journal_mode(WAL)",
		"synchronous(FULL)",
		"foreign_keys(ON)",
	}
	if c.writer, err = openSQLite(path, url.Values{"_pragma": pragmas, "_txlock": {"immediate"}}, 1); err != nil {
		return err
	}
	if c.reader, err = openSQLite(path, url.Values{"_pragma": append(pragmas, "query_only(ON)")}, readers); err != nil {
		return errors.Join(err, c.disconnect())
	}
	return nil
}

func openSQLite(path string, query url.Values, connections int) (*gorm.DB, error) {
	location := url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}
	pool, err := sql.Open("sqlite", location.String())
	if err != nil {
		return nil, fmt.Errorf("open SQLite database: %w", err)
	}
	return openGorm(&sqlite.Dialector{Conn: pool}, pool, connections)
}

func (c *core) connectPostgres(location string, writers, readers int) error {
	config, err := pgx.ParseConfig(location)
	if err != nil {
		// pgx redacts the password, but not in every message; the URL is the operator's and known to them.
		return errors.New("the PostgreSQL URL cannot be parsed")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "tandem"
	}
	if c.writer, err = c.openPostgres(config, writers); err != nil {
		return err
	}
	if c.reader, err = c.openPostgres(config, readers); err != nil {
		return errors.Join(err, c.disconnect())
	}
	apart, err := c.openPostgres(config, leasers)
	if err != nil {
		return errors.Join(err, c.disconnect())
	}
	c.apart = &writerPool{db: apart, slots: make(chan struct{}, leasers)}
	return nil
}

func (c *core) openPostgres(config *pgx.ConnConfig, connections int) (*gorm.DB, error) {
	// Not a parameter of the start of the connection: a pooler between us would refuse it.
	limit := fmt.Sprintf("SET idle_in_transaction_session_timeout = %d", idleTimeout.Milliseconds())
	pool := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		c.plans.begin(conn)
		_, err := conn.Exec(ctx, limit)
		return err
	}), stdlib.OptionResetSession(c.plans.renew))
	return openGorm(postgres.New(postgres.Config{Conn: &plannedPool{DB: pool, plans: &c.plans}}), pool, connections)
}

func openGorm(dialector gorm.Dialector, pool *sql.DB, connections int) (*gorm.DB, error) {
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	db, err := gorm.Open(dialector, &gorm.Config{
		SkipDefaultTransaction:   true,
		DisableAutomaticPing:     true,
		DisableNestedTransaction: true,
		// gorm's logger prints statements with their values; errors are returned and logged by whoever asked.
		Logger: logger.Discard,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open database: %w", err), pool.Close())
	}
	return db, nil
}

func (c *core) disconnect() error {
	var errs []error
	if c.nowherePool != nil {
		errs = append(errs, c.nowherePool.Close())
	}
	pools := []*gorm.DB{c.reader, c.writer}
	if c.apart != nil {
		pools = append(pools, c.apart.db)
	}
	for _, db := range pools {
		if db == nil {
			continue
		}
		pool, err := db.DB()
		if err == nil {
			err = pool.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
