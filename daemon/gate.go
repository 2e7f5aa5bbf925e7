package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"tandem/esl"
)

const (
	// gateEvery is how often it is looked whether calls are taken: how soon the dialplans follow.
	gateEvery = 250 * time.Millisecond
	// gateTimeout bounds the commands to one node.
	gateTimeout = 2 * time.Second
	// defaultAccept is how long a node takes calls without word from its controller.
	defaultAccept = 10 * time.Second
	// gateRest is how long calls are refused at least, so that a controller at its limit does not flutter.
	gateRest = time.Second
)

// door is the part of a node's connection that lets calls in.
type door interface {
	AcceptCalls(ctx context.Context, lasting time.Duration, previous string) (task string, err error)
	RefuseCalls(ctx context.Context) error
}

var _ door = (*esl.Node)(nil)

// entrance is one node's variable that says whether its dialplan takes calls. Only a controller that says so again and again
// keeps it open: a dead one, or one that has lost the node, is noticed by the switch itself.
type entrance struct {
	conn    door
	lasting time.Duration // without word from us

	mu      sync.Mutex
	known   bool // the switch has been told since it was connected
	open    bool
	task    string // of the switch, that closes it
	renewed time.Time
	closed  time.Time
}

// reset forgets what the switch was told: it is not connected, and may be another when it is.
func (e *entrance) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known, e.open, e.task = false, false, ""
}

// keep makes the entrance open where there is nothing against it, and closed otherwise. It reports whether that is a change.
func (e *entrance) keep(ctx context.Context, against error) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	e.mu.Lock()
	defer e.mu.Unlock()
	if against != nil {
		if e.known && !e.open {
			e.closed = time.Now()
			return false, nil
		}
		if err := e.conn.RefuseCalls(ctx); err != nil {
			return false, err
		}
		changed = e.open
		e.known, e.open, e.closed = true, false, time.Now()
		return changed, nil
	}
	if e.open && time.Since(e.renewed) < e.lasting/3 || !e.open && time.Since(e.closed) < gateRest {
		return false, nil
	}
	task, err := e.conn.AcceptCalls(ctx, e.lasting, e.task)
	if err != nil {
		e.task = "" // it is not known what the switch has scheduled
		return false, err
	}
	changed = !e.open
	e.known, e.open, e.task, e.renewed = true, true, task, time.Now()
	return changed, nil
}

// gate keeps the entrances of all nodes that this controller steers as its load and its database allow, and those shut that drain.
type gate struct {
	nodes func() []*heldNode
	// against says why no calls are taken, nil when they are.
	against func() error
	logger  *slog.Logger
	cancel  context.CancelFunc
	done    chan struct{}
}

// start looks now and then every moment until stop.
func (g *gate) start(ctx context.Context) {
	ctx, g.cancel = context.WithCancel(ctx)
	g.done = make(chan struct{})
	go func() {
		defer close(g.done)
		ticker := time.NewTicker(gateEvery)
		defer ticker.Stop()
		for refusing := false; ; {
			err := g.against()
			if err != nil && !refusing {
				g.logger.Warn("calls are refused", "error", err)
			}
			if err == nil && refusing {
				g.logger.Info("calls are taken again")
			}
			refusing = err != nil
			g.keep(ctx, err)
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// keep tells the nodes, at the same time: one that does not answer holds up no other for long.
func (g *gate) keep(ctx context.Context, against error) {
	var telling sync.WaitGroup
	for _, held := range g.nodes() {
		if !held.safe.Load() {
			continue
		}
		telling.Go(func() {
			if _, err := held.drainage.keep(ctx); err != nil && ctx.Err() == nil {
				g.logger.Debug("node not told whether it drains", "node", held.row.Name, "error", err)
			}
			if _, err := held.entrance.keep(ctx, against); err != nil && ctx.Err() == nil {
				g.logger.Debug("node not told whether it takes calls", "node", held.row.Name, "error", err)
			}
		})
	}
	telling.Wait()
}

// stop leaves the entrances as they are: the next controller keeps them open, and without one they close by themselves.
func (g *gate) stop(context.Context) error {
	g.cancel()
	<-g.done
	return nil
}
