package lab_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/lab"
)

// watcher listens to the switch itself, not over the link, and measures how long calls go without the command that they need when the
// controller that steers them is taken away. It keeps an eye on the memory of the controllers, too.
type watcher struct {
	w *chaosWorld

	mu       sync.Mutex
	channels map[string]*watched
	strikes  []strike
	memory   int // the most that a controller had, in KiB
}

// watched is a channel: what the switch has said of it.
type watched struct {
	since   time.Time
	idle    bool      // no application but park runs
	idledAt time.Time // since when
	counted int       // the strikes that it has had its command after
}

// strike is the moment at which the node lost the controller that steered it.
type strike struct {
	at    time.Time
	taken time.Time // when the next controller took the node
	// waits are the times to the next command of the calls that were due for one before the lease had run out.
	waits []time.Duration
}

// underWay is how long after its controller has died a command may still arrive.
const underWay = 30 * time.Millisecond

func startWatcher(t *testing.T, w *chaosWorld) *watcher {
	t.Helper()
	v := &watcher{w: w, channels: map[string]*watched{}}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for rest(ctx, 50*time.Millisecond) {
			v.listen(ctx)
		}
	})
	done.Go(func() {
		for rest(ctx, 250*time.Millisecond) {
			v.weigh()
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return v
}

// listen takes in what one switch says, until it is gone.
func (v *watcher) listen(ctx context.Context) {
	probe, err := lab.DialESL(ctx, v.w.eslAddr, v.w.password)
	if err != nil {
		return
	}
	defer func() { _ = probe.Close() }()
	if err := probe.Subscribe(ctx, "CHANNEL_CREATE", "CHANNEL_EXECUTE", "CHANNEL_EXECUTE_COMPLETE", "CHANNEL_HANGUP_COMPLETE"); err != nil {
		return
	}
	v.mu.Lock()
	v.channels = map[string]*watched{}
	v.mu.Unlock()
	for {
		event, err := probe.Next(ctx)
		if err != nil {
			return
		}
		v.take(event.Event("Event-Name"), event.Event("Unique-ID"), event.Event("Application"), time.Now())
	}
}

func (v *watcher) take(name, channel, application string, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.channels[channel]
	switch {
	case name == "CHANNEL_CREATE":
		v.channels[channel] = &watched{since: now, counted: len(v.strikes)}
	case name == "CHANNEL_HANGUP_COMPLETE":
		delete(v.channels, channel)
	case c == nil || application == "park":
	case name == "CHANNEL_EXECUTE_COMPLETE":
		c.idle, c.idledAt = true, now
	case name == "CHANNEL_EXECUTE":
		v.commanded(c, now)
		c.idle = false
	}
}

// commanded measures the wait for the first command after the last strike.
func (v *watcher) commanded(c *watched, now time.Time) {
	if len(v.strikes) == 0 || c.counted == len(v.strikes) {
		return
	}
	s := &v.strikes[len(v.strikes)-1]
	if now.Sub(s.at) < underWay {
		return
	}
	c.counted = len(v.strikes)
	if c.idle && c.idledAt.Before(s.at.Add(v.w.plan.lease)) {
		s.waits = append(s.waits, now.Sub(later(s.at, c.idledAt)))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// taken notes that a controller takes the node now.
func (v *watcher) taken() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.strikes); n > 0 && v.strikes[n-1].taken.IsZero() {
		v.strikes[n-1].taken = time.Now()
	}
}

// struck notes that the controller that steers the node is taken away now.
func (v *watcher) struck() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.strikes = append(v.strikes, strike{at: time.Now()})
}

// weigh reads how much memory the controllers have.
func (v *watcher) weigh() {
	for _, c := range v.w.controllers {
		kib := residentKiB(c.pid())
		v.mu.Lock()
		v.memory = max(v.memory, kib)
		v.mu.Unlock()
	}
}

// most is the most memory that a controller had, in KiB.
func (v *watcher) most() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.memory
}

// residentKiB is what of a process is in memory, 0 where that cannot be read.
func residentKiB(pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(status), "\n") {
		if text, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")))
			return kib
		}
	}
	return 0
}

// waits are the times from a strike, or from when a call needed its next command if that was later, to that command; and the times from the
// strikes until the next controller had taken the node.
func (v *watcher) waits() (each, taken []time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.strikes {
		each = append(each, s.waits...)
		if !s.taken.IsZero() {
			taken = append(taken, s.taken.Sub(s.at))
		}
	}
	slices.Sort(each)
	slices.Sort(taken)
	return each, taken
}
