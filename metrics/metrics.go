// Package metrics counts and measures for Prometheus. It publishes two families: freeswitch_… under the names that exporters of FreeSWITCH use, so
// that dashboards which exist go on working, with the label node; and tandem_…, what a switch alone cannot know.
//
// No label holds a phone number, an id of a call or one of a customer: each of them would make as many time series as there are of it.
package metrics

import (
	"net/http"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tandem/models"
)

const (
	namespace  = "tandem"
	freeswitch = "freeswitch"
)

// Metrics is what a process has counted. Its methods are safe for concurrent use and do not block.
type Metrics struct {
	registry *prometheus.Registry

	calls        *prometheus.CounterVec
	duration     *prometheus.HistogramVec
	setUp        prometheus.Histogram
	answerURL    *prometheus.HistogramVec
	mos          prometheus.Histogram
	oneWay       prometheus.Counter
	attempts     *prometheus.CounterVec
	attemptTime  prometheus.Histogram
	commands     *prometheus.HistogramVec
	flaps        *prometheus.CounterVec
	refusals     *prometheus.CounterVec
	gatewayState *gatewayBook
}

// New makes metrics that have counted nothing. version is that of the program.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "calls_total",
			Help: "Calls that have ended, by direction, status and FreeSWITCH's hangup cause."}, []string{"direction", "outcome", "cause"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "call_duration_seconds",
			Help: "Time from the answer to the end of calls that were answered.", Buckets: []float64{1, 5, 10, 30, 60, 120, 300, 600, 1200, 3600, 7200}}, []string{"direction"}),
		setUp: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "call_setup_seconds",
			Help: "Post-dial delay: time from dialling to ringing, early media or the answer.", Buckets: []float64{0.1, 0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 20}}),
		answerURL: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "answer_url_seconds",
			Help: "Time that requests to applications for actions took, by result.", Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5}}, []string{"result"}),
		mos: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "call_mos",
			Help: "Mean opinion score that FreeSWITCH estimates of what was received on answered calls.", Buckets: []float64{2, 2.5, 3, 3.3, 3.6, 3.8, 4, 4.2, 4.4, 4.5}}),
		oneWay: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "calls_without_audio_total",
			Help: "Calls that were answered for some seconds and on which no sound was received."}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "webhook_attempts_total",
			Help: "Attempts to deliver a webhook, by what came of them."}, []string{"result"}),
		attemptTime: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: "webhook_attempt_seconds",
			Help: "Time that attempts to deliver a webhook took.", Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 15}}),
		commands: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "esl_commands_seconds",
			Help: "Time from sending a command to a switch to its reply, by kind and result.", Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 10}},
			[]string{"command", "result"}),
		flaps: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "gateway_flaps_total",
			Help: "How often a gateway that was up went down, as this controller has seen it."}, []string{"node", "gateway"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "limit_refusals_total",
			Help: "What the limits of customers and of the API have refused, by limit."}, []string{"limit"}),
		gatewayState: newGatewayBook(),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "build_info", Help: "Always 1; the label has the version."}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	m.registry.MustRegister(
		m.calls, m.duration, m.setUp, m.answerURL, m.mos, m.oneWay, m.attempts, m.attemptTime, m.commands, m.flaps, m.refusals, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Handler serves the metrics in the formats of Prometheus. Of what cannot be measured, the rest is served all the same.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, Registry: m.registry})
}

// causeName is what FreeSWITCH's hangup causes look like.
var causeName = regexp.MustCompile(`^[A-Z0-9_]{1,48}$`)

// CallEnded counts a call.
func (m *Metrics) CallEnded(call *models.Call) {
	cause := call.Cause
	switch {
	case cause == "":
		cause = "none"
	case !causeName.MatchString(cause):
		cause = "other"
	}
	m.calls.WithLabelValues(call.Direction, call.Status, cause).Inc()
	if call.AnsweredAt != nil && call.EndedAt != nil {
		m.duration.WithLabelValues(call.Direction).Observe(max(call.EndedAt.Sub(*call.AnsweredAt), 0).Seconds())
	}
}

// AnswerURL counts a request to an application.
func (m *Metrics) AnswerURL(result string, took time.Duration) {
	m.answerURL.WithLabelValues(result).Observe(took.Seconds())
}

// SetUp counts a post-dial delay.
func (m *Metrics) SetUp(took time.Duration) { m.setUp.Observe(took.Seconds()) }

// Sound counts what an answered call has heard: a mean opinion score, 0 where there is none, and whether it heard nothing at all.
func (m *Metrics) Sound(mos float64, oneWay bool) {
	if mos > 0 {
		m.mos.Observe(mos)
	}
	if oneWay {
		m.oneWay.Inc()
	}
}

// Refused counts what a limit has refused.
func (m *Metrics) Refused(limit string) { m.refusals.WithLabelValues(limit).Inc() }

// WebhookAttempt counts an attempt to deliver a webhook.
func (m *Metrics) WebhookAttempt(result string, took time.Duration) {
	m.attempts.WithLabelValues(result).Inc()
	m.attemptTime.Observe(took.Seconds())
}

// commandNames are the commands that labels name: what operators type is none of them.
var commandNames = map[string]bool{
	"originate": true, "execute": true, "uuid_kill": true, "uuid_exists": true, "uuid_dump": true, "uuid_break": true, "uuid_transfer": true,
	"uuid_setvar": true, "uuid_record": true, "uuid_bridge": true, "sched_hangup": true, "sched_api": true, "sched_del": true, "show": true,
	"sofia": true, "reloadxml": true, "reloadacl": true, "conference": true, "global_getvar": true, "global_setvar": true, "module_exists": true,
	"status": true, "fsctl": true, "uuid_audio_stream": true, "strmicroepoch": true,
}

// Command counts a command to a switch: its verb, how long the reply took, and whether it failed.
func (m *Metrics) Command(verb string, took time.Duration, failed bool) {
	if !commandNames[verb] {
		verb = "other"
	}
	result := "ok"
	if failed {
		result = "error"
	}
	m.commands.WithLabelValues(verb, result).Observe(took.Seconds())
}

// GatewayState notes what a node says of a gateway, and counts it when it goes down.
func (m *Metrics) GatewayState(node, gateway, state, ping string) {
	if m.gatewayState.fell(node, gateway, state, ping) {
		m.flaps.WithLabelValues(node, gateway).Inc()
	}
}

// ForgetNode ends the counters of a node that this controller does not hold any more: whoever holds it counts.
func (m *Metrics) ForgetNode(node string) {
	m.gatewayState.forget(node)
	m.flaps.DeletePartialMatch(prometheus.Labels{"node": node})
}
