package webhooks

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDelay(t *testing.T) {
	t.Parallel()
	w := &Worker{cfg: Config{Schedule: DefaultSchedule()}}
	want := []time.Duration{
		5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour,
		5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
	failed := &exchange{status: 500, failure: "status: 500"}
	var total time.Duration
	for i, scheduled := range want {
		for random, factor := range map[float64]float64{0: 0.8, 0.25: 0.9, 0.5: 1, 0.75: 1.1, 0.999999: 1.2} {
			got, ok := w.delay(i+1, failed, random)
			require.True(t, ok)
			require.InDelta(t, float64(scheduled)*factor, float64(got), float64(scheduled)*1e-5, "attempt %d, random %v", i+1, random)
			require.GreaterOrEqual(t, got, time.Duration(float64(scheduled)*0.8))
			require.LessOrEqual(t, got, time.Duration(float64(scheduled)*1.2))
		}
		total += scheduled
	}
	require.InDelta(t, 75.6, total.Hours(), 0.1)
	_, ok := w.delay(len(want)+1, failed, 0.5)
	require.False(t, ok, "the twelfth failure is the last")

	for name, tc := range map[string]struct {
		x    exchange
		want time.Duration
	}{
		"timeout":                         {exchange{timeout: true}, time.Minute},
		"429":                             {exchange{status: 429}, time.Minute},
		"Retry-After longer":              {exchange{status: 503, retryAfter: time.Hour}, time.Hour},
		"Retry-After shorter":             {exchange{status: 503, retryAfter: time.Second}, 5 * time.Second},
		"429 with a short Retry-After":    {exchange{status: 429, retryAfter: 2 * time.Second}, time.Minute},
		"429 with a longer Retry-After":   {exchange{status: 429, retryAfter: 2 * time.Minute}, 2 * time.Minute},
		"a failure of the ordinary sort":  {exchange{status: 500}, 5 * time.Second},
		"no answer, but not out of time ": {exchange{}, 5 * time.Second},
	} {
		got, ok := w.delay(1, &tc.x, 0.5)
		require.True(t, ok)
		require.Equal(t, tc.want, got, name)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"":                    0,
		"120":                 2 * time.Minute,
		"0":                   0,
		"-5":                  0,
		"86400":               24 * time.Hour,
		"86401":               24 * time.Hour,
		"9223372036854775807": 24 * time.Hour,
		"soon":                0,
		"1.5":                 0,
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):       0,
		now.Add(96 * time.Hour).Format(http.TimeFormat):   24 * time.Hour,
	} {
		require.Equal(t, want, retryAfter(header, now), header)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, header := range []string{"", "120", "-1", "99999999999999999999", "Wed, 04 Mar 2026 05:06:07 GMT", "soon"} {
		f.Add(header)
	}
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	f.Fuzz(func(t *testing.T, header string) {
		got := retryAfter(header, now)
		require.GreaterOrEqual(t, got, time.Duration(0))
		require.LessOrEqual(t, got, 24*time.Hour)
	})
}
