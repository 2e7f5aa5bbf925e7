package models_test

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

// heldCall creates a call with its hold, as POST /v1/calls does.
func heldCall(t *testing.T, s *models.Store, app *models.Application, hold int64) (*models.Call, error) {
	t.Helper()
	call := &models.Call{
		CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallDialing,
		From: "+15550000001", To: "+15550000002", HoldMicros: hold,
	}
	err := s.InTx(t.Context(), func(tx *models.Store) error {
		if err := tx.Hold(t.Context(), app.CustomerID, hold); err != nil {
			return err
		}
		return tx.CreateCall(t.Context(), call)
	})
	return call, err
}

func requireBalance(t *testing.T, s *models.Store, customerID string, balance, held int64) {
	t.Helper()
	customer, err := s.Customer(t.Context(), customerID)
	require.NoError(t, err)
	require.Equal(t, []int64{balance, held}, []int64{customer.BalanceMicros, customer.HeldMicros})
	violations, err := s.VerifyLedger(t.Context())
	require.NoError(t, err)
	require.Empty(t, violations)
}

// TestHoldNeverOverdraws sends 100 requests at once, through two stores, for a balance that covers 37.
func TestHoldNeverOverdraws(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		const price, affordable = 1_000, 37
		customer := modelstest.Customer(t, s, affordable*price+price/2)
		app := modelstest.Application(t, s, customer)
		var held, refused atomic.Int64
		var group errgroup.Group
		for i := range 100 {
			group.Go(func() error {
				_, err := heldCall(t, []*models.Store{s, other}[i%2], app, price)
				switch {
				case err == nil:
					held.Add(1)
				case errors.Is(err, models.ErrInsufficientBalance):
					refused.Add(1)
				default:
					return err
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		require.Equal(t, []int64{affordable, 100 - affordable}, []int64{held.Load(), refused.Load()})
		requireBalance(t, s, customer.ID, affordable*price+price/2, affordable*price)
	})
}

func TestHoldRefusals(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		customer := modelstest.Customer(t, s, 100)
		require.ErrorIs(t, s.Hold(t.Context(), customer.ID, 101), models.ErrInsufficientBalance)
		require.ErrorIs(t, s.Hold(t.Context(), "cust_none", 1), models.ErrNotFound)
		require.Error(t, s.Hold(t.Context(), customer.ID, -1))
		requireBalance(t, s, customer.ID, 100, 0)
	})
}

// TestSettleHoldOnce has eight controllers settle one call at once.
func TestSettleHoldOnce(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		customer := modelstest.Customer(t, s, 1_000)
		app := modelstest.Application(t, s, customer)
		call, err := heldCall(t, s, app, 400)
		require.NoError(t, err)
		requireBalance(t, s, customer.ID, 1_000, 400)

		call.CostMicros = 150
		require.NoError(t, s.UpdateCall(t.Context(), call, "cost_micros"))
		_, err = s.SettleHold(t.Context(), customer.ID, call.ID, 399, 150)
		require.ErrorContains(t, err, "it holds 400")
		var settled, stale atomic.Int64
		var group errgroup.Group
		for i := range 8 {
			group.Go(func() error {
				entry, err := []*models.Store{s, other}[i%2].SettleHold(t.Context(), customer.ID, call.ID, 400, 150)
				if errors.Is(err, models.ErrStale) {
					stale.Add(1)
					return nil
				}
				if err == nil && (entry.AmountMicros != -150 || entry.BalanceMicros != 850 || entry.Key != "call:"+call.ID) {
					return fmt.Errorf("entry %+v", entry)
				}
				settled.Add(1)
				return err
			})
		}
		require.NoError(t, group.Wait())
		require.Equal(t, []int64{1, 7}, []int64{settled.Load(), stale.Load()})
		requireBalance(t, s, customer.ID, 850, 0)

		// A copy of the call from before the settlement undoes nothing when it is written.
		call.Status = models.CallCompleted
		require.NoError(t, s.TransitionCall(t.Context(), call, []string{models.CallDialing}))
		found, err := s.CallByID(t.Context(), call.ID)
		require.NoError(t, err)
		require.NotNil(t, found.SettledAt)
		_, err = s.SettleHold(t.Context(), customer.ID, call.ID, 400, 150)
		require.ErrorIs(t, err, models.ErrStale)

		free, err := heldCall(t, s, app, 100)
		require.NoError(t, err)
		entry, err := s.SettleHold(t.Context(), customer.ID, free.ID, 100, 0)
		require.NoError(t, err)
		require.Nil(t, entry, "nothing to write down")
		requireBalance(t, s, customer.ID, 850, 0)
	})
}

