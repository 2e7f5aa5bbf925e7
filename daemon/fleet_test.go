package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/billing"
	"tandem/calls"
	"tandem/dialplan"
	"tandem/esl/simswitch"
	"tandem/metrics"
	"tandem/models"
	"tandem/models/modelstest"
)

// steered is a controller's part that looks after nodes, on a simulated switch.
type steered struct {
	store  *models.Store
	node   *models.Node
	sim    *simswitch.Switch
	keeper *nodeKeeper
	meter  *meter
}

func newSteered(t *testing.T, store *models.Store, options simswitch.Config) *steered {
	t.Helper()
	ctx := t.Context()
	logger := slog.New(slog.DiscardHandler)
	options.Password, options.ConfDir = "ClueCon", t.TempDir()
	sim, err := simswitch.New(options)
	require.NoError(t, err)
	require.NoError(t, sim.Start())
	t.Cleanup(func() { _ = sim.Close() })
	s := &steered{store: store, sim: sim}
	s.node = &models.Node{Name: "one", ESLAddr: sim.Addr(), Password: "ClueCon", ConfDir: options.ConfDir, IsActive: true}
	require.NoError(t, store.CreateNode(ctx, s.node))
	manager, syncer := keeperParts(t, store)
	s.keeper = newNodeKeeper(store, manager, syncer, "keeper", 2*time.Second, logger)
	s.keeper.metrics = metrics.New("test")
	s.keeper.start(ctx)
	t.Cleanup(func() { _ = s.keeper.stop(context.WithoutCancel(ctx)) })
	g := &gate{nodes: s.keeper.all, against: func() error { return nil }, logger: logger}
	g.start(ctx)
	t.Cleanup(func() { _ = g.stop(ctx) })
	p := &pulse{nodes: s.keeper.all, record: store.RecordNodeHealth, now: store.Now, modules: modulesFor(&Config{VoiceEngine: "flite"}), logger: logger}
	p.start(ctx)
	t.Cleanup(func() { _ = p.stop(ctx) })
	s.meter = &meter{store: store, manager: manager, syncer: syncer, nodes: s.keeper.all, metrics: s.keeper.metrics, logger: logger}
	return s
}

// keeperParts starts the parts that a keeper of nodes works with, until the test ends.
func keeperParts(t *testing.T, store *models.Store) (*calls.Manager, *dialplan.Syncer) {
	t.Helper()
	ctx, logger := t.Context(), slog.New(slog.DiscardHandler)
	syncer, err := dialplan.NewSyncer(dialplan.Config{Store: store, Logger: logger})
	require.NoError(t, err)
	syncer.Start(ctx)
	t.Cleanup(syncer.Stop)
	rater, err := billing.New(billing.Config{})
	require.NoError(t, err)
	manager, err := calls.NewManager(calls.Config{Store: store, Rater: rater, Client: http.DefaultClient, Logger: logger})
	require.NoError(t, err)
	require.NoError(t, manager.Start(ctx))
	t.Cleanup(func() { require.NoError(t, manager.Stop(context.WithoutCancel(ctx))) })
	return manager, syncer
}

// becomes waits until the node is in a state, and returns its health.
func (s *steered) becomes(t *testing.T, state string) *models.NodeHealth {
	t.Helper()
	var found *models.NodeHealth
	require.Eventually(t, func() bool {
		node, err := s.store.NodeByName(t.Context(), s.node.Name)
		require.NoError(t, err)
		healths, err := s.store.NodeHealths(t.Context())
		require.NoError(t, err)
		health, known := healths[node.ID]
		live, err := s.store.LiveCallsByNode(t.Context())
		require.NoError(t, err)
		found = &health
		return known && node.State(found, live[node.ID], s.store.Now()) == state
	}, 30*time.Second, 20*time.Millisecond, "the node never became %s", state)
	return found
}

// calls in and reports whether the switch took the call.
func (s *steered) takesCalls() bool {
	_, err := s.sim.CallIn(simswitch.IncomingCall{From: "+15550100001", To: "+15550100002"})
	return err == nil
}

