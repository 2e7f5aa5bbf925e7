package main

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMigrate(t *testing.T) { //nolint:paralleltest // t.Setenv
	isolate(t)
	dir := t.TempDir()
	t.Setenv("TANDEM_DATABASE_URL", "sqlite:"+filepath.Join(dir, "tandem.db"))
	t.Setenv("TANDEM_SECRET_KEY_FILE", filepath.Join(dir, "secret.key"))
	got := runs(t, 1, "migrate", "status")
	require.Contains(t, got.out, "pending")
	require.NotContains(t, got.out, "applied", "it applies nothing")
	require.Contains(t, got.err, "steps are pending")
	require.Contains(t, runs(t, 1, "migrate", "status").out, "pending")
	require.NotContains(t, runs(t, 0, "migrate").out, "pending")
	require.NotContains(t, runs(t, 0, "migrate", "status").out, "pending")
	require.Contains(t, runs(t, 0, "migrate", "up", "-o", "json").out, `"state": "applied"`)

	refused := runs(t, 2, "migrate", "down")
	require.Contains(t, refused.err, "Take back step")
	require.Contains(t, refused.err, "is lost for good")
	require.Contains(t, refused.err, "--yes")
	require.NotContains(t, runs(t, 0, "migrate", "status").out, "pending", "nothing was done")
	var before, after []struct {
		Version            int64
		Name, About, State string
	}
	require.NoError(t, json.Unmarshal([]byte(runs(t, 0, "migrate", "status", "-o", "json").out), &before))
	last := before[len(before)-1]
	require.Contains(t, refused.err, last.Name)
	require.Contains(t, refused.err, last.About)
	require.NoError(t, json.Unmarshal([]byte(runs(t, 0, "migrate", "down", "--yes", "-o", "json").out), &after))
	require.Equal(t, before[:len(before)-1], after[:len(before)-1])
	require.Equal(t, "pending", after[len(before)-1].State)
	require.Contains(t, runs(t, 1, "migrate", "status").err, "1 of")
	for range len(before) - 1 {
		runs(t, 0, "migrate", "down", "--yes")
	}
	require.Contains(t, runs(t, 1, "migrate", "down", "--yes").err, "no step")
	require.NotContains(t, runs(t, 0, "migrate").out, "pending", "and up again")
	runs(t, 2, "migrate", "down", "3")
}
