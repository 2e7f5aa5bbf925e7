package billing_test

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/billing"
	"tandem/models"
	"tandem/models/modelstest"
)

// line is what is compared of a line of a bill.
type line struct {
	kind     string
	answered bool
	seconds  int
	amount   int64
}

func linesOf(t testing.TB, s *models.Store, call *models.Call) (lines []line) {
	t.Helper()
	charges, err := s.ChargesOf(t.Context(), call.CustomerID, call.ID)
	require.NoError(t, err)
	for i := range charges {
		lines = append(lines, line{charges[i].Kind, charges[i].Answered, charges[i].BilledSeconds, charges[i].AmountMicros})
	}
	return lines
}

func TestSettleOnce(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		rater := newRater(t, billing.Config{OutboundPerMinuteMicros: 10_000, MaxGrantSeconds: 300})
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 1_000_000))
		call := mustBegin(t, s, rater, app)
		answer(ctx, t, s, call, noon)
		require.Error(t, rater.Settle(ctx, s, call, -1, true))

		// Not kept: neither in the database nor in the call that the caller has.
		refused := errors.New("refused by the test")
		copied := *call
		require.ErrorIs(t, s.InTx(ctx, func(tx *models.Store) error { return errors.Join(rater.Settle(ctx, tx, &copied, 61, true), refused) }), refused)
		require.Empty(t, linesOf(t, s, call))

		copies := make([]models.Call, 8)
		var stale atomic.Int64
		var group errgroup.Group
		for i := range copies {
			copies[i] = *call
		}
		for i := range copies {
			group.Go(func() error {
				err := rater.Settle(ctx, []*models.Store{s, other}[i%2], &copies[i], 61, true)
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
		require.Equal(t, []line{{models.ChargeCall, true, 61, 20_000}}, linesOf(t, s, call))
		requireMoney(t, s, app.CustomerID, 980_000, 0)
	})
}

// TestSettleByLegs settles a call with legs of every kind; each has a line of its own.
func TestSettleByLegs(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		rater := newRater(t, billing.Config{OutboundPerMinuteMicros: 6_000})
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 100_000_000))
		call := mustBegin(t, s, rater, app)
		answer(ctx, t, s, call, noon)
		onAttempt := models.Rate{PerMinuteMicros: 600, ConnectMicros: 50, ConnectOn: models.ConnectOnAttempt, IncrementSeconds: 1}
		onAnswer := models.Rate{PerMinuteMicros: 600, ConnectMicros: 70, IncrementSeconds: 6}
		at := noon
		for _, leg := range []models.Leg{
			{ID: "leg_1", Kind: models.LegAttempt, SIPCode: 503, Rate: &onAttempt},
			{ID: "leg_2", Kind: models.LegAttempt, Rate: &onAttempt}, // its carrier never said a word
			{ID: "leg_3", AnsweredAt: &at, BilledSeconds: 7, Rate: &onAnswer},
			{ID: "leg_4", RingingAt: &at, SIPCode: 486, Rate: &onAnswer},
			{ID: "leg_5", RingingAt: &at, Rate: &onAttempt},
			{ID: "leg_6", Kind: models.LegTransfer, AnsweredAt: &at, BilledSeconds: 0, Rate: &onAnswer},
			{ID: "leg_7", Kind: models.LegQueue, AnsweredAt: &at, BilledSeconds: 60},                  // was promised nothing
			{ID: "leg_8", SIPCode: 200, BilledSeconds: 12, Rate: &onAnswer},                           // the word of its answer was lost
			{ID: "leg_9", AnsweredAt: &at, BilledSeconds: 9, Rate: &models.Rate{IncrementSeconds: 1}}, // free
		} {
			stored := addLeg(ctx, t, s, call, leg)
			if leg.ID == "leg_8" {
				require.EqualValues(t, 70+120, billing.LegCost(stored))
			}
		}
		require.NoError(t, rater.Settle(ctx, s, call, 61, true))
		require.Equal(t, []line{
			{models.ChargeCall, true, 61, 12_000},
			{models.LegAttempt, false, 0, 50},
			{models.LegAttempt, false, 0, 0},
			{models.LegDial, true, 7, 70 + 120},
			{models.LegDial, false, 0, 0},
			{models.LegDial, false, 0, 50},
			{models.LegTransfer, true, 0, 70},
			{models.LegDial, true, 12, 70 + 120},
			{models.LegDial, true, 9, 0},
		}, linesOf(t, s, call))
		require.EqualValues(t, 12_000+50+190+50+70+190, call.CostMicros)
		require.Equal(t, 61, call.BilledSeconds, "the call's own")
		requireMoney(t, s, app.CustomerID, 100_000_000-call.CostMicros, 0)
		foreign, err := s.ChargesOf(ctx, modelstest.Customer(t, s, 0).ID, call.ID)
		require.NoError(t, err)
		require.Empty(t, foreign)
	})
}

