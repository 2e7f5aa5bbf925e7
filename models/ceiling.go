package models

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// beginnings are the calls and legs that a transaction begins on what has limits. They are counted right before its commit.
type beginnings struct {
	customers map[string]Beginning
	trunks    map[string]int
}

// Beginning is what a transaction begins: how many calls and legs live from then on, and how many of these count as begun in this second.
type Beginning struct{ Lives, Starts int }

// begin notes what the transaction begins, and has it counted at its end: customers first and each kind in the order of the ids, so that all take
// their locks in one order. It returns nil for a transaction that reaches no database: that checks nothing.
func (s *Store) begin(ctx context.Context) *beginnings {
	if s.tx.deferred != nil {
		return nil
	}
	if s.tx.begins != nil {
		return s.tx.begins
	}
	all := &beginnings{customers: map[string]Beginning{}, trunks: map[string]int{}}
	s.tx.begins = all
	s.atEnd(func() error {
		for _, id := range slices.Sorted(maps.Keys(all.customers)) {
			if err := s.beginForCustomer(ctx, id, all.customers[id]); err != nil {
				return err
			}
		}
		for _, id := range slices.Sorted(maps.Keys(all.trunks)) {
			if err := s.beginOnTrunk(ctx, id, all.trunks[id]); err != nil {
				return err
			}
		}
		return nil
	})
	return all
}

// ceiling is what has limits on its calls: the tables of its rows, of the row that is locked, and of the calls that began in the last second.
type ceiling struct {
	what, table, column, usage, starts string
	// live counts its calls and legs, those of the transaction too. It takes the id twice.
	live string
}

// limit names what refuses a call.
type limit struct {
	name string
	room int
}

// startWindow is the time in which calls per second are counted.
const startWindow = time.Second

// take counts what a transaction begins under a ceiling. It returns the limit that has no room for it, nil where both have.
func (s *Store) take(ctx context.Context, c *ceiling, id string, b Beginning) (*limit, error) {
	// From here to the commit nobody else begins a call there.
	err := s.write(ctx).Exec(fmt.Sprintf("INSERT INTO %[1]s (%[2]s, taken) VALUES (?, 1) ON CONFLICT (%[2]s) DO UPDATE SET taken = %[1]s.taken + 1", c.usage, c.column), id).Error
	if err != nil {
		return nil, explain(err, "lock %s %q", c.what, id)
	}
	var maxCalls, maxRate int
	if err := s.write(ctx).Raw("SELECT max_calls, max_calls_per_second FROM "+c.table+" WHERE id = ?", id).Row().Scan(&maxCalls, &maxRate); err != nil {
		return nil, explain(err, "read the limits of %s %q", c.what, id)
	}
	if maxCalls > 0 && b.Lives > 0 {
		var live int
		if err := s.read(ctx).Raw(c.live, id, id).Row().Scan(&live); err != nil {
			return nil, explain(err, "count the calls of %s %q", c.what, id)
		}
		if live > maxCalls {
			return &limit{"max_calls", max(maxCalls-(live-b.Lives), 0)}, nil
		}
	}
	if maxRate == 0 || b.Starts == 0 {
		return nil, nil
	}
	return s.countStarts(ctx, c, id, b.Starts, maxRate)
}

// countStarts notes that calls begin. The clock is the one that all controllers have in common.
func (s *Store) countStarts(ctx context.Context, c *ceiling, id string, starts, most int) (*limit, error) {
	now, err := s.leaseNow(ctx)
	if err != nil {
		return nil, err
	}
	err = s.write(ctx).Exec("DELETE FROM "+c.starts+" WHERE "+c.column+" = ? AND started_at <= ?", id, now-startWindow.Microseconds()).Error
	if err != nil {
		return nil, explain(err, "forget the starts of %s %q", c.what, id)
	}
	var begun int
	var last int64
	err = s.write(ctx).Raw("SELECT COUNT(*), COALESCE(MAX(started_at), 0) FROM "+c.starts+" WHERE "+c.column+" = ?", id).Row().Scan(&begun, &last)
	if err != nil {
		return nil, explain(err, "count the starts of %s %q", c.what, id)
	}
	if begun+starts > most {
		return &limit{"max_calls_per_second", max(most-begun, 0)}, nil
	}
	at := max(now, last+1)
	for i := range starts {
		if err := s.write(ctx).Exec("INSERT INTO "+c.starts+" ("+c.column+", started_at) VALUES (?, ?)", id, at+int64(i)).Error; err != nil {
			return nil, explain(err, "note a start of %s %q", c.what, id)
		}
	}
	return nil, nil
}
