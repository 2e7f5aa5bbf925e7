package billing_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/billing"
	"tandem/models"
	"tandem/models/modelstest"
)

// account is the model of one customer: what the database must agree with.
type account struct {
	app           *models.Application
	balance, held int64
	open, closed  []*models.Call
	topups        int
}

// TestInvariants runs random histories of topups, corrections, reservations and settlements, some of them repeated or undone,
// against a model in memory, and checks the invariants of DESIGN §8 after each step: balance = sum of the ledger; held = sum of
// open holds; balance ≥ held ≥ 0; at most one debit per call; debits = the price of what was billed.
func TestInvariants(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		rapid.Check(t, func(rt *rapid.T) {
			rater := newRater(rt, billing.Config{
				OutboundPerMinuteMicros: rapid.Int64Range(0, 50_000).Draw(rt, "outbound price"),
				InboundPerMinuteMicros:  rapid.Int64Range(0, 5_000).Draw(rt, "inbound price"),
				IncrementSeconds:        rapid.SampledFrom([]int{1, 6, 30, 60}).Draw(rt, "increment"),
				MinGrantSeconds:         30, MaxGrantSeconds: 600,
			})
			machine := &ledgerMachine{t: t, s: s, rater: rater}
			for range 2 {
				customer := modelstest.Customer(t, s, 0)
				machine.accounts = append(machine.accounts, &account{app: modelstest.Application(t, s, customer)})
			}
			rt.Repeat(map[string]func(*rapid.T){
				"":        machine.check,
				"topup":   machine.topup,
				"adjust":  machine.adjust,
				"reserve": machine.reserve,
				"queue":   machine.queue,
				"start":   machine.start,
				"settle":  machine.settle,
				"again":   machine.settleAgain,
				"undone":  machine.undone,
			})
		})
		violations, err := s.VerifyLedger(t.Context())
		require.NoError(t, err)
		require.Empty(t, violations)
	})
}

type ledgerMachine struct {
	t        *testing.T
	s        *models.Store
	rater    *billing.Rater
	accounts []*account
}

func (m *ledgerMachine) account(rt *rapid.T) *account {
	return rapid.SampledFrom(m.accounts).Draw(rt, "account")
}

func (m *ledgerMachine) topup(rt *rapid.T) {
	a := m.account(rt)
	amount := rapid.Int64Range(0, 200_000).Draw(rt, "amount")
	for range rapid.IntRange(1, 2).Draw(rt, "times") {
		entry, err := m.s.Credit(m.t.Context(), a.app.CustomerID, fmt.Sprint("topup ", a.topups), models.LedgerTopup, amount, "")
		require.NoError(rt, err)
		require.Equal(rt, a.balance+amount, entry.BalanceMicros)
	}
	a.topups++
	a.balance += amount
}

func (m *ledgerMachine) adjust(rt *rapid.T) {
	a := m.account(rt)
	amount := -rapid.Int64Range(1, 200_000).Draw(rt, "amount")
	_, err := m.s.Credit(m.t.Context(), a.app.CustomerID, fmt.Sprint("adjust ", a.topups), models.LedgerAdjust, amount, "")
	a.topups++
	if a.balance+amount < a.held {
		require.ErrorIs(rt, err, models.ErrInsufficientBalance)
		return
	}
	require.NoError(rt, err)
	a.balance += amount
}

func (m *ledgerMachine) reserve(rt *rapid.T) {
	a := m.account(rt)
	direction := rapid.SampledFrom([]string{models.Outbound, models.Inbound}).Draw(rt, "direction")
	call, err := hold(m.t, m.s, m.rater, a.app, direction)
	if errors.Is(err, models.ErrInsufficientBalance) {
		least := m.rater.Cost(m.rater.Price(direction), 30+1)
		require.Less(rt, a.balance-a.held, least+m.rater.Price(direction), "refused although it could pay")
		return
	}
	require.NoError(rt, err)
	require.LessOrEqual(rt, call.HoldMicros, a.balance-a.held)
	require.Equal(rt, m.rater.Cost(call.PricePerMinuteMicros, call.GrantedSeconds), call.HoldMicros)
	a.held += call.HoldMicros
	a.open = append(a.open, call)
}

// queue makes a call that holds nothing until it is started; it may be settled before that, and costs nothing then.
func (m *ledgerMachine) queue(rt *rapid.T) {
	a := m.account(rt)
	call := &models.Call{CustomerID: a.app.CustomerID, ApplicationID: a.app.ID, Direction: models.Outbound, Status: models.CallQueued}
	require.NoError(rt, m.s.CreateCall(m.t.Context(), call))
	a.open = append(a.open, call)
}

