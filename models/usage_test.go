package models_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"tandem/models"
	"tandem/models/modelstest"
)

// accountMachine settles calls with random bills, pays in and corrects, and keeps beside it what each customer must see.
type accountMachine struct {
	t     *testing.T
	s     *models.Store
	clock *modelstest.Clock
	// owners are two customers, of whom neither may see anything of the other.
	owners [2]*owner
}

// owner is a customer as the machine keeps it.
type owner struct {
	customer *models.Customer
	apps     []*models.Application
	trunks   []*models.Trunk
	settled  []settledCall
	entries  []entry
	payments int
}

// settledCall is a call as the machine settled it.
type settledCall struct {
	at             time.Time
	app, direction string
	lines          []models.Charge
}

type entry struct {
	at     time.Time
	kind   string
	amount int64
}

func newAccountMachine(t *testing.T, s *models.Store, clock *modelstest.Clock) *accountMachine {
	t.Helper()
	m := &accountMachine{t: t, s: s, clock: clock}
	for i := range m.owners {
		customer := modelstest.Customer(t, s, 1_000_000_000)
		m.owners[i] = &owner{customer: customer, entries: []entry{{clock.Now(), models.LedgerTopup, 1_000_000_000}}}
		for range 2 {
			m.owners[i].apps = append(m.owners[i].apps, modelstest.Application(t, s, customer))
			m.owners[i].trunks = append(m.owners[i].trunks, modelstest.OutboundTrunk(t, s, customer))
		}
	}
	return m
}

func (m *accountMachine) owner(rt *rapid.T) *owner {
	return m.owners[rapid.IntRange(0, 1).Draw(rt, "owner")]
}

func (m *accountMachine) settle(rt *rapid.T) {
	o := m.owner(rt)
	app := rapid.SampledFrom(o.apps).Draw(rt, "app")
	call := &models.Call{
		CustomerID: o.customer.ID, ApplicationID: app.ID, Status: models.CallInProgress, From: "+1", To: "+2",
		Direction: rapid.SampledFrom([]string{models.Outbound, models.Inbound}).Draw(rt, "direction"),
	}
	require.NoError(m.t, m.s.CreateCall(m.t.Context(), call))
	var lines []models.Charge
	cost := int64(0)
	for i := range rapid.IntRange(1, 3).Draw(rt, "legs") {
		line := models.Charge{
			CallID: call.ID, LegID: call.ID, CustomerID: o.customer.ID, Kind: models.ChargeCall, Target: "+2", Answered: rapid.Bool().Draw(rt, "answered"),
			Rate: models.Rate{
				Destination: rapid.SampledFrom([]string{"", "A", "B"}).Draw(rt, "destination"), Prefix: rapid.SampledFrom([]string{"", "31", "A"}).Draw(rt, "prefix"), PerMinuteMicros: rapid.Int64Range(0, 50_000).Draw(rt, "price"),
				ConnectMicros: rapid.Int64Range(0, 2).Draw(rt, "connect"), ConnectOn: models.ConnectOnAttempt, IncrementSeconds: rapid.SampledFrom([]int{1, 6, 60}).Draw(rt, "increment"),
			},
		}
		if i > 0 {
			line.LegID, line.Kind = fmt.Sprint("leg_", i), models.LegDial
		}
		if rapid.Bool().Draw(rt, "over a trunk") {
			line.TrunkID = &rapid.SampledFrom(o.trunks).Draw(rt, "trunk").ID
		}
		if line.Answered {
			line.BilledSeconds = rapid.IntRange(0, 200).Draw(rt, "seconds")
		}
		line.AmountMicros = line.Rate.Cost(line.Answered, line.BilledSeconds)
		cost += line.AmountMicros
		lines = append(lines, line)
	}
	if waived := cost / 10; rapid.Bool().Draw(rt, "waive") && waived > 0 {
		lines = append(lines, models.Charge{CallID: call.ID, LegID: models.ChargeWaived, CustomerID: o.customer.ID, Kind: models.ChargeWaived, AmountMicros: -waived})
		cost -= waived
	}
	// Whichever comes first, and however late, all have the time of the settlement.
	linesFirst := rapid.Bool().Draw(rt, "lines first")
	require.NoError(m.t, m.s.InTx(m.t.Context(), func(tx *models.Store) error {
		if linesFirst {
			if err := tx.AddCharges(m.t.Context(), slices.Clone(lines)); err != nil {
				return err
			}
			m.clock.Advance(time.Hour)
			_, err := tx.SettleHold(m.t.Context(), o.customer.ID, call.ID, 0, cost)
			return err
		}
		if _, err := tx.SettleHold(m.t.Context(), o.customer.ID, call.ID, 0, cost); err != nil {
			return err
		}
		m.clock.Advance(time.Hour)
		return tx.AddCharges(m.t.Context(), slices.Clone(lines))
	}))
	stored, err := m.s.CallByID(m.t.Context(), call.ID)
	require.NoError(m.t, err)
	o.settled = append(o.settled, settledCall{*stored.SettledAt, app.ID, call.Direction, lines})
	if cost != 0 {
		o.entries = append(o.entries, entry{*stored.SettledAt, models.LedgerCall, -cost})
	}
}

