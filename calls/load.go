package calls

import (
	linked "container/list"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// ErrOverloaded says that one of the limits of Config.Limits is reached. New calls are refused until it is not; those that live go on.
var ErrOverloaded = errors.New("overloaded")

// Limits are what a manager may take before it refuses new calls. The calls that it has are never ended for a limit's sake.
type Limits struct {
	// Calls is how many calls are held. Default 20,000.
	Calls int
	// Setup is how long the oldest new call may have waited for what is ours to do before it begins: to be routed, stored and paid
	// for. It grows when more calls come in than can be served; bursts that are worked off in time are not refused. Default 4 s.
	Setup time.Duration
	// Backlog is how many events of the switches may wait, on the connections and in the mailboxes of the calls together. Default
	// 20,000; each is some kilobytes.
	Backlog int
	// Deferred is how many changes of all calls wait in memory while the database is away; a call whose change finds no room waits
	// itself. Default 16,384.
	Deferred int
	// Goroutines of the process. Default 4,000 and eight for each of Calls.
	Goroutines int
	// Memory is how many bytes of the heap may be in use after a collection. Default: no limit.
	Memory int64
}

// withDefaults fills in what is not set.
func (l Limits) withDefaults() (Limits, error) {
	if min(l.Calls, l.Backlog, l.Deferred, l.Goroutines) < 0 || l.Setup < 0 || l.Memory < 0 {
		return l, errors.New("calls: a limit must not be negative")
	}
	for _, limit := range []struct {
		value   *int
		without int
	}{{&l.Calls, 20_000}, {&l.Backlog, 20_000}, {&l.Deferred, 16_384}} {
		if *limit.value == 0 {
			*limit.value = limit.without
		}
	}
	if l.Goroutines == 0 {
		l.Goroutines = 4_000 + 8*l.Calls
	}
	if l.Setup == 0 {
		l.Setup = 4 * time.Second
	}
	return l, nil
}

// sampleEvery is how long what is measured of the process holds.
const sampleEvery = 100 * time.Millisecond

// liveHeap is what the last collection of garbage left.
const liveHeap = "/gc/heap/live:bytes"

// load measures what a manager has to do.
type load struct {
	limits Limits
	// mail counts the messages in all mailboxes.
	mail atomic.Int64
	// refusals are logged once a second.
	logged  *rate.Limiter
	refused atomic.Int64

	mu     sync.Mutex
	setups linked.List // of time.Time: when the calls that are being set up began, oldest first

	sampleMu   sync.Mutex
	sampled    time.Time
	goroutines int
	memory     int64
}

func newLoad(limits Limits) *load {
	return &load{limits: limits, logged: rate.NewLimiter(1, 1)}
}

// begin notes that a call is being set up, until the function that it returns is called.
func (l *load) begin() (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	place := l.setups.PushBack(time.Now())
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.setups.Remove(place)
	})
}

// waiting is how long the oldest call that is being set up has waited.
func (l *load) waiting() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if oldest := l.setups.Front(); oldest != nil {
		return time.Since(oldest.Value.(time.Time))
	}
	return 0
}

// process returns the goroutines and the bytes in use of the process, as they were a moment ago.
func (l *load) process() (goroutines int, memory int64) {
	l.sampleMu.Lock()
	defer l.sampleMu.Unlock()
	if now := time.Now(); now.Sub(l.sampled) >= sampleEvery {
		l.sampled, l.goroutines = now, runtime.NumGoroutine()
		sample := []metrics.Sample{{Name: liveHeap}}
		metrics.Read(sample)
		if sample[0].Value.Kind() == metrics.KindUint64 {
			l.memory = int64(sample[0].Value.Uint64()) //nolint:gosec // no heap has 2^63 bytes
		}
	}
	return l.goroutines, l.memory
}

// Accepting says why no new call is taken, nil when one is: ErrStopping, models.ErrUnreachable or models.ErrStorageFull while the
// database takes no changes, or ErrOverloaded, also while what waited for the database is being written.
func (m *Manager) Accepting() error {
	if err := m.outage.refuses(); err != nil {
		return fmt.Errorf("take a call: %w", err)
	}
	m.mu.Lock()
	calls, stopping := len(m.byChannel), m.stopping
	switches := make([]Switch, 0, len(m.nodes))
	for _, n := range m.nodes {
		switches = append(switches, n.sw)
	}
	m.mu.Unlock()
	if stopping {
		return ErrStopping
	}
	limits := &m.load.limits
	if calls >= limits.Calls {
		return fmt.Errorf("%w: %d calls are live", ErrOverloaded, calls)
	}
	if waited := m.load.waiting(); waited > limits.Setup {
		return fmt.Errorf("%w: a new call has waited for %s", ErrOverloaded, waited.Round(time.Millisecond))
	}
	backlog := int(m.load.mail.Load())
	for _, sw := range switches {
		if queue, ok := sw.(interface{ Backlog() int }); ok {
			backlog += queue.Backlog()
		}
	}
	if backlog > limits.Backlog {
		return fmt.Errorf("%w: %d events wait", ErrOverloaded, backlog)
	}
	if m.cfg.Simulated {
		return nil // what the process has is not the simulation's
	}
	goroutines, memory := m.load.process()
	if goroutines > limits.Goroutines {
		return fmt.Errorf("%w: %d goroutines", ErrOverloaded, goroutines)
	}
	if limits.Memory > 0 && memory > limits.Memory {
		return fmt.Errorf("%w: %d bytes of memory in use", ErrOverloaded, memory)
	}
	return nil
}

// shed logs that calls are refused: now and then, with how many there were.
func (m *Manager) shed(err error) {
	refused := m.load.refused.Add(1)
	if m.load.logged.Allow() {
		m.load.refused.Add(-refused)
		m.log.Warn("inbound calls refused", "calls", refused, "error", err)
	}
}
