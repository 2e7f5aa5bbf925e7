package metrics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
)

// world is a source of everything that can be measured.
type world struct {
	now   time.Time
	nodes []Node
	away  error
	asked atomic.Int64
}

func newWorld() *world {
	now := time.UnixMilli(1_795_214_717_281)
	beat := now.Add(-time.Second)
	return &world{now: now, nodes: []Node{
		{
			ID: "node_1", Name: "fs-1", Connected: true, Draining: true, Weight: 50,
			Health: &models.NodeHealth{
				MeasuredAt: now, HeartbeatAt: &beat, UptimeSeconds: 3600, Sessions: 40, PeakSessions: 60, PeakSessionsFiveMinutes: 50, MaxSessions: 2000,
				SessionsSinceStart: 1200, Rate: 3, PeakRate: 20, PeakRateFiveMinutes: 10, MaxRate: 200, IdleCPU: 91.5, MinIdleCPU: 5,
				ClockSkew: models.MicrosOf(-1500 * time.Millisecond),
				Problems: []models.NodeProblem{
					{Code: "missing_module", Severity: "warning"}, {Code: "missing_module", Severity: "warning"}, {Code: "full", Severity: "error"},
				},
			},
			Gateways: []esl.Gateway{{
				Name: "acme", Profile: "external", Proxy: "sip:198.51.100.1", Context: "public", Scheme: "Digest", State: "REGED", Status: "UP", PingMS: 4.5,
				CallsIn: 1, CallsOut: 2, FailedCallsIn: 3, FailedCallsOut: 4,
			}},
			Tally: &esl.Tally{Calls: 30, BridgedCalls: 10, Registrations: 2},
		},
		{ID: "node_2", Name: "fs-2", Health: &models.NodeHealth{Sessions: 7}},
	}}
}

func (w *world) Nodes(context.Context) []Node { w.asked.Add(1); return w.nodes }

func (w *world) Fleet(context.Context) ([]models.Node, error) {
	later := w.now.Add(time.Second)
	return []models.Node{{Name: "fs-1", IsActive: true, LeaseUntil: &later}, {Name: "fs-3", IsActive: true}, {Name: "gone"}}, w.away
}

func (w *world) LiveCalls(context.Context) ([]models.LiveCallGroup, error) {
	return []models.LiveCallGroup{
		{Direction: "outbound", Status: "queued", Calls: 5},
		{NodeID: "node_1", Direction: "inbound", Status: "in_progress", Calls: 12},
		{NodeID: "node_3", Direction: "inbound", Status: "in_progress", Calls: 99},
	}, w.away
}

func (w *world) Drifts(context.Context) ([]models.DriftGroup, error) {
	return []models.DriftGroup{
		{NodeID: "node_1", Kind: models.DriftGatewayUnknown, Lasting: 2, FoundAt: w.now},
		{NodeID: "node_1", Kind: models.DriftFileEdited, FoundAt: w.now.Add(-time.Second)},
		{NodeID: "node_3", Kind: models.DriftFileEdited, Lasting: 99, FoundAt: w.now},
	}, w.away
}

func (w *world) WebhookBacklog(context.Context) (models.Backlog, error) {
	return models.Backlog{Events: 17, Lag: 2500 * time.Millisecond}, w.away
}
func (w *world) Refused() map[string]uint64 { return map[string]uint64{"uninvited": 8} }
func (w *world) Blocks(context.Context) (map[string]int64, error) {
	return map[string]int64{"automatic": 4, "operator": 0}, w.away
}
func (w *world) ZombieChannels() int          { return 1 }
func (w *world) LedgerImbalance() (int, bool) { return 0, true }
func (w *world) Database() error              { return w.away }
func (w *world) Now() time.Time               { return w.now }

