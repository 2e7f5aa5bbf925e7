// Package models keeps every row of Tandem: customers, keys, applications, trunks, phone numbers, calls, their events, the
// webhook queue, the ledger and the nodes. It is the only importer of gorm and of the database drivers; a transaction travels
// through the rest of the program as a *Store.
//
// One set of migrations and one set of queries serve PostgreSQL and SQLite. Times are stored as microseconds since the Unix
// epoch (BIGINT): the two databases then compare, index and round them alike, which their own time types do not.
package models

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"gorm.io/gorm"
)

// Names of the dialects as Store.Dialect returns them.
const (
	DialectSQLite   = "sqlite"
	DialectPostgres = "postgres"
)

// Config says which database a Store opens and with which key it seals secrets.
type Config struct {
	// URL is "sqlite:PATH" or a PostgreSQL URL ("postgres://…"). An in-memory SQLite is refused: readers would not see it.
	URL string
	// Key is the AES-256-GCM key, 32 bytes, that seals SIP passwords and webhook secrets.
	Key []byte
	// Logger receives what the database layer has to say; never values of columns. Default: discard.
	Logger *slog.Logger
	// Now is the clock, by default time.Now. Every timestamp, lease and due time comes from it.
	Now func() time.Time
	// MaxConnections bounds the reader pool. Default: 4 for SQLite, 8 for PostgreSQL.
	MaxConnections int
	// Writers is how many write transactions run at a time on PostgreSQL. With 1 they share commits, as they do on SQLite,
	// which has one writer whatever is set. Default: 16.
	Writers int
}

// Store is either the database, or one write transaction on it (inside InTx). Its methods are safe for concurrent use on the
// database; a transaction belongs to the goroutine that runs the function given to InTx.
type Store struct {
	*core
	// tx is nil on the database and the transaction's state inside InTx.
	tx *txState
}

// core is what the database and all its transactions share.
type core struct {
	dialect string
	writer  *gorm.DB
	reader  *gorm.DB
	// nowhere is the handle of deferred transactions.
	nowhere     *gorm.DB
	nowherePool *sql.DB
	health      health
	plans       plans
	sealer      *sealer
	logger      *slog.Logger
	now         func() time.Time
	// ownClock says that Config.Now was given.
	ownClock bool
	// committer is the only writer, or nil where there are several: many. apart is for the leases of nodes, nil on SQLite.
	committer   *committer
	many, apart *writerPool
	// closing is closed when no transaction may begin any more.
	closing chan struct{}

	// strangersKept is MaxStrangers.
	strangersKept int64

	// tellBalance is what OnBalance was given.
	tellBalance func(ctx context.Context, tx *Store, customer *Customer, level BalanceLevel) error

	// commits counts the write transactions that were committed.
	commits atomic.Int64

	// turns rotates the endpoint that a claim begins with.
	turns atomic.Uint64

	wakeMu sync.Mutex
	wake   []func()

	closeOnce sync.Once
	closeErr  error
}

// Open opens the database without migrating it. It fails where the database cannot be reached.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	seal, err := newSealer(cfg.Key)
	if err != nil {
		return nil, err
	}
	c := &core{
		sealer:  seal,
		logger:  cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		now:     cfg.Now,
		closing: make(chan struct{}),

		strangersKept: MaxStrangers,
	}
	if c.ownClock = c.now != nil; !c.ownClock {
		c.now = time.Now
	}
	if err := c.connect(cfg); err != nil {
		return nil, err
	}
	c.connectNowhere()
	s := &Store{core: c}
	if err := s.Ping(ctx); err != nil {
		return nil, errors.Join(err, c.disconnect())
	}
	if writers := c.writers(cfg); writers > 1 {
		c.many = &writerPool{db: c.writer, slots: make(chan struct{}, writers)}
		return s, nil
	}
	c.committer = newCommitter(c)
	c.committer.start()
	return s, nil
}

// Close lets the running transactions finish, refuses later ones with ErrClosed and closes the connections.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.closing)
		if s.committer != nil {
			s.committer.wait()
		}
		for _, p := range []*writerPool{s.many, s.apart} {
			if p == nil {
				continue
			}
			for range cap(p.slots) {
				p.slots <- struct{}{}
			}
		}
		s.closeErr = s.disconnect()
	})
	return s.closeErr
}

// Ping checks that both pools reach the database.
func (s *Store) Ping(ctx context.Context) error {
	for _, db := range []*gorm.DB{s.core.writer, s.core.reader} {
		pool, err := db.DB()
		if err == nil {
			err = pool.PingContext(ctx)
		}
		if err != nil {
			return fmt.Errorf("reach the %s database: %w", s.dialect, classify(err))
		}
	}
	return nil
}

// Dialect returns DialectSQLite or DialectPostgres.
func (s *Store) Dialect() string { return s.dialect }

// Now returns the time of the store's clock in UTC, cut to the microseconds that the database keeps.
func (s *Store) Now() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

// OnStreamDue registers a function that is called after a commit that made a webhook stream due. It runs on the goroutine
// that commits and must not block; a worker uses it to wake. Other processes are not told: workers poll as well.
func (s *Store) OnStreamDue(wake func()) {
	s.wakeMu.Lock()
	defer s.wakeMu.Unlock()
	s.wake = append(s.wake, wake)
}

func (c *core) wakeWorkers() {
	c.wakeMu.Lock()
	wake := c.wake
	c.wakeMu.Unlock()
	for _, fn := range wake {
		fn()
	}
}

// read returns the handle for queries: the transaction inside InTx, the reader pool outside.
func (s *Store) read(ctx context.Context) *gorm.DB {
	if s.tx != nil {
		return s.tx.db.WithContext(s.tx.bind(ctx))
	}
	return s.reader.WithContext(ctx)
}

// write returns the handle of the transaction; calling it outside InTx is a programming error.
func (s *Store) write(ctx context.Context) *gorm.DB {
	return s.tx.db.WithContext(s.tx.bind(ctx))
}
