// Package esl is the Event Socket of a FreeSWITCH node: its ordered events and safe commands.
//
// A [Node] keeps two connections to a switch, one that only receives events and one that only sends commands, because a flood of commands on one
// connection starves its events (mod_event_socket.c sends events only while no command byte waits). It redials for ever, resynchronises after
// every reconnect, and hands the events of each channel to its [Handler] in order.
//
// Whatever a customer chose reaches the switch through the builders of this package alone ([App], [Target], [Originate]): they escape or refuse
// what the place it goes to would read as syntax, and name the field in an [InputError].
package esl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// EventUUIDPrefix begins every event UUID of ours. The switch filters by it: the completions of applications that others started, the
// dialplan's above all, are never sent to us.
const EventUUIDPrefix = "tandem-"

// NewEventUUID makes a name for one run of an application, for [Node.Execute].
func NewEventUUID() string { return EventUUIDPrefix + uuid.NewString() }

// Handler takes what a node tells. HandleUp comes once per connection, before any event; it may send commands, must not wait for events, and the
// events that came since the subscription follow when it returns. HandleEvent is called on several goroutines, the events of one channel in
// order on one of them; it must not block for long (see Config.Watchdog). HandleDown comes after the last event of a connection.
type Handler interface {
	HandleUp(Snapshot)
	HandleEvent(*Event)
	HandleDown(error)
}

// Config is how to reach a node and the limits to hold. Zero values take the defaults.
type Config struct {
	Name     string // for logs
	Addr     string // host:port of the event socket
	Password string
	Handler  Handler
	Logger   *slog.Logger

	// CoreUUID is the Core-UUID that the switch had when it was last seen, by another process perhaps; empty when it never was. The first
	// Snapshot compares with it.
	CoreUUID string

	Events []string // event names, with CUSTOM last and its subclasses after it; default DefaultEvents

	Workers        int           // goroutines that call HandleEvent; default 8
	QueueEvents    int           // events that may wait on one worker; default 16384
	QueueBytes     int64         // bytes of events that may wait in all; default 256 MiB
	Window         int           // commands in flight; default 64
	ChannelWindow  int           // applications in flight on a channel; default 8
	DialWindow     int           // originates in flight: of so many nobody knows what came of them when the connection breaks; default 16
	ConnectTimeout time.Duration // dial, greeting and authentication; default 5 s
	CommandTimeout time.Duration // of a command whose context has no deadline; default 10 s
	AbandonLimit   time.Duration // how long the oldest command may stay unanswered after its caller left; default 10 s
	Heartbeat      time.Duration // the switch's event-heartbeat-interval; default 20 s
	Probe          time.Duration // interval of the probe of an idle command connection; default 5 s
	Watchdog       time.Duration // how long one call of the handler may last; default 10 s
	BackoffMin     time.Duration // first pause before redialling; default 100 ms
	BackoffMax     time.Duration // longest pause; default 5 s
	SlowRetry      time.Duration // pause when trying soon cannot help (wrong password, refused address, no event socket); default 30 s
	StopTimeout    time.Duration // how long Stop waits for the handler; default 10 s

	// OnCommand, when set, is told of each command: what it was, without arguments, how long it took until the reply, waiting for its turn included,
	// and its error. It must not block.
	OnCommand func(command string, took time.Duration, err error)

	// Fence is asked before each command, and before connecting, whether this process steers the switch. Default: it always does.
	Fence Fence

	// Dial replaces the TCP dialler. The default sets keepalive and, on Linux, TCP_USER_TIMEOUT.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// DefaultEvents are the events that a node subscribes to: what a controller acts on and no more, because FreeSWITCH pays for each that it sends.
// A call that is answered, hears a tone and is hung up costs 5 events of 35 kB in all. DTMF, RECORD_STOP, conference::maintenance and avmd::beep
// add none to it: they come when a key is pressed, a recording ends, a room is entered or left, a beep is heard.
func DefaultEvents() []string {
	return []string{
		"CHANNEL_PROGRESS", "CHANNEL_PROGRESS_MEDIA", "CHANNEL_ANSWER", "CHANNEL_PARK", "CHANNEL_BRIDGE", "CHANNEL_UNBRIDGE",
		"CHANNEL_EXECUTE_COMPLETE", "CHANNEL_HANGUP_COMPLETE", "RECORD_STOP", "DTMF", "BACKGROUND_JOB", "HEARTBEAT", "SHUTDOWN",
		"CUSTOM", "sofia::gateway_state", "sofia::gateway_add", "sofia::gateway_delete", "conference::maintenance", "avmd::beep",
	}
}

func (cfg *Config) setDefaults() error {
	switch {
	case cfg.Addr == "":
		return errors.New("esl: Addr is required")
	case cfg.Handler == nil:
		return errors.New("esl: Handler is required")
	case cfg.Password == "" || strings.ContainsAny(cfg.Password, "\r\n\x00"):
		return errors.New("esl: Password must be given and have no line break")
	}
	cfg.Name = cmp.Or(cfg.Name, cfg.Addr)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if len(cfg.Events) == 0 {
		cfg.Events = DefaultEvents()
	}
	for _, name := range cfg.Events {
		if name == "" || strings.ContainsAny(name, " \r\n") {
			return fmt.Errorf("esl: Events holds %q, which is no event name", name)
		}
	}
	cfg.Workers = cmp.Or(cfg.Workers, 8)
	cfg.QueueEvents = cmp.Or(cfg.QueueEvents, 16384)
	cfg.QueueBytes = cmp.Or(cfg.QueueBytes, 256<<20)
	cfg.Window = cmp.Or(cfg.Window, 64)
	cfg.ChannelWindow = cmp.Or(cfg.ChannelWindow, 8)
	cfg.DialWindow = cmp.Or(cfg.DialWindow, 16)
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, 5*time.Second)
	cfg.CommandTimeout = cmp.Or(cfg.CommandTimeout, 10*time.Second)
	cfg.AbandonLimit = cmp.Or(cfg.AbandonLimit, 10*time.Second)
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 20*time.Second)
	cfg.Probe = cmp.Or(cfg.Probe, 5*time.Second)
	cfg.Watchdog = cmp.Or(cfg.Watchdog, 10*time.Second)
	cfg.BackoffMin = cmp.Or(cfg.BackoffMin, 100*time.Millisecond)
	cfg.BackoffMax = cmp.Or(cfg.BackoffMax, 5*time.Second)
	cfg.SlowRetry = cmp.Or(cfg.SlowRetry, 30*time.Second)
	cfg.StopTimeout = cmp.Or(cfg.StopTimeout, 10*time.Second)
	if cfg.OnCommand == nil {
		cfg.OnCommand = func(string, time.Duration, error) {}
	}
	if cfg.Fence == nil {
		cfg.Fence = free{}
	}
	if cfg.Dial == nil {
		cfg.Dial = defaultDial()
	}
	if min(cfg.ConnectTimeout, cfg.CommandTimeout, cfg.AbandonLimit, cfg.Heartbeat, cfg.Probe, cfg.Watchdog, cfg.BackoffMin, cfg.BackoffMax, cfg.SlowRetry,
		cfg.StopTimeout) < time.Millisecond {
		return errors.New("esl: times must be at least a millisecond")
	}
	if min(cfg.Workers, cfg.QueueEvents, cfg.Window, cfg.ChannelWindow, cfg.DialWindow) < 1 || cfg.QueueBytes < 1 {
		return errors.New("esl: limits must be positive")
	}
	return nil
}

