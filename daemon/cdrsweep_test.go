package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/calls"
	"tandem/models"
	"tandem/models/modelstest"
)

// folderOf makes the CDR folder of a node with files.
func folderOf(t *testing.T, files map[string][]byte) (models.Node, string) {
	t.Helper()
	node := models.Node{ID: "node_1", Name: "fs-1", ConfDir: t.TempDir()}
	folder := cdrFolder(node.ConfDir)
	require.NoError(t, os.MkdirAll(folder, 0o755))
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	return node, folder
}

func namesIn(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func capturedCDR(t *testing.T, name string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("..", "calls", "testdata", "cdr", name+".json"))
	require.NoError(t, err)
	return append(body, '\n')
}

func TestSweepOfCDRs(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		good := capturedCDR(t, "bridged-callee")
		files := map[string][]byte{
			"half.cdr.json": good[:len(good)/2], "empty.cdr.json": nil, "old-half.cdr.json": good[:100], "garbage.cdr.json": []byte("hello\n"),
			"huge.cdr.json": append(bytes.Repeat([]byte(" "), calls.CDRLimit), good...), "..cdr.json": good, "notes.txt": []byte("mine"),
		}
		for i := range sweepBatch + 50 {
			files["channel-"+string(rune('a'+i%26))+"-"+string(rune('a'+i/26))+".cdr.json"] = good
		}
		node, folder := folderOf(t, files)
		require.NoError(t, os.Mkdir(filepath.Join(folder, "folder.cdr.json"), 0o755))
		outside := filepath.Join(t.TempDir(), "secret")
		require.NoError(t, os.WriteFile(outside, good, 0o600))
		require.NoError(t, os.Symlink(outside, filepath.Join(folder, "link.cdr.json")))
		old := time.Now().Add(-sweepPatience)
		require.NoError(t, os.Chtimes(filepath.Join(folder, "old-half.cdr.json"), old, old))

		w := &cdrSweeper{store: store, logger: slog.New(slog.DiscardHandler)}
		collected, err := w.sweep(t.Context(), node)
		require.NoError(t, err)
		require.Equal(t, sweepBatch+50, collected)
		require.Equal(t, []string{"empty.cdr.json", "folder.cdr.json", "half.cdr.json", "link.cdr.json", "notes.txt", refusedCDRs}, namesIn(t, folder))
		require.Equal(t, []string{"..cdr.json", "garbage.cdr.json", "huge.cdr.json", "old-half.cdr.json"}, namesIn(t, filepath.Join(folder, refusedCDRs)))
		cdr, err := store.CDR(t.Context(), node.ID, "channel-a-a")
		require.NoError(t, err)
		require.Equal(t, 2, cdr.BilledSeconds)
		_, err = store.CDR(t.Context(), node.ID, "link")
		require.ErrorIs(t, err, models.ErrNotFound, "nothing outside the folder is read")

		// The rest of a file has been written.
		require.NoError(t, os.WriteFile(filepath.Join(folder, "half.cdr.json"), good, 0o600))
		collected, err = w.sweep(t.Context(), node)
		require.NoError(t, err)
		require.Equal(t, 1, collected)
		require.NotContains(t, namesIn(t, folder), "half.cdr.json")

		collected, err = w.sweep(t.Context(), models.Node{ID: "node_2", ConfDir: t.TempDir()})
		require.NoError(t, err, "a node of an older configuration has no such folder")
		require.Zero(t, collected)
	})
}

// TestSweepKeepsFilesUntilTheCommit has the database refuse: no file may be gone.
func TestSweepKeepsFilesUntilTheCommit(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	node, folder := folderOf(t, map[string][]byte{"a.cdr.json": capturedCDR(t, "refused")})
	w := &cdrSweeper{store: store, logger: slog.New(slog.DiscardHandler)}
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.sweep(dead, node)
	require.Error(t, err)
	require.Equal(t, []string{"a.cdr.json"}, namesIn(t, folder))
	require.NoError(t, store.Close())
	_, err = w.sweep(t.Context(), node)
	require.ErrorIs(t, err, models.ErrClosed)
	require.Equal(t, []string{"a.cdr.json"}, namesIn(t, folder))
}

// TestSweeperGoesRound has a file appear while the sweeper runs, and one that was there before, whose deletion did not come about.
func TestSweeperGoesRound(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	node, folder := folderOf(t, map[string][]byte{"a.cdr.json": capturedCDR(t, "refused")})
	before, err := calls.ParseCDR("a", capturedCDR(t, "refused"))
	require.NoError(t, err)
	before.NodeID = node.ID
	require.NoError(t, store.SaveCDRs(t.Context(), []models.CDR{before}))
	w := startCDRSweeper(t.Context(), store, func() []models.Node { return []models.Node{node} }, slog.New(slog.DiscardHandler))
	defer func() { require.NoError(t, w.stop(t.Context())) }()
	empty := func() bool { return len(namesIn(t, folder)) == 0 }
	require.Eventually(t, empty, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "b.cdr.json"), capturedCDR(t, "bridged-caller"), 0o600))
	require.Eventually(t, empty, 10*time.Second, 10*time.Millisecond)
	cdr, err := store.CDR(t.Context(), node.ID, "b")
	require.NoError(t, err)
	require.Equal(t, 3, cdr.BilledSeconds)
}
