package models

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// What Usage groups by.
const (
	UsageByDay         = "day"
	UsageByApplication = "application"
	UsageByTrunk       = "trunk"
	UsageByDirection   = "direction"
	UsageByDestination = "destination"
)

// UsageRow is what a group of a customer's calls came to. Day, application and direction are counted by calls, trunk and destination by legs: each line of
// a bill under its own. Cost is that of all lines whatever is counted, so its sum is the same in every grouping.
type UsageRow struct {
	// Key is the day (YYYY-MM-DD, UTC), the id of the application or trunk, the direction, or the rate's name of the destination, its prefix where it has none; a trunk or
	// destination may be empty. Name is that of the application or trunk.
	Key, Name string
	// Calls is how many there were, and Answered how many of them somebody answered.
	Calls, Answered int64
	// Seconds is for how long they were answered, as switches counted, and ChargedSeconds what was charged of it: whole increments.
	Seconds, ChargedSeconds int64
	CostMicros              int64
}

// micros of a day; days are UTC, so all are as long.
const dayMicros = int64(24 * time.Hour / time.Microsecond)

// counted are the columns of a UsageRow, of lines for which a condition holds; the cost is that of all.
func counted(condition string) string {
	return `COUNT(CASE WHEN ` + condition + ` THEN 1 END) AS calls, COUNT(CASE WHEN ` + condition + ` AND h.answered THEN 1 END) AS answered,
		CAST(COALESCE(SUM(CASE WHEN ` + condition + ` THEN h.billed_seconds END), 0) AS BIGINT) AS seconds,
		CAST(COALESCE(SUM(CASE WHEN ` + condition + ` THEN h.charged_seconds END), 0) AS BIGINT) AS charged_seconds,
		CAST(SUM(h.amount_micros) AS BIGINT) AS cost_micros`
}

const (
	ownLine = "h.leg_id = h.call_id"
	anyLine = "h.kind <> '" + ChargeWaived + "'"
	// linesOf are the lines of a customer's calls that were settled in a range.
	linesOf = " WHERE h.customer_id = ? AND h.created_at >= ? AND h.created_at < ? GROUP BY 1"
)

// usageQueries sum lines by what is grouped by.
var usageQueries = map[string]string{
	UsageByDay:         fmt.Sprintf("SELECT h.created_at / %d AS day, ", dayMicros) + counted(ownLine) + " FROM charges h" + linesOf + " ORDER BY 1",
	UsageByApplication: "SELECT h.application_id AS key, " + counted(ownLine) + " FROM charges h" + linesOf,
	UsageByDirection:   "SELECT h.direction AS key, " + counted(ownLine) + " FROM charges h" + linesOf,
	UsageByTrunk:       "SELECT COALESCE(h.trunk_id, '') AS key, " + counted(anyLine) + " FROM charges h" + linesOf,
	UsageByDestination: "SELECT h.destination AS key, " + counted(anyLine) + " FROM charges h" + linesOf,
}

// namesOf are the tables that have the names of what is grouped by.
var namesOf = map[string]string{UsageByApplication: "applications", UsageByTrunk: "trunks"}

// Usage sums up a customer's calls that were settled from a moment until another, which is not meant any more, in the order of the keys. The sum of the
// cost is that of the customer's debits in the ledger from and before the same moments.
func (s *Store) Usage(ctx context.Context, customerID, groupBy string, from, before time.Time) ([]UsageRow, error) {
	query, known := usageQueries[groupBy]
	if !known {
		return nil, fmt.Errorf("usage by %q: there is no such grouping", groupBy)
	}
	args := []any{customerID, micros(from), micros(before)}
	if groupBy == UsageByDay {
		return s.usageByDay(ctx, query, args)
	}
	if table, ok := namesOf[groupBy]; ok {
		query = "SELECT g.*, COALESCE(n.name, '') AS name FROM (" + query + ") g LEFT JOIN " + table + " n ON n.id = g.key AND n.customer_id = ?"
		args = append(args, customerID)
	}
	var rows []UsageRow
	if err := s.read(ctx).Raw(query, args...).Scan(&rows).Error; err != nil {
		return nil, explain(err, "usage of customer %q by %s", customerID, groupBy)
	}
	// Not by the database: each compares text in its own way.
	slices.SortFunc(rows, func(a, b UsageRow) int { return strings.Compare(a.Key, b.Key) })
	return rows, nil
}

func (s *Store) usageByDay(ctx context.Context, query string, args []any) ([]UsageRow, error) {
	var days []struct {
		Day int64
		UsageRow
	}
	if err := s.read(ctx).Raw(query, args...).Scan(&days).Error; err != nil {
		return nil, explain(err, "usage of customer %q by day", args[0])
	}
	rows := make([]UsageRow, len(days))
	for i := range days {
		rows[i] = days[i].UsageRow
		rows[i].Key = time.UnixMicro(days[i].Day * dayMicros).UTC().Format(time.DateOnly)
	}
	return rows, nil
}
