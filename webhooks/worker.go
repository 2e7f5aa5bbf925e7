package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tandem/models"
)

// Defaults of Config.
const (
	// A request that waits is a goroutine and a connection.
	defaultWorkers     = 256
	defaultPerEndpoint = 32
	defaultTimeout     = 15 * time.Second
	defaultLease       = 5 * time.Second
	defaultPoll        = 500 * time.Millisecond
	// Endpoints that answer slowly, but do answer, never fail, and so keep all the slots that they are given. One in reserve of the
	// slots is therefore kept for endpoints that hold few: less than one in spareShare of what an endpoint may have.
	reserve    = 4
	spareShare = 8
	// probes is how many requests at a time an endpoint gets that failed three times in a row.
	probes = 1
	// finishTime bounds the last write of results when the worker stops.
	finishTime = 5 * time.Second
	// storeTime bounds how long results are kept for a database that does not take them.
	storeTime = 45 * time.Second
)

// Queue is what the worker needs of the database; *models.Store is one.
type Queue interface {
	ClaimStreams(ctx context.Context, owner string, lease time.Duration, perEndpointCap, probeCap, limit int) ([]models.ClaimedStream, error)
	ExtendLeases(ctx context.Context, leases []models.Lease, length time.Duration) (extended, lost []models.Lease, err error)
	FinishDeliveries(ctx context.Context, outcomes []models.Outcome) error
	NextDue(ctx context.Context) (time.Time, bool, error)
	EndpointState(ctx context.Context, applicationID string) (*models.Endpoint, error)
	ApplicationByID(ctx context.Context, id string) (*models.Application, error)
	OnStreamDue(wake func())
	Now() time.Time
}

// Config configures a Worker.
type Config struct {
	// Store is the queue; its clock decides what is due and stamps the requests.
	Store Queue
	// Client sends the requests; it must be guarded (see egress.NewClient).
	Client *http.Client
	// Logger receives what goes wrong; never URLs, bodies or secrets. Default: discard.
	Logger *slog.Logger
	// Workers is how many requests may be under way, PerEndpoint how many of them to one endpoint. Defaults: 256 and 32.
	Workers     int
	PerEndpoint int
	// Timeout bounds one attempt, from connecting to the end of the answer. Default: 15 s.
	Timeout time.Duration
	// Lease is how long what is under way waits after this process died, until another worker repeats it. The worker extends
	// the leases of what it has in hand every third of it, so it may be shorter than Timeout; an attempt whose lease could not
	// be extended in time is given up. At least 10 ms; clocks of processes that share the queue must agree much better than
	// this. Default: 5 s.
	Lease time.Duration
	// Poll is how often the queue is looked at although nothing woke the worker: other processes fill it as well.
	// Default: 500 ms.
	Poll time.Duration
	// Schedule holds the delays between attempts. Default: DefaultSchedule.
	Schedule []time.Duration
	// Rand returns the random part of a delay, in [0,1). Default: math/rand/v2.
	Rand func() float64
	// OnAttempt, if set, is called once the result of an attempt is stored. It must not block.
	OnAttempt func(Attempt)
}

// Attempt tells of one finished attempt.
type Attempt struct {
	EventID string
	// SubjectID is what the event tells of: a call, a trunk or an application.
	SubjectID     string
	ApplicationID string
	Type          string
	// Sequence is the event's number among those of its subject that the application is told of.
	Sequence int64
	// Number counts the attempts of this event from 1.
	Number int
	// Status is the HTTP status of the answer, 0 when there was none.
	Status int
	// Failure is empty on success; otherwise it begins with a bounded reason, a colon and the detail.
	Failure string
	Latency time.Duration
	// Result is one of models.ResultDelivered, ResultRetry, ResultDead, ResultSkipped and ResultReleased.
	Result string
	// RetryAt is when the next attempt is due, for ResultRetry.
	RetryAt time.Time
	// Disabled is the reason why the endpoint was disabled by this attempt, usually empty.
	Disabled string
}

// Worker delivers the events of the queue. Several may run, in one process or many.
type Worker struct {
	cfg   Config
	owner string
	wake  chan struct{}
	slots chan struct{}

	claims   claims
	outcomes chan finished
	// behind is set while the database does not take results: what they are of would be claimed and sent again.
	behind atomic.Bool

	startOnce sync.Once
	stopOnce  sync.Once
	started   bool
	stopLoop  context.CancelFunc
	abort     context.CancelFunc
	loop      sync.WaitGroup
	posts     sync.WaitGroup
	stopBeat  context.CancelFunc
	beats     sync.WaitGroup
	done      chan struct{}
}

