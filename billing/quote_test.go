package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/billing"
	"tandem/models"
	"tandem/models/modelstest"
)

// TestQuoteWalksTheDecks asks for prices of numbers that only one of the decks has, and of some that several have.
func TestQuoteWalksTheDecks(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		rater := newRater(t, billing.Config{OutboundPerMinuteMicros: 12, InboundPerMinuteMicros: 7, IncrementSeconds: 30})
		mine, other := modelstest.Customer(t, s, 0), modelstest.Customer(t, s, 0)
		carrier := newDeck(t, s, models.RateDeck{Name: "carrier"}, models.DeckRate{Prefix: "44", PerMinuteMicros: 100})
		strict := newDeck(t, s, models.RateDeck{Name: "strict", Unlisted: models.UnlistedRefuse}, models.DeckRate{Prefix: "1", PerMinuteMicros: 101})
		own := newDeck(t, s, models.RateDeck{Name: "own"},
			models.DeckRate{Prefix: "44", PerMinuteMicros: 200}, models.DeckRate{Prefix: "49", PerMinuteMicros: 201},
			models.DeckRate{Prefix: "4930", PerMinuteMicros: 202, Destination: "Berlin", ConnectMicros: 5, ConnectOn: models.ConnectOnAttempt, MinimumSeconds: 30, IncrementSeconds: 6},
			models.DeckRate{Direction: models.Inbound, Prefix: "1555", PerMinuteMicros: 203})
		newDeck(t, s, models.RateDeck{Name: "default", IsDefault: true},
			models.DeckRate{Prefix: "44", PerMinuteMicros: 300}, models.DeckRate{Prefix: "33", PerMinuteMicros: 301},
			models.DeckRate{Prefix: models.PrefixSIP, PerMinuteMicros: 302})
		newDeck(t, s, models.RateDeck{Name: "in euros", IsDefault: true, Currency: "EUR"}, models.DeckRate{PerMinuteMicros: 400})
		require.NoError(t, s.SetCustomerDeck(t.Context(), mine.ID, own.ID))

		for name, test := range map[string]struct {
			leg  billing.Leg
			want int64
		}{
			"the trunk's first":             {billing.Leg{CustomerID: mine.ID, Number: "+442071234567", TrunkDeckID: carrier.ID}, 100},
			"a trunk's that refuses":        {billing.Leg{CustomerID: mine.ID, Number: "+15550000001", TrunkDeckID: strict.ID}, 101},
			"then the customer's":           {billing.Leg{CustomerID: mine.ID, Number: "+498912345678", TrunkDeckID: carrier.ID}, 201},
			"without a trunk":               {billing.Leg{CustomerID: mine.ID, Number: "+442071234567"}, 200},
			"the longest prefix":            {billing.Leg{CustomerID: mine.ID, Number: "+493012345678"}, 202},
			"no plus":                       {billing.Leg{CustomerID: mine.ID, Number: "493012345678"}, 202},
			"then the default":              {billing.Leg{CustomerID: mine.ID, Number: "+33123456789", TrunkDeckID: carrier.ID}, 301},
			"a customer without a deck":     {billing.Leg{CustomerID: other.ID, Number: "+442071234567"}, 300},
			"then the configuration":        {billing.Leg{CustomerID: mine.ID, Number: "+81312345678", TrunkDeckID: carrier.ID}, 12},
			"what is no number":             {billing.Leg{CustomerID: mine.ID, Number: "anonymous"}, 12},
			"a SIP URI of a deck":           {billing.Leg{CustomerID: mine.ID, Number: models.PrefixSIP}, 302},
			"inbound by the number called":  {billing.Leg{CustomerID: mine.ID, Number: "+15550000001", Direction: models.Inbound}, 203},
			"inbound has rates of its own":  {billing.Leg{CustomerID: mine.ID, Number: "+442071234567", Direction: models.Inbound}, 7},
			"a deck that is not there":      {billing.Leg{CustomerID: mine.ID, Number: "+442071234567", TrunkDeckID: "deck_none"}, 200},
			"one deck as trunk's and own":   {billing.Leg{CustomerID: mine.ID, Number: "+442071234567", TrunkDeckID: own.ID}, 200},
			"an inbound call to a SIP name": {billing.Leg{CustomerID: other.ID, Number: models.PrefixSIP, Direction: models.Inbound}, 0},
		} {
			test.leg.Direction = orElse(test.leg.Direction, models.Outbound)
			rate, err := rater.Quote(t.Context(), s, test.leg)
			require.NoError(t, err, name)
			require.Equal(t, test.want, rate.PerMinuteMicros, name)
		}
		berlin, err := rater.Quote(t.Context(), s, billing.Leg{CustomerID: mine.ID, Direction: models.Outbound, Number: "+493012345678"})
		require.NoError(t, err)
		require.Equal(t, models.Rate{
			DeckID: own.ID, Prefix: "4930", Destination: "Berlin", PerMinuteMicros: 202, ConnectMicros: 5, ConnectOn: models.ConnectOnAttempt,
			MinimumSeconds: 30, IncrementSeconds: 6,
		}, berlin, "all of the rate is promised")
		_, err = rater.Quote(t.Context(), s, billing.Leg{CustomerID: mine.ID, Direction: models.Outbound, Number: "+442071234567", TrunkDeckID: strict.ID})
		require.ErrorIs(t, err, billing.ErrUnlisted)
		require.NotContains(t, err.Error(), "2071234567", "numbers are masked")
		_, err = rater.Quote(t.Context(), s, billing.Leg{CustomerID: "cust_none", Direction: models.Outbound, Number: home})
		require.ErrorIs(t, err, models.ErrNotFound)
	})
}

