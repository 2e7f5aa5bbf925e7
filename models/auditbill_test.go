package models_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// newBills has three calls at 60 a minute: "call_paid" of 61 seconds with a party of 7 and one that did not answer, "call_short" whose bill was 180 beyond its
// hold of 120, all of which the balance could not pay, and "call_live", which holds 60.
func newBills(t *testing.T, s *models.Store) *models.Application {
	t.Helper()
	ctx := t.Context()
	app := modelstest.Application(t, s, modelstest.Customer(t, s, 400))
	rate := models.Rate{PerMinuteMicros: 60, IncrementSeconds: 60}
	perSecond := models.Rate{PerMinuteMicros: 60, ConnectMicros: 3, ConnectOn: models.ConnectOnAttempt, IncrementSeconds: 1}
	at := time.Unix(1_700_000_000, 0)
	begin := func(id string, hold int64) {
		require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
			if err := tx.Hold(ctx, app.CustomerID, hold); err != nil {
				return err
			}
			return tx.CreateCall(ctx, &models.Call{
				ID: id, CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallInProgress, To: "+15550000002",
				Rate: &rate, PricePerMinuteMicros: 60, HoldMicros: hold, GrantedSeconds: 120, AnsweredAt: &at,
			})
		}))
	}
	settle := func(id string, hold, cost int64, seconds int, lines ...models.Charge) {
		require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
			call, err := tx.CallByID(ctx, id)
			if err != nil {
				return err
			}
			call.CostMicros, call.BilledSeconds = cost, seconds
			for i := range lines {
				lines[i].CallID, lines[i].CustomerID = id, app.CustomerID
				if lines[i].Kind == models.LegDial {
					leg := &models.Leg{ID: lines[i].LegID, CallID: id, CustomerID: app.CustomerID, ChannelID: lines[i].LegID, Kind: models.LegDial, Status: models.LegEnded, BilledSeconds: lines[i].BilledSeconds, Rate: &perSecond}
					if err := tx.SaveLeg(ctx, leg); err != nil {
						return err
					}
				}
			}
			if _, err := tx.SettleHold(ctx, app.CustomerID, id, hold, cost); err != nil {
				return err
			}
			if err := tx.AddCharges(ctx, lines); err != nil {
				return err
			}
			return tx.UpdateCall(ctx, call, "cost_micros", "billed_seconds")
		}))
	}
	begin("call_paid", 200)
	settle("call_paid", 200, 130, 61,
		models.Charge{LegID: "call_paid", Kind: models.ChargeCall, Rate: rate, Answered: true, BilledSeconds: 61, AmountMicros: 120},
		models.Charge{LegID: "leg_talked", Kind: models.LegDial, Rate: perSecond, Answered: true, BilledSeconds: 7, AmountMicros: 10},
		models.Charge{LegID: "leg_silent", Kind: models.LegDial, Rate: perSecond})
	begin("call_short", 120)
	begin("call_live", 60)
	settle("call_short", 120, 120, 300,
		models.Charge{LegID: "call_short", Kind: models.ChargeCall, Rate: rate, Answered: true, BilledSeconds: 300, AmountMicros: 300},
		models.Charge{LegID: models.ChargeWaived, Kind: models.ChargeWaived, AmountMicros: -180})
	requireBalance(t, s, app.CustomerID, 150, 60)
	return app
}

