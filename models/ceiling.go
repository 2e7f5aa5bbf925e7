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
	customers, applications, trunks map[string]Beginning
}

// Beginning is what a transaction begins: how many calls and legs live from then on, how many of these count as begun in this second and on this day,
// and by how much it raises what calls hold of the balance.
type Beginning struct {
	Lives, Starts int
	SpendMicros   int64
}

func (b Beginning) plus(other Beginning) Beginning {
	return Beginning{b.Lives + other.Lives, b.Starts + other.Starts, b.SpendMicros + other.SpendMicros}
}

// begin notes what the transaction begins, and has it counted at its end. It returns nil for a transaction that reaches no database: that checks nothing.
func (s *Store) begin(ctx context.Context) *beginnings {
	if s.tx.deferred != nil {
		return nil
	}
	if s.tx.begins == nil {
		s.tx.begins = &beginnings{customers: map[string]Beginning{}, applications: map[string]Beginning{}, trunks: map[string]Beginning{}}
		s.tx.count = func() error { return s.countBeginnings(ctx) }
	}
	return s.tx.begins
}

// countBeginnings takes what the transaction begins. Customers come first, then applications, then trunks, and each kind in the order of the ids: all take
// their locks in one order, and after those of balances.
func (s *Store) countBeginnings(ctx context.Context) error {
	for _, kind := range []struct {
		ceiling *ceiling
		begun   map[string]Beginning
	}{{&customerCeiling, s.tx.begins.customers}, {&applicationCeiling, s.tx.begins.applications}, {&trunkCeiling, s.tx.begins.trunks}} {
		for _, id := range slices.Sorted(maps.Keys(kind.begun)) {
			if err := s.take(ctx, kind.ceiling, id, kind.begun[id]); err != nil {
				return err
			}
		}
	}
	return nil
}

// ceiling is what has limits on its calls: the tables of its rows, of the row that is locked, and of the calls that began in the last second.
type ceiling struct {
	what, table, column, usage, starts string
	// live counts its calls and legs, those of the transaction too. It takes the id twice.
	live string
}

// bounds are the limits on calls of a row.
type bounds struct {
	calls, rate, perDay int
	spend               int64
}

// startWindow is the time in which calls per second are counted.
const startWindow = time.Second

// take counts what a transaction begins under a ceiling. It returns a *LimitError where a limit has no room for it: the limits that last longest are
// asked first, so that nobody waits for room that another one does not leave.
func (s *Store) take(ctx context.Context, c *ceiling, id string, b Beginning) error {
	// From here to the commit nobody else begins a call there.
	err := s.write(ctx).Exec(fmt.Sprintf("INSERT INTO %[1]s (%[2]s, taken) VALUES (?, 1) ON CONFLICT (%[2]s) DO UPDATE SET taken = %[1]s.taken + 1", c.usage, c.column), id).Error
	if err != nil {
		return explain(err, "lock %s %q", c.what, id)
	}
	var limit bounds
	err = s.write(ctx).Raw("SELECT max_calls, max_calls_per_second, max_calls_per_day, max_spend_per_day_micros FROM "+c.table+" WHERE id = ?", id).
		Row().Scan(&limit.calls, &limit.rate, &limit.perDay, &limit.spend)
	if err != nil {
		return explain(err, "read the limits of %s %q", c.what, id)
	}
	full := func(name string, room int, lasts time.Duration) error {
		return &LimitError{Subject: c.what, ID: id, Limit: name, Room: max(room, 0), RetryAfter: lasts}
	}
	begins := b.Starts > 0 && (limit.perDay > 0 || limit.rate > 0)
	var now int64
	if begins || limit.spend > 0 && b.SpendMicros > 0 {
		if now, err = s.leaseNow(ctx); err != nil {
			return err
		}
	}
	if limit.spend > 0 && b.SpendMicros > 0 {
		if spent, err := s.spentToday(ctx, c, id, now); err != nil {
			return err
		} else if spent > limit.spend {
			return full(LimitSpendPerDay, 0, 0)
		}
	}
	if limit.perDay > 0 && b.Starts > 0 {
		if begun, err := s.countDay(ctx, c, id, now, b.Starts); err != nil {
			return err
		} else if begun > int64(limit.perDay) {
			return full(LimitCallsPerDay, limit.perDay-int(begun)+b.Starts, untilTomorrow(now))
		}
	}
	if limit.calls > 0 && b.Lives > 0 {
		var live int
		if err := s.read(ctx).Raw(c.live, id, id).Row().Scan(&live); err != nil {
			return explain(err, "count the calls of %s %q", c.what, id)
		}
		if live > limit.calls {
			return full(LimitCalls, limit.calls-(live-b.Lives), 0)
		}
	}
	if limit.rate > 0 && b.Starts > 0 {
		if room, err := s.countStarts(ctx, c, id, now, b.Starts, limit.rate); err != nil {
			return err
		} else if room < b.Starts {
			return full(LimitRate, room, startWindow)
		}
	}
	return nil
}

// countStarts notes that calls begin, and returns for how many there is room: where that is fewer, it notes none. now is of the clock that all controllers
// have in common.
func (s *Store) countStarts(ctx context.Context, c *ceiling, id string, now int64, starts, most int) (room int, err error) {
	err = s.write(ctx).Exec("DELETE FROM "+c.starts+" WHERE "+c.column+" = ? AND started_at <= ?", id, now-startWindow.Microseconds()).Error
	if err != nil {
		return 0, explain(err, "forget the starts of %s %q", c.what, id)
	}
	var begun int
	var last int64
	err = s.write(ctx).Raw("SELECT COUNT(*), COALESCE(MAX(started_at), 0) FROM "+c.starts+" WHERE "+c.column+" = ?", id).Row().Scan(&begun, &last)
	if err != nil {
		return 0, explain(err, "count the starts of %s %q", c.what, id)
	}
	if room = most - begun; room < starts {
		return room, nil
	}
	at := max(now, last+1)
	for i := range starts {
		if err := s.write(ctx).Exec("INSERT INTO "+c.starts+" ("+c.column+", started_at) VALUES (?, ?)", id, at+int64(i)).Error; err != nil {
			return 0, explain(err, "note a start of %s %q", c.what, id)
		}
	}
	return room, nil
}
