package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tandem/calls"
	"tandem/dialplan"
	"tandem/metrics"
	"tandem/models"
	"tandem/webhooks"
)

const (
	// metricsFresh is how long what was measured for one scrape does for the next.
	metricsFresh = 5 * time.Second
	// nodeAnswer bounds what one node is asked for a scrape.
	nodeAnswer = 3 * time.Second
	// auditEvery is how often the ledger is looked through for metrics, auditTimeout the bound of that.
	auditEvery, auditTimeout = time.Hour, 5 * time.Minute
	// unaudited is the count of violations before the first look.
	unaudited = -1
)

// observer tells metrics of calls.
type observer struct{ *metrics.Metrics }

var _ calls.Observer = observer{}

// Media implements calls.Observer.
func (o observer) Media(heard calls.Media) { o.Sound(heard.MOS, heard.OneWay) }

// countCommand tells metrics of a command to a switch.
func countCommand(m *metrics.Metrics) func(command string, took time.Duration, err error) {
	return func(command string, took time.Duration, err error) {
		verb, _, _ := strings.Cut(command, " ")
		m.Command(verb, took, err != nil)
	}
}

// countAttempt tells metrics of an attempt to deliver a webhook.
func countAttempt(m *metrics.Metrics) func(webhooks.Attempt) {
	return func(attempt webhooks.Attempt) { m.WebhookAttempt(attempt.Result, attempt.Latency) }
}

// meter serves the metrics on an address of their own, and measures what is not counted.
type meter struct {
	store   *models.Store
	manager *calls.Manager
	syncer  *dialplan.Syncer
	nodes   func() []*heldNode
	metrics *metrics.Metrics
	logger  *slog.Logger
	// violations is what the last look through the ledger found, unaudited before the first.
	violations atomic.Int64

	server *http.Server
	cancel context.CancelFunc
	work   sync.WaitGroup
}

var _ metrics.Source = (*meter)(nil)

// start begins to serve a listener. Whatever ends the serving but stop is sent to failed.
func (m *meter) start(ctx context.Context, listener net.Listener, failed chan<- error) {
	m.violations.Store(unaudited)
	m.metrics.Watch(m, metricsFresh, m.logger)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.metrics.Handler())
	m.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	ctx, m.cancel = context.WithCancel(ctx)
	m.work.Go(func() {
		if err := m.server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve metrics on %s: %w", listener.Addr(), err)
		}
	})
	m.work.Go(func() { m.audit(ctx) })
}

func (m *meter) stop(ctx context.Context) error {
	m.cancel()
	err := m.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, m.server.Close())
	}
	m.work.Wait()
	return err
}

// audit looks through the ledger now and again and again.
func (m *meter) audit(ctx context.Context) {
	ticker := time.NewTicker(auditEvery)
	defer ticker.Stop()
	for {
		looking, cancel := context.WithTimeout(ctx, auditTimeout)
		violations, err := m.store.VerifyLedger(looking)
		cancel()
		switch {
		case err == nil:
			m.violations.Store(int64(len(violations)))
		case ctx.Err() == nil:
			m.logger.Warn("ledger not looked through", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Nodes implements metrics.Source. The nodes are asked side by side.
func (m *meter) Nodes(ctx context.Context) []metrics.Node {
	ctx, cancel := context.WithTimeout(ctx, nodeAnswer)
	defer cancel()
	held := m.nodes()
	nodes := make([]metrics.Node, len(held))
	var asking sync.WaitGroup
	for i, h := range held {
		nodes[i] = metrics.Node{
			ID: h.row.ID, Name: h.row.Name, Connected: h.safe.Load(), Draining: h.drainage.wanted.Load(), Weight: int(h.weight.Load()), Health: h.vital.last.Load(),
		}
		if !nodes[i].Connected {
			continue
		}
		asking.Go(func() {
			if gateways, err := h.conn.Gateways(ctx); err == nil {
				nodes[i].Gateways = gateways
			}
			if tally, err := h.conn.Tally(ctx); err == nil {
				nodes[i].Tally = &tally
			}
		})
	}
	asking.Wait()
	return nodes
}

// Fleet implements metrics.Source.
func (m *meter) Fleet(ctx context.Context) ([]models.Node, error) { return m.store.Nodes(ctx) }

// LiveCalls implements metrics.Source.
func (m *meter) LiveCalls(ctx context.Context) ([]models.LiveCallGroup, error) {
	return m.store.LiveCallGroups(ctx)
}

// Drifts implements metrics.Source.
func (m *meter) Drifts(ctx context.Context) ([]models.DriftGroup, error) {
	return m.store.DriftGroups(ctx)
}

// WebhookBacklog implements metrics.Source.
func (m *meter) WebhookBacklog(ctx context.Context) (models.Backlog, error) {
	return m.store.WebhookBacklog(ctx)
}

// Refused implements metrics.Source.
func (m *meter) Refused() map[string]uint64 {
	refused := m.syncer.Refused()
	counts := make(map[string]uint64, len(refused))
	for reason, count := range refused {
		counts[string(reason)] = count
	}
	return counts
}

// Blocks implements metrics.Source.
func (m *meter) Blocks(ctx context.Context) (map[string]int64, error) {
	return m.store.BlockCounts(ctx)
}

// ZombieChannels implements metrics.Source.
func (m *meter) ZombieChannels() int { return m.manager.StuckChannels() }

// LedgerImbalance implements metrics.Source.
func (m *meter) LedgerImbalance() (violations int, known bool) {
	count := m.violations.Load()
	return int(count), count != unaudited
}

// Database implements metrics.Source.
func (m *meter) Database() error { return m.store.Away() }

// Now implements metrics.Source.
func (m *meter) Now() time.Time { return m.store.Now() }
