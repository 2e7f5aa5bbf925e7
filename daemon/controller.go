// Package daemon wires Tandem together: it reads the configuration, starts the parts in order, stops them in reverse,
// and holds what the command line does.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tandem/api"
	"tandem/billing"
	"tandem/calls"
	"tandem/dialplan"
	"tandem/egress"
	"tandem/metrics"
	"tandem/models"
	"tandem/simulator"
	"tandem/sipprobe"
	"tandem/webhooks"
)

// openStore opens the database and migrates it.
func openStore(ctx context.Context, cfg Config, logger *slog.Logger) (*models.Store, error) {
	store, err := connectStore(ctx, cfg, logger)
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("migrate the database: %w", err), store.Close())
	}
	return store, nil
}

// connectStore opens the database as it is.
func connectStore(ctx context.Context, cfg Config, logger *slog.Logger) (*models.Store, error) {
	if path, ok := strings.CutPrefix(cfg.DatabaseURL, "sqlite:"); ok {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("make the database's folder: %w", err)
		}
	}
	store, err := models.Open(ctx, models.Config{URL: cfg.DatabaseURL, Key: cfg.SecretKey, Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	store.OnBalance(webhooks.EmitBalance)
	return store, nil
}

// controller is one running Tandem: the parts that Serve and Dev share.
type controller struct {
	cfg    Config
	logger *slog.Logger
	store  *models.Store
	nodes  *nodeKeeper
	parts  lifecycle
	// failed receives the error of a part that ended by itself.
	failed chan error
}

// startController starts everything on an open store and a bound listener. owner names this process in node leases;
// mount adds handlers outside the API, each below its path prefix. On an error, what was started is stopped again; the store stays open.
func startController(ctx context.Context, cfg Config, logger *slog.Logger, store *models.Store, listener net.Listener, owner string, mount map[string]http.Handler) (*controller, error) {
	c := &controller{cfg: cfg, logger: logger, store: store, parts: lifecycle{logger: logger}, failed: make(chan error, 3)}
	if err := c.start(ctx, listener, owner, mount); err != nil {
		return nil, errors.Join(err, listener.Close(), c.stop())
	}
	return c, nil
}

func (c *controller) start(ctx context.Context, listener net.Listener, owner string, mount map[string]http.Handler) error {
	// The parts outlive the signal that ends ctx: they are stopped in order, each with time to finish.
	ctx = context.WithoutCancel(ctx)
	client := egress.NewClient(egress.Config{
		AllowedNetworks: c.cfg.AllowNetworks, AllowedPorts: c.cfg.AllowPorts, AllowAnyPort: len(c.cfg.AllowPorts) == 0,
	})
	c.parts.add("outgoing http", func(context.Context) error { client.CloseIdleConnections(); return nil })
	measures := metrics.New(ThisBuild().Version)
	prices := c.cfg.Billing
	prices.Logger = c.logger.With("part", "billing")
	rater, err := billing.New(prices)
	if err != nil {
		return fmt.Errorf("billing: %w", err)
	}
	worker, err := webhooks.NewWorker(webhooks.Config{Store: c.store, Client: client, Logger: c.logger.With("part", "webhooks"), OnAttempt: countAttempt(measures)})
	if err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	worker.Start(ctx)
	c.parts.add("webhooks", func(ctx context.Context) error { worker.Stop(ctx); return nil })

	exchange, err := newExchange(c.cfg)
	if err != nil {
		return err
	}
	syncer, err := dialplan.NewSyncer(dialplan.Config{
		Store: c.store, Providers: c.cfg.Providers, Profile: c.cfg.SIPProfile, Logger: c.logger.With("part", "dialplan"),
		OnRegistration: tellRegistration, Exchange: exchange, Drifts: c.store, Blocks: c.cfg.Blocks,
		Prober: sipprobe.New(sipprobe.Config{Egress: egress.Config{AllowedNetworks: c.cfg.AllowNetworks}}),
	})
	if err != nil {
		return fmt.Errorf("dialplan: %w", err)
	}
	syncer.Start(ctx)
	c.parts.add("dialplan", func(context.Context) error { syncer.Stop(); return nil })

	limits := c.cfg.Limits
	limits.Memory = memoryLimit(limits.Memory)
	manager, err := calls.NewManager(calls.Config{
		Store: c.store, Rater: rater, Client: client, Logger: c.logger.With("part", "calls"),
		Providers: c.cfg.Providers, SIPProfile: c.cfg.SIPProfile,
		VoiceEngine: c.cfg.VoiceEngine, Voice: c.cfg.Voice, Synthesis: c.cfg.Synthesis, Recognizer: c.cfg.Recognizer,
		StreamHosts: c.cfg.StreamHosts, MediaCache: mediaCache(c.cfg.MediaCache), HangUpAtStop: c.cfg.hangUpAtStop, Limits: limits,
		Observer: observer{measures}, OnEnd: func(call models.Call) { measures.CallEnded(&call) },
		Remote: remoteNodes(c.cfg, exchange), NoBalanceStatus: c.cfg.NoBalanceStatus,
	})
	if err != nil {
		return fmt.Errorf("calls: %w", err)
	}
	c.nodes = newNodeKeeper(c.store, manager, syncer, owner, c.cfg.NodeLease, c.logger.With("part", "nodes"))
	against := func() error { return errors.Join(manager.Accepting(), c.store.AwayFor(gateEvery)) }
	c.nodes.against, c.nodes.acceptFor, c.nodes.metrics = against, c.cfg.AcceptTimeout, measures

	keeper := startHousekeeper(ctx, c.store, c.cfg.Retention, c.logger.With("part", "housekeeping"))
	c.parts.add("housekeeping", keeper.stop)

	rehearsals, err := simulator.New(simulator.Config{
		Client: client, Logger: c.logger.With("part", "simulator"), VoiceEngine: c.cfg.VoiceEngine, Voice: c.cfg.Voice,
		Synthesis: c.cfg.Synthesis, Recognizer: c.cfg.Recognizer, StreamHosts: c.cfg.StreamHosts,
	})
	if err != nil {
		return fmt.Errorf("simulator: %w", err)
	}
	server, err := api.New(api.Config{
		Store: c.store, Calls: manager, Simulator: rehearsals, Dialplan: syncer, Numbers: syncer, Currency: c.cfg.Currency, NewCustomer: c.cfg.NewCustomer,
		FlatRate: rater.Flat,
		Rates:    c.cfg.Rates, TrustedProxies: c.cfg.TrustedProxies, OnRefused: measures.Refused, Logger: c.logger.With("part", "api"), Mount: mount, Build: ThisBuild(),
	})
	if err != nil {
		return fmt.Errorf("api: %w", err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); err != nil {
			c.failed <- fmt.Errorf("serve %s: %w", listener.Addr(), err)
		}
	}()
	c.parts.add("api", func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		<-served
		return err
	})
	sharing, stopSharing := context.WithCancel(ctx)
	shared := make(chan struct{})
	go func() {
		defer close(shared)
		server.ShareLimits(sharing)
	}()
	c.parts.add("shared limits", func(context.Context) error {
		stopSharing()
		<-shared
		return nil
	})
	if err := c.startNodePort(ctx, exchange, manager); err != nil {
		return err
	}
	if err := manager.Start(ctx); err != nil {
		return fmt.Errorf("start the calls: %w", err)
	}
	c.nodes.start(ctx)
	sweeper := startCDRSweeper(ctx, c.store, c.nodes.rows, c.logger.With("part", "cdr"))
	c.parts.add("cdr", sweeper.stop)
	c.parts.add("nodes", c.nodes.stop)
	// The calls are left and the nodes given back before anything else ends: the next controller goes on with them meanwhile.
	c.parts.add("calls", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.ShutdownTimeout/2)
		defer cancel()
		return manager.Stop(ctx)
	})
	entrances := &gate{nodes: c.nodes.all, against: against, logger: c.logger.With("part", "gate")}
	entrances.start(ctx)
	c.parts.add("gate", entrances.stop)
	vitals := &pulse{
		nodes: c.nodes.all, record: c.store.RecordNodeHealth, now: c.store.Now, modules: modulesFor(&c.cfg), logger: c.logger.With("part", "pulse"),
	}
	vitals.start(ctx)
	c.parts.add("pulse", vitals.stop)
	return c.serveMetrics(ctx, &meter{store: c.store, manager: manager, syncer: syncer, nodes: c.nodes.all, metrics: measures, logger: c.logger.With("part", "metrics")})
}

