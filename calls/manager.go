package calls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"tandem/actions"
	"tandem/billing"
	"tandem/esl"
	"tandem/models"
)

// Errors of Create and Cancel; test with errors.Is.
var (
	// ErrNoActiveTrunk: the customer has no active outbound trunk.
	ErrNoActiveTrunk = errors.New("no active outbound trunk")
	// ErrNoNode: no media node is connected that could carry the call, or the one that carries it is away.
	ErrNoNode = errors.New("no media node is connected")
	// ErrCallNotActive: the call has already ended.
	ErrCallNotActive = errors.New("the call has already ended")
	// ErrCallNotStarted: the call waits until it is started.
	ErrCallNotStarted = errors.New("the call has not been started yet")
	// ErrCallActive: the call has not ended yet.
	ErrCallActive = errors.New("the call has not ended yet")
	// ErrCallNotQueued: the call has been started already.
	ErrCallNotQueued = errors.New("the call has been started already")
	// ErrStopping: the manager has been stopped and takes no more calls.
	ErrStopping = errors.New("the call manager is stopping")
)

// RequestError refuses a field of a request.
type RequestError struct {
	Field   string
	Message string
}

// Error returns the field and what is wrong with it.
func (e *RequestError) Error() string { return e.Field + " " + e.Message }

