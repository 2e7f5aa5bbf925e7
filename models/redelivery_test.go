package models_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

// deadEvents makes a call whose first n events are dead.
func deadEvents(t *testing.T, s *models.Store, app *models.Application, n int) (*models.Call, []string) {
	t.Helper()
	call := modelstest.Call(t, s, app)
	var ids []string
	for range n {
		ids = append(ids, appendEvent(t, s, call, "call.tested").ID)
		for _, claimed := range claim(t, s) {
			failed := outcome(claimed, models.ResultDead)
			failed.Attempt.Status = 500
			finish(t, s, failed)
		}
	}
	return call, ids
}

func detail(t *testing.T, s *models.Store, customerID, eventID string) *models.DeliveryDetail {
	t.Helper()
	found, err := s.DeliveryByEvent(t.Context(), customerID, eventID)
	require.NoError(t, err)
	return found
}

func TestListDeliveries(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		app, other := modelstest.Application(t, s, customer), modelstest.Application(t, s, customer)
		callWithEvents(t, s, modelstest.Application(t, s, modelstest.Customer(t, s, 0)), 2)
		for _, claimed := range claim(t, s) {
			finish(t, s, outcome(claimed, models.ResultDead))
		}
		call, dead := deadEvents(t, s, app, 2)
		clock.Advance(time.Hour)
		waiting := appendEvent(t, s, call, "call.notify")
		appendEvent(t, s, call, "call.dtmf") // not wanted, so not delivered
		behind := appendEvent(t, s, call, "call.notify")
		for _, claimed := range claim(t, s) {
			if claimed.EndpointID == app.ID {
				later := outcome(claimed, models.ResultRetry)
				later.RetryAt, later.Attempt.Status = clock.Now().Add(time.Minute), 503
				finish(t, s, later)
			}
		}
		quiet := callWithEvents(t, s, other, 1)
		for _, claimed := range claim(t, s) {
			if claimed.EndpointID == other.ID {
				finish(t, s, outcome(claimed, models.ResultDelivered))
			}
		}
		events, err := s.CallEvents(ctx, customer.ID, quiet.ID)
		require.NoError(t, err)
		want := []string{events[0].ID, behind.ID, waiting.ID, dead[1], dead[0]}

		list := func(filter models.DeliveryFilter, limit int) (ids []string) {
			for cursor := ""; ; {
				rows, next, err := s.ListDeliveries(ctx, customer.ID, filter, models.Page{Limit: limit, Cursor: cursor})
				require.NoError(t, err)
				for i := range rows {
					ids = append(ids, rows[i].EventID)
				}
				if cursor = next; next == "" {
					return ids
				}
			}
		}
		hourAgo, now := clock.Now().Add(-time.Hour), clock.Now()
		for limit := 1; limit <= 6; limit++ {
			require.Equal(t, want, list(models.DeliveryFilter{}, limit), "newest first, nobody else's")
			require.Equal(t, want[3:], list(models.DeliveryFilter{State: models.DeliveryDead}, limit))
			require.Equal(t, want[1:3], list(models.DeliveryFilter{State: models.DeliveryPending}, limit))
			require.Equal(t, want[:1], list(models.DeliveryFilter{State: models.DeliveryDelivered}, limit))
			require.Equal(t, want[:1], list(models.DeliveryFilter{EventFilter: models.EventFilter{ApplicationID: other.ID}}, limit))
			require.Equal(t, want[1:], list(models.DeliveryFilter{EventFilter: models.EventFilter{CallID: call.ID}}, limit))
			require.Equal(t, want[1:3], list(models.DeliveryFilter{EventFilter: models.EventFilter{Types: []string{"call.notify"}}}, limit))
			require.Equal(t, want[3:], list(models.DeliveryFilter{EventFilter: models.EventFilter{CreatedBefore: &hourAgo}}, limit))
			require.Equal(t, want[:3], list(models.DeliveryFilter{EventFilter: models.EventFilter{CreatedAfter: &now}}, limit))
		}
		_, _, err = s.ListDeliveries(ctx, customer.ID, models.DeliveryFilter{}, models.Page{Cursor: "x"})
		require.ErrorIs(t, err, models.ErrBadCursor)

		first := detail(t, s, customer.ID, dead[0])
		require.Equal(t, []any{models.DeliveryDead, 1, 500, call.ID, call.ID, "call.tested", int64(1)},
			[]any{first.State, first.Attempts, first.LastStatus, first.Subject, first.CallID, first.Type, first.Sequence})
		require.Equal(t, hourAgo, *first.GivenUpAt)
		require.Nil(t, first.NextAttemptAt)
		require.Equal(t, now.Add(time.Minute), *detail(t, s, customer.ID, waiting.ID).NextAttemptAt)
		require.Nil(t, detail(t, s, customer.ID, behind.ID).NextAttemptAt, "it waits for the one before it")
		taken := detail(t, s, customer.ID, want[0])
		require.Equal(t, now, *taken.DeliveredAt)
		require.Nil(t, taken.GivenUpAt)
		for _, unknown := range []string{"evt_none", events[0].ID} {
			_, err := s.DeliveryByEvent(ctx, "cust_other", unknown)
			require.ErrorIs(t, err, models.ErrNotFound)
		}
	})
}

