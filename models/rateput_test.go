package models_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/models"
	"tandem/models/modelstest"
)

// ratesBegin is a moment at which rates of these tests begin.
var ratesBegin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// day is a number of days after it.
func day(n int) time.Time { return ratesBegin.AddDate(0, 0, n) }

func until(n int) *time.Time {
	at := day(n)
	return &at
}

// deckOf makes a deck.
func deckOf(t *testing.T, s *models.Store, currency string) *models.RateDeck {
	t.Helper()
	deck := &models.RateDeck{Name: fmt.Sprintf("deck %d", modelstest.Serial()), Currency: currency}
	require.NoError(t, s.CreateRateDeck(t.Context(), deck))
	return deck
}

// rateOf is a rate at a price a minute from a day on.
func rateOf(prefix string, price int64, from int, to *time.Time) models.DeckRate {
	return models.DeckRate{
		Direction: models.Outbound, Prefix: prefix, Destination: "D" + prefix, PerMinuteMicros: price, ConnectOn: models.ConnectOnAnswer, IncrementSeconds: 60,
		ValidFrom: day(from), ValidTo: to,
	}
}

// lineOf is when the rates of a prefix are valid, and at which price.
func lineOf(t *testing.T, s *models.Store, deck *models.RateDeck, prefix string) []string {
	t.Helper()
	rows, next, err := s.ListRates(t.Context(), deck.ID, models.RateFilter{Prefix: prefix}, models.Page{Limit: 1000})
	require.NoError(t, err)
	require.Empty(t, next)
	line := []string{}
	for i := range rows {
		if rows[i].Prefix != prefix {
			continue
		}
		end := "…"
		if rows[i].ValidTo != nil {
			end = fmt.Sprint(rows[i].ValidTo.Sub(ratesBegin).Hours() / 24)
		}
		line = append(line, fmt.Sprintf("%v-%s: %d", rows[i].ValidFrom.Sub(ratesBegin).Hours()/24, end, rows[i].PerMinuteMicros))
	}
	return line
}

// TestPutRates: what becomes of the rates of a prefix when another is put beside them.
func TestPutRates(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		for name, tc := range map[string]struct {
			rows    []models.DeckRate
			results []models.RateResult
			line    []string
		}{
			"a later one ends the former": {
				[]models.DeckRate{rateOf("31", 1, 0, nil), rateOf("31", 2, 10, nil)}, []models.RateResult{models.RateCreated, models.RateUpdated}, []string{"0-10: 1", "10-…: 2"},
			},
			"one that ends later is ended too": {
				[]models.DeckRate{rateOf("31", 1, 0, until(20)), rateOf("31", 2, 10, nil)}, []models.RateResult{models.RateCreated, models.RateUpdated}, []string{"0-10: 1", "10-…: 2"},
			},
			"one that has ended stays": {
				[]models.DeckRate{rateOf("31", 1, 0, until(5)), rateOf("31", 2, 10, nil)}, []models.RateResult{models.RateCreated, models.RateCreated}, []string{"0-5: 1", "10-…: 2"},
			},
			"the same moment replaces": {
				[]models.DeckRate{rateOf("31", 1, 0, nil), rateOf("31", 2, 0, until(9))}, []models.RateResult{models.RateCreated, models.RateUpdated}, []string{"0-9: 2"},
			},
			"an earlier one ends where the next begins": {
				[]models.DeckRate{rateOf("31", 2, 10, nil), rateOf("31", 1, 0, nil)}, []models.RateResult{models.RateCreated, models.RateCreated}, []string{"0-10: 1", "10-…: 2"},
			},
			"one between two": {
				[]models.DeckRate{rateOf("31", 1, 0, nil), rateOf("31", 3, 20, nil), rateOf("31", 2, 10, nil)},
				[]models.RateResult{models.RateCreated, models.RateUpdated, models.RateUpdated}, []string{"0-10: 1", "10-20: 2", "20-…: 3"},
			},
			"what is so already": {
				[]models.DeckRate{rateOf("31", 1, 0, nil), rateOf("31", 1, 0, nil), rateOf("31", 1, 10, nil)},
				[]models.RateResult{models.RateCreated, models.RateUnchanged, models.RateUnchanged}, []string{"0-…: 1"},
			},
			"the same price with another end": {
				[]models.DeckRate{rateOf("31", 1, 0, nil), rateOf("31", 1, 10, until(20))}, []models.RateResult{models.RateCreated, models.RateUpdated}, []string{"0-10: 1", "10-20: 1"},
			},
			"twice, in either order": {
				[]models.DeckRate{rateOf("31", 1, 0, nil), rateOf("31", 2, 10, nil), rateOf("31", 1, 0, nil), rateOf("31", 2, 10, nil)},
				[]models.RateResult{models.RateCreated, models.RateUpdated, models.RateUnchanged, models.RateUnchanged}, []string{"0-10: 1", "10-…: 2"},
			},
		} {
			deck := deckOf(t, s, "EUR")
			// At once, and one after the other.
			results, err := s.PutRates(t.Context(), deck.ID, append([]models.DeckRate{}, tc.rows...))
			require.NoError(t, err, name)
			require.Equal(t, tc.results, results, name)
			require.Equal(t, tc.line, lineOf(t, s, deck, "31"), name)
			apart := deckOf(t, s, "EUR")
			for i := range tc.rows {
				one := []models.DeckRate{tc.rows[i]}
				results, err := s.PutRates(t.Context(), apart.ID, one)
				require.NoError(t, err, name)
				require.Equal(t, tc.results[i], results[0], name)
				stored, err := s.DeckRateByID(t.Context(), one[0].ID)
				require.NoError(t, err, name)
				require.Equal(t, one[0], *stored, name)
			}
			require.Equal(t, tc.line, lineOf(t, s, apart, "31"), name)
		}
		_, err := s.PutRates(t.Context(), "deck_absent", []models.DeckRate{rateOf("31", 1, 0, nil)})
		require.ErrorIs(t, err, models.ErrNotFound)
		_, err = s.PutRates(t.Context(), deckOf(t, s, "EUR").ID, make([]models.DeckRate, models.MaxRates+1))
		require.ErrorContains(t, err, "at a time")
	})
}

