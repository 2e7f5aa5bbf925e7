package models

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Retention says how long what grows is kept; 0 keeps it for ever. The ledger, calls and recordings are always kept.
type Retention struct {
	// Events are kept since they happened: at least until their call has ended that long ago, and as long as their delivery is.
	Events time.Duration
	// Deliveries are kept, with their attempts, since they were taken or given up; what is still to be delivered always is.
	Deliveries time.Duration
	// Attempts are kept since they were made.
	Attempts time.Duration
	// Calls is for how long after their end calls keep their legs, their stays in queues and conferences, what they asked their
	// application, and their place in their actions.
	Calls time.Duration
	// CDRs are kept since they arrived, at least until they were held against what was billed.
	CDRs time.Duration
	// Strangers are kept since they were last seen, and blocks since they ended, at least for RelapseMemory.
	Strangers time.Duration
}

// Pruned counts what Prune has deleted; Calls are those whose legs, stays, questions and place are gone, Days what was
// counted on days, each once for a customer, an application or a trunk.
type Pruned struct {
	Events, Deliveries, Attempts, Streams, Calls, Conferences, CDRs, TrunkChanges, Strangers, Blocks, Days int64
}

// pruneBatch is how many rows one transaction of Prune deletes of a table, or looks at: few enough that nobody waits for it.
const pruneBatch = 500

// TakeRetention reports whether it is this process' turn to prune: once in every period among all that share the database.
func (s *Store) TakeRetention(ctx context.Context, every time.Duration) (turn bool, err error) {
	err = s.InTx(ctx, func(tx *Store) error {
		now := tx.Now()
		result := tx.write(ctx).Exec("UPDATE locks SET taken = ? WHERE name = 'retention' AND taken <= ?", micros(now), micros(now.Add(-every)))
		turn = result.RowsAffected == 1
		return explain(result.Error, "take the turn of retention")
	})
	return turn, err
}

// Prune deletes what is older than it is to be kept, in small transactions. Between them it calls rest, with the time that the
// last one took, and ends early with its error. What was deleted is counted also when there is an error.
func (s *Store) Prune(ctx context.Context, keep Retention, rest func(took time.Duration) error) (Pruned, error) {
	p := &pruning{store: s, keep: keep, now: s.Now(), rest: rest}
	for _, step := range []func(context.Context) error{p.attempts, p.journals, p.calls, p.conferences, p.cdrs, p.trunkChanges, p.strangers, p.blocks, p.dailyUsage} {
		if err := step(ctx); err != nil {
			return p.gone, fmt.Errorf("prune: %w", err)
		}
	}
	return p.gone, nil
}

// pruning is one run of Prune.
type pruning struct {
	store *Store
	keep  Retention
	now   time.Time
	rest  func(took time.Duration) error
	gone  Pruned
}

// until is the moment before which something goes that is kept for that long.
func (p *pruning) until(keep time.Duration) int64 { return micros(p.now.Add(-keep)) }

// batch runs one transaction, which may run fn again, then counts what it did, and rests.
func (p *pruning) batch(ctx context.Context, fn func(tx *Store) error, count func()) error {
	begun := time.Now()
	if err := p.store.InTx(ctx, fn); err != nil {
		return err
	}
	count()
	return p.rest(time.Since(begun))
}

