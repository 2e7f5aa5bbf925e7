// Package modelstest gives tests a store: an empty, migrated database of their own, on SQLite and on PostgreSQL. PostgreSQL is
// the server of TANDEM_TEST_DATABASE_URL or a throw-away cluster that the test process starts from an installed PostgreSQL,
// also when it runs as root.
package modelstest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tandem/models"
)

// Key seals the secrets of test databases.
var Key = bytes.Repeat([]byte{0x5a}, 32)

// Main runs a package's tests, stops the PostgreSQL cluster if they started one, and fails where goroutines are left over. A
// test process that dies without getting here takes its cluster with it all the same. m is the package's *testing.M, or one that
// does more than it.
func Main(m interface{ Run() int }, options ...goleak.Option) {
	code := m.Run()
	if err := stopCluster(); err != nil {
		fmt.Fprintln(os.Stderr, "stop PostgreSQL:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(options...); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left over:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Run runs fn in the subtests name/sqlite and name/postgres (sqlite and postgres where name is empty), each with a database of
// its own.
func Run(t *testing.T, name string, fn func(t *testing.T, s *models.Store)) {
	t.Helper()
	each(t, name, func(t *testing.T, location string) { fn(t, open(t, location, nil)) })
}

// RunClock is Run with a store whose clock stands still until the test moves it.
func RunClock(t *testing.T, name string, fn func(t *testing.T, s *models.Store, clock *Clock)) {
	t.Helper()
	each(t, name, func(t *testing.T, location string) {
		clock := NewClock()
		fn(t, open(t, location, clock.Now), clock)
	})
}

// RunPair is Run with two stores on one database: as two processes have it.
func RunPair(t *testing.T, name string, fn func(t *testing.T, s, other *models.Store)) {
	t.Helper()
	each(t, name, func(t *testing.T, location string) { fn(t, open(t, location, nil), open(t, location, nil)) })
}

// RunURL is Run for tests that open the database themselves.
func RunURL(t *testing.T, name string, fn func(t *testing.T, location string)) {
	t.Helper()
	each(t, name, fn)
}

func each(t *testing.T, name string, fn func(t *testing.T, location string)) {
	t.Helper()
	both := func(t *testing.T) {
		t.Run(models.DialectSQLite, func(t *testing.T) { fn(t, SQLiteURL(t)) })
		t.Run(models.DialectPostgres, func(t *testing.T) { fn(t, PostgresURL(t)) })
	}
	if name == "" {
		both(t)
		return
	}
	t.Run(name, both)
}

// Open returns an empty store on SQLite: for tests to which the database does not matter.
func Open(t *testing.T) *models.Store {
	t.Helper()
	return open(t, SQLiteURL(t), nil)
}

// OpenNow is Open with a clock of the test's own.
func OpenNow(t *testing.T, now func() time.Time) *models.Store {
	t.Helper()
	return open(t, SQLiteURL(t), now)
}

// OpenPostgres returns an empty store on PostgreSQL and skips the test where there is none.
func OpenPostgres(t *testing.T) *models.Store {
	t.Helper()
	return open(t, PostgresURL(t), nil)
}

func open(t testing.TB, location string, now func() time.Time) *models.Store {
	t.Helper()
	s, err := models.Open(t.Context(), models.Config{URL: location, Key: Key, Now: now})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// sqliteTemplate is a migrated database, made once: a copy costs a fraction of the migrations.
var sqliteTemplate = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "tandem-sqlite-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "template.db")
	if err := migrate("sqlite:" + path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// SQLiteURL returns the URL of an empty, migrated SQLite database for a test that opens it itself.
func SQLiteURL(t testing.TB) string {
	t.Helper()
	template, err := sqliteTemplate()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "tandem.db")
	require.NoError(t, os.WriteFile(path, template, 0o600))
	return "sqlite:" + path
}

// Clock is a clock that stands still. Its methods are safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows the present.
func NewClock() *Clock { return &Clock{now: time.Now().UTC().Truncate(time.Microsecond)} }

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