// TestPutRatesAgainstAModel: whatever is put, rates of a prefix never overlap, and each moment costs what the last rate said that was put for it
// and that no rate of a later beginning covers.
func TestPutRatesAgainstAModel(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	const days = 12
	rapid.Check(t, func(rt *rapid.T) {
		deck := &models.RateDeck{Name: fmt.Sprintf("model %d", modelstest.Serial()), Currency: "EUR"}
		require.NoError(rt, store.CreateRateDeck(t.Context(), deck))
		var costs [days]int64 // the price of each day, 0 for none
		var begins [days]bool
		for i := range rapid.IntRange(1, 8).Draw(rt, "rates") {
			from := rapid.IntRange(0, days-1).Draw(rt, "from")
			to, end := days, (*time.Time)(nil)
			if last := rapid.IntRange(from+1, days).Draw(rt, "to"); last < days {
				to, end = last, until(last)
			}
			price := int64(i + 1)
			_, err := store.PutRates(t.Context(), deck.ID, []models.DeckRate{rateOf("31", price, from, end)})
			require.NoError(rt, err)
			// It reaches until the next begins, and what was valid when it began ends there.
			next := from + 1
			for next < days && !begins[next] {
				next++
			}
			for at := from; at < next; at++ {
				costs[at] = 0
				if at < to {
					costs[at] = price
				}
			}
			begins[from] = true
		}
		for at := range days {
			rate, err := store.RateAt(t.Context(), deck.ID, models.Outbound, "+31201234567", day(at))
			if costs[at] == 0 {
				require.ErrorIs(rt, err, models.ErrNotFound, "day %d of %v", at, costs)
				continue
			}
			require.NoError(rt, err)
			require.Equal(rt, costs[at], rate.PerMinuteMicros, "day %d of %v", at, costs)
		}
		rows, _, err := store.ListRates(t.Context(), deck.ID, models.RateFilter{}, models.Page{})
		require.NoError(rt, err)
		for i := 1; i < len(rows); i++ {
			require.NotNil(rt, rows[i-1].ValidTo)
			require.False(rt, rows[i-1].ValidTo.After(rows[i].ValidFrom))
		}
	})
}

