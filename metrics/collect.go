package metrics

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tandem/esl"
	"tandem/models"
)

// Source is where what is not counted but asked for comes from.
type Source interface {
	// Nodes are the nodes that this controller holds.
	Nodes(ctx context.Context) []Node
	// Fleet are all nodes, as the database has them.
	Fleet(ctx context.Context) ([]models.Node, error)
	// LiveCalls counts the calls that have not ended.
	LiveCalls(ctx context.Context) ([]models.LiveCallGroup, error)
	// Drifts counts where nodes are not as they should be although nothing of ours changed.
	Drifts(ctx context.Context) ([]models.DriftGroup, error)
	// WebhookBacklog measures the webhook queue.
	WebhookBacklog(ctx context.Context) (models.Backlog, error)
	// Refused counts the calls that the dialplans of this controller's nodes have refused since it was started, by reason.
	Refused() map[string]uint64
	// Blocks counts the blocks in force, by origin.
	Blocks(ctx context.Context) (map[string]int64, error)
	// ZombieChannels is how many channels the switches list and do not have.
	ZombieChannels() int
	// LedgerImbalance is how many invariants of the ledger do not hold, and false where nobody has looked yet.
	LedgerImbalance() (violations int, known bool)
	// Database says why the database takes no changes, nil when it does.
	Database() error
	Now() time.Time
}

// Node is a node that this controller holds, as it was a moment ago.
type Node struct {
	ID, Name  string
	Connected bool
	Draining  bool
	Weight    int
	// Health is nil where the node has said nothing yet.
	Health *models.NodeHealth
	// Gateways and Tally are nil where the node did not answer.
	Gateways []esl.Gateway
	Tally    *esl.Tally
}

// collectTimeout bounds one round of asking.
const collectTimeout = 5 * time.Second

// Watch publishes what a source says, from now on. What is asked for again within fresh is answered from memory: several scrapers cost no more
// than one.
func (m *Metrics) Watch(source Source, fresh time.Duration, logger *slog.Logger) {
	m.registry.MustRegister(&collector{source: source, fresh: fresh, logger: logger})
}

// collector asks the source.
type collector struct {
	source Source
	fresh  time.Duration
	logger *slog.Logger

	mu    sync.Mutex
	asked time.Time
	last  []prometheus.Metric
}

// metric describes one value.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(family, name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(prometheus.BuildFQName(family, "", name), help, labels, nil), prometheus.GaugeValue}
}

func counter(family, name, help string, labels ...string) metric {
	m := gauge(family, name, help, labels...)
	m.kind = prometheus.CounterValue
	return m
}

