package models

import (
	"context"
	"fmt"
	"time"
)

// DailyLimits bound what a customer, an application or a trunk may do on a day, from midnight to midnight in UTC, and how long its calls last; 0 is no
// bound.
type DailyLimits struct {
	// MaxCallsPerDay is how many calls may begin on a day: those that MaxCallsPerSecond counts. Only what began while there was such a limit counts.
	MaxCallsPerDay int
	// MaxSpendPerDayMicros is what the calls of a day may cost, in millionths of the currency: what was charged on it for calls that ended, and what live
	// ones hold. A trunk's are the calls that go over it themselves, with all that they cost.
	MaxSpendPerDayMicros int64
	// MaxCallSeconds is how long a call may last from its answer. The least of all that apply becomes Call.MaxSeconds.
	MaxCallSeconds int
}

// bounded says whether there is a bound on the number of calls or on what they cost.
func (l *DailyLimits) bounded() bool { return l.MaxCallsPerDay > 0 || l.MaxSpendPerDayMicros > 0 }

// DailyUsageKept is for how long what was counted on a day is kept.
const DailyUsageKept = 48 * time.Hour

// untilTomorrow is how long the day of a moment lasts.
func untilTomorrow(now int64) time.Duration {
	return time.Duration(microsecondsPerDay-now%microsecondsPerDay) * time.Microsecond
}

// countDay notes that calls begin and returns how many have begun on the day.
func (s *Store) countDay(ctx context.Context, c *ceiling, id string, now int64, starts int) (begun int64, err error) {
	err = s.write(ctx).Raw(`INSERT INTO daily_usage (subject_id, day, calls, spent_micros) VALUES (?, ?, ?, 0)
		ON CONFLICT (subject_id, day) DO UPDATE SET calls = daily_usage.calls + excluded.calls RETURNING calls`,
		id, now/microsecondsPerDay, starts).Row().Scan(&begun)
	return begun, explain(err, "count the calls of %s %q on this day", c.what, id)
}

// spentToday is what was charged on the day and what live calls hold, those of the transaction too. Whoever settles a call moves some from the one to the
// other without the lock: one statement sees both as they were at one moment.
func (s *Store) spentToday(ctx context.Context, c *ceiling, id string, now int64) (micros int64, err error) {
	err = s.read(ctx).Raw(`SELECT COALESCE((SELECT spent_micros FROM daily_usage WHERE subject_id = ? AND day = ?), 0)
		+ COALESCE((SELECT CAST(SUM(hold_micros) AS BIGINT) FROM calls WHERE `+c.column+` = ? AND status IN `+liveStatuses+`), 0)`,
		id, now/microsecondsPerDay, id).Row().Scan(&micros)
	return micros, explain(err, "add up what %s %q has spent on this day", c.what, id)
}

// addSpent notes what was charged for a call among what its customer, its application and its trunk have spent today. It belongs right after the change
// of the balance, at the end of the transaction. It is noted whether there is a limit or not: one that is set later counts for the whole day.
func (s *Store) addSpent(ctx context.Context, callID string, cost int64) error {
	day := "CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) / 86400) AS INTEGER)" // saves asking for it, see leaseNow
	if s.dialect != DialectPostgres || s.ownClock {
		day = fmt.Sprint(micros(s.Now()) / microsecondsPerDay)
	}
	err := s.write(ctx).Exec(`INSERT INTO daily_usage (subject_id, day, calls, spent_micros)
		SELECT subject_id, `+day+`, 0, CAST(? AS BIGINT) FROM (
			SELECT customer_id AS subject_id FROM calls WHERE id = ?
			UNION ALL SELECT application_id FROM calls WHERE id = ?
			UNION ALL SELECT trunk_id FROM calls WHERE id = ? AND trunk_id IS NOT NULL) AS subjects WHERE TRUE
		ON CONFLICT (subject_id, day) DO UPDATE SET spent_micros = daily_usage.spent_micros + excluded.spent_micros`,
		cost, callID, callID, callID).Error
	return explain(err, "note what call %q cost on this day", callID)
}

// TakeSpend makes the transaction, in which a call comes to hold amount more of the balance (see Rehold), fail with a *LimitError that is ErrSpendLimit where
// its customer, application or trunk would then have spent more on this day than it may. The check comes right before the commit, after all changes of
// balances, so it does not matter which is called first; what is returned is an error of reading the limits. An amount that is not more than 0 is
// never refused. A transaction that reaches no database checks nothing.
func (s *Store) TakeSpend(ctx context.Context, customerID, applicationID string, trunkID *string, amount int64) error {
	if amount <= 0 {
		return nil
	}
	var trunk string
	if trunkID != nil {
		trunk = *trunkID
	}
	var ofCustomer, ofApplication, ofTrunk bool
	err := s.read(ctx).Raw(`SELECT EXISTS (SELECT 1 FROM customers WHERE id = ? AND max_spend_per_day_micros > 0),
		EXISTS (SELECT 1 FROM applications WHERE id = ? AND max_spend_per_day_micros > 0),
		EXISTS (SELECT 1 FROM trunks WHERE id = ? AND max_spend_per_day_micros > 0)`, customerID, applicationID, trunk).Row().Scan(&ofCustomer, &ofApplication, &ofTrunk)
	if err != nil {
		return explain(err, "read what customer %q may spend on a day", customerID)
	}
	b := Beginning{SpendMicros: amount}
	if ofCustomer {
		s.TakeCustomer(ctx, customerID, b)
	}
	if ofApplication {
		s.TakeApplication(ctx, applicationID, b)
	}
	if ofTrunk {
		s.TakeTrunk(ctx, trunk, b)
	}
	return nil
}

func (p *pruning) dailyUsage(ctx context.Context) error {
	err := p.drain(ctx, DailyUsageKept, &p.gone.Days, fmt.Sprintf(`DELETE FROM daily_usage WHERE (subject_id, day) IN (
		SELECT subject_id, day FROM daily_usage WHERE day < CAST(? AS BIGINT) / %d ORDER BY day LIMIT ?)`, microsecondsPerDay))
	return explain(err, "delete what was counted on days")
}
