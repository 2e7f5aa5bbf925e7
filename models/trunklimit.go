package models

import (
	"context"
	"errors"
	"fmt"
)

// TrunkLimits bound the calls of a trunk, to and from its carrier; 0 is no bound.
type TrunkLimits struct {
	// MaxCalls is how many calls and dialled parties may be on the trunk at a time, whichever controllers they are at.
	MaxCalls int
	// MaxCallsPerSecond is how many may begin in any one second.
	MaxCallsPerSecond int
}

// Limited says whether there is a bound.
func (l TrunkLimits) Limited() bool { return l.MaxCalls > 0 || l.MaxCallsPerSecond > 0 }

// ErrTrunkFull is what errors.Is finds in every *TrunkFullError.
var ErrTrunkFull = errors.New("the trunk takes no more calls now")

// TrunkFullError refuses calls on a trunk that has as many as it may. Limit is max_calls or max_calls_per_second; Room is how many of those that
// the transaction begins on the trunk could be.
type TrunkFullError struct {
	TrunkID string
	Limit   string
	Room    int
}

// Error says which trunk is full, and by which limit.
func (e *TrunkFullError) Error() string {
	return fmt.Sprintf("trunk %q is at its %s", e.TrunkID, e.Limit)
}

// Is reports ErrTrunkFull.
func (e *TrunkFullError) Is(target error) bool { return target == ErrTrunkFull }

// TakeTrunks makes the transaction, which inserts a call or a leg on each of the trunks, fail with a *TrunkFullError where one would then have more
// calls than it may. A trunk counts as often as it is named. The check comes right before the commit, when the limits are read anew and the calls
// that others have begun on the trunk are counted, whichever process they are at: so they hold exactly. Trunks without a limit need not be
// named: one that has one costs all its calls a lock. A transaction that reaches no database checks nothing.
func (s *Store) TakeTrunks(ctx context.Context, trunkIDs ...string) {
	if len(trunkIDs) == 0 {
		return
	}
	if all := s.begin(ctx); all != nil {
		for _, id := range trunkIDs {
			all.trunks[id]++
		}
	}
}

var trunkCeiling = ceiling{
	what: "trunk", table: "trunks", column: "trunk_id", usage: "trunk_usage", starts: "trunk_starts",
	live: `SELECT (SELECT COUNT(*) FROM calls WHERE trunk_id = ? AND status IN ` + liveStatuses + `)
		+ (SELECT COUNT(*) FROM legs WHERE trunk_id = ? AND status <> 'ended')`,
}

func (s *Store) beginOnTrunk(ctx context.Context, id string, starts int) error {
	full, err := s.take(ctx, &trunkCeiling, id, Beginning{starts, starts})
	if full != nil {
		return &TrunkFullError{TrunkID: id, Limit: full.name, Room: full.room}
	}
	return err
}
