package billing_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/billing"
	"tandem/models"
	"tandem/models/modelstest"
)

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
		"longest":           {MaxCallSeconds: -1},
		"longest too big":   {MaxCallSeconds: math.MaxInt32},
	} {
		_, err := billing.New(cfg)
		require.Error(t, err, name)
	}
}

// TestReserve has the least at 66 seconds (60 and one increment) for 11 000, and 600 seconds as the most, for 100 000.
func TestReserve(t *testing.T) {
	t.Parallel()
	cfg := billing.Config{OutboundPerMinuteMicros: 10_000, IncrementSeconds: 6, MinGrantSeconds: 60, MaxGrantSeconds: 600, MaxCallSeconds: 1200}
	for name, test := range map[string]struct {
		balance, credit int64
		maxSeconds      int
		granted         int
		held            int64
		longest         int
	}{
		"a hundredth pays for the most":        {balance: 10_000_000, granted: 600, held: 100_000, longest: 1200},
		"a hundredth is more than the most":    {balance: 99_000_000, granted: 600, held: 100_000, longest: 1200},
		"a hundredth":                          {balance: 5_000_000, granted: 300, held: 50_000, longest: 1200},
		"of a hundredth, whole increments":     {balance: 5_099_999, granted: 300, held: 50_000, longest: 1200},
		"a millionth for one more":             {balance: 5_100_000, granted: 306, held: 51_000, longest: 1200},
		"a hundredth pays for the least":       {balance: 1_100_000, granted: 66, held: 11_000, longest: 1200},
		"a hundredth pays for less":            {balance: 199_999, granted: 66, held: 11_000, longest: 1194},
		"just the least":                       {balance: 11_000, granted: 66, held: 11_000, longest: 66},
		"a millionth too little":               {balance: 10_999},
		"nothing":                              {},
		"credit":                               {credit: 11_000, granted: 66, held: 11_000, longest: 66},
		"a hundredth of balance and credit":    {balance: 2_500_000, credit: 2_500_000, granted: 300, held: 50_000, longest: 1200},
		"the call's own limit":                 {balance: 10_000_000, maxSeconds: 120, granted: 120, held: 20_000, longest: 120},
		"a limit below the least":              {balance: 5_000, maxSeconds: 30, granted: 30, held: 5_000, longest: 30},
		"a limit that is no increment":         {balance: 10_000_000, maxSeconds: 31, granted: 31, held: 6_000, longest: 31},
		"a limit below the least, unpaid":      {balance: 4_999, maxSeconds: 30},
		"a limit above that of everybody":      {balance: 99_000_000, maxSeconds: 100_000, granted: 600, held: 100_000, longest: 1200},
		"a limit between the most and longest": {balance: 99_000_000, maxSeconds: 900, granted: 600, held: 100_000, longest: 900},
	} {
		modelstest.Run(t, name, func(t *testing.T, s *models.Store) {
			rater := newRater(t, cfg)
			customer := &models.Customer{Name: "customer", BalanceMicros: test.balance, CreditLimitMicros: test.credit}
			require.NoError(t, s.CreateCustomer(t.Context(), customer))
			app := modelstest.Application(t, s, customer)
			offer, offered := rater.Offer(t.Context(), s, outbound(customer.ID), test.maxSeconds)
			requireMoney(t, s, customer.ID, test.balance, 0)
			call, err := begin(t.Context(), s, rater, app, outbound(customer.ID), test.maxSeconds)
			requireMoney(t, s, customer.ID, test.balance, test.held)
			if test.granted == 0 {
				require.ErrorIs(t, err, models.ErrInsufficientBalance)
				require.ErrorIs(t, offered, models.ErrInsufficientBalance)
				return
			}
			require.NoError(t, errors.Join(err, offered))
			require.Equal(t, []int64{int64(test.granted), test.held}, []int64{int64(call.GrantedSeconds), call.HoldMicros})
			require.Equal(t, []int64{int64(test.granted), test.held, int64(test.longest)},
				[]int64{int64(offer.GrantedSeconds), offer.HoldMicros, int64(offer.LongestSeconds)}, "what is offered is what is held then")
			stored, err := s.CallByID(t.Context(), call.ID)
			require.NoError(t, err)
			require.Equal(t, offer.Rate, *stored.Rate)

			free, err := begin(t.Context(), s, rater, app, billing.Leg{CustomerID: customer.ID, Direction: models.Inbound, Number: home}, 0)
			require.NoError(t, err, "what costs nothing needs no balance")
			require.Equal(t, []int64{600, 0}, []int64{int64(free.GrantedSeconds), free.HoldMicros})
		})
	}
}