// Config holds what a Manager needs; Store, Rater and Client are required.
type Config struct {
	Store *models.Store
	Rater *billing.Rater
	// Client makes every outgoing request: answer_url, fallback_url and play files. It must be a guarded client of the
	// egress package, which refuses private addresses and redirects.
	Client *http.Client
	// Logger gets a line for each call refused and each failure. Default: discard.
	Logger *slog.Logger
	// Now is the clock. Default: the Store's.
	Now func() time.Time
	// Providers are the operator's own carriers: they may call any DID. Customers' carriers are inbound trunks.
	Providers []netip.Prefix
	// MediaDir and RecordingDir say where a node reads fetched files and writes recordings. Defaults: tandem/media and
	// tandem/recordings below the node's configuration directory.
	MediaDir     func(node models.Node) string
	RecordingDir func(node models.Node) string
	// SIPProfile is the profile of the nodes that dials SIP URIs. Default esl.DefaultProfile.
	SIPProfile string
	// VoiceEngine and Voice speak what names no voice. Defaults: flite, slt.
	VoiceEngine string
	Voice       string
	// Synthesis is the text-to-speech server of VoiceEngine EngineHTTP.
	Synthesis Synthesis
	// Recognizer is the speech recognizer of the nodes, for gathers that listen; without one they are refused.
	Recognizer Recognizer
	// StreamHosts are the hosts, and with each all below it, that the nodes may stream to. Default: none.
	StreamHosts []string
	// ConnectTimeout bounds connecting to an answer_url, RequestTimeout one whole request to it. Defaults 3 s, 5 s.
	ConnectTimeout time.Duration
	RequestTimeout time.Duration
	// MediaTimeout bounds the fetching of one file to play, MediaLimit its size in bytes. Defaults 10 s, 16 MiB.
	MediaTimeout time.Duration
	MediaLimit   int64
	// MediaCache bounds what is kept of fetched files after the calls that played them, in bytes. Default 256 MiB; negative
	// keeps none.
	MediaCache int64
	// CommandTimeout bounds one command to a switch. Default 10 s.
	CommandTimeout time.Duration
	// RingAfter is how long an inbound caller waits for the answer_url before being told that it rings. Default 200 ms.
	RingAfter time.Duration
	// WaitAfter is how long an answered caller waits for a slow answer_url in silence before the application's wait_actions
	// begin. Default 2 s.
	WaitAfter time.Duration
	// RingTimeout is how long an outbound call may ring when its request names no timeout. Default 60 s.
	RingTimeout time.Duration
	// HangupGrace is how long a session waits for the switch's last word on a channel that the switch no longer knows.
	// Default 2 s.
	HangupGrace time.Duration
	// NodeLostAfter is how long a node may be away before its calls are ended as lost. Default 40 s: a node that falls silent is
	// noticed within 15 s, and its calls are told to have ended within a minute.
	NodeLostAfter time.Duration
	// CDRWait is how long a call whose channel is gone, unheard, waits for the switch's own record of its end. Default 20 s; negative:
	// for one look.
	CDRWait time.Duration
	// WatchEvery is how often the watchdog looks for calls that nobody steers, channels that nobody has and bills that differ from
	// the switches' records. Default 30 s.
	WatchEvery time.Duration
	// NoBalanceStatus is the SIP status that refuses an inbound call for which the balance does not pay. Default 503.
	NoBalanceStatus int
	// HangUpAtStop makes Stop end the calls, for a switch that ends with this process. Otherwise they are left to the next controller.
	HangUpAtStop bool
	// CommandInterval is how often the commands are looked for that other controllers have accepted. Default 50 ms.
	CommandInterval time.Duration
	// OverflowInterval is how often calls are looked for that wait for room under limits. Default 250 ms.
	OverflowInterval time.Duration
	// OnEnd, when set, is called after the terminal event of a call of this process is durable, from the call's goroutine:
	// for metrics. It must not block.
	OnEnd func(call models.Call)
	// OnAction, when set, is called before an action of a call's list begins, from the call's goroutine. It must not block.
	OnAction func(callID string, index int, action actions.Action)
	// Observer is told what is measured. Default: nobody is.
	Observer Observer
	// Simulated tells the applications that are asked that no call is made.
	Simulated bool
	// Limits are what makes the manager refuse new calls.
	Limits Limits
	// Remote is for nodes whose disk is not shared; without it they record and play nothing.
	Remote *Remote
}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil || c.Rater == nil || c.Client == nil {
		return c, errors.New("calls: Store, Rater and Client are required")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = c.Store.Now
	}
	if c.MediaDir == nil {
		c.MediaDir = func(node models.Node) string { return filepath.Join(node.ConfDir, "tandem", "media") }
	}
	if c.RecordingDir == nil {
		c.RecordingDir = func(node models.Node) string { return filepath.Join(node.ConfDir, "tandem", "recordings") }
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	c.NoBalanceStatus = cmp.Or(c.NoBalanceStatus, http.StatusServiceUnavailable)
	c.SIPProfile = cmp.Or(c.SIPProfile, esl.DefaultProfile)
	c.VoiceEngine = cmp.Or(c.VoiceEngine, "flite")
	c.Voice = cmp.Or(c.Voice, "slt")
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 3*time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 5*time.Second)
	c.MediaTimeout = cmp.Or(c.MediaTimeout, 10*time.Second)
	c.MediaLimit = cmp.Or(c.MediaLimit, 16<<20)
	c.MediaCache = cmp.Or(c.MediaCache, 256<<20)
	if err := c.Synthesis.check(c.VoiceEngine); err != nil {
		return c, err
	}
	if c.Synthesis.Client == nil {
		c.Synthesis.Client = http.DefaultClient
	}
	c.Synthesis.Keep = cmp.Or(c.Synthesis.Keep, 24*time.Hour)
	c.CommandTimeout = cmp.Or(c.CommandTimeout, 10*time.Second)
	c.RingAfter = cmp.Or(c.RingAfter, 200*time.Millisecond)
	c.WaitAfter = cmp.Or(c.WaitAfter, 2*time.Second)
	c.RingTimeout = cmp.Or(c.RingTimeout, time.Minute)
	c.HangupGrace = cmp.Or(c.HangupGrace, 2*time.Second)
	c.CommandInterval = cmp.Or(c.CommandInterval, 50*time.Millisecond)
	c.OverflowInterval = cmp.Or(c.OverflowInterval, 250*time.Millisecond)
	c.NodeLostAfter = cmp.Or(c.NodeLostAfter, 40*time.Second)
	c.CDRWait = cmp.Or(c.CDRWait, 20*time.Second)
	c.WatchEvery = cmp.Or(c.WatchEvery, 30*time.Second)
	if c.Remote != nil {
		remote := *c.Remote
		remote.Limit = cmp.Or(remote.Limit, 1<<30)
		if remote.URL == "" || remote.Dir == "" || remote.Offer == nil {
			return c, errors.New("calls: Remote needs URL, Dir and Offer")
		}
		c.Remote = &remote
	}
	var err error
	c.Limits, err = c.Limits.withDefaults()
	return c, err
}

// signedAt is the time that a signature carries. The clock of a simulation runs ahead, and receivers hold the time to theirs.
func (c *Config) signedAt() time.Time {
	if c.Simulated {
		return time.Now()
	}
	return c.Now()
}

