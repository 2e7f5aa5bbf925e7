package models

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// States of a delivery.
const (
	DeliveryPending   = "pending"
	DeliveryDelivered = "delivered"
	DeliveryDead      = "dead"
	DeliverySkipped   = "skipped"
)

// FailingThreshold is how many failures in a row make an endpoint a failing one, which gets only the probe slots.
const FailingThreshold = 3

// Stream is the queue of the events of one subject (a call, a trunk or an application) for one endpoint, or of those that are
// delivered again. Events are delivered one at a time, in order: the head is the one after AckedSeq. DueAt is nil while there is nothing to do; while a worker has the stream it is the end of the lease.
type Stream struct {
	SubjectID  string `gorm:"primaryKey"`
	EndpointID string `gorm:"primaryKey"`
	LastSeq    int64
	AckedSeq   int64
	DueAt      *time.Time `gorm:"serializer:moment"`
	LeaseToken int64
	LeaseOwner string
	LeaseUntil *time.Time `gorm:"serializer:moment"`
	// Attempts counts the failures of the head, but not of attempts that were pulled forward.
	Attempts int
	// PulledFrom is when it would have been due that was pulled forward, nil where it was not.
	PulledFrom *time.Time `gorm:"serializer:moment"`
}

// TableName implements gorm's schema.Tabler.
func (Stream) TableName() string { return "webhook_streams" }

// Delivery is what became of one event.
type Delivery struct {
	EventID    string `gorm:"primaryKey"`
	SubjectID  string
	EndpointID string
	Seq        int64
	State      string
	Attempts   int
	LastStatus int
	// DeliveredAt is when it was taken last, GivenUpAt when it was given up or passed over.
	DeliveredAt *time.Time `gorm:"serializer:moment"`
	GivenUpAt   *time.Time `gorm:"serializer:moment"`
	// Told is nil until the event is delivered again: then SubjectID and Seq are its place in the stream of what is delivered again,
	// and Told is what Seq was.
	Told *int64
}

// TableName implements gorm's schema.Tabler.
func (Delivery) TableName() string { return "webhook_deliveries" }

// ClaimedStream is a stream leased to a worker, its head event and how often that was tried before.
type ClaimedStream struct {
	Stream
	Event    Event
	Attempts int
	// Told is the event's number among those that the endpoint is told of its subject.
	Told int64
}

// ClaimStreams leases due streams to owner, at most limit of them. An endpoint never has more than perEndpointCap streams
// leased at a time, and while it is failing (FailingThreshold) no more than probeCap; a disabled one has none. Slots are dealt
// one by one to the endpoints in turn, beginning with another one each time, and within an endpoint to what is due longest,
// so that no endpoint delays another. A lease that runs out makes its stream due again; its token is then void.
//
// Between processes that claim in the same moment perEndpointCap may be passed by what one of them claims; probeCap may not.
func (s *Store) ClaimStreams(ctx context.Context, owner string, lease time.Duration, perEndpointCap, probeCap, limit int) ([]ClaimedStream, error) {
	if s.tx == nil {
		// A poll that finds nothing due must not cost a write transaction.
		if due, ok, err := s.NextDue(ctx); err != nil || !ok || due.After(s.Now()) {
			return nil, err
		}
	}
	var claimed []ClaimedStream
	err := s.InTx(ctx, func(tx *Store) error {
		claimed = nil
		now := tx.Now()
		lanes, err := tx.dueLanes(ctx, now, perEndpointCap, probeCap)
		if err != nil {
			return err
		}
		lanes = tx.deal(lanes, limit)
		if len(lanes) == 0 {
			return nil
		}
		streams, err := tx.lease(ctx, lanes, owner, now, now.Add(lease))
		if err != nil {
			return err
		}
		claimed, err = tx.heads(ctx, streams)
		return err
	})
	return claimed, err
}

// lane is an endpoint with due streams.
type lane struct {
	EndpointID string
	Failures   int
	// free is how many streams it may still lease, due how many are waiting (counted up to free).
	free, due int
	// leased is how many it had leased when free was counted.
	leased int
	// slots is what it is dealt.
	slots int
}

// busyEndpoints walks the index from one endpoint to the next instead of reading every due stream: with 100,000 events
// waiting for one dead endpoint, a claim still costs one step per endpoint.
const busyEndpoints = `WITH RECURSIVE busy(endpoint_id) AS (
		SELECT first.endpoint_id FROM (SELECT endpoint_id FROM webhook_streams WHERE due_at IS NOT NULL ORDER BY endpoint_id LIMIT 1) first
		UNION ALL
		SELECT (SELECT s.endpoint_id FROM webhook_streams s WHERE s.due_at IS NOT NULL AND s.endpoint_id > busy.endpoint_id
			ORDER BY s.endpoint_id LIMIT 1)
		FROM busy WHERE busy.endpoint_id IS NOT NULL
	)`

