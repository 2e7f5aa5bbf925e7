// Package simswitch is a simulated FreeSWITCH. It speaks the event socket over TCP, holds channels with FreeSWITCH's life
// cycle, runs the applications a call controller uses, and reads the gateways and the dialplan that Tandem writes for a
// real node, so that call flows can be built and tested with no carrier and no FreeSWITCH. Whatever it does not simulate
// it refuses and logs, it never pretends.
//
// Where it follows FreeSWITCH, comments name the file and function of FreeSWITCH 1.10.12.
package simswitch

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Version is the FreeSWITCH version the simulated switch claims to be in `version`, `status` and HEARTBEAT.
const Version = "1.10.12-release+git~20240802T210227Z~a88d069d6f~64bit"

// Config is what a Switch is made from.
type Config struct {
	// Addr is the TCP address of the event socket; port 0 takes a free one. Default 127.0.0.1:0.
	Addr string
	// Password is the event socket's password. It must not be empty.
	Password string
	// ConfDir is the node's configuration directory. The switch reads what Tandem wrote below ConfDir/tandem. Empty: none.
	ConfDir string
	// Logger takes the switch's log. Default: discard.
	Logger *slog.Logger
	// Speed is how many times as fast as real time the switch's clock runs; every timer, timestamp and duration follows
	// it. Default 1.
	Speed float64
	// HeartbeatInterval is the time between HEARTBEAT events, in the switch's time. Default 20 s, as in FreeSWITCH.
	HeartbeatInterval time.Duration
	// Variables are the switch's global variables, as `global_getvar` returns them. app_disable_expand_variables=true is
	// inherited by every channel.
	Variables map[string]string
	// Modules are the modules that the switch has, as module_exists tells; without theirs, applications and commands are unknown.
	// Default: DefaultModules. mod_vosk (or another recognizer) brings speech input, mod_audio_stream streams of audio.
	Modules []string
	// APIExpansion lets ${command(args)} in application data run API commands, which is FreeSWITCH's default and what a
	// node that Tandem configures turns off (api-expansion in switch.conf). The simulated switch never runs them; when this
	// is set it raises an error in the log, so that a test can see that the wall was missing.
	APIExpansion bool
	// MaxSessions is how many channels may live, and SessionsPerSecond one more than may begin in a second. Defaults 5000 and 2000.
	MaxSessions       int
	SessionsPerSecond int
	// CDRs says where the record of each channel that has ended goes. Default nil: the switch keeps none.
	CDRs *CDRs
	// CachedURLs is how many files that it has fetched the switch keeps: for one more the oldest is deleted, unless it was moved away. Default
	// 4000, as in mod_http_cache.c.
	CachedURLs int
	// NodeCredentials are the NAME:TOKEN with which the switch fetches and sends files of its own accord (http_get, http_put); empty sends none.
	NodeCredentials string
}

// Switch is one simulated FreeSWITCH.
type Switch struct {
	cfg      Config
	log      *slog.Logger
	clock    *clock
	tasks    *scheduler
	bus      *bus
	core     string
	hostname string
	sequence atomic.Uint64
	started  time.Time
	ln       net.Listener

	mu       sync.RWMutex
	channels map[string]*channel
	finished map[string]Result
	order    []string
	conns    map[*listener]struct{}
	closing  bool
	globals  map[string]string
	// What fsctl has paused.
	pausedIn, pausedOut bool

	sessions atomic.Uint64
	peak     atomic.Int64
	live     atomic.Int64
	rate     rateMeter
	fetched  urlCache

	roomMu    sync.Mutex
	rooms     map[string]*room
	memberIDs atomic.Uint32

	reloading sync.Mutex
	shelf     shelf // for who holds reloading
	plan      atomic.Pointer[plan]
	sofia     *sofia
	recorder  *recorder

	wg     sync.WaitGroup
	closed chan struct{}
}