// drain repeats a statement that deletes at most pruneBatch rows until there are fewer.
func (p *pruning) drain(ctx context.Context, keep time.Duration, count *int64, statement string) error {
	if keep == 0 {
		return nil
	}
	for deleted := int64(pruneBatch); deleted == pruneBatch; {
		err := p.batch(ctx, func(tx *Store) error {
			result := tx.write(ctx).Exec(statement, p.until(keep), pruneBatch)
			deleted = result.RowsAffected
			return result.Error
		}, func() { *count += deleted })
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *pruning) attempts(ctx context.Context) error {
	err := p.drain(ctx, p.keep.Attempts, &p.gone.Attempts,
		"DELETE FROM webhook_attempts WHERE id IN (SELECT id FROM webhook_attempts WHERE started_at < ? ORDER BY started_at LIMIT ?)")
	return explain(err, "delete attempts")
}

func (p *pruning) cdrs(ctx context.Context) error {
	err := p.drain(ctx, p.keep.CDRs, &p.gone.CDRs, `DELETE FROM cdrs WHERE (node_id, channel_id) IN (
		SELECT node_id, channel_id FROM cdrs WHERE received_at < ? AND checked_at IS NOT NULL ORDER BY received_at LIMIT ?)`)
	return explain(err, "delete CDRs")
}

func (p *pruning) trunkChanges(ctx context.Context) error {
	err := p.drain(ctx, TrunkChangesKept, &p.gone.TrunkChanges,
		"DELETE FROM trunk_changes WHERE id IN (SELECT id FROM trunk_changes WHERE created_at < ? ORDER BY created_at LIMIT ?)")
	return explain(err, "delete changes of trunks")
}

func (p *pruning) strangers(ctx context.Context) error {
	err := p.drain(ctx, p.keep.Strangers, &p.gone.Strangers, `DELETE FROM strangers WHERE (source, node_id) IN (
		SELECT source, node_id FROM strangers WHERE last_seen_at < ? ORDER BY last_seen_at LIMIT ?)`)
	return explain(err, "delete strangers")
}

// blocks also goes through those that have expired without anybody noting it.
func (p *pruning) blocks(ctx context.Context) error {
	if p.keep.Strangers == 0 {
		return nil
	}
	err := p.drain(ctx, max(p.keep.Strangers, RelapseMemory), &p.gone.Blocks,
		"DELETE FROM blocks WHERE id IN (SELECT id FROM blocks WHERE COALESCE(ended_at, expires_at) < ? ORDER BY created_at LIMIT ?)")
	return explain(err, "delete blocks")
}

func (p *pruning) conferences(ctx context.Context) error {
	err := p.drain(ctx, p.keep.Calls, &p.gone.Conferences, `DELETE FROM conferences WHERE id IN (
		SELECT c.id FROM conferences c WHERE c.ended_at < ? AND NOT EXISTS (SELECT 1 FROM conference_members m WHERE m.conference_id = c.id)
		ORDER BY c.ended_at LIMIT ?)`)
	return explain(err, "delete conferences")
}

// calls empties calls that ended long ago.
func (p *pruning) calls(ctx context.Context) error {
	if p.keep.Calls == 0 {
		return nil
	}
	for emptied := pruneBatch; emptied == pruneBatch; {
		err := p.batch(ctx, func(tx *Store) error {
			var ids []string
			err := tx.write(ctx).Raw("SELECT id FROM calls WHERE pruned_at IS NULL AND ended_at < ? AND settled_at IS NOT NULL ORDER BY ended_at LIMIT ?",
				p.until(p.keep.Calls), pruneBatch).Scan(&ids).Error
			if emptied = len(ids); err != nil || emptied == 0 {
				return err
			}
			for _, statement := range []string{
				"DELETE FROM legs WHERE call_id IN ?", "DELETE FROM queue_entries WHERE call_id IN ?", "DELETE FROM conference_members WHERE call_id IN ?",
				"DELETE FROM answer_requests WHERE call_id IN ?",
			} {
				if err := tx.write(ctx).Exec(statement, ids).Error; err != nil {
					return err
				}
			}
			return tx.write(ctx).Exec("UPDATE calls SET cursor = '{}', pruned_at = ? WHERE id IN ?", micros(p.now), ids).Error
		}, func() { p.gone.Calls += int64(emptied) })
		if err != nil {
			return explain(err, "empty calls")
		}
	}
	return nil
}

// journals goes through the journal of each customer from its beginning up to where it is young. It does not look for what is old
// by an index of age alone: what must stay, such as all that waits for an endpoint that is disabled, would be looked at again in
// every batch.
func (p *pruning) journals(ctx context.Context) error {
	young := max(p.youngest(p.keep.Events), p.youngest(p.keep.Deliveries))
	if young == 0 {
		return nil
	}
	var customers []string
	if err := p.store.read(ctx).Raw("SELECT id FROM customers ORDER BY id").Scan(&customers).Error; err != nil {
		return explain(err, "list customers")
	}
	for _, customer := range customers {
		if err := p.journalOf(ctx, customer, young); err != nil {
			return explain(err, "delete events of customer %q", customer)
		}
	}
	return nil
}

func (p *pruning) youngest(keep time.Duration) int64 {
	if keep == 0 {
		return 0
	}
	return p.until(keep)
}

func (p *pruning) journalOf(ctx context.Context, customerID string, young int64) error {
	type event struct {
		ID                  string
		Position, CreatedAt int64
	}
	for after := int64(0); ; {
		var rows []event
		err := p.store.read(ctx).Raw("SELECT id, position, created_at FROM events WHERE customer_id = ? AND position > ? ORDER BY position LIMIT ?",
			customerID, after, pruneBatch).Scan(&rows).Error
		if err != nil || len(rows) == 0 {
			return err
		}
		after = rows[len(rows)-1].Position
		rows = slices.DeleteFunc(rows, func(e event) bool { return e.CreatedAt >= young })
		if len(rows) == 0 {
			return nil
		}
		ids := make([]string, len(rows))
		for i := range rows {
			ids[i] = rows[i].ID
		}
		var gone Pruned
		err = p.batch(ctx, func(tx *Store) (err error) {
			gone, err = p.events(ctx, tx, ids)
			return err
		}, func() {
			p.gone.Deliveries += gone.Deliveries
			p.gone.Attempts += gone.Attempts
			p.gone.Streams += gone.Streams
			p.gone.Events += gone.Events
		})
		if err != nil {
			return err
		}
	}
}

// events deletes those of the deliveries and events that are done and old enough, and streams that have nothing left.
func (p *pruning) events(ctx context.Context, tx *Store, ids []string) (gone Pruned, err error) {
	var streams []Lease
	if p.keep.Deliveries > 0 {
		if streams, err = p.deliveries(ctx, tx, ids, &gone); err != nil {
			return gone, err
		}
	}
	if p.keep.Events > 0 {
		old := p.until(p.keep.Events)
		var subjects []Lease
		err := tx.write(ctx).Raw(`DELETE FROM events WHERE id IN ? AND created_at < ?
			AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.event_id = events.id)
			AND (call_id IS NULL OR EXISTS (SELECT 1 FROM calls c WHERE c.id = events.call_id AND c.ended_at < ?))
			AND position < (SELECT MAX(position) FROM events)
			RETURNING subject_id, application_id AS endpoint_id`, ids, old, old).Scan(&subjects).Error
		if err != nil {
			return gone, err
		}
		gone.Events = int64(len(subjects))
		for _, subject := range subjects {
			streams = append(streams, subject, Lease{SubjectID: lanePrefix + subject.SubjectID, EndpointID: subject.EndpointID})
		}
	}
	return gone, p.streams(ctx, tx, streams, &gone)
}

// deliveries deletes deliveries with their attempts and returns the streams that they were of.
func (p *pruning) deliveries(ctx context.Context, tx *Store, ids []string, gone *Pruned) ([]Lease, error) {
	const done = "state <> '" + DeliveryPending + "' AND COALESCE(delivered_at, 0) < ? AND COALESCE(given_up_at, 0) < ?"
	old := p.until(p.keep.Deliveries)
	aged := func() *gorm.DB {
		return tx.write(ctx).Table("events").Select("id").Where("id IN ? AND created_at < ?", ids, old)
	}
	// First the deliveries, whose rows are locked by that: one that is delivered again in this moment is pending then, and stays.
	var locked []string
	err := tx.write(ctx).Table("webhook_deliveries").Select("event_id").Where("event_id IN (?) AND "+done, aged(), old, old).
		Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).Order("event_id").Scan(&locked).Error
	if err != nil || len(locked) == 0 {
		return nil, err
	}
	result := tx.write(ctx).Exec("DELETE FROM webhook_attempts WHERE event_id IN ?", locked)
	if result.Error != nil {
		return nil, result.Error
	}
	gone.Attempts = result.RowsAffected
	var streams []Lease
	err = tx.write(ctx).Raw("DELETE FROM webhook_deliveries WHERE event_id IN ? RETURNING subject_id, endpoint_id", locked).Scan(&streams).Error
	gone.Deliveries = int64(len(streams))
	return streams, err
}

