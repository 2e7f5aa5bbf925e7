package daemon

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/api"
	"tandem/models"
	"tandem/models/modelstest"
	"tandem/webhooks"
)

func TestHousekeeperForgetsOldAnswers(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		customer := modelstest.Customer(t, s, 0)
		save := func(key string) {
			require.NoError(t, s.SaveIdempotent(t.Context(), &models.IdempotentResponse{
				CustomerID: customer.ID, Key: key, Method: "POST", Path: "/v1/calls", RequestHash: "h", Status: 201, Body: []byte("{}"),
			}))
		}
		save("old")
		clock.Advance(api.IdempotencyWindow - time.Minute)
		save("young")
		clock.Advance(2 * time.Minute)

		h := &housekeeper{store: s, logger: slog.New(slog.DiscardHandler)}
		h.clean(t.Context())
		_, err := s.FindIdempotent(t.Context(), customer.ID, "old")
		require.ErrorIs(t, err, models.ErrNotFound)
		_, err = s.FindIdempotent(t.Context(), customer.ID, "young")
		require.NoError(t, err)
	})
}

// TestHousekeeperPrunes has two controllers clean the same database: what is old goes, once an hour, by one of them.
func TestHousekeeperPrunes(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		old := func() {
			t.Helper()
			event := &models.Event{CustomerID: app.CustomerID, ApplicationID: app.ID, SubjectID: app.ID, Type: webhooks.KindDTMF}
			require.NoError(t, s.AppendSubjectEvent(t.Context(), event, false, func(int64, string, time.Time) ([]byte, error) { return []byte("{}"), nil }))
			clock.Advance(25 * time.Hour)
		}
		left := func() int {
			t.Helper()
			page, err := s.Journal(t.Context(), app.CustomerID, models.EventFilter{}, models.Page{})
			require.NoError(t, err)
			return len(page.Events)
		}
		var out strings.Builder
		h := &housekeeper{store: s, keep: models.Retention{Events: 24 * time.Hour}, logger: slog.New(slog.NewTextHandler(&out, nil))}
		other := &housekeeper{store: s, keep: h.keep, logger: slog.New(slog.DiscardHandler)}
		old()
		old()
		h.prune(t.Context())
		require.Equal(t, 1, left(), "the newest event stays")
		require.Equal(t, 1, strings.Count(out.String(), "events=1"))

		old()
		_, err := s.TakeRetention(t.Context(), 0)
		require.NoError(t, err)
		clock.Advance(houseEvery / 2)
		other.prune(t.Context())
		require.Equal(t, 2, left(), "the hour is not over")
		clock.Advance(houseEvery / 2)
		other.prune(t.Context())
		require.Equal(t, 1, left())
		require.NotContains(t, out.String(), "ERROR")
	})
}

// TestHousekeeperStops ends a housekeeper while it rests.
func TestHousekeeperStops(t *testing.T) {
	t.Parallel()
	h := startHousekeeper(t.Context(), modelstest.Open(t), models.Retention{Events: time.Hour}, slog.New(slog.DiscardHandler))
	require.NoError(t, h.stop(t.Context()))
}
