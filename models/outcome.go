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
	CallID     string
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
// success of a failing endpoint makes all its waiting streams due.
func (s *Store) FinishDeliveries(ctx context.Context, outcomes []Outcome) error {
	// One order of locks for all, so that two workers' batches do not wait for each other in a circle.
	outcomes = slices.Clone(outcomes)
	slices.SortFunc(outcomes, func(a, b Outcome) int {
		return strings.Compare(a.EndpointID+" "+a.CallID, b.EndpointID+" "+b.CallID)
	})
	return s.InTx(ctx, func(tx *Store) error {
		for i := range outcomes {
			if err := tx.finish(ctx, &outcomes[i]); err != nil {
				return fmt.Errorf("finish delivery of event %q: %w", outcomes[i].EventID, err)
			}
		}
		return nil
	})
}

func (s *Store) finish(ctx context.Context, outcome *Outcome) error {
	now := s.Now()
	if outcome.Result != ResultSkipped && outcome.Result != ResultReleased {
		attempt := outcome.Attempt
		attempt.ID, attempt.EventID = NewID(PrefixAttempt), outcome.EventID
		attempt.Response = clip(attempt.Response)
		attempt.Error = clip(attempt.Error)
		if attempt.StartedAt.IsZero() {
			attempt.StartedAt = now
		}
		if err := s.write(ctx).Create(&attempt).Error; err != nil {
			return explain(err, "record attempt")
		}
	}
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
	const fence = ` WHERE call_id = ? AND endpoint_id = ? AND lease_token = ? AND lease_until IS NOT NULL
		AND acked_seq + 1 = (SELECT d.seq FROM webhook_deliveries d WHERE d.event_id = ?)`
	key := []any{outcome.CallID, outcome.EndpointID, outcome.LeaseToken, outcome.EventID}
	state := outcome.Result
	var update string
	var args []any
	switch outcome.Result {
	case ResultRetry:
		state = DeliveryPending
		update = "UPDATE webhook_streams SET due_at = ?, attempts = attempts + 1, lease_until = NULL, lease_owner = ''"
		args = []any{micros(outcome.RetryAt)}
	case ResultDelivered, ResultDead, ResultSkipped:
		// last_seq and acked_seq are columns of one row, so that an event appended meanwhile is seen here or sees this.
		update = `UPDATE webhook_streams SET due_at = CASE WHEN last_seq > acked_seq + 1 THEN CAST(? AS BIGINT) ELSE NULL END,
			acked_seq = acked_seq + 1, attempts = 0, lease_until = NULL, lease_owner = ''`
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
	var deliveredAt any
	if outcome.Result == ResultDelivered {
		deliveredAt = micros(now)
	}
	tried := 1
	if outcome.Result == ResultSkipped {
		tried = 0
	}
	err := s.write(ctx).Exec(`UPDATE webhook_deliveries SET state = ?, attempts = attempts + ?, last_status = ?,
		delivered_at = CAST(? AS BIGINT) WHERE event_id = ?`, state, tried, outcome.Attempt.Status, deliveredAt, outcome.EventID).Error
	return true, explain(err, "update delivery")
}

// judge counts the result for or against the endpoint.
func (s *Store) judge(ctx context.Context, outcome *Outcome, now time.Time) error {
	switch outcome.Result {
	case ResultDelivered:
		var failures []int
		// Most successes find nothing to reset and lock no row.
		err := s.write(ctx).Raw("SELECT consecutive_failures FROM webhook_endpoints WHERE application_id = ? AND consecutive_failures > 0",
			outcome.EndpointID).Scan(&failures).Error
		if err != nil || len(failures) == 0 {
			return explain(err, "read webhook endpoint %q", outcome.EndpointID)
		}
		err = s.write(ctx).Exec("UPDATE webhook_endpoints SET consecutive_failures = 0, failing_since = NULL WHERE application_id = ?",
			outcome.EndpointID).Error
		if err != nil {
			return explain(err, "clear failures of webhook endpoint %q", outcome.EndpointID)
		}
		if failures[0] < FailingThreshold {
			return nil
		}
		return s.pullForward(ctx, outcome.EndpointID, now)
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

// pullForward makes every stream of an endpoint that waits for its retry due now.
func (s *Store) pullForward(ctx context.Context, endpointID string, now time.Time) error {
	s.tx.due = true
	err := s.write(ctx).Exec("UPDATE webhook_streams SET due_at = ? WHERE endpoint_id = ? AND due_at > ? AND lease_until IS NULL",
		micros(now), endpointID, micros(now)).Error
	return explain(err, "pull streams of webhook endpoint %q forward", endpointID)
}

// Attempts returns the requests made for an event, oldest first.
func (s *Store) Attempts(ctx context.Context, eventID string) ([]Attempt, error) {
	var rows []Attempt
	err := s.read(ctx).Where("event_id = ?", eventID).Order("started_at, id").Find(&rows).Error
	return rows, explain(err, "read attempts of event %q", eventID)
}

// Deliveries returns what became of the events of a call, in their order.
func (s *Store) Deliveries(ctx context.Context, callID string) ([]Delivery, error) {
	var rows []Delivery
	err := s.read(ctx).Where("call_id = ?", callID).Order("seq").Find(&rows).Error
	return rows, explain(err, "read deliveries of call %q", callID)
}