// TestSettleHoldLeavesOthersCovered settles at more than the balance can pay without touching what another call holds.
func TestSettleHoldLeavesOthersCovered(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		customer := modelstest.Customer(t, s, 1_000)
		app := modelstest.Application(t, s, customer)
		call, err := heldCall(t, s, app, 300)
		require.NoError(t, err)
		_, err = heldCall(t, s, app, 600)
		require.NoError(t, err)
		_, err = s.SettleHold(t.Context(), customer.ID, call.ID, 300, 401)
		require.ErrorIs(t, err, models.ErrInsufficientBalance)
		requireBalance(t, s, customer.ID, 1_000, 900)
		foreign := modelstest.Customer(t, s, 1_000)
		_, err = s.SettleHold(t.Context(), foreign.ID, call.ID, 300, 1)
		require.ErrorIs(t, err, models.ErrStale)
	})
}

func TestCreditOnce(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		customer := modelstest.Customer(t, s, 0)
		ids := make([]string, 16)
		var group errgroup.Group
		for i := range ids {
			group.Go(func() error {
				entry, err := []*models.Store{s, other}[i%2].Credit(t.Context(), customer.ID, "topup 1", models.LedgerTopup, 500, "by card")
				if err == nil {
					ids[i] = entry.ID
				}
				return err
			})
		}
		require.NoError(t, group.Wait())
		for _, id := range ids {
			require.Equal(t, ids[0], id, "everybody gets the one entry")
		}
		requireBalance(t, s, customer.ID, 500, 0)

		require.NoError(t, s.Hold(t.Context(), customer.ID, 200))
		_, err := s.Credit(t.Context(), customer.ID, "take", models.LedgerAdjust, -301, "")
		require.ErrorIs(t, err, models.ErrInsufficientBalance)
		entry, err := s.Credit(t.Context(), customer.ID, "take", models.LedgerAdjust, -300, "")
		require.NoError(t, err)
		require.Equal(t, int64(200), entry.BalanceMicros)
		_, err = s.Credit(t.Context(), "cust_none", "x", models.LedgerTopup, 1, "")
		require.ErrorIs(t, err, models.ErrNotFound)
	})
}

// TestVerifyLedgerFinds plants each violation that the database's constraints let through.
func TestVerifyLedgerFinds(t *testing.T) {
	t.Parallel()
	for plant, violation := range map[string]string{
		"UPDATE customers SET balance_micros = balance_micros + 1":                                        "balance is 851, the ledger sums to 850",
		"UPDATE customers SET held_micros = held_micros + 7":                                              "107 is held, open calls hold 100",
		"UPDATE calls SET hold_micros = 99 WHERE settled_at IS NULL":                                      "100 is held, open calls hold 99",
		"UPDATE calls SET cost_micros = 151 WHERE settled_at IS NOT NULL":                                 "cost is 151, debited 150",
		"UPDATE calls SET settled_at = NULL, hold_micros = 0 WHERE settled_at IS NOT NULL":                "150 is debited in 1 entries although it is not settled",
		"UPDATE ledger_entries SET amount_micros = -140 WHERE kind = 'call'":                              "cost is 150, debited 140",
		"DELETE FROM ledger_entries WHERE kind = 'topup'":                                                 "balance is 850, the ledger sums to -150",
		"UPDATE ledger_entries SET kind = 'adjust', call_id = NULL WHERE kind = 'call'":                   "cost is 150, debited 0",
		"UPDATE calls SET settled_at = 1, cost_micros = 5 WHERE settled_at IS NULL":                       "cost is 5, debited 0",
		"UPDATE customers SET balance_micros = balance_micros - 850, held_micros = 0 WHERE held_micros>0": "balance is 0, the ledger sums to 850",
	} {
		modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
			customer := modelstest.Customer(t, s, 1_000)
			app := modelstest.Application(t, s, customer)
			call, err := heldCall(t, s, app, 400)
			require.NoError(t, err)
			call.CostMicros = 150
			require.NoError(t, s.UpdateCall(t.Context(), call, "cost_micros"))
			_, err = s.SettleHold(t.Context(), customer.ID, call.ID, 400, 150)
			require.NoError(t, err)
			_, err = heldCall(t, s, app, 100)
			require.NoError(t, err)
			requireBalance(t, s, customer.ID, 850, 100)

			require.NoError(t, models.Write(t.Context(), s, plant))
			violations, err := s.VerifyLedger(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, violations)
			require.Contains(t, fmt.Sprint(violations), violation)
		})
	}
}

// TestConstraintsHoldMoney shows that the database itself refuses what the methods never do.
func TestConstraintsHoldMoney(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 1_000)
		app := modelstest.Application(t, s, customer)
		call, err := heldCall(t, s, app, 400)
		require.NoError(t, err)
		_, err = s.SettleHold(ctx, customer.ID, call.ID, 400, 150)
		require.NoError(t, err)
		for _, statement := range []string{
			"UPDATE customers SET balance_micros = -1",
			"UPDATE customers SET held_micros = balance_micros + 1",
			"UPDATE customers SET held_micros = -1",
			"INSERT INTO ledger_entries (id, customer_id, key, kind, amount_micros, balance_micros, call_id, note, created_at) SELECT 'led_x', customer_id, 'again', kind, amount_micros, 0, call_id, '', 0 FROM ledger_entries WHERE kind = 'call'",
			"INSERT INTO ledger_entries (id, customer_id, key, kind, amount_micros, balance_micros, note, created_at) SELECT 'led_x', customer_id, key, 'adjust', 1, 0, '', 0 FROM ledger_entries",
			"UPDATE calls SET status = 'lost'",
			"UPDATE calls SET cost_micros = -1",
		} {
			require.Error(t, models.Write(ctx, s, statement), statement)
		}
	})
}

