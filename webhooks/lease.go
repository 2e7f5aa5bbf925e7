package webhooks

import (
	"context"
	"errors"
	"sync"
	"time"

	"tandem/models"
)

const (
	// minLease keeps the heartbeat from being all that the database does.
	minLease = 10 * time.Millisecond
	// beatsPerLease lets two heartbeats fail before a lease is lost.
	beatsPerLease = 3
)

// errLeaseLost is why an attempt is given up whose event may be another worker's by now.
var errLeaseLost = errors.New("the lease was lost")

// claim is a stream from its claim until its result is stored. Its context ends when the lease may have run out: another
// worker may then send the same event and those after it, which this attempt must not come behind.
type claim struct {
	*models.ClaimedStream
	ctx    context.Context //nolint:containedctx // it is the claim's life, which its lease decides
	cancel context.CancelCauseFunc
	lapse  *time.Timer
}

// claims are the streams that a worker holds.
type claims struct {
	mu   sync.Mutex
	held map[models.Lease]*claim
}

// hold takes claims on whose leases last until lapse, by this process' monotonic clock: never longer than in the database.
func (c *claims) hold(ctx context.Context, claimed []models.ClaimedStream, lapse time.Time) []*claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := make([]*claim, len(claimed))
	for i := range claimed {
		one := &claim{ClaimedStream: &claimed[i]}
		one.ctx, one.cancel = context.WithCancelCause(ctx)
		one.lapse = time.AfterFunc(time.Until(lapse), func() { one.cancel(errLeaseLost) })
		c.held[claimed[i].Lease()] = one
		held[i] = one
	}
	return held
}

// drop lets go of a claim: its result is stored, or it is left to run out.
func (c *claims) drop(lease models.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.held[lease]; one != nil {
		one.lapse.Stop()
		one.cancel(nil)
		delete(c.held, lease)
	}
}

func (c *claims) leases() []models.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	leases := make([]models.Lease, 0, len(c.held))
	for lease := range c.held {
		leases = append(leases, lease)
	}
	return leases
}

func (c *claims) extended(leases []models.Lease, lapse time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lease := range leases {
		if one := c.held[lease]; one != nil {
			one.lapse.Reset(time.Until(lapse))
		}
	}
}

func (c *claims) lost(leases []models.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lease := range leases {
		if one := c.held[lease]; one != nil {
			one.cancel(errLeaseLost)
		}
	}
}

// heartbeat extends the leases of all claims every third of a lease until ctx ends. So a lease may be short, and what a
// dead process had in hand comes back soon, however long an attempt may take.
func (w *Worker) heartbeat(ctx context.Context) {
	ticker := time.NewTicker(w.cfg.Lease / beatsPerLease)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.beat(ctx)
		}
	}
}

func (w *Worker) beat(ctx context.Context) {
	leases := w.claims.leases()
	if len(leases) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Lease)
	defer cancel()
	asked := time.Now()
	extended, lost, err := w.cfg.Store.ExtendLeases(ctx, leases, w.cfg.Lease)
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			w.cfg.Logger.Error("webhook leases could not be extended", "leases", len(leases), "error", err)
		}
		return
	}
	w.claims.extended(extended, asked.Add(w.cfg.Lease))
	w.claims.lost(lost)
}
