package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"tandem/api"
	"tandem/esl/simswitch"
	"tandem/models"
	"tandem/numbering"
)

// DevOptions configure `tandem dev`.
type DevOptions struct {
	ConfigFile string
	// DataDir holds the database, the keys and the simulated switch's configuration.
	DataDir string
	// ESLAddr, ESLPasswordFile and ConfDir name a switch that is already running; empty starts a simulated one.
	ESLAddr, ESLPasswordFile, ConfDir string
	// Out receives the banner and the webhooks, Log the log.
	Out, Log io.Writer
}

// Dev runs a controller, a simulated switch and an example application in one process until ctx ends.
func Dev(ctx context.Context, opts DevOptions) error {
	if err := os.MkdirAll(opts.DataDir, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	unlock, err := lockData(opts.DataDir)
	if err != nil {
		return err
	}
	cfg, err := devConfig(opts)
	if err != nil {
		return errors.Join(err, unlock())
	}
	return errors.Join(runDev(ctx, opts, cfg, newLogger(cfg, opts.Log)), unlock())
}

// devConfig is the configuration of `tandem dev`: its data below DataDir unless said otherwise, a quiet log, and a guard
// on outgoing HTTP that lets loopback through (DESIGN §9).
func devConfig(opts DevOptions) (Config, error) {
	overrides := map[string]string{}
	for key, value := range map[string]string{
		"database_url":    "sqlite:" + filepath.Join(opts.DataDir, "tandem.db"),
		"secret_key_file": filepath.Join(opts.DataDir, "secret.key"),
		"log_level":       "warn",
		"allow_ports":     "any",
	} {
		if os.Getenv(environmentName(key)) == "" && opts.ConfigFile == "" {
			overrides[key] = value
		}
	}
	cfg, err := LoadConfig(opts.ConfigFile, overrides)
	if err != nil {
		return Config{}, err
	}
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	cfg.AllowNetworks = append(cfg.AllowNetworks, loopback...)
	cfg.Providers = append(cfg.Providers, loopback...)
	return cfg, nil
}

func runDev(ctx context.Context, opts DevOptions, cfg Config, logger *slog.Logger) (err error) {
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", cfg.HTTPAddr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", cfg.HTTPAddr, err)
	}
	store, err := openStore(ctx, cfg, logger)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	baseURL := "http://" + listener.Addr().String()
	planted, key, err := prepareDev(ctx, opts, cfg, store, baseURL)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	var token string // a switch that was named keeps the one that it has
	if opts.ESLAddr == "" {
		token = models.NewCDRToken()
	}
	node, stopSwitch, err := devSwitch(opts, baseURL, token, logger)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, stopSwitch()) }()
	if err := errors.Join(seedNode(ctx, store, node, token), seedOperator(ctx, store, opts.DataDir)); err != nil {
		return errors.Join(err, listener.Close())
	}

	var running *controller
	site := &example{store: store, application: planted.ApplicationID, now: time.Now, out: opts.Out}
	site.callIn = func(ctx context.Context, call incomingCall) (string, error) {
		return callIn(ctx, running.nodes.named(devNode), call)
	}
	site.unregister = func(ctx context.Context, gateway string, seconds float64) error {
		return unregister(ctx, running.nodes.named(devNode), gateway, seconds)
	}
	cfg.hangUpAtStop = opts.ESLAddr == ""
	cfg.NewCustomer.CallLimits = models.CallLimits{Destinations: models.Destinations{AllowedDestinationTypes: numbering.Types}} // whoever develops is to try everything
	// The lock on the data folder makes this the only controller, so it may take its node back at once after a crash.
	running, err = startController(ctx, cfg, logger, store, listener, "tandem dev", map[string]http.Handler{"/dev": site.handler()})
	if err != nil {
		return err
	}
	if err := devReady(ctx, running); err != nil {
		return errors.Join(err, running.stop())
	}
	banner{url: baseURL, key: key, seed: planted, simulated: opts.ESLAddr == "", eslAddr: node.ESLAddr, dataDir: opts.DataDir}.write(opts.Out)
	return running.wait(ctx)
}

// devReady waits until the switch would take the first call. A switch that does not answer ends `tandem dev` with the
// reason, where `tandem serve` would go on trying.
func devReady(ctx context.Context, running *controller) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	return running.nodes.ready(ctx, devNode)
}

// prepareDev makes the first customer, or finds the one of an earlier start. The key is known only when it was just
// made or preset.
func prepareDev(ctx context.Context, opts DevOptions, cfg Config, store *models.Store, baseURL string) (*seed, string, error) {
	preset := os.Getenv("TANDEM_DEV_API_KEY")
	s, err := openSeed(filepath.Join(opts.DataDir, "seed.json"))
	if err != nil {
		return nil, "", err
	}
	planted, err := s.planted(ctx, store)
	if err != nil {
		return nil, "", err
	}
	if !planted {
		key, err := s.plant(ctx, store, baseURL, preset, cfg.Currency)
		return s, key, err
	}
	if err := keepKey(ctx, store, s, preset); err != nil {
		return nil, "", err
	}
	return s, preset, moveExample(ctx, store, s, baseURL)
}

// devSwitch describes the switch that was named, or starts a simulated one, which reports its CDRs to the API with a token.
func devSwitch(opts DevOptions, baseURL, token string, logger *slog.Logger) (*models.Node, func() error, error) {
	nothing := func() error { return nil }
	if opts.ESLAddr != "" {
		node, err := newNode(devNode, opts.ESLAddr, opts.ESLPasswordFile, opts.ConfDir)
		return node, nothing, err
	}
	password, err := randomPassword()
	if err != nil {
		return nil, nothing, err
	}
	confDir, err := filepath.Abs(filepath.Join(opts.DataDir, "switch"))
	if err != nil {
		return nil, nothing, fmt.Errorf("find the simulated switch's folder: %w", err)
	}
	cdrs := &simswitch.CDRs{URLs: []string{baseURL + api.CDRPath}, Credentials: devNode + ":" + token}
	sim, err := startSimSwitch("127.0.0.1:0", password, confDir, cdrs, logger.With("part", "simswitch"))
	if err != nil {
		return nil, nothing, err
	}
	node := &models.Node{Name: devNode, ESLAddr: sim.Addr(), Password: models.Secret(password), ConfDir: confDir, IsActive: true}
	return node, sim.Close, nil
}

// isLoopbackURL tells whether a URL is one that `tandem dev` gave out: plain HTTP on a loopback address, at path.
func isLoopbackURL(raw, path string) bool {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" || u.Path != path {
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return err == nil && addr.IsLoopback()
}
