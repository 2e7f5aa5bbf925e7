package billing_test

import (
	"errors"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/billing"
	"tandem/models"
)

// end ends a call with all of its parties, on the switch.
func (c *spoken) end(at time.Time) {
	c.ended = at
	for _, p := range c.parties {
		if p.ended.IsZero() {
			p.ended = at
		}
	}
}

// account is what a call costs as it goes on, as its controller reckons it.
func (m *machine) account(c *spoken, more ...billing.Running) *billing.Account {
	account := &billing.Account{Legs: []billing.Running{{Rate: *c.row.Rate, Since: *c.row.AnsweredAt}}}
	for _, p := range c.parties {
		switch {
		case !p.ended.IsZero():
			account.SpentMicros += billing.LegCost(&p.row)
		case p.row.AnsweredAt != nil:
			more = append(more, billing.Running{Rate: *p.row.Rate, Since: *p.row.AnsweredAt})
		default:
			more = append(more, billing.Running{Rate: *p.row.Rate, Since: m.now})
		}
	}
	account.Legs = append(account.Legs, more...)
	return account
}

// lengthen holds more for a call and moves its cap, in one transaction.
func (m *machine) lengthen(rt *rapid.T, w *wallet, c *spoken, account *billing.Account, limit time.Time) error {
	greedy := rapid.Bool().Draw(rt, "greedy")
	call, free := *c.row, w.free()
	var next billing.Extension
	err := m.s.InTx(m.t.Context(), func(tx *models.Store) (err error) {
		next, err = m.rater.Extend(m.t.Context(), tx, &call, account, m.now, limit, greedy)
		return err
	})
	if err != nil {
		return err
	}
	require.LessOrEqual(rt, next.HoldMicros-c.row.HoldMicros, free)
	w.held += next.HoldMicros - c.row.HoldMicros
	c.row.HoldMicros, c.cap = call.HoldMicros, next.Until
	return nil
}

// callParty dials a party when what is held pays for it, too, or more can be held.
func (m *machine) callParty(rt *rapid.T) {
	w, call := m.pick(rt, talking)
	rate, err := m.rater.Quote(m.t.Context(), m.s, billing.Leg{CustomerID: w.app.CustomerID, Direction: models.Outbound, Number: abroad})
	require.NoError(rt, err)
	account := m.account(call, billing.Running{Rate: rate, Since: m.now})
	limit := account.Legs[0].Since.Add(m.rater.Longest(call.row))
	if until, enough := m.rater.Covers(call.row, account, m.now, limit); !enough {
		if err := m.lengthen(rt, w, call, account, limit); errors.Is(err, models.ErrInsufficientBalance) {
			return
		}
		require.NoError(rt, err)
	} else if until.Before(call.cap) {
		call.cap = until
	}
	leg := addLeg(m.t.Context(), rt, m.s, call.row, models.Leg{Rate: &rate, Status: models.LegDialing})
	p := &party{row: *leg}
	call.parties = append(call.parties, p)
	if rapid.Bool().Draw(rt, "answered at once") {
		m.pickUpParty(rt, p)
	}
}

func (m *machine) party(rt *rapid.T, fits func(*party) bool) *party {
	fitting := func(p *party) bool { return p.ended.IsZero() && fits(p) }
	_, call := m.pick(rt, func(c *spoken) bool { return talking(c) && slices.ContainsFunc(c.parties, fitting) })
	return call.parties[slices.IndexFunc(call.parties, fitting)]
}

func (m *machine) partyTalks(rt *rapid.T) {
	m.pickUpParty(rt, m.party(rt, func(p *party) bool { return p.row.AnsweredAt == nil }))
}

func (m *machine) pickUpParty(rt *rapid.T, p *party) {
	at := m.now
	p.row.AnsweredAt, p.row.Status = &at, models.LegAnswered
	require.NoError(rt, m.s.SaveLeg(m.t.Context(), &p.row))
}

func (m *machine) partyLeaves(rt *rapid.T) {
	p := m.party(rt, func(*party) bool { return true })
	p.ended = m.now
	if p.row.AnsweredAt == nil {
		p.row.SIPCode = rapid.SampledFrom([]int{0, 486}).Draw(rt, "status")
	}
	m.store(rt, p)
}

// store stores how a party ended.
func (m *machine) store(rt *rapid.T, p *party) {
	p.row.Status, p.row.EndedAt, p.row.BilledSeconds = models.LegEnded, &p.ended, counted(p.row.AnsweredAt, p.ended)
	require.NoError(rt, m.s.SaveLeg(m.t.Context(), &p.row))
}

func (m *machine) extend(rt *rapid.T) {
	w, call := m.pick(rt, talking)
	account := m.account(call)
	limit := account.Legs[0].Since.Add(m.rater.Longest(call.row))
	until, enough := m.rater.Covers(call.row, account, m.now, limit)
	if enough {
		if until.After(call.cap) {
			call.cap = until
		}
		return
	}
	if err := m.lengthen(rt, w, call, account, limit); !errors.Is(err, models.ErrInsufficientBalance) {
		require.NoError(rt, err)
		return
	}
	require.Greater(rt, account.Cost(until.Add(time.Second)), call.row.HoldMicros+w.free(), "it could have gone on")
}

