package dialplan

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/lab"
	"tandem/models"
)

// driftBook keeps what was recorded last of each kind.
type driftBook struct {
	mu     sync.Mutex
	open   map[string][]string
	healed []string
}

func (b *driftBook) RecordDrifts(_ context.Context, _ string, kinds []string, found, healed []models.Drift) ([]models.Drift, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, kind := range kinds {
		b.open[kind] = nil
	}
	for _, d := range found {
		b.open[d.Kind] = append(b.open[d.Kind], d.Name)
	}
	for _, d := range healed {
		b.healed = append(b.healed, d.Kind+" "+d.Name)
	}
	return append(found, healed...), nil
}

func (b *driftBook) lasting(kind string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open[kind]
}

func (b *driftBook) over() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.healed
}

func lines(plan *Plan) []string {
	var out []string
	for _, c := range plan.Changes {
		line := c.Op + " " + c.Kind + " " + c.Name + ": " + c.Effect
		if len(c.LiveCalls) > 0 {
			line += " (" + strings.Join(c.LiveCalls, " ") + ")"
		}
		out = append(out, line)
	}
	return out
}

// TestPlanSaysWhatApplyWouldDo and names the live calls at risk; it changes nothing.
func TestPlanSaysWhatApplyWouldDo(t *testing.T) {
	t.Parallel()
	store := &fakeStore{
		trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one"), outbound("trunk_2", "cust_a", "two")},
		dids:   []models.DID{number("did_1", "cust_a", "+15550001567")},
	}
	s, control, node := newTestSyncer(t, store)
	_, err := s.Sync(t.Context(), "node_1")
	require.NoError(t, err)
	control.gateways = []esl.Gateway{{Name: "one", Profile: "external"}, {Name: "two", Profile: "external"}}
	plan := func(calls map[string][]string) []string {
		t.Helper()
		p, err := s.Plan(t.Context(), node, control, calls)
		require.NoError(t, err)
		require.Empty(t, p.Note())
		return lines(p)
	}
	require.Empty(t, plan(nil))
	told := control.heard()

	store.trunks[0].Password = "changed"
	store.trunks[1].IsActive = false
	store.trunks = append(store.trunks, outbound("trunk_3", "cust_a", "three"), inbound("trunk_4", "cust_a", "192.0.2.1", ""))
	store.dids = append(store.dids, number("did_2", "cust_a", "+15550002568"))
	control.gateways = append(control.gateways, esl.Gateway{Name: "handmade", Profile: "external"}, esl.Gateway{Name: "internal", Profile: "internal"})
	require.NoError(t, os.WriteFile(filepath.Join(node.ConfDir, dialplanFolder, "mine.xml"), []byte("<include></include>\n"), 0o600))
	require.Equal(t, []string{
		"add numbers did_568: reloadxml",
		"change entry public: reloadxml",
		"change sources inbound addresses: reloadacl",
		"change gateway one: killgw + rescan (call_1 call_2)",
		"add gateway three: killgw + rescan",
		"remove file tandem/dialplan/mine.xml: reloadxml",
		"remove gateway two: killgw (call_4)",
		"unload gateway handmade: killgw",
	}, plan(map[string][]string{"one": {"call_1", "call_2"}, "two": {"call_4"}, "nine": {"call_3"}}))
	require.Empty(t, control.heard(), "nothing was told")
	require.NotEmpty(t, told)
	require.FileExists(t, filepath.Join(node.ConfDir, dialplanFolder, "mine.xml"))

	control.down = true
	p, err := s.Plan(t.Context(), node, control, nil)
	require.NoError(t, err)
	require.Contains(t, p.Note(), "only files")
	_, err = s.Plan(t.Context(), models.Node{ID: "node_2", ConfDir: "/nowhere/at/all"}, control, nil)
	require.Error(t, err)
}

// TestPlanIsBounded: a node that differs in every one of many numbers is told of in as many lines as there are shards, and a few more.
func TestPlanIsBounded(t *testing.T) {
	t.Parallel()
	store := &fakeStore{}
	for i := range 5000 {
		store.dids = append(store.dids, number(fmt.Sprintf("did_%d", i), "cust_a", fmt.Sprintf("+1555000%04d7", i)))
	}
	s, control, node := newTestSyncer(t, store)
	_, err := s.Sync(t.Context(), "node_1")
	require.NoError(t, err)
	for i := range store.dids {
		store.dids[i].Status = models.DIDSuspended
	}
	p, err := s.Plan(t.Context(), node, control, nil)
	require.NoError(t, err)
	require.Len(t, p.Changes, 100)
	for _, c := range p.Changes {
		require.Len(t, c.Details, detailsNamed+1)
		require.Equal(t, "and 30 more", c.Details[detailsNamed])
	}
}

func TestApplyTakesNothingForGranted(t *testing.T) {
	t.Parallel()
	store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}}
	s, control, node := newTestSyncer(t, store)
	_, err := s.Sync(t.Context(), "node_1")
	require.NoError(t, err)
	control.heard()
	control.gateways = []esl.Gateway{{Name: "one", Profile: "external"}, {Name: "handmade", Profile: "external"}, {Name: "other", Profile: "internal"}}
	require.NoError(t, os.Remove(filepath.Join(node.ConfDir, gatewayPath("one"))))

	report, err := s.Apply(t.Context(), "node_1", false)
	require.NoError(t, err)
	require.Equal(t, []string{gatewayPath("one")}, report.Written)
	require.Equal(t, []models.Drift{{Kind: models.DriftFileEdited, Name: gatewayPath("one")}}, report.Drifted)
	require.Equal(t, []string{"reloadacl", "killgw one", "rescan"}, control.heard(), "everything is told")
	report, err = s.Apply(t.Context(), "node_1", true)
	require.NoError(t, err)
	require.Equal(t, []string{"handmade"}, report.Killed, "of our profile, and nobody knows it")

	_, err = s.Apply(t.Context(), "node_2", false)
	require.ErrorIs(t, err, ErrUnknownNode)
	control.down = true
	_, err = s.Apply(t.Context(), "node_1", false)
	require.ErrorIs(t, err, esl.ErrDown)
}

