package models_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestMigrateDown goes up step by step, all the way down with MigrateDown, and up again: at every step, either way, the schema is the same.
func TestMigrateDown(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, location string) {
		ctx := t.Context()
		s, err := models.Open(ctx, models.Config{URL: location, Key: modelstest.Key})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		_, err = s.LastMigration(ctx)
		require.ErrorIs(t, err, models.ErrNotFound, "there is nothing to take back")
		require.ErrorIs(t, s.MigrateDown(ctx, 1), models.ErrNotFound)

		steps, err := s.MigrationStatus(ctx)
		require.NoError(t, err)
		shapes := map[int64][]string{}
		for _, step := range steps {
			require.NotEmpty(t, step.About, step.Name)
			require.NotContains(t, step.About, "goose", step.Name)
			require.NoError(t, models.MigrateTo(ctx, s, step.Version))
			shapes[step.Version] = shape(t, s)
		}
		require.NoError(t, s.Migrate(ctx))
		newest := shape(t, s)

		for i, step := range slices.Backward(steps) {
			last, err := s.LastMigration(ctx)
			require.NoError(t, err)
			require.Equal(t, []any{step.Version, step.Name}, []any{last.Version, last.Name})
			require.NotNil(t, last.AppliedAt)
			require.ErrorIs(t, s.MigrateDown(ctx, step.Version+1), models.ErrStale, "another step than the newest")
			require.NoError(t, s.MigrateDown(ctx, step.Version), step.Name)
			if i > 0 {
				require.Equal(t, shapes[steps[i-1].Version], shape(t, s), "below %s", step.Name)
			}
		}
		_, err = s.LastMigration(ctx)
		require.ErrorIs(t, err, models.ErrNotFound)
		require.NoError(t, s.Migrate(ctx))
		require.Equal(t, newest, shape(t, s))
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		check(t, "sqlite:"+filepath.Join(t.TempDir(), "down.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		check(t, modelstest.EmptyPostgresURL(t))
	})
}

// TestMigrateDownInService: the schema is not changed under whoever holds a node or delivers webhooks, until that lease is given back or
// has run out.
func TestMigrateDownInService(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, location string) {
		ctx, clock := t.Context(), modelstest.NewClock()
		s, err := models.Open(ctx, models.Config{URL: location, Key: modelstest.Key, Now: clock.Now})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		require.NoError(t, s.Migrate(ctx))
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		node := &models.Node{Name: "fs-1", ESLAddr: "127.0.0.1:1", IsActive: true}
		require.NoError(t, s.CreateNode(ctx, node))
		require.NoError(t, s.OutOfService(ctx))
		last, err := s.LastMigration(ctx)
		require.NoError(t, err)
		refused := func(words ...string) {
			t.Helper()
			before := shape(t, s)
			err := s.MigrateDown(ctx, last.Version)
			require.ErrorIs(t, err, models.ErrInService)
			for _, word := range words {
				require.ErrorContains(t, err, word)
			}
			require.Equal(t, before, shape(t, s))
		}

		token, ok, err := s.AcquireNode(ctx, node.ID, "controller-a", time.Minute, 0)
		require.NoError(t, err)
		require.True(t, ok)
		refused("controller-a", "node fs-1", clock.Now().Add(time.Minute).Format(time.RFC3339))
		require.NoError(t, s.ReleaseNode(ctx, node.ID, "controller-a", token))
		require.NoError(t, s.OutOfService(ctx))

		callWithEvents(t, s, app, 1)
		require.Len(t, claim(t, s), 1)
		refused("webhooks of " + app.ID)
		clock.Advance(lease)
		require.NoError(t, s.MigrateDown(ctx, last.Version))

		// A version that is newer than the program has left a step that this one knows nothing of.
		require.NoError(t, models.Write(ctx, s, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, TRUE)"))
		_, err = s.LastMigration(ctx)
		require.ErrorContains(t, err, "step 99999")
		require.NotErrorIs(t, err, models.ErrNotFound)
		require.Error(t, s.MigrateDown(ctx, 99999))
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		check(t, "sqlite:"+filepath.Join(t.TempDir(), "held.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		check(t, modelstest.EmptyPostgresURL(t))
	})
}