// TestRedeliveryGoesBeside delivers dead events again while their call goes on: the call's own events keep their order and wait
// for nothing, and those that are delivered again keep theirs.
func TestRedeliveryGoesBeside(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		app := modelstest.Application(t, s, customer)
		call, dead := deadEvents(t, s, app, 2)
		require.NoError(t, s.EnableEndpoint(ctx, app.ID)) // two failures; no probing here
		live := []string{appendEvent(t, s, call, "call.tested").ID, appendEvent(t, s, call, "call.tested").ID}

		again, err := s.Redeliver(ctx, customer.ID, dead[0])
		require.NoError(t, err)
		require.Equal(t, []any{dead[0], models.DeliveryPending, 1, int64(1)}, []any{again.EventID, again.State, again.Attempts, again.Sequence})
		require.Equal(t, clock.Now(), *again.NextAttemptAt)
		require.Nil(t, again.GivenUpAt)
		_, err = s.Redeliver(ctx, customer.ID, dead[0])
		require.ErrorIs(t, err, models.ErrDeliveryPending)
		_, err = s.Redeliver(ctx, customer.ID, live[1])
		require.ErrorIs(t, err, models.ErrDeliveryPending)
		_, err = s.Redeliver(ctx, customer.ID, dead[1])
		require.NoError(t, err)

		heads := func() map[string]models.ClaimedStream {
			byEvent := map[string]models.ClaimedStream{}
			for _, claimed := range claim(t, s) {
				require.Equal(t, call.ID, claimed.Event.SubjectID)
				byEvent[claimed.Event.ID] = claimed
			}
			return byEvent
		}
		both := heads()
		require.Len(t, both, 2, "the call's next event and the first of those that are sent again, at once")
		require.Equal(t, 1, both[dead[0]].Attempts, "its attempts are counted on")
		require.Zero(t, both[dead[0]].Stream.Attempts, "but its schedule begins again")
		require.Equal(t, []int64{1, 3}, []int64{both[dead[0]].Told, both[live[0]].Told})
		retry := outcome(both[dead[0]], models.ResultRetry)
		retry.RetryAt = clock.Now().Add(time.Hour)
		finish(t, s, retry, outcome(both[live[0]], models.ResultDelivered))
		next := heads()
		require.Len(t, next, 1)
		require.Contains(t, next, live[1], "the failure holds up nothing of the call")
		finish(t, s, outcome(next[live[1]], models.ResultDelivered))
		require.Empty(t, heads(), "but what is sent again behind it")

		clock.Advance(time.Hour)
		first := heads()
		require.Contains(t, first, dead[0])
		finish(t, s, outcome(first[dead[0]], models.ResultDelivered))
		second := heads()
		require.Contains(t, second, dead[1])
		finish(t, s, outcome(second[dead[1]], models.ResultDead))
		require.Empty(t, heads())

		deliveries, err := s.Deliveries(ctx, call.ID)
		require.NoError(t, err)
		var states []string
		for i := range deliveries {
			states = append(states, fmt.Sprint(deliveries[i].State, deliveries[i].Attempts))
		}
		require.Equal(t, []string{"delivered3", "dead2", "delivered1", "delivered1"}, states)

		// What was taken may be sent again as well, and again; a new event of the call is numbered on.
		for range 2 {
			taken := *detail(t, s, customer.ID, dead[0]).DeliveredAt
			again, err = s.Redeliver(ctx, customer.ID, dead[0])
			require.NoError(t, err)
			require.Equal(t, taken, *again.DeliveredAt)
			require.Equal(t, int64(1), again.Sequence)
			finish(t, s, outcome(heads()[dead[0]], models.ResultDelivered))
		}
		fresh := appendEvent(t, s, call, "call.completed")
		require.Equal(t, int64(5), heads()[fresh.ID].Told)
	})
}

