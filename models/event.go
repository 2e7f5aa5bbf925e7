package models

import (
	"context"
	"fmt"
	"time"
)

// CallEvent is one thing that happened to a call, as it is told to the customer. Sequence counts from 1 in each call, without
// gaps; Body is what the webhook carries.
type CallEvent struct {
	ID            string
	CallID        string
	CustomerID    string
	ApplicationID string
	Sequence      int64
	Type          string
	Body          []byte
	CreatedAt     time.Time `gorm:"serializer:moment;autoCreateTime:false"`
}

// EventBody makes the body of an event from what the store assigns: its sequence, ID and time.
type EventBody func(sequence int64, id string, at time.Time) ([]byte, error)

// AppendEvent adds the next event of a call and queues it for the application's webhook, in the same transaction as the
// change that it tells of. It needs CallID and Type and fills the rest; body is called once per run of the transaction. A
// call has one terminal event (call.completed or call.failed): ErrStale for a second.
func (s *Store) AppendEvent(ctx context.Context, event *CallEvent, body EventBody) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *event
		row.ID = NewID(PrefixEvent)
		row.CreatedAt = tx.Now()
		// The row lock of this update puts the writers of one call in line: no gaps, no doubles.
		err := tx.write(ctx).Raw("UPDATE calls SET last_sequence = last_sequence + 1 WHERE id = ? RETURNING last_sequence, customer_id, application_id",
			row.CallID).Row().Scan(&row.Sequence, &row.CustomerID, &row.ApplicationID)
		if err != nil {
			return explain(err, "number event %s of call %q", row.Type, row.CallID)
		}
		if row.Body, err = body(row.Sequence, row.ID, row.CreatedAt); err != nil {
			return fmt.Errorf("write body of event %s of call %q: %w", row.Type, row.CallID, err)
		}
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "append event %s of call %q", row.Type, row.CallID)
		}
		if err := tx.queueEvent(ctx, &row); err != nil {
			return err
		}
		*event = row
		return nil
	})
}

// queueEvent adds the delivery and makes the stream due where it was idle.
func (s *Store) queueEvent(ctx context.Context, event *CallEvent) error {
	delivery := &Delivery{
		EventID: event.ID, CallID: event.CallID, EndpointID: event.ApplicationID, Seq: event.Sequence, State: DeliveryPending,
	}
	if err := s.write(ctx).Create(delivery).Error; err != nil {
		return explain(err, "queue event %s of call %q", event.Type, event.CallID)
	}
	var due int64
	err := s.write(ctx).Raw(`INSERT INTO webhook_streams (call_id, endpoint_id, last_seq, acked_seq, due_at, lease_token, attempts, lease_owner)
		VALUES (?, ?, ?, ?, ?, 0, 0, '')
		ON CONFLICT (call_id, endpoint_id) DO UPDATE SET last_seq = excluded.last_seq,
			due_at = COALESCE(webhook_streams.due_at, excluded.due_at)
		RETURNING due_at`,
		event.CallID, event.ApplicationID, event.Sequence, event.Sequence-1, micros(event.CreatedAt)).Row().Scan(&due)
	if err != nil {
		return explain(err, "queue event %s of call %q", event.Type, event.CallID)
	}
	// A stream that is leased or waits for its retry is due later; everything else is to be told to the workers.
	if due <= micros(event.CreatedAt) {
		s.tx.due = true
	}
	return nil
}

// CallEvents returns the events of a customer's call in their order.
func (s *Store) CallEvents(ctx context.Context, customerID, callID string) ([]CallEvent, error) {
	var rows []CallEvent
	err := s.read(ctx).Where("call_id = ? AND customer_id = ?", callID, customerID).Order("sequence").Find(&rows).Error
	return rows, explain(err, "read events of call %q", callID)
}