// TestVerifyLedgerReadsBills plants each way in which a bill can be wrong, where the constraints of the database let it.
func TestVerifyLedgerReadsBills(t *testing.T) {
	t.Parallel()
	plants := map[string][]string{
		"UPDATE charges SET amount_micros = 121 WHERE leg_id = 'call_paid'": {
			"call call_paid, leg call_paid: charged 121, the price of 61 seconds is 120", "call call_paid: cost is 130, the lines of its bill sum to 131",
		},
		"UPDATE charges SET amount_micros = 0 WHERE leg_id = 'leg_talked'": {
			"call call_paid, leg leg_talked: charged 0, the price of 7 seconds is 10", "call call_paid: cost is 130, the lines of its bill sum to 120",
		},
		"UPDATE charges SET amount_micros = 2 WHERE leg_id = 'leg_silent'": {
			"call call_paid, leg leg_silent: charged 2, the price of 0 seconds is 3", "call call_paid: cost is 130, the lines of its bill sum to 132",
		},
		"UPDATE charges SET amount_micros = 3 WHERE leg_id = 'leg_silent'": {"call call_paid: cost is 130, the lines of its bill sum to 133"},
		"DELETE FROM charges WHERE leg_id = 'leg_talked'": {
			"leg leg_talked: the switch billed 7 seconds, the call's bill has -1", "call call_paid: cost is 130, the lines of its bill sum to 120",
		},
		"DELETE FROM charges WHERE leg_id = 'leg_silent'":            {"leg leg_silent: the switch billed 0 seconds, the call's bill has -1"},
		"UPDATE legs SET billed_seconds = 8 WHERE id = 'leg_talked'": {"leg leg_talked: the switch billed 8 seconds, the call's bill has 7"},
		"UPDATE legs SET rate = NULL":                                {},
		"DELETE FROM legs":                                           {},
		"UPDATE charges SET answered = FALSE WHERE leg_id = 'leg_talked'": {
			"call call_paid, leg leg_talked: charged 10, the price of 7 seconds is 3", "call call_paid, leg leg_talked: 7 seconds are billed although nobody answered",
		},
		"UPDATE charges SET billed_seconds = 60 WHERE leg_id = 'call_paid'": {
			"call call_paid: the switch billed 61 seconds, its bill has 60", "call call_paid, leg call_paid: charged 120, the price of 60 seconds is 60",
		},
		"UPDATE calls SET billed_seconds = 62 WHERE id = 'call_paid'": {"call call_paid: the switch billed 62 seconds, its bill has 61"},
		`UPDATE charges SET rate = '{"per_minute_micros":61,"increment_seconds":60}' WHERE leg_id = 'call_paid'`: {
			"call call_paid, leg call_paid: charged 120, the price of 61 seconds is 122",
		},
		"UPDATE charges SET leg_id = 'leg_other' WHERE leg_id = 'call_paid'":      {"call call_paid: its bill has no line of its own leg"},
		"DELETE FROM charges WHERE call_id = 'call_paid' AND kind <> 'dial'":      {"call call_paid: cost is 130, the lines of its bill sum to 10"},
		"DELETE FROM charges WHERE call_id = 'call_short'":                        {"call call_short: cost is 120, it has no bill"},
		"DELETE FROM charges WHERE leg_id = 'waived'":                             {"call call_short: cost is 120, the lines of its bill sum to 300"},
		"UPDATE charges SET amount_micros = -181 WHERE leg_id = 'waived'":         {"call call_short: cost is 120, the lines of its bill sum to 119"},
		"UPDATE charges SET amount_micros = 0 WHERE leg_id = 'waived'":            {"call call_short: 0 is waived", "call call_short: cost is 120, the lines of its bill sum to 300"},
		"UPDATE calls SET hold_micros = 150 WHERE id = 'call_short'":              {"call call_short: 180 is waived although 30 of its hold of 150 was left"},
		"UPDATE calls SET cost_micros = 1 WHERE id = 'call_live'":                 {"call call_live: cost is 1 although it is not settled"},
		"UPDATE charges SET call_id = 'call_live' WHERE leg_id = 'leg_silent'":    {"leg leg_silent: the switch billed 0 seconds, the call's bill has -1", "call call_live: has a bill of 0 in 1 lines although it is not settled"},
		"UPDATE calls SET rate = NULL WHERE id = 'call_paid'":                     {},
		"UPDATE calls SET settled_at = 1, hold_micros = 0 WHERE id = 'call_live'": {"60 is held, open calls hold 0", "call call_live: cost is 0, it has no bill"},
	}
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		app := newBills(t, s)
		undone := errors.New("undone by the test")
		for plant, violations := range plants {
			var found []string
			err := s.InTx(t.Context(), func(tx *models.Store) (err error) {
				if err := models.Write(t.Context(), tx, plant); err != nil {
					return err
				}
				if found, err = tx.VerifyLedger(t.Context()); err != nil {
					return err
				}
				return undone
			})
			require.ErrorIs(t, err, undone, plant)
			for i := range found {
				found[i] = strings.TrimPrefix(found[i], "customer "+app.CustomerID+": ")
			}
			require.ElementsMatch(t, violations, found, plant)
		}
	})
}

// TestVerifyLedgerOfOldCalls passes calls that were settled before there were rates, and bills.
func TestVerifyLedgerOfOldCalls(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		newBills(t, s)
		require.NoError(t, models.Write(t.Context(), s, "DELETE FROM charges"))
		require.NoError(t, models.Write(t.Context(), s, "DELETE FROM legs"))
		require.NoError(t, models.Write(t.Context(), s, "UPDATE calls SET rate = NULL"))
		found, err := s.VerifyLedger(t.Context())
		require.NoError(t, err)
		require.Empty(t, found)
	})
}

// TestVerifyLedgerIsBounded breaks more than anybody reads.
func TestVerifyLedgerIsBounded(t *testing.T) {
	t.Parallel()
	s := modelstest.Open(t)
	require.NoError(t, s.InTx(t.Context(), func(tx *models.Store) error {
		for i := range 1_002 {
			if err := tx.CreateCustomer(t.Context(), &models.Customer{ID: fmt.Sprintf("cust_%04d", i), Name: "customer"}); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, models.Write(t.Context(), s, "UPDATE customers SET balance_micros = 1"))
	found, err := s.VerifyLedger(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1_001)
	require.Equal(t, "customer cust_0000: balance is 1, the ledger sums to 0", found[0])
	require.Equal(t, "and 2 more", found[1_000])
}

// TestVerifyLedgerCannotRead says so of a line whose rate is none.
func TestVerifyLedgerCannotRead(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		newBills(t, s)
		require.NoError(t, models.Write(t.Context(), s, "UPDATE charges SET rate = 'nonsense' WHERE leg_id = 'leg_talked'"))
		_, err := s.VerifyLedger(t.Context())
		require.ErrorContains(t, err, `rate of leg "leg_talked" of call "call_paid"`)
	})
}
