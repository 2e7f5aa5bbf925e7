package billing_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/models"
)

// priceRow is what a leg that was answered for so many seconds is billed and costs, and how that is reckoned: the billed seconds, times the price of a
// minute, by 60, rounded up to the millionth; where there is one, the connection fee before it.
type priceRow struct {
	seconds int
	billed  int64
	want    int64
	sum     string
}

// prices were worked by hand. Plans are named as decks do: the minimum, then the increment.
var prices = []struct {
	plan string
	rate models.Rate
	rows []priceRow
}{
	{"60/60", models.Rate{PerMinuteMicros: 10_000, MinimumSeconds: 60, IncrementSeconds: 60}, []priceRow{
		{0, 60, 10_000, "60 s × 10000/60"},
		{1, 60, 10_000, "60 s × 10000/60"},
		{5, 60, 10_000, "60 s × 10000/60"},
		{6, 60, 10_000, "60 s × 10000/60"},
		{7, 60, 10_000, "60 s × 10000/60"},
		{29, 60, 10_000, "60 s × 10000/60"},
		{30, 60, 10_000, "60 s × 10000/60"},
		{31, 60, 10_000, "60 s × 10000/60"},
		{59, 60, 10_000, "60 s × 10000/60"},
		{60, 60, 10_000, "60 s × 10000/60"},
		{61, 120, 20_000, "120 s × 10000/60"},
		{119, 120, 20_000, "120 s × 10000/60"},
		{120, 120, 20_000, "120 s × 10000/60"},
		{121, 180, 30_000, "180 s × 10000/60"},
		{3599, 3600, 600_000, "3600 s × 10000/60"},
		{3600, 3600, 600_000, "3600 s × 10000/60"},
		{3601, 3660, 610_000, "3660 s × 10000/60"},
	}},
	{"60/1", models.Rate{PerMinuteMicros: 10_000, MinimumSeconds: 60, IncrementSeconds: 1}, []priceRow{
		{0, 60, 10_000, "60 s × 10000/60"},
		{1, 60, 10_000, "60 s × 10000/60"},
		{5, 60, 10_000, "60 s × 10000/60"},
		{6, 60, 10_000, "60 s × 10000/60"},
		{7, 60, 10_000, "60 s × 10000/60"},
		{29, 60, 10_000, "60 s × 10000/60"},
		{30, 60, 10_000, "60 s × 10000/60"},
		{31, 60, 10_000, "60 s × 10000/60"},
		{59, 60, 10_000, "60 s × 10000/60"},
		{60, 60, 10_000, "60 s × 10000/60"},
		{61, 61, 10_167, "61 s × 10000/60 = 10166.667"},
		{119, 119, 19_834, "119 s × 10000/60 = 19833.333"},
		{120, 120, 20_000, "120 s × 10000/60"},
		{121, 121, 20_167, "121 s × 10000/60 = 20166.667"},
		{3599, 3599, 599_834, "3599 s × 10000/60 = 599833.333"},
		{3600, 3600, 600_000, "3600 s × 10000/60"},
		{3601, 3601, 600_167, "3601 s × 10000/60 = 600166.667"},
	}},
	{"1/1", models.Rate{PerMinuteMicros: 10_000, MinimumSeconds: 1, IncrementSeconds: 1}, []priceRow{
		{0, 1, 167, "1 s × 10000/60 = 166.667"},
		{1, 1, 167, "1 s × 10000/60 = 166.667"},
		{5, 5, 834, "5 s × 10000/60 = 833.333"},
		{6, 6, 1_000, "6 s × 10000/60"},
		{7, 7, 1_167, "7 s × 10000/60 = 1166.667"},
		{29, 29, 4_834, "29 s × 10000/60 = 4833.333"},
		{30, 30, 5_000, "30 s × 10000/60"},
		{31, 31, 5_167, "31 s × 10000/60 = 5166.667"},
		{59, 59, 9_834, "59 s × 10000/60 = 9833.333"},
		{60, 60, 10_000, "60 s × 10000/60"},
		{61, 61, 10_167, "61 s × 10000/60 = 10166.667"},
		{119, 119, 19_834, "119 s × 10000/60 = 19833.333"},
		{120, 120, 20_000, "120 s × 10000/60"},
		{121, 121, 20_167, "121 s × 10000/60 = 20166.667"},
		{3599, 3599, 599_834, "3599 s × 10000/60 = 599833.333"},
		{3600, 3600, 600_000, "3600 s × 10000/60"},
		{3601, 3601, 600_167, "3601 s × 10000/60 = 600166.667"},
	}},
	{"30/6", models.Rate{PerMinuteMicros: 12_000, MinimumSeconds: 30, IncrementSeconds: 6}, []priceRow{
		{0, 30, 6_000, "30 s × 12000/60"},
		{1, 30, 6_000, "30 s × 12000/60"},
		{5, 30, 6_000, "30 s × 12000/60"},
		{6, 30, 6_000, "30 s × 12000/60"},
		{7, 30, 6_000, "30 s × 12000/60"},
		{29, 30, 6_000, "30 s × 12000/60"},
		{30, 30, 6_000, "30 s × 12000/60"},
		{31, 36, 7_200, "36 s × 12000/60"},
		{59, 60, 12_000, "60 s × 12000/60"},
		{60, 60, 12_000, "60 s × 12000/60"},
		{61, 66, 13_200, "66 s × 12000/60"},
		{119, 120, 24_000, "120 s × 12000/60"},
		{120, 120, 24_000, "120 s × 12000/60"},
		{121, 126, 25_200, "126 s × 12000/60"},
		{3599, 3600, 720_000, "3600 s × 12000/60"},
		{3600, 3600, 720_000, "3600 s × 12000/60"},
		{3601, 3606, 721_200, "3606 s × 12000/60"},
	}},
	{"6/6", models.Rate{PerMinuteMicros: 10_000, MinimumSeconds: 6, IncrementSeconds: 6}, []priceRow{
		{0, 6, 1_000, "6 s × 10000/60"},
		{1, 6, 1_000, "6 s × 10000/60"},
		{5, 6, 1_000, "6 s × 10000/60"},
		{6, 6, 1_000, "6 s × 10000/60"},
		{7, 12, 2_000, "12 s × 10000/60"},
		{29, 30, 5_000, "30 s × 10000/60"},
		{30, 30, 5_000, "30 s × 10000/60"},
		{31, 36, 6_000, "36 s × 10000/60"},
		{59, 60, 10_000, "60 s × 10000/60"},
		{60, 60, 10_000, "60 s × 10000/60"},
		{61, 66, 11_000, "66 s × 10000/60"},
		{119, 120, 20_000, "120 s × 10000/60"},
		{120, 120, 20_000, "120 s × 10000/60"},
		{121, 126, 21_000, "126 s × 10000/60"},
		{3599, 3600, 600_000, "3600 s × 10000/60"},
		{3600, 3600, 600_000, "3600 s × 10000/60"},
		{3601, 3606, 601_000, "3606 s × 10000/60"},
	}},
	{"increments of 60 without a minimum", models.Rate{PerMinuteMicros: 10_000, IncrementSeconds: 60}, []priceRow{
		{0, 0, 0, "0 s × 10000/60"},
		{1, 60, 10_000, "60 s × 10000/60"},
		{60, 60, 10_000, "60 s × 10000/60"},
		{61, 120, 20_000, "120 s × 10000/60"},
	}},
	{"seconds without a minimum", models.Rate{PerMinuteMicros: 60, IncrementSeconds: 1}, []priceRow{
		{0, 0, 0, "0 s × 60/60"},
		{1, 1, 1, "1 s × 60/60"},
		{60, 60, 60, "60 s × 60/60"},
		{61, 61, 61, "61 s × 60/60"},
	}},
	{"a minimum without an increment", models.Rate{PerMinuteMicros: 6_000, MinimumSeconds: 30}, []priceRow{
		{0, 30, 3_000, "30 s × 6000/60"},
		{1, 30, 3_000, "30 s × 6000/60"},
		{29, 30, 3_000, "30 s × 6000/60"},
		{30, 30, 3_000, "30 s × 6000/60"},
		{31, 31, 3_100, "31 s × 6000/60"},
	}},
	{"a minimum that is no whole number of increments", models.Rate{PerMinuteMicros: 6_000, MinimumSeconds: 20, IncrementSeconds: 6}, []priceRow{
		{0, 24, 2_400, "24 s × 6000/60"},
		{19, 24, 2_400, "24 s × 6000/60"},
		{20, 24, 2_400, "24 s × 6000/60"},
		{24, 24, 2_400, "24 s × 6000/60"},
		{25, 30, 3_000, "30 s × 6000/60"},
		{30, 30, 3_000, "30 s × 6000/60"},
		{31, 36, 3_600, "36 s × 6000/60"},
	}},
	{"a fee on answer, 60/60", models.Rate{PerMinuteMicros: 12_000, ConnectMicros: 5_000, ConnectOn: models.ConnectOnAnswer, MinimumSeconds: 60, IncrementSeconds: 60}, []priceRow{
		{0, 60, 17_000, "5000 + 60 s × 12000/60"},
		{1, 60, 17_000, "5000 + 60 s × 12000/60"},
		{60, 60, 17_000, "5000 + 60 s × 12000/60"},
		{61, 120, 29_000, "5000 + 120 s × 12000/60"},
	}},
	{"a fee on attempt, 30/6", models.Rate{PerMinuteMicros: 12_000, ConnectMicros: 5_000, ConnectOn: models.ConnectOnAttempt, MinimumSeconds: 30, IncrementSeconds: 6}, []priceRow{
		{0, 30, 11_000, "5000 + 30 s × 12000/60"},
		{30, 30, 11_000, "5000 + 30 s × 12000/60"},
		{31, 36, 12_200, "5000 + 36 s × 12000/60"},
	}},
	{"a fee where nothing says when, without a minimum", models.Rate{PerMinuteMicros: 10_000, ConnectMicros: 25, IncrementSeconds: 1}, []priceRow{
		{0, 0, 25, "25 + 0 s × 10000/60"},
		{7, 7, 1_192, "25 + 7 s × 10000/60 = 1166.667"},
	}},
	{"nothing but a fee", models.Rate{PerMinuteMicros: 0, ConnectMicros: 2_500, ConnectOn: models.ConnectOnAnswer, MinimumSeconds: 60, IncrementSeconds: 60}, []priceRow{
		{0, 60, 2_500, "2500 + 60 s × 0/60"},
		{3601, 3660, 2_500, "2500 + 3660 s × 0/60"},
	}},
	{"free", models.Rate{PerMinuteMicros: 0, MinimumSeconds: 60, IncrementSeconds: 60}, []priceRow{
		{0, 60, 0, "60 s × 0/60"},
		{61, 120, 0, "120 s × 0/60"},
		{3601, 3660, 0, "3660 s × 0/60"},
	}},
	{"a millionth a minute", models.Rate{PerMinuteMicros: 1, IncrementSeconds: 1}, []priceRow{
		{1, 1, 1, "1 s × 1/60 = 0.017"},
		{59, 59, 1, "59 s × 1/60 = 0.983"},
		{60, 60, 1, "60 s × 1/60"},
		{61, 61, 2, "61 s × 1/60 = 1.017"},
	}},
	{"seven millionths", models.Rate{PerMinuteMicros: 7, IncrementSeconds: 1}, []priceRow{
		{1, 1, 1, "1 s × 7/60 = 0.117"},
		{31, 31, 4, "31 s × 7/60 = 3.617"},
		{60, 60, 7, "60 s × 7/60"},
	}},
	{"a third of a unit", models.Rate{PerMinuteMicros: 333_333, IncrementSeconds: 1}, []priceRow{
		{1, 1, 5_556, "1 s × 333333/60 = 5555.55"},
		{59, 59, 327_778, "59 s × 333333/60 = 327777.45"},
		{61, 61, 338_889, "61 s × 333333/60 = 338888.55"},
	}},
	{"just over a unit, 30/6", models.Rate{PerMinuteMicros: 1_000_003, MinimumSeconds: 30, IncrementSeconds: 6}, []priceRow{
		{30, 30, 500_002, "30 s × 1000003/60 = 500001.5"},
		{31, 36, 600_002, "36 s × 1000003/60 = 600001.8"},
	}},
	{"just under ten units", models.Rate{PerMinuteMicros: 9_999_999, IncrementSeconds: 1}, []priceRow{
		{7, 7, 1_166_667, "7 s × 9999999/60 = 1166666.55"},
		{3599, 3599, 599_833_274, "3599 s × 9999999/60 = 599833273.35"},
	}},
	{"the highest price, a year", models.Rate{PerMinuteMicros: 1_000_000_000_000, IncrementSeconds: 60}, []priceRow{
		{31622400, 31622400, 527_040_000_000_000_000, "31622400 s × 1000000000000/60"},
	}},
}

