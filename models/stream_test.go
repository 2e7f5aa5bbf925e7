package models_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

const (
	lease       = 30 * time.Second
	endpointCap = 4
	probeCap    = 1
	claimLimit  = 100
)

func claim(t *testing.T, s *models.Store) []models.ClaimedStream {
	t.Helper()
	claimed, err := s.ClaimStreams(t.Context(), "worker", lease, endpointCap, probeCap, claimLimit)
	require.NoError(t, err)
	return claimed
}

func outcome(claimed models.ClaimedStream, result string) models.Outcome {
	return models.Outcome{
		SubjectID: claimed.SubjectID, EndpointID: claimed.EndpointID, LeaseToken: claimed.LeaseToken, EventID: claimed.Event.ID,
		Result: result, Attempt: models.Attempt{Number: claimed.Attempts + 1, Status: 200},
	}
}

func finish(t *testing.T, s *models.Store, outcomes ...models.Outcome) {
	t.Helper()
	require.NoError(t, s.FinishDeliveries(t.Context(), outcomes))
}

func callWithEvents(t *testing.T, s *models.Store, app *models.Application, events int) *models.Call {
	t.Helper()
	call := modelstest.Call(t, s, app)
	for range events {
		appendEvent(t, s, call, "call.tested")
	}
	return call
}

func TestClaimInOrder(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		call := callWithEvents(t, s, app, 3)
		due, ok, err := s.NextDue(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, clock.Now(), due)

		for sequence := range int64(3) {
			claimed := claim(t, s)
			require.Len(t, claimed, 1)
			require.Equal(t, sequence+1, claimed[0].Event.Sequence, "one at a time, in order")
			require.Equal(t, call.ID, claimed[0].Event.CallID)
			require.NotEmpty(t, claimed[0].Event.Body)
			require.Empty(t, claim(t, s), "nobody else gets the call meanwhile")
			clock.Advance(time.Second)
			finish(t, s, outcome(claimed[0], models.ResultDelivered))
		}
		require.Empty(t, claim(t, s))
		_, ok, err = s.NextDue(t.Context())
		require.NoError(t, err)
		require.False(t, ok)
		deliveries, err := s.Deliveries(t.Context(), call.ID)
		require.NoError(t, err)
		for _, delivery := range deliveries {
			require.Equal(t, models.DeliveryDelivered, delivery.State)
			require.Equal(t, 1, delivery.Attempts)
			require.Equal(t, 200, delivery.LastStatus)
			require.NotNil(t, delivery.DeliveredAt)
		}
	})
}

func TestRetryAndDeadLetter(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		call := callWithEvents(t, s, app, 4)

		claimed := claim(t, s)
		retry := outcome(claimed[0], models.ResultRetry)
		retry.RetryAt = clock.Now().Add(5 * time.Second)
		retry.Attempt.Status, retry.Attempt.Response = 500, strings.Repeat("x", 5000)
		retry.Attempt.Error = "broken \x00 text \xff"
		finish(t, s, retry)
		require.Empty(t, claim(t, s), "the head waits and the rest of the call behind it")
		due, ok, err := s.NextDue(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, retry.RetryAt, due)
		appendEvent(t, s, call, "call.tested")
		require.Empty(t, claim(t, s), "another event does not shorten the wait")

		clock.Advance(5 * time.Second)
		claimed = claim(t, s)
		require.Len(t, claimed, 1)
		require.Equal(t, int64(1), claimed[0].Event.Sequence)
		require.Equal(t, 1, claimed[0].Attempts)
		finish(t, s, outcome(claimed[0], models.ResultDead))

		claimed = claim(t, s)
		require.Equal(t, int64(2), claimed[0].Event.Sequence, "a dead event lets the next one pass")
		require.Zero(t, claimed[0].Attempts)
		finish(t, s, outcome(claimed[0], models.ResultSkipped))
		claimed = claim(t, s)
		require.Equal(t, int64(3), claimed[0].Event.Sequence)
		finish(t, s, outcome(claimed[0], models.ResultReleased))
		claimed = claim(t, s)
		require.Equal(t, int64(3), claimed[0].Event.Sequence, "released, not passed over")
		finish(t, s, outcome(claimed[0], models.ResultDelivered))

		deliveries, err := s.Deliveries(t.Context(), call.ID)
		require.NoError(t, err)
		var states []string
		for _, delivery := range deliveries {
			states = append(states, fmt.Sprint(delivery.State, delivery.Attempts))
		}
		require.Equal(t, []string{"dead2", "skipped0", "delivered1", "pending0", "pending0"}, states)
		attempts, err := s.Attempts(t.Context(), deliveries[0].EventID)
		require.NoError(t, err)
		require.Len(t, attempts, 2)
		require.Equal(t, 500, attempts[0].Status)
		require.Len(t, attempts[0].Response, 1024)
		require.Equal(t, "broken  text ", attempts[0].Error)
		require.Equal(t, []int{1, 2}, []int{attempts[0].Number, attempts[1].Number})
	})
}

