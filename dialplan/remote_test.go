package dialplan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/esl/simswitch"
	"tandem/models"
	"tandem/nodeport"
)

// nodeTokens knows one node.
type nodeTokens struct{ refuse atomic.Bool }

func (n *nodeTokens) AuthenticateNode(_ context.Context, name, token string) (string, error) {
	if n.refuse.Load() || name != "one" || token != "a-token-of-the-node" {
		return "", models.ErrNotFound
	}
	return "node_1", nil
}

func statusOf(err error) int {
	if errors.Is(err, ErrNoExchange) {
		return http.StatusNotFound
	}
	return 0
}

// port is a port for nodes that can be closed and opened again at the same address.
type port struct {
	addr   string
	cfg    nodeport.Config
	server *nodeport.Server
	served chan error
}

func openPort(t *testing.T, cfg nodeport.Config) *port {
	t.Helper()
	cfg.Status = statusOf
	p := &port{addr: "127.0.0.1:0", cfg: cfg}
	p.open(t)
	t.Cleanup(func() { p.close(t) })
	return p
}

func (p *port) open(t *testing.T) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", p.addr)
	require.NoError(t, err)
	p.addr = listener.Addr().String()
	p.server, err = nodeport.New(p.cfg)
	require.NoError(t, err)
	p.served = make(chan error, 1)
	server, served := p.server, p.served
	go func() { served <- server.Serve(listener) }()
}

func (p *port) close(t *testing.T) {
	t.Helper()
	if p.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
	defer cancel()
	require.NoError(t, p.server.Shutdown(ctx))
	require.NoError(t, <-p.served)
	p.server = nil
}

// swap is a handler of files that can be set after its server has started, since an exchange has to know the server's address.
type swap struct{ *Exchange }

// remoteRig is a simulated switch with a disk of its own.
type remoteRig struct {
	*live
	store   *fakeStore
	confDir string
	tokens  *nodeTokens
	port    *port
	sim     *simswitch.Switch
}

func startRemote(t *testing.T, store *fakeStore, options ...func(*simswitch.Config)) *remoteRig {
	t.Helper()
	r := &remoteRig{store: store, confDir: t.TempDir(), tokens: &nodeTokens{}}
	for _, folder := range managedFolders {
		require.NoError(t, os.MkdirAll(filepath.Join(r.confDir, folder), 0o750))
	}
	var err error
	cfg := simswitch.Config{
		Password: "a password", ConfDir: r.confDir, NodeCredentials: "one:a-token-of-the-node",
		Modules: append(simswitch.DefaultModules(), "mod_http_cache", "mod_loopback"),
	}
	for _, option := range options {
		option(&cfg)
	}
	r.sim, err = simswitch.New(cfg)
	require.NoError(t, err)
	require.NoError(t, r.sim.Start())
	t.Cleanup(func() { require.NoError(t, r.sim.Close()) })
	files := &swap{}
	r.port = openPort(t, nodeport.Config{Nodes: r.tokens, Files: files})
	files.Exchange, err = NewExchange("http://" + r.port.addr)
	require.NoError(t, err)
	r.live = dialRemote(t, store, r.sim.Addr(), "a password", r.confDir, files.Exchange)
	return r
}