func (s *Store) dueLanes(ctx context.Context, now time.Time, perEndpointCap, probeCap int) (lanes []lane, err error) {
	rows, err := s.write(ctx).Raw(busyEndpoints+`
		SELECT e.application_id, e.consecutive_failures,
			(SELECT COUNT(*) FROM webhook_streams l WHERE l.endpoint_id = e.application_id AND l.lease_until > ?),
			(SELECT COUNT(*) FROM (SELECT 1 FROM webhook_streams d WHERE d.endpoint_id = e.application_id AND d.due_at <= ? LIMIT ?) due)
		FROM busy JOIN webhook_endpoints e ON e.application_id = busy.endpoint_id
		WHERE e.disabled_at IS NULL
		ORDER BY e.application_id`, micros(now), micros(now), max(perEndpointCap, probeCap)).Rows()
	if err != nil {
		return nil, explain(err, "look for due webhook streams")
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var l lane
		if err := rows.Scan(&l.EndpointID, &l.Failures, &l.leased, &l.due); err != nil {
			return nil, explain(err, "look for due webhook streams")
		}
		l.free = perEndpointCap - l.leased
		if l.Failures >= FailingThreshold {
			l.free = probeCap - l.leased
		}
		if l.free > 0 && l.due > 0 {
			lanes = append(lanes, l)
		}
	}
	return lanes, explain(rows.Err(), "look for due webhook streams")
}

// deal hands out limit slots one by one, beginning behind the endpoint that was first the time before.
func (s *Store) deal(lanes []lane, limit int) []lane {
	if len(lanes) == 0 {
		return nil
	}
	start := int(s.turns.Add(1) % uint64(len(lanes)))
	lanes = slices.Concat(lanes[start:], lanes[:start])
	for dealt := true; dealt && limit > 0; {
		dealt = false
		for i := range lanes {
			if limit > 0 && lanes[i].slots < min(lanes[i].free, lanes[i].due) {
				lanes[i].slots++
				limit--
				dealt = true
			}
		}
	}
	return slices.DeleteFunc(lanes, func(l lane) bool { return l.slots == 0 })
}

func (s *Store) lease(ctx context.Context, lanes []lane, owner string, now, until time.Time) ([]Stream, error) {
	if s.dialect == DialectPostgres {
		return s.leasePostgres(ctx, lanes, owner, now, until)
	}
	return s.leaseSQLite(ctx, lanes, owner, now, until)
}

// leasePostgres takes all lanes in one statement and leaves out rows that another process has in hand. SQLite has neither
// LATERAL nor row locks, hence the two forms.
func (s *Store) leasePostgres(ctx context.Context, lanes []lane, owner string, now, until time.Time) ([]Stream, error) {
	lanes, err := s.lockProbes(ctx, lanes, now)
	if err != nil || len(lanes) == 0 {
		return nil, err
	}
	ids, slots := make([]string, len(lanes)), make([]string, len(lanes))
	for i, l := range lanes {
		ids[i], slots[i] = l.EndpointID, strconv.Itoa(l.slots)
	}
	var streams []Stream
	err = s.write(ctx).Raw(`WITH chosen AS (
			SELECT head.subject_id, head.endpoint_id
			FROM unnest(string_to_array(?, ','), CAST(string_to_array(?, ',') AS INTEGER[])) AS want(endpoint_id, slots)
			CROSS JOIN LATERAL (
				SELECT s.subject_id, s.endpoint_id FROM webhook_streams s
				WHERE s.endpoint_id = want.endpoint_id AND s.due_at <= ?
				ORDER BY s.due_at LIMIT want.slots FOR UPDATE SKIP LOCKED
			) head
		)
		UPDATE webhook_streams w SET due_at = ?, lease_until = ?, lease_owner = ?, lease_token = w.lease_token + 1
		FROM chosen WHERE w.subject_id = chosen.subject_id AND w.endpoint_id = chosen.endpoint_id
		RETURNING w.*`,
		strings.Join(ids, ","), strings.Join(slots, ","), micros(now), micros(until), micros(until), owner).Scan(&streams).Error
	return streams, explain(err, "lease webhook streams")
}