func (m *machine) hangUp(rt *rapid.T) {
	w, call := m.pick(rt, func(c *spoken) bool { return c.ended.IsZero() })
	call.end(m.now)
	if rapid.Bool().Draw(rt, "heard of at once") {
		m.charge(rt, w, call)
	}
}

// overrun has the switch end a call long after its cap.
func (m *machine) overrun(rt *rapid.T) {
	_, call := m.pick(rt, talking)
	call.late = true
	call.end(call.cap.Add(time.Duration(rapid.IntRange(1, 300).Draw(rt, "seconds")) * time.Second))
}

// settle charges a call that has ended, as its hangup or its CDR says.
func (m *machine) settle(rt *rapid.T) {
	w, call := m.pick(rt, func(c *spoken) bool { return !c.ended.IsZero() })
	m.charge(rt, w, call)
}

func (m *machine) charge(rt *rapid.T, w *wallet, call *spoken) {
	attempted := rapid.Bool().Draw(rt, "attempted")
	seconds := counted(call.row.AnsweredAt, call.ended)
	own, cost := call.row.AnsweredAt != nil, int64(0)
	if own || attempted {
		cost = price(call.row.Rate, own, seconds)
	}
	for _, p := range call.parties {
		if p.row.Status != models.LegEnded {
			m.store(rt, p)
		}
		if p.row.AnsweredAt != nil || p.row.SIPCode > 0 {
			cost += price(p.row.Rate, p.row.AnsweredAt != nil, p.row.BilledSeconds)
		}
	}
	if !call.late {
		require.LessOrEqual(rt, cost, call.row.HoldMicros, "what is held covers what the switch has billed")
	}
	hold := call.row.HoldMicros
	covered := min(cost, hold+w.free())
	require.NoError(rt, m.rater.Settle(m.t.Context(), m.s, call.row, seconds, attempted))
	require.Equal(rt, covered, call.row.CostMicros)
	m.checkBill(rt, call, cost)
	w.balance -= covered
	w.held -= hold
	for i := range w.open {
		if w.open[i] == call {
			w.open = append(w.open[:i:i], w.open[i+1:]...)
			break
		}
	}
	w.closed = append(w.closed, call)
}

// checkBill holds the lines of a bill against what the switch billed, and what is waived of them.
func (m *machine) checkBill(rt *rapid.T, call *spoken, cost int64) {
	lines, err := m.s.ChargesOf(m.t.Context(), call.row.CustomerID, call.row.ID)
	require.NoError(rt, err)
	var billed, waived int64
	for i := range lines {
		if lines[i].Kind == models.ChargeWaived {
			waived -= lines[i].AmountMicros
			continue
		}
		billed += lines[i].AmountMicros
	}
	require.Equal(rt, []int64{cost, cost - call.row.CostMicros}, []int64{billed, waived})
}

// settleTwice brings the end of a call once more, with other seconds.
func (m *machine) settleTwice(rt *rapid.T) {
	w := m.wallet(rt)
	if len(w.closed) == 0 {
		rt.Skip("no settled call")
	}
	call := *rapid.SampledFrom(w.closed).Draw(rt, "call").row
	require.ErrorIs(rt, m.rater.Settle(m.t.Context(), m.s, &call, rapid.IntRange(0, 600).Draw(rt, "seconds"), true), models.ErrStale)
}

// die settles, extends and reserves in a transaction that is not kept.
func (m *machine) die(rt *rapid.T) {
	w := m.wallet(rt)
	died := errors.New("died before the commit")
	err := m.s.InTx(m.t.Context(), func(tx *models.Store) error {
		for i, call := range w.open {
			copied := *call.row
			if i%2 == 0 && talking(call) {
				if _, err := m.rater.Extend(m.t.Context(), tx, &copied, m.account(call), m.now, m.now.Add(time.Hour), true); err != nil {
					return errors.Join(died, err)
				}
				continue
			}
			if err := m.rater.Settle(m.t.Context(), tx, &copied, 10, true); err != nil {
				return err
			}
		}
		_, err := m.rater.Reserve(m.t.Context(), tx, outbound(w.app.CustomerID), 0)
		return errors.Join(died, err)
	})
	require.ErrorIs(rt, err, died)
}

func (m *machine) check(rt *rapid.T) {
	for _, w := range m.wallets {
		customer, err := m.s.Customer(m.t.Context(), w.app.CustomerID)
		require.NoError(rt, err)
		require.Equal(rt, []int64{w.balance, w.held}, []int64{customer.BalanceMicros, customer.HeldMicros}, "balance and hold")
		require.GreaterOrEqual(rt, customer.HeldMicros, int64(0))
		require.GreaterOrEqual(rt, customer.FreeMicros(), int64(0))
		var held int64
		for _, call := range w.open {
			held += call.row.HoldMicros
			if talking(call) {
				require.LessOrEqual(rt, m.account(call).Cost(call.cap), call.row.HoldMicros, "a call holds what it may have cost when the switch ends it")
			}
		}
		require.Equal(rt, held, customer.HeldMicros)
	}
}
