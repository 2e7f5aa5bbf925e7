package lab_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// auditorConns is how many connections to the database an auditor may have kept.
const auditorConns = 8

// auditor holds the invariants of money while calls come and go: after each kill, and once more when what was killed is back.
type auditor struct {
	store *models.Store

	mu       sync.Mutex
	problems problems
	// killed and mended count the audits at these moments, away those that found no database to ask.
	killed, mended, away int
}

func newAuditor(t *testing.T, w *chaosWorld) *auditor {
	t.Helper()
	// No secret is read: any key serves.
	store, err := models.Open(t.Context(), models.Config{URL: w.cluster.URL(), Key: modelstest.Key})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return &auditor{store: store}
}

// auditKilled audits what a kill has left, unless the database is what is away.
func (w *chaosWorld) auditKilled(ctx context.Context, wreck *wreck) {
	database := w.targets["database"]
	if wreck.kind == "database" || !database.TryLock() {
		w.audit.mu.Lock()
		w.audit.away++
		w.audit.mu.Unlock()
		return
	}
	defer database.Unlock()
	if w.holds(ctx, wreck, "when it was away") {
		w.audit.mu.Lock()
		w.audit.killed++
		w.audit.mu.Unlock()
	}
}

// auditMended audits once more. It waits for the database; the caller has none of the targets.
func (w *chaosWorld) auditMended(ctx context.Context, wreck *wreck) {
	database := w.targets["database"]
	database.Lock()
	defer database.Unlock()
	if w.holds(ctx, wreck, "when it was back") {
		w.audit.mu.Lock()
		w.audit.mended++
		w.audit.mu.Unlock()
	}
}

// holds looks for what breaks an invariant, at one moment of the database, and reports whether it could look.
func (w *chaosWorld) holds(ctx context.Context, wreck *wreck, when string) bool {
	found, err := w.audit.store.VerifyLedger(ctx)
	for again := 0; err != nil && again < auditorConns; again++ {
		// A connection from before the database was killed finds that out by being used.
		found, err = w.audit.store.VerifyLedger(ctx)
	}
	w.audit.mu.Lock()
	defer w.audit.mu.Unlock()
	if err != nil {
		w.audit.problems.add("the ledger could not be verified", "%s, %s: %v", wreck.name(), when, err)
		return false
	}
	for _, violation := range found {
		w.audit.problems.add("the ledger did not hold after a kill", "%s, %s: %s", wreck.name(), when, violation)
	}
	return true
}

// checkAudits: every kill was followed by an audit, and none found anything.
func (w *chaosWorld) checkAudits(t *testing.T, p *problems) {
	t.Helper()
	w.audit.mu.Lock()
	defer w.audit.mu.Unlock()
	p.said = append(p.said, w.audit.problems.said...)
	t.Logf("the ledger was verified %d times after a kill (%d times the database itself was away) and %d times after the mend", w.audit.killed, w.audit.away, w.audit.mended)
	if kills := len(w.havoc); w.audit.killed+w.audit.away != kills || w.audit.mended != kills {
		p.add("a kill was not followed by an audit", "%d kills, %d and %d audits, %d without a database", kills, w.audit.killed, w.audit.mended, w.audit.away)
	}
}

// chargeSums is what the lines of each call's bill come to. A line that is not the price of its own seconds is a problem: the parties of this load cost what
// outbound calls do, by the second.
func (w *chaosWorld) chargeSums(t *testing.T, p *problems, calls map[string]*callRow) map[string]int64 {
	t.Helper()
	rows, err := w.database.QueryContext(t.Context(), "SELECT call_id, kind, billed_seconds, amount_micros FROM charges")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	sums := map[string]int64{}
	for rows.Next() {
		var call, kind string
		var billed, amount int64
		require.NoError(t, rows.Scan(&call, &kind, &billed, &amount))
		sums[call] += amount
		r := calls[call]
		if r == nil || kind == models.ChargeWaived {
			continue
		}
		price := int64(outboundPrice * 1e6)
		if kind == models.ChargeCall {
			price = r.price
			if billed != r.billed {
				p.add("a bill is not of what was billed", "%s: %d seconds, not %d", call, billed, r.billed)
			}
		}
		if want := billed * price / 60; amount != want {
			p.add("a line is not the price of what was billed", "%s: %s, %d for %d seconds, not %d", call, kind, amount, billed, want)
		}
	}
	require.NoError(t, rows.Err())
	return sums
}
