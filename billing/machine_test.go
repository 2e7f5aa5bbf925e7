package billing_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"tandem/billing"
	"tandem/models"
	"tandem/models/modelstest"
)

// TestInvariants runs random histories of customers and their calls against a model in memory. A controller reserves, prices parties, extends and
// settles as it does in package calls; a switch ends calls at their caps and counts the seconds; some of its events come late, and some twice; some
// transactions are not kept. After each step the balance is what was paid in less what was billed, what is held is the sum of what open
// calls hold, balance and credit cover it, and each call holds what it may have cost when the switch ends it. The database as a whole is verified
// at the end of each history.
func TestInvariants(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		rapid.Check(t, func(rt *rapid.T) {
			m := newMachine(t, rt, s)
			rt.Repeat(map[string]func(*rapid.T){
				"": m.check,
				// What needs others before it comes twice, so that it happens as often.
				"call another": m.callParty, "settle another": m.settle, "extend another": m.extend, "hang up another": m.hangUp, "more time": m.timePasses,
				"pay in":       m.payIn,
				"adjust":       m.adjust,
				"create":       m.create,
				"create many":  m.createMany,
				"queue":        m.queue,
				"start":        m.start,
				"cancel":       m.cancel,
				"answer":       m.answer,
				"call a party": m.callParty,
				"party talks":  m.partyTalks,
				"party leaves": m.partyLeaves,
				"time passes":  m.timePasses,
				"extend":       m.extend,
				"hang up":      m.hangUp,
				"overrun":      m.overrun,
				"settle":       m.settle,
				"settle twice": m.settleTwice,
				"die":          m.die,
			})
			requireSound(t, s)
		})
	})
}

// wallet is the model of one customer.
type wallet struct {
	app                   *models.Application
	balance, held, credit int64
	queued, open, closed  []*spoken
	keys                  int
}

func (w *wallet) free() int64 { return w.balance + w.credit - w.held }

// spoken is the model of one call.
type spoken struct {
	row     *models.Call
	cap     time.Time // when the switch ends it; zero as long as nobody has answered
	ended   time.Time // when it has ended on the switch
	late    bool      // the switch let it run past its cap
	parties []*party
}

// party is the model of a leg. Its answer is kept by the row.
type party struct {
	row   models.Leg
	ended time.Time
}

type machine struct {
	t       *testing.T
	s       *models.Store
	rater   *billing.Rater
	now     time.Time
	wallets []*wallet
}

const machineLeast, machineLongest = 30, 1200

func newMachine(t *testing.T, rt *rapid.T, s *models.Store) *machine {
	t.Helper()
	m := &machine{t: t, s: s, now: noon, rater: newRater(rt, billing.Config{MinGrantSeconds: machineLeast, MaxGrantSeconds: 600, MaxCallSeconds: machineLongest})}
	rate := func(prefix string) models.DeckRate {
		return models.DeckRate{
			Prefix:           prefix,
			PerMinuteMicros:  rapid.SampledFrom([]int64{0, 1, 6_000, 9_999, 50_000}).Draw(rt, prefix+" price"),
			ConnectMicros:    rapid.SampledFrom([]int64{0, 0, 777, 5_000}).Draw(rt, prefix+" fee"),
			ConnectOn:        rapid.SampledFrom([]string{models.ConnectOnAnswer, models.ConnectOnAttempt}).Draw(rt, prefix+" fee on"),
			MinimumSeconds:   rapid.SampledFrom([]int{0, 30, 60}).Draw(rt, prefix+" minimum"),
			IncrementSeconds: rapid.SampledFrom([]int{1, 6, 25, 60}).Draw(rt, prefix+" increment"),
		}
	}
	newDeck(t, s, models.RateDeck{Name: models.NewID(models.PrefixDeck), IsDefault: true}, rate("1"), rate("44"))
	for range 2 {
		customer := &models.Customer{
			Name: "customer", BalanceMicros: rapid.Int64Range(0, 500_000).Draw(rt, "balance"),
			CreditLimitMicros: rapid.SampledFrom([]int64{0, 0, 100_000}).Draw(rt, "credit"),
		}
		require.NoError(rt, s.CreateCustomer(t.Context(), customer))
		m.wallets = append(m.wallets, &wallet{
			app: modelstest.Application(t, s, customer), balance: customer.BalanceMicros, credit: customer.CreditLimitMicros,
		})
	}
	return m
}

