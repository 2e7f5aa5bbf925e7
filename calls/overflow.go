package calls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tandem/billing"
	"tandem/models"
)

// Bounds of how long a call waits for room under the limits.
const (
	defaultQueueTimeout = time.Hour
	maxQueueTimeout     = 24 * time.Hour
)

const (
	// overflowBatch is how many calls that have waited out are looked for at a time.
	overflowBatch = 100
	// overflowWorkers is how many customers are served at a time.
	overflowWorkers = 8
)

// overflow dials the calls that wait for room under the limits. Every controller does: StartCall starts each once.
type overflow struct {
	m     *Manager
	woken chan struct{}
	// waiting says that somebody waited when it was last looked: otherwise nobody looks because a call has ended.
	waiting atomic.Bool
}

func newOverflow(m *Manager) *overflow { return &overflow{m: m, woken: make(chan struct{}, 1)} }

// ended wakes the dispatcher, if anybody waits, because a call has made room.
func (o *overflow) ended() {
	if o.waiting.Load() {
		o.wake()
	}
}

func (o *overflow) wake() {
	select {
	case o.woken <- struct{}{}:
	default:
	}
}

// run looks for calls that can be dialled until ctx ends. A second run would do no harm, and no good.
func (o *overflow) run(ctx context.Context) {
	tick := time.NewTicker(o.m.cfg.OverflowInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-o.woken:
		}
		if o.m.outage.err() != nil {
			continue
		}
		if err := o.look(ctx); err != nil && ctx.Err() == nil && !storeAway(err) {
			o.m.log.Error("calls that wait for room not looked for", "error", err)
		}
	}
}

// look dials what there is room for. It gives each customer a call in turn, and begins anew after a while, since it does not look again at customers for
// whom there was no room.
func (o *overflow) look(ctx context.Context) error {
	full := map[string]bool{}
	for until := time.Now().Add(o.m.cfg.OverflowInterval); ; {
		heads, err := o.m.cfg.Store.WaitingCalls(ctx)
		if err != nil {
			return err
		}
		o.waiting.Store(len(heads) > 0)
		if len(heads) == 0 {
			return nil
		}
		if err := o.expire(ctx); err != nil {
			return err
		}
		if why := o.m.Accepting(); why != nil {
			o.m.log.Debug("calls that wait for room are not dialled now", "reason", why)
			return ctx.Err()
		}
		if !o.round(ctx, heads, full) {
			return ctx.Err()
		}
		if time.Now().After(until) {
			o.wake()
			return nil
		}
	}
}

// round serves each customer that is not known to be full. It reports whether anything was done, and notes who is full.
func (o *overflow) round(ctx context.Context, heads []models.WaitingCall, full map[string]bool) (done bool) {
	var order []string
	byCustomer := map[string][]models.WaitingCall{}
	for _, head := range heads {
		if !head.Room || full[head.CustomerID] {
			continue
		}
		if len(byCustomer[head.CustomerID]) == 0 {
			order = append(order, head.CustomerID)
		}
		byCustomer[head.CustomerID] = append(byCustomer[head.CustomerID], head)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, overflowWorkers)
	for _, customer := range order {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			served := o.serve(ctx, byCustomer[customer])
			mu.Lock()
			defer mu.Unlock()
			done = done || served
			full[customer] = !served
		})
	}
	all.Wait()
	return done
}

// serve dials the first call of a customer that there is room for. One that an application or its trunks have no room for does not hold up those of other
// applications. It reports whether there was one, or one is not waiting any more.
func (o *overflow) serve(ctx context.Context, heads []models.WaitingCall) bool {
	for _, head := range heads {
		err := o.start(ctx, head)
		if err == nil {
			return true
		}
		var limit *models.LimitError
		if !leavesRoom(err) || errors.As(err, &limit) && limit.Subject == models.SubjectCustomer {
			return false
		}
	}
	return false
}

// start dials a call, or ends it where it never will be. It returns why the call waits on, nil where it does not.
func (o *overflow) start(ctx context.Context, head models.WaitingCall) error {
	ctx, cancel := context.WithTimeout(ctx, o.m.cfg.CommandTimeout)
	defer cancel()
	_, err := o.m.startCall(ctx, head.CustomerID, head.ID, nil)
	reason := hopeless(err)
	switch {
	case err == nil, errors.Is(err, ErrCallNotQueued), errors.Is(err, ErrCallNotActive), errors.Is(err, models.ErrNotFound):
		return nil
	case reason != "":
		_ = o.m.refused(err)
		o.m.tellExhausted(ctx, head.CustomerID, err)
		o.m.log.Info("call that waited for room not dialled", "call_id", head.ID, "reason", reason, "error", err)
		return o.end(ctx, head, ending{status: StatusFailed, reason: reason, source: SourcePlatform, cause: causeTempFailure, q850: q850[causeTempFailure]})
	case leavesRoom(err), errors.Is(err, ErrNoNode), errors.Is(err, ErrOverloaded), errors.Is(err, ErrStopping), errors.Is(err, billing.ErrSuspended),
		storeAway(err), ctx.Err() != nil:
	default:
		o.m.log.Warn("call that waits for room not dialled yet", "call_id", head.ID, "error", err)
	}
	return err
}

