package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Why an event cannot be delivered again.
var (
	// ErrDeliveryPending: the event is still to be delivered, or is delivered again already.
	ErrDeliveryPending = errors.New("delivery pending")
	// ErrEndpointDisabled: the application's endpoint is disabled; nothing is sent to it until it is enabled.
	ErrEndpointDisabled = errors.New("endpoint disabled")
	// ErrNoWebhookURL: the application has no webhook_url, or is deleted.
	ErrNoWebhookURL = errors.New("no webhook_url")
)

// lanePrefix begins the name of the stream by which the events of a subject are delivered again.
const lanePrefix = "redelivery/"

// Events that are delivered again do not go back into the stream of their subject: there they would come between events that are
// delivered for the first time, and while they fail, hold them up. Each subject has a second stream for them, in which they are
// delivered one after the other, in the order in which they were asked for, with attempts and a schedule from the start. The
// workers know no difference.

// Redeliver queues one event of a customer for delivery again, under the same id, and returns the delivery. ErrNotFound,
// ErrDeliveryPending, ErrEndpointDisabled, ErrNoWebhookURL.
func (s *Store) Redeliver(ctx context.Context, customerID, eventID string) (*DeliveryDetail, error) {
	var detail *DeliveryDetail
	err := s.InTx(ctx, func(tx *Store) (err error) {
		var rows []requeued
		if err := tx.redeliverable(ctx, "", customerID).Where("d.event_id = ?", eventID).Scan(&rows).Error; err != nil {
			return explain(err, "look for the delivery of event %q", eventID)
		}
		if len(rows) == 0 {
			return fmt.Errorf("delivery of event %q: %w", eventID, ErrNotFound)
		}
		if err := tx.reachable(ctx, rows[0].EndpointID); err != nil {
			return fmt.Errorf("deliver event %q again: %w", eventID, err)
		}
		if rows[0].State == DeliveryPending {
			return fmt.Errorf("deliver event %q again: %w", eventID, ErrDeliveryPending)
		}
		if err := tx.requeue(ctx, rows); err != nil {
			return err
		}
		detail, err = tx.DeliveryByEvent(ctx, customerID, eventID)
		return err
	})
	return detail, err
}

// RedeliverAll queues the events of one application whose deliveries pass the filter for delivery again, oldest first and at most
// limit of them, and says how many they were and whether more are left. The filter needs an application and a state other than
// DeliveryPending. What another transaction is about to deliver again is left out. ErrNotFound for the application,
// ErrEndpointDisabled, ErrNoWebhookURL.
func (s *Store) RedeliverAll(ctx context.Context, customerID string, filter DeliveryFilter, limit int) (count int, more bool, err error) {
	if filter.ApplicationID == "" || filter.State == "" || filter.State == DeliveryPending {
		return 0, false, fmt.Errorf("deliver again: an application and a state are needed, have %q and %q", filter.ApplicationID, filter.State)
	}
	err = s.InTx(ctx, func(tx *Store) error {
		count, more = 0, false
		if _, err := tx.Application(ctx, customerID, filter.ApplicationID); err != nil {
			return err
		}
		if err := tx.reachable(ctx, filter.ApplicationID); err != nil {
			return fmt.Errorf("deliver events of application %q again: %w", filter.ApplicationID, err)
		}
		query, position, err := tx.narrowed(ctx, tx.redeliverable(ctx, clause.LockingOptionsSkipLocked, customerID), customerID, &filter)
		if err != nil {
			return err
		}
		var rows []requeued
		if err := query.Order(position).Limit(limit + 1).Scan(&rows).Error; err != nil {
			return explain(err, "look for deliveries to make again")
		}
		if more = len(rows) > limit; more {
			rows = rows[:limit]
		}
		count = len(rows)
		return tx.requeue(ctx, rows)
	})
	return count, more, err
}

// requeued is a delivery on its way into the stream of what is delivered again.
type requeued struct {
	EventID    string
	EndpointID string
	Subject    string
	State      string
	Position   int64
}

func (r *requeued) lane() string { return lanePrefix + r.Subject }