// A node is measured, drained, drained again after somebody has undone it and after a restart of its controller, and resumed, whoever asks for it in
// the database. What is wrong with it is named.
func TestNodeIsMeasuredAndDrained(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		ctx := t.Context()
		s := newSteered(t, store, simswitch.Config{Modules: []string{
			"mod_commands", "mod_dptools", "mod_dialplan_xml", "mod_sofia", "mod_sndfile", "mod_tone_stream", "mod_json_cdr", "mod_flite", "mod_conference",
		}, MaxSessions: 700, SessionsPerSecond: 90, HeartbeatInterval: 100 * time.Millisecond})
		health := s.becomes(t, models.NodeUp)
		require.Equal(t, []any{true, false, 700, 90, []string{"mod_avmd"}}, []any{health.Ready, health.InboundPaused, health.MaxSessions, health.MaxRate, health.MissingModules})
		require.Contains(t, health.Version, "1.10.12")
		require.Less(t, health.ClockSkew.Duration().Abs(), time.Second)
		var codes []string
		for _, p := range health.Problems {
			codes = append(codes, p.Severity+" "+p.Code)
		}
		require.Equal(t, []string{"warning default_esl_password", "warning missing_module"}, codes)
		require.True(t, s.takesCalls())
		connected, err := store.ConnectedNodes(ctx)
		require.NoError(t, err)
		require.Equal(t, 700, connected[0].Load.MaxSessions, "what others place calls by")

		require.NoError(t, store.DrainNode(ctx, s.node.ID, "op_1", "new kernel"))
		health = s.becomes(t, models.NodeDrained)
		require.True(t, health.InboundPaused)
		require.False(t, s.takesCalls())
		require.NotNil(t, health.HeartbeatAt)
		measures := s.meter.Nodes(ctx)
		require.Len(t, measures, 1)
		require.True(t, measures[0].Draining && measures[0].Connected)
		require.NotNil(t, measures[0].Tally)

		held := s.keeper.all()[0]
		require.NoError(t, held.conn.Undrain(ctx), "by hand")
		require.True(t, s.takesCalls())
		require.Eventually(t, func() bool { return !s.takesCalls() }, 30*time.Second, 20*time.Millisecond, "it was undone by hand, and is not noticed")

		require.NoError(t, s.keeper.stop(context.WithoutCancel(ctx)))
		require.False(t, s.takesCalls(), "no controller is needed for that")
		s.keeper = newNodeKeeper(store, s.meter.manager, s.meter.syncer, "next", 2*time.Second, slog.New(slog.DiscardHandler))
		s.keeper.start(ctx)
		t.Cleanup(func() { _ = s.keeper.stop(context.WithoutCancel(ctx)) })
		s.becomesConnected(t)
		require.False(t, s.takesCalls())
		require.NoError(t, store.ResumeNode(ctx, s.node.ID))
		g := &gate{nodes: s.keeper.all, against: func() error { return nil }, logger: slog.New(slog.DiscardHandler)}
		g.start(ctx)
		t.Cleanup(func() { _ = g.stop(ctx) })
		require.Eventually(t, s.takesCalls, 30*time.Second, 20*time.Millisecond, "it was never resumed")
	})
}

func (s *steered) becomesConnected(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		connected, err := s.store.ConnectedNodes(t.Context())
		require.NoError(t, err)
		return len(connected) == 1
	}, 30*time.Second, 20*time.Millisecond)
}

// A node that would run customers' text is not steered; why is told all the same.
func TestNodeWithoutWallsIsMeasured(t *testing.T) {
	t.Parallel()
	s := newSteered(t, modelstest.Open(t), simswitch.Config{APIExpansion: true})
	health := s.becomes(t, models.NodeAway)
	require.Equal(t, []string{"error", problemWalls}, []string{health.Problems[0].Severity, health.Problems[0].Code})
	require.Contains(t, health.Problems[0].Message, "api-expansion is on")
	require.NotContains(t, health.Problems[0].Message, "app_disable_expand_variables is not")
}

// Metrics are served on an address of their own, of nodes that are really there, and end with the controller.
func TestMetricsAreServed(t *testing.T) {
	t.Parallel()
	s := newSteered(t, modelstest.Open(t), simswitch.Config{})
	s.becomes(t, models.NodeUp)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	failed := make(chan error, 1)
	s.meter.start(t.Context(), listener, failed)
	address := "http://" + listener.Addr().String()
	require.Eventually(t, func() bool { _, known := s.meter.LedgerImbalance(); return known }, 10*time.Second, 5*time.Millisecond)
	text := body(t, address+"/metrics", http.StatusOK)
	for _, line := range []string{
		`freeswitch_up{node="one"} 1`, `freeswitch_max_sessions{node="one"} 5000`, `freeswitch_current_calls{node="one"} 0`, `tandem_esl_connected{node="one"} 1`,
		`tandem_node_held{node="one"} 1`, `tandem_node_weight{node="one"} 100`, `tandem_database_up 1`, `tandem_ledger_imbalance 0`, `tandem_webhook_queue_depth 0`,
		`tandem_esl_commands_seconds_count{command="status",result="ok"}`, `tandem_zombie_channels 0`, `tandem_node_problems{code="default_esl_password",node="one",severity="warning"} 1`,
	} {
		require.Contains(t, text, "\n"+line)
	}
	body(t, address+"/v1/calls", http.StatusNotFound)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, s.meter.stop(ctx))
	_, err = http.Get(address + "/metrics") //nolint:noctx // nobody is there
	require.Error(t, err)
	require.Empty(t, failed)
}

func body(t *testing.T, address string, status int) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(t, status, response.StatusCode)
	var text []byte
	buffer := make([]byte, 64<<10)
	for {
		n, err := response.Body.Read(buffer)
		text = append(text, buffer[:n]...)
		if err != nil {
			break
		}
	}
	return string(text)
}

// A controller whose metrics have no address to be served on does not start.
func TestMetricsNeedTheirAddress(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	cfg, err := LoadConfig("", map[string]string{
		"database_url": "sqlite:" + filepath.Join(t.TempDir(), "tandem.db"), "secret_key_file": filepath.Join(t.TempDir(), "key"), "http_addr": "127.0.0.1:0",
		"metrics_addr": taken.Addr().String(),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err = Serve(ctx, cfg, t.Output())
	require.ErrorContains(t, err, "listen for metrics on "+taken.Addr().String())
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	_, err = LoadConfig("", map[string]string{"metrics_addr": "nowhere"})
	require.ErrorContains(t, err, "metrics_addr")
}
