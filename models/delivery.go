package models

import (
	"context"
	"time"

	"gorm.io/gorm"
)

// DeliveryDetail is a delivery with what its event and its stream say of it.
type DeliveryDetail struct {
	Delivery   `gorm:"embedded"`
	CustomerID string
	// Subject is what the event tells of; CallID is empty where that is no call.
	Subject string
	CallID  string `gorm:"serializer:reference"`
	Type    string
	// Sequence is the event's number among those that the application is told of its subject.
	Sequence  int64
	CreatedAt time.Time `gorm:"serializer:moment;autoCreateTime:false"`
	// NextAttemptAt is when it is tried next; nil while it is under way, while it waits behind an earlier event of its subject or
	// for an endpoint that is disabled, and when it is done.
	NextAttemptAt *time.Time `gorm:"serializer:moment"`
	Position      int64
}

// DeliveryFilter narrows a list of deliveries; zero fields do not.
type DeliveryFilter struct {
	// State is one of DeliveryPending, DeliveryDelivered, DeliveryDead and DeliverySkipped.
	State string
	EventFilter
}

// deliveryCursor is the word in the cursors of ListDeliveries.
const deliveryCursor = "deliveries"

// ListDeliveries returns a page of the deliveries of a customer, or AnyCustomer, that pass the filter, those of the newest events first, and the cursor
// of the next page.
func (s *Store) ListDeliveries(ctx context.Context, customerID string, filter DeliveryFilter, page Page) ([]DeliveryDetail, string, error) {
	query, position, err := s.narrowed(ctx, s.deliveries(ctx, customerID), customerID, &filter)
	if err != nil {
		return nil, "", err
	}
	if page.Cursor != "" {
		last, err := decodePosition(deliveryCursor, page.Cursor)
		if err != nil {
			return nil, "", err
		}
		query = query.Where(position+" < ?", last)
	}
	var rows []DeliveryDetail
	if err := query.Order(position + " DESC").Limit(page.limit() + 1).Scan(&rows).Error; err != nil {
		return nil, "", explain(err, "list deliveries of customer %q", customerID)
	}
	if limit := page.limit(); len(rows) > limit {
		rows = rows[:limit]
		return rows, encodePosition(deliveryCursor, rows[limit-1].Position), nil
	}
	return rows, "", nil
}

// DeliveryByEvent returns the delivery of an event of a customer, or AnyCustomer, or ErrNotFound, also where the event was not to be told.
func (s *Store) DeliveryByEvent(ctx context.Context, customerID, eventID string) (*DeliveryDetail, error) {
	var rows []DeliveryDetail
	if err := s.deliveries(ctx, customerID).Where("d.event_id = ?", eventID).Scan(&rows).Error; err != nil {
		return nil, explain(err, "delivery of event %q", eventID)
	}
	if len(rows) == 0 {
		return nil, explain(gorm.ErrRecordNotFound, "delivery of event %q", eventID)
	}
	return &rows[0], nil
}

// EventByID returns an event of a customer, or AnyCustomer, or ErrNotFound.
func (s *Store) EventByID(ctx context.Context, customerID, id string) (*Event, error) {
	var row Event
	if err := ownedBy(s.read(ctx).Where("id = ?", id), "customer_id", customerID).Take(&row).Error; err != nil {
		return nil, explain(err, "event %q", id)
	}
	return &row, nil
}

// deliveries begins a query for deliveries of a customer.
func (s *Store) deliveries(ctx context.Context, customerID string) *gorm.DB {
	return ownedBy(s.read(ctx).Table("webhook_deliveries d").
		Select(`d.*, e.customer_id, e.subject_id AS subject, e.call_id, e.type, COALESCE(d.told, d.seq) AS sequence, e.created_at, e.position,
			CASE WHEN d.state = '`+DeliveryPending+`' AND d.seq = s.acked_seq + 1 AND p.disabled_at IS NULL AND COALESCE(s.lease_until, 0) <= ?
				THEN s.due_at END AS next_attempt_at`, micros(s.Now())).
		Joins("JOIN events e ON e.id = d.event_id").
		Joins("LEFT JOIN webhook_streams s ON s.subject_id = d.subject_id AND s.endpoint_id = d.endpoint_id").
		Joins("LEFT JOIN webhook_endpoints p ON p.application_id = d.endpoint_id"), "e.customer_id", customerID)
}

// fewRows is how many rows are sorted rather than looked for along the journal.
const fewRows = 5000

// narrowed adds a filter to a query for deliveries and returns by which expression it is to be ordered. The database orders by the
// position itself by walking along the journal, newest first or oldest first, which is quick where much passes the filter; where
// little does, among millions that were delivered, it is found by the indexes of what is not, and sorted: then the position is made
// an expression that no index has.
func (s *Store) narrowed(ctx context.Context, query *gorm.DB, customerID string, filter *DeliveryFilter) (narrow *gorm.DB, position string, err error) {
	narrow, position = filter.EventFilter.scope(query), "e.position"
	if filter.State == "" {
		return narrow, position, nil
	}
	narrow = narrow.Where("d.state = ?", filter.State)
	apps := ownedBy(s.read(ctx).Table("applications").Select("id"), "customer_id", customerID)
	if filter.ApplicationID != "" {
		apps = apps.Where("id = ?", filter.ApplicationID)
	}
	var rows *gorm.DB
	switch filter.State {
	case DeliveryDelivered:
		return narrow, position, nil
	case DeliveryPending:
		// What is pending stands in a stream that is due at some time.
		narrow = narrow.Where("s.endpoint_id IN (?) AND s.due_at IS NOT NULL AND d.seq > s.acked_seq", apps)
		rows = s.read(ctx).Table("webhook_streams").Where("endpoint_id IN (?) AND due_at IS NOT NULL", apps)
	default:
		narrow = narrow.Where("d.endpoint_id IN (?) AND d.given_up_at IS NOT NULL", apps)
		rows = s.read(ctx).Table("webhook_deliveries").Where("endpoint_id IN (?) AND given_up_at IS NOT NULL", apps)
	}
	var count int64
	err = s.read(ctx).Table("(?) AS found", rows.Select("1 AS one").Limit(fewRows)).Count(&count).Error
	if count < fewRows {
		position = "(e.position + 0)"
	}
	return narrow, position, explain(err, "count deliveries of customer %q", customerID)
}

// scope adds the filter to a query for events, which has them as e.
func (f *EventFilter) scope(query *gorm.DB) *gorm.DB {
	if len(f.Types) > 0 {
		query = query.Where("e.type IN ?", f.Types)
	}
	if f.ApplicationID != "" {
		query = query.Where("e.application_id = ?", f.ApplicationID)
	}
	if f.CallID != "" {
		query = query.Where("e.subject_id = ? AND e.call_id IS NOT NULL", f.CallID)
	}
	if f.CreatedAfter != nil {
		query = query.Where("e.created_at >= ?", micros(*f.CreatedAfter))
	}
	if f.CreatedBefore != nil {
		query = query.Where("e.created_at <= ?", micros(*f.CreatedBefore))
	}
	return query
}

// Deliveries returns what became of the events of a call, in their order.
func (s *Store) Deliveries(ctx context.Context, callID string) ([]Delivery, error) {
	var rows []Delivery
	err := s.read(ctx).Raw("SELECT d.* FROM webhook_deliveries d JOIN events e ON e.id = d.event_id WHERE e.subject_id = ? ORDER BY e.sequence", callID).
		Scan(&rows).Error
	return rows, explain(err, "read deliveries of call %q", callID)
}
