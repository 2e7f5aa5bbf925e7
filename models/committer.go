package models

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"gorm.io/gorm"
)

const (
	// batchLimit bounds how many functions share one commit, so that the first of them does not wait for ever.
	batchLimit = 128
	// slowTurn is after how long a function that holds the transaction is reported.
	slowTurn = 5 * time.Second
)

// committer owns the writer connection: group commit. It gathers the waiting functions, lets each run, guarded by a savepoint,
// commits once and answers all; a function that fails undoes only its own writes. A waiting caller is lent the open transaction
// (its turn), runs its function on its own goroutine, hands the transaction back and then waits for the shared commit: panics
// and runtime.Goexit stay where they belong.
//
// It serves SQLite, which has one writer anyway: there it is two to three times as fast as a commit for each. PostgreSQL lets
// concurrent commits share a flush by itself, and 16 writers came to between one and two times the rate of one
// (BenchmarkGroupCommit); nor do they keep the row locks of a whole batch until its commit, over which the batches of two
// processes would get into deadlocks.
type committer struct {
	core  *core
	queue chan *ticket
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
	return &committer{core: c, queue: make(chan *ticket), done: make(chan struct{})}
}

func (c *committer) start() { go c.run() }

// wait returns when the goroutine has ended, after the closing of the store.
func (c *committer) wait() { <-c.done }

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
	if err = fn(tx); err == nil {
		err = tx.tx.conclude()
	}
}

func (c *committer) run() {
	defer close(c.done)
	var again []*ticket
	for {
		batch := again
		if len(batch) == 0 {
			select {
			case t := <-c.queue:
				batch = append(batch, t)
			case <-c.core.closing:
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
	ctx, cancel := context.WithTimeout(context.Background(), txTimeout)
	defer cancel()
	db := c.core.writer.WithContext(ctx).Begin()
	if db.Error != nil {
		err := fmt.Errorf("begin transaction: %w", db.Error)
		for _, t := range batch {
			t.runs++
			if !retryable(err) {
				t.runs = txAttempts
			}
		}
		return rerun(batch, err)
	}
	open := &openBatch{ctx: ctx, db: db, logger: c.core.logger, core: c.core}
	for place := range batchLimit {
		var t *ticket
		if place < len(batch) {
			t = batch[place]
		} else if t = c.next(); t == nil {
			break
		}
		verdict, err := open.turn(t)
		rest := batch[min(place+1, len(batch)):]
		switch verdict {
		case turnKept:
			open.kept = append(open.kept, t)
		case turnRetry:
			again = append(again, t)
		case turnBroken:
			db.Rollback()
			return append(again, rerun(slices.Concat(open.kept, []*ticket{t}, rest), err)...)
		case turnUndone:
		}
		if open.closed {
			return append(again, rest...)
		}
	}
	again = append(again, batch[min(batchLimit, len(batch)):]...)
	if len(open.kept) == 0 {
		db.Rollback()
		return again
	}
	return append(again, c.end(db, open.kept)...)
}

// end commits, wakes the workers where a stream became due and answers.
func (c *committer) end(db *gorm.DB, kept []*ticket) (again []*ticket) {
	err := db.Commit().Error
	if err != nil && retryable(err) {
		return rerun(kept, err)
	}
	if err != nil {
		err = fmt.Errorf("commit transaction: %w", err)
	}
	if err == nil {
		c.core.commits.Add(1)
	}
	// Wake before answering: whoever has its answer can rely on the worker having been told.
	if err == nil && slices.ContainsFunc(kept, func(t *ticket) bool { return t.due }) {
		c.core.wakeWorkers()
	}
	for _, t := range kept {
		t.answer(err)
	}
	return nil
}

type verdict int

const (
	turnKept   verdict = iota // ran; its answer is the commit's
	turnUndone                // failed, undone and answered
	turnRetry                 // undone; runs again in the next batch
	turnBroken                // the transaction is lost: all of it runs again
)

// openBatch is a transaction while its turns run.
type openBatch struct {
	ctx    context.Context
	db     *gorm.DB
	core   *core
	logger *slog.Logger
	// kept are the turns that the commit will answer; guarded is whether a savepoint stands between them and the next.
	kept    []*ticket
	guarded bool
	// closed is set when the transaction was rolled back with its only turn.
	closed bool
}

// turn lends the transaction to one caller.
func (b *openBatch) turn(t *ticket) (verdict, error) {
	if err := t.ctx.Err(); err != nil {
		t.answer(err)
		return turnUndone, nil
	}
	if err := b.guard(); err != nil {
		return turnBroken, err
	}
	t.runs++
	state := &txState{db: b.db, life: b.ctx}
	// Nothing can be done about a function that does not return (it may be waiting for this very goroutine, having called
	// the database instead of its tx), but it must be seen.
	slow := time.AfterFunc(slowTurn, func() { b.logger.Error("transaction holds up all others", "seconds", slowTurn.Seconds()) })
	t.turn <- &Store{core: b.core, tx: state}
	err := <-t.back
	slow.Stop()
	if err == nil {
		t.due = state.due
		return turnKept, nil
	}
	if len(b.kept) > 0 {
		if undo := b.db.Exec("ROLLBACK TO SAVEPOINT turn").Error; undo != nil {
			return turnBroken, fmt.Errorf("undo after %w: %w", err, undo)
		}
	} else {
		b.closed = true
		undo := b.db.Rollback().Error
		if undo != nil && b.ctx.Err() == nil && t.runs < txAttempts && !errors.Is(away(err), ErrStorageFull) {
			// The connection broke under it, before anything was committed.
			return turnRetry, nil
		}
	}
	if (b.core.plans.refused(err) || retryable(err)) && t.runs < txAttempts {
		return turnRetry, nil
	}
	t.answer(err)
	return turnUndone, nil
}

// guard protects what earlier turns wrote by a savepoint; the one before is released in the same round trip. The first turn
// has nothing before it: where it fails, the transaction goes.
func (b *openBatch) guard() error {
	if len(b.kept) == 0 {
		return nil
	}
	statement := "SAVEPOINT turn"
	if b.guarded {
		statement = "RELEASE SAVEPOINT turn; SAVEPOINT turn"
	}
	if err := b.db.Exec(statement).Error; err != nil {
		return fmt.Errorf("set savepoint: %w", err)
	}
	b.guarded = true
	return nil
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
