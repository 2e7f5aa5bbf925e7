package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tandem/esl"
	"tandem/models"
)

const (
	// checkTimeout bounds the asking whether a node is still ours, renewTimeout that of the database.
	checkTimeout = 2 * time.Second
	renewTimeout = time.Second
	// awayFor is how long no command waits for a database that did not answer: the keeper goes on asking it.
	awayFor = 2 * time.Second
	// switchWord is how long the word of the switch counts that it is ours, while the database cannot be asked. handOverGrace is how
	// long a controller waits after it has written its token, before it commands: longer than any word counts.
	switchWord    = 100 * time.Millisecond
	handOverGrace = 150 * time.Millisecond
)

// hold is this controller's lease of a node, and the fence of all commands to it. Two witnesses say whose the node is: its row in
// the database and, for as long as the database is away from us, the variable in the switch into which each controller writes
// its token when it takes the node. Time is that of the monotonic clock, which goes on while a process is paused: a process
// that wakes up late finds its lease over before it sends anything.
type hold struct {
	store  *models.Store
	node   string
	name   string
	owner  string
	token  int64
	lease  time.Duration
	logger *slog.Logger
	// conn is the way to the switch, safe whether it is connected and may be steered.
	conn *esl.Node
	safe *atomic.Bool
	// tell is called when the node turns out to be another controller's. It does not block.
	tell func()

	began time.Time
	until atomic.Int64 // nanoseconds after began
	lost  atomic.Bool
	// due asks for a renewal now.
	due chan struct{}
	// away is until when the database is not asked again before a command, nanoseconds after began.
	away atomic.Int64
	// above is the token in the switch, where that was greater than ours.
	above atomic.Int64

	mu      sync.Mutex
	checked chan struct{} // of the check that runs, closed at its end
	result  error         // of the last check
}

var _ esl.Fence = (*hold)(nil)

// errAway: the database did not answer a moment ago.
var errAway = errors.New("the database was away a moment ago")

// newHold is a lease that was asked for at a moment and lasts from there.
func newHold(asked time.Time, lease time.Duration) *hold {
	h := &hold{began: asked, lease: lease, tell: func() {}, due: make(chan struct{}, 1)}
	h.extend(asked.Add(h.length()))
	return h
}

// length is how long we count on a lease: less than the others leave us.
func (h *hold) length() time.Duration { return h.lease - h.lease/10 }

func (h *hold) extend(until time.Time) { h.until.Store(int64(until.Sub(h.began))) }

// Held implements esl.Fence.
func (h *hold) Held() bool { return int64(time.Since(h.began)) < h.until.Load() && !h.lost.Load() }

// Check implements esl.Fence. Of several at once, one asks.
func (h *hold) Check(ctx context.Context) error {
	h.mu.Lock()
	running := h.checked
	if running == nil {
		running = make(chan struct{})
		h.checked = running
		h.mu.Unlock()
		err := h.ask(context.WithoutCancel(ctx))
		h.mu.Lock()
		h.result, h.checked = err, nil
		h.mu.Unlock()
		close(running)
		return err
	}
	h.mu.Unlock()
	select {
	case <-running:
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.result
	case <-ctx.Done():
		return fmt.Errorf("check whose node %s is: %w", h.name, context.Cause(ctx))
	}
}

// ask finds out whose the node is.
func (h *hold) ask(ctx context.Context) error {
	if h.lost.Load() {
		return esl.ErrFenced
	}
	if h.Held() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	away := h.reach(ctx)
	if away == nil || errors.Is(away, esl.ErrFenced) {
		return away
	}
	asked := time.Now()
	token, err := h.conn.Controller(ctx)
	switch {
	case err != nil:
		// As if the node were away: what is to be sent waits.
		return fmt.Errorf("whose node %s is cannot be known: %w; %w; %w", h.name, esl.ErrDown, away, err)
	case token != h.token && token != 0:
		return h.lose("the switch says that another controller has taken it")
	}
	h.extend(asked.Add(switchWord))
	return nil
}

// reach renews the lease, unless the database was away a moment ago.
func (h *hold) reach(ctx context.Context) error {
	if int64(time.Since(h.began)) < h.away.Load() {
		return errAway
	}
	return h.renew(ctx)
}

// renew asks the database for another length of the lease.
func (h *hold) renew(ctx context.Context) error {
	// It counts from before the statement was sent: by our clock it is never longer than by the database's.
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	err := h.store.RenewNode(ctx, h.node, h.owner, h.token, h.lease, h.safe.Load())
	if errors.Is(err, models.ErrStale) {
		return h.lose("another controller has its lease")
	}
	if err != nil {
		h.away.Store(int64(time.Since(h.began) + awayFor))
		return fmt.Errorf("renew node %s: %w", h.name, err)
	}
	h.away.Store(0)
	h.extend(asked.Add(h.length()))
	return nil
}

// lose ends the lease for good.
func (h *hold) lose(why string) error {
	if !h.lost.Swap(true) {
		h.logger.Warn("node was taken by another controller", "node", h.name, "reason", why)
		h.tell()
	}
	return esl.ErrFenced
}

// moved has the others told that the node is connected now, or is not any more.
func (h *hold) moved() {
	select {
	case h.due <- struct{}{}:
	default:
	}
}

// keep renews the lease every third of its length, so that two renewals may fail before it runs out, until the returned function is called
// or the lease is lost. It has a goroutine of its own: whatever else the controller does for its nodes may take longer.
func (h *hold) keep(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(h.lease / 3)
		defer ticker.Stop()
		for failing := false; ; {
			select {
			case <-ticker.C:
			case <-h.due:
			case <-ctx.Done():
				return
			}
			err := h.renew(ctx)
			if errors.Is(err, esl.ErrFenced) {
				return
			}
			if err != nil && !failing && ctx.Err() == nil {
				h.logger.Warn("lease of node not renewed, trying again", "node", h.name, "error", err)
			}
			failing = err != nil
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// Claim implements esl.Fence: it writes our token into the switch. A greater token there is that of a controller that has taken the
// node after us, or of a time that the database has forgotten: the lease is then given up, and asked for anew above it.
func (h *hold) Claim(ctx context.Context, conn *esl.Claim) error {
	asked := time.Now()
	before, err := conn.Controller(ctx)
	if err != nil {
		return fmt.Errorf("read the controller of node %s: %w", h.name, err)
	}
	if before > h.token {
		h.above.Store(before)
		return h.lose("the switch has the token of a later controller")
	}
	if !h.Held() && h.reach(ctx) != nil && (before == h.token || before == 0) {
		h.extend(asked.Add(switchWord)) // as in ask: the database is away, and the switch knows of no other
	}
	if err := conn.Take(ctx, h.token); err != nil {
		return fmt.Errorf("take control of node %s: %w", h.name, err)
	}
	if before == 0 || before == h.token {
		return nil
	}
	timer := time.NewTimer(handOverGrace)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("take control of node %s: %w", h.name, ctx.Err())
	}
}