// dialRemote connects to the switch of a remote node and gives the node to a syncer.
func dialRemote(t *testing.T, store *fakeStore, addr, password, confDir string, exchange *Exchange) *live {
	t.Helper()
	l := &live{
		log: &lockedLog{}, up: make(chan struct{}, 1),
		parks: make(chan *esl.Event, 100), ended: make(chan *esl.Event, 1000), gates: make(chan *esl.Event, 1000),
	}
	var err error
	l.syncer, err = NewSyncer(Config{Store: store, Logger: slog.New(slog.NewTextHandler(l.log, nil)), Exchange: exchange})
	require.NoError(t, err)
	l.control, err = esl.NewNode(esl.Config{Name: "one", Addr: addr, Password: password, Handler: l, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, l.control.Start(t.Context()))
	t.Cleanup(l.control.Stop)
	receive(t, l.up)
	_, err = l.control.AcceptCalls(within(t), time.Hour, "")
	require.NoError(t, err)
	l.syncer.AddNode(models.Node{ID: "node_1", ConfDir: confDir, Delivery: models.DeliveryXMLCurl}, l.control)
	return l
}

// holds compares the node's own disk with a rendering.
func holds(t *testing.T, confDir string, rendering *Rendering) {
	t.Helper()
	present := Files{}
	for _, folder := range managedFolders {
		entries, err := os.ReadDir(filepath.Join(confDir, folder))
		require.NoError(t, err)
		for _, entry := range entries {
			if filepath.Ext(entry.Name()) != ".xml" {
				continue
			}
			content, err := os.ReadFile(filepath.Join(confDir, folder, entry.Name()))
			require.NoError(t, err)
			present[folder+"/"+entry.Name()] = content
		}
	}
	require.Len(t, present, len(rendering.Files))
	for name, content := range rendering.Files {
		require.Equal(t, string(content), string(present[name]), name)
	}
}

func (r *remoteRig) rendering(t *testing.T) *Rendering {
	t.Helper()
	rendering, err := Render(Input{Trunks: r.store.trunks, DIDs: r.store.dids})
	require.NoError(t, err)
	return rendering
}

// TestRemoteNodeFetchesWhatChanged holds a node with a disk of its own to the files that a shared disk would have.
func TestRemoteNodeFetchesWhatChanged(t *testing.T) {
	t.Parallel()
	busy := number("did_1", "cust_a", "+15550001567")
	busy.RouteMode, busy.RejectCode = models.RouteReject, 486
	store := &fakeStore{
		trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one"), outbound("trunk_2", "cust_a", ".two"), inbound("trunk_3", "cust_a", "127.0.0.2", "")},
		dids:   []models.DID{busy},
	}
	store.trunks[0].Password = secret(hostile[7])
	r := startRemote(t, store)
	report := r.sync(t)
	require.Len(t, report.Written, 5)
	holds(t, r.confDir, r.rendering(t))
	require.ElementsMatch(t, []string{"one", ".two"}, r.gatewayNames(t))
	require.False(t, r.sync(t).Changed(), "nothing is fetched twice")

	_, err := r.sim.CallIn(simswitch.IncomingCall{From: "+15559990000", To: "+15550001567", SourceIP: "127.0.0.2"})
	require.NoError(t, err)
	require.Equal(t, "486", receive(t, r.ended).Variable("current_application_data"))

	store.trunks[0].Password = "another"
	store.trunks[1].IsActive = false
	store.dids = append(store.dids, number("did_2", "cust_a", "+15550002568"))
	report = r.sync(t)
	require.Equal(t, []string{shardPath("568"), entryPath, gatewayPath("one")}, report.Written)
	require.Equal(t, []string{gatewayPath(".two")}, report.Removed)
	require.ElementsMatch(t, []string{".two", "one"}, report.Killed)
	holds(t, r.confDir, r.rendering(t))

	// Another controller takes the node over: it reads what the node has, and finds nothing to change.
	next := dialRemote(t, store, r.sim.Addr(), "a password", r.confDir, r.port.cfg.Files.(*swap).Exchange)
	report = next.sync(t)
	require.False(t, report.Changed())
	require.True(t, report.Reloaded, "the switch may be another process")
	require.Empty(t, report.Killed)
}

// TestRemoteNodeIsLeftWhole: whatever goes wrong on the way, the node has its old files or its new ones, and the next try brings the rest.
func TestRemoteNodeIsLeftWhole(t *testing.T) {
	t.Parallel()
	store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}, dids: []models.DID{number("did_1", "cust_a", "+15550001567")}}
	r := startRemote(t, store)
	r.sync(t)
	before := r.rendering(t)
	store.trunks[0].Password = "changed"
	store.dids = append(store.dids, number("did_2", "cust_a", "+15550002568"))

	fails := func() {
		t.Helper()
		_, err := r.syncer.Sync(within(t), "node_1")
		require.ErrorIs(t, err, esl.ErrTransfer)
		holds(t, r.confDir, before)
	}
	r.tokens.refuse.Store(true)
	fails() // the node's token was changed
	r.tokens.refuse.Store(false)
	r.port.close(t)
	fails() // nobody answers
	r.port.open(t)
	report := r.sync(t)
	require.True(t, report.Changed())
	holds(t, r.confDir, r.rendering(t))

	// A state that nobody can read: everything is brought and told again.
	require.NoError(t, os.WriteFile(filepath.Join(r.confDir, statePath), []byte("{torn"), 0o600))
	next := dialRemote(t, store, r.sim.Addr(), "a password", r.confDir, r.port.cfg.Files.(*swap).Exchange)
	report = next.sync(t)
	require.Len(t, report.Written, len(r.rendering(t).Files))
	holds(t, r.confDir, r.rendering(t))

	// A folder is missing: the error says which.
	require.NoError(t, os.RemoveAll(filepath.Join(r.confDir, gatewayFolder)))
	_, err := next.syncer.Sync(within(t), "node_1")
	require.ErrorContains(t, err, gatewayFolder)

	// The switch is away: the node keeps what it has.
	require.NoError(t, r.sim.Close())
	require.Eventually(t, func() bool { return !next.control.Up() }, testTimeout, 5*time.Millisecond)
	report, err = next.syncer.Sync(within(t), "node_1")
	require.NoError(t, err)
	require.True(t, report.Pending)
}

