package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"tandem/calls"
	"tandem/dialplan"
	"tandem/esl"
	"tandem/models"
)

// nodeKeeper holds the leases of nodes: it takes the nodes that nobody holds, steers them, renews, and lets go of the
// ones that were removed or that it could not renew in time. One controller steers a node at a time (DESIGN §1).
type nodeKeeper struct {
	store   *models.Store
	manager *calls.Manager
	syncer  *dialplan.Syncer
	owner   string
	lease   time.Duration
	logger  *slog.Logger

	cancel context.CancelFunc
	done   chan struct{}
	// looked is closed after the first look.
	looked chan struct{}

	mu   sync.Mutex
	held map[string]*heldNode
}

// heldNode is a node whose lease is ours.
type heldNode struct {
	row     models.Node
	token   int64
	renewed time.Time
	conn    *esl.Node
}

func newNodeKeeper(store *models.Store, manager *calls.Manager, syncer *dialplan.Syncer, owner string, lease time.Duration, logger *slog.Logger) *nodeKeeper {
	return &nodeKeeper{
		store: store, manager: manager, syncer: syncer, owner: owner, lease: lease, logger: logger,
		done: make(chan struct{}), looked: make(chan struct{}), held: map[string]*heldNode{},
	}
}

// start looks for nodes now and then every third of a lease, so that two renewals may fail before the lease is lost.
func (k *nodeKeeper) start(ctx context.Context) {
	ctx, k.cancel = context.WithCancel(ctx)
	go func() {
		defer close(k.done)
		ticker := time.NewTicker(k.lease / 3)
		defer ticker.Stop()
		for first := true; ; first = false {
			if err := k.look(ctx); err != nil && ctx.Err() == nil {
				k.logger.Error("cannot look after the nodes", "error", err)
			}
			if first {
				close(k.looked)
			}
			select {
			case <-ticker.C:
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
	k.mu.Lock()
	defer k.mu.Unlock()
	var failures []error
	for id, held := range k.held {
		k.drop(held)
		delete(k.held, id)
		if err := k.store.ReleaseNode(ctx, id, k.owner, held.token); err != nil {
			failures = append(failures, fmt.Errorf("release node %s: %w", held.row.Name, err))
		}
	}
	return errors.Join(failures...)
}

// look renews what is held, takes what is free, and drops what is gone.
func (k *nodeKeeper) look(ctx context.Context) error {
	rows, err := k.store.Nodes(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.dropOverdue()
		return fmt.Errorf("read the nodes: %w", err)
	}
	wanted := make(map[string]bool, len(rows))
	var failures []error
	for i := range rows {
		row := rows[i]
		if !row.IsActive {
			continue
		}
		wanted[row.ID] = true
		if err := k.keep(ctx, row); err != nil {
			failures = append(failures, err)
		}
	}
	for id, held := range k.held {
		if !wanted[id] {
			k.logger.Info("node was removed", "node", held.row.Name)
			k.drop(held)
			delete(k.held, id)
		}
	}
	k.dropOverdue()
	return errors.Join(failures...)
}

// keep renews or takes one node's lease.
func (k *nodeKeeper) keep(ctx context.Context, row models.Node) error {
	held := k.held[row.ID]
	if held != nil && (held.row.ESLAddr != row.ESLAddr || held.row.Password != row.Password || held.row.ConfDir != row.ConfDir) {
		k.logger.Info("node has moved", "node", row.Name, "esl_addr", row.ESLAddr)
		k.drop(held)
		delete(k.held, row.ID)
		if err := k.store.ReleaseNode(ctx, row.ID, k.owner, held.token); err != nil {
			return fmt.Errorf("release node %s: %w", row.Name, err)
		}
		held = nil
	}
	// The lease counts from before the statement was sent: by our clock it is never longer than by the database's.
	asked := time.Now()
	if held != nil {
		err := k.store.RenewNode(ctx, row.ID, k.owner, held.token, k.lease, held.conn.Up())
		if errors.Is(err, models.ErrStale) {
			k.logger.Warn("node was taken by another controller", "node", row.Name)
			k.drop(held)
			delete(k.held, row.ID)
			return nil
		}
		if err != nil {
			return fmt.Errorf("renew node %s: %w", row.Name, err)
		}
		held.renewed = asked
		return nil
	}
	token, ok, err := k.store.AcquireNode(ctx, row.ID, k.owner, k.lease, 0)
	if err != nil {
		return fmt.Errorf("take node %s: %w", row.Name, err)
	}
	if !ok {
		return nil
	}
	held = &heldNode{row: row, token: token, renewed: asked}
	if err := k.steer(ctx, held); err != nil {
		return errors.Join(fmt.Errorf("steer node %s: %w", row.Name, err), k.store.ReleaseNode(ctx, row.ID, k.owner, token))
	}
	k.held[row.ID] = held
	k.logger.Info("node taken", "node", row.Name, "esl_addr", row.ESLAddr)
	return nil
}

// steer connects to a node and hands it to the calls and the dialplan.
func (k *nodeKeeper) steer(ctx context.Context, held *heldNode) error {
	steering := &steering{node: held.row.ID, name: held.row.Name, syncer: k.syncer, store: k.store, logger: k.logger}
	conn, err := esl.NewNode(esl.Config{
		Name: held.row.Name, Addr: held.row.ESLAddr, Password: string(held.row.Password), Handler: steering, Logger: k.logger,
		CoreUUID: held.row.CoreUUID,
	})
	if err != nil {
		return err
	}
	held.conn, steering.conn = conn, conn
	steering.calls = k.manager.AddNode(held.row, conn)
	k.syncer.AddNode(held.row, conn)
	if err := conn.Start(ctx); err != nil {
		k.drop(held)
		return err
	}
	return nil
}

// drop lets go of a node: nothing of ours reaches it afterwards. Its calls stay up on the switch.
func (k *nodeKeeper) drop(held *heldNode) {
	held.conn.Stop()
	k.syncer.RemoveNode(held.row.ID)
	k.manager.RemoveNode(held.row.ID)
}

// dropOverdue lets go of nodes whose lease may have run out: from here on another controller may steer them.
func (k *nodeKeeper) dropOverdue() {
	for id, held := range k.held {
		if time.Since(held.renewed) >= k.lease {
			k.logger.Error("node lease ran out", "node", held.row.Name)
			k.drop(held)
			delete(k.held, id)
		}
	}
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