// start starts a queued call: what it may cost is held then. One that was started or settled before is left as it is, and so
// is the balance.
func (m *ledgerMachine) start(rt *rapid.T) {
	a := m.account(rt)
	calls := append(append([]*models.Call{}, a.open...), a.closed...)
	if len(calls) == 0 {
		rt.Skip("no call")
	}
	call := rapid.SampledFrom(calls).Draw(rt, "call")
	queued := call.Status == models.CallQueued && call.SettledAt == nil
	started := *call
	err := m.s.InTx(m.t.Context(), func(tx *models.Store) error {
		held, err := m.rater.Reserve(m.t.Context(), tx, call.CustomerID, call.Direction)
		if err != nil {
			return err
		}
		started.Status = models.CallDialing
		started.PricePerMinuteMicros, started.HoldMicros, started.GrantedSeconds = held.PricePerMinuteMicros, held.HoldMicros, held.GrantedSeconds
		return tx.StartCall(m.t.Context(), &started)
	})
	switch {
	case errors.Is(err, models.ErrInsufficientBalance):
	case queued:
		require.NoError(rt, err)
		*call = started
		a.held += call.HoldMicros
	default:
		require.ErrorIs(rt, err, models.ErrStale)
	}
}

// take removes a random open call.
func (a *account) take(rt *rapid.T) *models.Call {
	if len(a.open) == 0 {
		rt.Skip("no open call")
	}
	i := rapid.IntRange(0, len(a.open)-1).Draw(rt, "call")
	call := a.open[i]
	a.open = append(a.open[:i:i], a.open[i+1:]...)
	return call
}

func (m *ledgerMachine) settle(rt *rapid.T) {
	a := m.account(rt)
	call := a.take(rt)
	// One in a few outruns its cap.
	seconds := rapid.IntRange(0, call.GrantedSeconds*5/4).Draw(rt, "seconds")
	require.NoError(rt, m.rater.Settle(m.t.Context(), m.s, call, seconds))
	price := m.rater.Cost(call.PricePerMinuteMicros, seconds)
	want := min(price, call.HoldMicros+a.balance-a.held)
	require.Equal(rt, want, call.CostMicros)
	if seconds <= call.GrantedSeconds {
		require.Equal(rt, price, call.CostMicros, "within the grant the debit is the price")
	}
	a.balance -= want
	a.held -= call.HoldMicros
	a.closed = append(a.closed, call)
}

func (m *ledgerMachine) settleAgain(rt *rapid.T) {
	a := m.account(rt)
	if len(a.closed) == 0 {
		rt.Skip("no settled call")
	}
	call := *rapid.SampledFrom(a.closed).Draw(rt, "call")
	require.ErrorIs(rt, m.rater.Settle(m.t.Context(), m.s, &call, rapid.IntRange(0, 600).Draw(rt, "seconds")), models.ErrStale)
}

// undone settles and reserves in a transaction that is not kept.
func (m *ledgerMachine) undone(rt *rapid.T) {
	a := m.account(rt)
	refused := errors.New("refused by the test")
	err := m.s.InTx(m.t.Context(), func(tx *models.Store) error {
		for _, call := range a.open {
			copied := *call
			if err := m.rater.Settle(m.t.Context(), tx, &copied, 10); err != nil {
				return err
			}
		}
		_, err := m.rater.Reserve(m.t.Context(), tx, a.app.CustomerID, models.Outbound)
		return errors.Join(refused, err)
	})
	require.ErrorIs(rt, err, refused)
}

func (m *ledgerMachine) check(rt *rapid.T) {
	for _, a := range m.accounts {
		customer, err := m.s.Customer(m.t.Context(), a.app.CustomerID)
		require.NoError(rt, err)
		require.Equal(rt, []int64{a.balance, a.held}, []int64{customer.BalanceMicros, customer.HeldMicros})
		require.GreaterOrEqual(rt, customer.HeldMicros, int64(0))
		require.GreaterOrEqual(rt, customer.BalanceMicros, customer.HeldMicros)
		var held int64
		for _, call := range a.open {
			held += call.HoldMicros
		}
		require.Equal(rt, held, customer.HeldMicros)
		sum, calls := m.ledger(rt, a)
		require.Equal(rt, customer.BalanceMicros, sum)
		for _, call := range a.closed {
			require.Equal(rt, call.CostMicros, calls[call.ID])
			delete(calls, call.ID)
		}
		require.Empty(rt, calls, "only settled calls are debited")
	}
}

// ledger returns the sum of an account's entries and the debits by call.
func (m *ledgerMachine) ledger(rt *rapid.T, a *account) (sum int64, calls map[string]int64) {
	calls = map[string]int64{}
	page := models.Page{Limit: models.MaxPageLimit}
	for {
		entries, next, err := m.s.ListLedger(m.t.Context(), a.app.CustomerID, models.LedgerFilter{}, page)
		require.NoError(rt, err)
		for _, entry := range entries {
			sum += entry.AmountMicros
			if entry.CallID == nil {
				continue
			}
			require.NotContains(rt, calls, *entry.CallID, "at most one debit per call")
			calls[*entry.CallID] = -entry.AmountMicros
		}
		if next == "" {
			return sum, calls
		}
		page.Cursor = next
	}
}