// New makes a switch. It reads no files and opens no port before Start.
func New(cfg Config) (*Switch, error) {
	cfg.Addr = cmp.Or(cfg.Addr, "127.0.0.1:0")
	cfg.Speed = cmp.Or(cfg.Speed, 1)
	cfg.HeartbeatInterval = cmp.Or(cfg.HeartbeatInterval, 20*time.Second)
	cfg.MaxSessions = cmp.Or(cfg.MaxSessions, defaultMaxSessions)
	cfg.SessionsPerSecond = cmp.Or(cfg.SessionsPerSecond, defaultSessionsPerSecond)
	cfg.CachedURLs = cmp.Or(cfg.CachedURLs, defaultCachedURLs)
	if cfg.Modules == nil {
		cfg.Modules = DefaultModules()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Password == "" {
		return nil, errors.New("simulated switch: the event socket password is empty")
	}
	if cfg.Speed < 0 {
		return nil, fmt.Errorf("simulated switch: speed %v is negative", cfg.Speed)
	}
	if cfg.MaxSessions < 0 || cfg.SessionsPerSecond < 0 || cfg.CachedURLs < 0 {
		return nil, errors.New("simulated switch: a limit is negative")
	}
	if cfg.HeartbeatInterval < 0 {
		return nil, fmt.Errorf("simulated switch: heartbeat interval %v is negative", cfg.HeartbeatInterval)
	}
	recorder, err := newRecorder(cfg.CDRs, cfg.ConfDir)
	if err != nil {
		return nil, err
	}
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "simswitch"
	}
	s := &Switch{
		cfg:      cfg,
		log:      cfg.Logger,
		clock:    newClock(cfg.Speed),
		bus:      newBus(),
		core:     newUUID(),
		hostname: hostname,
		channels: map[string]*channel{},
		finished: map[string]Result{},
		conns:    map[*listener]struct{}{},
		rooms:    map[string]*room{},
		globals:  map[string]string{"hostname": hostname, "core_uuid": "", "app_disable_expand_variables": "true"},
		closed:   make(chan struct{}),
		recorder: recorder,
	}
	s.globals["core_uuid"] = s.core
	for name, value := range cfg.Variables {
		s.globals[name] = value
	}
	s.tasks = newScheduler(s.clock)
	s.sofia = newSofia(s)
	s.plan.Store(&plan{})
	return s, nil
}

// Start reads the configuration below ConfDir, opens the event socket and registers the gateways. A file that FreeSWITCH
// would not load, or that uses something the simulation does not know, fails it.
func (s *Switch) Start() error {
	p, gateways, err := s.shelf.loadConfiguration(s.cfg.ConfDir)
	if err != nil {
		return fmt.Errorf("start simulated switch: %w", err)
	}
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.cfg.Addr)
	if err != nil {
		return fmt.Errorf("start simulated switch: %w", err)
	}
	s.plan.Store(p)
	s.ln = ln
	s.started = s.clock.now()
	s.wg.Go(s.tasks.run)
	s.wg.Go(s.accept)
	s.sofia.add(gateways)
	s.tasks.after(s.cfg.HeartbeatInterval, "", s.heartbeat)
	return nil
}

// Addr is the address of the event socket once Start has returned.
func (s *Switch) Addr() string {
	if s.ln == nil {
		return s.cfg.Addr
	}
	return s.ln.Addr().String()
}

// CoreUUID is the Core-UUID this switch puts in its events; each new Switch has another one.
func (s *Switch) CoreUUID() string { return s.core }

// Closed is closed once the switch has shut down, by Close or by `fsctl shutdown`.
func (s *Switch) Closed() <-chan struct{} { return s.closed }

// Close hangs every call up, closes every connection and waits until all of it has ended. It may be called again.
func (s *Switch) Close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		<-s.closed
		return nil
	}
	s.closing = true
	channels := s.snapshotLocked()
	s.mu.Unlock()
	if s.ln == nil {
		close(s.closed)
		return nil
	}
	err := s.ln.Close()
	s.fire(evShutdown, "", origin{"switch_core.c", "switch_core_destroy"}, func(e *event) {
		e.add("Event-Info", "System Shutting Down")
	})
	for _, c := range channels {
		c.hangup(causeSystemShutdown)
	}
	for _, c := range channels {
		<-c.done
	}
	s.tasks.close()
	s.mu.Lock()
	conns := make([]*listener, 0, len(s.conns))
	for l := range s.conns {
		conns = append(conns, l)
	}
	s.mu.Unlock()
	for _, l := range conns {
		l.send(disconnectNotice)
		l.finish()
		// The writer closes the connection once it has written what is queued; a client that does not read must not hold
		// the shutdown up.
		_ = l.conn.SetDeadline(time.Now().Add(time.Second))
	}
	s.wg.Wait()
	if s.recorder != nil {
		s.recorder.client.CloseIdleConnections()
	}
	close(s.closed)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close simulated switch: %w", err)
	}
	return nil
}

