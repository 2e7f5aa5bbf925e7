package models_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

func body(sequence int64, id string, at time.Time) ([]byte, error) {
	return fmt.Appendf(nil, `{"id":%q,"sequence":%d,"created_at":%q}`, id, sequence, at.Format(time.RFC3339Nano)), nil
}

func appendEvent(t *testing.T, s *models.Store, call *models.Call, kind string) *models.Event {
	t.Helper()
	event := &models.Event{CallID: call.ID, Type: kind}
	require.NoError(t, s.AppendEvent(t.Context(), event, body))
	return event
}

func TestAppendEvent(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		call := modelstest.Call(t, s, app)
		var woken atomic.Int64
		s.OnStreamDue(func() { woken.Add(1) })

		first := appendEvent(t, s, call, "call.created")
		require.Equal(t, int64(1), woken.Load())
		require.Equal(t, int64(1), first.Sequence)
		require.Equal(t, call.CustomerID, first.CustomerID)
		require.Equal(t, app.ID, first.ApplicationID)
		want, err := body(1, first.ID, first.CreatedAt)
		require.NoError(t, err)
		require.Equal(t, want, first.Body)

		// An event that is not kept leaves no gap.
		err = s.InTx(ctx, func(tx *models.Store) error {
			return errors.Join(tx.AppendEvent(ctx, &models.Event{CallID: call.ID, Type: "call.lost"}, body), errRefused)
		})
		require.ErrorIs(t, err, errRefused)
		require.Equal(t, int64(1), woken.Load(), "nobody is woken for an event that was undone")
		require.ErrorIs(t, s.AppendEvent(ctx, &models.Event{CallID: call.ID, Type: "call.lost"},
			func(int64, string, time.Time) ([]byte, error) { return nil, errRefused }), errRefused)
		require.ErrorIs(t, s.AppendEvent(ctx, &models.Event{CallID: "call_none", Type: "call.lost"}, body), models.ErrNotFound)

		last := appendEvent(t, s, call, "call.completed")
		require.Equal(t, int64(2), last.Sequence)
		for _, kind := range []string{"call.completed", "call.failed"} {
			err := s.AppendEvent(ctx, &models.Event{CallID: call.ID, Type: kind}, body)
			require.ErrorIs(t, err, models.ErrStale, "a call ends once")
		}
		events, err := s.CallEvents(ctx, call.CustomerID, call.ID)
		require.NoError(t, err)
		require.Equal(t, []models.Event{*first, *last}, events)
		found, err := s.CallByID(ctx, call.ID)
		require.NoError(t, err)
		require.Equal(t, int64(2), found.LastSequence)
		deliveries, err := s.Deliveries(ctx, call.ID)
		require.NoError(t, err)
		require.Len(t, deliveries, 2)
		require.Equal(t, models.Delivery{EventID: first.ID, SubjectID: call.ID, EndpointID: app.ID, Seq: 1, State: models.DeliveryPending}, deliveries[0])
	})
}

// TestAppendEventGapFree has 32 writers, on two stores (two processes as far as the database can tell), append to one call.
func TestAppendEventGapFree(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		call := modelstest.Call(t, s, modelstest.Application(t, s, modelstest.Customer(t, s, 0)))
		const writers, each = 32, 8
		var group errgroup.Group
		for writer := range writers {
			group.Go(func() error {
				store := []*models.Store{s, other}[writer%2]
				for range each {
					err := store.InTx(t.Context(), func(tx *models.Store) error {
						err := tx.AppendEvent(t.Context(), &models.Event{CallID: call.ID, Type: "call.tested"}, body)
						if err == nil && writer%8 == 7 {
							err = errRefused
						}
						return err
					})
					if err != nil && !errors.Is(err, errRefused) {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		events, err := s.CallEvents(t.Context(), call.CustomerID, call.ID)
		require.NoError(t, err)
		require.Len(t, events, (writers-writers/8)*each)
		for i, event := range events {
			require.Equal(t, int64(i+1), event.Sequence)
		}
	})
}
