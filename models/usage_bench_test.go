package models_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// envBenchCalls is how many calls BenchmarkUsage sums up.
const envBenchCalls = "TANDEM_BENCH_CALLS"

// crowd fills a PostgreSQL database with calls, settled one after the other through a year, of ten customers in turn, each with a line of a bill and a debit, and
// returns the first of the customers and the beginning of the year. The planner knows what is there.
func crowd(t testing.TB, s *models.Store, calls int) (*models.Customer, time.Time) {
	t.Helper()
	ctx := t.Context()
	const customers = 10
	from := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	ids, apps := make([]string, customers), make([]string, customers)
	var first *models.Customer
	for i := range customers {
		customer := modelstest.Customer(t, s, 1_000_000_000_000)
		if i == 0 {
			first = customer
		}
		ids[i], apps[i] = customer.ID, modelstest.Application(t, s, customer).ID
	}
	list := func(of []string) string { return "(ARRAY['" + strings.Join(of, "','") + "'])[n % 10 + 1]" }
	at := fmt.Sprintf("%d::BIGINT + n * (%d::BIGINT / %d)", from.UnixMicro(), 365*24*time.Hour.Microseconds(), calls)
	for _, statement := range []string{
		`INSERT INTO calls (id, customer_id, application_id, direction, status, from_number, to_number, record, metadata, variables, channel_id, reason, hangup_source, cause, q850, sip_code,
				price_per_minute_micros, hold_micros, granted_seconds, timeout_seconds, billed_seconds, cost_micros, last_sequence, cursor, created_at, updated_at, ended_at, settled_at)
			SELECT 'call_' || n, ` + list(ids) + ", " + list(apps) + `, CASE WHEN n % 3 = 0 THEN 'inbound' ELSE 'outbound' END, 'completed', '+1', '+2', FALSE, '{}', '{}', 'chan-' || n, 'completed',
				'caller', '', 16, 200, 10000, 0, 60, 60, 61, 20000, 0, '{}', at, at, at, at FROM (SELECT n, ` + at + ` AS at FROM generate_series(0, ?::INTEGER - 1) n) series`,
		`INSERT INTO charges (call_id, leg_id, customer_id, kind, target, rate, answered, billed_seconds, amount_micros, created_at, application_id, direction, destination, charged_seconds)
			SELECT id, id, customer_id, 'call', to_number, '{"per_minute_micros":10000,"increment_seconds":60,"destination":"Netherlands"}', TRUE, 61, 20000, settled_at, application_id, direction, 'Destination ' || substr(id, 6, 2), 120
			FROM calls LIMIT ?`,
		`INSERT INTO ledger_entries (id, customer_id, key, kind, amount_micros, balance_micros, call_id, note, created_at, seq)
			SELECT 'led_' || id, customer_id, 'call:' || id, 'call', -20000, 0, id, '', settled_at, settled_at FROM calls LIMIT ?`,
	} {
		require.NoError(t, models.Long(ctx, s, statement, calls))
	}
	for _, table := range []string{"calls", "charges", "ledger_entries", "customers", "applications", "trunks"} {
		require.NoError(t, models.Long(ctx, s, "VACUUM ANALYZE "+table))
	}
	return first, from
}

// foreignRows finds the plans that read the rows of other customers as well.
var foreignRows = regexp.MustCompile(`Seq Scan on (calls|charges|ledger_entries)`)

// plansOf are the plans of what a look at an account asks.
func plansOf(t testing.TB, s *models.Store, look func(s *models.Store) error) []string {
	t.Helper()
	plans, err := models.Explained(t.Context(), s, look)
	require.NoError(t, err)
	require.NotEmpty(t, plans)
	return plans
}

// looks are what is asked of an account for a time.
func looks(customer *models.Customer, from, to time.Time) map[string]func(ctx context.Context, s *models.Store) error {
	all := map[string]func(ctx context.Context, s *models.Store) error{
		"statement": func(ctx context.Context, s *models.Store) error {
			_, err := s.StatementOf(ctx, customer.ID, customer.CreatedAt)
			return err
		},
		"ledger page": func(ctx context.Context, s *models.Store) error {
			_, _, err := s.ListLedger(ctx, customer.ID, models.LedgerFilter{From: &from, Before: &to}, models.Page{})
			return err
		},
		"payments": func(ctx context.Context, s *models.Store) error {
			_, _, err := s.ListLedger(ctx, customer.ID, models.LedgerFilter{Kind: models.LedgerTopup}, models.Page{})
			return err
		},
	}
	for _, by := range []string{models.UsageByDay, models.UsageByApplication, models.UsageByTrunk, models.UsageByDirection, models.UsageByDestination} {
		all["usage by "+by] = func(ctx context.Context, s *models.Store) error {
			_, err := s.Usage(ctx, customer.ID, by, from, to)
			return err
		}
	}
	return all
}

// TestAccountReadsItsOwnRows: among ten customers, the planner finds a way to one that reads no others'.
func TestAccountReadsItsOwnRows(t *testing.T) {
	t.Parallel()
	s := modelstest.OpenPostgres(t)
	customer, from := crowd(t, s, 30_000)
	for name, look := range looks(customer, from, from.AddDate(0, 1, 0)) {
		for _, plan := range plansOf(t, s, func(s *models.Store) error { return look(t.Context(), s) }) {
			require.NotRegexp(t, foreignRows, plan, name)
		}
	}
}

// BenchmarkUsage sums up a month and a year of one of ten customers on PostgreSQL. TANDEM_BENCH_CALLS says how many calls they have together; with -v it shows the plans.
func BenchmarkUsage(b *testing.B) {
	calls := 20_000
	if given, err := strconv.Atoi(os.Getenv(envBenchCalls)); err == nil && given > 0 {
		calls = given
	}
	s, err := models.Open(b.Context(), models.Config{URL: modelstest.PostgresURL(b), Key: modelstest.Key})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	customer, from := crowd(b, s, calls)
	for span, to := range map[string]time.Time{"month": from.AddDate(0, 1, 0), "year": from.AddDate(1, 0, 0)} {
		for name, look := range looks(customer, from, to) {
			b.Run(fmt.Sprintf("%s/%s", span, strings.ReplaceAll(name, " ", "-")), func(b *testing.B) {
				for b.Loop() {
					require.NoError(b, look(b.Context(), s))
				}
				b.StopTimer()
				for _, plan := range plansOf(b, s, func(s *models.Store) error { return look(b.Context(), s) }) {
					b.Log("\n" + plan)
					if foreignRows.MatchString(plan) {
						b.Error("it reads other customers' rows")
					}
				}
			})
		}
	}
}
