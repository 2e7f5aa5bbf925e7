package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tandem/calls"
	"tandem/dialplan"
	"tandem/esl"
	"tandem/metrics"
	"tandem/models"
)

const (
	// lookInterval is how often the nodes are looked at: how soon one is taken that was given back.
	lookInterval = 250 * time.Millisecond
	// leaveTimeout bounds the leaving of a node's sessions.
	leaveTimeout = 5 * time.Second
)

// nodeKeeper holds the leases of nodes: it takes the nodes that nobody holds, steers them, renews, and lets go of the
// ones that were removed or that another controller has taken. One controller steers a node at a time (DESIGN §1).
type nodeKeeper struct {
	store   *models.Store
	manager *calls.Manager
	syncer  *dialplan.Syncer
	owner   string
	lease   time.Duration
	logger  *slog.Logger
	// against says why no calls are taken, nil when they are; acceptFor is how long a node takes them without word from us.
	against   func() error
	acceptFor time.Duration
	metrics   *metrics.Metrics

	cancel context.CancelFunc
	done   chan struct{}
	// orders are being carried out, by id.
	orders   map[string]bool
	carrying sync.WaitGroup
	// looked is closed after the first look, wake makes the next one come now.
	looked chan struct{}
	wake   chan struct{}

	mu   sync.Mutex
	held map[string]*heldNode
	// missed is when the database last did not answer.
	missed time.Time
	// floors are tokens that switches have had and the database has forgotten, by node.
	floors map[string]int64
}

// heldNode is a node whose lease is ours.
type heldNode struct {
	*hold
	row      models.Node
	entrance *entrance
	drainage *drainage
	vital    *vital
	weight   atomic.Int64 // as the database last had it
	// rest ends the renewals.
	rest func()
}

func newNodeKeeper(store *models.Store, manager *calls.Manager, syncer *dialplan.Syncer, owner string, lease time.Duration, logger *slog.Logger) *nodeKeeper {
	return &nodeKeeper{
		store: store, manager: manager, syncer: syncer, owner: owner, lease: lease, logger: logger,
		against: func() error { return nil }, acceptFor: defaultAccept, metrics: metrics.New(ThisBuild().Version),
		done: make(chan struct{}), looked: make(chan struct{}), wake: make(chan struct{}, 1), held: map[string]*heldNode{}, orders: map[string]bool{}, floors: map[string]int64{},
	}
}

