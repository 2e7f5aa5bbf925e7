package models

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Results of a delivery attempt.
const (
	ResultDelivered = "delivered"
	ResultRetry     = "retry"
	ResultDead      = "dead"
	// ResultSkipped passes over an event that has nowhere to go (no webhook_url); it says nothing of the endpoint.
	ResultSkipped = "skipped"
	// ResultReleased gives the stream back untried, due at once: the worker stops. It says nothing of the endpoint.
	ResultReleased = "released"
)

// responseLimit is how many bytes of an endpoint's answer are kept.
const responseLimit = 1024

// Attempt is one request to an endpoint. Status is 0 where no answer came; Response the first 1 KiB of the answer.
type Attempt struct {
	ID        string
	EventID   string
	Number    int
	StartedAt time.Time `gorm:"serializer:moment"`
	LatencyMS float64   `gorm:"column:latency_ms"`
	Status    int
	Error     string
	Response  string
}

// TableName implements gorm's schema.Tabler.
func (Attempt) TableName() string { return "webhook_attempts" }

// Outcome is how a claimed stream's head went.
type Outcome struct {
	SubjectID  string
	EndpointID string
	LeaseToken int64
	EventID    string
	// Attempt is recorded whatever the result, except for ResultSkipped and ResultReleased.
	Attempt Attempt
	Result  string
	// RetryAt is when to try again; with ResultRetry only.
	RetryAt time.Time
	// DisableReason, where not empty, disables the endpoint.
	DisableReason string
}

// FinishDeliveries records attempts and gives streams back, in one transaction. An outcome whose lease has passed to another
// worker (LeaseToken) changes nothing but is recorded as an attempt. A stream with more events is due at once; the first
// success of a failing endpoint makes all its waiting streams due, and what then fails is due again when it would have been.
func (s *Store) FinishDeliveries(ctx context.Context, outcomes []Outcome) error {
	// One order of locks for all, so that two workers' batches do not wait for each other in a circle.
	outcomes = slices.Clone(outcomes)
	slices.SortFunc(outcomes, func(a, b Outcome) int {
		return strings.Compare(a.EndpointID+" "+a.SubjectID, b.EndpointID+" "+b.SubjectID)
	})
	return s.InTx(ctx, func(tx *Store) error {
		now := tx.Now()
		if err := tx.recordAttempts(ctx, outcomes, now); err != nil {
			return err
		}
		together, single := split(outcomes)
		if err := tx.finishDelivered(ctx, together, now); err != nil {
			return err
		}
		for i := range single {
			if err := tx.finish(ctx, &single[i], now); err != nil {
				return fmt.Errorf("finish delivery of event %q: %w", single[i].EventID, err)
			}
		}
		return nil
	})
}

// split picks the outcomes that can be stored together, which are nearly all of them on a good day: deliveries, each of a
// stream of its own, to endpoints that did nothing but succeed. Where successes and failures of an endpoint are mixed, they
// count one after the other.
func split(outcomes []Outcome) (together, single []Outcome) {
	failed := map[string]bool{}
	for i := range outcomes {
		if outcomes[i].Result == ResultRetry || outcomes[i].Result == ResultDead {
			failed[outcomes[i].EndpointID] = true
		}
	}
	for i, o := range outcomes {
		again := i > 0 && o.EndpointID == outcomes[i-1].EndpointID && o.SubjectID == outcomes[i-1].SubjectID // they are sorted
		if o.Result == ResultDelivered && !again && !failed[o.EndpointID] {
			together = append(together, o)
		} else {
			single = append(single, o)
		}
	}
	return together, single
}

// recordAttempts keeps the attempts, whoever has the streams by now.
func (s *Store) recordAttempts(ctx context.Context, outcomes []Outcome, now time.Time) error {
	var attempts []Attempt
	for i := range outcomes {
		if outcomes[i].Result == ResultSkipped || outcomes[i].Result == ResultReleased {
			continue
		}
		attempt := outcomes[i].Attempt
		attempt.ID, attempt.EventID = NewID(PrefixAttempt), outcomes[i].EventID
		attempt.Response = clip(attempt.Response)
		attempt.Error = clip(attempt.Error)
		if attempt.StartedAt.IsZero() {
			attempt.StartedAt = now
		}
		attempts = append(attempts, attempt)
	}
	for some := range slices.Chunk(attempts, rowsLimit) {
		if err := s.write(ctx).Create(&some).Error; err != nil {
			return explain(err, "record %d attempts", len(some))
		}
	}
	return nil
}

// finishDelivered moves streams and deliveries on whose leases are still the worker's.
func (s *Store) finishDelivered(ctx context.Context, outcomes []Outcome, now time.Time) error {
	for some := range slices.Chunk(outcomes, rowsLimit) {
		events, endpoints, err := s.giveBackDelivered(ctx, some, now)
		if err != nil || len(events) == 0 {
			return err
		}
		s.tx.due = true
		if err := s.markDelivered(ctx, events, now); err != nil {
			return err
		}
		if err := s.succeeded(ctx, endpoints, now); err != nil {
			return err
		}
	}
	return nil
}

