package models

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"gorm.io/gorm"
)

// Deferred is a transaction that waits for a database that is away: what it would have written, as it was then.
type Deferred struct {
	mark   string
	writes []func(ctx context.Context, tx *Store) error
}

// Defer runs fn as a transaction that reaches no database: its writes are noted, for Write to make them later. Where fn reads, or
// writes what only the database can answer (money, places in a queue, members of a conference), that fails with ErrUnreachable,
// and so does Defer when fn passes it on: such a transaction has to wait. UpdateCall, TransitionCall, AppendEvent, SaveLeg
// and SaveRecording can be deferred. The mark names the transaction, see Mark.
func (s *Store) Defer(ctx context.Context, mark string, fn func(tx *Store) error) (*Deferred, error) {
	d := &Deferred{mark: mark}
	if err := fn(&Store{core: s.core, tx: &txState{db: s.nowhere, life: ctx, deferred: d}}); err != nil {
		return nil, fmt.Errorf("defer a transaction: %w", classify(err))
	}
	return d, nil
}

// Write makes the writes of a deferred transaction in tx, unless an earlier try has, whose commit was made although it seemed
// to fail.
func (d *Deferred) Write(ctx context.Context, tx *Store) error {
	made, err := tx.Marked(ctx, d.mark)
	if err != nil || made {
		return err
	}
	tx.Mark(d.mark)
	defer tx.Mark("")
	for _, write := range d.writes {
		if err := write(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// Mark gives the next event that the transaction appends this ID, which must come of NewID(PrefixEvent). When the commit fails
// and nobody knows whether it was made, Marked tells. "" takes back a mark that was not used.
func (s *Store) Mark(id string) { s.tx.mark = id }

// Marked says whether a transaction with the mark was committed. One that appends no event leaves no mark.
func (s *Store) Marked(ctx context.Context, id string) (bool, error) {
	var count int64
	err := s.read(ctx).Model(&Event{}).Where("id = ?", id).Count(&count).Error
	return count > 0, explain(err, "look for the mark of a transaction")
}

// later notes a write when the transaction is deferred, and reports whether it is.
func (s *Store) later(write func(ctx context.Context, tx *Store) error) bool {
	if s.tx == nil || s.tx.deferred == nil {
		return false
	}
	s.tx.deferred.writes = append(s.tx.deferred.writes, write)
	return true
}

// nowhere is the database of deferred transactions: it is always away.
type nowhere struct{}

var _ driver.Connector = nowhere{}

// Connect implements driver.Connector.
func (nowhere) Connect(context.Context) (driver.Conn, error) { return nil, ErrUnreachable }

// Driver implements driver.Connector.
func (nowhere) Driver() driver.Driver { return nil }

// connectNowhere makes the handle of deferred transactions, which speaks the dialect of the writer.
func (c *core) connectNowhere() {
	c.nowherePool = sql.OpenDB(nowhere{})
	c.nowhere = c.writer.Session(&gorm.Session{NewDB: true, Context: context.Background()})
	c.nowhere.Statement.ConnPool = c.nowherePool
}
