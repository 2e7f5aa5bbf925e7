package billing_test

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"math/big"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"tandem/billing"
	"tandem/models"
	"tandem/models/modelstest"
)

func newRater(t require.TestingT, cfg billing.Config) *billing.Rater {
	rater, err := billing.New(cfg)
	require.NoError(t, err)
	return rater
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]billing.Config{
		"negative price":    {OutboundPerMinuteMicros: -1},
		"absurd price":      {InboundPerMinuteMicros: math.MaxInt64},
		"increment":         {IncrementSeconds: -1},
		"increment too big": {IncrementSeconds: 3601},
		"least":             {MinGrantSeconds: -1},
		"greatest":          {MinGrantSeconds: 60, MaxGrantSeconds: 119},
		"greatest too big":  {MaxGrantSeconds: math.MaxInt32},
	} {
		_, err := billing.New(cfg)
		require.Error(t, err, name)
	}
	rater := newRater(t, billing.Config{OutboundPerMinuteMicros: 12, InboundPerMinuteMicros: 7})
	require.Equal(t, []int64{12, 7}, []int64{rater.Price(models.Outbound), rater.Price(models.Inbound)})
}

func TestCost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		increment int
		price     int64
		seconds   int
		want      int64
	}{
		{60, 10_000, 0, 0}, {60, 10_000, 1, 10_000}, {60, 10_000, 60, 10_000}, {60, 10_000, 61, 20_000}, {60, 0, 61, 0}, {60, 10_000, -5, 0},
		{1, 10_000, 1, 167}, {1, 10_000, 60, 10_000}, {6, 10_000, 7, 2_000}, {1, 1, 1, 1}, {1, 60, 1, 1}, {1, 61, 1, 2},
		{30, 4_900_000_000, 31, 4_900_000_000}, {60, 1_000_000_000_000, math.MaxInt32, math.MaxInt64},
		{1, 301_957_377_401, 30_545_278, 153_722_867_281_074_375},
	} {
		rater := newRater(t, billing.Config{IncrementSeconds: test.increment})
		require.Equal(t, test.want, rater.Cost(test.price, test.seconds), "%+v", test)
	}
}

// TestCostIsExact compares the cost with fractions of any size.
func TestCostIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		increment := rapid.IntRange(1, 3600).Draw(t, "increment")
		price := rapid.Int64Range(0, 1_000_000_000_000).Draw(t, "price")
		seconds := rapid.IntRange(0, 366*24*3600).Draw(t, "seconds")
		rater := newRater(t, billing.Config{IncrementSeconds: increment, MaxGrantSeconds: 7200})

		increments := new(big.Int).Div(big.NewInt(int64(seconds+increment-1)), big.NewInt(int64(increment)))
		exact := new(big.Rat).SetFrac(new(big.Int).Mul(increments, new(big.Int).Mul(big.NewInt(int64(increment)), big.NewInt(price))), big.NewInt(60))
		got := new(big.Rat).SetInt64(rater.Cost(price, seconds))
		require.GreaterOrEqual(t, got.Cmp(exact), 0, "never less than it costs")
		require.Negative(t, new(big.Rat).Sub(got, exact).Cmp(big.NewRat(1, 1)), "and less than a millionth more")
		require.LessOrEqual(t, rater.Cost(price, seconds), rater.Cost(price, seconds+1), "a longer call never costs less")
	})
}

func hold(t *testing.T, s *models.Store, rater *billing.Rater, app *models.Application, direction string) (*models.Call, error) {
	t.Helper()
	call := &models.Call{
		CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: direction, Status: models.CallDialing, From: "+15550000001", To: "+15550000002",
	}
	err := s.InTx(t.Context(), func(tx *models.Store) error {
		reservation, err := rater.Reserve(t.Context(), tx, app.CustomerID, direction)
		if err != nil {
			return err
		}
		call.PricePerMinuteMicros, call.HoldMicros, call.GrantedSeconds = reservation.PricePerMinuteMicros, reservation.HoldMicros, reservation.GrantedSeconds
		return tx.CreateCall(t.Context(), call)
	})
	return call, err
}

