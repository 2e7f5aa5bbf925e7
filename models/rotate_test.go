package models_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestRotateAPIKey(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		old := &models.APIKey{CustomerID: app.CustomerID, ApplicationID: &app.ID, Name: "server"}
		oldSecret, err := s.CreateAPIKey(ctx, old, "")
		require.NoError(t, err)
		works := func(secret string) bool {
			_, err := s.AuthenticateKey(ctx, secret)
			if err != nil {
				require.ErrorIs(t, err, models.ErrNotFound)
			}
			return err == nil
		}

		fresh, secret, until, err := s.RotateAPIKey(ctx, app.CustomerID, old.ID, time.Hour)
		require.NoError(t, err)
		require.Equal(t, []any{"server", app.CustomerID, app.ID}, []any{fresh.Name, fresh.CustomerID, *fresh.ApplicationID})
		require.Nil(t, fresh.ExpiresAt)
		require.Equal(t, clock.Now().Add(time.Hour), until)
		require.True(t, works(oldSecret) && works(secret))

		// Again, with more time: nobody gets more than was said first.
		clock.Advance(time.Minute)
		_, _, again, err := s.RotateAPIKey(ctx, app.CustomerID, old.ID, 24*time.Hour)
		require.NoError(t, err)
		require.Equal(t, until, again)
		clock.Advance(58 * time.Minute)
		require.True(t, works(oldSecret))
		clock.Advance(time.Minute)
		require.False(t, works(oldSecret), "to the moment")
		require.True(t, works(secret))
		_, _, _, err = s.RotateAPIKey(ctx, app.CustomerID, old.ID, time.Hour)
		require.ErrorIs(t, err, models.ErrKeyEnded)

		// Without a grace it ends at once.
		_, newest, now, err := s.RotateAPIKey(ctx, app.CustomerID, fresh.ID, 0)
		require.NoError(t, err)
		require.Equal(t, clock.Now(), now)
		require.False(t, works(secret))
		require.True(t, works(newest))
		keys, err := s.ListAPIKeys(ctx, app.CustomerID, "")
		require.NoError(t, err)
		require.Len(t, keys, 4)
		_, _, _, err = s.RotateAPIKey(ctx, app.CustomerID, fresh.ID, 0)
		require.ErrorIs(t, err, models.ErrKeyEnded)

		// Another customer's key is none, and nothing is made.
		_, _, _, err = s.RotateAPIKey(ctx, modelstest.Customer(t, s, 0).ID, keys[0].ID, 0)
		require.ErrorIs(t, err, models.ErrNotFound)
		keys, err = s.ListAPIKeys(ctx, app.CustomerID, "")
		require.NoError(t, err)
		require.Len(t, keys, 4)
	})
}

func TestRotateOperator(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		end, later := clock.Now().Add(time.Hour), clock.Now().Add(48*time.Hour)
		ana := &models.Operator{Name: "ana", Role: models.RoleOperator, ExpiresAt: &end}
		old, err := s.CreateOperator(ctx, ana)
		require.NoError(t, err)
		fresh, token, until, err := s.RotateOperator(ctx, ana.ID, &later, 24*time.Hour)
		require.NoError(t, err)
		require.Equal(t, end, until, "a grace gives nobody more time")
		require.Equal(t, []any{"ana", models.RoleOperator, later}, []any{fresh.Name, fresh.Role, *fresh.ExpiresAt})
		_, err = s.AuthenticateOperator(ctx, old)
		require.NoError(t, err)
		clock.Advance(time.Hour)
		_, err = s.AuthenticateOperator(ctx, old)
		require.ErrorIs(t, err, models.ErrNotFound)
		_, err = s.AuthenticateOperator(ctx, token)
		require.NoError(t, err)
		_, _, _, err = s.RotateOperator(ctx, fresh.ID, nil, 0)
		require.NoError(t, err)
		found, err := s.Operator(ctx, fresh.ID)
		require.NoError(t, err)
		require.Equal(t, clock.Now(), *found.RevokedAt)
		_, _, _, err = s.RotateOperator(ctx, fresh.ID, nil, 0)
		require.ErrorIs(t, err, models.ErrKeyEnded)
		_, _, _, err = s.RotateOperator(ctx, "oper_none", nil, 0)
		require.ErrorIs(t, err, models.ErrNotFound)
	})
}