// Node is a switch, connected or not. Its methods are safe for concurrent use.
type Node struct {
	cfg      Config
	inflight *inflight
	dials    chan struct{} // one token per originate that is not answered
	jobs     *jobs

	current atomic.Pointer[session] // the session that commands go to; nil while down
	core    atomic.Pointer[string]

	mu      sync.Mutex
	up      chan struct{} // closed while up
	cancel  context.CancelCauseFunc
	done    chan struct{}
	stopped bool
}

// NewNode checks the configuration. It does not connect.
func NewNode(cfg Config) (*Node, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, inflight: newInflight(cfg.ChannelWindow), dials: make(chan struct{}, cfg.DialWindow), jobs: newJobs(),
		up: make(chan struct{}), done: make(chan struct{}),
	}
	n.core.Store(&n.cfg.CoreUUID)
	return n, nil
}

// Start begins to connect in the background, and keeps connecting until Stop is called or ctx ends. It fails only when called twice or after Stop.
func (n *Node) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped {
		return ErrStopped
	}
	if n.cancel != nil {
		return errors.New("esl: node was started already")
	}
	ctx, n.cancel = context.WithCancelCause(ctx)
	go func() {
		defer close(n.done)
		n.run(ctx)
	}()
	return nil
}

// Stop disconnects and waits, at most Config.StopTimeout, until the handler has returned from its last call. It may be called more than once.
func (n *Node) Stop() {
	n.mu.Lock()
	n.stopped = true
	cancel := n.cancel
	n.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel(ErrStopped)
	timer := time.NewTimer(n.cfg.StopTimeout)
	defer timer.Stop()
	select {
	case <-n.done:
	case <-timer.C:
		n.cfg.Logger.Error("esl handler did not return in time", "node", n.cfg.Name, "timeout", n.cfg.StopTimeout)
	}
}

// Up reports whether commands can be sent.
func (n *Node) Up() bool { return n.current.Load() != nil }

// WaitUp waits until commands can be sent.
func (n *Node) WaitUp(ctx context.Context) error {
	for {
		n.mu.Lock()
		up := n.up
		n.mu.Unlock()
		select {
		case <-up:
			if n.Up() {
				return nil
			}
		case <-n.done:
			return ErrStopped
		case <-ctx.Done():
			return fmt.Errorf("esl: wait for node %s: %w", n.cfg.Name, context.Cause(ctx))
		}
	}
}

// Core is the Core-UUID of the switch's present or last known life, or empty when none is known.
func (n *Node) Core() string { return *n.core.Load() }

// run connects again and again until ctx ends.
func (n *Node) run(ctx context.Context) {
	log := n.cfg.Logger.With("node", n.cfg.Name, "addr", n.cfg.Addr)
	pause := n.cfg.BackoffMin
	for ctx.Err() == nil {
		wasUp, err := n.connect(ctx)
		if ctx.Err() != nil {
			break
		}
		if wasUp {
			pause = n.cfg.BackoffMin
		}
		wait := pause
		pause = min(2*pause, n.cfg.BackoffMax)
		if needsOperator(err) {
			wait = max(wait, n.cfg.SlowRetry)
		}
		// Jitter from half to the whole: many controllers must not come back at once.
		wait = wait/2 + rand.N(wait/2+1)
		log.Warn("esl node is down", "error", err, "was_up", wasUp, "retry_in", wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}