// TestSetAccountCoversWhatIsHeld: neither a lower credit limit nor an adjustment leaves less than what is owed and held, and the database says so itself.
func TestSetAccountCoversWhatIsHeld(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := &models.Customer{Name: "credit", BalanceMicros: 10, CreditLimitMicros: 50}
		require.NoError(t, s.CreateCustomer(ctx, customer))
		call, err := heldCall(t, s, modelstest.Application(t, s, customer), 40)
		require.NoError(t, err)
		set := func(change func(*models.Customer)) error {
			return s.InTx(ctx, func(tx *models.Store) error {
				row, err := tx.EditCustomer(ctx, customer.ID)
				if err != nil {
					return err
				}
				change(row)
				return tx.SetAccount(ctx, row)
			})
		}
		limit := func(to int64) error { return set(func(c *models.Customer) { c.CreditLimitMicros = to }) }
		require.ErrorIs(t, limit(29), models.ErrInsufficientBalance)
		require.NoError(t, limit(30))
		require.NoError(t, set(func(c *models.Customer) {
			c.Status = models.CustomerSuspended
			c.BalanceMicros = 1_000_000
			c.HeldMicros = 0
		}), "money is not set")
		_, err = s.Credit(ctx, customer.ID, "take", models.LedgerAdjust, -1, "")
		require.ErrorIs(t, err, models.ErrInsufficientBalance)
		require.Error(t, models.Write(ctx, s, "UPDATE customers SET credit_limit_micros = 29 WHERE id = ?", customer.ID))
		requireBalance(t, s, customer.ID, 10, 40)
		stored, err := s.Customer(ctx, customer.ID)
		require.NoError(t, err)
		require.Equal(t, []any{int64(30), models.CustomerSuspended, int64(0)}, []any{stored.CreditLimitMicros, stored.Status, stored.FreeMicros()})
		_, err = s.SettleHold(ctx, customer.ID, call.ID, 40, 40)
		require.NoError(t, err)
		require.ErrorIs(t, limit(29), models.ErrInsufficientBalance, "30 are owed")
		require.ErrorIs(t, s.SetAccount(ctx, &models.Customer{ID: "cust_none"}), models.ErrNotFound)
	})
}

// TestLedgerSaysWho: an entry names who the audit trail says made it, and what calls cost names nobody.
func TestLedgerSaysWho(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		customer := modelstest.Customer(t, s, 100)
		ctx := models.WithAudit(t.Context(), &models.PendingAudit{Entry: models.AuditEntry{ActorKind: models.ActorOperator, ActorID: "oper_1", ActorName: "ana", Action: "adjustCustomer"}})
		entry, err := s.Credit(ctx, customer.ID, "k", models.LedgerAdjust, 1, "n")
		require.NoError(t, err)
		require.Equal(t, "ana", entry.Actor)
		call, err := heldCall(t, s, modelstest.Application(t, s, customer), 3)
		require.NoError(t, err)
		entry, err = s.SettleHold(ctx, customer.ID, call.ID, 3, 3)
		require.NoError(t, err)
		require.Empty(t, entry.Actor)
		rows, _, err := s.ListLedger(t.Context(), customer.ID, models.LedgerFilter{Kind: models.LedgerAdjust}, models.Page{})
		require.NoError(t, err)
		require.Equal(t, "ana", rows[0].Actor)
	})
}

// TestCreditStaysInRange pays in more than an int64 holds, which SQLite would make a number with a fraction of.
func TestCreditStaysInRange(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		customer := &models.Customer{Name: "customer", BalanceMicros: models.MaxBalanceMicros - 5, CreditLimitMicros: models.MaxBalanceMicros}
		require.NoError(t, s.CreateCustomer(t.Context(), customer))
		for _, amount := range []int64{6, models.MaxBalanceMicros, math.MaxInt64} {
			_, err := s.Credit(t.Context(), customer.ID, "too much", models.LedgerTopup, amount, "")
			require.ErrorIs(t, err, models.ErrBalanceRange, amount)
		}
		_, err := s.Credit(t.Context(), customer.ID, "too little", models.LedgerAdjust, math.MinInt64, "")
		require.ErrorIs(t, err, models.ErrInsufficientBalance)
		_, err = s.Credit(t.Context(), customer.ID, "just enough", models.LedgerTopup, 5, "")
		require.NoError(t, err)
		requireBalance(t, s, customer.ID, models.MaxBalanceMicros, 0)
		_, err = s.Credit(t.Context(), customer.ID, "all of it", models.LedgerAdjust, -2*models.MaxBalanceMicros, "")
		require.NoError(t, err)
		requireBalance(t, s, customer.ID, -models.MaxBalanceMicros, 0)
	})
}