// counted is metrics in which everything was counted at least once, watching a world.
func counted(w *world, fresh time.Duration) *Metrics {
	m := New("v1.2.3")
	m.Watch(w, fresh, slog.New(slog.DiscardHandler))
	answered, ended := w.now.Add(-time.Minute), w.now
	m.CallEnded(&models.Call{Direction: "outbound", Status: "completed", Cause: "NORMAL_CLEARING", AnsweredAt: &answered, EndedAt: &ended})
	m.CallEnded(&models.Call{Direction: "outbound", Status: "failed", EndedAt: &ended})
	m.CallEnded(&models.Call{Direction: "inbound", Status: "failed", Cause: "what a stranger\xff sent", EndedAt: &ended})
	m.AnswerURL("timeout", 5*time.Second)
	m.SetUp(1200 * time.Millisecond)
	m.Sound(4.3, false)
	m.Sound(0, true)
	m.WebhookAttempt("delivered", 40*time.Millisecond)
	m.Refused("max_calls")
	m.Refused("max_calls")
	m.Command("originate", time.Millisecond, false)
	m.Command("what an operator typed", time.Millisecond, true)
	for _, state := range [][2]string{{"REGED", "UP"}, {"UNREGED", ""}, {"TRYING", ""}, {"REGED", "UP"}, {"REGED", "DOWN"}, {"FAIL_WAIT", "DOWN"}, {"REGED", "UP"}, {"FAILED", ""}} {
		m.GatewayState("fs-1", "acme", state[0], state[1])
	}
	return m
}

// scraped is what Prometheus gets.
func scraped(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	body, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	return string(body)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	text := scraped(t, counted(newWorld(), time.Hour))
	for line := range strings.Lines(`freeswitch_up{node="fs-1"} 1
freeswitch_up{node="fs-2"} 0
freeswitch_uptime_seconds{node="fs-1"} 3600
freeswitch_time_synced{node="fs-1"} 0
freeswitch_current_calls{node="fs-1"} 30
freeswitch_bridged_calls{node="fs-1"} 10
freeswitch_registrations{node="fs-1"} 2
freeswitch_current_sessions{node="fs-1"} 40
freeswitch_current_sessions_peak{node="fs-1"} 60
freeswitch_current_sessions_peak_last_5min{node="fs-1"} 50
freeswitch_max_sessions{node="fs-1"} 2000
freeswitch_sessions_total{node="fs-1"} 1200
freeswitch_current_sps{node="fs-1"} 3
freeswitch_current_sps_peak{node="fs-1"} 20
freeswitch_current_sps_peak_last_5min{node="fs-1"} 10
freeswitch_max_sps{node="fs-1"} 200
freeswitch_current_idle_cpu{node="fs-1"} 91.5
freeswitch_min_idle_cpu{node="fs-1"} 5
freeswitch_sofia_gateway_status{context="public",name="acme",node="fs-1",profile="external",proxy="sip:198.51.100.1",scheme="Digest",status="UP"} 1
freeswitch_sofia_gateway_pingtime{name="acme",node="fs-1",profile="external",proxy="sip:198.51.100.1"} 4.5
freeswitch_sofia_gateway_call_in{name="acme",node="fs-1",profile="external",proxy="sip:198.51.100.1"} 1
freeswitch_sofia_gateway_call_out{name="acme",node="fs-1",profile="external",proxy="sip:198.51.100.1"} 2
freeswitch_sofia_gateway_failed_call_in{name="acme",node="fs-1",profile="external",proxy="sip:198.51.100.1"} 3
freeswitch_sofia_gateway_failed_call_out{name="acme",node="fs-1",profile="external",proxy="sip:198.51.100.1"} 4
tandem_build_info{version="v1.2.3"} 1
tandem_esl_connected{node="fs-1"} 1
tandem_esl_connected{node="fs-2"} 0
tandem_node_draining{node="fs-1"} 1
tandem_node_weight{node="fs-1"} 50
tandem_node_clock_skew_seconds{node="fs-1"} -1.5
tandem_node_measured_timestamp_seconds{node="fs-1"} 1.795214717281e+09
tandem_node_heartbeat_timestamp_seconds{node="fs-1"} 1.795214716281e+09
tandem_node_problems{code="missing_module",node="fs-1",severity="warning"} 2
tandem_node_problems{code="full",node="fs-1",severity="error"} 1
tandem_node_held{node="fs-1"} 1
tandem_node_held{node="fs-3"} 0
tandem_gateway_state{gateway="acme",node="fs-1",state="REGED"} 1
tandem_gateway_flaps_total{gateway="acme",node="fs-1"} 2
tandem_limit_refusals_total{limit="max_calls"} 2
tandem_calls_active{direction="inbound",node="fs-1",state="in_progress"} 12
tandem_calls_queued{direction="outbound"} 5
tandem_config_drift{kind="gateway_unknown",node="fs-1"} 2
tandem_config_drift{kind="file_edited",node="fs-1"} 0
tandem_config_drift{kind="gateway_missing",node="fs-2"} 0
tandem_config_drift_found_timestamp_seconds{kind="gateway_unknown",node="fs-1"} 1.795214717281e+09
tandem_config_drift_found_timestamp_seconds{kind="file_edited",node="fs-1"} 1.795214716281e+09
tandem_calls_refused_total{reason="uninvited"} 8
tandem_blocks{origin="automatic"} 4
tandem_blocks{origin="operator"} 0
tandem_calls_total{cause="NORMAL_CLEARING",direction="outbound",outcome="completed"} 1
tandem_calls_total{cause="none",direction="outbound",outcome="failed"} 1
tandem_calls_total{cause="other",direction="inbound",outcome="failed"} 1
tandem_call_duration_seconds_sum{direction="outbound"} 60
tandem_call_setup_seconds_sum 1.2
tandem_answer_url_seconds_sum{result="timeout"} 5
tandem_call_mos_count 1
tandem_calls_without_audio_total 1
tandem_webhook_attempts_total{result="delivered"} 1
tandem_webhook_attempt_seconds_count 1
tandem_webhook_queue_depth 17
tandem_webhook_lag_seconds 2.5
tandem_esl_commands_seconds_count{command="originate",result="ok"} 1
tandem_esl_commands_seconds_count{command="other",result="error"} 1
tandem_zombie_channels 1
tandem_ledger_imbalance 0
tandem_database_up 1
`) {
		require.Contains(t, text, "\n"+line)
	}
	for _, absent := range []string{`current_sessions{node="fs-2"}`, `node="gone"`, "stranger"} {
		require.NotContains(t, text, absent)
	}
	require.NotRegexp(t, `(?m)^(tandem|freeswitch)_.* 99$`, text)
}