func TestPricesWorkedByHand(t *testing.T) {
	t.Parallel()
	for _, price := range prices {
		for _, row := range price.rows {
			require.Equal(t, row.billed, price.rate.Billed(row.seconds), "seconds of %s for %d s", price.plan, row.seconds)
			require.Equal(t, row.want, price.rate.Cost(true, row.seconds), "%s for %d s: %s", price.plan, row.seconds, row.sum)
		}
	}
}

func TestPriceOfWhatNobodyAnswered(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		on   string
		want int64
	}{{"", 0}, {models.ConnectOnAnswer, 0}, {models.ConnectOnAttempt, 5_000}} {
		rate := models.Rate{PerMinuteMicros: 12_000, ConnectMicros: 5_000, ConnectOn: test.on, MinimumSeconds: 60, IncrementSeconds: 60}
		require.Equal(t, test.want, rate.Cost(false, 0), "fee on %q", test.on)
		require.Equal(t, test.want, rate.Cost(false, 61), "what rings is no talk")
	}
}

// TestPriceAtTheEdges has amounts that are no int64 any more, and seconds that there cannot be.
func TestPriceAtTheEdges(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rate    models.Rate
		seconds int
		want    int64
	}{
		{models.Rate{PerMinuteMicros: 10_000, IncrementSeconds: 60}, -5, 0},
		{models.Rate{PerMinuteMicros: 10_000, IncrementSeconds: -1}, 1, 167},
		{models.Rate{PerMinuteMicros: 1_000_000_000_000, IncrementSeconds: 60}, math.MaxInt32, math.MaxInt64},
		{models.Rate{PerMinuteMicros: math.MaxInt64, IncrementSeconds: 1}, 60, math.MaxInt64},
		{models.Rate{PerMinuteMicros: math.MaxInt64, IncrementSeconds: 1}, math.MaxInt32, math.MaxInt64},
		{models.Rate{PerMinuteMicros: math.MaxInt64, ConnectMicros: 1, IncrementSeconds: 1}, 60, math.MaxInt64},
		{models.Rate{PerMinuteMicros: 60, ConnectMicros: math.MaxInt64, IncrementSeconds: 1}, 1, math.MaxInt64},
		{models.Rate{PerMinuteMicros: 301_957_377_401, IncrementSeconds: 1}, 30_545_278, 153_722_867_281_074_375},
	} {
		require.Equal(t, test.want, test.rate.Cost(true, test.seconds), "%+v for %d s", test.rate, test.seconds)
	}
}

