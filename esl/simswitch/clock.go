package simswitch

import (
	"container/heap"
	"sync"
	"time"
)

// clock is the switch's own time. It starts at the wall clock and runs Config.Speed times as fast, so that durations,
// billing variables and event timestamps stay consistent with each other however fast the simulation runs.
type clock struct {
	start time.Time
	speed float64
}

func newClock(speed float64) *clock {
	return &clock{start: time.Now(), speed: speed}
}

// now is the switch's time.
func (c *clock) now() time.Time {
	elapsed := time.Since(c.start)
	if c.speed == 1 {
		return c.start.Add(elapsed)
	}
	return c.start.Add(time.Duration(float64(elapsed) * c.speed))
}

// micros is the switch's time as FreeSWITCH prints it, in microseconds since 1970.
func (c *clock) micros() int64 { return c.now().UnixMicro() }

// real turns a duration of the switch's time into the time that passes on the wall.
func (c *clock) real(d time.Duration) time.Duration {
	if c.speed == 1 || d <= 0 {
		return d
	}
	return time.Duration(float64(d) / c.speed)
}

// task is something the scheduler will do. A task belongs to a group (a channel's UUID), as in FreeSWITCH's scheduler,
// so that `sched_del` can take it back.
type task struct {
	id    uint32
	group string
	at    time.Time
	fn    func()
	index int
}

type taskHeap []*task

func (h taskHeap) Len() int { return len(h) }
func (h taskHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].id < h[j].id
	}
	return h[i].at.Before(h[j].at)
}
func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *taskHeap) Push(x any) {
	t := x.(*task)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *taskHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = -1
	return t
}

// scheduler runs everything that happens by the clock and not by a command: what the far end of a call does, scheduled
// hang-ups, gateway registrations, heartbeats. One goroutine runs all of it, so a task must not block.
type scheduler struct {
	clock *clock
	mu    sync.Mutex
	tasks taskHeap
	next  uint32
	wake  chan struct{}
	stop  chan struct{}
	done  chan struct{}
}

func newScheduler(c *clock) *scheduler {
	return &scheduler{clock: c, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
}

// after runs fn once d of the switch's time has passed. The group serves sched_del; an empty one is private.
func (s *scheduler) after(d time.Duration, group string, fn func()) *task {
	t := &task{group: group, at: time.Now().Add(s.clock.real(d)), fn: fn}
	s.mu.Lock()
	s.next++
	t.id = s.next
	heap.Push(&s.tasks, t)
	first := t.index == 0
	s.mu.Unlock()
	if first {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return t
}

// cancel takes a task back. It reports whether the task was still waiting.
func (s *scheduler) cancel(t *task) bool {
	if t == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(t)
}

func (s *scheduler) remove(t *task) bool {
	if t.index < 0 || t.index >= len(s.tasks) || s.tasks[t.index] != t {
		return false
	}
	heap.Remove(&s.tasks, t.index)
	return true
}

// cancelMatching takes back every task that belongs to group, or has the given id, and returns how many.
func (s *scheduler) cancelMatching(group string, id uint32) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*task
	for _, t := range s.tasks {
		if (group != "" && t.group == group) || (id != 0 && t.id == id) {
			found = append(found, t)
		}
	}
	for _, t := range found {
		s.remove(t)
	}
	return len(found)
}

func (s *scheduler) run() {
	defer close(s.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		fn, wait := s.due()
		if fn != nil {
			fn()
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.stop:
			return
		}
	}
}

func (s *scheduler) due() (func(), time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stop:
		return nil, time.Hour
	default:
	}
	if len(s.tasks) == 0 {
		return nil, time.Hour
	}
	if wait := time.Until(s.tasks[0].at); wait > 0 {
		return nil, wait
	}
	t := heap.Pop(&s.tasks).(*task)
	return t.fn, 0
}

func (s *scheduler) close() {
	close(s.stop)
	<-s.done
}