func (s *Switch) accept() {
	for {
		conn, err := s.ln.Accept()
		if err != nil {
			return
		}
		l := newListener(s, conn)
		s.mu.Lock()
		if s.closing {
			s.mu.Unlock()
			_ = conn.Close()
			return
		}
		s.conns[l] = struct{}{}
		s.wg.Add(1)
		s.mu.Unlock()
		go func() {
			defer s.wg.Done()
			l.serve()
			s.mu.Lock()
			delete(s.conns, l)
			s.mu.Unlock()
		}()
	}
}

// background runs fn on a goroutine that Close waits for, unless the switch is closing.
func (s *Switch) background(fn func()) {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return
	}
	s.wg.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.wg.Done()
		fn()
	}()
}

func (s *Switch) channel(uuid string) *channel {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.channels[uuid]
}

func (s *Switch) snapshotLocked() []*channel {
	channels := make([]*channel, 0, len(s.channels))
	for _, c := range s.channels {
		channels = append(channels, c)
	}
	return channels
}

func (s *Switch) snapshot() []*channel {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.snapshotLocked()
}

var (
	errDuplicateUUID = errors.New("a channel with this UUID exists")
	errClosing       = errors.New("the switch is shutting down")
	// errNoRoom is what switch_core_session_request_uuid (switch_core_session.c) refuses a session for: fsctl pause, and the two limits.
	errNoRoom = errors.New("the switch takes no session: it is paused or at its limit")
)

// register makes a channel known and counts it. The channel's goroutine must be started by the caller; register has
// already told Close to wait for it.
func (s *Switch) register(c *channel) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return errClosing
	}
	if _, exists := s.channels[c.uuid]; exists {
		return errDuplicateUUID
	}
	if !s.roomLocked(c.outbound) || !s.rate.count(s.clock.now(), s.cfg.SessionsPerSecond) {
		return errNoRoom
	}
	s.channels[c.uuid] = c
	s.wg.Add(1)
	live := s.live.Add(1)
	if live > s.peak.Load() {
		s.peak.Store(live)
	}
	return nil
}

// roomLocked says whether a session of a direction may begin, but for the rate.
func (s *Switch) roomLocked(outbound bool) bool {
	paused := s.pausedIn
	if outbound {
		paused = s.pausedOut
	}
	return !paused && s.live.Load() < int64(s.cfg.MaxSessions)
}

// maxFinished bounds how many results of ended calls are kept for Caller and sim_result.
const maxFinished = 10000

func (s *Switch) unregister(c *channel, result Result) {
	s.mu.Lock()
	delete(s.channels, c.uuid)
	if c.incoming != nil {
		s.finished[c.uuid] = result
		s.order = append(s.order, c.uuid)
		if len(s.order) > maxFinished {
			delete(s.finished, s.order[0])
			s.order = s.order[1:]
		}
	}
	s.live.Add(-1)
	s.mu.Unlock()
}

func (s *Switch) global(name string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.globals[name]
}

// newUUID is a random UUID in the form FreeSWITCH prints.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	var out [36]byte
	hex.Encode(out[0:8], b[0:4])
	out[8] = '-'
	hex.Encode(out[9:13], b[4:6])
	out[13] = '-'
	hex.Encode(out[14:18], b[6:8])
	out[18] = '-'
	hex.Encode(out[19:23], b[8:10])
	out[23] = '-'
	hex.Encode(out[24:36], b[10:16])
	return string(out[:])
}

func itoa(n int) string { return strconv.Itoa(n) }