// giveBackDelivered returns the outcomes that counted and their endpoints.
func (s *Store) giveBackDelivered(ctx context.Context, outcomes []Outcome, now time.Time) (ours []Outcome, endpoints []string, err error) {
	args := make([]any, 0, 4*len(outcomes)+1)
	for i := range outcomes {
		args = append(args, outcomes[i].SubjectID, outcomes[i].EndpointID, outcomes[i].LeaseToken, outcomes[i].EventID)
	}
	var moved []Lease
	// last_seq and acked_seq are columns of one row, so that an event appended meanwhile is seen here or sees this.
	err = s.write(ctx).Raw("WITH done(subject_id, endpoint_id, token, event_id) AS (VALUES "+tuples(len(outcomes), "(?, ?, CAST(? AS BIGINT), ?)")+`)
		UPDATE webhook_streams SET due_at = CASE WHEN last_seq > acked_seq + 1 THEN CAST(? AS BIGINT) ELSE NULL END,
			acked_seq = acked_seq + 1, attempts = 0, pulled_from = NULL, lease_until = NULL, lease_owner = ''
		FROM done JOIN webhook_deliveries d ON d.event_id = done.event_id
		WHERE webhook_streams.subject_id = done.subject_id AND webhook_streams.endpoint_id = done.endpoint_id
			AND webhook_streams.lease_token = done.token AND webhook_streams.lease_until IS NOT NULL AND webhook_streams.acked_seq + 1 = d.seq
		RETURNING webhook_streams.subject_id, webhook_streams.endpoint_id`, append(args, micros(now))...).Scan(&moved).Error
	if err != nil {
		return nil, nil, explain(err, "give %d webhook streams back", len(outcomes))
	}
	kept := make(map[Lease]bool, len(moved))
	for _, stream := range moved {
		kept[stream] = true
	}
	for _, o := range outcomes {
		if kept[Lease{SubjectID: o.SubjectID, EndpointID: o.EndpointID}] {
			ours = append(ours, o)
			endpoints = append(endpoints, o.EndpointID)
		}
	}
	return ours, slices.Compact(endpoints), nil // they are sorted
}

func (s *Store) markDelivered(ctx context.Context, outcomes []Outcome, now time.Time) error {
	args := make([]any, 0, 2*len(outcomes)+1)
	for i := range outcomes {
		args = append(args, outcomes[i].EventID, outcomes[i].Attempt.Status)
	}
	err := s.write(ctx).Exec("WITH done(event_id, status) AS (VALUES "+tuples(len(outcomes), "(?, CAST(? AS INTEGER))")+`)
		UPDATE webhook_deliveries SET state = '`+DeliveryDelivered+`', attempts = attempts + 1, last_status = done.status,
			delivered_at = CAST(? AS BIGINT)
		FROM done WHERE webhook_deliveries.event_id = done.event_id`, append(args, micros(now))...).Error
	return explain(err, "update %d deliveries", len(outcomes))
}

func (s *Store) finish(ctx context.Context, outcome *Outcome, now time.Time) error {
	ours, err := s.giveBack(ctx, outcome, now)
	if err != nil || !ours {
		return err
	}
	return s.judge(ctx, outcome, now)
}

// clip cuts text that came from outside to what is kept, and to what both databases take: UTF-8 without NUL.
func clip(text string) string {
	text = strings.ReplaceAll(text[:min(len(text), responseLimit)], "\x00", "")
	return strings.ToValidUTF8(text, "")
}

// giveBack moves delivery and stream on, if the lease is still the worker's.
func (s *Store) giveBack(ctx context.Context, outcome *Outcome, now time.Time) (bool, error) {
	const fence = ` WHERE subject_id = ? AND endpoint_id = ? AND lease_token = ? AND lease_until IS NOT NULL
		AND acked_seq + 1 = (SELECT d.seq FROM webhook_deliveries d WHERE d.event_id = ?)`
	key := []any{outcome.SubjectID, outcome.EndpointID, outcome.LeaseToken, outcome.EventID}
	state := outcome.Result
	var update string
	var args []any
	switch outcome.Result {
	case ResultRetry:
		state = DeliveryPending
		update = `UPDATE webhook_streams SET due_at = ?, attempts = attempts + CASE WHEN pulled_from > ? THEN 0 ELSE 1 END, pulled_from = NULL,
			lease_until = NULL, lease_owner = ''`
		args = []any{micros(outcome.RetryAt), micros(now)}
	case ResultDelivered, ResultDead, ResultSkipped:
		// last_seq and acked_seq are columns of one row, so that an event appended meanwhile is seen here or sees this.
		update = `UPDATE webhook_streams SET due_at = CASE WHEN last_seq > acked_seq + 1 THEN CAST(? AS BIGINT) ELSE NULL END,
			acked_seq = acked_seq + 1, attempts = 0, pulled_from = NULL, lease_until = NULL, lease_owner = ''`
		args = []any{micros(now)}
	case ResultReleased:
		update = "UPDATE webhook_streams SET due_at = ?, lease_until = NULL, lease_owner = ''"
		args = []any{micros(now)}
	default:
		return false, fmt.Errorf("unknown result %q", outcome.Result)
	}
	result := s.write(ctx).Exec(update+fence, append(args, key...)...)
	if result.Error != nil {
		return false, explain(result.Error, "give webhook stream back")
	}
	if result.RowsAffected == 0 {
		return false, nil
	}
	s.tx.due = true
	if outcome.Result == ResultReleased {
		return false, nil
	}
	var deliveredAt, givenUpAt any
	switch outcome.Result {
	case ResultDelivered:
		deliveredAt = micros(now)
	case ResultDead, ResultSkipped:
		givenUpAt = micros(now)
	}
	tried := 1
	if outcome.Result == ResultSkipped {
		tried = 0
	}
	err := s.write(ctx).Exec(`UPDATE webhook_deliveries SET state = ?, attempts = attempts + ?, last_status = ?,
		delivered_at = COALESCE(CAST(? AS BIGINT), delivered_at), given_up_at = CAST(? AS BIGINT) WHERE event_id = ?`,
		state, tried, outcome.Attempt.Status, deliveredAt, givenUpAt, outcome.EventID).Error
	return true, explain(err, "update delivery")
}

