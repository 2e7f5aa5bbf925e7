package models_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

const month = 30 * 24 * time.Hour

var keepAll = models.Retention{Events: month, Deliveries: month, Attempts: month, Calls: month, CDRs: month}

func noRest(time.Duration) error { return nil }

func prune(t *testing.T, s *models.Store, keep models.Retention) models.Pruned {
	t.Helper()
	gone, err := s.Prune(t.Context(), keep, noRest)
	require.NoError(t, err)
	gone.Days = 0 // they have a time of their own: TestDailyLimitsEndAtMidnight
	return gone
}

// endCall ends and settles a call.
func endCall(t *testing.T, s *models.Store, call *models.Call) {
	t.Helper()
	ended := *call
	now := s.Now()
	ended.Status, ended.EndedAt = models.CallCompleted, &now
	require.NoError(t, s.TransitionCall(t.Context(), &ended, []string{models.CallDialing}))
	_, err := s.SettleHold(t.Context(), call.CustomerID, call.ID, 0, 10)
	require.NoError(t, err)
}

// deliver takes all that is due, in order; result decides for each event.
func deliver(t *testing.T, s *models.Store, result func(claimed models.ClaimedStream) models.Outcome) {
	t.Helper()
	for claimed := claim(t, s); len(claimed) > 0; claimed = claim(t, s) {
		for _, c := range claimed {
			finish(t, s, result(c))
		}
	}
}

func take(claimed models.ClaimedStream) models.Outcome {
	return outcome(claimed, models.ResultDelivered)
}

func count(t *testing.T, s *models.Store, query string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, models.Reader(s).Raw("SELECT COUNT(*) FROM "+query, args...).Row().Scan(&n))
	return n
}

