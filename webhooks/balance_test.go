package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

// balanceEvents are the kinds of a customer's balance events, in the order of the journal, for one application.
func balanceEvents(t *testing.T, s *models.Store, app *models.Application) []string {
	t.Helper()
	page, err := s.Journal(t.Context(), app.CustomerID, models.EventFilter{Types: []string{KindBalanceLow, KindBalanceExhausted}, ApplicationID: app.ID}, models.Page{Limit: 100})
	require.NoError(t, err)
	kinds := []string{}
	for i, event := range page.Events {
		require.Equal(t, []any{app.CustomerID, int64(i + 1)}, []any{event.SubjectID, event.Sequence})
		var b body
		require.NoError(t, json.Unmarshal(event.Body, &b))
		require.NoError(t, CheckData(event.Type, b.Data))
		kinds = append(kinds, event.Type)
	}
	return kinds
}

// heldCall is a call that holds an amount.
func heldCall(t *testing.T, s *models.Store, app *models.Application, hold int64) *models.Call {
	t.Helper()
	call := &models.Call{
		CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallInProgress, From: "+1", To: "+2", HoldMicros: hold,
	}
	require.NoError(t, s.InTx(t.Context(), func(tx *models.Store) error {
		if err := tx.CreateCall(t.Context(), call); err != nil {
			return err
		}
		return tx.Hold(t.Context(), app.CustomerID, hold)
	}))
	return call
}

// settle ends a call's account.
func settle(t *testing.T, s *models.Store, call *models.Call, cost int64) error {
	t.Helper()
	return s.InTx(t.Context(), func(tx *models.Store) error {
		if _, err := tx.SettleHold(t.Context(), call.CustomerID, call.ID, call.HoldMicros, cost); err != nil {
			return err
		}
		settled := *call
		settled.CostMicros = cost
		return tx.UpdateCall(t.Context(), &settled, "cost_micros")
	})
}

// account is a customer with a threshold and an application that is told, on a store that tells.
func account(t *testing.T, s *models.Store, balance, low, credit int64) (*models.Customer, *models.Application) {
	t.Helper()
	s.OnBalance(EmitBalance)
	customer := &models.Customer{Name: "told", BalanceMicros: balance, CreditLimitMicros: credit, LowBalanceMicros: &low}
	require.NoError(t, s.CreateCustomer(t.Context(), customer))
	app := modelstest.Application(t, s, customer)
	app.WebhookURL = "https://receiver.example/"
	require.NoError(t, s.UpdateApplication(t.Context(), app))
	return customer, app
}

