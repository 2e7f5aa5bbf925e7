package daemon

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/api"
	"tandem/models"
	"tandem/models/modelstest"
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
