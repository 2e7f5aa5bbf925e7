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
}

// VerifyLedger looks for what breaks the invariants of money and says it in words, one violation each: balance is the sum of
// the ledger; held is the sum of open holds; balance ≥ held ≥ 0; at most one debit per call; the debit is the call's cost. All
// queries see one moment of the database.
func (s *Store) VerifyLedger(ctx context.Context) ([]string, error) {
	var violations []string
	err := s.snapshot(ctx, func(tx *Store) error {
		violations = nil
		for _, audit := range audits {
			found, err := tx.violations(ctx, audit.query, audit.violation)
			if err != nil {
				return explain(err, "verify ledger")
			}
			violations = append(violations, found...)
		}
		return nil
	})
	return violations, err
}

// violations runs one audit: each row holds an ID and two amounts, which the format puts into words.
func (s *Store) violations(ctx context.Context, query, format string) (found []string, err error) {
	rows, err := s.read(ctx).Raw(query).Rows()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id string
		var a, b int64
		if err := rows.Scan(&id, &a, &b); err != nil {
			return nil, err
		}
		found = append(found, fmt.Sprintf(format, id, a, b))
	}
	return found, rows.Err()
}