// Manager holds the live calls of this process and the nodes that carry them.
type Manager struct {
	cfg   Config
	log   *slog.Logger
	media *mediaStore
	board *board
	rooms *rooms
	// outage holds what the database does not take.
	outage *outage
	// load measures what there is to do.
	load *load
	// trunks is what is known of them when the database is not there to be asked.
	trunks *trunkBook
	// overflow dials what waits for room under limits.
	overflow *overflow

	// ctx ends when the sessions must stop at once; hangUp is closed when they must end their calls.
	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex
	stopping  bool // no call is taken any more
	stopped   bool // nothing is begun any more
	nodes     map[string]*node
	unheld    map[string]*node  // that the watchdog looks after: no controller holds them
	berths    map[string]*berth // of nodes, by id: all of nodes, and those of other controllers that were connected when last seen
	dialing   map[string]bool   // calls of other controllers whose dialling is being claimed
	polling   bool
	byCall    map[string]*session
	byChannel map[string]*session
	byLeg     map[string]*session // of the parties that dial actions call
	idle      chan struct{}       // closed when the manager stops and holds no session

	work    sync.WaitGroup
	looking sync.Mutex   // held by who looks for strays and acts on them
	stuck   atomic.Int64 // channels that switches list and do not have
}

// NewManager checks the configuration. It starts nothing.
func NewManager(cfg Config) (*Manager, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Manager{
		cfg: cfg, log: cfg.Logger,
		nodes: map[string]*node{}, unheld: map[string]*node{}, byCall: map[string]*session{}, byChannel: map[string]*session{}, byLeg: map[string]*session{},
		berths: map[string]*berth{}, dialing: map[string]bool{}, idle: make(chan struct{}),
	}
	m.media = newMediaStore(cfg)
	m.board, m.rooms, m.outage, m.trunks = newBoard(), newRooms(), newOutage(m), newTrunkBook(cfg.Store)
	m.load, m.overflow = newLoad(cfg.Limits), newOverflow(m)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// Start lets the manager take calls, and carry out what other controllers accept for its own. Calls that an earlier process left in
// the database are dealt with when their node connects, see HandleUp.
func (m *Manager) Start(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopping {
		return ErrStopping
	}
	if m.polling {
		return nil
	}
	m.polling = true
	if m.cfg.Remote != nil {
		m.work.Go(func() { m.errands(m.ctx) })
	}
	m.work.Go(func() { m.commandsPoll(m.ctx) })
	m.work.Go(func() { m.watch(m.ctx) })
	m.work.Go(func() { m.overflow.run(m.ctx) })
	return nil
}

// Stop takes no more calls and leaves the live ones to the next controller of their nodes: what is under way with the database is
// finished, and nothing is sent to a switch any more. With Config.HangUpAtStop it hangs them up instead and waits until each has had
// its terminal event. When ctx ends first, what is left is abandoned. Stop may be called more than once.
func (m *Manager) Stop(ctx context.Context) error {
	m.mu.Lock()
	first := !m.stopping
	m.stopping = true
	if first && len(m.byChannel) == 0 {
		close(m.idle)
	}
	m.mu.Unlock()

	last := message{leave: true}
	if m.cfg.HangUpAtStop {
		last = message{ending: &intent{reason: ReasonShutdown, source: SourcePlatform, status: StatusFailed, cause: causeTempFailure, sip: http.StatusServiceUnavailable}}
	}
	for _, s := range m.sessions() {
		s.box.put(last)
	}
	var err error
	select {
	case <-m.idle:
	case <-ctx.Done():
		if m.LiveCalls() == 0 {
			break
		}
		err = fmt.Errorf("stop the calls: %d left to the next controller: %w", len(m.sessions()), ctx.Err())
	}
	m.cancel()
	m.mu.Lock()
	m.stopped = true
	nodes := m.nodes
	m.nodes = map[string]*node{}
	m.mu.Unlock()
	for _, n := range nodes {
		n.close()
	}
	m.work.Wait()
	m.media.clear()
	return err
}

// AddNode gives the manager a media node. row.LeaseToken is the token of this controller's lease: the fence of everything that is
// written about the node's calls, see models.Call.Fence. The handler that AddNode returns must receive the node's events; esl's
// rules for a Handler hold for it.
func (m *Manager) AddNode(row models.Node, sw Switch) esl.Handler {
	n := newNode(m, row, sw)
	m.mu.Lock()
	old := m.nodes[row.ID]
	m.nodes[row.ID] = n
	m.takeBerth(&n.row)
	m.mu.Unlock()
	if old != nil {
		old.close()
	}
	m.goWork(func() { m.media.sweep(m.cfg.mediaDir(row)) })
	return n
}

// RemoveNode takes a node away. Its calls end as lost: nobody steers them any more.
func (m *Manager) RemoveNode(nodeID string) {
	m.mu.Lock()
	n := m.nodes[nodeID]
	delete(m.nodes, nodeID)
	m.mu.Unlock()
	if n == nil {
		return
	}
	n.close()
	n.lose()
}

// ReleaseNode lets go of a node that is another controller's now, or is about to be. Its calls live on: their sessions leave them,
// and ReleaseNode waits for that until ctx ends.
func (m *Manager) ReleaseNode(ctx context.Context, nodeID string) {
	m.mu.Lock()
	n := m.nodes[nodeID]
	delete(m.nodes, nodeID)
	m.mu.Unlock()
	if n == nil {
		return
	}
	n.close()
	defer m.media.leave(m.cfg.mediaDir(n.row))
	var leaving []*session
	for _, s := range m.sessions() {
		if s.node == n {
			s.box.put(message{leave: true})
			leaving = append(leaving, s)
		}
	}
	for i, s := range leaving {
		select {
		case <-s.gone:
		case <-ctx.Done():
			n.log.Warn("sessions of a node that was let go are not done", "calls", len(leaving)-i, "error", ctx.Err())
			return
		}
	}
}

// LiveCalls returns how many calls have a session in this process.
func (m *Manager) LiveCalls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.byChannel)
}

