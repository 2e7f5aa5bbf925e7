package models_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestOperatorTokens(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		until := clock.Now().Add(time.Hour)
		ana := &models.Operator{Name: "ana", Role: models.RoleAdmin}
		forever, err := s.CreateOperator(ctx, ana)
		require.NoError(t, err)
		ben := &models.Operator{Name: "ben", Role: models.RoleViewer, ExpiresAt: &until}
		short, err := s.CreateOperator(ctx, ben)
		require.NoError(t, err)
		require.NotEqual(t, forever, short)
		_, err = s.CreateOperator(ctx, &models.Operator{Name: "eve", Role: "root"})
		require.ErrorContains(t, err, `no role "root"`)

		found, err := s.AuthenticateOperator(ctx, short)
		require.NoError(t, err)
		require.Equal(t, ben.ID, found.ID)
		used := clock.Now()
		require.Equal(t, used, *found.LastUsedAt)
		clock.Advance(30 * time.Second)
		found, err = s.AuthenticateOperator(ctx, short)
		require.NoError(t, err)
		require.Equal(t, used, *found.LastUsedAt, "exact to the minute: a request costs no write")
		clock.Advance(time.Hour - 30*time.Second)
		_, err = s.AuthenticateOperator(ctx, short)
		require.ErrorIs(t, err, models.ErrNotFound, "expired to the moment")
		_, err = s.AuthenticateOperator(ctx, forever)
		require.NoError(t, err)
		for _, wrong := range []string{"", "op_", forever[:len(forever)-1], forever + "x", "tandem_" + forever[3:]} {
			_, err := s.AuthenticateOperator(ctx, wrong)
			require.ErrorIs(t, err, models.ErrNotFound, wrong)
		}
		_, err = s.AuthenticateKey(ctx, forever)
		require.ErrorIs(t, err, models.ErrNotFound, "a token is no key")

		revoked, err := s.RevokeOperator(ctx, ana.ID)
		require.NoError(t, err)
		at := *revoked.RevokedAt
		_, err = s.AuthenticateOperator(ctx, forever)
		require.ErrorIs(t, err, models.ErrNotFound)
		clock.Advance(time.Minute)
		revoked, err = s.RevokeOperator(ctx, ana.ID)
		require.NoError(t, err)
		require.Equal(t, at, *revoked.RevokedAt, "once is enough")
		_, err = s.RevokeOperator(ctx, "oper_none")
		require.ErrorIs(t, err, models.ErrNotFound)

		first, next, err := s.ListOperators(ctx, models.Page{Limit: 1})
		require.NoError(t, err)
		require.Equal(t, "ben", first[0].Name)
		second, next, err := s.ListOperators(ctx, models.Page{Limit: 1, Cursor: next})
		require.NoError(t, err)
		require.Empty(t, next)
		require.Equal(t, "ana", second[0].Name)
	})
}

func TestRoleCovers(t *testing.T) {
	t.Parallel()
	for i, have := range models.Roles {
		for j, need := range models.Roles {
			require.Equal(t, i >= j, models.RoleCovers(have, need), "%s for %s", have, need)
		}
	}
}
