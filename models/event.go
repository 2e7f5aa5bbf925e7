package models

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Event is one thing that happened to a call, a trunk or an application. Sequence is its place in the journal: it counts from 1,
// without gaps, what happened to a call, or to another subject as far as one application is concerned, wanted or not. Body is
// what the webhook carries; the number in it (see EventBody) counts only what is told.
type Event struct {
	ID string
	// SubjectID is the call, trunk or application of which it tells; CallID is empty where that is no call.
	SubjectID     string
	CallID        string `gorm:"serializer:reference"`
	CustomerID    string
	ApplicationID string
	Sequence      int64
	Type          string
	Body          []byte
	// Fence is the fence of the call as the writer knows it, 0 for none: see Call.Fence. It is not stored.
	Fence     int64     `gorm:"-"`
	CreatedAt time.Time `gorm:"serializer:moment;autoCreateTime:false"`
	// Position is its place in the journal of all subjects and customers; it rises, with gaps.
	Position int64
}

// EventBody makes the body of an event from what the store assigns: its number among the events of its subject that the
// application is told of (from 1, without gaps, so that a receiver knows when one is missing; 0 for an event that it does not
// want), its ID and its time.
type EventBody func(told int64, id string, at time.Time) ([]byte, error)

// AppendEvent adds the next event of a call to its journal, in the same transaction as the change that it tells of, and queues
// it for the application's webhook if the application wants events of its kind now. It needs CallID and Type and fills the
// rest; body is called once per run of the transaction. A call has one terminal event (call.completed or call.failed):
// ErrStale for a second, for any other event of a call that has ended but that a recording has come late, and where the event has a fence that is not the call's any
// more.
func (s *Store) AppendEvent(ctx context.Context, event *Event, body EventBody) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *event
		row.SubjectID = row.CallID
		if tx.later(func(ctx context.Context, tx *Store) error { return tx.AppendEvent(ctx, &row, body) }) {
			return nil
		}
		var kinds []byte
		// The row lock of this update puts the writers of one call in line: no gaps, no doubles.
		where, args := "id = ?", []any{row.CallID}
		if row.Fence != 0 {
			where, args = where+" AND fence = ?", append(args, row.Fence)
		}
		if !terminal(row.Type) && !trailing(row.Type) {
			where += " AND ended_at IS NULL"
		}
		err := tx.write(ctx).Raw(`UPDATE calls SET last_sequence = last_sequence + 1 WHERE `+where+` RETURNING last_sequence, customer_id, application_id,
				(SELECT a.event_kinds FROM applications a WHERE a.id = calls.application_id)`, args...).Row().Scan(&row.Sequence, &row.CustomerID, &row.ApplicationID, &kinds)
		if errors.Is(err, sql.ErrNoRows) {
			if _, err := tx.CallByID(ctx, row.CallID); err != nil {
				return fmt.Errorf("number event %s: %w", row.Type, err)
			}
			return fmt.Errorf("number event %s of call %q: %w", row.Type, row.CallID, ErrStale)
		}
		if err != nil {
			return explain(err, "number event %s of call %q", row.Type, row.CallID)
		}
		wanted, err := wantedOf(kinds, row.Type)
		if err != nil {
			return fmt.Errorf("append event %s of call %q: %w", row.Type, row.CallID, err)
		}
		if err := tx.journal(ctx, &row, body, wanted); err != nil {
			return err
		}
		*event = row
		return nil
	})
}

// terminal says that an event is the last of its call.
func terminal(kind string) bool { return kind == "call.completed" || kind == "call.failed" }

// trailing says that an event may follow the end of its call: a recording comes from its node when the node can send it.
func trailing(kind string) bool { return kind == "recording.available" || kind == "recording.failed" }

