package models

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"
)

const (
	// batchLimit bounds how many functions share one commit, so that the first of them does not wait for ever.
	batchLimit = 128
	// batchTimeout bounds one shared transaction; a database that does not answer must not hang every writer.
	batchTimeout = 30 * time.Second
	// txAttempts is how often a function runs when the database asks for a retry (serialization failure, deadlock).
	txAttempts = 5
	// slowTurn is after how long a function that holds the transaction is reported.
	slowTurn = 5 * time.Second
)

// txState is what a Store inside InTx carries.
type txState struct {
	db    *gorm.DB
	batch context.Context
	// due is set when the transaction made a webhook stream due.
	due bool
}

// bind gives a statement the values of the caller's context but the lifetime of the batch: cancelling one request must not
// tear down the connection on which other requests wait for the same commit.
func (t *txState) bind(ctx context.Context) context.Context {
	return boundContext{Context: t.batch, values: ctx}
}

type boundContext struct {
	context.Context
	values context.Context
}

func (c boundContext) Value(key any) any { return c.values.Value(key) }

// InTx runs fn in a write transaction and returns once it is durable. Waiting functions share a commit (group commit): one
// goroutine gathers them, lets each run under its own savepoint, commits once and answers all, so that durability costs one
// disk flush for many. A function that fails undoes only its own writes. fn may run again when the database asks for it, or
// when the connection breaks before the commit, so it must have no effect outside the tx, and it must not block: others wait
// for the same commit. On a Store that is a transaction already, fn simply runs in it.
//
// fn runs on the caller's goroutine. A ctx that ends before fn's turn keeps fn from running; later it changes nothing.
func (s *Store) InTx(ctx context.Context, fn func(tx *Store) error) error {
	if s.tx != nil {
		return fn(s)
	}
	return s.committer.do(ctx, fn)
}

// committer owns the writer connection. A waiting caller is lent the open transaction (its turn), runs its function on its
// own goroutine, hands the transaction back and then waits for the shared commit: panics and runtime.Goexit stay where they
// belong, and there is one writer at a time.
type committer struct {
	core  *core
	queue chan *ticket
	quit  chan struct{}
	done  chan struct{}
}

// ticket is one waiting InTx.
type ticket struct {
	ctx  context.Context
	turn chan *Store   // the transaction, lent to the caller
	back chan error    // what the function returned
	end  chan struct{} // closed when outcome is final
	// outcome is the answer; readable once end is closed.
	outcome error
	runs    int
	due     bool
}

func newCommitter(c *core) *committer {
	return &committer{core: c, queue: make(chan *ticket), quit: make(chan struct{}), done: make(chan struct{})}
}

func (c *committer) start() { go c.run() }

// stop refuses new functions, answers those that wait and returns when the goroutine has ended.
func (c *committer) stop() {
	close(c.quit)
	<-c.done
}

var errAbandoned = errors.New("transaction abandoned by its function")

func (c *committer) do(ctx context.Context, fn func(tx *Store) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := &ticket{ctx: ctx, turn: make(chan *Store), back: make(chan error, 1), end: make(chan struct{})}
	select {
	case c.queue <- t:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return ErrClosed
	}
	for {
		select {
		case tx := <-t.turn:
			t.lend(tx, fn)
		case <-t.end:
			return t.outcome
		}
	}
}

// lend runs fn and hands the transaction back even when fn panics or ends its goroutine.
func (t *ticket) lend(tx *Store, fn func(tx *Store) error) {
	err := errAbandoned
	defer func() { t.back <- err }()
	err = fn(tx)
}

func (c *committer) run() {
	defer close(c.done)
	var again []*ticket
	for {
		batch := again
		again = nil
		if len(batch) == 0 {
			select {
			case t := <-c.queue:
				batch = append(batch, t)
			case <-c.quit:
				return
			}
		}
		again = c.commit(batch)
	}
}

// next returns a ticket that waits already, if any.
func (c *committer) next() *ticket {
	select {
	case t := <-c.queue:
		return t
	default:
		return nil
	}
}