// redeliverable begins a query for deliveries of a customer that locks them. Locks are taken on deliveries first, then on streams; a
// worker that has a stream wants only deliveries that are pending, which are not moved.
func (s *Store) redeliverable(ctx context.Context, wait, customerID string) *gorm.DB {
	return s.write(ctx).Table("webhook_deliveries d").Joins("JOIN events e ON e.id = d.event_id").
		Select("d.event_id, d.endpoint_id, e.subject_id AS subject, d.state, e.position").
		Where("e.customer_id = ?", customerID).
		Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate, Table: clause.Table{Name: "d"}, Options: wait})
}

// reachable says whether anything can be delivered to an application.
func (s *Store) reachable(ctx context.Context, applicationID string) error {
	var url string
	var deleted, disabled bool
	err := s.read(ctx).Raw(`SELECT a.webhook_url, a.deleted_at IS NOT NULL, p.disabled_at IS NOT NULL FROM applications a
		LEFT JOIN webhook_endpoints p ON p.application_id = a.id WHERE a.id = ?`, applicationID).Row().Scan(&url, &deleted, &disabled)
	switch {
	case err != nil:
		return explain(err, "webhook endpoint %q", applicationID)
	case url == "" || deleted:
		return ErrNoWebhookURL
	case disabled:
		return ErrEndpointDisabled
	default:
		return nil
	}
}

// requeue moves deliveries that are done to the ends of their second streams.
func (s *Store) requeue(ctx context.Context, rows []requeued) error {
	if len(rows) == 0 {
		return nil
	}
	// The order of locks that FinishDeliveries has; within a stream the order of the journal.
	slices.SortFunc(rows, func(a, b requeued) int {
		return cmp.Or(strings.Compare(a.EndpointID+" "+a.lane(), b.EndpointID+" "+b.lane()), cmp.Compare(a.Position, b.Position))
	})
	type stream struct {
		SubjectID, EndpointID string
		LastSeq               int64
	}
	var streams []stream
	for i := range rows {
		if last := len(streams) - 1; last >= 0 && streams[last].SubjectID == rows[i].lane() && streams[last].EndpointID == rows[i].EndpointID {
			streams[last].LastSeq++
			continue
		}
		streams = append(streams, stream{SubjectID: rows[i].lane(), EndpointID: rows[i].EndpointID, LastSeq: 1})
	}
	now := micros(s.Now())
	next := make(map[string]int64, len(streams))
	for some := range slices.Chunk(streams, rowsLimit) {
		args := make([]any, 0, 4*len(some))
		for _, one := range some {
			args = append(args, one.SubjectID, one.EndpointID, one.LastSeq, now)
		}
		var longer []stream
		err := s.write(ctx).Raw(`INSERT INTO webhook_streams (subject_id, endpoint_id, last_seq, acked_seq, due_at, lease_token, attempts, lease_owner)
			VALUES `+tuples(len(some), "(?, ?, ?, 0, ?, 0, 0, '')")+`
			ON CONFLICT (subject_id, endpoint_id) DO UPDATE SET last_seq = webhook_streams.last_seq + excluded.last_seq,
				due_at = COALESCE(webhook_streams.due_at, excluded.due_at)
			RETURNING subject_id, endpoint_id, last_seq`, args...).Scan(&longer).Error
		if err != nil {
			return explain(err, "queue %d deliveries again", len(rows))
		}
		for _, one := range longer {
			next[one.EndpointID+" "+one.SubjectID] = one.LastSeq + 1
		}
	}
	for _, one := range streams {
		next[one.EndpointID+" "+one.SubjectID] -= one.LastSeq // the first of the places that were added
	}
	for some := range slices.Chunk(rows, rowsLimit) {
		args := make([]any, 0, 3*len(some))
		for i := range some {
			key := some[i].EndpointID + " " + some[i].lane()
			args = append(args, some[i].EventID, some[i].lane(), next[key])
			next[key]++
		}
		err := s.write(ctx).Exec("WITH again(event_id, lane, place) AS (VALUES "+tuples(len(some), "(?, ?, CAST(? AS BIGINT))")+`)
			UPDATE webhook_deliveries SET told = COALESCE(told, seq), subject_id = again.lane, seq = again.place, state = '`+DeliveryPending+`', given_up_at = NULL
			FROM again WHERE webhook_deliveries.event_id = again.event_id`, args...).Error
		if err != nil {
			return explain(err, "queue %d deliveries again", len(rows))
		}
	}
	s.tx.due = true
	return nil
}
