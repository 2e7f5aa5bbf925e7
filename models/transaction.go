package models

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
)

const (
	// txTimeout bounds one transaction; a database that does not answer must not hang its writers.
	txTimeout = 30 * time.Second
	// txAttempts is how often a function runs when the database asks for a retry (serialization failure, deadlock, refused plan).
	txAttempts = 5
)

// txState is what a Store inside InTx carries.
type txState struct {
	db *gorm.DB
	// life ends with the transaction.
	life context.Context
	// due is set when the transaction made a webhook stream due.
	due bool
	// mark is the ID of the next event, "" for a new one.
	mark string
	// last is what is done right before the commit, see atEnd.
	last []func() error
	// begins are the calls and legs that the transaction begins on what has limits, see TakeTrunks and TakeCustomer; count counts them, after last.
	begins *beginnings
	count  func() error
	// placed is set once the transaction holds its lock of the journal, see journal.go.
	placed bool
	// shards are those whose numbers the transaction changes, see touchDIDs.
	shards map[string]struct{}
	// settling is when it settles, see Store.settling.
	settling time.Time
	// counted is what the lines of the calls that it settles are counted by.
	counted map[string]counting
	// deferred notes the writes of a transaction that reaches no database.
	deferred *Deferred
}

// atEnd has fn run right before the commit of the transaction, which it undoes with its error: rows over which many contend, such as balances, are
// locked no longer than that takes.
func (s *Store) atEnd(fn func() error) { s.tx.last = append(s.tx.last, fn) }

// conclude does what atEnd was given.
func (t *txState) conclude() error {
	last := t.last
	t.last = nil
	for _, fn := range last {
		if err := fn(); err != nil {
			return err
		}
	}
	if t.count != nil {
		return t.count()
	}
	return nil
}

// bind gives a statement the values of the caller's context but the lifetime of the transaction: cancelling one request must
// not tear down the connection on which other requests wait for the same commit.
func (t *txState) bind(ctx context.Context) context.Context {
	return boundContext{Context: t.life, values: ctx}
}

type boundContext struct {
	context.Context
	values context.Context
}

func (c boundContext) Value(key any) any { return c.values.Value(key) }

// InTx runs fn in a write transaction and returns once it is durable; an error undoes what fn wrote. fn may run again when the
// database asks for it or when the connection breaks before the commit, so it must have no effect outside the tx; it must use
// the tx alone, and not block: others wait for what it holds. On a Store that is a transaction already, fn simply runs in it.
//
// With one writer (SQLite; Config.Writers) waiting functions share a commit, so that durability costs one disk flush for many:
// see committer. With several, each has a transaction of its own, and the database lets concurrent commits share a flush.
//
// fn runs on the caller's goroutine. A ctx that ends before fn's turn keeps fn from running; while fn runs, it changes nothing on
// SQLite, and on PostgreSQL its deadline bounds the transaction. An error that comes of the database itself is ErrUnreachable or
// ErrStorageFull.
func (s *Store) InTx(ctx context.Context, fn func(tx *Store) error) error {
	if s.tx != nil {
		return fn(s)
	}
	fn, ended := audited(ctx, fn)
	var err error
	if s.committer != nil {
		err = s.committer.do(ctx, fn)
	} else {
		err = s.separate(ctx, s.many, fn)
	}
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) { // otherwise it waited for its turn only
		err = classify(err)
	}
	s.observe(err)
	ended(err)
	return err
}

// writerPool is a way for write transactions, each with a connection of its own: as many at a time as it has slots.
type writerPool struct {
	db    *gorm.DB
	slots chan struct{}
}

// aside runs fn like InTx, but never behind the transactions of calls where there are connections apart from theirs: a controller that is busy
// must not lose its leases for it. The outage of the database is told of by InTx.
func (s *Store) aside(ctx context.Context, fn func(tx *Store) error) error {
	if s.tx != nil || s.apart == nil {
		return s.InTx(ctx, fn)
	}
	return classify(s.separate(ctx, s.apart, fn))
}

// separate runs fn in a transaction of its own.
func (c *core) separate(ctx context.Context, on *writerPool, fn func(tx *Store) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case on.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closing:
		return ErrClosed
	}
	defer func() { <-on.slots }()
	select {
	case <-c.closing:
		return ErrClosed
	default:
	}
	for run := 1; ; run++ {
		again, err := c.attempt(ctx, on, fn)
		if !again || run == txAttempts {
			return err
		}
	}
}

// limitKey is the key under which a context carries the limit of its transactions.
type limitKey struct{}

// WithLimit bounds each transaction that InTx runs with the context by a time of its own, on PostgreSQL. It counts from the beginning of the
// transaction, and not while that waits for its turn behind others: so a deadline that has passed means that the database did not answer.
func WithLimit(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, limitKey{}, limit)
}

// attempt runs fn once and reports whether it may run again.
func (c *core) attempt(ctx context.Context, on *writerPool, fn func(tx *Store) error) (again bool, err error) {
	limit := time.Now().Add(txTimeout)
	if within, ok := ctx.Value(limitKey{}).(time.Duration); ok {
		limit = time.Now().Add(within)
	}
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(limit) {
		limit = deadline
	}
	life, cancel := context.WithDeadline(context.WithoutCancel(ctx), limit)
	defer cancel()
	db := on.db.WithContext(life).Begin()
	if db.Error != nil {
		return on.renew(db.Error), fmt.Errorf("begin transaction: %w", db.Error)
	}
	state := &txState{db: db, life: life}
	returned := false
	defer func() {
		if !returned { // fn panicked or ended its goroutine
			db.Rollback()
		}
	}()
	if err = fn(&Store{core: c, tx: state}); err == nil {
		err = state.conclude()
	}
	returned = true
	if err != nil {
		if life.Err() != nil {
			// The statement that was cut off may say only that its transaction is over.
			err = fmt.Errorf("%w: no answer in time: %w", ErrUnreachable, err)
		}
		undo := db.Rollback().Error
		// A rollback that fails means that the connection broke under fn, before anything was committed.
		return c.plans.refused(err) || retryable(err) || undo != nil && life.Err() == nil && !errors.Is(away(err), ErrStorageFull), err
	}
	if err := db.Commit().Error; err != nil {
		return retryable(err), fmt.Errorf("commit transaction: %w", err)
	}
	c.commits.Add(1)
	if state.due {
		c.wakeWorkers()
	}
	return false, nil
}

// renew drops the idle connections of the pool where one of them was found broken, as all are after PostgreSQL was restarted,
// and reports whether that is worth another try. database/sql finds out for single statements, not for the beginning of a transaction.
func (p *writerPool) renew(cause error) bool {
	var connect *pgconn.ConnectError
	if !errors.Is(away(cause), ErrUnreachable) || errors.As(cause, &connect) {
		return false
	}
	pool, err := p.db.DB()
	if err != nil {
		return false
	}
	pool.SetMaxIdleConns(-1)
	pool.SetMaxIdleConns(cap(p.slots))
	return true
}
