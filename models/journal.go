package models

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The journal is read by position. A reader that has seen a position never sees an event before it appear later, although
// transactions end in another order than they begin in:
//
// On SQLite there is one writer, so positions are given and committed in one order, each behind the highest that there is: Prune
// leaves the newest event, lest its position be given again.
//
// On PostgreSQL positions come from a sequence, and a transaction may take one and commit after another that took a later one.
// Before it takes its first, it takes a shared advisory lock that names how far the sequence was, and keeps it until it has
// ended; all that it takes is beyond that. A reader looks at the sequence first, then at the locks: it reads no further than
// the lowest of them. A transaction whose lock it does not find has ended, so what it wrote is visible to the reader's query,
// which comes last; or it has not locked yet, and then takes its positions beyond what the reader saw of the sequence. Nobody
// waits for anybody: writers do not see each other, and a slow one delays what readers see behind it, not what others write.
// The sequence must not be cached (CACHE 1, its default).
const (
	// journalLock is the highest byte of the advisory locks; the rest is a position.
	journalLock = 0x4a << 56
	// journalNow stands for how far the sequence is.
	journalNow = "(SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END FROM events_position)"
	// journalNext takes the lock, then a position: the sequence is asked for each row of what holds the lock.
	journalNext = `(WITH guard AS MATERIALIZED (SELECT CAST(pg_advisory_xact_lock_shared(?::BIGINT + ` + journalNow + `) AS TEXT) AS held)
		SELECT nextval('events_position') FROM guard WHERE held IS NOT NULL)`
)

// JournalEnd is the cursor that stands for the end of the journal: the page is empty, and its Next is where what happens from
// now on begins.
const JournalEnd = "now"

// journalCursor is the word in the cursors of Journal.
const journalCursor = "journal"

// EventFilter narrows a reading of the journal; zero fields do not.
type EventFilter struct {
	// Types are kinds of events, any of which passes.
	Types         []string
	ApplicationID string
	CallID        string
	// CreatedAfter and CreatedBefore include the moment itself.
	CreatedAfter, CreatedBefore *time.Time
}

// JournalPage is a part of the journal.
type JournalPage struct {
	Events []Event
	// Next is the cursor that reads on behind this page, also where that is the end of the journal for now; More says whether
	// anything is there already.
	Next string
	More bool
}

// Journal returns a customer's events, or those of AnyCustomer, of all calls, trunks and applications in the order of the journal,
// oldest first, behind the page's cursor. No event is missed by who reads on with Next, however many write meanwhile. ErrBadCursor for a cursor that
// Journal did not return.
func (s *Store) Journal(ctx context.Context, customerID string, filter EventFilter, page Page) (*JournalPage, error) {
	var after int64
	var err error
	if page.Cursor != "" && page.Cursor != JournalEnd {
		if after, err = decodePosition(journalCursor, page.Cursor); err != nil {
			return nil, err
		}
	}
	end, err := s.journalEnd(ctx)
	if err != nil {
		return nil, err
	}
	if page.Cursor == JournalEnd {
		return &JournalPage{Next: encodePosition(journalCursor, end)}, nil
	}
	query := filter.scope(ownedBy(s.read(ctx).Table("events e").Where("e.position > ? AND e.position <= ?", after, end), "e.customer_id", customerID))
	var rows []Event
	if err := query.Order("e.position").Limit(page.limit() + 1).Find(&rows).Error; err != nil {
		return nil, explain(err, "read journal of customer %q", customerID)
	}
	// A page that is not full has looked at everything up to the end, whatever the filter let pass.
	answer := &JournalPage{Events: rows, Next: encodePosition(journalCursor, max(after, end))}
	if limit := page.limit(); len(rows) > limit {
		answer.Events, answer.More = rows[:limit], true
		answer.Next = encodePosition(journalCursor, rows[limit-1].Position)
	}
	return answer, nil
}

// journalEnd returns the position up to which the journal is complete.
func (s *Store) journalEnd(ctx context.Context) (int64, error) {
	var end int64
	if s.dialect != DialectPostgres {
		err := s.read(ctx).Raw("SELECT COALESCE(MAX(position), 0) FROM events").Row().Scan(&end)
		return end, explain(err, "look for the end of the journal")
	}
	// Two statements: the sequence has to be read before the locks.
	if err := s.read(ctx).Raw("SELECT " + journalNow).Row().Scan(&end); err != nil {
		return 0, explain(err, "look for the end of the journal")
	}
	err := s.read(ctx).Raw(`SELECT LEAST(?::BIGINT, MIN(key) - ?::BIGINT) FROM (
			SELECT (l.classid::BIGINT << 32) | l.objid::BIGINT AS key FROM pg_locks l
			WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		) held WHERE key >= ?::BIGINT AND key < ?::BIGINT`,
		end, int64(journalLock), int64(journalLock), int64(journalLock+1<<56)).Row().Scan(&end)
	return end, explain(err, "look for unfinished events of the journal")
}

// insertEvent keeps an event at the next position of the journal.
func (s *Store) insertEvent(ctx context.Context, row *Event) error {
	next, args := journalNext, []any{int64(journalLock)}
	switch {
	case s.dialect != DialectPostgres:
		next, args = "(SELECT COALESCE(MAX(position), 0) + 1 FROM events)", nil
	case s.tx.placed: // its lock stands for all that come behind
		next, args = "nextval('events_position')", nil
	}
	var callID any
	if row.CallID != "" {
		callID = row.CallID
	}
	err := s.write(ctx).Raw(`INSERT INTO events (id, subject_id, call_id, customer_id, application_id, sequence, type, body, created_at, position)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, `+next+`) RETURNING position`,
		append([]any{row.ID, row.SubjectID, callID, row.CustomerID, row.ApplicationID, row.Sequence, row.Type, row.Body, micros(row.CreatedAt)},
			args...)...).Row().Scan(&row.Position)
	s.tx.placed = s.tx.placed || err == nil
	return err
}

// prepareJournal makes PostgreSQL's sequence of positions, and brings one that was left behind by a restored backup to where
// the journal is.
func (s *Store) prepareJournal(ctx context.Context) error {
	if s.dialect != DialectPostgres {
		return nil
	}
	err := s.InTx(ctx, func(tx *Store) error {
		for _, statement := range []string{
			fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", int64(journalLock-1)), // several processes may start at once
			"CREATE SEQUENCE IF NOT EXISTS events_position OWNED BY events.position",
			`SELECT setval('events_position', newest.position) FROM (SELECT COALESCE(MAX(position), 0) AS position FROM events) newest
				WHERE newest.position > ` + journalNow,
		} {
			if err := tx.write(ctx).Exec(statement).Error; err != nil {
				return err
			}
		}
		return nil
	})
	return explain(err, "prepare the journal")
}

// encodePosition makes a cursor of a position; the word keeps cursors of one list from being taken for those of another.
func encodePosition(word string, position int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(word + " " + strconv.FormatInt(position, 10)))
}

func decodePosition(word, cursor string) (int64, error) {
	plain, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		if number, ok := strings.CutPrefix(string(plain), word+" "); ok {
			position, err := strconv.ParseInt(number, 10, 64)
			if err == nil && position >= 0 {
				return position, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: %q", ErrBadCursor, cursor)
}
