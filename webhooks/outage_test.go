package webhooks

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestWorkerOutlivesTheDatabase kills PostgreSQL again and again under a worker that delivers: every event that was committed
// arrives, in order, and nobody starts the worker anew.
func TestWorkerOutlivesTheDatabase(t *testing.T) {
	t.Parallel()
	const subjects, each, kills = 10, 30, 4
	server := modelstest.StartSeparate(t)
	store, err := models.Open(t.Context(), models.Config{URL: server.URL(), Key: modelstest.Key})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Migrate(t.Context()))
	r := newRig(t, store, nil)
	endpoint := newReceiver(t, nil)
	app := r.application(endpoint.URL)
	calls := make([]*models.Call, subjects)
	for i := range calls {
		calls[i] = modelstest.Call(t, store, app)
	}
	r.worker(func(c *Config) { c.Poll, c.Lease, c.Timeout = 50*time.Millisecond, time.Second, 10*time.Second })

	var writers sync.WaitGroup
	for _, call := range calls {
		writers.Go(func() {
			for n := 0; n < each; {
				err := store.InTx(t.Context(), func(tx *models.Store) error {
					_, err := Emit(t.Context(), tx, call, KindNotify, map[string]any{"payload": n})
					return err
				})
				switch {
				case err == nil:
					n++
				case !errors.Is(err, models.ErrUnreachable):
					t.Errorf("emit: %v", err)
					return
				}
			}
		})
	}
	for range kills {
		for range subjects { // in the midst of deliveries
			select {
			case <-endpoint.arrived:
			case <-time.After(patience):
				require.FailNow(t, "nothing is delivered any more")
			}
		}
		server.Kill()
		require.NoError(t, server.Start(t.Context()))
	}
	writers.Wait()
	for _, call := range calls {
		events, err := store.CallEvents(t.Context(), r.customer.ID, call.ID)
		require.NoError(t, err)
		want := make([]string, len(events))
		for i := range events {
			want[i] = events[i].ID
		}
		require.GreaterOrEqual(t, len(want), each)
		require.Eventually(t, func() bool { return slices.Equal(want, endpoint.first(want)) }, patience, 20*time.Millisecond, "all arrive, each first in its turn")
	}
}

// first are the given events as they arrived first, without those that were repeated.
func (rec *receiver) first(of []string) []string {
	var ids []string
	for _, seen := range rec.seen() {
		if id := seen.id(); slices.Contains(of, id) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
