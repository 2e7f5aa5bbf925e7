package models_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// subjects are a customer with money, an application and a trunk, none of which has a limit yet.
type subjects struct {
	customer *models.Customer
	app      *models.Application
	trunk    *models.Trunk
}

func newSubjects(t *testing.T, s *models.Store) *subjects {
	t.Helper()
	customer := modelstest.Customer(t, s, 1_000_000)
	return &subjects{customer, modelstest.Application(t, s, customer), modelstest.OutboundTrunk(t, s, customer)}
}

// bound sets the limits of one of the subjects, and of none else.
func (o *subjects) bound(t *testing.T, s *models.Store, subject string, daily models.DailyLimits, calls int) string {
	t.Helper()
	o.customer.Limits.CallLimits, o.app.Limits, o.trunk.Limits = models.CallLimits{}, models.CallLimits{}, models.CallLimits{}
	id := ""
	switch subject {
	case models.SubjectCustomer:
		o.customer.Limits.CallLimits, id = models.CallLimits{MaxCalls: calls, DailyLimits: daily}, o.customer.ID
	case models.SubjectApplication:
		o.app.Limits, id = models.CallLimits{MaxCalls: calls, DailyLimits: daily}, o.app.ID
	case models.SubjectTrunk:
		o.trunk.Limits, id = models.CallLimits{MaxCalls: calls, DailyLimits: daily}, o.trunk.ID
	}
	require.NoError(t, s.SetLimits(t.Context(), o.customer))
	require.NoError(t, s.UpdateApplication(t.Context(), o.app))
	require.NoError(t, s.UpdateTrunk(t.Context(), o.trunk))
	return id
}

// call stores a call that holds some of the balance.
func (o *subjects) call(ctx context.Context, s *models.Store, hold int64) (*models.Call, error) {
	var stored models.Call
	err := s.InTx(ctx, func(tx *models.Store) error {
		stored = models.Call{
			CustomerID: o.customer.ID, ApplicationID: o.app.ID, TrunkID: &o.trunk.ID, Direction: models.Outbound, Status: models.CallDialing, HoldMicros: hold,
		}
		tx.HoldAtEnd(ctx, o.customer.ID, hold)
		b := models.Beginning{Lives: 1, Starts: 1, SpendMicros: hold}
		tx.TakeCustomer(ctx, o.customer.ID, b)
		tx.TakeApplication(ctx, o.app.ID, b)
		tx.TakeTrunk(ctx, o.trunk.ID, b)
		return tx.CreateCall(ctx, &stored)
	})
	return &stored, err
}

// settle ends a call.
func (o *subjects) settle(ctx context.Context, s *models.Store, call *models.Call, hold, cost int64) error {
	return s.InTx(ctx, func(tx *models.Store) error {
		ended := *call
		ended.Status = models.CallCompleted
		if _, err := tx.SettleHold(ctx, call.CustomerID, call.ID, hold, cost); err != nil {
			return err
		}
		return tx.TransitionCall(ctx, &ended, []string{models.CallDialing})
	})
}

// extend raises what a call holds.
func (o *subjects) extend(ctx context.Context, s *models.Store, call *models.Call, from, to int64) error {
	return s.InTx(ctx, func(tx *models.Store) error {
		if err := tx.TakeSpend(ctx, call.CustomerID, call.ApplicationID, call.TrunkID, to-from); err != nil {
			return err
		}
		return tx.Rehold(ctx, call.CustomerID, call.ID, from, to)
	})
}

func limitedBy(t *testing.T, err error, subject, id, limit string) *models.LimitError {
	t.Helper()
	var refused *models.LimitError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, []string{subject, id, limit}, []string{refused.Subject, refused.ID, refused.Limit})
	require.Equal(t, limit == models.LimitSpendPerDay, errors.Is(err, models.ErrSpendLimit))
	require.ErrorIs(t, err, models.ErrLimit)
	for of, sentinel := range map[string]error{
		models.SubjectCustomer: models.ErrCustomerFull, models.SubjectApplication: models.ErrApplicationFull, models.SubjectTrunk: models.ErrTrunkFull,
	} {
		require.Equal(t, of == subject, errors.Is(err, sentinel))
	}
	return refused
}

var allSubjects = []string{models.SubjectCustomer, models.SubjectApplication, models.SubjectTrunk}

