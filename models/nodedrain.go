package models

import (
	"context"
	"fmt"
)

// Bounds of Node.Weight.
const (
	DefaultNodeWeight = 100
	MaxNodeWeight     = 10_000
)

// DrainNode has a node take no new calls from now on: when it returns, no call is stored to be dialled from it any more. by and reason say who
// wants that and why. A node that drains already goes on as it did. ErrNotFound where there is no such node.
func (s *Store) DrainNode(ctx context.Context, id, by, reason string) error {
	return s.InTx(ctx, func(tx *Store) error {
		if tx.dialect == DialectPostgres {
			// It waits for the calls that are being stored, see holdFence: the change alone would not.
			if err := tx.write(ctx).Exec("SELECT 1 FROM nodes WHERE id = ? FOR UPDATE", id).Error; err != nil {
				return explain(err, "lock node %q", id)
			}
		}
		now := micros(tx.Now())
		result := tx.write(ctx).Exec(`UPDATE nodes SET draining_at = COALESCE(draining_at, ?), updated_at = ?,
			drained_by = CASE WHEN draining_at IS NULL THEN CAST(? AS TEXT) ELSE drained_by END,
			drain_reason = CASE WHEN draining_at IS NULL THEN CAST(? AS TEXT) ELSE drain_reason END WHERE id = ?`, now, now, by, reason, id)
		return changedOne(result, "drain node %q", id)
	})
}

// ResumeNode has a node take calls again. One that does so already stays as it is. ErrNotFound where there is no such node.
func (s *Store) ResumeNode(ctx context.Context, id string) error {
	return s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec("UPDATE nodes SET draining_at = NULL, drained_by = '', drain_reason = '', updated_at = ? WHERE id = ?", micros(tx.Now()), id)
		return changedOne(result, "resume node %q", id)
	})
}

// SetNodeWeight sets a node's share of new outbound calls, from 0 to MaxNodeWeight. ErrNotFound where there is no such node.
func (s *Store) SetNodeWeight(ctx context.Context, id string, weight int) error {
	if weight < 0 || weight > MaxNodeWeight {
		return fmt.Errorf("weight of node %q is %d: it must be from 0 to %d", id, weight, MaxNodeWeight)
	}
	return s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec("UPDATE nodes SET weight = ?, updated_at = ? WHERE id = ?", weight, micros(tx.Now()), id)
		return changedOne(result, "weigh node %q", id)
	})
}
