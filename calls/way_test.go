package calls

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/esl"
	"tandem/models"
	"tandem/numbering"
)

func routed(id string, r models.TrunkRouting) models.Trunk {
	r.Weight = max(r.Weight, 1)
	return models.Trunk{ID: id, GatewayName: id, Routing: r}
}

func TestWays(t *testing.T) {
	t.Parallel()
	const own, other, fixed = "+15550100001", "+15550100002", "+15550199999"
	owns := func(number string) (bool, error) { return number == own, nil }
	plain := routed("plain", models.TrunkRouting{})
	limited := func(where models.Destinations) models.Trunk {
		trunk := routed("limited", models.TrunkRouting{})
		trunk.Limits.Destinations = where
		return trunk
	}
	ordinary := limited(models.Destinations{AllowedDestinationTypes: []string{}})
	premium := limited(models.Destinations{AllowedDestinations: []string{"US"}, AllowedDestinationTypes: []string{numbering.TypePremium}})
	for name, tt := range map[string]struct {
		trunks       []models.Trunk
		number, from string
		want         []way
		err          error
	}{
		"none":         {nil, "+4930123", own, nil, ErrNoActiveTrunk},
		"as it is":     {[]models.Trunk{plain}, "+4930123", other, []way{{trunk: plain, number: "+4930123", callerID: other}}, nil},
		"no caller":    {[]models.Trunk{plain}, "+4930123", "", []way{{trunk: plain, number: "+4930123", callerID: ""}}, nil},
		"not allowed":  {[]models.Trunk{routed("a", models.TrunkRouting{AllowedPrefixes: []string{"+1", "+44"}})}, "+4930123", own, nil, ErrDestinationNotAllowed},
		"another is":   {[]models.Trunk{routed("a", models.TrunkRouting{AllowedPrefixes: []string{"+1"}}), plain}, "+4930123", own, []way{{trunk: plain, number: "+4930123", callerID: own}}, nil},
		"a country":    {[]models.Trunk{limited(models.Destinations{AllowedDestinations: []string{"US", "DE"}, DeniedDestinations: []string{"+493"}})}, "+4930123", own, nil, ErrDestinationNotAllowed},
		"every type":   {[]models.Trunk{plain}, "+19002345678", own, []way{{trunk: plain, number: "+19002345678", callerID: own}}, nil},
		"no such type": {[]models.Trunk{ordinary}, "+19002345678", own, nil, ErrDestinationNotAllowed},
		"by its type":  {[]models.Trunk{ordinary, premium}, "+19002345678", own, []way{{trunk: premium, number: "+19002345678", callerID: own}}, nil},
		"not its own":  {[]models.Trunk{routed("a", models.TrunkRouting{CallerIDPolicy: models.CallerIDOwn})}, "+4930123", other, nil, errForeignCallerID},
		"nobody's own": {[]models.Trunk{routed("a", models.TrunkRouting{CallerIDPolicy: models.CallerIDOwn})}, "+4930123", "", nil, errForeignCallerID},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ways, err := waysTo(tt.trunks, tt.number, tt.from, "seed", owns)
			require.ErrorIs(t, err, tt.err)
			require.Equal(t, tt.want, ways)
		})
	}
	for name, tt := range map[string]struct {
		routing       models.TrunkRouting
		caller        string
		number, shown string
	}{
		"strips the plus":         {models.TrunkRouting{StripPrefix: "+"}, own, "4930123", own},
		"adds an exit code":       {models.TrunkRouting{StripPrefix: "+", AddPrefix: "00"}, own, "004930123", own},
		"makes it national":       {models.TrunkRouting{StripPrefix: "+49", AddPrefix: "0"}, own, "030123", own},
		"leaves other countries":  {models.TrunkRouting{StripPrefix: "+33", AddPrefix: "0"}, own, "+4930123", own},
		"adds a tech prefix":      {models.TrunkRouting{AddPrefix: "9"}, own, "94930123", own},
		"shows its own number":    {models.TrunkRouting{CallerIDPolicy: models.CallerIDOwn, CallerID: fixed}, own, "+4930123", own},
		"shows the trunk's":       {models.TrunkRouting{CallerIDPolicy: models.CallerIDOwn, CallerID: fixed}, other, "+4930123", fixed},
		"shows the trunk's alone": {models.TrunkRouting{CallerIDPolicy: models.CallerIDFixed, CallerID: fixed}, own, "+4930123", fixed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ways, err := waysTo([]models.Trunk{routed("a", tt.routing)}, "+4930123", tt.caller, "seed", owns)
			require.NoError(t, err)
			require.Equal(t, []string{tt.number, tt.shown}, []string{ways[0].number, ways[0].callerID})
		})
	}
	failed := errors.New("away")
	_, err := waysTo([]models.Trunk{routed("a", models.TrunkRouting{CallerIDPolicy: models.CallerIDOwn})}, "+4930123", own, "", func(string) (bool, error) { return false, failed })
	require.ErrorIs(t, err, failed)
}

