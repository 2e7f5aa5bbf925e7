package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/billing"
)

func TestAmountRoundTrip(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{"0": 0, "12": 12_000_000, "12.5": 12_500_000, "0.000001": 1, "-3.25": -3_250_000, " 1.00 ": 1_000_000} {
		got, err := billing.ParseAmount(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"", ".", ".5", "1,5", "1.0000000", "1e3", "--1", "+1", "1234567890123", "0x1", "1_000"} {
		_, err := billing.ParseAmount(in)
		require.Error(t, err, in)
	}
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.Int64Range(-999_999_999_999_999_999, 999_999_999_999_999_999).Draw(t, "micros")
		back, err := billing.ParseAmount(billing.FormatAmount(micros))
		require.NoError(t, err)
		require.Equal(t, micros, back)
	})
}