// commit runs the batch, and whoever arrives meanwhile, in one transaction, and returns the tickets that have to run again.
func (c *committer) commit(batch []*ticket) (again []*ticket) {
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	db := c.core.writer.WithContext(ctx).Begin()
	if db.Error != nil {
		err := fmt.Errorf("begin transaction: %w", db.Error)
		for _, t := range batch {
			t.answer(err)
		}
		return nil
	}
	var ran []*ticket
	for place := 0; place < batchLimit; place++ {
		var t *ticket
		if place < len(batch) {
			t = batch[place]
		} else if t = c.next(); t == nil {
			break
		}
		verdict, err := c.turn(ctx, db, t)
		switch verdict {
		case turnKept:
			ran = append(ran, t)
		case turnUndone:
		case turnRetry:
			again = append(again, t)
		case turnBroken:
			db.Rollback()
			rest := append(ran, t)
			if place+1 < len(batch) {
				rest = append(rest, batch[place+1:]...)
			}
			return append(again, rerun(rest, err)...)
		}
	}
	if len(batch) > batchLimit {
		again = append(again, batch[batchLimit:]...)
	}
	if len(ran) == 0 {
		db.Rollback()
		return again
	}
	err := db.Commit().Error
	if err != nil && retryable(err) {
		return append(again, rerun(ran, err)...)
	}
	if err != nil {
		err = fmt.Errorf("commit transaction: %w", err)
	}
	due := false
	for _, t := range ran {
		due = due || t.due
	}
	// Wake before answering: whoever has its answer can rely on the worker having been told.
	if err == nil && due {
		c.core.wakeWorkers()
	}
	for _, t := range ran {
		t.answer(err)
	}
	return again
}

type verdict int

const (
	turnKept   verdict = iota // ran; its answer is the commit's
	turnUndone                // failed, undone and answered
	turnRetry                 // undone; runs again in the next batch
	turnBroken                // the transaction is lost: all of it runs again
)

const savepoint = "turn"

// turn lends the transaction to one caller, under a savepoint.
func (c *committer) turn(ctx context.Context, db *gorm.DB, t *ticket) (verdict, error) {
	if err := t.ctx.Err(); err != nil && t.runs == 0 {
		t.answer(err)
		return turnUndone, nil
	}
	if err := db.Exec("SAVEPOINT " + savepoint).Error; err != nil {
		return turnBroken, fmt.Errorf("set savepoint: %w", err)
	}
	t.runs++
	state := &txState{db: db, batch: ctx}
	// Nothing can be done about a function that does not return (it may be waiting for this very goroutine, having called
	// the database instead of its tx), but it must be seen.
	slow := time.AfterFunc(slowTurn, func() { c.core.logger.Error("transaction holds up all others", "seconds", slowTurn.Seconds()) })
	t.turn <- &Store{core: c.core, tx: state}
	err := <-t.back
	slow.Stop()
	if err == nil {
		t.due = state.due
		if err := db.Exec("RELEASE SAVEPOINT " + savepoint).Error; err != nil {
			return turnBroken, fmt.Errorf("release savepoint: %w", err)
		}
		return turnKept, nil
	}
	if undo := db.Exec("ROLLBACK TO SAVEPOINT " + savepoint).Error; undo != nil {
		return turnBroken, fmt.Errorf("undo after %w: %w", err, undo)
	}
	if undo := db.Exec("RELEASE SAVEPOINT " + savepoint).Error; undo != nil {
		return turnBroken, fmt.Errorf("undo after %w: %w", err, undo)
	}
	if retryable(err) && t.runs < txAttempts {
		return turnRetry, nil
	}
	t.answer(err)
	return turnUndone, nil
}

// rerun sorts the tickets of a lost transaction: those that may run again, and those that have had their share.
func rerun(lost []*ticket, cause error) (again []*ticket) {
	for _, t := range lost {
		if t.runs >= txAttempts {
			t.answer(cause)
			continue
		}
		again = append(again, t)
	}
	return again
}

func (t *ticket) answer(err error) {
	t.outcome = err
	close(t.end)
}
