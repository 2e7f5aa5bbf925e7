package models_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// beginCall stores a call as whoever places one does.
func beginCall(t *testing.T, s *models.Store, app *models.Application, status string, b models.Beginning, trunkIDs ...string) (*models.Call, error) {
	call := &models.Call{CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: models.Outbound, Status: status}
	err := s.InTx(t.Context(), func(tx *models.Store) error {
		placed := *call
		placed.ID = models.NewID(models.PrefixCall)
		if len(trunkIDs) > 0 {
			placed.TrunkID = &trunkIDs[0]
		}
		if err := tx.CreateCall(t.Context(), &placed); err != nil {
			return err
		}
		tx.TakeTrunks(t.Context(), trunkIDs...)
		tx.TakeCustomer(t.Context(), app.CustomerID, b)
		*call = placed
		return nil
	})
	return call, err
}

func full(t *testing.T, err error, customer *models.Customer, limit string, room int) {
	t.Helper()
	var refused *models.LimitError
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, models.ErrCustomerFull)
	require.NotErrorIs(t, err, models.ErrTrunkFull)
	require.Equal(t, models.LimitError{Subject: models.SubjectCustomer, ID: customer.ID, Limit: limit, Room: room, RetryAfter: refused.RetryAfter}, *refused)
}

// TestCustomerMaxCalls has two processes begin a hundred calls of one customer at once, over trunks with limits of their own: exactly as many live as
// may.
func TestCustomerMaxCalls(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		const most, tries = 5, 100
		customer := modelstest.Customer(t, s, 0)
		app := modelstest.Application(t, s, customer)
		customer.Limits.MaxCalls = most
		require.NoError(t, s.SetLimits(t.Context(), customer))
		var trunks []string
		for range 2 {
			trunk := modelstest.OutboundTrunk(t, s, customer)
			trunk.Limits.MaxCalls = 1000
			require.NoError(t, s.UpdateTrunk(t.Context(), trunk))
			trunks = append(trunks, trunk.ID)
		}
		var all sync.WaitGroup
		var placed atomic.Int64
		var wrong atomic.Pointer[error]
		for i := range tries {
			at := s
			if i%2 == 1 {
				at = other
			}
			all.Go(func() {
				_, err := beginCall(t, at, app, models.CallDialing, models.Beginning{Lives: 1, Starts: 1}, trunks[i/2%2], trunks[(i/2+1)%2])
				switch {
				case err == nil:
					placed.Add(1)
				case !errors.Is(err, models.ErrCustomerFull):
					wrong.Store(&err)
				}
			})
		}
		all.Wait()
		require.Nil(t, wrong.Load())
		require.EqualValues(t, most, placed.Load())
		live, err := s.CountLiveCalls(t.Context(), customer.ID)
		require.NoError(t, err)
		require.EqualValues(t, most, live) // what was refused has left nothing

		// A lower limit cuts nothing and lets nothing more in; a higher one counts at once, for every process.
		customer.Limits.MaxCalls = most - 2
		require.NoError(t, s.SetLimits(t.Context(), customer))
		_, err = beginCall(t, other, app, models.CallDialing, models.Beginning{Lives: 1, Starts: 1})
		full(t, err, customer, "max_calls", 0)
		customer.Limits.MaxCalls = most + 1
		require.NoError(t, s.SetLimits(t.Context(), customer))
		_, err = beginCall(t, other, app, models.CallDialing, models.Beginning{Lives: 1, Starts: 1})
		require.NoError(t, err)
		_, err = beginCall(t, other, app, models.CallDialing, models.Beginning{Lives: 1, Starts: 1})
		full(t, err, customer, "max_calls", 0)
	})
}

// TestCustomerMaxCallsCounts: parties count as calls do, queued calls and other customers' do not, and what ends makes room.
func TestCustomerMaxCallsCounts(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer, stranger := modelstest.Customer(t, s, 0), modelstest.Customer(t, s, 0)
		app, strange := modelstest.Application(t, s, customer), modelstest.Application(t, s, stranger)
		customer.Limits.MaxCalls = 3
		require.NoError(t, s.SetLimits(ctx, customer))
		one := models.Beginning{Lives: 1, Starts: 1}
		for range 3 {
			_, err := beginCall(t, s, app, models.CallQueued, models.Beginning{})
			require.NoError(t, err)
			_, err = beginCall(t, s, strange, models.CallDialing, one)
			require.NoError(t, err)
		}
		call, err := beginCall(t, s, app, models.CallInProgress, one)
		require.NoError(t, err)
		dial := func(n int) (legs []models.Leg, err error) {
			err = s.InTx(ctx, func(tx *models.Store) error {
				legs = nil
				for range n {
					leg := models.Leg{CallID: call.ID, CustomerID: customer.ID, Kind: models.LegDial, Status: models.LegDialing}
					if err := tx.SaveLeg(ctx, &leg); err != nil {
						return err
					}
					legs = append(legs, leg)
					tx.TakeCustomer(ctx, customer.ID, one)
				}
				return nil
			})
			return legs, err
		}
		_, err = dial(5)
		full(t, err, customer, "max_calls", 2)
		legs, err := dial(2)
		require.NoError(t, err)
		_, err = beginCall(t, s, app, models.CallRinging, models.Beginning{Lives: 1})
		full(t, err, customer, "max_calls", 0)
		legs[0].Status = models.LegEnded
		require.NoError(t, s.SaveLeg(ctx, &legs[0]))
		_, err = beginCall(t, s, app, models.CallRinging, models.Beginning{Lives: 1})
		require.NoError(t, err)
	})
}

