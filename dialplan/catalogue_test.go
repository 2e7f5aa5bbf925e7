package dialplan

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

// written is what a node's folder holds of the rendering, by path.
func written(t *testing.T, root string) Files {
	t.Helper()
	files := Files{}
	for _, path := range list(t, root) {
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
		require.NoError(t, err)
		files[path] = content
	}
	return files
}

// TestFilesAreThoseOfOneRendering: however the numbers come to the nodes, by the parts that changed or all of them, within what is kept in
// memory or beyond it, the files are those that Render makes of everything at once.
func TestFilesAreThoseOfOneRendering(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 3000, freshLimit} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			in := example()
			store := &fakeStore{trunks: in.Trunks, dids: in.DIDs}
			s, err := NewSyncer(Config{Store: store, Providers: in.Providers, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			s.catalogue.limit = limit
			node := models.Node{ID: "node_1", ConfDir: t.TempDir()}
			control := &fakeSwitch{fail: map[string]error{}}
			s.AddNode(node, control)
			same := func() {
				t.Helper()
				s.syncAll(t.Context(), false)
				whole, err := Render(Input{Trunks: store.trunks, DIDs: store.dids, Providers: in.Providers})
				require.NoError(t, err)
				require.Equal(t, whole.Files, written(t, node.ConfDir))
				rendering, err := s.render(t.Context(), false)
				require.NoError(t, err)
				require.Equal(t, whole.Problems, rendering.Problems)
				require.Equal(t, whole.digests, rendering.digests)
				require.Equal(t, whole.Gateways, rendering.Gateways)
			}
			same()
			store.dids = append(store.dids, manyDIDs(40)...)
			same()
			store.dids[2].RouteMode, store.dids[2].SIPURI = models.RouteSIP, "sip:no host"
			store.trunks[0].IsActive = false
			same()
			store.dids = store.dids[3:9]
			same()
			store.dids = nil
			same()
		})
	}
}

// TestOneNumberCostsOneShard: the rows of one shard are read and one file is written, whatever else there is.
func TestOneNumberCostsOneShard(t *testing.T) {
	t.Parallel()
	store := &fakeStore{dids: manyDIDs(5000), trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}}
	s, control, node := newTestSyncer(t, store)
	s.syncAll(t.Context(), false)
	control.heard()
	before := written(t, node.ConfDir)
	store.shardReads, store.rows, store.reads = nil, 0, 0

	// Were another file read or written, this one would be put right.
	spoilt := filepath.Join(node.ConfDir, filepath.FromSlash(sourcePath))
	require.NoError(t, os.WriteFile(spoilt, []byte("spoilt by hand"), 0o600))
	store.dids[1234].Status = models.DIDSuspended
	shard := models.ShardOf(store.dids[1234].NumberE164)
	s.syncAll(t.Context(), false)
	require.Equal(t, []string{"reloadxml"}, control.heard())
	require.Equal(t, []string{shard}, store.shardReads)
	require.Equal(t, 5, store.rows)
	require.Zero(t, store.reads, "no trunk is read")
	after := written(t, node.ConfDir)
	require.NotEqual(t, before[shardPath(shard)], after[shardPath(shard)])
	before[shardPath(shard)], before[sourcePath] = after[shardPath(shard)], []byte("spoilt by hand")
	require.Equal(t, before, after)

	s.syncAll(t.Context(), false)
	require.Empty(t, control.heard())
	s.syncAll(t.Context(), true)
	require.Equal(t, []string{"reloadacl"}, control.heard())
	require.NotEqual(t, "spoilt by hand", string(written(t, node.ConfDir)[sourcePath]))
}

// TestNumbersThatChangedWithoutTrace are found when everything is looked at, and so are files that somebody else changed.
func TestNumbersThatChangedWithoutTrace(t *testing.T) {
	t.Parallel()
	store := &fakeStore{dids: manyDIDs(20)}
	s, control, node := newTestSyncer(t, store)
	s.syncAll(t.Context(), false)
	control.heard()

	store.silent = true // from here on as a process of an older version writes
	shard := models.ShardOf(store.dids[3].NumberE164)
	store.dids[3].Status = models.DIDSuspended
	store.dids[3].UpdatedAt = store.dids[3].UpdatedAt.Add(1000)
	added := number("did_new", "cust_a", "+15550001999")
	store.dids = append(store.dids, added)
	require.False(t, s.catalogue.changed(t.Context()))
	s.syncAll(t.Context(), false)
	require.Empty(t, control.heard())
	store.shardReads = nil
	s.syncAll(t.Context(), true)
	require.Equal(t, []string{"reloadxml"}, control.heard())
	require.ElementsMatch(t, []string{shard, "999"}, store.shardReads)
	require.Contains(t, string(written(t, node.ConfDir)[shardPath(shard)]), "480")
	require.FileExists(t, filepath.Join(node.ConfDir, shardPath("999")))

	require.NoError(t, os.Remove(filepath.Join(node.ConfDir, shardPath(shard))))
	store.shardReads = nil
	s.syncAll(t.Context(), true)
	require.Equal(t, []string{"reloadxml"}, control.heard())
	require.Equal(t, []string{shard}, store.shardReads, "only what has to be written again")
	require.FileExists(t, filepath.Join(node.ConfDir, shardPath(shard)))
}

// TestReadingThatFails leaves the files, and what was read before it failed is not taken for what the nodes have.
func TestReadingThatFails(t *testing.T) {
	t.Parallel()
	store := &fakeStore{dids: manyDIDs(20)}
	s, control, node := newTestSyncer(t, store)
	s.syncAll(t.Context(), false)
	control.heard()
	before := written(t, node.ConfDir)

	store.dids[3].Status = models.DIDSuspended
	store.err = errStore
	require.True(t, s.catalogue.changed(t.Context()))
	s.syncAll(t.Context(), false)
	require.Equal(t, before, written(t, node.ConfDir))
	require.Empty(t, control.heard())

	// Read, but not written: the file of the shard cannot be.
	store.err = nil
	shard := filepath.Join(node.ConfDir, dialplanFolder)
	require.NoError(t, os.Rename(shard, shard+".away"))
	require.NoError(t, os.WriteFile(shard, nil, 0o600))
	s.syncAll(t.Context(), false)
	require.Empty(t, control.heard())
	require.False(t, s.current()[0].settled.Load())
	require.NoError(t, os.Remove(shard))
	require.NoError(t, os.Rename(shard+".away", shard))
	require.True(t, s.due(t.Context()))
	s.syncAll(t.Context(), false)
	s.done.Wait() // which is beside the others, since it failed
	require.Equal(t, []string{"reloadxml"}, control.heard())
	require.Contains(t, string(written(t, node.ConfDir)[shardPath(models.ShardOf(store.dids[3].NumberE164))]), "480")
}