func TestEndAndDeleteRate(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		deck := deckOf(t, s, "EUR")
		rows := []models.DeckRate{rateOf("31", 1, 0, nil), rateOf("31", 2, 10, nil)}
		_, err := s.PutRates(ctx, deck.ID, rows)
		require.NoError(t, err)
		ended, err := s.EndRate(ctx, rows[0].ID, until(5))
		require.NoError(t, err)
		require.Equal(t, until(5), ended.ValidTo)
		require.Equal(t, []string{"0-5: 1", "10-…: 2"}, lineOf(t, s, deck, "31"))
		_, err = s.EndRate(ctx, rows[0].ID, nil)
		require.NoError(t, err)
		require.Equal(t, []string{"0-10: 1", "10-…: 2"}, lineOf(t, s, deck, "31"), "the next one begins then")
		_, err = s.EndRate(ctx, rows[0].ID, until(0))
		require.ErrorIs(t, err, models.ErrRateEnd)
		_, err = s.EndRate(ctx, "rate_absent", nil)
		require.ErrorIs(t, err, models.ErrNotFound)
		require.NoError(t, s.DeleteRate(ctx, rows[1].ID))
		require.Equal(t, []string{"0-10: 1"}, lineOf(t, s, deck, "31"))
		require.ErrorIs(t, s.DeleteRate(ctx, rows[1].ID), models.ErrNotFound)
	})
}

func TestListRates(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		deck, other := deckOf(t, s, "EUR"), deckOf(t, s, "EUR")
		inbound := rateOf("31", 9, 0, nil)
		inbound.Direction = models.Inbound
		rows := []models.DeckRate{rateOf("3120", 1, 0, until(5)), rateOf("3120", 2, 5, nil), rateOf("", 3, 0, nil), rateOf("sip", 4, 0, nil), rateOf("44", 5, 7, nil), inbound}
		_, err := s.PutRates(ctx, deck.ID, rows)
		require.NoError(t, err)
		_, err = s.PutRates(ctx, other.ID, []models.DeckRate{rateOf("31", 7, 0, nil)})
		require.NoError(t, err)
		for _, tc := range []struct {
			filter models.RateFilter
			prices []int64
		}{
			{models.RateFilter{}, []int64{9, 3, 1, 2, 5, 4}},
			{models.RateFilter{Direction: models.Inbound}, []int64{9}},
			{models.RateFilter{Prefix: "31"}, []int64{9, 1, 2}},
			{models.RateFilter{Number: "+31201"}, []int64{9, 3, 1, 2}},
			{models.RateFilter{Number: models.PrefixSIP}, []int64{4}},
			{models.RateFilter{On: until(5)}, []int64{9, 3, 2, 4}},
		} {
			for _, limit := range []int{1, 2, 1000} {
				var prices []int64
				for cursor := ""; ; {
					found, next, err := s.ListRates(ctx, deck.ID, tc.filter, models.Page{Limit: limit, Cursor: cursor})
					require.NoError(t, err)
					require.LessOrEqual(t, len(found), limit)
					for i := range found {
						prices = append(prices, found[i].PerMinuteMicros)
					}
					if cursor = next; next == "" {
						break
					}
				}
				require.Equal(t, tc.prices, prices, "%+v by %d", tc.filter, limit)
			}
		}
		for _, cursor := range []string{"x", "e30", "eyJEaXJlY3Rpb24iOiJvdXRib3VuZCIsIlByZWZpeCI6IlwwIn0"} {
			_, _, err = s.ListRates(ctx, deck.ID, models.RateFilter{}, models.Page{Cursor: cursor})
			require.ErrorIs(t, err, models.ErrBadCursor)
		}
	})
}

// TestRateAt: the longest prefix counts that is valid then, in whatever order they were put.
func TestRateAt(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		rows := []models.DeckRate{
			rateOf("", 1, 0, nil), rateOf("3", 2, 0, nil), rateOf("31", 3, 0, nil), rateOf("3120", 4, 5, until(9)), rateOf("31201234567", 5, 20, nil), rateOf("sip", 6, 0, nil),
		}
		backwards := slices.Clone(rows)
		slices.Reverse(backwards)
		for _, order := range [][]models.DeckRate{rows, backwards} {
			deck := deckOf(t, s, "EUR")
			_, err := s.PutRates(ctx, deck.ID, order)
			require.NoError(t, err)
			for _, tc := range []struct {
				number string
				at     int
				price  int64
			}{
				{"+31201234567", 0, 3}, {"+31201234567", 5, 4}, {"31201234567", 8, 4}, {"+31201234567", 9, 3}, {"+31201234567", 20, 5}, {"+31201234568", 20, 3},
				{"+3", 0, 2}, {"+49", 0, 1}, {"+321234567890123456789", 0, 2}, {"anonymous", 0, 1}, {models.PrefixSIP, 0, 6},
			} {
				rate, err := s.RateAt(ctx, deck.ID, models.Outbound, tc.number, day(tc.at))
				require.NoError(t, err)
				require.Equal(t, tc.price, rate.PerMinuteMicros, "%s on day %d", tc.number, tc.at)
			}
			for _, at := range []int{-1, 0} {
				_, err := s.RateAt(ctx, deck.ID, models.Inbound, "+31201234567", day(at))
				require.ErrorIs(t, err, models.ErrNotFound)
			}
			_, err = s.RateAt(ctx, deck.ID, models.Outbound, "+31201234567", day(-1))
			require.ErrorIs(t, err, models.ErrNotFound)
		}
	})
}

