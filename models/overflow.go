package models

import (
	"context"
	"time"
)

// waitingCalls are the calls that wait for room under the limits. The partial indexes serve only a condition that is theirs word for word.
const waitingCalls = "status = 'queued' AND queue_until IS NOT NULL"

// WaitingCall is the call of an application that has waited longest for room under the limits.
type WaitingCall struct {
	ID, CustomerID, ApplicationID string
	// Room says that neither the customer nor the application had all the calls at a time that it may have.
	Room bool
}

// WaitingCalls returns of each application the call that has waited longest for room under the limits, in the order in which they were queued. What it
// costs grows with the applications that have one, and not with the calls.
func (s *Store) WaitingCalls(ctx context.Context) ([]WaitingCall, error) {
	var rows []WaitingCall
	err := s.read(ctx).Raw(`WITH RECURSIVE apps (id) AS (
			SELECT MIN(application_id) FROM calls WHERE ` + waitingCalls + `
			UNION ALL
			SELECT (SELECT MIN(application_id) FROM calls WHERE ` + waitingCalls + ` AND application_id > apps.id) FROM apps WHERE apps.id IS NOT NULL
		), heads (id) AS (
			SELECT (SELECT id FROM calls WHERE ` + waitingCalls + ` AND application_id = apps.id ORDER BY created_at, id LIMIT 1) FROM apps WHERE apps.id IS NOT NULL
		)
		SELECT c.id, c.customer_id, c.application_id,
			(u.max_calls = 0 OR u.max_calls > (SELECT COUNT(*) FROM calls l WHERE l.customer_id = u.id AND l.status IN ` + liveStatuses + ` AND l.status <> 'queued')
				+ (SELECT COUNT(*) FROM legs g WHERE g.customer_id = u.id AND g.status <> 'ended'))
			AND (a.max_calls = 0 OR a.max_calls > (SELECT COUNT(*) FROM calls l WHERE l.application_id = a.id AND l.status IN ` + liveStatuses + ` AND l.status <> 'queued'))
			AS room
		FROM heads JOIN calls c ON c.id = heads.id JOIN customers u ON u.id = c.customer_id JOIN applications a ON a.id = c.application_id
		ORDER BY c.created_at, c.id`).Scan(&rows).Error
	return rows, explain(err, "look for calls that wait for room")
}

// CallsWait says whether a call of a customer waits for room under the limits.
func (s *Store) CallsWait(ctx context.Context, customerID string) (wait bool, err error) {
	err = s.read(ctx).Raw(`SELECT EXISTS (SELECT 1 FROM calls WHERE `+waitingCalls+`
		AND application_id IN (SELECT id FROM applications WHERE customer_id = ?))`, customerID).Row().Scan(&wait)
	return wait, explain(err, "look for calls of customer %q that wait for room", customerID)
}

// WaitedOut returns at most limit calls that have waited for room until their time was over.
func (s *Store) WaitedOut(ctx context.Context, now time.Time, limit int) ([]WaitingCall, error) {
	var rows []WaitingCall
	err := s.read(ctx).Raw("SELECT id, customer_id, application_id FROM calls WHERE "+waitingCalls+" AND queue_until <= ? ORDER BY queue_until LIMIT ?", micros(now), limit).
		Scan(&rows).Error
	return rows, explain(err, "look for calls that have waited for too long")
}
