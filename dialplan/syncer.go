package dialplan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"tandem/esl"
	"tandem/models"
	"tandem/sipprobe"
)

// ErrUnknownNode is the answer to a question about a node that was not added.
var ErrUnknownNode = errors.New("dialplan: node is not known")

// Store is what the package needs of the database; *models.Store is one.
type Store interface {
	AllTrunks(ctx context.Context) ([]models.Trunk, error)
	TrunkRevision(ctx context.Context) (string, error)
	DIDShards(ctx context.Context) (map[string]int64, error)
	DIDSums(ctx context.Context) (map[string]models.DIDSum, error)
	DIDsOfShards(ctx context.Context, shards []string, fn func(shard string, dids []models.DID) error) error
	TrunkByAddress(ctx context.Context, ip netip.Addr) (*models.Trunk, error)
	RecordStrangers(ctx context.Context, nodeID string, reports []models.StrangerReport, rules models.BlockRules) ([]models.Block, []models.StrangerReport, error)
	BlockRevision(ctx context.Context) (string, error)
	BlockedNetworks(ctx context.Context) ([]netip.Prefix, error)
	BlockOf(ctx context.Context, ip netip.Addr) (*models.Block, error)
	RecordGateways(ctx context.Context, reports []models.GatewayReport, changed models.OnRegistration) error
	EndRegistrations(ctx context.Context, nodeID string, at time.Time, changed models.OnRegistration) error
	TellRegistrations(ctx context.Context, nodeIDs []string, at time.Time, changed models.OnRegistration) error
	DropGatewayStatuses(ctx context.Context, nodeID string, until time.Time) error
	GatewayStatusesOf(ctx context.Context, trunkID string) ([]models.GatewayStatus, error)
	Now() time.Time
}

// Config is what a Syncer needs.
type Config struct {
	Store     Store
	Providers []netip.Prefix // networks of the operator's providers, whose addresses may call any DID
	Profile   string         // SIP profile of the gateways; "external" when empty
	Logger    *slog.Logger
	Coalesce  time.Duration // how long changes gather before they are applied; 50 ms when zero
	Poll      time.Duration // how often database and gateways are looked at unasked, and every tenth time all rows and files; 30 s when zero
	Timeout   time.Duration // limit of one synchronisation of one node; 2 min when zero
	// OnRegistration is called in the transaction that stores that a trunk registered at a node, or that its registration there
	// has ended and stayed away, see models.RegistrationEnds. It may run more than once for a change that is stored once.
	OnRegistration models.OnRegistration
	// Prober asks carriers for TestTrunk; one that asks no private addresses when nil.
	Prober *sipprobe.Prober
	// Exchange is where remote nodes (models.DeliveryXMLCurl) fetch their files; without one they get none.
	Exchange *Exchange
	// Drifts keeps what is found of nodes that are not as they should be; without it that is logged only.
	Drifts Drifts
	// Blocks say when an address that calls uninvited is blocked; none ever is by the zero value. Their Providers are those of this configuration.
	Blocks models.BlockRules
}

// Syncer keeps the nodes' files and their switches as the database says.
type Syncer struct {
	store     Store
	catalogue *catalogue
	profile   string
	logger    *slog.Logger
	coalesce  time.Duration
	interval  time.Duration
	timeout   time.Duration
	statuses  *statusBook
	announce  models.OnRegistration
	exchange  *Exchange
	drifts    Drifts
	refused   *ledger
	strangers *strangerBook
	rules     models.BlockRules
	prober    *sipprobe.Prober
	tests     testBook
	answers   answerBook
	listeners listenerBook
	changed   chan struct{}
	reported  chan struct{}

	// By follow only.
	complained []Problem
	polls      int // since all rows and files were last looked at

	mu    sync.Mutex
	nodes map[string]*node
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// NewSyncer validates the configuration. Start begins the work.
func NewSyncer(cfg Config) (*Syncer, error) {
	if cfg.Store == nil {
		return nil, errors.New("dialplan: Config.Store is required")
	}
	profile := cmp.Or(cfg.Profile, DefaultProfile)
	if !profilePattern.MatchString(profile) {
		return nil, fmt.Errorf("dialplan: Config.Profile %q is no name of a SIP profile", profile)
	}
	if _, err := providerSources(cfg.Providers); err != nil {
		return nil, fmt.Errorf("dialplan: Config.Providers: %w", err)
	}
	logger := cmp.Or(cfg.Logger, slog.Default())
	interval := cmp.Or(cfg.Poll, 30*time.Second)
	announce := cfg.OnRegistration
	if announce == nil {
		announce = func(context.Context, *models.Store, models.RegistrationChange) error { return nil }
	}
	prober := cfg.Prober
	if prober == nil {
		prober = sipprobe.New(sipprobe.Config{})
	}
	rules := cfg.Blocks
	rules.Providers = slices.Clone(cfg.Providers)
	return &Syncer{
		strangers: newStrangerBook(), rules: rules,
		store: cfg.Store, catalogue: newCatalogue(cfg.Store, slices.Clone(cfg.Providers), profile), profile: profile, logger: logger,
		coalesce: cmp.Or(cfg.Coalesce, 50*time.Millisecond), interval: interval, timeout: cmp.Or(cfg.Timeout, 2*time.Minute),
		// Polls come a little early or late.
		statuses: newStatusBook(interval * 3 / 4), announce: announce, exchange: cfg.Exchange, drifts: cfg.Drifts, refused: newLedger(logger), prober: prober,
		changed: make(chan struct{}, 1), reported: make(chan struct{}, 1),
		nodes: map[string]*node{},
	}, nil
}

// Start begins to follow the database, until ctx ends or Stop is called. A second call does nothing.
func (s *Syncer) Start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		return
	}
	ctx, s.stop = context.WithCancel(ctx)
	s.done.Go(func() { s.follow(ctx) })
	s.done.Go(func() { s.record(ctx) })
	s.done.Go(func() { s.guard(ctx) })
	s.Changed()
}

