package simulator

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"tandem/actions"
	"tandem/billing"
	"tandem/calls"
	"tandem/esl"
	"tandem/models"
)

// ErrBusy says that as many simulations run as may at a time.
var ErrBusy = errors.New("too many simulations run at a time")

// Config holds what a Simulator needs; Client is required.
type Config struct {
	// Client makes the requests to the application. It must be a guarded client of the egress package.
	Client *http.Client
	// Logger gets failures of the simulator itself. Default: discard.
	Logger *slog.Logger
	// Parallel is how many simulations may run at a time. Default 4.
	Parallel int
	// Timeout bounds one simulation in real time: the application's own slowness is most of it. Default 60 s.
	Timeout time.Duration
	// VoiceEngine and Voice are those of the real calls. Defaults as in the calls package.
	VoiceEngine string
	Voice       string
	Synthesis   calls.Synthesis
	Recognizer  calls.Recognizer
	StreamHosts []string
}

// Simulator runs applications against scripted callers.
type Simulator struct {
	cfg   Config
	slots chan struct{}
}

// New checks the configuration.
func New(cfg Config) (*Simulator, error) {
	if cfg.Client == nil {
		return nil, errors.New("simulator: Client is required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Parallel = cmp.Or(cfg.Parallel, 4)
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Minute)
	return &Simulator{cfg: cfg, slots: make(chan struct{}, cfg.Parallel)}, nil
}

// Report is what a run led to.
type Report struct {
	// OK says that the call ended, that there was no error (or as many as expected), that every input was used, and that
	// everything expected came out.
	OK bool `json:"ok"`
	// Problems says in words why OK is false.
	Problems []string `json:"problems"`
	// Call is how the call ended.
	Call Outcome `json:"call"`
	// Path is what happened, in order.
	Path []Step `json:"path"`
	// UnusedInput are the places of the inputs that no action took.
	UnusedInput []int `json:"unused_input"`
}

// Outcome is the end of the simulated call.
type Outcome struct {
	Status       string            `json:"status"`
	Reason       string            `json:"reason"`
	HangupSource string            `json:"hangup_source"`
	SIPCode      int               `json:"sip_code,omitempty"`
	Seconds      float64           `json:"seconds"`
	Variables    map[string]string `json:"variables"`
}

// Run runs an application against a script. Nothing of it is stored, charged or delivered: only the application's own answer_url,
// fallback_url and media files are fetched, as a call would. Errors: ErrBusy, and failures of our own.
func (s *Simulator) Run(ctx context.Context, app models.Application, script *Script) (*Report, error) {
	select {
	case s.slots <- struct{}{}:
	default:
		return nil, ErrBusy
	}
	defer func() { <-s.slots }()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "tandem-simulation-*")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the simulation: %w", err)
	}
	defer func() {
		_ = os.RemoveAll(dir)
	}()
	r := &run{s: s, script: script, clock: newClock()}
	r.path = newPath(r.clock)
	r.stage = newStage(r.path, r.clock, script)
	if err := r.play(ctx, dir, app); err != nil {
		return nil, fmt.Errorf("simulate application %q: %w", app.ID, err)
	}
	return r.report(), nil
}

// run is one simulation.
type run struct {
	s      *Simulator
	script *Script
	clock  *clock
	path   *path
	stage  *stage
	callID string // of the call whose action runs; its goroutine alone uses it
	ended  *models.Call
	events []Step
}

// play sets the stage and lets the call run to its end.
func (r *run) play(ctx context.Context, dir string, app models.Application) (err error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	store, err := models.Open(ctx, models.Config{URL: "sqlite:" + filepath.Join(dir, "simulation.db"), Key: key, Now: r.clock.Now})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	node, err := r.furnish(ctx, store, dir, &app)
	if err != nil {
		return err
	}
	rater, err := billing.New(billing.Config{MaxCallSeconds: 3600}) // an hour of a rehearsal is enough
	if err != nil {
		return err
	}
	ended := make(chan models.Call, 1)
	client := *r.s.cfg.Client
	client.Transport = &recorder{next: transport(r.s.cfg.Client), path: r.path}
	manager, err := calls.NewManager(calls.Config{
		HangUpAtStop: true,
		Store:        store, Rater: rater, Client: &client, Logger: r.s.cfg.Logger, Now: r.clock.Now,
		Providers:   []netip.Prefix{netip.MustParsePrefix(source + "/32")},
		VoiceEngine: r.s.cfg.VoiceEngine, Voice: r.s.cfg.Voice, Simulated: true,
		Synthesis: r.s.cfg.Synthesis, Recognizer: r.s.cfg.Recognizer, StreamHosts: r.s.cfg.StreamHosts,
		OnAction: func(callID string, index int, action actions.Action) {
			r.callID = callID
			r.begin(index, action)
		},
		OnEnd: func(call models.Call) {
			select {
			case ended <- call:
			default:
			}
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, manager.Stop(ctx))
	}()
	r.stage.takeOut = func(queue string) {
		// From the call's goroutine, which takes its own order when the prompt is over.
		if err := manager.LeaveQueue(ctx, app.CustomerID, queue, r.callID, nil); err != nil {
			r.s.cfg.Logger.Warn("simulated call not taken out of the queue", "error", err)
		}
	}
	r.stage.handler = manager.AddNode(*node, r.stage)
	r.stage.handler.HandleUp(esl.Snapshot{CoreUUID: "simulation"})
	if err := r.open(ctx, manager, &app); err != nil {
		return err
	}
	select {
	case call := <-ended:
		r.ended = &call
	case <-r.path.full:
	case <-ctx.Done():
	}
	return r.collect(context.WithoutCancel(ctx), store, app.CustomerID)
}
