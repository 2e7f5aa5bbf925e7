package dialplan

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// apply makes a folder hold the files.
func apply(t *testing.T, f folder, files Files) difference {
	t.Helper()
	d := compare(t, f, files)
	s, err := f.stage(t.Context(), &Rendering{Files: files}, d.written)
	require.NoError(t, err)
	for path, held := range s.held {
		require.Equal(t, digestOf(files[path]), held)
	}
	require.NoError(t, f.commit(s, d.removed))
	return d
}

// compare reads the folder and tells how it differs from the files.
func compare(t *testing.T, f folder, files Files) difference {
	t.Helper()
	held, err := f.read()
	require.NoError(t, err)
	wanted := map[string]digest{}
	for path, content := range files {
		wanted[path] = digestOf(content)
	}
	return differ(held, wanted)
}

func list(t *testing.T, root string) []string {
	t.Helper()
	var paths []string
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(root, path)
			paths = append(paths, filepath.ToSlash(name))
		}
		return err
	}))
	return paths
}

func TestFolderHoldsWhatItShould(t *testing.T) {
	t.Parallel()
	f := folder{t.TempDir()}
	first := Files{
		gatewayPath("a"): []byte("a1"), gatewayPath(".b"): []byte("b1"), entryPath: []byte("e1"), shardPath("000"): []byte("s1"),
	}
	d := apply(t, f, first)
	require.Len(t, d.written, 4)
	require.ElementsMatch(t, slices.Collect(maps.Keys(first)), list(t, f.root))
	info, err := os.Stat(f.path(gatewayPath("a")))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(fileMode), info.Mode().Perm())

	d = compare(t, f, first)
	require.True(t, d.empty())

	require.NoError(t, os.WriteFile(filepath.Join(f.root, "tandem", "gateways", ".gitkeep"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(f.root, "tandem", "gateways", ".stage-dead"), []byte("half"), 0o600))
	second := Files{gatewayPath("a"): []byte("a2"), entryPath: []byte("e1"), shardPath("001"): []byte("s2")}
	d = apply(t, f, second)
	require.Equal(t, []string{shardPath("001"), gatewayPath("a")}, d.written)
	require.Equal(t, []string{shardPath("000"), gatewayPath(".b")}, d.removed)
	require.ElementsMatch(t, append(slices.Collect(maps.Keys(second)), gatewayFolder+"/.gitkeep"), list(t, f.root))
	require.Equal(t, ".b", gatewayOf(d.removed[1]))
	require.Empty(t, gatewayOf(entryPath))
	require.Empty(t, gatewayOf(gatewayFolder+"/_all_.xml"))
}

// TestStageThatFailsTouchesNothing makes the second folder a file: what comes after the first file cannot be written.
func TestStageThatFailsTouchesNothing(t *testing.T) {
	t.Parallel()
	f := folder{t.TempDir()}
	old := Files{gatewayPath("a"): []byte("a1"), entryPath: []byte("e1")}
	apply(t, f, old)
	next := Files{gatewayPath("a"): []byte("a2"), entryPath: []byte("e2"), "tandem/nowhere/x.xml": []byte("x")}
	_, err := f.stage(t.Context(), &Rendering{Files: next}, slices.Sorted(maps.Keys(next)))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ElementsMatch(t, slices.Collect(maps.Keys(old)), list(t, f.root), "no temporary file is left")
	d := compare(t, f, old)
	require.True(t, d.empty())
}

func TestJournal(t *testing.T) {
	t.Parallel()
	f := folder{t.TempDir()}
	require.NoError(t, os.MkdirAll(f.path("tandem"), folderMode))
	_, due, err := f.readPending()
	require.NoError(t, err)
	require.False(t, due)
	p := pending{Kill: []string{"b", "a"}, ACL: true}.merge(pending{Kill: []string{"a", "c"}, Scan: true})
	require.Equal(t, pending{Kill: []string{"a", "b", "c"}, ACL: true, Scan: true}, p)
	require.NoError(t, f.writePending(p))
	read, due, err := f.readPending()
	require.NoError(t, err)
	require.True(t, due)
	require.Equal(t, p, read)

	require.NoError(t, os.WriteFile(f.path(journalPath), []byte(`{"kill":["_all_","a b","ok"]}`), 0o600))
	read, _, err = f.readPending()
	require.NoError(t, err)
	require.Equal(t, []string{"ok"}, read.Kill)
	require.NoError(t, os.WriteFile(f.path(journalPath), []byte(`{"kill`), 0o600))
	read, due, err = f.readPending()
	require.NoError(t, err)
	require.True(t, due)
	require.Equal(t, pending{ACL: true, Scan: true}, read)
	require.NoError(t, f.clearPending())
	require.NoError(t, f.clearPending())
	require.Empty(t, list(t, f.root))
}