// TestDailyLimitsEndAtMidnight: each of the two daily limits of each subject holds to the end of the day in UTC, and not longer.
func TestDailyLimitsEndAtMidnight(t *testing.T) {
	t.Parallel()
	for _, subject := range allSubjects {
		modelstest.RunClock(t, subject, func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
			ctx := t.Context()
			now := clock.Now()
			clock.Advance(now.Truncate(24 * time.Hour).Add(24*time.Hour + 23*time.Hour).Sub(now)) // an hour before midnight
			o := newSubjects(t, s)
			id := o.bound(t, s, subject, models.DailyLimits{MaxCallsPerDay: 2}, 0)
			for range 2 {
				_, err := o.call(ctx, s, 0)
				require.NoError(t, err)
			}
			_, err := o.call(ctx, s, 0)
			refused := limitedBy(t, err, subject, id, models.LimitCallsPerDay)
			require.Equal(t, time.Hour, refused.RetryAfter)
			require.Zero(t, refused.Room)
			require.False(t, refused.Passing())

			id = o.bound(t, s, subject, models.DailyLimits{MaxSpendPerDayMicros: 1000}, 0)
			call, err := o.call(ctx, s, 600)
			require.NoError(t, err)
			_, err = o.call(ctx, s, 401)
			limitedBy(t, err, subject, id, models.LimitSpendPerDay)
			require.NoError(t, o.settle(ctx, s, call, 600, 100)) // what it did not cost is free again
			call, err = o.call(ctx, s, 900)
			require.NoError(t, err)
			_, err = o.call(ctx, s, 1)
			limitedBy(t, err, subject, id, models.LimitSpendPerDay)
			_, err = o.call(ctx, s, 0)
			require.NoError(t, err, "what costs nothing is not refused")

			clock.Advance(time.Hour)
			_, err = o.call(ctx, s, 101)
			limitedBy(t, err, subject, id, models.LimitSpendPerDay) // what lives counts on every day
			_, err = o.call(ctx, s, 100)
			require.NoError(t, err)
			require.NoError(t, o.settle(ctx, s, call, 900, 900)) // and is charged on the day on which it ends
			_, err = o.call(ctx, s, 1)
			limitedBy(t, err, subject, id, models.LimitSpendPerDay)
			o.bound(t, s, subject, models.DailyLimits{MaxCallsPerDay: 1}, 0)
			_, err = o.call(ctx, s, 0)
			require.NoError(t, err)

			// What is older than two days goes.
			pruned := func() int64 {
				gone, err := s.Prune(ctx, models.Retention{}, func(time.Duration) error { return nil })
				require.NoError(t, err)
				return gone.Days
			}
			clock.Advance(23 * time.Hour)
			require.Zero(t, pruned())
			clock.Advance(25 * time.Hour)
			require.EqualValues(t, 3, pruned())
		})
	}
}

// TestExtendingStopsAtTheSpendLimit: a call that holds more is held to the limit as a new one is, in either order of the calls, and one that holds less never is.
func TestExtendingStopsAtTheSpendLimit(t *testing.T) {
	t.Parallel()
	for _, subject := range allSubjects {
		modelstest.Run(t, subject, func(t *testing.T, s *models.Store) {
			ctx := t.Context()
			o := newSubjects(t, s)
			call, err := o.call(ctx, s, 500)
			require.NoError(t, err)
			require.NoError(t, o.extend(ctx, s, call, 500, 2000), "nothing is limited yet")
			id := o.bound(t, s, subject, models.DailyLimits{MaxSpendPerDayMicros: 1000}, 0)
			require.NoError(t, o.extend(ctx, s, call, 2000, 900))
			require.NoError(t, o.extend(ctx, s, call, 900, 1000))
			limitedBy(t, o.extend(ctx, s, call, 1000, 1001), subject, id, models.LimitSpendPerDay)
			err = s.InTx(ctx, func(tx *models.Store) error {
				if err := tx.Rehold(ctx, call.CustomerID, call.ID, 1000, 1001); err != nil {
					return err
				}
				return tx.TakeSpend(ctx, call.CustomerID, call.ApplicationID, call.TrunkID, 1)
			})
			limitedBy(t, err, subject, id, models.LimitSpendPerDay)
			stored, err := s.CallByID(ctx, call.ID)
			require.NoError(t, err)
			require.EqualValues(t, 1000, stored.HoldMicros, "what is refused changes nothing")
		})
	}
}

