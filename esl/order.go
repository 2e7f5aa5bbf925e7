package esl

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// dispatcher hands events to the handler: those of one channel in order, on one of several workers. The reader of the socket never waits for it:
// a client that stops reading freezes the whole event socket of a FreeSWITCH (mod_event_socket.c holds its listener mutex while it sends), so
// queues are bounded and overflow is an error that ends the connection.
type dispatcher struct {
	handler  Handler
	workers  []*worker
	seed     maphash.Seed
	maxBytes int64
	bytes    atomic.Int64
	open     chan struct{} // closed when the events held during resynchronisation may go
	stop     chan struct{} // closed when no more events come
	discard  atomic.Bool   // whether what is queued at stop is dropped
	done     sync.WaitGroup
}

type worker struct {
	mu        sync.Mutex
	queue     []*Event
	most      int
	wake      chan struct{}
	waiting   atomic.Int64 // events queued or in the handler
	busySince atomic.Int64 // UnixNano of the handler call that runs, 0 for none
}

func newDispatcher(handler Handler, workers, most int, maxBytes int64) *dispatcher {
	d := &dispatcher{
		handler: handler, seed: maphash.MakeSeed(), maxBytes: maxBytes,
		open: make(chan struct{}), stop: make(chan struct{}),
	}
	for range workers {
		w := &worker{most: most, wake: make(chan struct{}, 1)}
		d.workers = append(d.workers, w)
		d.done.Go(func() { d.work(w) })
	}
	return d
}

// push queues an event. It never waits.
func (d *dispatcher) push(e *Event) error {
	w := d.workers[0]
	if e.channel != "" {
		w = d.workers[maphash.String(d.seed, e.channel)%uint64(len(d.workers))]
	}
	if w.waiting.Add(1) > int64(w.most) || d.bytes.Add(e.size()) > d.maxBytes {
		return ErrOverflow
	}
	w.mu.Lock()
	w.queue = append(w.queue, e)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return nil
}

func (d *dispatcher) work(w *worker) {
	select {
	case <-d.open:
	case <-d.stop:
		select {
		case <-d.open:
		default:
			// Stopped before the handler knew of this connection: what was held is covered by the next resynchronisation.
			return
		}
	}
	var batch []*Event
	for {
		w.mu.Lock()
		batch, w.queue = w.queue, batch[:0]
		w.mu.Unlock()
		for i, e := range batch {
			batch[i] = nil
			if d.discard.Load() {
				return
			}
			w.busySince.Store(time.Now().UnixNano())
			d.handler.HandleEvent(e)
			w.busySince.Store(0)
			w.waiting.Add(-1)
			d.bytes.Add(-e.size())
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-w.wake:
		case <-d.stop:
			w.mu.Lock()
			empty := len(w.queue) == 0
			w.mu.Unlock()
			if empty {
				return
			}
		}
	}
}

// release lets the workers begin.
func (d *dispatcher) release() { close(d.open) }

// close ends the workers, after what is queued or at once, and waits for them. Nothing may be pushed any more.
func (d *dispatcher) close(discard bool) {
	d.discard.Store(discard)
	close(d.stop)
	d.done.Wait()
}

// longest is how long the handler has kept the oldest event that it works on.
func (d *dispatcher) longest(now time.Time) time.Duration {
	var longest time.Duration
	for _, w := range d.workers {
		if since := w.busySince.Load(); since != 0 {
			longest = max(longest, now.Sub(time.Unix(0, since)))
		}
	}
	return longest
}

// backlog is how many events are queued or in the handler.
func (d *dispatcher) backlog() int {
	var waiting int64
	for _, w := range d.workers {
		waiting += w.waiting.Load()
	}
	return int(waiting)
}

// Backlog is how many events of the switch wait for the handler.
func (n *Node) Backlog() int {
	s := n.current.Load()
	if s == nil {
		return 0
	}
	return s.dispatch.backlog()
}