// serveMetrics serves metrics where an address is configured for them.
func (c *controller) serveMetrics(ctx context.Context, meter *meter) error {
	if c.cfg.MetricsAddr == "" {
		return nil
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", c.cfg.MetricsAddr)
	if err != nil {
		return fmt.Errorf("listen for metrics on %s: %w", c.cfg.MetricsAddr, err)
	}
	meter.start(ctx, listener, c.failed)
	c.parts.add("metrics", meter.stop)
	c.logger.Info("metrics are served", "metrics_addr", listener.Addr().String())
	return nil
}

// mediaCache is the bound as the calls package takes it, where 0 is its default.
func mediaCache(bytes int64) int64 {
	if bytes == 0 {
		return -1
	}
	return bytes
}

// wait returns when ctx ends or a part fails, then stops everything.
func (c *controller) wait(ctx context.Context) error {
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-c.failed:
	}
	return errors.Join(failure, c.stop())
}

func (c *controller) stop() error { return c.parts.stop(c.cfg.ShutdownTimeout) }

// Serve runs a controller until ctx ends.
func Serve(ctx context.Context, cfg Config, logs io.Writer) error {
	logger := newLogger(cfg, logs)
	store, err := openStore(ctx, cfg, logger)
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", cfg.HTTPAddr)
	if err != nil {
		return errors.Join(fmt.Errorf("listen on %s: %w", cfg.HTTPAddr, err), store.Close())
	}
	c, err := startController(ctx, cfg, logger, store, listener, processName(), nil)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	logger.Info("tandem serves", "http_addr", listener.Addr().String(), "database", store.Dialect())
	return errors.Join(c.wait(ctx), store.Close())
}

// processName names this process in node leases: unique per start, so that a restart never passes for its predecessor.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d/%d", host, os.Getpid(), time.Now().UnixNano())
}