// While the database is away, what it would say is left out and the rest is there; a node that is let go of is counted by whoever has it.
func TestMetricsWithoutADatabase(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.away = errors.New("away")
	m := counted(w, time.Hour)
	m.ForgetNode("fs-1")
	text := scraped(t, m)
	require.Contains(t, text, "\ntandem_database_up 0\n")
	require.Contains(t, text, `freeswitch_up{node="fs-1"} 1`)
	for _, absent := range []string{"tandem_webhook_queue_depth ", "tandem_calls_active{", "tandem_node_held{", "tandem_config_drift{", "tandem_gateway_flaps_total{"} {
		require.NotContains(t, text, "\n"+absent)
	}
	m.GatewayState("fs-1", "acme", "FAILED", "")
	require.NotContains(t, scraped(t, m), "tandem_gateway_flaps_total{", "it is not known whether it was up")
}

// Two scrapers cost what one does.
func TestScrapesShareWhatWasAsked(t *testing.T) {
	t.Parallel()
	w := newWorld()
	m := counted(w, time.Hour)
	first := scraped(t, m)
	require.Contains(t, first, "tandem_zombie_channels 1")
	scraped(t, m)
	require.EqualValues(t, 1, w.asked.Load())
	w = newWorld()
	m = counted(w, time.Nanosecond)
	scraped(t, m)
	scraped(t, m)
	require.EqualValues(t, 2, w.asked.Load())
}