// Every trunk is tried once, none before one of a lower priority, and the same call finds the same order again.
// TestDialledNumbers: whatever a trunk puts before numbers, the switch takes what comes of it.
func TestDialledNumbers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.StringMatching(`\+[1-9][0-9]{6,14}`).Draw(t, "number")
		strip := number[:rapid.IntRange(0, len(number)).Draw(t, "strip")]
		if rapid.Bool().Draw(t, "another's") {
			strip = rapid.StringMatching(`\+[0-9]{0,14}`).Draw(t, "strip another")
		}
		routing := models.TrunkRouting{StripPrefix: strip, AddPrefix: rapid.StringMatching(`\+?[0-9]{0,16}`).Draw(t, "add")}
		dialled := routing.Dialled(number)
		_, err := esl.NewDial(esl.Target{Gateway: "g", Number: dialled})
		require.NoError(t, err, dialled)
	})
}

func TestOrderOfWays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var trunks []models.Trunk
		for i := range rapid.IntRange(1, 8).Draw(t, "trunks") {
			trunks = append(trunks, routed(fmt.Sprint(i), models.TrunkRouting{
				Priority: rapid.IntRange(0, 2).Draw(t, "priority"), Weight: rapid.IntRange(1, 100).Draw(t, "weight"),
			}))
		}
		seed := rapid.String().Draw(t, "seed")
		order := func() (names []string) {
			ways, err := waysTo(trunks, "+4930123", "", seed, nil)
			require.NoError(t, err)
			last := 0
			for _, w := range ways {
				require.GreaterOrEqual(t, w.trunk.Routing.Priority, last)
				last = w.trunk.Routing.Priority
				names = append(names, w.trunk.ID)
			}
			return names
		}
		names := order()
		require.Equal(t, names, order())
		var all []string
		for i := range trunks {
			all = append(all, trunks[i].ID)
		}
		require.ElementsMatch(t, all, names)
	})
}

// Trunks of one priority get their shares of the calls.
func TestSharesOfWays(t *testing.T) {
	t.Parallel()
	trunks := []models.Trunk{
		routed("much", models.TrunkRouting{Weight: 70}), routed("some", models.TrunkRouting{Weight: 20}), routed("little", models.TrunkRouting{Weight: 10}),
		routed("last", models.TrunkRouting{Priority: 1, Weight: 100}),
	}
	const calls = 20_000
	first := map[string]int{}
	for i := range calls {
		ways, err := waysTo(trunks, "+4930123", "", fmt.Sprintf("call_%d", i), nil)
		require.NoError(t, err)
		require.Equal(t, "last", ways[3].trunk.ID)
		first[ways[0].trunk.ID]++
	}
	for name, share := range map[string]float64{"much": 0.7, "some": 0.2, "little": 0.1} {
		require.InDelta(t, share, float64(first[name])/calls, 0.02, name)
	}
}