// TestBalanceIsToldOncePerCrossing goes down through both levels and up again, by charges, payments, credit and thresholds.
func TestBalanceIsToldOncePerCrossing(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer, app := account(t, s, 100, 40, 20)
		want := []string{}
		expect := func(step string, kinds ...string) {
			t.Helper()
			want = append(want, kinds...)
			require.Equal(t, want, balanceEvents(t, s, app), step)
		}
		charge := func(cost int64) {
			t.Helper()
			require.NoError(t, settle(t, s, heldCall(t, s, app, cost), cost))
		}
		pay := func(key string, amount int64) {
			t.Helper()
			_, err := s.Credit(ctx, customer.ID, key, models.LedgerTopup, amount, "")
			require.NoError(t, err)
		}
		set := func(change func(*models.Customer)) {
			t.Helper()
			require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
				row, err := tx.EditCustomer(ctx, customer.ID)
				if err != nil {
					return err
				}
				change(row)
				return tx.SetAccount(ctx, row)
			}))
		}
		charge(79)
		expect("41 with credit is above 40")
		charge(1)
		expect("40 is not", KindBalanceLow)
		charge(10)
		expect("it was told already")
		pay("small", 10)
		expect("a payment tells nothing")
		charge(1)
		expect("which did not lift it above")
		pay("lift", 2)
		charge(1)
		expect("a payment that lifts it above arms it", KindBalanceLow)

		held := heldCall(t, s, app, 40)
		expect("what is held is not spent")
		require.NoError(t, settle(t, s, held, 40))
		expect("nothing is left", KindBalanceExhausted)
		require.NoError(t, s.BalanceShort(ctx, customer.ID))
		expect("a refused call does not tell it again")
		pay("bit", 1)
		require.NoError(t, s.BalanceShort(ctx, customer.ID))
		expect("any payment arms it, and a refused call tells", KindBalanceExhausted)
		charge(0)
		expect("a call that cost nothing tells nothing")

		set(func(c *models.Customer) { c.CreditLimitMicros = 100 })
		expect("more credit tells nothing")
		_, err := s.Credit(ctx, customer.ID, "take", models.LedgerAdjust, -81, "chargeback")
		require.NoError(t, err)
		expect("an adjustment brings it down as a charge does", KindBalanceLow, KindBalanceExhausted)
		pay("much", 50)
		higher, lower := int64(60), int64(10)
		set(func(c *models.Customer) { c.LowBalanceMicros = &higher })
		expect("a threshold above the balance is crossed", KindBalanceLow)
		set(func(c *models.Customer) { c.LowBalanceMicros = &higher; c.Name = "renamed" })
		expect("the same threshold is not")
		set(func(c *models.Customer) { c.LowBalanceMicros = &lower })
		set(func(c *models.Customer) { c.LowBalanceMicros = nil })
		charge(49)
		expect("no threshold, nothing low")
		violations, err := s.VerifyLedger(ctx)
		require.NoError(t, err)
		require.Empty(t, violations)
	})
}

// TestBalanceIsToldOnceUnderContention settles many calls at once, at two controllers, over both levels, with calls refused beside.
func TestBalanceIsToldOnceUnderContention(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		const calls = 40
		other.OnBalance(EmitBalance)
		customer, app := account(t, s, calls*10, calls*5, 0)
		second := modelstest.Application(t, s, customer)
		second.WebhookURL = "https://second.example/"
		require.NoError(t, s.UpdateApplication(t.Context(), second))
		held := make([]*models.Call, calls)
		for i := range held {
			held[i] = heldCall(t, s, app, 10)
		}
		var group errgroup.Group
		for i, call := range held {
			store := []*models.Store{s, other}[i%2]
			group.Go(func() error {
				return errors.Join(settle(t, store, call, 10), store.BalanceShort(t.Context(), customer.ID))
			})
		}
		require.NoError(t, group.Wait())
		for _, told := range []*models.Application{app, second} {
			kinds := balanceEvents(t, s, told)
			slices.Sort(kinds)
			require.Equal(t, []string{KindBalanceExhausted, KindBalanceLow}, kinds)
		}
	})
}

// TestBalanceEventAndMoneyCommitTogether: where the event cannot be written, nothing was charged.
func TestBalanceEventAndMoneyCommitTogether(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		customer, app := account(t, s, 100, 50, 0)
		var mu sync.Mutex
		failing, errFull := true, errors.New("no room for events")
		s.OnBalance(func(ctx context.Context, tx *models.Store, customer *models.Customer, level models.BalanceLevel) error {
			if err := EmitBalance(ctx, tx, customer, level); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if failing {
				return fmt.Errorf("%s: %w", level, errFull)
			}
			return nil
		})
		call := heldCall(t, s, app, 60)
		require.ErrorIs(t, settle(t, s, call, 60), errFull)
		require.Empty(t, balanceEvents(t, s, app))
		row, err := s.Customer(t.Context(), customer.ID)
		require.NoError(t, err)
		require.Equal(t, []any{int64(100), int64(60), false}, []any{row.BalanceMicros, row.HeldMicros, row.LowTold})
		mu.Lock()
		failing = false
		mu.Unlock()
		require.NoError(t, settle(t, s, call, 60))
		require.Equal(t, []string{KindBalanceLow}, balanceEvents(t, s, app))
	})
}