// start looks for nodes now and again and again.
func (k *nodeKeeper) start(ctx context.Context) {
	ctx, k.cancel = context.WithCancel(ctx)
	go func() {
		defer close(k.done)
		ticker := time.NewTicker(min(lookInterval, k.lease/3))
		defer ticker.Stop()
		failing := false
		for first := true; ; first = false {
			err := k.look(ctx)
			if err != nil && ctx.Err() == nil && !failing {
				k.logger.Error("cannot look after the nodes", "error", err)
			}
			failing = err != nil
			if first {
				close(k.looked)
			}
			select {
			case <-ticker.C:
			case <-k.wake:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// stop releases every node, so that another controller takes them without waiting for the leases to run out.
func (k *nodeKeeper) stop(ctx context.Context) error {
	k.cancel()
	<-k.done
	k.carrying.Wait()
	k.mu.Lock()
	held := make([]*heldNode, 0, len(k.held))
	for _, h := range k.held {
		held = append(held, h)
	}
	k.held = map[string]*heldNode{}
	k.mu.Unlock()
	failures := make([]error, len(held))
	var releasing sync.WaitGroup
	for i, h := range held {
		releasing.Go(func() { failures[i] = k.release(ctx, h) })
	}
	releasing.Wait()
	return errors.Join(failures...)
}

// release lets go of a node and gives its lease back.
func (k *nodeKeeper) release(ctx context.Context, held *heldNode) error {
	k.letGo(ctx, held)
	err := k.store.ReleaseNode(ctx, held.row.ID, k.owner, held.token)
	if err != nil && !errors.Is(err, models.ErrStale) {
		return fmt.Errorf("release node %s: %w", held.row.Name, err)
	}
	k.logger.Info("node released", "node", held.row.Name)
	return nil
}

// look takes what is free, and drops what is gone.
func (k *nodeKeeper) look(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	rows, err := k.store.Nodes(asking)
	if err != nil {
		k.missed = time.Now()
		return errors.Join(fmt.Errorf("read the nodes: %w", err), k.outlast(ctx))
	}
	free, err := k.store.FreeNodes(asking, k.owner)
	if err != nil {
		k.missed = time.Now()
		return errors.Join(err, k.outlast(ctx))
	}
	wanted := make(map[string]bool, len(rows))
	var failures []error
	for i := range rows {
		row := rows[i]
		if !row.IsActive {
			continue
		}
		wanted[row.ID] = true
		if err := k.keep(ctx, row, slices.Contains(free, row.ID)); err != nil {
			failures = append(failures, err)
		}
	}
	if err := k.takeOrders(asking, ctx); err != nil {
		failures = append(failures, err)
	}
	for _, held := range k.all() {
		if wanted[held.row.ID] {
			continue
		}
		k.logger.Info("node was removed", "node", held.row.Name)
		k.forget(held)
		k.drop(held)
		if err := k.store.ReleaseNode(ctx, held.row.ID, k.owner, held.token); err != nil && !errors.Is(err, models.ErrStale) && !errors.Is(err, models.ErrNotFound) {
			failures = append(failures, fmt.Errorf("release node %s: %w", held.row.Name, err))
		}
	}
	return errors.Join(failures...)
}

// outlast keeps the nodes while the database is away from us, as long as their switches say that they are ours: nobody who
// reaches the database takes one without writing into its switch.
func (k *nodeKeeper) outlast(ctx context.Context) error {
	var failures []error
	for _, held := range k.all() {
		if held.Held() {
			continue
		}
		err := held.Check(ctx)
		if errors.Is(err, esl.ErrFenced) {
			k.forget(held)
			k.letGo(ctx, held)
			continue
		}
		if err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (k *nodeKeeper) all() []*heldNode {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*heldNode, 0, len(k.held))
	for _, held := range k.held {
		all = append(all, held)
	}
	return all
}

func (k *nodeKeeper) holding(nodeID string) *heldNode {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held[nodeID]
}

func (k *nodeKeeper) forget(held *heldNode) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, held.row.ID)
}

// keep looks after one node: takes it where it is free, and lets go of it where it was lost.
func (k *nodeKeeper) keep(ctx context.Context, row models.Node, free bool) error {
	held := k.holding(row.ID)
	if held != nil && (held.row.ESLAddr != row.ESLAddr || held.row.Password != row.Password || held.row.ConfDir != row.ConfDir || held.row.Delivery != row.Delivery) {
		k.logger.Info("node has moved", "node", row.Name, "esl_addr", row.ESLAddr)
		k.forget(held)
		if err := k.release(ctx, held); err != nil {
			return err
		}
		held, free = nil, true
	}
	if held != nil && !held.lost.Load() {
		k.heed(held, &row)
		return nil
	}
	if held != nil {
		k.forget(held)
		k.letGo(ctx, held)
		k.floors[row.ID] = max(k.floors[row.ID], held.above.Load())
		return nil // whoever has it now; the next look tells
	}
	if !free || k.defers(row, time.Now()) {
		return nil
	}
	return k.take(ctx, row)
}

// heed notes whether the node is to take calls; the gate tells its switch.
func (k *nodeKeeper) heed(held *heldNode, row *models.Node) {
	held.weight.Store(int64(row.Weight))
	if held.drainage.wanted.Swap(row.Draining()) == row.Draining() {
		return
	}
	if row.Draining() {
		k.logger.Info("node drains: it takes no new calls", "node", row.Name, "by", row.DrainedBy, "reason", row.DrainReason)
		return
	}
	k.logger.Info("node takes calls again", "node", row.Name)
}

// defers says that a node whose lease has run out is left to its holder for now. The database was away from us a moment ago, and so it
// was from the holder perhaps, who could not renew and steers the node all the same: he comes first, and with him the changes of his calls that
// wait for the database. A new holder would know nothing of them.
func (k *nodeKeeper) defers(row models.Node, now time.Time) bool {
	return row.LeaseOwner != "" && row.LeaseOwner != k.owner && !k.missed.IsZero() && now.Sub(k.missed) < k.lease
}

// take asks for the lease of a node that looks free, and steers it.
func (k *nodeKeeper) take(ctx context.Context, row models.Node) error {
	asked := time.Now()
	token, ok, err := k.store.AcquireNode(ctx, row.ID, k.owner, k.lease, k.floors[row.ID])
	if err != nil {
		return fmt.Errorf("take node %s: %w", row.Name, err)
	}
	if !ok {
		return nil // another was faster
	}
	row.LeaseToken = token
	held := &heldNode{hold: newHold(asked, k.lease), row: row}
	held.store, held.node, held.name, held.owner, held.token, held.logger = k.store, row.ID, row.Name, k.owner, token, k.logger
	held.tell = func() {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	held.rest = held.keep(ctx)
	if err := k.steer(ctx, held); err != nil {
		held.rest()
		return errors.Join(fmt.Errorf("steer node %s: %w", row.Name, err), k.store.ReleaseNode(ctx, row.ID, k.owner, token))
	}
	k.mu.Lock()
	k.held[row.ID] = held
	k.mu.Unlock()
	k.logger.Info("node taken", "node", row.Name, "esl_addr", row.ESLAddr, "token", token)
	return nil
}

// steer connects to a node and hands it to the calls and the dialplan.
func (k *nodeKeeper) steer(ctx context.Context, held *heldNode) error {
	steering := &steering{node: held.row.ID, name: held.row.Name, hold: held.hold, syncer: k.syncer, store: k.store, logger: k.logger}
	conn, err := esl.NewNode(esl.Config{
		Name: held.row.Name, Addr: held.row.ESLAddr, Password: string(held.row.Password), Handler: steering, Logger: k.logger,
		CoreUUID: held.row.CoreUUID, Fence: held.hold, OnCommand: countCommand(k.metrics),
	})
	if err != nil {
		return err
	}
	held.conn, held.safe, steering.conn = conn, &steering.safe, conn
	held.entrance = &entrance{conn: conn, lasting: k.acceptFor}
	held.drainage, held.vital = &drainage{conn: conn}, &vital{}
	held.drainage.wanted.Store(held.row.Draining())
	held.weight.Store(int64(held.row.Weight))
	steering.metrics = k.metrics
	steering.entrance, steering.against, steering.drainage, steering.vital = held.entrance, k.against, held.drainage, held.vital
	steering.calls = k.manager.AddNode(held.row, conn)
	k.syncer.AddNode(held.row, conn)
	if err := conn.Start(ctx); err != nil {
		k.drop(held)
		return err
	}
	return nil
}

// drop lets go of a node that nobody is to steer any more: its calls end as lost.
func (k *nodeKeeper) drop(held *heldNode) {
	held.conn.Stop()
	k.syncer.RemoveNode(held.row.ID)
	k.manager.RemoveNode(held.row.ID)
	held.rest()
	k.metrics.ForgetNode(held.row.Name)
}

// letGo lets go of a node that is another controller's now, or is about to be. Its calls live on.
func (k *nodeKeeper) letGo(ctx context.Context, held *heldNode) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	k.manager.ReleaseNode(ctx, held.row.ID)
	held.conn.Stop()
	k.syncer.RemoveNode(held.row.ID)
	held.rest()
	k.metrics.ForgetNode(held.row.Name)
}

// named returns the connection of a held node, or nil.
func (k *nodeKeeper) named(name string) *esl.Node {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, held := range k.held {
		if held.row.Name == name {
			return held.conn
		}
	}
	return nil
}

// ready waits until a node is held and connected, and the dialplan and gateways are on it.
func (k *nodeKeeper) ready(ctx context.Context, name string) error {
	select {
	case <-k.looked:
	case <-ctx.Done():
		return ctx.Err()
	}
	k.mu.Lock()
	var held *heldNode
	for _, h := range k.held {
		if h.row.Name == name {
			held = h
		}
	}
	k.mu.Unlock()
	if held == nil {
		return fmt.Errorf("node %s is not ours", name)
	}
	if err := held.conn.WaitUp(ctx); err != nil {
		return fmt.Errorf("connect to node %s on %s: %w", name, held.row.ESLAddr, err)
	}
	if err := checkWalls(ctx, held.conn); err != nil {
		return fmt.Errorf("node %s is not safe: %w; see freeswitch-conf/README.md", name, err)
	}
	if _, err := k.syncer.Sync(ctx, held.row.ID); err != nil {
		return fmt.Errorf("configure node %s: %w", name, err)
	}
	return nil
}
