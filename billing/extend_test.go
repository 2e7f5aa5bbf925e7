package billing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/billing"
	"tandem/models"
	"tandem/models/modelstest"
)

var perMinute = models.Rate{PerMinuteMicros: 6_000, IncrementSeconds: 60}

// talk is a call that was answered some time ago at a minute's price, with what it holds of a balance.
type talk struct {
	s        *models.Store
	rater    *billing.Rater
	customer *models.Customer
	call     *models.Call
	now      time.Time
	account  *billing.Account
	limit    time.Time
}

// newTalk has a call be answered so many seconds ago, which holds what two minutes cost, and leaves some of the balance free.
func newTalk(t testing.TB, s *models.Store, answered int, free int64) *talk {
	t.Helper()
	rater := newRater(t, billing.Config{OutboundPerMinuteMicros: perMinute.PerMinuteMicros, MaxGrantSeconds: 600, MaxCallSeconds: 3600})
	customer := modelstest.Customer(t, s, 12_000)
	call := mustBegin(t, s, rater, modelstest.Application(t, s, customer))
	require.Equal(t, []int64{120, 12_000}, []int64{int64(call.GrantedSeconds), call.HoldMicros})
	_, err := s.Credit(t.Context(), customer.ID, "free", models.LedgerTopup, free, "")
	require.NoError(t, err)
	since := noon.Add(-time.Duration(answered) * time.Second)
	return &talk{
		s: s, rater: rater, customer: customer, call: call, now: noon, limit: since.Add(time.Hour),
		account: &billing.Account{Legs: []billing.Running{{Rate: perMinute, Since: since}}},
	}
}

func (k *talk) extend(ctx context.Context, greedy bool) (billing.Extension, error) {
	var next billing.Extension
	err := k.s.InTx(ctx, func(tx *models.Store) (err error) {
		call := *k.call
		if next, err = k.rater.Extend(ctx, tx, &call, k.account, k.now, k.limit, greedy); err == nil {
			k.call = &call
		}
		return err
	})
	return next, err
}

// until is a moment in seconds after the call's answer.
func (k *talk) until(seconds int) time.Time {
	return k.account.Legs[0].Since.Add(time.Duration(seconds) * time.Second)
}

// TestExtend extends a call that holds two minutes 100 seconds after its answer. The least is then until 220 s, for which four minutes are paid.
func TestExtend(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		free    int64
		modest  bool
		limit   int
		until   int
		hold    int64
		last    bool
		refused bool
	}{
		"a hundredth pays for the most":              {free: 10_000_000, until: 720, hold: 72_000},
		"all of it, where it is asked not to":        {free: 10_000_000, modest: true, until: 240, hold: 24_000},
		"a hundredth pays for five minutes more":     {free: 3_000_000, until: 420, hold: 42_000},
		"a hundredth pays for less than the least":   {free: 599_999, until: 240, hold: 24_000},
		"just the least":                             {free: 12_000, until: 240, hold: 24_000},
		"less than the least":                        {free: 11_999, until: 180, hold: 18_000, last: true},
		"a minute":                                   {free: 6_000, until: 180, hold: 18_000, last: true},
		"less than a minute":                         {free: 5_999, refused: true},
		"nothing":                                    {refused: true},
		"the longest call":                           {free: 10_000_000, limit: 150, until: 150, hold: 18_000},
		"the longest call, which is paid for":        {free: 10_000_000, limit: 115, until: 115, hold: 12_000},
		"the longest call within the minute held":    {limit: 120, until: 120, hold: 12_000},
		"the longest call within the last minute":    {free: 6_000, limit: 170, until: 170, hold: 18_000},
		"the longest call, which is not paid for":    {free: 5_000, limit: 170, refused: true},
		"the most ends within a minute, all is used": {free: 50_000_000, limit: 690, until: 690, hold: 72_000},
	} {
		modelstest.Run(t, name, func(t *testing.T, s *models.Store) {
			k := newTalk(t, s, 100, test.free)
			if test.limit > 0 {
				k.limit = k.until(test.limit)
			}
			next, err := k.extend(t.Context(), !test.modest)
			if test.refused {
				require.ErrorIs(t, err, models.ErrInsufficientBalance)
				requireMoney(t, s, k.customer.ID, 12_000+test.free, 12_000)
				return
			}
			require.NoError(t, err)
			require.Equal(t, billing.Extension{HoldMicros: test.hold, Until: k.until(test.until), Last: test.last}, next)
			require.Equal(t, test.hold, k.call.HoldMicros)
			requireMoney(t, s, k.customer.ID, 12_000+test.free, test.hold)
			until, _ := k.rater.Covers(k.call, k.account, k.now, k.limit)
			require.Equal(t, next.Until, until, "all that is held for is granted")
		})
	}
}