// lockProbes keeps two processes from probing a failing endpoint at once: whoever locks its row first has the slot, and looks
// again, now that nobody else can take it, whether it is free.
func (s *Store) lockProbes(ctx context.Context, lanes []lane, now time.Time) ([]lane, error) {
	var kept []lane
	for _, l := range lanes {
		if l.Failures < FailingThreshold {
			kept = append(kept, l)
			continue
		}
		var locked []string
		err := s.write(ctx).Raw("SELECT application_id FROM webhook_endpoints WHERE application_id = ? AND disabled_at IS NULL FOR UPDATE SKIP LOCKED",
			l.EndpointID).Scan(&locked).Error
		if err != nil {
			return nil, explain(err, "lock failing webhook endpoint %q", l.EndpointID)
		}
		if len(locked) == 0 {
			continue
		}
		var leased int
		err = s.write(ctx).Raw("SELECT COUNT(*) FROM webhook_streams WHERE endpoint_id = ? AND lease_until > ?",
			l.EndpointID, micros(now)).Row().Scan(&leased)
		if err != nil {
			return nil, explain(err, "count probes of webhook endpoint %q", l.EndpointID)
		}
		// free was the cap less the leases counted before; never more than what is left of it now.
		if l.slots = min(l.slots, l.free+l.leased-leased); l.slots > 0 {
			kept = append(kept, l)
		}
	}
	return kept, nil
}

func (s *Store) leaseSQLite(ctx context.Context, lanes []lane, owner string, now, until time.Time) ([]Stream, error) {
	var streams []Stream
	for _, l := range lanes {
		var some []Stream
		err := s.write(ctx).Raw(`UPDATE webhook_streams SET due_at = ?, lease_until = ?, lease_owner = ?, lease_token = lease_token + 1
			WHERE rowid IN (SELECT rowid FROM webhook_streams WHERE endpoint_id = ? AND due_at <= ? ORDER BY due_at LIMIT ?)
			RETURNING *`, micros(until), micros(until), owner, l.EndpointID, micros(now), l.slots).Scan(&some).Error
		if err != nil {
			return nil, explain(err, "lease webhook streams of endpoint %q", l.EndpointID)
		}
		streams = append(streams, some...)
	}
	return streams, nil
}

// heads reads the head event of each leased stream, in the order in which they were due.
func (s *Store) heads(ctx context.Context, streams []Stream) ([]ClaimedStream, error) {
	if len(streams) == 0 {
		return nil, nil
	}
	// Each delivery by its key: joined by way of the streams, PostgreSQL may choose to read all that there are, while it knows little of their numbers.
	wanted, args := make([]string, len(streams)), make([]any, 0, 3*len(streams))
	for i := range streams {
		wanted[i] = "d.subject_id = ? AND d.endpoint_id = ? AND d.seq = ?"
		args = append(args, streams[i].SubjectID, streams[i].EndpointID, streams[i].AckedSeq+1)
	}
	var rows []struct {
		Event `gorm:"embedded"`
		Tried int
		Told  int64
		Lane  string
		Name  string
	}
	err := s.write(ctx).Raw(`SELECT e.*, d.attempts AS tried, COALESCE(d.told, d.seq) AS told, d.endpoint_id AS lane, d.subject_id AS name
		FROM webhook_deliveries d JOIN events e ON e.id = d.event_id
		WHERE (`+strings.Join(wanted, ") OR (")+")", args...).Scan(&rows).Error
	if err != nil {
		return nil, explain(err, "read heads of webhook streams")
	}
	type key struct{ subject, endpoint string }
	at := make(map[key]int, len(rows))
	for i := range rows {
		at[key{rows[i].Name, rows[i].Lane}] = i
	}
	claimed := make([]ClaimedStream, 0, len(streams))
	for _, stream := range streams {
		i, ok := at[key{stream.SubjectID, stream.EndpointID}]
		if !ok {
			// One broken row must not stop every other delivery; its lease keeps it from being looked at all the time.
			s.core.logger.ErrorContext(ctx, "webhook stream has no head event", "subject_id", stream.SubjectID, "application_id", stream.EndpointID)
			continue
		}
		claimed = append(claimed, ClaimedStream{Stream: stream, Event: rows[i].Event, Attempts: rows[i].Tried, Told: rows[i].Told})
	}
	slices.SortFunc(claimed, func(a, b ClaimedStream) int { return a.Event.CreatedAt.Compare(b.Event.CreatedAt) })
	return claimed, nil
}

// NextDue returns when the next stream of an enabled endpoint is due, and false where none will be. A time that has passed,
// when a claim has just returned nothing, means that the endpoint's slots are taken: wait for one of them to finish.
func (s *Store) NextDue(ctx context.Context) (time.Time, bool, error) {
	var due []int64
	err := s.read(ctx).Raw(`SELECT s.due_at FROM webhook_streams s JOIN webhook_endpoints e ON e.application_id = s.endpoint_id
		WHERE s.due_at IS NOT NULL AND e.disabled_at IS NULL ORDER BY s.due_at LIMIT 1`).Scan(&due).Error
	if err != nil || len(due) == 0 {
		return time.Time{}, false, explain(err, "look for the next due webhook stream")
	}
	return time.UnixMicro(due[0]).UTC(), true, nil
}