// anyRate is a rate as a deck may have one.
func anyRate(t *rapid.T, label string) models.Rate {
	return models.Rate{
		PerMinuteMicros:  rapid.OneOf(rapid.Int64Range(0, 100_000), rapid.Int64Range(0, 1_000_000_000_000)).Draw(t, label+" price"),
		ConnectMicros:    rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 1_000_000)).Draw(t, label+" fee"),
		ConnectOn:        rapid.SampledFrom([]string{"", models.ConnectOnAnswer, models.ConnectOnAttempt}).Draw(t, label+" fee on"),
		MinimumSeconds:   rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 120)).Draw(t, label+" minimum"),
		IncrementSeconds: rapid.OneOf(rapid.SampledFrom([]int{1, 6, 30, 60}), rapid.IntRange(1, 3600)).Draw(t, label+" increment"),
	}
}

// TestCostIsExact compares the cost at any rate with fractions of any size.
func TestCostIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := anyRate(t, "the")
		seconds := rapid.IntRange(0, 366*24*3600).Draw(t, "seconds")
		billed := big.NewInt(int64(max(seconds, rate.MinimumSeconds)))
		increment := big.NewInt(int64(rate.IncrementSeconds))
		if begun := new(big.Int); begun.Mod(billed, increment).Sign() > 0 {
			billed.Sub(billed.Add(billed, increment), begun)
		}
		exact := new(big.Rat).SetFrac(billed.Mul(billed, big.NewInt(rate.PerMinuteMicros)), big.NewInt(60))
		exact.Add(exact, new(big.Rat).SetInt64(rate.ConnectMicros))

		got := new(big.Rat).SetInt64(rate.Cost(true, seconds))
		require.GreaterOrEqual(t, got.Cmp(exact), 0, "never less than it costs")
		require.Negative(t, new(big.Rat).Sub(got, exact).Cmp(big.NewRat(1, 1)), "and less than a millionth more")
		require.LessOrEqual(t, rate.Cost(true, seconds), rate.Cost(true, seconds+1), "a longer leg never costs less")
		require.LessOrEqual(t, rate.Cost(false, seconds), rate.Cost(true, 0), "nor an answered one less than one that was not")
	})
}