// TestDriftIsTold: gateways count as strange when two polls in a row have seen them.
func TestDriftIsTold(t *testing.T) {
	t.Parallel()
	store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one"), outbound("trunk_2", "cust_a", "two")}}
	book := &driftBook{open: map[string][]string{}}
	s, err := NewSyncer(Config{Store: store, Drifts: book})
	require.NoError(t, err)
	control := &fakeSwitch{fail: map[string]error{}}
	node := models.Node{ID: "node_1", ConfDir: t.TempDir()}
	s.AddNode(node, control)
	s.syncAll(t.Context(), false)
	control.gateways = []esl.Gateway{{Name: "one", Profile: "external"}, {Name: "handmade", Profile: "external"}}
	s.pollAll(t.Context())
	require.Empty(t, book.lasting(models.DriftGatewayUnknown))
	s.pollAll(t.Context())
	require.Equal(t, []string{"handmade"}, book.lasting(models.DriftGatewayUnknown))
	require.Equal(t, []string{"two"}, book.lasting(models.DriftGatewayMissing))
	control.gateways = []esl.Gateway{{Name: "one", Profile: "external"}, {Name: "two", Profile: "external"}}
	s.pollAll(t.Context())
	require.Empty(t, book.lasting(models.DriftGatewayUnknown))
	require.Empty(t, book.lasting(models.DriftGatewayMissing))

	require.NoError(t, os.WriteFile(filepath.Join(node.ConfDir, gatewayPath("one")), []byte("mine"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(node.ConfDir, gatewayFolder, "mine.xml"), []byte("<include></include>"), 0o600))
	store.set(func(f *fakeStore) { f.trunks[1].Password = "changed" })
	s.syncAll(t.Context(), true)
	require.Equal(t, []string{"file_edited " + gatewayPath("one"), "file_unknown " + gatewayFolder + "/mine.xml"}, book.over(), "what we changed ourselves is no drift")
	s.syncAll(t.Context(), true)
	require.Len(t, book.over(), 2)
}

// TestFreeSWITCHDrift changes a real node behind our back, has it found, named and healed.
func TestFreeSWITCHDrift(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	busy, other := number("did_1", "cust_a", "+15550001567"), number("did_2", "cust_a", "+15550002568")
	busy.RouteMode, busy.RejectCode = models.RouteReject, 486
	gateway := outbound("trunk_1", "cust_a", "one")
	gateway.Register, gateway.Password = false, secret(hostile[7])
	store := &fakeStore{trunks: []models.Trunk{gateway, inbound("trunk_2", "cust_a", "127.0.0.2", "")}, dids: []models.DID{busy, other}}
	l := startLive(t, store, lab.Options{})
	book := &driftBook{open: map[string][]string{}}
	l.syncer.drifts = book
	row := models.Node{ID: "node_1", ConfDir: l.node.ConfDir}
	plan := func() []string {
		t.Helper()
		p, err := l.syncer.Plan(within(t), row, l.control, nil)
		require.NoError(t, err)
		require.Empty(t, p.Note())
		return lines(p)
	}
	require.Empty(t, plan(), "what the switch has loaded is what we wrote, in its own words")

	// Somebody makes a gateway of his own (the scan reads the whole configuration), whose file he takes away.
	probe := l.node.Probe(t)
	handmade := filepath.Join(l.node.ConfDir, gatewayFolder, "handmade.xml")
	require.NoError(t, os.WriteFile(handmade, []byte("<include>\n<gateway name=\"handmade\">\n<param name=\"proxy\" value=\"127.0.0.1\"/>\n<param name=\"register\" value=\"false\"/>\n</gateway>\n</include>\n"), 0o600))
	_, err := probe.API(within(t), "sofia profile external rescan")
	require.NoError(t, err)
	// And edits a shard, reloads, and puts the file back: the file is right and the switch is not.
	shard := filepath.Join(l.node.ConfDir, shardPath("567"))
	ours, err := os.ReadFile(shard)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(shard, []byte(strings.ReplaceAll(string(ours), "486", "603")), 0o600))
	_, err = probe.API(within(t), "reloadxml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(shard, ours, 0o600))
	require.Equal(t, 603, l.calls(t, "127.0.0.2", "+15550001567"))
	require.Equal(t, []string{"remove gateway handmade: killgw", "reload context did_567: reloadxml"}, plan())
	require.NoError(t, os.Remove(handmade))
	require.Equal(t, []string{"unload gateway handmade: killgw", "reload context did_567: reloadxml"}, plan())

	l.syncer.syncAll(within(t), true)
	require.Equal(t, []string{"did_567"}, book.lasting(models.DriftContextStale))
	l.syncer.pollAll(within(t))
	require.Equal(t, []string{"handmade"}, book.lasting(models.DriftGatewayUnknown))
	l.syncer.syncAll(within(t), true)
	require.Equal(t, 486, l.calls(t, "127.0.0.2", "+15550001567"), "healed by itself")
	require.Empty(t, book.lasting(models.DriftContextStale))

	report, err := l.syncer.Apply(within(t), "node_1", true)
	require.NoError(t, err)
	require.Equal(t, []string{"handmade"}, report.Killed)
	require.Eventually(t, func() bool {
		p, err := l.syncer.Plan(within(t), row, l.control, nil)
		return err == nil && p.Empty()
	}, testTimeout, 50*time.Millisecond)
}
