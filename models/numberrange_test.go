package models_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

func TestNumberRange(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]models.NumberRange{
		"+4930123400":                {First: "+4930123400", Last: "+4930123400"},
		"+4930123400-+4930123499":    {First: "+4930123400", Last: "+4930123499"},
		" +4930123400 – +4930123499": {First: "+4930123400", Last: "+4930123499"},
		"+4930123400-99":             {First: "+4930123400", Last: "+4930123499"},
		"+4930123400-0":              {First: "+4930123400", Last: "+4930123400"},
		"+4930123098-102":            {First: "+4930123098", Last: "+4930123102"},
	} {
		got, err := models.ParseNumberRange(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "-", "4930123400", "+0930123400", "+4930123400-", "+4930123400-+493012349", "+4930123499-+4930123400", "+4930123499-00", "+4930123400-4930123499",
		"+4930123400-+4930123499-+4930123500", "+4930123400-9a", "+4930123400-+49301234999", "-5",
	} {
		_, err := models.ParseNumberRange(text)
		require.Error(t, err, text)
	}
	block := models.NumberRange{First: "+4930123098", Last: "+4930123102"}
	require.EqualValues(t, 5, block.Len())
	require.Equal(t, []string{"+4930123098", "+4930123099", "+4930123100", "+4930123101", "+4930123102"}, slices.Collect(block.Numbers))
	for first := range block.Numbers {
		require.Equal(t, "+4930123098", first)
		break
	}
}

// FuzzNumberRange: what is read as a range holds E.164 numbers only, and is read as the same from what it says of itself.
func FuzzNumberRange(f *testing.F) {
	for _, seed := range []string{"+4930123400-+4930123499", "+4930123400–99", "+1", "+4930123400 - 0", "--"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		block, err := models.ParseNumberRange(text)
		if err != nil {
			return
		}
		require.True(t, models.IsE164(block.First))
		require.True(t, models.IsE164(block.Last))
		require.Positive(t, block.Len())
		again, err := models.ParseNumberRange(block.String())
		require.NoError(t, err)
		require.Equal(t, block, again)
		for number := range block.Numbers {
			require.Equal(t, block.First, number)
			break
		}
	})
}