// TestQuoteByTheDay has rates that begin and end: the moment at which one ends is not its own any more.
func TestQuoteByTheDay(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		rater := newRater(t, billing.Config{OutboundPerMinuteMicros: 12})
		customer := modelstest.Customer(t, s, 0)
		begin := clock.Now().Add(time.Hour)
		end := begin.Add(time.Hour)
		newDeck(t, s, models.RateDeck{Name: "default", IsDefault: true},
			models.DeckRate{Prefix: "4", PerMinuteMicros: 100}, models.DeckRate{Prefix: "44", PerMinuteMicros: 200, ValidFrom: begin, ValidTo: &end})
		quote := func() int64 {
			rate, err := rater.Quote(t.Context(), s, billing.Leg{CustomerID: customer.ID, Direction: models.Outbound, Number: abroad})
			require.NoError(t, err)
			return rate.PerMinuteMicros
		}
		for _, step := range []struct {
			advance time.Duration
			want    int64
		}{{0, 100}, {time.Hour - time.Microsecond, 100}, {time.Microsecond, 200}, {time.Hour - time.Microsecond, 200}, {time.Microsecond, 100}} {
			clock.Advance(step.advance)
			require.Equal(t, step.want, quote(), clock.Now())
		}
	})
}

func TestFlat(t *testing.T) {
	t.Parallel()
	rater := newRater(t, billing.Config{OutboundPerMinuteMicros: 12, InboundPerMinuteMicros: 7, IncrementSeconds: 6})
	require.Equal(t, models.Rate{PerMinuteMicros: 12, IncrementSeconds: 6}, rater.Flat(models.Outbound, home))
	require.Equal(t, models.Rate{PerMinuteMicros: 7, IncrementSeconds: 6}, rater.Flat(models.Inbound, home))
	require.Equal(t, models.Rate{IncrementSeconds: 6}, rater.Flat(models.Outbound, models.PrefixSIP), "a SIP URI is free")
}

// TestRateOfOldCalls has a call from before there were rates: its price of a minute, and the increment of the configuration.
func TestRateOfOldCalls(t *testing.T) {
	t.Parallel()
	rater := newRater(t, billing.Config{IncrementSeconds: 6, MaxCallSeconds: 600})
	old := models.Call{PricePerMinuteMicros: 9}
	require.Equal(t, models.Rate{PerMinuteMicros: 9, IncrementSeconds: 6}, rater.RateOf(&old))
	promised := models.Rate{PerMinuteMicros: 1, ConnectMicros: 2, IncrementSeconds: 3}
	require.Equal(t, promised, rater.RateOf(&models.Call{PricePerMinuteMicros: 9, Rate: &promised}))
	require.Equal(t, 10*time.Minute, rater.Longest(&old))
	require.Equal(t, 10*time.Minute, rater.Longest(&models.Call{MaxSeconds: 601}))
	require.Equal(t, 30*time.Second, rater.Longest(&models.Call{MaxSeconds: 30}))
}
