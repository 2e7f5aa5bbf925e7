package models_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestMigrateAccounts: entries of an older schema are numbered in their order, and calls that were settled have a line and a debit of their settlement's time.
func TestMigrateAccounts(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 1_000_000)
		app := modelstest.Application(t, s, customer)
		call, live, refused := modelstest.Call(t, s, app), modelstest.Call(t, s, app), modelstest.Call(t, s, app)
		require.NoError(t, models.MigrateTo(ctx, s, 28))
		for _, statement := range []string{
			"UPDATE calls SET settled_at = 5 WHERE id = '" + refused.ID + "'",
			"UPDATE calls SET granted_seconds = 60, settled_at = 86400000005, answered_at = 5, billed_seconds = 61, cost_micros = 20000, price_per_minute_micros = 10000 WHERE id = '" + call.ID + "'",
			"INSERT INTO ledger_entries (id, customer_id, key, kind, amount_micros, balance_micros, call_id, note, created_at) VALUES ('led_0', '" + customer.ID + "', 'call', 'call', -20000, 980000, '" + call.ID + "', '', 86400000009)",
			"UPDATE customers SET balance_micros = 980000",
		} {
			require.NoError(t, models.Write(ctx, s, statement))
		}
		require.NoError(t, s.Migrate(ctx))
		rows, _, err := s.ListLedger(ctx, customer.ID, models.LedgerFilter{}, models.Page{})
		require.NoError(t, err)
		require.Len(t, rows, 2)
		require.Equal(t, []any{"topup", int64(2), "call", int64(1)}, []any{rows[0].Kind, rows[0].Seq, rows[1].Kind, rows[1].Seq}, "the debit is the older one")
		require.Equal(t, int64(86400000005), rows[1].CreatedAt.UnixMicro())
		lines, err := s.ChargesOf(ctx, customer.ID, call.ID)
		require.NoError(t, err)
		require.Len(t, lines, 1)
		require.Equal(t, models.Charge{
			CallID: call.ID, LegID: call.ID, CustomerID: customer.ID, Kind: models.ChargeCall, Target: call.To, Rate: models.Rate{PerMinuteMicros: 10_000},
			Answered: true, BilledSeconds: 61, AmountMicros: 20_000, ApplicationID: app.ID, Direction: call.Direction, ChargedSeconds: 61, CreatedAt: rows[1].CreatedAt,
		}, lines[0])
		for _, other := range []*models.Call{live, refused} {
			lines, err = s.ChargesOf(ctx, customer.ID, other.ID)
			require.NoError(t, err)
			require.Empty(t, lines)
		}
		entry, err := s.Credit(ctx, customer.ID, "next", models.LedgerTopup, 1, "")
		require.NoError(t, err)
		require.Equal(t, int64(3), entry.Seq)
		requireBalance(t, s, customer.ID, 980_001, 0)
	})
}
