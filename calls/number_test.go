package calls

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

func TestParseNumber(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"+15550100", "+442071838750", "+123456789012345"} {
		got, err := ParseNumber(good)
		require.NoError(t, err)
		require.Equal(t, good, got)
	}
	for _, bad := range []string{"", "+", "15550100", "+05550100", "+1555", "+1234567890123456", "+1555010x", "+1555 0100", "+1555\n0100", "${x}"} {
		_, err := ParseNumber(bad)
		require.Error(t, err, bad)
	}
}

// FuzzParty checks that whatever a caller sends is safe to store and to show.
func FuzzParty(f *testing.F) {
	for _, seed := range []string{"+15550100", "15550100", "anonymous", "a\x00b\r\n", "\xff\xfe", "\u202eevil", "${system(x)}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := party(s)
		require.True(t, utf8.ValidString(got))
		require.LessOrEqual(t, utf8.RuneCountInString(got), maxParty)
		for _, r := range got {
			require.True(t, unicode.IsPrint(r))
		}
		if n, ok := switchNumber(s); ok {
			require.Equal(t, n, got)
			require.True(t, models.IsE164(got))
		}
	})
}
