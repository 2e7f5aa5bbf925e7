package dialplan

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
)

var errXML = errors.New("-ERR [error near line 3]: unexpected closing tag")

func newTestSyncer(t *testing.T, store *fakeStore) (*Syncer, *fakeSwitch, models.Node) {
	t.Helper()
	s, err := NewSyncer(Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	control := &fakeSwitch{fail: map[string]error{}}
	node := models.Node{ID: "node_1", Name: "one", ConfDir: t.TempDir()}
	s.AddNode(node, control)
	return s, control, node
}

func TestSyncTellsTheSwitchWhatChanged(t *testing.T) {
	t.Parallel()
	store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one"), outbound("trunk_2", "cust_a", "two")}}
	s, control, node := newTestSyncer(t, store)
	sync := func() Report {
		t.Helper()
		report, err := s.Sync(t.Context(), "node_1")
		require.NoError(t, err)
		require.False(t, report.Pending)
		require.NoFileExists(t, filepath.Join(node.ConfDir, journalPath))
		return report
	}
	report := sync()
	require.Len(t, report.Written, 4)
	require.Equal(t, []string{"reloadacl", "killgw one", "killgw two", "rescan"}, control.heard(), "all of it after a connect")

	report = sync()
	require.False(t, report.Changed())
	require.False(t, report.Reloaded)
	require.Empty(t, control.heard())

	store.dids = []models.DID{number("did_1", "cust_a", "+15550001567")}
	report = sync()
	require.Equal(t, []string{shardPath("567"), entryPath}, report.Written)
	require.Equal(t, []string{"reloadxml"}, control.heard())

	store.dids[0].Status = models.DIDSuspended
	report = sync()
	require.Equal(t, []string{shardPath("567")}, report.Written)
	require.Equal(t, []string{"reloadxml"}, control.heard())

	store.trunks[0].Password = "changed"
	report = sync()
	require.Equal(t, []string{gatewayPath("one")}, report.Written)
	require.Equal(t, []string{"reloadxml", "killgw one", "rescan"}, control.heard())

	store.trunks[1].IsActive = false
	report = sync()
	require.Equal(t, []string{gatewayPath("two")}, report.Removed)
	require.Equal(t, []string{"two"}, report.Killed)
	require.Equal(t, []string{"reloadxml", "killgw two"}, control.heard())

	store.trunks = append(store.trunks, inbound("trunk_3", "cust_a", "203.0.113.1", ""))
	report = sync()
	require.Equal(t, []string{sourcePath}, report.Written)
	require.Equal(t, []string{"reloadacl"}, control.heard())

	store.trunks, store.dids = nil, nil
	report = sync()
	require.Equal(t, []string{shardPath("567"), gatewayPath("one")}, report.Removed)
	require.Equal(t, []string{"reloadacl", "killgw one"}, control.heard())
}

func TestRenderThatFailsTouchesNothing(t *testing.T) {
	t.Parallel()
	store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}}
	s, control, node := newTestSyncer(t, store)
	_, err := s.Sync(t.Context(), "node_1")
	require.NoError(t, err)
	before := list(t, node.ConfDir)
	control.heard()
	store.trunks, store.err = nil, errStore
	_, err = s.Sync(t.Context(), "node_1")
	require.ErrorIs(t, err, errStore)
	require.Equal(t, before, list(t, node.ConfDir))
	require.Empty(t, control.heard())
	_, err = s.Sync(t.Context(), "node_2")
	require.ErrorIs(t, err, ErrUnknownNode)
}