// price is what Rate.Cost is, reckoned another way.
func price(rate *models.Rate, answered bool, seconds int) int64 {
	if !answered {
		if rate.ConnectOn == models.ConnectOnAttempt {
			return rate.ConnectMicros
		}
		return 0
	}
	for seconds = max(seconds, rate.MinimumSeconds); seconds%rate.IncrementSeconds > 0; {
		seconds++
	}
	return rate.ConnectMicros + (int64(seconds)*rate.PerMinuteMicros+59)/60
}

// counted is for how many seconds a switch bills what was answered and ended.
func counted(answered *time.Time, ended time.Time) int {
	if answered == nil {
		return 0
	}
	return int(ended.Unix() - answered.Unix())
}

func (m *machine) wallet(rt *rapid.T) *wallet {
	return rapid.SampledFrom(m.wallets).Draw(rt, "customer")
}

// pick chooses one of the open calls for which there is something to do.
func (m *machine) pick(rt *rapid.T, fits func(*spoken) bool) (*wallet, *spoken) {
	var fitting []*spoken
	var owners []*wallet
	for _, w := range m.wallets {
		for _, call := range w.open {
			if fits(call) {
				fitting, owners = append(fitting, call), append(owners, w)
			}
		}
	}
	if len(fitting) == 0 {
		rt.Skip("no such call")
	}
	i := rapid.IntRange(0, len(fitting)-1).Draw(rt, "call")
	return owners[i], fitting[i]
}

func ringing(c *spoken) bool { return c.ended.IsZero() && c.row.AnsweredAt == nil }
func talking(c *spoken) bool { return c.ended.IsZero() && c.row.AnsweredAt != nil }

func (m *machine) payIn(rt *rapid.T) {
	w := m.wallet(rt)
	amount := rapid.Int64Range(0, 300_000).Draw(rt, "amount")
	for range rapid.IntRange(1, 2).Draw(rt, "times") {
		entry, err := m.s.Credit(m.t.Context(), w.app.CustomerID, fmt.Sprint("payment ", w.keys), models.LedgerTopup, amount, "")
		require.NoError(rt, err)
		require.Equal(rt, w.balance+amount, entry.BalanceMicros)
	}
	w.keys++
	w.balance += amount
}

func (m *machine) adjust(rt *rapid.T) {
	w := m.wallet(rt)
	amount := rapid.Int64Range(1, 200_000).Draw(rt, "amount")
	_, err := m.s.Credit(m.t.Context(), w.app.CustomerID, fmt.Sprint("adjustment ", w.keys), models.LedgerAdjust, -amount, "")
	w.keys++
	if amount > w.free() {
		require.ErrorIs(rt, err, models.ErrInsufficientBalance)
		return
	}
	require.NoError(rt, err)
	w.balance -= amount
}

// begun notes what a call that has begun holds.
func (m *machine) begun(rt *rapid.T, w *wallet, call *models.Call) *spoken {
	require.LessOrEqual(rt, call.HoldMicros, w.free())
	require.Equal(rt, price(call.Rate, true, call.GrantedSeconds), call.HoldMicros, "the hold is what the grant costs")
	w.held += call.HoldMicros
	spoken := &spoken{row: call}
	w.open = append(w.open, spoken)
	return spoken
}

// refused checks that a call is not paid for.
func (m *machine) refused(rt *rapid.T, w *wallet, maxSeconds int) {
	rate, err := m.rater.Quote(m.t.Context(), m.s, outbound(w.app.CustomerID))
	require.NoError(rt, err)
	least := min(machineLeast+rate.IncrementSeconds, machineLongest)
	if maxSeconds > 0 {
		least = min(least, maxSeconds)
	}
	require.Less(rt, w.free(), price(&rate, true, least), "refused although it could pay")
}

