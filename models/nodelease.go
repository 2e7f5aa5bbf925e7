package models

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// leaseNow is the time that leases of nodes count by: the database's, which all controllers have in common, whatever their own
// clocks say. A SQLite database and its controllers are on one machine; a store with a clock of its own has no other.
func (s *Store) leaseNow(ctx context.Context) (int64, error) {
	if s.dialect != DialectPostgres || s.ownClock {
		return micros(s.Now()), nil
	}
	var now int64
	err := s.read(ctx).Raw("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)").Row().Scan(&now)
	return now, explain(err, "read the database's clock")
}

// AcquireNode takes the lease of a node for ttl, where nobody holds it, the holder's time is up, or owner holds it already.
// The token is greater than that of any holder before, and than floor. It becomes the fence of the node's live calls in the
// same transaction: from its commit on, nothing that an earlier holder writes about them is taken, see Call.Fence.
func (s *Store) AcquireNode(ctx context.Context, nodeID, owner string, ttl time.Duration, floor int64) (token int64, ok bool, err error) {
	err = s.aside(ctx, func(tx *Store) (err error) {
		token, err = tx.acquireNode(ctx, nodeID, owner, ttl, floor)
		return err
	})
	if errors.Is(err, errHeld) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return token, true, nil
}

// errHeld: somebody has the lease.
var errHeld = errors.New("the node is held")

// acquireNode locks the calls before the node: that is the order of whoever changes a call and then writes what refers to its node.
func (s *Store) acquireNode(ctx context.Context, nodeID, owner string, ttl time.Duration, floor int64) (int64, error) {
	now, err := s.leaseNow(ctx)
	if err != nil {
		return 0, err
	}
	const free = "id = ? AND (lease_until IS NULL OR lease_until <= ? OR lease_owner = ?)"
	var before []int64
	if err := s.read(ctx).Raw("SELECT lease_token FROM nodes WHERE "+free, nodeID, now, owner).Scan(&before).Error; err != nil {
		return 0, explain(err, "look at the lease of node %q", nodeID)
	}
	if len(before) == 0 {
		return 0, errHeld
	}
	token := max(before[0], floor) + 1
	fence := func() error {
		result := s.write(ctx).Exec("UPDATE calls SET fence = ? WHERE node_id = ? AND fence <> ? AND status IN "+liveStatuses, token, nodeID, token)
		return explain(result.Error, "fence the calls of node %q", nodeID)
	}
	if err := fence(); err != nil {
		return 0, err
	}
	if s.dialect == DialectPostgres {
		// A change of the lease alone would not wait for the calls that are being inserted under the last one, see holdFence.
		if err := s.write(ctx).Exec("SELECT 1 FROM nodes WHERE id = ? FOR UPDATE", nodeID).Error; err != nil {
			return 0, explain(err, "lock node %q", nodeID)
		}
	}
	if now, err = s.leaseNow(ctx); err != nil {
		return 0, err
	}
	result := s.write(ctx).Exec("UPDATE nodes SET lease_owner = ?, lease_token = ?, lease_until = ?, connected_until = NULL WHERE lease_token = ? AND "+free,
		owner, token, now+ttl.Microseconds(), before[0], nodeID, now, owner)
	if result.Error != nil {
		return 0, explain(result.Error, "acquire node %q", nodeID)
	}
	if result.RowsAffected == 0 {
		return 0, errHeld // another was faster
	}
	return token, fence() // also the calls that came in between
}

// RenewNode keeps a lease for another ttl and tells whether the node is connected, for ConnectedNodes; ErrStale where the lease
// is no longer the owner's. One that has run out and that nobody took is the owner's still.
func (s *Store) RenewNode(ctx context.Context, nodeID, owner string, token int64, ttl time.Duration, connected bool) error {
	return s.aside(ctx, func(tx *Store) error {
		now, err := tx.leaseNow(ctx)
		if err != nil {
			return err
		}
		until := now + ttl.Microseconds()
		var present, seen *int64
		if connected {
			present, seen = &until, &now
		}
		return tx.changeLease(ctx, nodeID, owner, token,
			"UPDATE nodes SET lease_until = ?, connected_until = ?, seen_at = COALESCE(CAST(? AS BIGINT), seen_at)", until, present, seen)
	})
}

// ReleaseNode gives a lease back; ErrStale where it is no longer the owner's.
func (s *Store) ReleaseNode(ctx context.Context, nodeID, owner string, token int64) error {
	return s.aside(ctx, func(tx *Store) error {
		return tx.changeLease(ctx, nodeID, owner, token, "UPDATE nodes SET lease_owner = '', lease_until = NULL, connected_until = NULL")
	})
}

func (s *Store) changeLease(ctx context.Context, nodeID, owner string, token int64, update string, args ...any) error {
	result := s.write(ctx).Exec(update+" WHERE id = ? AND lease_owner = ? AND lease_token = ?", append(args, nodeID, owner, token)...)
	if result.Error == nil && result.RowsAffected == 0 {
		return fmt.Errorf("lease of node %q: %w", nodeID, ErrStale)
	}
	return explain(result.Error, "lease of node %q", nodeID)
}

// FreeNodes returns the ids of the active nodes whose lease owner can take: nobody holds them, the holder's time is up, or it is
// owner's already.
func (s *Store) FreeNodes(ctx context.Context, owner string) (ids []string, err error) {
	ask := func(tx *Store) error {
		ids = nil
		now, err := tx.leaseNow(ctx)
		if err != nil {
			return err
		}
		err = tx.read(ctx).Raw("SELECT id FROM nodes WHERE is_active AND (lease_until IS NULL OR lease_until <= ? OR lease_owner = ?)", now, owner).Scan(&ids).Error
		return explain(err, "look for free nodes")
	}
	if s.apart == nil {
		err = ask(s)
	} else {
		err = s.aside(ctx, ask)
	}
	return ids, err
}

// holdFence checks that a call's fence is the token of its node's lease, and keeps it so until the transaction ends. A call
// without a fence passes, and so does one without a node. A call that is to be dialled from a node that is being emptied is ErrNodeDraining.
func (s *Store) holdFence(ctx context.Context, call *Call) error {
	dials := call.Direction == Outbound && call.Status == CallDialing
	if call.NodeID == nil || call.Fence == 0 && !dials {
		return nil
	}
	query := "SELECT lease_token, draining_at IS NOT NULL AS draining FROM nodes WHERE id = ?"
	if s.dialect == DialectPostgres {
		// Enough to make a new holder wait, see AcquireNode, and whoever drains the node. FOR SHARE would make the renewals of the lease wait too,
		// behind an unending stream of calls: PostgreSQL lets sharers in past whoever waits to change the row.
		query += " FOR KEY SHARE"
	}
	var rows []struct {
		LeaseToken int64
		Draining   bool
	}
	if err := s.write(ctx).Raw(query, *call.NodeID).Scan(&rows).Error; err != nil {
		return explain(err, "look at the lease of node %q", *call.NodeID)
	}
	switch {
	case call.Fence != 0 && (len(rows) == 0 || rows[0].LeaseToken != call.Fence):
		return fmt.Errorf("fence of node %q: %w", *call.NodeID, ErrStale)
	case dials && len(rows) > 0 && rows[0].Draining:
		return fmt.Errorf("call from node %q: %w", *call.NodeID, ErrNodeDraining)
	}
	return nil
}