// TestReserveGrantsAllThatIsHeldFor has rates whose minimum or increments reach beyond the least: what is paid for is granted.
func TestReserveGrantsAllThatIsHeldFor(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		rater := newRater(t, billing.Config{MinGrantSeconds: 60, MaxGrantSeconds: 600})
		newDeck(t, s, models.RateDeck{Name: "default", IsDefault: true},
			models.DeckRate{Prefix: "1", PerMinuteMicros: 6_000, IncrementSeconds: 25}, // the least is 85 s, of which 100 are paid
			models.DeckRate{Prefix: "44", PerMinuteMicros: 6_000, IncrementSeconds: 1, MinimumSeconds: 180, ConnectMicros: 50},
			models.DeckRate{Prefix: "49", PerMinuteMicros: 6_000, IncrementSeconds: 1, MinimumSeconds: 900},
			models.DeckRate{Prefix: "33", ConnectMicros: 50})
		for _, test := range []struct {
			number     string
			maxSeconds int
			granted    int
			held       int64
		}{
			{home, 0, 100, 10_000}, {home, 90, 90, 10_000}, {abroad, 0, 180, 18_050}, {"+4930123456", 0, 900, 90_000}, {"+33123456789", 0, 600, 50},
		} {
			customer := modelstest.Customer(t, s, test.held)
			app := modelstest.Application(t, s, customer)
			call, err := begin(t.Context(), s, rater, app, billing.Leg{CustomerID: customer.ID, Direction: models.Outbound, Number: test.number}, test.maxSeconds)
			require.NoError(t, err)
			require.Equal(t, []int64{int64(test.granted), test.held}, []int64{int64(call.GrantedSeconds), call.HoldMicros}, test.number)
		}
		requireSound(t, s)
	})
}

func TestReserveRefuses(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		rater := newRater(t, billing.Config{})
		suspended := &models.Customer{Name: "suspended", Status: models.CustomerSuspended, BalanceMicros: 1_000_000}
		require.NoError(t, s.CreateCustomer(t.Context(), suspended))
		strict := newDeck(t, s, models.RateDeck{Name: "strict", Unlisted: models.UnlistedRefuse}, models.DeckRate{Prefix: "49"})
		for _, test := range []struct {
			leg  billing.Leg
			want error
		}{
			{outbound(suspended.ID), billing.ErrSuspended},
			{outbound("cust_none"), models.ErrNotFound},
			{billing.Leg{CustomerID: modelstest.Customer(t, s, 1).ID, Direction: models.Outbound, Number: home, TrunkDeckID: strict.ID}, billing.ErrUnlisted},
		} {
			for _, reserve := range []func(context.Context, *models.Store, billing.Leg, int) (billing.Reservation, error){rater.Reserve, rater.ReserveLeast} {
				reservation, err := reserve(t.Context(), s, test.leg, 0)
				require.ErrorIs(t, err, test.want)
				require.Zero(t, reservation)
			}
			_, err := rater.Offer(t.Context(), s, test.leg, 0)
			require.ErrorIs(t, err, test.want)
		}
		requireMoney(t, s, suspended.ID, 1_000_000, 0)
	})
}

// TestReserveBounded says of a customer that may have only so many calls that it is so.
func TestReserveBounded(t *testing.T) {
	t.Parallel()
	s, rater := modelstest.Open(t), newRater(t, billing.Config{})
	for _, bound := range []int{0, 5} {
		customer := &models.Customer{Name: "customer", Limits: models.CustomerLimits{CallLimits: models.CallLimits{MaxCalls: bound}}}
		require.NoError(t, s.CreateCustomer(t.Context(), customer))
		reservation, err := rater.Reserve(t.Context(), s, outbound(customer.ID), 0)
		require.NoError(t, err)
		require.Equal(t, bound > 0, reservation.Bounded)
	}
}

// TestBalancePaysForExactlyThat sends 200 requests at once, through two stores, for a balance that pays for the least of 50.
func TestBalancePaysForExactlyThat(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		const price, paid, asked = 10_000, 50, 200
		rater := newRater(t, billing.Config{OutboundPerMinuteMicros: price})
		customer := modelstest.Customer(t, s, paid*2*price+price) // the least is two minutes
		app := modelstest.Application(t, s, customer)
		var begun, refused atomic.Int64
		var group errgroup.Group
		for i := range asked {
			group.Go(func() error {
				_, err := begin(t.Context(), []*models.Store{s, other}[i%2], rater, app, outbound(customer.ID), 0)
				switch {
				case err == nil:
					begun.Add(1)
				case errors.Is(err, models.ErrInsufficientBalance):
					refused.Add(1)
				default:
					return err
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		require.Equal(t, []int64{paid, asked - paid}, []int64{begun.Load(), refused.Load()})
		requireMoney(t, s, customer.ID, paid*2*price+price, paid*2*price)
		live, err := s.CountLiveCalls(t.Context(), customer.ID)
		require.NoError(t, err)
		require.EqualValues(t, paid, live, "a call that is refused is not there")
	})
}