// TestSettleWithoutAnswer settles calls that nobody answered, some of which a carrier had been given.
func TestSettleWithoutAnswer(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		rater := newRater(t, billing.Config{})
		newDeck(t, s, models.RateDeck{Name: "default", IsDefault: true},
			models.DeckRate{Prefix: "1", PerMinuteMicros: 6_000, ConnectMicros: 50, ConnectOn: models.ConnectOnAttempt},
			models.DeckRate{Prefix: "44", PerMinuteMicros: 6_000, ConnectMicros: 50, ConnectOn: models.ConnectOnAnswer})
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 1_000_000))
		left := int64(1_000_000)
		for name, test := range map[string]struct {
			number    string
			attempted bool
			cost      int64
		}{
			"fee on attempt, reached":     {home, true, 50},
			"fee on attempt, not reached": {home, false, 0},
			"fee on answer":               {abroad, true, 0},
		} {
			call, err := begin(ctx, s, rater, app, billing.Leg{CustomerID: app.CustomerID, Direction: models.Outbound, Number: test.number}, 0)
			require.NoError(t, err)
			require.NoError(t, rater.Settle(ctx, s, call, 0, test.attempted))
			require.Equal(t, test.cost, call.CostMicros, name)
			require.Equal(t, []line{{models.ChargeCall, false, 0, test.cost}}, linesOf(t, s, call), name)
			left -= test.cost
		}
		// The word of its answer was lost: that it has seconds says that it was answered.
		call := mustBegin(t, s, rater, app)
		require.NoError(t, rater.Settle(ctx, s, call, 60, true))
		require.Equal(t, []line{{models.ChargeCall, true, 60, 6_050}}, linesOf(t, s, call))
		requireMoney(t, s, app.CustomerID, left-6_050, 0)

		queued := &models.Call{CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallQueued, To: home}
		require.NoError(t, s.CreateCall(ctx, queued))
		require.NoError(t, rater.Settle(ctx, s, queued, 0, false))
		require.NotNil(t, queued.SettledAt)
		require.Empty(t, linesOf(t, s, queued), "what was never to be dialled has no bill")
		requireMoney(t, s, app.CustomerID, left-6_050, 0)
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
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 90_000))
		var calls []*models.Call
		for range 4 {
			call := mustBegin(t, s, rater, app)
			answer(ctx, t, s, call, noon)
			calls = append(calls, call)
		}
		require.NoError(t, rater.Settle(ctx, s, calls[0], 120, true))
		require.Empty(t, logged.String(), "within its hold")
		require.NoError(t, rater.Settle(ctx, s, calls[1], 121, true))
		require.Equal(t, int64(30_000), calls[1].CostMicros, "the free balance pays the rest")
		require.Contains(t, logged.String(), "call cost more than its hold")
		require.Equal(t, []line{{models.ChargeCall, true, 121, 30_000}}, linesOf(t, s, calls[1]))
		requireMoney(t, s, app.CustomerID, 40_000, 40_000)

		require.NoError(t, rater.Settle(ctx, s, calls[2], 6_000, true))
		require.Equal(t, int64(20_000), calls[2].CostMicros, "what another call holds pays nothing")
		require.Equal(t, 6_000, calls[2].BilledSeconds)
		require.Equal(t, []line{{models.ChargeCall, true, 6_000, 1_000_000}, {models.ChargeWaived, false, 0, -980_000}}, linesOf(t, s, calls[2]))
		require.NoError(t, rater.Settle(ctx, s, calls[3], 60, true))
		requireMoney(t, s, app.CustomerID, 10_000, 0)
	})
}