// register makes a session known by its channel, and by its call if it has one. It reports an error when the manager is stopping, full, or has a session for
// the channel already.
func (m *Manager) register(s *session) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.stopping:
		return ErrStopping
	case s.node.shut():
		return ErrNoNode // removed in this moment: its sessions have been told that it is lost
	case !s.adopted && len(m.byChannel) >= m.cfg.Limits.Calls:
		return fmt.Errorf("%w: %d calls are live", ErrOverloaded, len(m.byChannel))
	case m.byChannel[s.channel] != nil:
		return errKnownChannel
	case s.call != nil && m.byCall[s.call.ID] != nil:
		return errKnownCall
	}
	m.byChannel[s.channel] = s
	if s.call != nil {
		m.byCall[s.call.ID] = s
	}
	m.work.Add(1)
	return nil
}

// nameCall makes a session that got its call after it was registered known by the call's id.
func (m *Manager) nameCall(s *session, callID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byCall[callID] = s
}

// unnameCall undoes nameCall for a call that was not stored.
func (m *Manager) unnameCall(callID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byCall, callID)
}

// forget undoes register.
func (m *Manager) forget(s *session) {
	unread := s.box.discard()
	declineOffers(unread)
	for _, message := range unread {
		if message.held != "" { // the balance notice came as the call ended
			m.media.release([]string{message.held})
		}
	}
	m.overflow.ended()
	m.mu.Lock()
	defer m.mu.Unlock()
	close(s.gone)
	delete(m.byChannel, s.channel)
	if s.call != nil && m.byCall[s.call.ID] == s {
		delete(m.byCall, s.call.ID)
	}
	if m.stopping && len(m.byChannel) == 0 {
		select {
		case <-m.idle:
		default:
			close(m.idle)
		}
	}
	m.work.Done()
}

// A session is there already.
var (
	errKnownChannel = errors.New("the channel has a session")
	errKnownCall    = errors.New("the call has a session")
)

// nameLeg routes the events of a dialled party to a session.
func (m *Manager) nameLeg(s *session, channel string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byLeg[channel] = s
}

func (m *Manager) forgetLeg(channel string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byLeg, channel)
}

// channelSession returns the session that a channel belongs to, as its call's own or as a dialled party.
func (m *Manager) channelSession(channel string) *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.byChannel[channel]; s != nil {
		return s
	}
	return m.byLeg[channel]
}

func (m *Manager) callSession(callID string) *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byCall[callID]
}

func (m *Manager) sessions() []*session {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*session, 0, len(m.byChannel))
	for _, s := range m.byChannel {
		all = append(all, s)
	}
	return all
}

// goWork runs fn on a goroutine that Stop waits for, and reports false when the manager has stopped. While calls drain, work
// still begins: what calls in must be refused.
func (m *Manager) goWork(fn func()) bool {
	m.mu.Lock()
	if m.stopped {
		m.mu.Unlock()
		return false
	}
	m.work.Add(1)
	m.mu.Unlock()
	go func() {
		defer m.work.Done()
		fn()
	}()
	return true
}