// manyEvents adds n events that nobody wants, a multiple of 100, to a call.
func manyEvents(t *testing.T, s *models.Store, call *models.Call, n int) {
	t.Helper()
	for range n / 100 {
		require.NoError(t, s.InTx(t.Context(), func(tx *models.Store) error {
			for range 100 {
				if err := tx.AppendEvent(t.Context(), &models.Event{CallID: call.ID, Type: "call.dtmf"}, body); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 1000)
		app, away := modelstest.Application(t, s, customer), modelstest.Application(t, s, customer)
		trunk, node := modelstest.OutboundTrunk(t, s, customer), modelstest.Node(t, s)
		entries := count(t, s, "ledger_entries")

		// An old call with all that a call leaves, and more events than one batch.
		old := modelstest.Call(t, s, app)
		manyEvents(t, s, old, 1100)
		appendEvent(t, s, old, "call.notify")
		require.NoError(t, s.SaveLeg(ctx, &models.Leg{CallID: old.ID, CustomerID: customer.ID, Kind: models.LegDial, Status: models.LegEnded}))
		room, _, err := s.OpenConference(ctx, customer.ID, "room", node.ID)
		require.NoError(t, err)
		member := &models.ConferenceMember{ConferenceID: room.ID, CustomerID: customer.ID, CallID: old.ID, MemberID: "1"}
		_, err = s.JoinConference(ctx, member)
		require.NoError(t, err)
		_, _, err = s.LeaveConference(ctx, member.ID, "left")
		require.NoError(t, err)
		_, err = s.EndConference(ctx, room.ID)
		require.NoError(t, err)
		old.Cursor = models.Cursor{Index: 3, Request: 2}
		require.NoError(t, s.UpdateCall(ctx, old, "cursor"))

		// One that is still live, one whose event is dead, a trunk, and one whose endpoint is disabled.
		live, dead := modelstest.Call(t, s, app), modelstest.Call(t, s, app)
		liveEvent, deadEvent := appendEvent(t, s, live, "call.notify"), appendEvent(t, s, dead, "call.notify")
		about := &models.Event{CustomerID: customer.ID, ApplicationID: app.ID, SubjectID: trunk.ID, Type: "trunk.registered"}
		require.NoError(t, s.AppendSubjectEvent(ctx, about, false, body))
		deliver(t, s, func(claimed models.ClaimedStream) models.Outcome {
			if claimed.Event.ID == deadEvent.ID {
				return outcome(claimed, models.ResultDead)
			}
			return take(claimed)
		})
		stuck := modelstest.Call(t, s, away)
		stuckEvent := appendEvent(t, s, stuck, "call.notify")
		gone := outcome(claim(t, s)[0], models.ResultRetry)
		gone.RetryAt, gone.DisableReason = clock.Now(), "gone"
		finish(t, s, gone)
		for _, call := range []*models.Call{old, dead, stuck} {
			endCall(t, s, call)
		}

		clock.Advance(month)
		require.Equal(t, models.Pruned{}, prune(t, s, keepAll), "nothing is older than that yet")
		young := modelstest.Call(t, s, app)
		youngEvent := appendEvent(t, s, young, "call.notify")
		deliver(t, s, take)
		endCall(t, s, young)
		_, err = s.Redeliver(ctx, customer.ID, deadEvent.ID)
		require.NoError(t, err)
		clock.Advance(time.Second)
		require.Equal(t, models.Pruned{}, prune(t, s, models.Retention{}), "0 keeps for ever")

		got := prune(t, s, keepAll)
		require.Equal(t, models.Pruned{Events: 1102, Deliveries: 3, Attempts: 5, Streams: 1, Calls: 3, Conferences: 1}, got)
		require.Equal(t, models.Pruned{}, prune(t, s, keepAll), "and once is enough")
		var left []string
		require.NoError(t, models.Reader(s).Raw("SELECT id FROM events ORDER BY position").Scan(&left).Error)
		require.Equal(t, []string{liveEvent.ID, deadEvent.ID, stuckEvent.ID, youngEvent.ID}, left,
			"those of a live call, of what is to be delivered again, of what waits for an endpoint, and the young one")
		require.NoError(t, models.Reader(s).Raw("SELECT event_id FROM webhook_deliveries ORDER BY event_id").Scan(&left).Error)
		require.ElementsMatch(t, []string{deadEvent.ID, stuckEvent.ID, youngEvent.ID}, left)
		emptied, err := s.CallByID(ctx, old.ID)
		require.NoError(t, err)
		require.Equal(t, models.Cursor{}, emptied.Cursor)
		require.Equal(t, models.CallCompleted, emptied.Status)
		require.Zero(t, count(t, s, "legs")+count(t, s, "conference_members")+count(t, s, "conferences"))
		require.Equal(t, entries+4, count(t, s, "ledger_entries"), "the ledger stays")
		require.Equal(t, 5, count(t, s, "calls"), "and so do the calls")

		// What waited is delivered all the same, and then it goes as well; a trunk's events are numbered on.
		require.NoError(t, s.EnableEndpoint(ctx, away.ID))
		deliver(t, s, take)
		require.NoError(t, s.AppendSubjectEvent(ctx, &models.Event{CustomerID: customer.ID, ApplicationID: app.ID, SubjectID: trunk.ID, Type: "trunk.registered"}, false, body))
		require.Equal(t, int64(2), claim(t, s)[0].Told)
		require.Zero(t, prune(t, s, keepAll).Deliveries, "they were taken just now")
		endCall(t, s, live)
		clock.Advance(month + time.Second)
		got = prune(t, s, keepAll)
		require.Equal(t, models.Pruned{Events: 4, Deliveries: 3, Attempts: 3, Streams: 5, Calls: 2}, got)
		require.Equal(t, 1, count(t, s, "events"), "the trunk's waits to be delivered")
	})
}

// TestPruneApart keeps each sort of row for a time of its own.
func TestPruneApart(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 1000))
		call := callWithEvents(t, s, app, 3)
		deliver(t, s, take)
		endCall(t, s, call)
		node := modelstest.Node(t, s)
		for i := range 2 {
			require.NoError(t, s.SaveCDRs(t.Context(), []models.CDR{{
				NodeID: node.ID, ChannelID: fmt.Sprint("chan-", i), Direction: "outbound", StartedAt: clock.Now(), EndedAt: clock.Now(),
			}}))
		}
		require.NoError(t, models.Write(t.Context(), s, "UPDATE cdrs SET checked_at = 1 WHERE channel_id = 'chan-0'"))
		clock.Advance(10 * 24 * time.Hour)
		const day = 24 * time.Hour
		require.Equal(t, models.Pruned{Attempts: 3}, prune(t, s, models.Retention{Attempts: 9 * day, Deliveries: 11 * day, Events: 9 * day}),
			"an event stays as long as its delivery")
		require.Equal(t, models.Pruned{Deliveries: 3, Streams: 1}, prune(t, s, models.Retention{Deliveries: 9 * day, Events: 11 * day}))
		appendEvent(t, s, modelstest.Call(t, s, app), "call.tested")
		require.Equal(t, models.Pruned{Events: 3}, prune(t, s, models.Retention{Events: 9 * day}))
		require.Equal(t, models.Pruned{Calls: 1}, prune(t, s, models.Retention{Calls: 9 * day}))
		require.Equal(t, models.Pruned{CDRs: 1}, prune(t, s, models.Retention{CDRs: 9 * day}), "one that was not checked stays")
	})
}