func TestReserveGrants(t *testing.T) {
	t.Parallel()
	rater := newRater(t, billing.Config{OutboundPerMinuteMicros: 10_000, IncrementSeconds: 6, MinGrantSeconds: 60, MaxGrantSeconds: 600})
	for _, test := range []struct {
		balance int64
		granted int
		held    int64
	}{
		{1_000_000, 600, 100_000}, {100_000, 600, 100_000}, {99_999, 594, 99_000}, {99_000, 594, 99_000}, {11_000, 66, 11_000}, {11_999, 66, 11_000},
		{10_999, 0, 0}, {0, 0, 0},
	} {
		modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
			app := modelstest.Application(t, s, modelstest.Customer(t, s, test.balance))
			call, err := hold(t, s, rater, app, models.Outbound)
			if test.granted == 0 {
				require.ErrorIs(t, err, models.ErrInsufficientBalance)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, []int64{int64(test.granted), test.held}, []int64{int64(call.GrantedSeconds), call.HoldMicros})
			customer, err := s.Customer(t.Context(), app.CustomerID)
			require.NoError(t, err)
			require.Equal(t, []int64{test.balance, test.held}, []int64{customer.BalanceMicros, customer.HeldMicros})
			require.Equal(t, rater.Cost(call.PricePerMinuteMicros, call.GrantedSeconds), call.HoldMicros, "the hold is what the grant costs")

			free, err := hold(t, s, rater, app, models.Inbound)
			require.NoError(t, err, "what costs nothing needs no balance")
			require.Equal(t, []int64{600, 0}, []int64{int64(free.GrantedSeconds), free.HoldMicros})
		})
	}
	_, err := rater.Reserve(t.Context(), modelstest.Open(t), "cust_none", models.Outbound)
	require.ErrorIs(t, err, models.ErrNotFound)
}

func TestSettle(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		rater := newRater(t, billing.Config{OutboundPerMinuteMicros: 10_000, MaxGrantSeconds: 300})
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 1_000_000))
		call, err := hold(t, s, rater, app, models.Outbound)
		require.NoError(t, err)
		require.Error(t, rater.Settle(ctx, s, call, -1))

		// Not kept: neither in the database nor in the call that the caller has.
		refused := errors.New("refused by the test")
		copied := *call
		require.ErrorIs(t, s.InTx(ctx, func(tx *models.Store) error { return errors.Join(rater.Settle(ctx, tx, &copied, 61), refused) }), refused)

		copies := make([]models.Call, 8)
		var stale atomic.Int64
		var group errgroup.Group
		for i := range copies {
			copies[i] = *call
		}
		for i := range copies {
			group.Go(func() error {
				err := rater.Settle(ctx, s, &copies[i], 61)
				if errors.Is(err, models.ErrStale) {
					stale.Add(1)
					return nil
				}
				*call = copies[i]
				return err
			})
		}
		require.NoError(t, group.Wait())
		require.Equal(t, int64(7), stale.Load(), "once")
		require.Equal(t, []int64{61, 20_000}, []int64{int64(call.BilledSeconds), call.CostMicros})
		found, err := s.CallByID(ctx, call.ID)
		require.NoError(t, err)
		require.Equal(t, call, found)
		customer, err := s.Customer(ctx, app.CustomerID)
		require.NoError(t, err)
		require.Equal(t, []int64{980_000, 0}, []int64{customer.BalanceMicros, customer.HeldMicros})

		unanswered, err := hold(t, s, rater, app, models.Outbound)
		require.NoError(t, err)
		require.NoError(t, rater.Settle(ctx, s, unanswered, 0))
		require.NotNil(t, unanswered.SettledAt)
		entries, _, err := s.ListLedger(ctx, app.CustomerID, models.LedgerFilter{}, models.Page{})
		require.NoError(t, err)
		require.Len(t, entries, 2, "the topup and one debit")
		violations, err := s.VerifyLedger(ctx)
		require.NoError(t, err)
		require.Empty(t, violations)
	})
}

// TestSettleOverrun settles calls that the switch let run past their cap.
func TestSettleOverrun(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		var logged bytes.Buffer
		rater := newRater(t, billing.Config{
			OutboundPerMinuteMicros: 10_000, MaxGrantSeconds: 120, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		})
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 70_000))
		first, err := hold(t, s, rater, app, models.Outbound)
		require.NoError(t, err)
		second, err := hold(t, s, rater, app, models.Outbound)
		require.NoError(t, err)
		third, err := hold(t, s, rater, app, models.Outbound)
		require.NoError(t, err)

		require.NoError(t, rater.Settle(ctx, s, first, 120))
		require.Empty(t, logged.String(), "within its hold")
		require.NoError(t, rater.Settle(ctx, s, second, 121))
		require.Equal(t, int64(30_000), second.CostMicros, "the free balance pays the rest")
		require.Contains(t, logged.String(), "call cost more than its hold")
		fourth := third
		require.NoError(t, rater.Settle(ctx, s, fourth, 6_000))
		require.Equal(t, int64(20_000), fourth.CostMicros, "no more than there is")
		require.Equal(t, 6_000, fourth.BilledSeconds)
		customer, err := s.Customer(ctx, app.CustomerID)
		require.NoError(t, err)
		require.Equal(t, []int64{0, 0}, []int64{customer.BalanceMicros, customer.HeldMicros})
		violations, err := s.VerifyLedger(ctx)
		require.NoError(t, err)
		require.Empty(t, violations)
	})
}