// TestExtendUsesUpWhatIsPaidFor extends a call to its last paid minute: the switch must not end it within that one.
func TestExtendUsesUpWhatIsPaidFor(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		k := newTalk(t, s, 100, 12_000)
		next, err := k.extend(t.Context(), true)
		require.NoError(t, err)
		require.Equal(t, k.until(240), next.Until, "four minutes are paid for")
		k.now = k.until(220)
		_, err = k.extend(t.Context(), true)
		require.ErrorIs(t, err, models.ErrInsufficientBalance)
		until, enough := k.rater.Covers(k.call, k.account, k.now, k.limit)
		require.Equal(t, []any{next.Until, false}, []any{until, enough})
	})
}

// TestCovers says until when a hold lasts with another party, and when that is enough to go on with.
func TestCovers(t *testing.T) {
	t.Parallel()
	s := modelstest.Open(t)
	k := newTalk(t, s, 0, 0)
	until, enough := k.rater.Covers(k.call, k.account, k.now, k.limit)
	require.Equal(t, []any{k.until(120), true}, []any{until, enough}, "the least")
	until, enough = k.rater.Covers(k.call, k.account, k.now.Add(time.Second), k.limit)
	require.Equal(t, []any{k.until(120), false}, []any{until, enough})
	until, enough = k.rater.Covers(k.call, k.account, k.now.Add(time.Second), k.until(90))
	require.Equal(t, []any{k.until(90), true}, []any{until, enough}, "it may not last longer")
	k.account.Legs = append(k.account.Legs, billing.Running{Rate: perMinute, Since: k.now})
	until, enough = k.rater.Covers(k.call, k.account, k.now, k.limit)
	require.Equal(t, []any{k.until(60), false}, []any{until, enough}, "for two it lasts half as long")
}

// TestExtendGivesBack has a party leave: what was held for it pays for the others, and at the longest call the rest is free again.
func TestExtendGivesBack(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		k := newTalk(t, s, 100, 88_000)
		k.account.Legs = append(k.account.Legs, billing.Running{Rate: perMinute, Since: k.now})
		next, err := k.extend(t.Context(), false)
		require.NoError(t, err)
		require.Equal(t, billing.Extension{HoldMicros: 36_000, Until: k.until(220)}, next, "four minutes, and two of the party")
		k.account.SpentMicros, k.account.Legs = 6_000, k.account.Legs[:1]
		until, enough := k.rater.Covers(k.call, k.account, k.now, k.limit)
		require.Equal(t, []any{k.until(300), true}, []any{until, enough}, "a minute is spent, five are held")
		k.limit = k.until(200)
		next, err = k.extend(t.Context(), true)
		require.NoError(t, err)
		require.Equal(t, billing.Extension{HoldMicros: 30_000, Until: k.until(200)}, next)
		requireMoney(t, s, k.customer.ID, 100_000, 30_000)
	})
}

// TestExtendAgainstOthers has others take the balance between the reading and the end of the transaction.
func TestExtendAgainstOthers(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		if s.Dialect() == models.DialectSQLite {
			t.Skip("there, nobody else writes meanwhile")
		}
		k := newTalk(t, s, 100, 1_200_000)
		before := *k.call
		err := s.InTx(t.Context(), func(tx *models.Store) error {
			call := *k.call
			if _, err := k.rater.Extend(t.Context(), tx, &call, k.account, k.now, k.limit, true); err != nil {
				return err
			}
			return other.Hold(t.Context(), k.customer.ID, 1_195_000)
		})
		require.ErrorIs(t, err, models.ErrBalanceTaken)
		require.ErrorIs(t, err, models.ErrInsufficientBalance)
		stored, err := s.CallByID(t.Context(), k.call.ID)
		require.NoError(t, err)
		require.Equal(t, before.HoldMicros, stored.HoldMicros, "nothing is half done")
		_, err = k.extend(t.Context(), false)
		require.ErrorIs(t, err, models.ErrInsufficientBalance, "and there is nothing left")
	})
}

// TestExtendOfWhatIsOver does not hold for a call that was settled meanwhile, nor by a copy from before an extension.
func TestExtendOfWhatIsOver(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		k := newTalk(t, s, 100, 600_000)
		old := *k.call
		_, err := k.extend(t.Context(), true)
		require.NoError(t, err)
		k.call = &old
		_, err = k.extend(t.Context(), true)
		require.ErrorIs(t, err, models.ErrStale)
		held, err := s.CallByID(t.Context(), old.ID)
		require.NoError(t, err)
		require.NoError(t, k.rater.Settle(t.Context(), s, held, 100, true))
		k.call = held
		_, err = k.extend(t.Context(), true)
		require.ErrorIs(t, err, models.ErrStale)
		requireSound(t, s)
	})
}

