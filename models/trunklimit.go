package models

import "context"

// TakeTrunks makes the transaction, which inserts a call or a leg on each of the trunks, fail with a *LimitError that is ErrTrunkFull where one
// would then have more calls than it may. A trunk counts as often as it is named. The check comes right before the commit, when the limits are read anew and the calls
// that others have begun on the trunk are counted, whichever process they are at: so they hold exactly. Trunks without a limit need not be
// named: one that has one costs all its calls a lock. A transaction that reaches no database checks nothing.
func (s *Store) TakeTrunks(ctx context.Context, trunkIDs ...string) {
	for _, id := range trunkIDs {
		s.TakeTrunk(ctx, id, Beginning{Lives: 1, Starts: 1})
	}
}

// TakeTrunk is TakeTrunks for what a transaction begins on one trunk.
func (s *Store) TakeTrunk(ctx context.Context, trunkID string, b Beginning) {
	if all := s.begin(ctx); all != nil {
		all.trunks[trunkID] = all.trunks[trunkID].plus(b)
	}
}

var trunkCeiling = ceiling{
	what: SubjectTrunk, table: trunkTable, column: "trunk_id", usage: "trunk_usage", starts: "trunk_starts",
	live: `SELECT (SELECT COUNT(*) FROM calls WHERE trunk_id = ? AND status IN ` + liveStatuses + `)
		+ (SELECT COUNT(*) FROM legs WHERE trunk_id = ? AND status <> 'ended')`,
}