func (m *accountMachine) pay(rt *rapid.T) {
	o := m.owner(rt)
	o.payments++
	kind, amount := models.LedgerTopup, rapid.Int64Range(1, 1_000_000).Draw(rt, "amount")
	if rapid.Bool().Draw(rt, "adjust") {
		kind, amount = models.LedgerAdjust, rapid.Int64Range(-1_000, 1_000).Draw(rt, "adjustment")
	}
	_, err := m.s.Credit(m.t.Context(), o.customer.ID, fmt.Sprint("k", o.payments), kind, amount, "")
	require.NoError(m.t, err)
	o.entries = append(o.entries, entry{m.clock.Now(), kind, amount})
}

func (m *accountMachine) wait(rt *rapid.T) {
	m.clock.Advance(time.Duration(rapid.Int64Range(1, (40*24*time.Hour).Microseconds()).Draw(rt, "time")) * time.Microsecond)
}

// check compares what the store says of a random time with what the machine kept.
func (m *accountMachine) check(rt *rapid.T) {
	ctx := m.t.Context()
	o := m.owner(rt)
	moments := []time.Time{o.entries[0].at, m.clock.Now().Add(time.Microsecond)}
	for _, e := range o.entries {
		moments = append(moments, e.at, e.at.Add(time.Microsecond))
	}
	from, before := rapid.SampledFrom(moments).Draw(rt, "from"), rapid.SampledFrom(moments).Draw(rt, "before")
	within := func(at time.Time) bool { return !at.Before(from) && at.Before(before) }
	debits := int64(0)
	for _, e := range o.entries {
		if e.kind == models.LedgerCall && within(e.at) {
			debits -= e.amount
		}
	}
	for by, key := range map[string]func(c *settledCall, line *models.Charge) (string, bool){
		models.UsageByDay: func(c *settledCall, l *models.Charge) (string, bool) {
			return c.at.Format(time.DateOnly), l.Kind == models.ChargeCall
		},
		models.UsageByApplication: func(c *settledCall, l *models.Charge) (string, bool) { return c.app, l.Kind == models.ChargeCall },
		models.UsageByDirection:   func(c *settledCall, l *models.Charge) (string, bool) { return c.direction, l.Kind == models.ChargeCall },
		models.UsageByDestination: func(_ *settledCall, l *models.Charge) (string, bool) {
			return cmp.Or(l.Rate.Destination, l.Rate.Prefix), l.Kind != models.ChargeWaived
		},
		models.UsageByTrunk: func(_ *settledCall, l *models.Charge) (string, bool) {
			if l.TrunkID == nil {
				return "", l.Kind != models.ChargeWaived
			}
			return *l.TrunkID, true
		},
	} {
		want := map[string]models.UsageRow{}
		for i := range o.settled {
			c := &o.settled[i]
			if !within(c.at) {
				continue
			}
			for j := range c.lines {
				line := &c.lines[j]
				name, counts := key(c, line)
				row := want[name]
				row.Key = name
				row.CostMicros += line.AmountMicros
				if counts {
					row.Calls++
				}
				if counts && line.Answered {
					increment := line.Rate.IncrementSeconds
					row.Answered++
					row.Seconds += int64(line.BilledSeconds)
					row.ChargedSeconds += int64((line.BilledSeconds + increment - 1) / increment * increment)
				}
				want[name] = row
			}
		}
		rows, err := m.s.Usage(ctx, o.customer.ID, by, from, before)
		require.NoError(m.t, err)
		got, cost := map[string]models.UsageRow{}, int64(0)
		for _, row := range rows {
			cost += row.CostMicros
			row.Name = ""
			got[row.Key] = row
		}
		require.Equal(m.t, want, got, "by %s from %s before %s", by, from, before)
		require.Equal(m.t, debits, cost, by)
	}
	m.checkLedger(o, from, before, within)
	m.checkStatements(o)
}

