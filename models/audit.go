package models

import (
	"context"
	"errors"
	"fmt"
)

// audits are the invariants of the ledger (each a query for what breaks it). The database's own constraints hold most of
// them; these look at what the constraints cannot.
var audits = []struct{ violation, query string }{
	{"customer %s: balance is %d, the ledger sums to %d", `SELECT c.id, c.balance_micros, CAST(COALESCE(SUM(l.amount_micros), 0) AS BIGINT)
		FROM customers c LEFT JOIN ledger_entries l ON l.customer_id = c.id
		GROUP BY c.id, c.balance_micros HAVING c.balance_micros <> COALESCE(SUM(l.amount_micros), 0) ORDER BY c.id`},
	{"customer %s: %d is held, open calls hold %d", `SELECT c.id, c.held_micros, CAST(COALESCE(SUM(o.hold_micros), 0) AS BIGINT)
		FROM customers c LEFT JOIN calls o ON o.customer_id = c.id AND o.settled_at IS NULL
		GROUP BY c.id, c.held_micros HAVING c.held_micros <> COALESCE(SUM(o.hold_micros), 0) ORDER BY c.id`},
	{"customer %s: balance and credit of %d do not cover %d held", `SELECT id, balance_micros + credit_limit_micros, held_micros FROM customers
		WHERE held_micros < 0 OR balance_micros + credit_limit_micros < held_micros ORDER BY id`},
	{"call %s: %d debits of %d in all", `SELECT call_id, COUNT(*), CAST(SUM(amount_micros) AS BIGINT) FROM ledger_entries
		WHERE kind = 'call' GROUP BY call_id HAVING COUNT(*) > 1 ORDER BY call_id`},
	{"call %s: cost is %d, debited %d", `SELECT c.id, c.cost_micros, CAST(COALESCE(-SUM(l.amount_micros), 0) AS BIGINT)
		FROM calls c LEFT JOIN ledger_entries l ON l.call_id = c.id AND l.kind = 'call'
		WHERE c.settled_at IS NOT NULL
		GROUP BY c.id, c.cost_micros HAVING c.cost_micros <> COALESCE(-SUM(l.amount_micros), 0) ORDER BY c.id`},
	{"call %s: %d is debited in %d entries although it is not settled", `SELECT c.id, CAST(-SUM(l.amount_micros) AS BIGINT), COUNT(*)
		FROM calls c JOIN ledger_entries l ON l.call_id = c.id AND l.kind = 'call'
		WHERE c.settled_at IS NULL GROUP BY c.id ORDER BY c.id`},
	{"leg %s: the switch billed %d seconds, the call's bill has %d", `SELECT g.id, g.billed_seconds, COALESCE(h.billed_seconds, -1)
		FROM legs g JOIN calls c ON c.id = g.call_id LEFT JOIN charges h ON h.call_id = g.call_id AND h.leg_id = g.id
		WHERE g.rate IS NOT NULL AND c.settled_at IS NOT NULL AND COALESCE(h.billed_seconds, -1) <> g.billed_seconds ORDER BY g.id`},
}

// maxViolations is how many violations VerifyLedger puts into words: a database that is broken throughout must not take all memory.
const maxViolations = 1000

// findings are the violations that an audit has found.
type findings struct {
	words []string
	more  int
}

func (f *findings) add(format string, args ...any) {
	if len(f.words) == maxViolations {
		f.more++
		return
	}
	f.words = append(f.words, fmt.Sprintf(format, args...))
}

// VerifyLedger looks for what breaks the invariants of money and says it in words, one violation each: balance is the sum of
// the ledger; held is the sum of open holds; balance and credit ≥ held ≥ 0; at most one debit per call, which is the call's cost; and that is the sum
// of the lines of its bill, each of which is the price of what the switch billed. The rows come as a stream, so that a ledger of any size takes the same
// memory; after a thousand violations, a last line says how many more there are. All queries see one moment of the database.
func (s *Store) VerifyLedger(ctx context.Context) ([]string, error) {
	var found findings
	err := s.snapshot(ctx, func(tx *Store) error {
		found = findings{}
		for _, audit := range audits {
			if err := tx.violations(ctx, &found, audit.query, audit.violation); err != nil {
				return explain(err, "verify ledger")
			}
		}
		return explain(tx.auditBills(ctx, &found), "verify the bills of calls")
	})
	if found.more > 0 {
		found.words = append(found.words, fmt.Sprintf("and %d more", found.more))
	}
	return found.words, err
}

// violations runs one audit: each row holds an ID and two amounts, which the format puts into words.
func (s *Store) violations(ctx context.Context, found *findings, query, format string) (err error) {
	rows, err := s.read(ctx).Raw(query).Rows()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id string
		var a, b int64
		if err := rows.Scan(&id, &a, &b); err != nil {
			return err
		}
		found.add(format, id, a, b)
	}
	return rows.Err()
}
