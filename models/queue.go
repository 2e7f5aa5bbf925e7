package models

import (
	"context"
	"fmt"
	"time"
)

// States of a queue entry.
const (
	QueueWaiting = "waiting"
	// QueueTaken: another call has chosen it and is about to be joined with it; nobody else gets it meanwhile.
	QueueTaken = "taken"
	// QueueBridged: the two calls talk.
	QueueBridged = "bridged"
	QueueLeft    = "left"
)

// QueueEntry is a call that waits, or waited, in a customer's queue. Queues have no row of their own: one exists while a call
// is in it.
type QueueEntry struct {
	ID         string
	CustomerID string
	Queue      string
	CallID     string
	// NodeID is where the call's channel is: only a call on the same node can be joined with it.
	NodeID string `gorm:"serializer:reference"`
	// Priority is served in falling order; among equals, whoever waits longest is first.
	Priority int
	State    string
	// TakenBy is the call that took it.
	TakenBy string
	// Outcome says why it left.
	Outcome  string
	JoinedAt time.Time  `gorm:"serializer:moment"`
	TakenAt  *time.Time `gorm:"serializer:moment"`
	LeftAt   *time.Time `gorm:"serializer:moment"`
}

// TableName implements gorm's schema.Tabler.
func (QueueEntry) TableName() string { return "queue_entries" }

// QueueSummary is a queue that calls wait in.
type QueueSummary struct {
	Name string
	// Waiting counts those that nobody has taken; OldestJoinedAt is when the first of them joined, nil where there are none.
	Waiting        int
	OldestJoinedAt *time.Time
	// Present counts all that have not left.
	Present int
}

// JoinQueue inserts a waiting entry, fills its ID, state and time, and returns its position. ErrInUse where the call is in a
// queue already, ErrNotFound where the call or the node does not exist or the call is another customer's.
func (s *Store) JoinQueue(ctx context.Context, entry *QueueEntry) (position int, err error) {
	err = s.InTx(ctx, func(tx *Store) error {
		row := *entry
		if row.ID == "" {
			row.ID = NewID(PrefixQueueEntry)
		}
		row.State, row.TakenBy, row.Outcome, row.TakenAt, row.LeftAt = QueueWaiting, "", "", nil, nil
		row.JoinedAt = tx.Now()
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "join queue %q with call %q", row.Queue, row.CallID)
		}
		if position, err = tx.position(ctx, &row); err != nil {
			return err
		}
		*entry = row
		return nil
	})
	if err != nil {
		return 0, err
	}
	return position, nil
}

// queueOrder is the order in which entries are taken.
const queueOrder = "priority DESC, joined_at, id"