func (m *machine) create(rt *rapid.T) {
	w := m.wallet(rt)
	maxSeconds := rapid.SampledFrom([]int{0, 0, 20, 100}).Draw(rt, "longest")
	call, err := begin(m.t.Context(), m.s, m.rater, w.app, outbound(w.app.CustomerID), maxSeconds)
	if errors.Is(err, models.ErrInsufficientBalance) {
		m.refused(rt, w, maxSeconds)
		return
	}
	require.NoError(rt, err)
	begun := m.begun(rt, w, call)
	if rapid.Bool().Draw(rt, "answered at once") {
		m.pickUp(rt, begun)
	}
}

// createMany creates calls at once, while money comes.
func (m *machine) createMany(rt *rapid.T) {
	w := m.wallet(rt)
	amount := rapid.Int64Range(0, 20_000).Draw(rt, "amount")
	calls := make([]*models.Call, 4)
	var group errgroup.Group
	for i := range calls {
		group.Go(func() error {
			call, err := begin(m.t.Context(), m.s, m.rater, w.app, outbound(w.app.CustomerID), 0)
			if errors.Is(err, models.ErrInsufficientBalance) {
				return nil
			}
			calls[i] = call
			return err
		})
	}
	group.Go(func() error {
		_, err := m.s.Credit(m.t.Context(), w.app.CustomerID, fmt.Sprint("payment ", w.keys), models.LedgerTopup, amount, "")
		return err
	})
	require.NoError(rt, group.Wait())
	w.keys++
	w.balance += amount
	for _, call := range calls {
		if call != nil {
			m.begun(rt, w, call)
		}
	}
}

// queue makes a call that holds nothing until it is started.
func (m *machine) queue(rt *rapid.T) {
	w := m.wallet(rt)
	call := &models.Call{CustomerID: w.app.CustomerID, ApplicationID: w.app.ID, Direction: models.Outbound, Status: models.CallQueued, To: home}
	require.NoError(rt, m.s.CreateCall(m.t.Context(), call))
	w.queued = append(w.queued, &spoken{row: call})
}

// start starts a call that was queued. One that was started or canceled before is left as it is, and so is the balance.
func (m *machine) start(rt *rapid.T) {
	w := m.wallet(rt)
	calls := append(append(append([]*spoken{}, w.queued...), w.open...), w.closed...)
	if len(calls) == 0 {
		rt.Skip("no call")
	}
	i := rapid.IntRange(0, len(calls)-1).Draw(rt, "call")
	started := *calls[i].row
	err := m.s.InTx(m.t.Context(), func(tx *models.Store) error {
		reservation, err := m.rater.Reserve(m.t.Context(), tx, outbound(w.app.CustomerID), 0)
		if err != nil {
			return err
		}
		started.Status = models.CallDialing
		reservation.Give(&started)
		return tx.StartCall(m.t.Context(), &started)
	})
	switch {
	case errors.Is(err, models.ErrInsufficientBalance):
		m.refused(rt, w, 0)
	case i < len(w.queued):
		require.NoError(rt, err)
		w.queued = append(w.queued[:i:i], w.queued[i+1:]...)
		m.begun(rt, w, &started)
	default:
		require.ErrorIs(rt, err, models.ErrStale)
	}
}

func (m *machine) cancel(rt *rapid.T) {
	w := m.wallet(rt)
	if len(w.queued) == 0 {
		rt.Skip("none is queued")
	}
	call := w.queued[0]
	require.NoError(rt, m.rater.Settle(m.t.Context(), m.s, call.row, 0, false))
	w.queued, w.closed = w.queued[1:], append(w.closed, call)
}

func (m *machine) answer(rt *rapid.T) {
	_, call := m.pick(rt, ringing)
	m.pickUp(rt, call)
}

func (m *machine) pickUp(rt *rapid.T, call *spoken) {
	answer(m.t.Context(), rt, m.s, call.row, m.now)
	call.cap = m.now.Add(time.Duration(call.row.GrantedSeconds) * time.Second)
}

// timePasses lets the switch end the calls whose caps have come. Nobody hears of it yet.
func (m *machine) timePasses(rt *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.Int64Range(1, 200_000).Draw(rt, "milliseconds")) * time.Millisecond)
	for _, w := range m.wallets {
		for _, call := range w.open {
			if talking(call) && !call.cap.After(m.now) {
				call.end(call.cap)
			}
		}
	}
}