// TestSpendLimitHoldsAcrossProcesses has two processes create, extend and settle calls at once: at no moment are charges and holds more than the limit, and
// at the end as much as could be is spent.
func TestSpendLimitHoldsAcrossProcesses(t *testing.T) {
	t.Parallel()
	for _, subject := range allSubjects {
		modelstest.RunPair(t, subject, func(t *testing.T, s, other *models.Store) {
			const most, hold, cost, workers, rounds = 1000, 100, 10, 8, 12
			ctx := t.Context()
			o := newSubjects(t, s)
			o.bound(t, s, subject, models.DailyLimits{MaxSpendPerDayMicros: most}, 0)
			var all sync.WaitGroup
			var refused, began atomic.Int64
			fail := make(chan error, 2*workers*rounds)
			for w := range workers {
				at := s
				if w%2 == 1 {
					at = other
				}
				all.Go(func() {
					for range rounds {
						call, err := o.call(ctx, at, hold)
						if errors.Is(err, models.ErrSpendLimit) {
							refused.Add(1)
							continue
						}
						if err != nil {
							fail <- err
							return
						}
						began.Add(1)
						held := int64(hold)
						switch err := o.extend(ctx, at, call, hold, 2*hold); {
						case err == nil:
							held = 2 * hold
						case !errors.Is(err, models.ErrSpendLimit):
							fail <- err
						}
						if spent, err := o.spent(ctx, s); err != nil || spent > most {
							fail <- errors.Join(err, errors.New("more is spent than may be"))
						}
						if err := o.settle(ctx, at, call, held, cost); err != nil {
							fail <- err
						}
					}
				})
			}
			all.Wait()
			close(fail)
			for err := range fail {
				require.NoError(t, err)
			}
			for {
				call, err := o.call(ctx, s, hold)
				if err != nil {
					require.ErrorIs(t, err, models.ErrSpendLimit)
					break
				}
				began.Add(1)
				require.NoError(t, o.settle(ctx, s, call, hold, cost))
			}
			spent, err := o.spent(ctx, s)
			require.NoError(t, err)
			require.Equal(t, began.Load()*cost, spent)
			require.Greater(t, spent, int64(most-hold))
			require.LessOrEqual(t, spent, int64(most))
		})
	}
}

// spent is what the customer's balance was charged and what is held of it.
func (o *subjects) spent(ctx context.Context, s *models.Store) (int64, error) {
	customer, err := s.Customer(ctx, o.customer.ID)
	if err != nil {
		return 0, err
	}
	return 1_000_000 - customer.BalanceMicros + customer.HeldMicros, nil
}

// TestCallsOfAnApplicationAndADay has two processes begin calls of one subject at once: exactly as many begin as may.
func TestCallsOfAnApplicationAndADay(t *testing.T) {
	t.Parallel()
	const most, tries = 7, 60
	for _, c := range []struct {
		name, subject string
		daily         int
		calls         int
	}{
		{"customer-day", models.SubjectCustomer, most, 0}, {"application-day", models.SubjectApplication, most, 0}, {"trunk-day", models.SubjectTrunk, most, 0},
		{"application-calls", models.SubjectApplication, 0, most},
	} {
		modelstest.RunPair(t, c.name, func(t *testing.T, s, other *models.Store) {
			o := newSubjects(t, s)
			id := o.bound(t, s, c.subject, models.DailyLimits{MaxCallsPerDay: c.daily}, c.calls)
			var all sync.WaitGroup
			var placed atomic.Int64
			fail := make(chan error, tries)
			for i := range tries {
				at := s
				if i%2 == 1 {
					at = other
				}
				all.Go(func() {
					switch _, err := o.call(t.Context(), at, 10); {
					case err == nil:
						placed.Add(1)
					case !errors.Is(err, models.ErrLimit):
						fail <- err
					}
				})
			}
			all.Wait()
			close(fail)
			for err := range fail {
				require.NoError(t, err)
			}
			require.EqualValues(t, most, placed.Load())
			_, err := o.call(t.Context(), other, 0)
			limit := models.LimitCalls
			if c.daily > 0 {
				limit = models.LimitCallsPerDay
			}
			limitedBy(t, err, c.subject, id, limit)
		})
	}
}

// TestApplicationCountsItsParties: the parties of an application's calls count, those of the customer's other applications do not, and both per second.
func TestApplicationCountsItsParties(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		o := newSubjects(t, s)
		other := &subjects{o.customer, modelstest.Application(t, s, o.customer), o.trunk}
		id := o.bound(t, s, models.SubjectApplication, models.DailyLimits{}, 3)
		call, err := o.call(ctx, s, 0)
		require.NoError(t, err)
		strange, err := other.call(ctx, s, 0)
		require.NoError(t, err)
		dial := func(of *models.Call, n int) error {
			return s.InTx(ctx, func(tx *models.Store) error {
				for range n {
					leg := models.Leg{CallID: of.ID, CustomerID: of.CustomerID, Kind: models.LegDial, Status: models.LegDialing}
					if err := tx.SaveLeg(ctx, &leg); err != nil {
						return err
					}
					tx.TakeApplication(ctx, of.ApplicationID, models.Beginning{Lives: 1, Starts: 1})
				}
				return nil
			})
		}
		require.NoError(t, dial(strange, 5))
		require.Equal(t, 2, limitedBy(t, dial(call, 3), models.SubjectApplication, id, models.LimitCalls).Room)
		require.NoError(t, dial(call, 2))

		o.app.Limits = models.CallLimits{MaxCallsPerSecond: 2}
		require.NoError(t, s.UpdateApplication(ctx, o.app))
		require.NoError(t, dial(call, 2))
		refused := limitedBy(t, dial(call, 1), models.SubjectApplication, id, models.LimitRate)
		require.Equal(t, time.Second, refused.RetryAfter)
		require.True(t, refused.Passing())
		clock.Advance(time.Second + time.Millisecond)
		require.NoError(t, dial(call, 2))
	})
}