func TestRedeliverRefuses(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer, stranger := modelstest.Customer(t, s, 0), modelstest.Customer(t, s, 0)
		app := modelstest.Application(t, s, customer)
		call, dead := deadEvents(t, s, app, 2)
		unwanted := appendEvent(t, s, call, "call.dtmf")
		filter := models.DeliveryFilter{State: models.DeliveryDead, EventFilter: models.EventFilter{ApplicationID: app.ID}}
		refused := func(customerID, eventID string, want error) {
			t.Helper()
			_, err := s.Redeliver(ctx, customerID, eventID)
			require.ErrorIs(t, err, want)
			_, _, err = s.RedeliverAll(ctx, customerID, filter, 10)
			require.ErrorIs(t, err, want)
		}
		refused(stranger.ID, dead[0], models.ErrNotFound)
		_, err := s.Redeliver(ctx, customer.ID, unwanted.ID)
		require.ErrorIs(t, err, models.ErrNotFound)
		for _, bad := range []models.DeliveryFilter{{State: models.DeliveryDead}, {EventFilter: filter.EventFilter},
			{State: models.DeliveryPending, EventFilter: filter.EventFilter}} {
			_, _, err := s.RedeliverAll(ctx, customer.ID, bad, 10)
			require.Error(t, err)
		}

		appendEvent(t, s, call, "call.tested")
		gone := outcome(claim(t, s)[0], models.ResultRetry)
		gone.RetryAt, gone.DisableReason = clock.Now(), "gone"
		finish(t, s, gone)
		refused(customer.ID, dead[0], models.ErrEndpointDisabled)
		require.NoError(t, s.EnableEndpoint(ctx, app.ID))
		app.WebhookURL = ""
		require.NoError(t, s.UpdateApplication(ctx, app))
		refused(customer.ID, dead[0], models.ErrNoWebhookURL)
		app.WebhookURL = "https://a.example"
		require.NoError(t, s.UpdateApplication(ctx, app))
		_, err = s.Redeliver(ctx, customer.ID, dead[0])
		require.NoError(t, err)
	})
}

func TestRedeliverAll(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		app, other := modelstest.Application(t, s, customer), modelstest.Application(t, s, customer)
		_, first := deadEvents(t, s, app, 3)
		clock.Advance(time.Minute)
		_, second := deadEvents(t, s, app, 3)
		deadEvents(t, s, other, 1)
		for _, id := range []string{app.ID, other.ID} {
			require.NoError(t, s.EnableEndpoint(ctx, id))
		}
		filter := models.DeliveryFilter{State: models.DeliveryDead, EventFilter: models.EventFilter{ApplicationID: app.ID}}
		late := filter
		begin := clock.Now()
		late.CreatedAfter = &begin

		count, more, err := s.RedeliverAll(ctx, customer.ID, late, 2)
		require.NoError(t, err)
		require.Equal(t, []any{2, true}, []any{count, more})
		count, more, err = s.RedeliverAll(ctx, customer.ID, late, 2)
		require.NoError(t, err)
		require.Equal(t, []any{1, false}, []any{count, more})
		count, more, err = s.RedeliverAll(ctx, customer.ID, late, 2)
		require.NoError(t, err)
		require.Equal(t, []any{0, false}, []any{count, more}, "what is on its way is not sent twice")
		count, more, err = s.RedeliverAll(ctx, customer.ID, filter, 3)
		require.NoError(t, err)
		require.Equal(t, []any{3, false}, []any{count, more})

		got := map[string][]string{}
		for claimed := claim(t, s); len(claimed) > 0; claimed = claim(t, s) {
			for _, c := range claimed {
				got[c.Event.CallID] = append(got[c.Event.CallID], c.Event.ID)
				finish(t, s, outcome(c, models.ResultDelivered))
			}
		}
		events, err := s.Journal(ctx, customer.ID, models.EventFilter{ApplicationID: app.ID}, models.Page{})
		require.NoError(t, err)
		want := map[string][]string{events.Events[0].CallID: first, events.Events[3].CallID: second}
		require.Equal(t, want, got, "each call's in their order, and the other application's not at all")
	})
}

// TestRedeliverAtOnce has many ask for the same events again while workers deliver: each is sent once, and none is lost.
func TestRedeliverAtOnce(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		app := modelstest.Application(t, s, customer)
		const calls, each = 6, 4
		var ids []string
		for range calls {
			_, dead := deadEvents(t, s, app, each)
			ids = append(ids, dead...)
		}
		require.NoError(t, s.EnableEndpoint(ctx, app.ID))
		filter := models.DeliveryFilter{State: models.DeliveryDead, EventFilter: models.EventFilter{ApplicationID: app.ID}}
		counts := make([]int, 4)
		var group errgroup.Group
		for asker := range counts {
			store := []*models.Store{s, other}[asker%2]
			group.Go(func() error {
				for {
					count, more, err := store.RedeliverAll(ctx, customer.ID, filter, 5)
					counts[asker] += count
					if err != nil || !more && count == 0 {
						return err
					}
				}
			})
		}
		group.Go(func() error {
			for range 20 {
				claimed, err := s.ClaimStreams(ctx, "worker", time.Minute, 100, 100, 100)
				if err != nil {
					return err
				}
				var outcomes []models.Outcome
				for _, c := range claimed {
					outcomes = append(outcomes, outcome(c, models.ResultDelivered))
				}
				if err := s.FinishDeliveries(ctx, outcomes); err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(t, group.Wait())
		total := 0
		for _, count := range counts {
			total += count
		}
		require.Equal(t, calls*each, total)
		for claimed := claim(t, s); len(claimed) > 0; claimed = claim(t, s) {
			for _, c := range claimed {
				finish(t, s, outcome(c, models.ResultDelivered))
			}
		}
		for _, id := range ids {
			found := detail(t, s, customer.ID, id)
			require.Equal(t, []any{models.DeliveryDelivered, 2}, []any{found.State, found.Attempts})
		}
	})
}
