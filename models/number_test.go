package models_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

func TestMaskedNumber(t *testing.T) {
	t.Parallel()
	for number, masked := range map[string]string{
		"": "", "1": "*", "1234": "****", "12345": "*2345", "+15550100001": "********0001", "+155501000\xff1": "********00?1",
	} {
		require.Equal(t, masked, models.MaskedNumber(number), number)
	}
}