func TestLeaseExpiryAndFence(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		call := callWithEvents(t, s, app, 2)
		slow := claim(t, s)
		require.Len(t, slow, 1)
		clock.Advance(lease - time.Microsecond)
		require.Empty(t, claim(t, s))
		clock.Advance(time.Microsecond)
		other := claim(t, s)
		require.Len(t, other, 1, "the lease ran out")
		require.Equal(t, slow[0].Event.ID, other[0].Event.ID)
		require.Greater(t, other[0].LeaseToken, slow[0].LeaseToken)

		for _, result := range []string{models.ResultDelivered, models.ResultRetry, models.ResultDead, models.ResultSkipped, models.ResultReleased} {
			late := outcome(slow[0], result)
			late.RetryAt, late.DisableReason = clock.Now(), "late"
			finish(t, s, late)
		}
		require.Empty(t, claim(t, s), "the late worker moved nothing")
		deliveries, err := s.Deliveries(t.Context(), call.ID)
		require.NoError(t, err)
		require.Equal(t, models.DeliveryPending, deliveries[0].State)
		state, err := s.EndpointState(t.Context(), app.ID)
		require.NoError(t, err)
		require.Equal(t, models.Endpoint{ApplicationID: app.ID}, *state)

		finish(t, s, outcome(other[0], models.ResultDelivered))
		finish(t, s, outcome(other[0], models.ResultDelivered))
		claimed := claim(t, s)
		require.Len(t, claimed, 1)
		require.Equal(t, int64(2), claimed[0].Event.Sequence, "finished once")
	})
}

func TestCapsAndProbes(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		customer := modelstest.Customer(t, s, 0)
		dead, healthy := modelstest.Application(t, s, customer), modelstest.Application(t, s, customer)
		for range 3 * endpointCap {
			callWithEvents(t, s, dead, 1)
		}
		inFlight := claim(t, s)
		require.Len(t, inFlight, endpointCap)
		require.Empty(t, claim(t, s), "the endpoint has its share")
		callWithEvents(t, s, healthy, 1)
		other := claim(t, s)
		require.Len(t, other, 1)
		require.Equal(t, healthy.ID, other[0].EndpointID, "a busy endpoint delays no other")
		finish(t, s, outcome(other[0], models.ResultDelivered))

		fail := func(claimed models.ClaimedStream) models.Outcome {
			failed := outcome(claimed, models.ResultRetry)
			failed.RetryAt = clock.Now().Add(time.Hour)
			return failed
		}
		finish(t, s, fail(inFlight[0]), fail(inFlight[1]))
		require.Len(t, claim(t, s), 2, "two failures are not yet a failing endpoint")
		clock.Advance(lease)
		finish(t, s, fail(inFlight[2]))
		state, err := s.EndpointState(t.Context(), dead.ID)
		require.NoError(t, err)
		require.Equal(t, models.FailingThreshold, state.ConsecutiveFailures)
		require.NotNil(t, state.FailingSince)

		probe := claim(t, s)
		require.Len(t, probe, probeCap, "a failing endpoint is probed with one")
		require.Empty(t, claim(t, s))
		callWithEvents(t, s, healthy, 1)
		other = claim(t, s)
		require.Len(t, other, 1)
		finish(t, s, outcome(other[0], models.ResultDelivered))

		var woken int
		s.OnStreamDue(func() { woken++ })
		finish(t, s, outcome(probe[0], models.ResultDelivered))
		require.Positive(t, woken)
		state, err = s.EndpointState(t.Context(), dead.ID)
		require.NoError(t, err)
		now := clock.Now()
		require.Equal(t, models.Endpoint{ApplicationID: dead.ID, PulledAt: &now}, *state)
		seen := map[string]bool{}
		for {
			claimed := claim(t, s)
			if len(claimed) == 0 {
				break
			}
			require.LessOrEqual(t, len(claimed), endpointCap)
			for _, c := range claimed {
				seen[c.SubjectID] = true
				finish(t, s, outcome(c, models.ResultDelivered))
			}
		}
		require.Len(t, seen, 3*endpointCap-1, "the first success makes all that waited due, an hour early")
	})
}

