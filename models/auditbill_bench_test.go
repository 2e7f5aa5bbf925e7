package models_test

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

var ledgerCalls = flag.Int("ledger.calls", 20_000, "how many settled calls BenchmarkVerifyLedger verifies")

// BenchmarkVerifyLedger verifies a ledger of settled calls, each with a bill of one line, on PostgreSQL. It reports the calls per second, and the
// memory that the process had asked the system for at the end: the rows come as a stream.
func BenchmarkVerifyLedger(b *testing.B) {
	s, err := models.Open(b.Context(), models.Config{URL: modelstest.PostgresURL(b), Key: modelstest.Key})
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	ctx := b.Context()
	app := modelstest.Application(b, s, modelstest.Customer(b, s, 1_000_000_000_000))
	rate, at := models.Rate{Prefix: "1", Destination: "home", PerMinuteMicros: 10_000, IncrementSeconds: 60}, time.Now()
	call := &models.Call{
		ID: "call_0", CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallCompleted, From: "+15550000001",
		To: "+15550000002", Rate: &rate, HoldMicros: 20_000, GrantedSeconds: 120, AnsweredAt: &at, BilledSeconds: 61, CostMicros: 20_000,
	}
	require.NoError(b, s.InTx(ctx, func(tx *models.Store) error {
		if err := tx.Hold(ctx, app.CustomerID, call.HoldMicros); err != nil {
			return err
		}
		if err := tx.CreateCall(ctx, call); err != nil {
			return err
		}
		if _, err := tx.SettleHold(ctx, app.CustomerID, call.ID, call.HoldMicros, call.CostMicros); err != nil {
			return err
		}
		return tx.AddCharges(ctx, []models.Charge{{
			CallID: call.ID, LegID: call.ID, CustomerID: app.CustomerID, Kind: models.ChargeCall, Rate: rate, Answered: true, BilledSeconds: 61, AmountMicros: 20_000,
		}})
	}))
	const part = 10_000
	for first := 1; first < *ledgerCalls; first += part {
		series := fmt.Sprintf("generate_series(%d, %d) n", first, min(first+part, *ledgerCalls)-1)
		for _, statement := range []string{
			`INSERT INTO calls SELECT (jsonb_populate_record(c, jsonb_build_object('id', 'call_' || n))).* FROM calls c, ` + series + ` WHERE c.id = 'call_0'`,
			`INSERT INTO charges SELECT (jsonb_populate_record(c, jsonb_build_object('call_id', 'call_' || n, 'leg_id', 'call_' || n))).* FROM charges c, ` +
				series + ` WHERE c.call_id = 'call_0'`,
			`INSERT INTO ledger_entries SELECT (jsonb_populate_record(l, jsonb_build_object('id', 'led_' || n, 'key', 'call:call_' || n, 'call_id', 'call_' || n))).*
				FROM ledger_entries l, ` + series + ` WHERE l.call_id = 'call_0'`,
		} {
			require.NoError(b, models.Write(ctx, s, statement))
		}
	}
	require.NoError(b, models.Write(ctx, s, "UPDATE customers SET balance_micros = balance_micros - ?", int64(*ledgerCalls-1)*call.CostMicros))
	b.ResetTimer()
	for range b.N {
		found, err := s.VerifyLedger(ctx)
		require.NoError(b, err)
		require.Empty(b, found)
	}
	b.StopTimer()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	b.ReportMetric(float64(*ledgerCalls)*float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	b.ReportMetric(float64(memory.Sys)/1e6, "MB")
}