// TestCustomerMaxCallsPerSecond: in no second does more begin than may, whatever lives on or comes in besides.
func TestCustomerMaxCallsPerSecond(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		const most = 3
		customer := modelstest.Customer(t, s, 0)
		app := modelstest.Application(t, s, customer)
		customer.Limits.MaxCallsPerSecond = most
		require.NoError(t, s.SetLimits(t.Context(), customer))
		var begun []time.Time
		for range 60 {
			_, err := beginCall(t, s, app, models.CallDialing, models.Beginning{Lives: 1, Starts: 1})
			if err == nil {
				begun = append(begun, clock.Now())
			} else {
				full(t, err, customer, "max_calls_per_second", 0)
			}
			_, err = beginCall(t, s, app, models.CallRinging, models.Beginning{Lives: 1})
			require.NoError(t, err)
			clock.Advance(70 * time.Millisecond)
		}
		for i := most; i < len(begun); i++ {
			require.GreaterOrEqual(t, begun[i].Sub(begun[i-most]), time.Second)
		}
		require.GreaterOrEqual(t, len(begun), 4*most) // and no less: 60 steps are 4.2 seconds
	})
}

// everyLimit has a value of its own in each field.
var everyLimit = models.CallLimits{
	MaxCalls: 1, MaxCallsPerSecond: 2, DailyLimits: models.DailyLimits{MaxCallsPerDay: 3, MaxSpendPerDayMicros: 4, MaxCallSeconds: 5},
	Destinations: models.Destinations{
		AllowedDestinations: []string{"US", "+44"}, DeniedDestinations: []string{"+1900"}, AllowedDestinationTypes: []string{"premium"},
	},
}

// TestLimitsOfApplicationsAndTrunksAreKept has each limit read back, from the creation on and after a change.
func TestLimitsOfApplicationsAndTrunksAreKept(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		app, trunk := modelstest.Application(t, s, customer), modelstest.OutboundTrunk(t, s, customer)
		for _, limits := range []models.CallLimits{
			everyLimit, {Destinations: models.Destinations{AllowedDestinations: []string{}, AllowedDestinationTypes: []string{}}}, {},
		} {
			made := models.Application{CustomerID: customer.ID, Name: "made", AnswerURL: "https://example.com", Limits: limits}
			require.NoError(t, s.CreateApplication(ctx, &made))
			app.Limits = limits
			require.NoError(t, s.UpdateApplication(ctx, app))
			for _, id := range []string{made.ID, app.ID} {
				stored, err := s.Application(ctx, customer.ID, id)
				require.NoError(t, err)
				require.Equal(t, limits, stored.Limits)
			}
			trunk.Limits = limits
			require.NoError(t, s.UpdateTrunk(ctx, trunk))
			stored, err := s.Trunk(ctx, customer.ID, trunk.ID)
			require.NoError(t, err)
			require.Equal(t, limits, stored.Limits)
		}
	})
}

func TestCustomerLimitsAreKept(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		customer := modelstest.Customer(t, s, 5_000_000)
		require.Equal(t, models.CustomerLimits{}, customer.Limits)
		for _, limits := range []models.CustomerLimits{
			{CallLimits: everyLimit, RequestsPerMinute: 90},
			{CallLimits: models.CallLimits{Destinations: models.Destinations{AllowedDestinations: []string{}}}}, // nothing, which is not everything
			{},
		} {
			customer.Limits = limits
			require.NoError(t, s.SetLimits(t.Context(), customer))
			stored, err := s.LimitsOf(t.Context(), customer.ID)
			require.NoError(t, err)
			require.Equal(t, limits, stored)
			require.NoError(t, s.InTx(t.Context(), func(tx *models.Store) error {
				edited, err := tx.EditCustomer(t.Context(), customer.ID)
				require.NoError(t, err)
				require.Equal(t, limits, edited.Limits)
				require.EqualValues(t, 5_000_000, edited.BalanceMicros)
				return nil
			}))
		}
		require.ErrorIs(t, s.SetLimits(t.Context(), &models.Customer{ID: "cust_none"}), models.ErrNotFound)
		made := models.Customer{Name: "New", Limits: models.CustomerLimits{CallLimits: models.CallLimits{MaxCalls: 7, Destinations: models.Destinations{AllowedDestinations: []string{}}}}}
		require.NoError(t, s.CreateCustomer(t.Context(), &made))
		require.Equal(t, models.CustomerLimits{CallLimits: models.CallLimits{MaxCalls: 7, Destinations: models.Destinations{AllowedDestinations: []string{}}}}, made.Limits)
	})
}