func TestDisabledEndpoint(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		callWithEvents(t, s, app, 1)
		claimed := claim(t, s)
		gone := outcome(claimed[0], models.ResultRetry)
		gone.RetryAt, gone.DisableReason, gone.Attempt.Status = clock.Now().Add(time.Hour), "410 Gone", 410
		finish(t, s, gone)
		state, err := s.EndpointState(t.Context(), app.ID)
		require.NoError(t, err)
		require.Equal(t, "410 Gone", state.DisabledReason)
		require.Equal(t, clock.Now(), *state.DisabledAt)

		callWithEvents(t, s, app, 1)
		clock.Advance(2 * time.Hour)
		require.Empty(t, claim(t, s))
		_, ok, err := s.NextDue(t.Context())
		require.NoError(t, err)
		require.False(t, ok, "nothing of a disabled endpoint is due")

		require.NoError(t, s.EnableEndpoint(t.Context(), app.ID))
		require.Len(t, claim(t, s), 2)
		require.ErrorIs(t, s.EnableEndpoint(t.Context(), "app_none"), models.ErrNotFound)
	})
}

// TestClaimIsFair gives one endpoint a thousand due calls and others one each: a claim that holds less than all deals to every
// endpoint in turn.
func TestClaimIsFair(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		customer := modelstest.Customer(t, s, 0)
		loud := modelstest.Application(t, s, customer)
		require.NoError(t, s.InTx(t.Context(), func(tx *models.Store) error {
			for range 300 {
				call := modelstest.Call(t, tx, loud)
				if err := tx.AppendEvent(t.Context(), &models.Event{CallID: call.ID, Type: "call.tested"}, body); err != nil {
					return err
				}
			}
			return nil
		}))
		const quiet = 9
		for range quiet {
			callWithEvents(t, s, modelstest.Application(t, s, customer), 1)
		}
		claimed, err := s.ClaimStreams(t.Context(), "worker", lease, 50, probeCap, quiet+1)
		require.NoError(t, err)
		endpoints := map[string]int{}
		for _, c := range claimed {
			endpoints[c.EndpointID]++
		}
		require.Len(t, endpoints, quiet+1)
		claimed, err = s.ClaimStreams(t.Context(), "worker", lease, 50, probeCap, 20)
		require.NoError(t, err)
		require.Len(t, claimed, 20, "what the others do not need, the loud one gets")
	})
}

// TestNoWakeUpIsLost appends to a few calls from one store while workers on both deliver: whatever the interleaving of append
// and finish, every event is delivered, in order, and no stream is left idle with events to tell.
func TestNoWakeUpIsLost(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		const calls, events = 4, 40
		var appenders, workers errgroup.Group
		appended := make(chan struct{}, calls*events)
		for range calls {
			call := modelstest.Call(t, s, modelstest.Application(t, s, customer))
			appenders.Go(func() error {
				for range events {
					if err := s.AppendEvent(ctx, &models.Event{CallID: call.ID, Type: "call.tested"}, body); err != nil {
						return err
					}
					appended <- struct{}{}
				}
				return nil
			})
		}
		done := make(chan struct{})
		var mu sync.Mutex
		delivered := map[string][]int64{}
		for i := range 4 {
			store := []*models.Store{s, other}[i%2]
			workers.Go(func() error {
				for {
					finished := false
					select {
					case <-done:
						finished = true
					default:
					}
					claimed, err := store.ClaimStreams(ctx, fmt.Sprint("worker ", i), lease, endpointCap, probeCap, 2)
					if err != nil {
						return err
					}
					if len(claimed) == 0 {
						if finished {
							return nil
						}
						select {
						case <-appended:
						case <-done:
						}
						continue
					}
					var outcomes []models.Outcome
					for _, c := range claimed {
						mu.Lock()
						delivered[c.SubjectID] = append(delivered[c.SubjectID], c.Event.Sequence)
						mu.Unlock()
						outcomes = append(outcomes, outcome(c, models.ResultDelivered))
					}
					if err := store.FinishDeliveries(ctx, outcomes); err != nil {
						return err
					}
				}
			})
		}
		require.NoError(t, appenders.Wait())
		close(done)
		require.NoError(t, workers.Wait())
		// A worker may have left while another still had a stream; what that made due is claimed here.
		for claimed := claim(t, s); len(claimed) > 0; claimed = claim(t, s) {
			for _, c := range claimed {
				delivered[c.SubjectID] = append(delivered[c.SubjectID], c.Event.Sequence)
				finish(t, s, outcome(c, models.ResultDelivered))
			}
		}
		require.Len(t, delivered, calls)
		for _, sequences := range delivered {
			require.Len(t, sequences, events)
			require.True(t, slices.IsSorted(sequences), "in order: %v", sequences)
		}
	})
}

