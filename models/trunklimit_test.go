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

// placeCall stores a call on a trunk as whoever places one does.
func placeCall(t *testing.T, s *models.Store, app *models.Application, trunk *models.Trunk) (*models.Call, error) {
	call := &models.Call{CustomerID: app.CustomerID, ApplicationID: app.ID, TrunkID: &trunk.ID, Direction: models.Outbound, Status: models.CallDialing}
	err := s.InTx(t.Context(), func(tx *models.Store) error {
		placed := *call
		placed.ID = models.NewID(models.PrefixCall)
		if err := tx.CreateCall(t.Context(), &placed); err != nil {
			return err
		}
		tx.TakeTrunks(t.Context(), trunk.ID)
		*call = placed
		return nil
	})
	return call, err
}

func refusedBy(t *testing.T, err error, trunk *models.Trunk, limit string, room int) {
	t.Helper()
	require.ErrorIs(t, err, models.ErrTrunkFull)
	var full *models.LimitError
	require.ErrorAs(t, err, &full)
	require.Equal(t, models.LimitError{Subject: models.SubjectTrunk, ID: trunk.ID, Limit: limit, Room: room, RetryAfter: full.RetryAfter}, *full)
}

// TestMaxCalls has two processes place calls on one trunk at once, again and again: each time exactly as many are placed as it may have.
func TestMaxCalls(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		const limit, tries, rounds = 3, 12, 8
		customer := modelstest.Customer(t, s, 0)
		app := modelstest.Application(t, s, customer)
		trunk := modelstest.OutboundTrunk(t, s, customer)
		trunk.Limits.MaxCalls = limit
		require.NoError(t, s.UpdateTrunk(t.Context(), trunk))
		for range rounds {
			var all sync.WaitGroup
			var mu sync.Mutex
			var placed []*models.Call
			var wrong atomic.Pointer[error]
			for i := range tries {
				at := s
				if i%2 == 1 {
					at = other
				}
				all.Go(func() {
					call, err := placeCall(t, at, app, trunk)
					switch {
					case err == nil:
						mu.Lock()
						defer mu.Unlock()
						placed = append(placed, call)
					case !errors.Is(err, models.ErrTrunkFull):
						wrong.Store(&err)
					}
				})
			}
			all.Wait()
			require.Nil(t, wrong.Load())
			require.Len(t, placed, limit)
			_, err := placeCall(t, other, app, trunk)
			refusedBy(t, err, trunk, "max_calls", 0)
			for _, call := range placed {
				call.Status = models.CallFailed
				require.NoError(t, s.TransitionCall(t.Context(), call, []string{models.CallDialing}))
			}
		}
		// What was refused has left nothing.
		rows, _, err := s.ListCalls(t.Context(), customer.ID, models.CallFilter{}, models.Page{Limit: 100})
		require.NoError(t, err)
		require.Len(t, rows, limit*rounds)
	})
}

// TestMaxCallsCountsLegs: a party that a call dials is on the trunk as well as a call of its own.
func TestMaxCallsCountsLegs(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		app := modelstest.Application(t, s, customer)
		trunk, free := modelstest.OutboundTrunk(t, s, customer), modelstest.OutboundTrunk(t, s, customer)
		trunk.Limits.MaxCalls = 2
		require.NoError(t, s.UpdateTrunk(ctx, trunk))
		call, err := placeCall(t, s, app, trunk)
		require.NoError(t, err)
		dial := func(over ...*models.Trunk) (legs []models.Leg, err error) {
			err = s.InTx(ctx, func(tx *models.Store) error {
				legs = nil
				for _, trunk := range over {
					leg := models.Leg{CallID: call.ID, CustomerID: customer.ID, Kind: models.LegDial, Status: models.LegDialing, TrunkID: &trunk.ID}
					if err := tx.SaveLeg(ctx, &leg); err != nil {
						return err
					}
					tx.TakeTrunks(ctx, trunk.ID)
					legs = append(legs, leg)
				}
				return nil
			})
			return legs, err
		}
		_, err = dial(trunk, free, trunk)
		refusedBy(t, err, trunk, "max_calls", 1)
		legs, err := dial(trunk, free, free)
		require.NoError(t, err)
		_, err = placeCall(t, s, app, trunk)
		refusedBy(t, err, trunk, "max_calls", 0)
		legs[0].Status = models.LegEnded
		require.NoError(t, s.SaveLeg(ctx, &legs[0]))
		_, err = placeCall(t, s, app, trunk)
		require.NoError(t, err)
		_, err = dial(trunk)
		refusedBy(t, err, trunk, "max_calls", 0)
		stored, err := s.LegsOfCall(ctx, customer.ID, call.ID)
		require.NoError(t, err)
		require.Len(t, stored, 3)
	})
}

// TestMaxCallsPerSecond: in no second do more calls begin than may, wherever the second begins.
func TestMaxCallsPerSecond(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		const limit = 4
		customer := modelstest.Customer(t, s, 0)
		app := modelstest.Application(t, s, customer)
		trunk := modelstest.OutboundTrunk(t, s, customer)
		trunk.Limits.MaxCallsPerSecond = limit
		require.NoError(t, s.UpdateTrunk(t.Context(), trunk))
		var begun []time.Time
		const step = 70 * time.Millisecond
		for range 60 {
			_, err := placeCall(t, s, app, trunk)
			if err == nil {
				begun = append(begun, clock.Now())
			} else {
				refusedBy(t, err, trunk, "max_calls_per_second", 0)
			}
			clock.Advance(step)
		}
		for i := limit; i < len(begun); i++ {
			require.GreaterOrEqual(t, begun[i].Sub(begun[i-limit]), time.Second)
		}
		// And no less: 60 steps are 4.2 seconds.
		require.GreaterOrEqual(t, len(begun), 4*limit)
	})
}
