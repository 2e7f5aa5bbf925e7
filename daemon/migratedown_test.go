package daemon

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestMigrateDownAsksFirst: nothing is taken back without consent, and under a controller nobody is even asked.
func TestMigrateDownAsksFirst(t *testing.T) {
	t.Parallel()
	modelstest.RunURL(t, "", func(t *testing.T, location string) {
		ctx, cfg := t.Context(), Config{DatabaseURL: location, SecretKey: modelstest.Key}
		store, err := models.Open(ctx, models.Config{URL: location, Key: modelstest.Key})
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		require.NoError(t, store.Migrate(ctx))
		node := &models.Node{Name: "fs-1", ESLAddr: "127.0.0.1:1", IsActive: true}
		require.NoError(t, store.CreateNode(ctx, node))
		newest, err := store.LastMigration(ctx)
		require.NoError(t, err)

		no := errors.New("no")
		var asked []Migration
		answer := func(err error) func(Migration) error {
			return func(last Migration) error { asked = append(asked, last); return err }
		}
		_, err = MigrateDown(ctx, cfg, answer(no))
		require.ErrorIs(t, err, no)
		require.Equal(t, []Migration{{Version: newest.Version, Name: newest.Name, About: newest.About, State: MigrationApplied}}, asked)
		same, err := store.LastMigration(ctx)
		require.NoError(t, err)
		require.Equal(t, newest, same)

		token, ok, err := store.AcquireNode(ctx, node.ID, "controller-a", time.Hour, 0)
		require.NoError(t, err)
		require.True(t, ok)
		_, err = MigrateDown(ctx, cfg, answer(nil))
		require.ErrorIs(t, err, models.ErrInService)
		require.ErrorContains(t, err, "stop every one of them first")
		require.Len(t, asked, 1, "nobody was asked")
		require.NoError(t, store.ReleaseNode(ctx, node.ID, "controller-a", token))

		// One that begins its work while the question stands is seen, too.
		_, err = MigrateDown(ctx, cfg, func(Migration) error {
			_, ok, err := store.AcquireNode(ctx, node.ID, "controller-b", time.Hour, 0)
			require.True(t, ok)
			return err
		})
		require.ErrorIs(t, err, models.ErrInService)
		require.ErrorContains(t, err, "controller-b")
		same, err = store.LastMigration(ctx)
		require.NoError(t, err)
		require.Equal(t, newest, same)
	})
}