// TestPruneRests ends a run between two batches: what was done stays done, and the next run goes on.
func TestPruneRests(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		call := modelstest.Call(t, s, modelstest.Application(t, s, modelstest.Customer(t, s, 1000)))
		manyEvents(t, s, call, 1600)
		endCall(t, s, call)
		clock.Advance(month + time.Second)
		enough := errors.New("enough")
		batches := 0
		gone, err := s.Prune(t.Context(), models.Retention{Events: month}, func(took time.Duration) error {
			require.Positive(t, took)
			if batches++; batches == 2 {
				return enough
			}
			return nil
		})
		require.ErrorIs(t, err, enough)
		require.Equal(t, models.Pruned{Events: 1000}, gone)
		require.Equal(t, models.Pruned{Events: 599}, prune(t, s, models.Retention{Events: month}), "the newest of all stays: the next one is numbered behind it")
		page, err := s.Journal(t.Context(), call.CustomerID, models.EventFilter{}, models.Page{})
		require.NoError(t, err)
		next := &models.Event{CustomerID: call.CustomerID, ApplicationID: call.ApplicationID, SubjectID: call.ApplicationID, Type: "webhook.test"}
		require.NoError(t, s.AppendSubjectEvent(t.Context(), next, true, body))
		events, _ := readOn(t, s, call.CustomerID, models.EventFilter{}, page.Next, 10)
		require.Equal(t, []string{next.ID}, idsOf(events), "who read on before misses nothing")
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.Prune(canceled, keepAll, noRest)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestTakeRetention(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		var turns [8]bool
		var group errgroup.Group
		for i := range turns {
			group.Go(func() (err error) {
				turns[i], err = []*models.Store{s, other}[i%2].TakeRetention(t.Context(), time.Hour)
				return err
			})
		}
		require.NoError(t, group.Wait())
		taken := 0
		for _, turn := range turns {
			if turn {
				taken++
			}
		}
		require.Equal(t, 1, taken)
		turn, err := s.TakeRetention(t.Context(), 0)
		require.NoError(t, err)
		require.True(t, turn, "the period is over")
	})
}

// TestPruneAgainstRedelivery has old dead events asked for again while they are deleted: each is either gone, or will be delivered.
func TestPruneAgainstRedelivery(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 1000)
		app := modelstest.Application(t, s, customer)
		var ids []string
		for range 4 {
			call, dead := deadEvents(t, s, app, 10)
			ids = append(ids, dead...)
			endCall(t, s, call)
		}
		require.NoError(t, s.EnableEndpoint(ctx, app.ID))
		queued := map[string]bool{}
		var group errgroup.Group
		group.Go(func() error {
			for _, id := range ids {
				switch _, err := other.Redeliver(ctx, customer.ID, id); {
				case err == nil:
					queued[id] = true
				case !errors.Is(err, models.ErrNotFound):
					return err
				}
			}
			return nil
		})
		group.Go(func() error {
			_, err := s.Prune(ctx, models.Retention{Events: time.Nanosecond, Deliveries: time.Nanosecond, Attempts: time.Nanosecond}, noRest)
			return err
		})
		require.NoError(t, group.Wait())
		delivered := map[string]bool{}
		deliver(t, s, func(claimed models.ClaimedStream) models.Outcome {
			delivered[claimed.Event.ID] = true
			return take(claimed)
		})
		require.Equal(t, queued, delivered)
	})
}