// Stop ends the work and waits for it; what is being written to disk is finished first.
func (s *Syncer) Stop() {
	s.mu.Lock()
	stop := s.stop
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
	s.done.Wait()
}

// AddNode takes a node on, or takes its new configuration directory and connection. Its files are synchronised at once. What
// the database says of its gateways is forgotten until its switch has said it to us.
func (s *Syncer) AddNode(added models.Node, control Switch) {
	taken := &node{id: added.ID, folder: folder{added.ConfDir}, control: control, profile: s.profile, fresh: true}
	if added.Remote() {
		taken.folder, taken.copy = nowhere{}, s.remote(added, control)
	}
	s.mu.Lock()
	s.nodes[added.ID] = taken
	s.mu.Unlock()
	s.lose(added.ID)
	s.Changed()
}

// RemoveNode lets a node go, with its files as they are. It waits for a synchronisation that is going on.
func (s *Syncer) RemoveNode(nodeID string) {
	s.mu.Lock()
	removed := s.nodes[nodeID]
	delete(s.nodes, nodeID)
	s.mu.Unlock()
	if removed != nil {
		removed.mu.Lock()
		defer removed.mu.Unlock()
		removed.gone = true
	}
	s.statuses.forget(nodeID)
}

// Changed says that trunks or numbers changed. It returns at once; changes that come close together are applied together.
func (s *Syncer) Changed() { signal(s.changed) }

// HandleUp says that the node's switch is connected: it is told everything, since it may be another process than before.
func (s *Syncer) HandleUp(nodeID string) {
	s.mu.Lock()
	up := s.nodes[nodeID]
	s.mu.Unlock()
	if up == nil {
		return
	}
	up.renewed.Store(true)
	s.Changed()
}

// HandleDown says that the node's switch is away: nobody knows the state of its gateways. It never waits.
func (s *Syncer) HandleDown(nodeID string) {
	s.mu.Lock()
	down := s.nodes[nodeID]
	s.mu.Unlock()
	if down != nil {
		s.lose(nodeID)
	}
}

func (s *Syncer) lose(nodeID string) {
	s.answers.forget(nodeID)
	s.statuses.lose(nodeID, s.store.Now())
	signal(s.reported)
}

// event is what is read of an *esl.Event.
type event interface {
	Name() string
	Subclass() string
	Get(header string) string
}

// HandleEvent takes the node's events: sofia::gateway_state for the status of trunks, CHANNEL_HANGUP_COMPLETE to count
// refused calls, and those of the channels of TestTrunk. It never waits.
func (s *Syncer) HandleEvent(nodeID string, e *esl.Event) { s.handle(nodeID, e) }

func (s *Syncer) handle(nodeID string, e event) {
	s.listeners.hear(e)
	switch {
	case e.Name() == "CHANNEL_HANGUP_COMPLETE":
		if reason := s.refused.note(nodeID, e); reason != "" {
			s.strangers.note(nodeID, reason, e, s.store.Now())
		}
	case e.Name() == "CUSTOM" && e.Subclass() == "sofia::gateway_state":
		s.answers.note(nodeID, e, s.store.Now())
		if s.statuses.report(nodeID, e.Get("Gateway"), e.Get("State"), e.Get("Ping-Status"), s.store.Now()) {
			signal(s.reported)
		}
	}
}

// Refused counts the calls that the nodes' dialplans refused since the start, by reason.
func (s *Syncer) Refused() map[Refusal]uint64 { return s.refused.snapshot() }

// Sync renders and brings one node up to date, whatever was there before, and tells what changed. An error leaves the node's files as they were, or,
// when it came from the switch, complete and to be told again.
func (s *Syncer) Sync(ctx context.Context, nodeID string) (Report, error) {
	s.mu.Lock()
	n := s.nodes[nodeID]
	s.mu.Unlock()
	if n == nil {
		return Report{NodeID: nodeID}, fmt.Errorf("synchronise node %q: %w", nodeID, ErrUnknownNode)
	}
	rendering, err := s.render(ctx, true)
	if err != nil {
		return Report{NodeID: nodeID}, fmt.Errorf("synchronise node %q: %w", nodeID, err)
	}
	n.doubt()
	return n.sync(ctx, rendering)
}

// render reads of the database what changed, or looks at all of it.
func (s *Syncer) render(ctx context.Context, whole bool) (*Rendering, error) {
	rendering, err := s.catalogue.render(ctx, whole)
	if err != nil {
		return nil, err
	}
	s.statuses.setGateways(rendering.Gateways)
	return rendering, nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