func (m *accountMachine) checkLedger(o *owner, from, before time.Time, within func(time.Time) bool) {
	rows, next, err := m.s.ListLedger(m.t.Context(), o.customer.ID, models.LedgerFilter{From: &from, Before: &before}, models.Page{Limit: models.MaxPageLimit})
	require.NoError(m.t, err)
	require.Empty(m.t, next)
	want := []int64{}
	for _, e := range slices.Backward(o.entries) {
		if within(e.at) {
			want = append(want, e.amount)
		}
	}
	got := []int64{}
	for _, row := range rows {
		got = append(got, row.AmountMicros)
	}
	require.Equal(m.t, want, got)
}

func (m *accountMachine) checkStatements(o *owner) {
	months, err := m.s.Statements(m.t.Context(), o.customer.ID)
	require.NoError(m.t, err)
	customer, err := m.s.Customer(m.t.Context(), o.customer.ID)
	require.NoError(m.t, err)
	require.Equal(m.t, customer.BalanceMicros, months[0].ClosingMicros)
	require.Equal(m.t, models.MonthOf(m.clock.Now()), months[0].Month)
	require.Zero(m.t, months[len(months)-1].OpeningMicros)
	for i, month := range months {
		sums := map[string]int64{}
		for _, e := range o.entries {
			if models.MonthOf(e.at).Equal(month.Month) {
				sums[e.kind] += e.amount
			}
		}
		require.Equal(m.t, []int64{sums[models.LedgerTopup], sums[models.LedgerAdjust], sums[models.LedgerCall]}, []int64{month.TopupMicros, month.AdjustMicros, month.CallMicros})
		require.Equal(m.t, month.ClosingMicros, month.OpeningMicros+month.TopupMicros+month.AdjustMicros+month.CallMicros)
		if i > 0 {
			require.Equal(m.t, month.ClosingMicros, months[i-1].OpeningMicros)
			require.Equal(m.t, month.Month, months[i-1].Month.AddDate(0, -1, 0))
		}
	}
	some := months[len(months)/2]
	one, err := m.s.StatementOf(m.t.Context(), o.customer.ID, some.Month.Add(36*time.Hour))
	require.NoError(m.t, err)
	require.Equal(m.t, some, *one, "alone as among the others")
}

// TestUsageAndStatementsAddUp settles and pays at random and holds usage, ledger and statements of two customers to a reckoning of its own.
func TestUsageAndStatementsAddUp(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		rapid.Check(t, func(rt *rapid.T) {
			m := newAccountMachine(t, s, clock)
			rt.Repeat(map[string]func(*rapid.T){"settle": m.settle, "settle more": m.settle, "pay": m.pay, "wait": m.wait, "check": m.check})
			m.check(rt)
		})
	})
}

// TestLedgerPagesUnderWriters walks a ledger in pages while others write to it: nothing is seen twice, nothing that was there is missed, and each balance is
// the one before it and the entry's own amount.
func TestLedgerPagesUnderWriters(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		customer := modelstest.Customer(t, s, 1_000)
		app := modelstest.Application(t, s, customer)
		write := func(store *models.Store, name string, n int) error {
			for i := range n {
				if _, err := store.Credit(t.Context(), customer.ID, fmt.Sprint(name, i), models.LedgerTopup, int64(i+1), ""); err != nil {
					return err
				}
				call, err := heldCall(t, store, app, 3)
				if err != nil {
					return err
				}
				if _, err := store.SettleHold(t.Context(), customer.ID, call.ID, 3, 2); err != nil {
					return err
				}
			}
			return nil
		}
		require.NoError(t, write(s, "before", 20))
		var group errgroup.Group
		for i, store := range []*models.Store{s, other} {
			group.Go(func() error { return write(store, fmt.Sprint("beside", i), 15) })
		}
		walk := func() []models.LedgerEntry {
			var all []models.LedgerEntry
			page := models.Page{Limit: 7}
			for {
				rows, next, err := s.ListLedger(t.Context(), customer.ID, models.LedgerFilter{}, page)
				require.NoError(t, err)
				all = append(all, rows...)
				if page.Cursor = next; next == "" {
					return all
				}
			}
		}
		check := func(all []models.LedgerEntry) {
			t.Helper()
			require.GreaterOrEqual(t, len(all), 41)
			for i, row := range all {
				require.Equal(t, int64(len(all)-i), row.Seq, "no gaps")
				before := int64(0)
				if i+1 < len(all) {
					before = all[i+1].BalanceMicros
				}
				require.Equal(t, row.BalanceMicros, before+row.AmountMicros)
			}
		}
		for range 5 {
			check(walk())
		}
		require.NoError(t, group.Wait())
		all := walk()
		require.Len(t, all, 1+2*(20+2*15))
		check(all)
		_, _, err := s.ListLedger(t.Context(), customer.ID, models.LedgerFilter{}, models.Page{Cursor: "x"})
		require.ErrorIs(t, err, models.ErrBadCursor)
	})
}
