package models_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestShareUsage(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		others, err := s.ShareUsage(ctx, "one", []models.Usage{{Bucket: "a", Round: 1, Used: 5}, {Bucket: "b", Round: 1, Used: 6}})
		require.NoError(t, err)
		require.Empty(t, others)
		_, err = s.ShareUsage(ctx, "one", []models.Usage{{Bucket: "a", Round: 2, Used: 7, UsedBefore: 5}})
		require.NoError(t, err)
		others, err = s.ShareUsage(ctx, "two", nil)
		require.NoError(t, err)
		require.ElementsMatch(t, []models.Usage{
			{Bucket: "a", Controller: "one", Round: 2, Used: 7, UsedBefore: 5}, {Bucket: "b", Controller: "one", Round: 1, Used: 6},
		}, others)
		clock.Advance(11 * time.Second)
		others, err = s.ShareUsage(ctx, "two", nil)
		require.NoError(t, err)
		require.Empty(t, others, "what is old is not told")

		// Many at once; and what nobody needs any more goes.
		many := make([]models.Usage, 250)
		for i := range many {
			many[i] = models.Usage{Bucket: fmt.Sprintf("key:%03d", 249-i), Round: 3, Used: int64(i)}
		}
		_, err = s.ShareUsage(ctx, "one", many)
		require.NoError(t, err)
		others, err = s.ShareUsage(ctx, "two", nil)
		require.NoError(t, err)
		require.Len(t, others, 250)
		clock.Advance(time.Minute + time.Second)
		_, err = s.ShareUsage(ctx, "one", []models.Usage{{Bucket: "a", Round: 4, Used: 1}})
		require.NoError(t, err)
		rows := func() (count int) {
			require.NoError(t, models.Reader(s).Raw("SELECT COUNT(*) FROM api_usage").Row().Scan(&count))
			return count
		}
		require.Equal(t, 1, rows())
		clock.Advance(10*time.Minute + time.Second)
		require.NoError(t, s.ForgetUsage(ctx))
		require.Zero(t, rows())
	})
}

func TestKeysKnowTheirRate(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		customer := modelstest.Customer(t, s, 0)
		secret, err := s.CreateAPIKey(t.Context(), &models.APIKey{CustomerID: customer.ID, Name: "k"}, "")
		require.NoError(t, err)
		for _, want := range []int{0, 90} {
			customer.Limits.RequestsPerMinute = want
			require.NoError(t, s.SetLimits(t.Context(), customer))
			key, err := s.AuthenticateKey(t.Context(), secret)
			require.NoError(t, err)
			require.Equal(t, want, key.RequestsPerMinute)
		}
		keys, err := s.ListAPIKeys(t.Context(), customer.ID, "")
		require.NoError(t, err)
		require.Len(t, keys, 1)
	})
}