// NewWorker validates the configuration and returns a worker that does nothing before Start.
func NewWorker(cfg Config) (*Worker, error) {
	if cfg.Store == nil || cfg.Client == nil {
		return nil, errors.New("webhook worker: Store and Client are required")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Workers = cmp.Or(cfg.Workers, defaultWorkers)
	cfg.PerEndpoint = cmp.Or(cfg.PerEndpoint, min(defaultPerEndpoint, cfg.Workers))
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	cfg.Lease = cmp.Or(cfg.Lease, defaultLease)
	cfg.Poll = cmp.Or(cfg.Poll, defaultPoll)
	if cfg.Schedule == nil {
		cfg.Schedule = DefaultSchedule()
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	if cfg.Workers < 1 || cfg.PerEndpoint < 1 {
		return nil, fmt.Errorf("webhook worker: Workers %d and PerEndpoint %d must be at least 1", cfg.Workers, cfg.PerEndpoint)
	}
	if cfg.Lease < minLease {
		return nil, fmt.Errorf("webhook worker: Lease %s must be at least %s", cfg.Lease, minLease)
	}
	return &Worker{
		cfg:      cfg,
		owner:    models.NewID("worker_"),
		wake:     make(chan struct{}, 1),
		slots:    make(chan struct{}, cfg.Workers),
		claims:   claims{held: map[models.Lease]*claim{}},
		outcomes: make(chan finished, cfg.Workers),
		done:     make(chan struct{}),
	}, nil
}

// Start begins to deliver and returns at once. Ending ctx ends claiming, as Stop does, but only Stop waits.
func (w *Worker) Start(ctx context.Context) {
	w.startOnce.Do(func() {
		w.started = true
		loopCtx, stopLoop := context.WithCancel(ctx)
		postCtx, abort := context.WithCancel(context.WithoutCancel(ctx))
		beatCtx, stopBeat := context.WithCancel(context.WithoutCancel(ctx))
		w.stopLoop, w.abort, w.stopBeat = stopLoop, abort, stopBeat
		w.cfg.Store.OnStreamDue(w.Wake)
		w.loop.Go(func() { w.run(loopCtx, postCtx) })
		w.beats.Go(func() { w.heartbeat(beatCtx) })
		go func() {
			defer close(w.done)
			w.finishAll(postCtx)
		}()
	})
}

// Wake makes the worker look at the queue now. It never blocks.
func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default: // a wake-up is already waiting
	}
}

// Stop ends claiming, lets the attempts under way end until ctx is done, then aborts them and gives their claims back. It
// returns when every goroutine of the worker has ended, at most five seconds after ctx is done. It may be called again.
func (w *Worker) Stop(ctx context.Context) {
	w.startOnce.Do(func() { close(w.done) }) // never started: nothing to wait for, and nothing may start any more
	if !w.started {
		return
	}
	w.stopOnce.Do(func() {
		w.stopLoop()
		w.loop.Wait()
		stopAbort := context.AfterFunc(ctx, w.abort)
		w.posts.Wait()
		close(w.outcomes)
		<-w.done
		w.stopBeat()
		w.beats.Wait()
		stopAbort()
		w.abort()
	})
	<-w.done
}

// run claims whatever is due as long as there are slots, and sleeps until something may be due again.
func (w *Worker) run(ctx, postCtx context.Context) {
	failing := false
	for w.caughtUp(ctx) {
		slots := w.takeSlots(ctx)
		if slots == 0 {
			return
		}
		asked := time.Now()
		perEndpoint, limit := w.share(slots)
		claimed, err := w.cfg.Store.ClaimStreams(ctx, w.owner, w.cfg.Lease, perEndpoint, probes, limit)
		if err != nil && !failing && ctx.Err() == nil {
			w.cfg.Logger.Error("webhook streams could not be claimed, trying again", "error", err)
		}
		failing = err != nil
		held := w.claims.hold(postCtx, claimed, asked.Add(w.cfg.Lease))
		apps := w.applications(postCtx, claimed)
		idle := slots
		for _, stream := range held {
			app := apps[stream.EndpointID]
			if app == nil {
				w.claims.drop(stream.Lease()) // it runs out, and then it is tried again: not at once, for ever
				continue
			}
			idle--
			w.posts.Go(func() {
				defer w.freeSlots(1)
				w.deliver(postCtx, app, stream)
			})
		}
		w.freeSlots(idle)
		if len(claimed) < limit && !w.sleep(ctx, err) {
			return
		}
	}
}

// share says how many streams to claim with that many free slots, and how many an endpoint may have of them at most.
func (w *Worker) share(slots int) (perEndpoint, limit int) {
	if free := slots - w.cfg.Workers/reserve; free > 0 {
		return w.cfg.PerEndpoint, free
	}
	return max(1, w.cfg.PerEndpoint/spareShare), slots
}

// caughtUp waits while results cannot be stored; false when ctx ended.
func (w *Worker) caughtUp(ctx context.Context) bool {
	for w.behind.Load() {
		select {
		case <-ctx.Done():
			return false
		case <-w.wake:
		}
	}
	return true
}

// takeSlots waits for a slot and takes all that are free; 0 when ctx ended.
func (w *Worker) takeSlots(ctx context.Context) int {
	if ctx.Err() != nil {
		return 0
	}
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for taken := 1; ; taken++ {
		select {
		case w.slots <- struct{}{}:
		default:
			return taken
		}
	}
}

func (w *Worker) freeSlots(n int) {
	for range n {
		<-w.slots
	}
}

// sleep waits for a wake-up or until the next stream is due, but no longer than Poll; false when ctx ended. After a
// failed claim it waits the whole Poll, so that a database that is away is not hammered.
func (w *Worker) sleep(ctx context.Context, failed error) bool {
	wait := w.cfg.Poll
	if failed == nil && len(w.wake) == 0 {
		if due, ok, err := w.cfg.Store.NextDue(ctx); err == nil && ok {
			// A due stream that was not claimed waits for its endpoint to have room; a finished attempt wakes us then.
			if until := due.Sub(w.cfg.Store.Now()); until > 0 {
				wait = min(wait, until)
			}
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	wake := w.wake
	if failed != nil {
		wake = nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

// applications reads the applications of the claimed streams, each once. One that cannot be read is missing.
func (w *Worker) applications(ctx context.Context, claimed []models.ClaimedStream) map[string]*models.Application {
	apps := make(map[string]*models.Application, len(claimed))
	for i := range claimed {
		id := claimed[i].EndpointID
		if _, ok := apps[id]; ok {
			continue
		}
		app, err := w.cfg.Store.ApplicationByID(ctx, id)
		if err != nil {
			w.cfg.Logger.Error("webhook application could not be read", "application_id", id, "error", err)
		}
		apps[id] = app
	}
	return apps
}