func (m metric) of(value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

var gatewayLabels = []string{"node", "name", "proxy", "profile"}

// What an exporter of FreeSWITCH publishes, in its words.
var (
	fsUp             = gauge(freeswitch, "up", "Whether the switch is connected to the controller that holds it.", "node")
	fsUptime         = gauge(freeswitch, "uptime_seconds", "Uptime in seconds.", "node")
	fsTimeSynced     = gauge(freeswitch, "time_synced", "Whether FreeSWITCH's clock is within a second of the controller's.", "node")
	fsCalls          = gauge(freeswitch, "current_calls", "Number of calls active.", "node")
	fsBridged        = gauge(freeswitch, "bridged_calls", "Number of bridged calls active.", "node")
	fsRegistrations  = gauge(freeswitch, "registrations", "Number of registrations active.", "node")
	fsSessions       = gauge(freeswitch, "current_sessions", "Number of sessions active.", "node")
	fsSessionsPeak   = gauge(freeswitch, "current_sessions_peak", "Peak sessions since startup.", "node")
	fsSessionsPeak5  = gauge(freeswitch, "current_sessions_peak_last_5min", "Peak sessions for the last 5 minutes.", "node")
	fsMaxSessions    = gauge(freeswitch, "max_sessions", "Max sessions allowed.", "node")
	fsSessionsTotal  = counter(freeswitch, "sessions_total", "Number of sessions since startup.", "node")
	fsRate           = gauge(freeswitch, "current_sps", "Number of sessions per second.", "node")
	fsRatePeak       = gauge(freeswitch, "current_sps_peak", "Peak sessions per second since startup.", "node")
	fsRatePeak5      = gauge(freeswitch, "current_sps_peak_last_5min", "Peak sessions per second for the last 5 minutes.", "node")
	fsMaxRate        = gauge(freeswitch, "max_sps", "Max sessions per second allowed.", "node")
	fsIdleCPU        = gauge(freeswitch, "current_idle_cpu", "CPU idle.", "node")
	fsMinIdleCPU     = gauge(freeswitch, "min_idle_cpu", "Minimum CPU idle.", "node")
	fsGatewayStatus  = gauge(freeswitch, "sofia_gateway_status", "Whether the gateway is up by its OPTIONS pings.", "node", "name", "proxy", "profile", "context", "scheme", "status")
	fsGatewayPing    = gauge(freeswitch, "sofia_gateway_pingtime", "Milliseconds that the last OPTIONS ping took.", gatewayLabels...)
	fsGatewayIn      = gauge(freeswitch, "sofia_gateway_call_in", "Calls that came in through the gateway since it was loaded.", gatewayLabels...)
	fsGatewayOut     = gauge(freeswitch, "sofia_gateway_call_out", "Calls that went out through the gateway since it was loaded.", gatewayLabels...)
	fsGatewayFailIn  = gauge(freeswitch, "sofia_gateway_failed_call_in", "Calls in through the gateway that failed since it was loaded.", gatewayLabels...)
	fsGatewayFailOut = gauge(freeswitch, "sofia_gateway_failed_call_out", "Calls out through the gateway that failed since it was loaded.", gatewayLabels...)
)

// What Tandem knows besides.
var (
	connected     = gauge(namespace, "esl_connected", "Whether the controller is connected to the node's Event Socket, and steers it.", "node")
	draining      = gauge(namespace, "node_draining", "Whether the node takes no new calls because an operator wants it empty.", "node")
	weight        = gauge(namespace, "node_weight", "Share of new outbound calls that the node gets, in relation to the others.", "node")
	clockSkew     = gauge(namespace, "node_clock_skew_seconds", "How far the node's clock is ahead of the controller's.", "node")
	measured      = gauge(namespace, "node_measured_timestamp_seconds", "When the node last said how it is.", "node")
	heartbeat     = gauge(namespace, "node_heartbeat_timestamp_seconds", "When the node's last HEARTBEAT came.", "node")
	problems      = gauge(namespace, "node_problems", "Problems of the node that `tandem doctor` names, with their fix.", "node", "code", "severity")
	held          = gauge(namespace, "node_held", "Whether some controller holds the node; every controller says the same of all nodes.", "node")
	gatewayStates = gauge(namespace, "gateway_state", "1 for the state that a gateway is in.", "node", "gateway", "state")
	drifting      = gauge(namespace, "config_drift", "Where the node is not as it should be although nothing of ours changed, and that lasts, by kind.", "node", "kind")
	driftFound    = gauge(namespace, "config_drift_found_timestamp_seconds", "When drift of the kind was last found on the node, also where it was healed at once.", "node", "kind")
	callsActive   = gauge(namespace, "calls_active", "Calls that have not ended, on the nodes that this controller holds.", "direction", "state", "node")
	callsQueued   = gauge(namespace, "calls_queued", "Calls that wait to be started; every controller says the same.", "direction")
	callsRefused  = counter(namespace, "calls_refused_total", "Calls that the nodes refused before any controller, by reason.", "reason")
	blocks        = gauge(namespace, "blocks", "Blocks in force, by who made them; every controller says the same.", "origin")
	zombies       = gauge(namespace, "zombie_channels", "Channels that switches list and do not have.")
	queueDepth    = gauge(namespace, "webhook_queue_depth", "Events that wait to be delivered; every controller says the same.")
	queueLag      = gauge(namespace, "webhook_lag_seconds", "How long the event that waits longest has been due; every controller says the same.")
	imbalance     = gauge(namespace, "ledger_imbalance", "Invariants of the ledger that do not hold, by the last look of `tandem ledger verify`.")
	database      = gauge(namespace, "database_up", "Whether the database takes changes.")
)

// every lists what a collector may publish.
var every = []metric{
	fsUp, fsUptime, fsTimeSynced, fsCalls, fsBridged, fsRegistrations, fsSessions, fsSessionsPeak, fsSessionsPeak5, fsMaxSessions, fsSessionsTotal, fsRate, fsRatePeak,
	fsRatePeak5, fsMaxRate, fsIdleCPU, fsMinIdleCPU, fsGatewayStatus, fsGatewayPing, fsGatewayIn, fsGatewayOut, fsGatewayFailIn, fsGatewayFailOut,
	connected, draining, weight, clockSkew, measured, heartbeat, problems, held, gatewayStates, drifting, driftFound, callsActive, callsQueued, callsRefused, blocks, zombies,
	queueDepth, queueLag,
	imbalance, database,
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range every {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || time.Since(c.asked) >= c.fresh {
		c.asked, c.last = time.Now(), c.ask()
	}
	for _, m := range c.last {
		ch <- m
	}
}

// ask measures everything. What the database would say is left out while it does not.
func (c *collector) ask() []prometheus.Metric {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var found []prometheus.Metric
	names := map[string]string{}
	for _, node := range c.source.Nodes(ctx) {
		names[node.ID] = node.Name
		found = append(found, nodeMetrics(&node)...)
	}
	found = append(found, zombies.of(float64(c.source.ZombieChannels())), database.of(flag(c.source.Database() == nil)))
	for reason, calls := range c.source.Refused() {
		found = append(found, callsRefused.of(float64(calls), reason))
	}
	if counts, err := c.source.Blocks(ctx); c.can("blocks", err) {
		for origin, count := range counts {
			found = append(found, blocks.of(float64(count), origin))
		}
	}
	if violations, known := c.source.LedgerImbalance(); known {
		found = append(found, imbalance.of(float64(violations)))
	}
	if fleet, err := c.source.Fleet(ctx); c.can("nodes", err) {
		now := c.source.Now()
		for i := range fleet {
			if fleet[i].IsActive {
				found = append(found, held.of(flag(fleet[i].LeaseUntil != nil && fleet[i].LeaseUntil.After(now)), fleet[i].Name))
			}
		}
	}
	if groups, err := c.source.LiveCalls(ctx); c.can("live calls", err) {
		for _, group := range groups {
			switch name := names[group.NodeID]; {
			case group.NodeID == "":
				found = append(found, callsQueued.of(float64(group.Calls), group.Direction))
			case name != "":
				found = append(found, callsActive.of(float64(group.Calls), group.Direction, group.Status, name))
			}
		}
	}
	if groups, err := c.source.Drifts(ctx); c.can("drift", err) {
		found = append(found, driftMetrics(names, groups)...)
	}
	if backlog, err := c.source.WebhookBacklog(ctx); c.can("the webhook queue", err) {
		found = append(found, queueDepth.of(float64(backlog.Events)), queueLag.of(backlog.Lag.Seconds()))
	}
	return found
}

func (c *collector) can(what string, err error) bool {
	if err != nil {
		c.logger.Debug("not measured", "what", what, "error", err)
	}
	return err == nil
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

// synced is how far a clock may be off for time_synced: an exporter compares whole seconds.
const synced = time.Second

func nodeMetrics(n *Node) []prometheus.Metric {
	found := []prometheus.Metric{
		fsUp.of(flag(n.Connected), n.Name), connected.of(flag(n.Connected), n.Name), draining.of(flag(n.Draining), n.Name), weight.of(float64(n.Weight), n.Name),
	}
	if n.Health == nil || !n.Connected {
		return found
	}
	h := n.Health
	for _, v := range []struct {
		metric metric
		value  float64
	}{
		{fsUptime, float64(h.UptimeSeconds)}, {fsTimeSynced, flag(h.ClockSkew.Duration().Abs() <= synced)}, {fsSessions, float64(h.Sessions)},
		{fsSessionsPeak, float64(h.PeakSessions)}, {fsSessionsPeak5, float64(h.PeakSessionsFiveMinutes)}, {fsMaxSessions, float64(h.MaxSessions)},
		{fsSessionsTotal, float64(h.SessionsSinceStart)}, {fsRate, float64(h.Rate)}, {fsRatePeak, float64(h.PeakRate)},
		{fsRatePeak5, float64(h.PeakRateFiveMinutes)}, {fsMaxRate, float64(h.MaxRate)}, {fsIdleCPU, h.IdleCPU}, {fsMinIdleCPU, h.MinIdleCPU},
		{clockSkew, h.ClockSkew.Duration().Seconds()}, {measured, stamp(h.MeasuredAt)},
	} {
		found = append(found, v.metric.of(v.value, n.Name))
	}
	if h.HeartbeatAt != nil {
		found = append(found, heartbeat.of(stamp(*h.HeartbeatAt), n.Name))
	}
	if t := n.Tally; t != nil {
		found = append(found, fsCalls.of(float64(t.Calls), n.Name), fsBridged.of(float64(t.BridgedCalls), n.Name), fsRegistrations.of(float64(t.Registrations), n.Name))
	}
	counts := map[[2]string]int{}
	for _, p := range h.Problems {
		counts[[2]string{p.Code, p.Severity}]++
	}
	for kind, count := range counts {
		found = append(found, problems.of(float64(count), n.Name, kind[0], kind[1]))
	}
	for i := range n.Gateways {
		found = append(found, gatewayMetrics(n.Name, &n.Gateways[i])...)
	}
	return found
}

func stamp(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

func gatewayMetrics(node string, g *esl.Gateway) []prometheus.Metric {
	found := []prometheus.Metric{
		gatewayStates.of(1, node, g.Name, g.State),
		fsGatewayStatus.of(flag(g.Status == "UP"), node, g.Name, g.Proxy, g.Profile, g.Context, g.Scheme, g.Status),
	}
	for _, v := range []struct {
		metric metric
		value  float64
	}{
		{fsGatewayPing, g.PingMS}, {fsGatewayIn, float64(g.CallsIn)}, {fsGatewayOut, float64(g.CallsOut)}, {fsGatewayFailIn, float64(g.FailedCallsIn)},
		{fsGatewayFailOut, float64(g.FailedCallsOut)},
	} {
		found = append(found, v.metric.of(v.value, node, g.Name, g.Proxy, g.Profile))
	}
	return found
}

// driftMetrics are those of the nodes with the ids and names, for each kind, so that one that has ended is seen to be 0.
func driftMetrics(names map[string]string, groups []models.DriftGroup) []prometheus.Metric {
	var found []prometheus.Metric
	lasting := map[[2]string]int{}
	for _, group := range groups {
		if name := names[group.NodeID]; name != "" {
			lasting[[2]string{group.NodeID, group.Kind}] = group.Lasting
			found = append(found, driftFound.of(stamp(group.FoundAt), name, group.Kind))
		}
	}
	for id, name := range names {
		for _, kind := range models.DriftKinds {
			found = append(found, drifting.of(float64(lasting[[2]string{id, kind}]), name, kind))
		}
	}
	return found
}