// TestSettleWhatIsBeyondAllMoney settles a call whose lines are no int64 together: it must end, and cost no more than there is.
func TestSettleWhatIsBeyondAllMoney(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		rater := newRater(t, billing.Config{OutboundPerMinuteMicros: 10_000})
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 90_000))
		call := mustBegin(t, s, rater, app)
		at := noon
		for range 2 {
			addLeg(t.Context(), t, s, call, models.Leg{AnsweredAt: &at, BilledSeconds: 60, Rate: &models.Rate{PerMinuteMicros: math.MaxInt64, IncrementSeconds: 60}})
		}
		require.NoError(t, rater.Settle(t.Context(), s, call, 0, true))
		require.Equal(t, int64(90_000), call.CostMicros)
	})
}

// TestSettleOldCall settles a call that began before there were rates: by its price of a minute.
func TestSettleOldCall(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		rater := newRater(t, billing.Config{IncrementSeconds: 6})
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 90_000))
		call := &models.Call{
			CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallInProgress, To: home,
			PricePerMinuteMicros: 10_000, HoldMicros: 20_000, GrantedSeconds: 120, AnsweredAt: &time.Time{},
		}
		*call.AnsweredAt = noon
		require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
			return errors.Join(tx.Hold(ctx, app.CustomerID, call.HoldMicros), tx.CreateCall(ctx, call))
		}))
		require.NoError(t, rater.Settle(ctx, s, call, 61, true))
		require.Equal(t, []line{{models.ChargeCall, true, 61, 11_000}}, linesOf(t, s, call))
		requireMoney(t, s, app.CustomerID, 79_000, 0)
	})
}

// TestSettleBetweenOthers settles, extends and pays in at once, on two stores: nothing is lost.
func TestSettleBetweenOthers(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		k := newTalk(t, s, 100, 600_000)
		var group errgroup.Group
		app := modelstest.Application(t, s, k.customer)
		for i := range 12 {
			store := []*models.Store{s, other}[i%2]
			group.Go(func() error {
				_, err := store.Credit(t.Context(), k.customer.ID, "pay "+string(rune('a'+i)), models.LedgerTopup, 1_000, "")
				return err
			})
			group.Go(func() error {
				call := *k.call
				err := store.InTx(t.Context(), func(tx *models.Store) error {
					_, err := k.rater.Extend(t.Context(), tx, &call, k.account, k.now, k.limit, i%3 > 0)
					return err
				})
				if errors.Is(err, models.ErrStale) {
					return nil
				}
				return err
			})
			group.Go(func() error {
				call, err := begin(t.Context(), store, k.rater, app, outbound(k.customer.ID), 0)
				if err != nil {
					return err
				}
				return k.rater.Settle(t.Context(), store, call, 1+i*60, true)
			})
		}
		require.NoError(t, group.Wait())
		call, err := s.CallByID(t.Context(), k.call.ID)
		require.NoError(t, err)
		require.Greater(t, call.HoldMicros, int64(12_000), "one of the extensions was first")
		requireSound(t, s)
		customer, err := s.Customer(t.Context(), k.customer.ID)
		require.NoError(t, err)
		require.Equal(t, []int64{12_000 + 600_000 + 12_000 - 6_000*78, call.HoldMicros}, []int64{customer.BalanceMicros, customer.HeldMicros})
	})
}