// TestExtendHoldsWhatMayBeBilled extends random calls: what is held covers all until the moment that is granted, not a second of which is missing.
func TestExtendHoldsWhatMayBeBilled(t *testing.T) {
	t.Parallel()
	s := modelstest.Open(t)
	rapid.Check(t, func(rt *rapid.T) {
		k := newTalk(t, s, 0, rapid.OneOf(rapid.Int64Range(0, 100_000), rapid.Int64Range(0, 1e9)).Draw(rt, "free"))
		k.account = anyAccount(rt, k.now)
		k.account.Legs = append(k.account.Legs, billing.Running{Rate: perMinute, Since: k.now})
		k.limit = k.account.Legs[0].Since.Add(time.Duration(rapid.IntRange(301, 3600).Draw(rt, "longest")) * time.Second)
		before := k.account.Until(k.call.HoldMicros, k.now, k.limit)
		free := k.free(t)
		next, err := k.extend(t.Context(), rapid.Bool().Draw(rt, "greedy"))
		if errors.Is(err, models.ErrInsufficientBalance) {
			require.Greater(rt, k.account.Cost(before.Add(time.Second)), k.call.HoldMicros+free, "it could have gone on")
			return
		}
		require.NoError(rt, err)
		require.Equal(rt, k.call.HoldMicros, next.HoldMicros)
		require.Equal(rt, k.account.Cost(next.Until), next.HoldMicros)
		require.False(rt, next.Until.Before(before) || next.Until.After(k.limit))
		if next.Until.Before(k.limit) {
			require.Greater(rt, k.account.Cost(next.Until.Add(time.Second)), next.HoldMicros, "a second that is paid for is not granted")
		}
	})
	requireSound(t, s)
}

func (k *talk) free(t testing.TB) int64 {
	t.Helper()
	customer, err := k.s.Customer(t.Context(), k.customer.ID)
	require.NoError(t, err)
	return customer.FreeMicros()
}

// TestRepromise gives a call that goes another way another rate, and holds what that costs, and what its first attempt has.
func TestRepromise(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rate  models.Rate
		spent int64
		hold  int64
	}{
		"dearer":        {models.Rate{PerMinuteMicros: 12_000, IncrementSeconds: 60}, 0, 24_000},
		"cheaper":       {models.Rate{PerMinuteMicros: 600, IncrementSeconds: 1}, 0, 1_200},
		"free":          {models.Rate{IncrementSeconds: 1}, 0, 0},
		"after a fee":   {perMinute, 500, 12_500},
		"all there is":  {models.Rate{PerMinuteMicros: 15_000, IncrementSeconds: 60}, 2_000, 32_000},
		"too dear":      {models.Rate{PerMinuteMicros: 15_000, IncrementSeconds: 60}, 2_001, -1},
		"by increments": {models.Rate{PerMinuteMicros: 6_000, IncrementSeconds: 90}, 0, 18_000},
	} {
		modelstest.Run(t, name, func(t *testing.T, s *models.Store) {
			k := newTalk(t, s, 0, 20_000)
			err := s.InTx(t.Context(), func(tx *models.Store) error { return k.rater.Repromise(t.Context(), tx, k.call, test.rate, test.spent) })
			if test.hold < 0 {
				require.ErrorIs(t, err, models.ErrInsufficientBalance)
				require.Equal(t, perMinute, *k.call.Rate)
				requireMoney(t, s, k.customer.ID, 32_000, 12_000)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []any{test.rate, test.rate.PerMinuteMicros, test.hold}, []any{*k.call.Rate, k.call.PricePerMinuteMicros, k.call.HoldMicros})
			requireMoney(t, s, k.customer.ID, 32_000, test.hold)
		})
	}
}

// A call that was granted long because it was free, or cheap, holds no more of the balance at its new rate than any other.
func TestRepromiseOfALongGrant(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		for name, test := range map[string]struct {
			free    int64
			granted int
			seconds int
		}{
			"the least":                {500_000, 600, 120},
			"a hundredth":              {3_000_000, 600, 420},
			"no longer than before":    {60_000_000, 600, 600},
			"as short as it was":       {1_000_000, 30, 30},
			"what is held pays for it": {0, 120, 120},
		} {
			k := newTalk(t, s, 0, test.free)
			k.call.GrantedSeconds = test.granted
			require.NoError(t, s.InTx(t.Context(), func(tx *models.Store) error { return k.rater.Repromise(t.Context(), tx, k.call, perMinute, 0) }), name)
			require.Equal(t, []int64{int64(test.seconds), perMinute.Cost(true, test.seconds)}, []int64{int64(k.call.GrantedSeconds), k.call.HoldMicros}, name)
		}
	})
}

// A call that goes another way is granted no longer than it may last there.
func TestRepromiseKeepsToTheLongestCall(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		k := newTalk(t, s, 0, 20_000)
		k.call.MaxSeconds = 45
		require.NoError(t, s.InTx(t.Context(), func(tx *models.Store) error { return k.rater.Repromise(t.Context(), tx, k.call, perMinute, 0) }))
		require.Equal(t, []int64{45, 6_000}, []int64{int64(k.call.GrantedSeconds), k.call.HoldMicros})
	})
}