// TakeFromQueue takes the first waiting entry of a queue on a node for the call takenBy: highest priority, then oldest.
// ErrNotFound where none waits. No two takers get the same entry; one that is taken by a transaction which is then undone is
// there for others, and not passed over by a taker that finds nothing else.
func (s *Store) TakeFromQueue(ctx context.Context, customerID, queue, takenBy, nodeID string) (*QueueEntry, error) {
	var taken *QueueEntry
	err := s.InTx(ctx, func(tx *Store) error {
		var err error
		taken, err = tx.takeFirst(ctx, customerID, queue, takenBy, nodeID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

const waitingThere = "customer_id = ? AND queue = ? AND node_id = ? AND state = '" + QueueWaiting + "'"

func (s *Store) takeFirst(ctx context.Context, customerID, queue, takenBy, nodeID string) (*QueueEntry, error) {
	// SQLite has one writer. On PostgreSQL a row that others have in hand is passed over first; where there is no other, they are
	// waited for, and when they took it after all, there may be another by then.
	locks := []string{""}
	if s.dialect == DialectPostgres {
		locks = []string{" FOR UPDATE SKIP LOCKED", " FOR UPDATE"}
	}
	for round := 0; ; round++ {
		var taken []QueueEntry
		err := s.write(ctx).Raw(`UPDATE queue_entries SET state = '`+QueueTaken+`', taken_by = ?, taken_at = ?
			WHERE id = (SELECT id FROM queue_entries WHERE `+waitingThere+` ORDER BY `+queueOrder+` LIMIT 1`+locks[round%len(locks)]+`) RETURNING *`,
			takenBy, micros(s.Now()), customerID, queue, nodeID).Scan(&taken).Error
		if err != nil {
			return nil, explain(err, "take from queue %q", queue)
		}
		if len(taken) == 1 {
			return &taken[0], nil
		}
		var waiting bool
		err = s.write(ctx).Raw("SELECT EXISTS (SELECT 1 FROM queue_entries WHERE "+waitingThere+")", customerID, queue, nodeID).Row().Scan(&waiting)
		if err != nil {
			return nil, explain(err, "look into queue %q", queue)
		}
		if !waiting {
			return nil, fmt.Errorf("take from queue %q: %w", queue, ErrNotFound)
		}
	}
}

// ReturnToQueue makes a taken entry wait again, in its old place: it was not joined after all. ErrStale where it is not taken.
func (s *Store) ReturnToQueue(ctx context.Context, id string) error {
	return s.moveEntry(ctx, id, "UPDATE queue_entries SET state = '"+QueueWaiting+"', taken_by = '', taken_at = NULL WHERE id = ? AND state = '"+QueueTaken+"'", id)
}

// BridgeQueueEntry says that a taken entry talks with the call that took it. ErrStale where it is not taken.
func (s *Store) BridgeQueueEntry(ctx context.Context, id string) error {
	return s.moveEntry(ctx, id, "UPDATE queue_entries SET state = '"+QueueBridged+"' WHERE id = ? AND state = '"+QueueTaken+"'", id)
}

// LeaveQueue takes an entry out of its queue for good. ErrStale where it has left already.
func (s *Store) LeaveQueue(ctx context.Context, id, outcome string) error {
	return s.moveEntry(ctx, id, "UPDATE queue_entries SET state = '"+QueueLeft+"', outcome = ?, left_at = ? WHERE id = ? AND state <> '"+QueueLeft+"'",
		outcome, micros(s.Now()), id)
}

func (s *Store) moveEntry(ctx context.Context, id, statement string, args ...any) error {
	return s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec(statement, args...)
		if result.Error == nil && result.RowsAffected == 0 {
			return fmt.Errorf("move queue entry %q: %w", id, ErrStale)
		}
		return explain(result.Error, "move queue entry %q", id)
	})
}

// QueueEntry returns an entry whosesoever it is, or ErrNotFound. Never answer a customer's request from it.
func (s *Store) QueueEntry(ctx context.Context, id string) (*QueueEntry, error) {
	var row QueueEntry
	if err := s.read(ctx).Where("id = ?", id).Take(&row).Error; err != nil {
		return nil, explain(err, "queue entry %q", id)
	}
	return &row, nil
}

// QueueEntryOfCall returns the entry with which a customer's call is in a queue now, or ErrNotFound.
func (s *Store) QueueEntryOfCall(ctx context.Context, customerID, callID string) (*QueueEntry, error) {
	var row QueueEntry
	err := s.read(ctx).Where("call_id = ? AND customer_id = ? AND state <> '"+QueueLeft+"'", callID, customerID).Take(&row).Error
	if err != nil {
		return nil, explain(err, "queue entry of call %q", callID)
	}
	return &row, nil
}

// QueuePosition returns the place of a waiting entry in its queue, from 1. ErrStale where it waits no more.
func (s *Store) QueuePosition(ctx context.Context, id string) (int, error) {
	entry, err := s.QueueEntry(ctx, id)
	if err != nil {
		return 0, err
	}
	if entry.State != QueueWaiting {
		return 0, fmt.Errorf("position of queue entry %q: %w", id, ErrStale)
	}
	return s.position(ctx, entry)
}

func (s *Store) position(ctx context.Context, entry *QueueEntry) (int, error) {
	at := micros(entry.JoinedAt)
	var ahead int
	err := s.read(ctx).Raw(`SELECT COUNT(*) FROM queue_entries WHERE customer_id = ? AND queue = ? AND state = '`+QueueWaiting+`'
		AND (priority > ? OR priority = ? AND (joined_at < ? OR joined_at = ? AND id < ?))`,
		entry.CustomerID, entry.Queue, entry.Priority, entry.Priority, at, at, entry.ID).Row().Scan(&ahead)
	return ahead + 1, explain(err, "position of queue entry %q", entry.ID)
}

// Queues returns a customer's queues that calls are in, by name.
func (s *Store) Queues(ctx context.Context, customerID string) ([]QueueSummary, error) {
	var rows []struct {
		Queue            string
		Waiting, Present int
		Oldest           *int64
	}
	err := s.read(ctx).Raw(`SELECT queue, COUNT(*) AS present, SUM(CASE WHEN state = '`+QueueWaiting+`' THEN 1 ELSE 0 END) AS waiting,
			MIN(CASE WHEN state = '`+QueueWaiting+`' THEN joined_at END) AS oldest
		FROM queue_entries WHERE customer_id = ? AND state <> '`+QueueLeft+`' GROUP BY queue ORDER BY queue`, customerID).Scan(&rows).Error
	if err != nil {
		return nil, explain(err, "list queues of customer %q", customerID)
	}
	queues := make([]QueueSummary, len(rows))
	for i, row := range rows {
		queues[i] = QueueSummary{Name: row.Queue, Waiting: row.Waiting, Present: row.Present}
		if row.Oldest != nil {
			at := time.UnixMicro(*row.Oldest).UTC()
			queues[i].OldestJoinedAt = &at
		}
	}
	return queues, nil
}

// QueueEntries returns those that have not left a customer's queue, in the order in which they are taken.
func (s *Store) QueueEntries(ctx context.Context, customerID, queue string) ([]QueueEntry, error) {
	var rows []QueueEntry
	err := s.read(ctx).Where("customer_id = ? AND queue = ? AND state <> '"+QueueLeft+"'", customerID, queue).Order(queueOrder).Find(&rows).Error
	return rows, explain(err, "read entries of queue %q", queue)
}