// TestProbeOnceAcrossProcesses has two stores claim a failing endpoint in the same moment, many times.
func TestProbeOnceAcrossProcesses(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		for range 8 {
			callWithEvents(t, s, app, 1)
		}
		require.NoError(t, models.Write(t.Context(), s, "UPDATE webhook_endpoints SET consecutive_failures = 3"))
		for range 20 {
			var group errgroup.Group
			var mu sync.Mutex
			var all []models.ClaimedStream
			for _, store := range []*models.Store{s, other, s, other} {
				group.Go(func() error {
					claimed, err := store.ClaimStreams(t.Context(), "worker", lease, endpointCap, probeCap, claimLimit)
					mu.Lock()
					defer mu.Unlock()
					all = append(all, claimed...)
					return err
				})
			}
			require.NoError(t, group.Wait())
			require.Len(t, all, 1)
			finish(t, s, outcome(all[0], models.ResultReleased))
		}
	})
}

// TestClaimPassesOverABrokenStream: a stream whose head is missing stops only itself.
func TestClaimPassesOverABrokenStream(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		broken, healthy := callWithEvents(t, s, app, 1), callWithEvents(t, s, app, 1)
		require.NoError(t, models.Write(t.Context(), s, "DELETE FROM webhook_deliveries WHERE subject_id = ?", broken.ID))
		claimed := claim(t, s)
		require.Len(t, claimed, 1)
		require.Equal(t, healthy.ID, claimed[0].SubjectID)
	})
}

// TestPulledForward has an endpoint succeed and fail in turn: what waits is tried before its time at most every five seconds, what
// then fails keeps its count and its time, and enabling the endpoint waits for nothing.
func TestPulledForward(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		begun := clock.Now()
		hour := begun.Add(time.Hour)
		fail := func() {
			t.Helper()
			for _, claimed := range claim(t, s) {
				retry := outcome(claimed, models.ResultRetry)
				retry.RetryAt = hour
				finish(t, s, retry)
			}
		}
		for range models.FailingThreshold {
			callWithEvents(t, s, app, 1)
		}
		fail()
		// succeed has a new event taken while the endpoint is failing.
		succeed := func() {
			t.Helper()
			call := callWithEvents(t, s, app, 1)
			probe := claim(t, s)
			require.Len(t, probe, 1)
			require.Equal(t, call.ID, probe[0].SubjectID)
			finish(t, s, outcome(probe[0], models.ResultDelivered))
		}
		succeed()
		pulled := claim(t, s)
		require.Len(t, pulled, models.FailingThreshold)
		for _, claimed := range pulled {
			require.Equal(t, hour, *claimed.PulledFrom)
			require.Equal(t, []int{1, 1}, []int{claimed.Stream.Attempts, claimed.Attempts})
			retry := outcome(claimed, models.ResultRetry)
			retry.RetryAt = *claimed.PulledFrom
			finish(t, s, retry)
		}
		clock.Advance(time.Second)
		succeed()
		require.Empty(t, claim(t, s), "a second later it is too early")
		due, ok, err := s.NextDue(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, begun.Add(5*time.Second), due)
		clock.Advance(4 * time.Second)
		again := claim(t, s)
		require.Len(t, again, models.FailingThreshold)
		for _, claimed := range again {
			require.Equal(t, hour, *claimed.PulledFrom, "the time that it was given at first")
			require.Equal(t, []int{1, 2}, []int{claimed.Stream.Attempts, claimed.Attempts}, "two requests were made, one counts")
		}
		retry := outcome(again[0], models.ResultRetry)
		retry.RetryAt = hour
		finish(t, s, retry, outcome(again[1], models.ResultReleased), outcome(again[2], models.ResultDelivered))
		released := claim(t, s)
		require.Len(t, released, 1)
		require.NotNil(t, released[0].PulledFrom)
		finish(t, s, outcome(released[0], models.ResultDelivered))
		require.NoError(t, s.EnableEndpoint(t.Context(), app.ID))
		last := claim(t, s)
		require.Len(t, last, 1, "whoever enables the endpoint does not wait")

		// An attempt in its own time counts.
		retry = outcome(last[0], models.ResultRetry)
		retry.RetryAt = hour
		finish(t, s, retry)
		clock.Advance(2 * time.Hour)
		own := claim(t, s)
		require.Len(t, own, 1)
		require.Nil(t, own[0].PulledFrom)
		retry = outcome(own[0], models.ResultRetry)
		retry.RetryAt = clock.Now()
		finish(t, s, retry)
		require.Equal(t, 2, claim(t, s)[0].Stream.Attempts)
	})
}