// hopeless is the reason for which a call that waited for room is not dialled, empty where it may be later.
func hopeless(err error) string {
	var denied *DestinationError
	var request *RequestError
	var limit *models.LimitError
	switch {
	case errors.Is(err, models.ErrInsufficientBalance):
		return ReasonInsufficientBalance
	case errors.As(err, &denied), errors.Is(err, ErrDestinationNotAllowed), errors.Is(err, billing.ErrUnlisted):
		return ReasonDestination
	case errors.Is(err, ErrNoActiveTrunk), errors.As(err, &request): // no trunk, or none that shows the caller
		return ReasonTrunkUnavailable
	case errors.As(err, &limit) && !limit.Passing():
		return reasonOf(limit)
	default:
		return ""
	}
}

// expire ends the calls that have waited out.
func (o *overflow) expire(ctx context.Context) error {
	for {
		out, err := o.m.cfg.Store.WaitedOut(ctx, o.m.cfg.Now(), overflowBatch)
		if err != nil {
			return err
		}
		for _, head := range out {
			err := o.end(ctx, head, ending{status: StatusCanceled, reason: ReasonQueueTimeout, source: SourcePlatform, cause: causeCancel, q850: q850[causeCancel]})
			if err != nil {
				return err
			}
		}
		if len(out) < overflowBatch {
			return nil
		}
	}
}

// end ends a call that waits for room, unless it does not any more.
func (o *overflow) end(ctx context.Context, head models.WaitingCall, e ending) error {
	if _, err := o.m.endQueued(ctx, head.CustomerID, head.ID, e, nil); err != nil && !errors.Is(err, models.ErrNotFound) {
		return fmt.Errorf("end call %q, which waits for room: %w", head.ID, err)
	}
	return nil
}

// leavesRoom says whether err is of a limit that leaves room by itself, soon or when a call ends.
func leavesRoom(err error) bool {
	var limit *models.LimitError
	return errors.As(err, &limit) && limit.Passing()
}

// sooner is which of two limits leaves room first; the first may be nil, the second is of err.
func sooner(limit *models.LimitError, err error) *models.LimitError {
	var other *models.LimitError
	if errors.As(err, &other) && (limit == nil || urgency(other) < urgency(limit)) {
		return other
	}
	return limit
}

func urgency(limit *models.LimitError) int {
	switch limit.Limit {
	case models.LimitRate:
		return 0
	case models.LimitCalls:
		return 1
	case models.LimitCallsPerDay:
		return 2
	default:
		return 3
	}
}

// enqueue stores a call that is not dialled yet: it waits to be started, or for room where it has a QueueUntil.
func (m *Manager) enqueue(ctx context.Context, call *models.Call, app *models.Application, also func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
	limits, err := m.cfg.Store.LimitsOf(ctx, call.CustomerID)
	if err != nil {
		return nil, fmt.Errorf("read the limits: %w", err)
	}
	if err := m.mayCall(app, &limits, call.To, ""); err != nil {
		return nil, err
	}
	stored, err := m.insert(ctx, call, onEnqueue, nil, also)
	if err == nil && call.QueueUntil != nil {
		m.overflow.waiting.Store(true)
		m.overflow.wake()
	}
	return stored, err
}

func (r *CreateRequest) validateQueue() error {
	switch longest := int(maxQueueTimeout / time.Second); {
	case r.Queued && r.Overflow:
		return &RequestError{Field: "queue", Message: "must not be given with start false: such a call waits to be started"}
	case r.QueueTimeout != 0 && !r.Overflow:
		return &RequestError{Field: "queue_timeout", Message: "must not be given without queue"}
	case r.QueueTimeout < 0, r.QueueTimeout > longest:
		return &RequestError{Field: "queue_timeout", Message: fmt.Sprintf("must be from 1 to %d seconds", longest)}
	default:
		return nil
	}
}

// queueUntil is Call.QueueUntil of a call that may wait for room, nil for any other.
func (m *Manager) queueUntil(r *CreateRequest) *time.Time {
	if !r.Overflow {
		return nil
	}
	until := m.cfg.Now().Add(cmp.Or(time.Duration(r.QueueTimeout)*time.Second, defaultQueueTimeout))
	return &until
}

// waitsItsTurn says whether a call has to wait behind others of its customer that wait for room.
func (m *Manager) waitsItsTurn(ctx context.Context, req *CreateRequest) (bool, error) {
	if !req.Overflow {
		return false, nil
	}
	return m.cfg.Store.CallsWait(ctx, req.CustomerID)
}