// streams deletes streams that have come to an end: those of calls that ended long ago, and those of what was delivered again. A
// stream of a trunk or an application goes on some day, and numbers on.
func (p *pruning) streams(ctx context.Context, tx *Store, streams []Lease, gone *Pruned) error {
	if len(streams) == 0 {
		return nil
	}
	slices.SortFunc(streams, func(a, b Lease) int {
		return cmp.Or(strings.Compare(a.EndpointID, b.EndpointID), strings.Compare(a.SubjectID, b.SubjectID))
	})
	streams = slices.Compact(streams)
	args := make([]any, 0, 2*len(streams)+2)
	for _, stream := range streams {
		args = append(args, stream.SubjectID, stream.EndpointID)
	}
	result := tx.write(ctx).Exec("DELETE FROM webhook_streams WHERE (subject_id, endpoint_id) IN (VALUES "+tuples(len(streams), "(?, ?)")+`)
			AND due_at IS NULL
			AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.subject_id = webhook_streams.subject_id AND d.endpoint_id = webhook_streams.endpoint_id)
			AND (subject_id LIKE ? OR EXISTS (SELECT 1 FROM calls c WHERE c.id = webhook_streams.subject_id AND c.ended_at < ?))`,
		append(args, lanePrefix+"%", p.until(cmp.Or(p.keep.Deliveries, p.keep.Events)))...)
	gone.Streams = result.RowsAffected
	return result.Error
}