// judge counts the result for or against the endpoint.
func (s *Store) judge(ctx context.Context, outcome *Outcome, now time.Time) error {
	switch outcome.Result {
	case ResultDelivered:
		return s.succeeded(ctx, []string{outcome.EndpointID}, now)
	case ResultRetry, ResultDead:
		err := s.write(ctx).Exec(`UPDATE webhook_endpoints SET consecutive_failures = consecutive_failures + 1,
			failing_since = COALESCE(failing_since, ?) WHERE application_id = ?`, micros(now), outcome.EndpointID).Error
		if err != nil {
			return explain(err, "count failure of webhook endpoint %q", outcome.EndpointID)
		}
	}
	if outcome.DisableReason == "" {
		return nil
	}
	err := s.write(ctx).Exec(`UPDATE webhook_endpoints SET disabled_at = ?, disabled_reason = ? WHERE application_id = ? AND disabled_at IS NULL`,
		micros(now), outcome.DisableReason, outcome.EndpointID).Error
	return explain(err, "disable webhook endpoint %q", outcome.EndpointID)
}

// succeeded forgets the failures of endpoints. Most successes find nothing to reset and lock no row.
func (s *Store) succeeded(ctx context.Context, endpointIDs []string, now time.Time) error {
	var failing []Endpoint
	err := s.write(ctx).Raw("SELECT * FROM webhook_endpoints WHERE application_id IN ? AND consecutive_failures > 0 ORDER BY application_id",
		endpointIDs).Scan(&failing).Error
	if err != nil {
		return explain(err, "read webhook endpoints")
	}
	for i := range failing {
		id := failing[i].ApplicationID
		err := s.write(ctx).Exec("UPDATE webhook_endpoints SET consecutive_failures = 0, failing_since = NULL WHERE application_id = ?", id).Error
		if err != nil {
			return explain(err, "clear failures of webhook endpoint %q", id)
		}
		if failing[i].ConsecutiveFailures < FailingThreshold {
			continue
		}
		if err := s.pullForward(ctx, id, failing[i].pullTo(now)); err != nil {
			return err
		}
	}
	return nil
}

// pullEvery is how far apart in time the streams of an endpoint are pulled forward: one that answers some requests and fails others
// must not be asked for all that waits again after each answer.
const pullEvery = 5 * time.Second

// pullTo is the moment to which an endpoint's streams are pulled forward that answers again.
func (e *Endpoint) pullTo(now time.Time) time.Time {
	switch {
	case e.PulledAt == nil:
		return now
	case e.PulledAt.After(now): // they are pulled to there already
		return *e.PulledAt
	default:
		return latest(now, e.PulledAt.Add(pullEvery))
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pullForward makes every stream of an endpoint that waits for its retry due at a moment. An attempt that was pulled forward and
// fails costs nothing: the stream is due again when it would have been.
func (s *Store) pullForward(ctx context.Context, endpointID string, to time.Time) error {
	s.tx.due = true
	err := s.write(ctx).Exec(`UPDATE webhook_streams SET pulled_from = COALESCE(pulled_from, due_at), due_at = ?
		WHERE endpoint_id = ? AND due_at > ? AND lease_until IS NULL`, micros(to), endpointID, micros(to)).Error
	if err == nil {
		err = s.write(ctx).Exec("UPDATE webhook_endpoints SET pulled_at = ? WHERE application_id = ?", micros(to), endpointID).Error
	}
	return explain(err, "pull streams of webhook endpoint %q forward", endpointID)
}

// Attempts returns the requests made for an event, oldest first.
func (s *Store) Attempts(ctx context.Context, eventID string) ([]Attempt, error) {
	var rows []Attempt
	err := s.read(ctx).Where("event_id = ?", eventID).Order("started_at, id").Find(&rows).Error
	return rows, explain(err, "read attempts of event %q", eventID)
}
