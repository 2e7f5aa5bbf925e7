package billing_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/billing"
	"tandem/models"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// TestAccountCost has a call of two legs, answered at different moments.
func TestAccountCost(t *testing.T) {
	t.Parallel()
	perMinute := models.Rate{PerMinuteMicros: 6_000, IncrementSeconds: 60}
	perSecond := models.Rate{PerMinuteMicros: 600, ConnectMicros: 5, IncrementSeconds: 1}
	account := billing.Account{SpentMicros: 1_000, Legs: []billing.Running{{Rate: perMinute, Since: noon}, {Rate: perSecond, Since: noon.Add(seconds(30.5))}}}
	for _, test := range []struct {
		at   float64
		want int64
	}{
		{-5, 1_005},         // a fee is due as soon as somebody answers
		{0, 1_005},          //
		{0.000001, 7_005},   // a second begun may be counted
		{30.5, 7_005},       //
		{30.6, 7_015},       //
		{60, 7_305},         // 29.5 s of the second leg count 30
		{60.5, 13_305},      // 61 s, and 30 s
		{60.500001, 13_315}, // 61 s, and 31 s
		{120, 13_905},       // 120 s, and 90 s
	} {
		require.Equal(t, test.want, account.Cost(noon.Add(seconds(test.at))), "after %v s", test.at)
	}
	require.Equal(t, int64(7), (&billing.Account{SpentMicros: 7}).Cost(noon))

	huge := models.Rate{ConnectMicros: math.MaxInt64 - 3, IncrementSeconds: 1}
	account = billing.Account{SpentMicros: 3, Legs: []billing.Running{{Rate: huge, Since: noon}}}
	require.Equal(t, int64(math.MaxInt64), account.Cost(noon))
	account.Legs = append(account.Legs, account.Legs[0])
	require.Equal(t, int64(math.MaxInt64), account.Cost(noon), "never around the corner")
}

// TestAccountCovers what the switch may count: it takes the whole seconds of its clock at both ends, wherever in a second they lie.
func TestAccountCoversWhatTheSwitchCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		answered := noon.Add(time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "answered")))
		ended := answered.Add(time.Duration(rapid.Int64Range(0, 1e11).Draw(t, "lasted")))
		rate := anyRate(t, "the")
		account := billing.Account{Legs: []billing.Running{{Rate: rate, Since: answered}}}
		require.GreaterOrEqual(t, account.Cost(ended), rate.Cost(true, int(ended.Unix()-answered.Unix())))
	})
}

// anyAccount is what a call of up to four legs costs, the first of which is its own.
func anyAccount(t *rapid.T, now time.Time) *billing.Account {
	account := &billing.Account{SpentMicros: rapid.Int64Range(0, 100_000).Draw(t, "spent")}
	for range rapid.IntRange(0, 4).Draw(t, "legs") {
		since := now.Add(-time.Duration(rapid.Int64Range(0, 300_000).Draw(t, "since")) * time.Millisecond)
		account.Legs = append(account.Legs, billing.Running{Rate: anyRate(t, "leg's"), Since: since})
	}
	return account
}

// TestUntilIsTheLastSecondThatIsCovered compares Until with a walk over all seconds.
func TestUntilIsTheLastSecondThatIsCovered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := noon
		account := anyAccount(t, now)
		limit := now.Add(time.Duration(rapid.Int64Range(-5_000, 600_000).Draw(t, "limit")) * time.Millisecond)
		top := account.Cost(now.Add(10 * time.Minute))
		hold := rapid.OneOf(rapid.Int64Range(0, top), rapid.Just(account.Cost(now.Add(time.Minute))), rapid.Just(account.Cost(now.Add(time.Minute))-1)).Draw(t, "hold")

		origin := now
		if len(account.Legs) > 0 {
			origin = account.Legs[0].Since
		}
		want := origin.Add(now.Sub(origin).Truncate(time.Second)) // the last whole second before now
		if want.After(limit) {
			want = origin.Add(max(limit.Sub(origin), 0).Truncate(time.Second))
		}
		for at := want; !at.After(limit) && account.Cost(at) <= hold; at = at.Add(time.Second) {
			want = at
		}
		require.Equal(t, want, account.Until(hold, now, limit))
	})
}