// AppendSubjectEvent is AppendEvent for what is no call: the event's SubjectID is the trunk or application that it tells of. It
// needs CustomerID, ApplicationID, SubjectID and Type and fills the rest. Where always is set, the application is told whatever
// kinds it wants. ErrNotFound where the application is not the customer's or is deleted.
func (s *Store) AppendSubjectEvent(ctx context.Context, event *Event, always bool, body EventBody) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *event
		row.CallID = ""
		var kinds []byte
		err := tx.read(ctx).Raw("SELECT event_kinds FROM applications WHERE id = ? AND customer_id = ? AND deleted_at IS NULL",
			row.ApplicationID, row.CustomerID).Row().Scan(&kinds)
		if err != nil {
			return explain(err, "append event %s of %q: application %q", row.Type, row.SubjectID, row.ApplicationID)
		}
		wanted, err := wantedOf(kinds, row.Type)
		if err != nil {
			return fmt.Errorf("append event %s of %q: %w", row.Type, row.SubjectID, err)
		}
		// As with calls, the lock of the counter's row puts the writers in line.
		err = tx.write(ctx).Raw(`INSERT INTO event_counters (subject_id, application_id, last_sequence) VALUES (?, ?, 1)
			ON CONFLICT (subject_id, application_id) DO UPDATE SET last_sequence = event_counters.last_sequence + 1
			RETURNING last_sequence`, row.SubjectID, row.ApplicationID).Row().Scan(&row.Sequence)
		if err != nil {
			return explain(err, "number event %s of %q", row.Type, row.SubjectID)
		}
		if err := tx.journal(ctx, &row, body, always || wanted); err != nil {
			return err
		}
		*event = row
		return nil
	})
}

// journal keeps a numbered event and queues it where it is wanted: behind the deliveries that its stream has, which becomes due
// where it was idle.
func (s *Store) journal(ctx context.Context, row *Event, body EventBody, wanted bool) error {
	row.ID, s.tx.mark = cmp.Or(s.tx.mark, NewID(PrefixEvent)), ""
	row.CreatedAt = s.Now()
	var told, due int64
	var err error
	if wanted {
		if told, due, err = s.lengthenStream(ctx, row); err != nil {
			return err
		}
	}
	if row.Body, err = body(told, row.ID, row.CreatedAt); err != nil {
		return fmt.Errorf("write body of event %s of %q: %w", row.Type, row.SubjectID, err)
	}
	if err := s.insertEvent(ctx, row); err != nil {
		return explain(err, "append event %s of %q", row.Type, row.SubjectID)
	}
	if !wanted {
		return nil
	}
	delivery := &Delivery{
		EventID: row.ID, SubjectID: row.SubjectID, EndpointID: row.ApplicationID, Seq: told, State: DeliveryPending,
	}
	if err := s.write(ctx).Create(delivery).Error; err != nil {
		return explain(err, "queue event %s of %q", row.Type, row.SubjectID)
	}
	// A stream that is leased or waits for its retry is due later; everything else is to be told to the workers.
	if due <= micros(row.CreatedAt) {
		s.tx.due = true
	}
	return nil
}

func wantedOf(kinds []byte, kind string) (bool, error) {
	if kinds == nil {
		return Wanted(nil, kind), nil
	}
	var chosen []string
	if err := json.Unmarshal(kinds, &chosen); err != nil {
		return false, fmt.Errorf("read event_kinds: %w", err)
	}
	return Wanted(chosen, kind), nil
}

// lengthenStream gives an event its place in its subject's stream of deliveries and says when the stream is due.
func (s *Store) lengthenStream(ctx context.Context, event *Event) (seq, due int64, err error) {
	err = s.write(ctx).Raw(`INSERT INTO webhook_streams (subject_id, endpoint_id, last_seq, acked_seq, due_at, lease_token, attempts, lease_owner)
		VALUES (?, ?, 1, 0, ?, 0, 0, '')
		ON CONFLICT (subject_id, endpoint_id) DO UPDATE SET last_seq = webhook_streams.last_seq + 1,
			due_at = COALESCE(webhook_streams.due_at, excluded.due_at)
		RETURNING last_seq, due_at`,
		event.SubjectID, event.ApplicationID, micros(event.CreatedAt)).Row().Scan(&seq, &due)
	return seq, due, explain(err, "queue event %s of %q", event.Type, event.SubjectID)
}

// CallEvents returns the events of a customer's call in their order.
func (s *Store) CallEvents(ctx context.Context, customerID, callID string) ([]Event, error) {
	return s.callEvents(ctx, customerID, callID, 0, -1)
}

// CallEventsPage returns at most limit events of a customer's call whose sequence is greater than after, in their order.
func (s *Store) CallEventsPage(ctx context.Context, customerID, callID string, after int64, limit int) ([]Event, error) {
	return s.callEvents(ctx, customerID, callID, after, max(limit, 0))
}

func (s *Store) callEvents(ctx context.Context, customerID, callID string, after int64, limit int) ([]Event, error) {
	var rows []Event
	err := s.read(ctx).Where("subject_id = ? AND call_id IS NOT NULL AND customer_id = ? AND sequence > ?", callID, customerID, after).
		Order("sequence").Limit(limit).Find(&rows).Error
	return rows, explain(err, "read events of call %q", callID)
}
