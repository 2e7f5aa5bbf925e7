package models

import (
	"context"
	"slices"
	"strings"
	"time"
)

// rowsLimit is how many rows one statement writes at most. SQLite takes 32,766 values in one, but its driver looks for each value among all of the
// statement (github.com/glebarez/go-sqlite, conn.bind), so its time grows with their square.
const rowsLimit = 200

// Lease names a claim of a stream: Token is void once another worker has claimed it.
type Lease struct {
	SubjectID, EndpointID string
	Token                 int64
}

// Lease returns the stream's lease as it was claimed.
func (s *Stream) Lease() Lease {
	return Lease{SubjectID: s.SubjectID, EndpointID: s.EndpointID, Token: s.LeaseToken}
}

// ExtendLeases makes leases last for length from now, in one statement, and returns which of them it extended and which are
// lost: given back, or another worker's by now. A lease that ran out and was not taken is extended. One that is in neither
// list is still held, but its row was locked in this moment: it lasts as long as before.
func (s *Store) ExtendLeases(ctx context.Context, leases []Lease, length time.Duration) (extended, lost []Lease, err error) {
	if len(leases) == 0 {
		return nil, nil, nil
	}
	err = s.InTx(ctx, func(tx *Store) error {
		extended, lost = nil, nil
		for some := range slices.Chunk(leases, rowsLimit) {
			held, err := tx.extend(ctx, some, length)
			if err != nil {
				return err
			}
			extended = append(extended, held...)
			if len(held) == len(some) {
				continue
			}
			gone, err := tx.lost(ctx, some)
			if err != nil {
				return err
			}
			lost = append(lost, gone...)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return extended, lost, nil
}

// mine is the beginning of a statement that has the leases as a table.
func mine(leases []Lease) (string, []any) {
	args := make([]any, 0, 3*len(leases))
	for _, l := range leases {
		args = append(args, l.SubjectID, l.EndpointID, l.Token)
	}
	return "WITH mine(subject_id, endpoint_id, token) AS (VALUES " + tuples(len(leases), "(?, ?, CAST(? AS BIGINT))") + ")", args
}

// tuples repeats the placeholders of a row.
func tuples(n int, row string) string {
	return strings.TrimSuffix(strings.Repeat(row+", ", n), ", ")
}

func (s *Store) extend(ctx context.Context, leases []Lease, length time.Duration) ([]Lease, error) {
	// A row that a result or a new event has in hand must not hold up the others, nor get us into a deadlock: whoever has it
	// is soon done, and the lease lasts for two more turns.
	var lock string
	if s.dialect == DialectPostgres {
		lock = " FOR UPDATE OF s SKIP LOCKED"
	}
	with, args := mine(leases)
	until := micros(s.Now().Add(length))
	var held []Lease
	err := s.write(ctx).Raw(with+`, held AS (
			SELECT s.subject_id, s.endpoint_id FROM mine JOIN webhook_streams s ON s.subject_id = mine.subject_id AND s.endpoint_id = mine.endpoint_id
			WHERE s.lease_token = mine.token AND s.lease_until IS NOT NULL`+lock+`
		)
		UPDATE webhook_streams SET due_at = ?, lease_until = ? FROM held
		WHERE webhook_streams.subject_id = held.subject_id AND webhook_streams.endpoint_id = held.endpoint_id
		RETURNING webhook_streams.subject_id, webhook_streams.endpoint_id, webhook_streams.lease_token AS token`, append(args, until, until)...).Scan(&held).Error
	return held, explain(err, "extend leases of webhook streams")
}

// lost returns the leases that are not held any more.
func (s *Store) lost(ctx context.Context, leases []Lease) ([]Lease, error) {
	with, args := mine(leases)
	var gone []Lease
	err := s.write(ctx).Raw(with+` SELECT subject_id, endpoint_id, token FROM mine WHERE NOT EXISTS (SELECT 1 FROM webhook_streams s
		WHERE s.subject_id = mine.subject_id AND s.endpoint_id = mine.endpoint_id AND s.lease_token = mine.token AND s.lease_until IS NOT NULL)`,
		args...).Scan(&gone).Error
	return gone, explain(err, "look for lost leases of webhook streams")
}