// TestEffectiveRate walks through decks until one has a rate or refuses.
func TestEffectiveRate(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		trunk, customer, common := deckOf(t, s, "EUR"), deckOf(t, s, "EUR"), deckOf(t, s, "EUR")
		for deck, rows := range map[*models.RateDeck][]models.DeckRate{
			trunk:    {rateOf("3120", 1, 0, nil)},
			customer: {rateOf("31", 2, 0, nil), rateOf("44", 3, 5, nil)},
			common:   {rateOf("", 4, 0, nil)},
		} {
			_, err := s.PutRates(ctx, deck.ID, rows)
			require.NoError(t, err)
		}
		common.IsDefault = true
		require.NoError(t, s.UpdateRateDeck(ctx, common))
		walk := func(number string, at time.Time) (said string) {
			t.Helper()
			decks, err := s.DecksFor(ctx, "EUR", trunk.ID, customer.ID)
			require.NoError(t, err)
			answers, err := s.EffectiveRate(ctx, decks, models.Outbound, number, at)
			require.NoError(t, err)
			for _, answer := range answers {
				switch {
				case answer.Rate != nil:
					said += fmt.Sprint(answer.Rate.PerMinuteMicros)
				case answer.Refuses():
					said += "!"
				default:
					said += "-"
				}
			}
			return said
		}
		require.Equal(t, "1", walk("+31201234567", day(1)))
		require.Equal(t, "-2", walk("+31101234567", day(1)))
		require.Equal(t, "--4", walk("+44201234567", day(1)), "not valid yet")
		require.Equal(t, "-3", walk("+44201234567", day(5)))
		require.Equal(t, "---", walk(models.PrefixSIP, day(5)), "the price of the configuration")
		customer.Unlisted = models.UnlistedRefuse
		require.NoError(t, s.UpdateRateDeck(ctx, customer))
		require.Equal(t, "-!", walk("+44201234567", day(1)), "the default deck is not asked")
		decks, err := s.DecksFor(ctx, "EUR", common.ID, common.ID)
		require.NoError(t, err)
		require.Len(t, decks, 1, "no deck is asked twice")
		answers, err := s.EffectiveRate(ctx, nil, models.Outbound, "+31201234567", day(1))
		require.NoError(t, err)
		require.Empty(t, answers)
	})
}

func TestRateDecks(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		first, second, dollars := deckOf(t, s, "EUR"), deckOf(t, s, "EUR"), deckOf(t, s, "USD")
		require.Equal(t, models.UnlistedNext, first.Unlisted)
		require.ErrorIs(t, s.CreateRateDeck(ctx, &models.RateDeck{Name: first.Name, Currency: "USD"}), models.ErrNameExists)
		renamed := *second
		renamed.Name = first.Name
		require.ErrorIs(t, s.UpdateRateDeck(ctx, &renamed), models.ErrNameExists)
		require.ErrorIs(t, s.UpdateRateDeck(ctx, &models.RateDeck{ID: "deck_absent", Name: "x", Unlisted: models.UnlistedNext}), models.ErrNotFound)

		defaults := func() (ids []string) {
			rows, _, err := s.RateDecks(ctx, "", "", models.Page{})
			require.NoError(t, err)
			for i := range rows {
				if rows[i].IsDefault {
					ids = append(ids, rows[i].ID)
				}
			}
			return ids
		}
		for _, deck := range []*models.RateDeck{dollars, first, second} {
			deck.IsDefault = true
			require.NoError(t, s.UpdateRateDeck(ctx, deck))
		}
		require.Equal(t, []string{dollars.ID, second.ID}, defaults(), "one of each currency")
		third := &models.RateDeck{Name: fmt.Sprint("third ", modelstest.Serial()), Currency: "EUR", IsDefault: true}
		require.NoError(t, s.CreateRateDeck(ctx, third))
		require.Equal(t, []string{third.ID, dollars.ID}, defaults())
		for name, currency := range map[string]string{first.Name: "", first.Name + " ": "none", "": "USD"} {
			rows, _, err := s.RateDecks(ctx, name, currency, models.Page{})
			require.NoError(t, err)
			if currency == "none" {
				require.Empty(t, rows)
				continue
			}
			require.Len(t, rows, 1)
		}
	})
}