// TestRemoteNodeIsProved: files of the node's that somebody changed are found when it is time to look, and put right.
func TestRemoteNodeIsProved(t *testing.T) {
	t.Parallel()
	store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}, dids: []models.DID{number("did_1", "cust_a", "+15550001567")}}
	r := startRemote(t, store)
	r.sync(t)
	edit := func(name, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(r.confDir, name), []byte(text), 0o600))
	}
	edit(gatewayPath("one"), "<include></include>\n")
	edit(shardPath("567"), "")
	require.NoError(t, os.Remove(filepath.Join(r.confDir, sourcePath)))
	require.False(t, r.sync(t).Changed(), "it is not time yet")

	r.syncer.mu.Lock()
	r.syncer.nodes["node_1"].copy.proved = time.Time{}
	r.syncer.mu.Unlock()
	report := r.sync(t)
	require.ElementsMatch(t, []string{gatewayPath("one"), shardPath("567"), sourcePath}, report.Written)
	require.Equal(t, []string{"one"}, report.Killed)
	holds(t, r.confDir, r.rendering(t))
}

// TestRemoteNodeThatLostItsDisk: a node that is connected again may be another container with an empty disk. It says itself what it has.
func TestRemoteNodeThatLostItsDisk(t *testing.T) {
	t.Parallel()
	store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}, dids: []models.DID{number("did_1", "cust_a", "+15550001567")}}
	r := startRemote(t, store)
	r.sync(t)
	require.NoError(t, os.RemoveAll(filepath.Join(r.confDir, "tandem")))
	for _, folder := range managedFolders {
		require.NoError(t, os.MkdirAll(filepath.Join(r.confDir, folder), 0o750))
	}
	r.syncer.HandleUp("node_1")
	report := r.sync(t)
	require.Len(t, report.Written, len(r.rendering(t).Files))
	holds(t, r.confDir, r.rendering(t))
}

// TestRemoteNodeOfManyFiles: a node that lacks more files than its switch keeps of what it fetches gets all of them.
func TestRemoteNodeOfManyFiles(t *testing.T) {
	t.Parallel()
	store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", ".one"), outbound("trunk_2", "cust_a", "two")}}
	for i := range 60 {
		store.dids = append(store.dids, number(fmt.Sprintf("did_%d", i), "cust_a", fmt.Sprintf("+15550001%03d", i)))
	}
	r := startRemote(t, store, func(cfg *simswitch.Config) { cfg.CachedURLs = 20 })
	r.syncer.nodes["node_1"].copy.fetchAhead = 10
	report := r.sync(t)
	require.Len(t, report.Written, 64)
	holds(t, r.confDir, r.rendering(t))
	for i := range store.dids {
		store.dids[i].Status = models.DIDSuspended
	}
	require.Len(t, r.sync(t).Written, 60)
	holds(t, r.confDir, r.rendering(t))
	for _, folder := range managedFolders {
		left, err := filepath.Glob(filepath.Join(r.confDir, folder, ".*"))
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

func TestRemoteNodeWithoutAnExchange(t *testing.T) {
	t.Parallel()
	s, err := NewSyncer(Config{Store: &fakeStore{}})
	require.NoError(t, err)
	s.AddNode(models.Node{ID: "node_1", ConfDir: "/node", Delivery: models.DeliveryXMLCurl}, &fakeSwitch{})
	_, err = s.Sync(t.Context(), "node_1")
	require.ErrorIs(t, err, errNoExchange)
}