func TestBrokenConfigurationKillsNoGateway(t *testing.T) {
	t.Parallel()
	store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}}
	s, control, node := newTestSyncer(t, store)
	_, err := s.Sync(t.Context(), "node_1")
	require.NoError(t, err)
	control.heard()
	store.trunks[0].Password = "changed"
	control.fail["reloadxml"] = errXML
	report, err := s.Sync(t.Context(), "node_1")
	require.ErrorIs(t, err, errXML)
	require.True(t, report.Pending)
	require.Empty(t, control.heard())
	require.FileExists(t, filepath.Join(node.ConfDir, journalPath))

	delete(control.fail, "reloadxml")
	report, err = s.Sync(t.Context(), "node_1")
	require.NoError(t, err)
	require.False(t, report.Changed())
	require.Equal(t, []string{"reloadxml", "killgw one", "rescan"}, control.heard())
}

// TestNextControllerFinishesWhatOneBegan writes while the switch is away, and dies; another takes over.
func TestNextControllerFinishesWhatOneBegan(t *testing.T) {
	t.Parallel()
	store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one"), outbound("trunk_2", "cust_a", "two")}}
	first, control, node := newTestSyncer(t, store)
	_, err := first.Sync(t.Context(), "node_1")
	require.NoError(t, err)
	control.heard()
	control.set(func(f *fakeSwitch) { f.down = true })
	store.trunks = store.trunks[:1]
	store.trunks[0].Password = "changed"
	report, err := first.Sync(t.Context(), "node_1")
	require.NoError(t, err)
	require.True(t, report.Pending)
	require.Equal(t, []string{gatewayPath("one")}, report.Written)
	require.Equal(t, []string{gatewayPath("two")}, report.Removed)

	control.set(func(f *fakeSwitch) { f.down = false })
	second, err := NewSyncer(Config{Store: store})
	require.NoError(t, err)
	second.AddNode(node, control)
	report, err = second.Sync(t.Context(), "node_1")
	require.NoError(t, err)
	require.False(t, report.Changed())
	require.Equal(t, []string{"one", "two"}, report.Killed)
	require.Equal(t, []string{"reloadacl", "killgw one", "killgw two", "rescan"}, control.heard())
}

func TestGatewayThatIsNotLoadedNeedsNoKilling(t *testing.T) {
	t.Parallel()
	store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}}
	s, control, _ := newTestSyncer(t, store)
	control.fail["killgw"] = &esl.CommandError{Command: "sofia", Reply: "-ERR no such gateway."}
	report, err := s.Sync(t.Context(), "node_1")
	require.NoError(t, err)
	require.Empty(t, report.Killed)
	require.Equal(t, []string{"reloadacl", "rescan"}, control.heard())

	control.fail["killgw"] = &esl.CommandError{Command: "sofia", Reply: "-ERR sofia is busy"}
	store.trunks[0].Password = "changed"
	report, err = s.Sync(t.Context(), "node_1")
	require.Error(t, err)
	require.True(t, report.Pending)
}

func TestFolderThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}}
	s, control, node := newTestSyncer(t, store)
	require.NoError(t, os.WriteFile(filepath.Join(node.ConfDir, "tandem"), nil, 0o600))
	_, err := s.Sync(t.Context(), "node_1")
	require.Error(t, err)
	require.Empty(t, control.heard())

	for _, dir := range []string{"", "conf", filepath.Join(node.ConfDir, "not", "mounted"), filepath.Join(node.ConfDir, "tandem")} {
		s.AddNode(models.Node{ID: "node_1", ConfDir: dir}, control)
		_, err := s.Sync(t.Context(), "node_1")
		require.ErrorContains(t, err, "configuration directory", dir)
		require.Empty(t, control.heard())
	}
	require.Equal(t, []string{"tandem"}, list(t, node.ConfDir))
}

func TestRemovedNodeIsLeftAlone(t *testing.T) {
	t.Parallel()
	store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}}
	s, control, node := newTestSyncer(t, store)
	n := s.current()[0]
	s.RemoveNode("node_1")
	s.RemoveNode("node_1")
	_, err := n.sync(t.Context(), &Rendering{Files: Files{entryPath: []byte("x")}})
	require.ErrorIs(t, err, ErrUnknownNode)
	require.Empty(t, list(t, node.ConfDir))
	require.Empty(t, control.heard())
}