func TestDeckOfCustomerAndTrunk(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		trunk := modelstest.OutboundTrunk(t, s, customer)
		deck, foreign := deckOf(t, s, customer.Currency), deckOf(t, s, "XXX")
		_, err := s.PutRates(ctx, deck.ID, []models.DeckRate{rateOf("31", 1, 0, nil), rateOf("31", 2, 1, nil)})
		require.NoError(t, err)
		assign := map[string]func(deck string) error{
			"customer": func(deck string) error { return s.SetCustomerDeck(ctx, customer.ID, deck) },
			"trunk":    func(deck string) error { return s.SetTrunkDeck(ctx, customer.ID, trunk.ID, deck) },
		}
		for name, set := range assign {
			require.ErrorIs(t, set("deck_absent"), models.ErrNotFound, name)
			require.ErrorIs(t, set(foreign.ID), models.ErrDeckCurrency, name)
			require.NoError(t, set(deck.ID), name)
			require.ErrorIs(t, s.DeleteRateDeck(ctx, deck.ID), models.ErrInUse, name)
		}
		require.ErrorIs(t, s.SetCustomerDeck(ctx, "cust_absent", deck.ID), models.ErrNotFound)
		require.ErrorIs(t, s.SetTrunkDeck(ctx, "cust_absent", trunk.ID, deck.ID), models.ErrNotFound)
		stored, err := s.Customer(ctx, customer.ID)
		require.NoError(t, err)
		require.Equal(t, deck.ID, stored.RateDeckID)
		use, err := s.DeckUse(ctx, deck.ID)
		require.NoError(t, err)
		require.Equal(t, models.DeckUse{Rates: 2, Customers: 1, Trunks: 1}, use)

		require.NoError(t, assign["customer"](""))
		stored, err = s.Customer(ctx, customer.ID)
		require.NoError(t, err)
		require.Empty(t, stored.RateDeckID)
		require.ErrorIs(t, s.DeleteRateDeck(ctx, deck.ID), models.ErrInUse)
		require.NoError(t, s.DeleteTrunk(ctx, customer.ID, trunk.ID))
		deck.IsDefault = true
		require.NoError(t, s.UpdateRateDeck(ctx, deck))
		require.ErrorIs(t, s.DeleteRateDeck(ctx, deck.ID), models.ErrInUse, "the default deck")
		deck.IsDefault = false
		require.NoError(t, s.UpdateRateDeck(ctx, deck))
		require.NoError(t, s.DeleteRateDeck(ctx, deck.ID))
		require.ErrorIs(t, s.DeleteRateDeck(ctx, deck.ID), models.ErrNotFound)
		_, err = s.RateAt(ctx, deck.ID, models.Outbound, "+31201234567", day(3))
		require.ErrorIs(t, err, models.ErrNotFound)
	})
}

// TestDefaultDeckOfTwo: of two who make a deck the default one at the same time, the second has the last word.
func TestDefaultDeckOfTwo(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		first, second := deckOf(t, s, "EUR"), deckOf(t, s, "EUR")
		failed := make(chan error, 2)
		for store, deck := range map[*models.Store]*models.RateDeck{s: first, other: second} {
			go func() {
				var all error
				for range 10 {
					row := *deck
					row.IsDefault = true
					all = errors.Join(all, store.UpdateRateDeck(t.Context(), &row))
				}
				failed <- all
			}()
		}
		require.NoError(t, errors.Join(<-failed, <-failed))
		decks, err := s.DecksFor(t.Context(), "EUR")
		require.NoError(t, err)
		require.Len(t, decks, 1)
	})
}
