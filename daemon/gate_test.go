package daemon

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeDoor notes what it is told, and closes by itself as a switch does.
type fakeDoor struct {
	mu     sync.Mutex
	tasks  int
	until  time.Time
	told   []string
	failed error
}

func (d *fakeDoor) AcceptCalls(_ context.Context, lasting time.Duration, previous string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil {
		return "", d.failed
	}
	d.tasks++
	d.until = time.Now().Add(lasting)
	d.told = append(d.told, "accept after "+previous)
	return strconv.Itoa(d.tasks), nil
}

func (d *fakeDoor) RefuseCalls(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil {
		return d.failed
	}
	d.until = time.Time{}
	d.told = append(d.told, "refuse")
	return nil
}

func (d *fakeDoor) open() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Now().Before(d.until)
}

func (d *fakeDoor) heard() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	told := d.told
	d.told = nil
	return told
}

// TestGate follows a controller that is well, at its limit, cut off, and dead.
func TestGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		door := &fakeDoor{}
		held := &heldNode{hold: newHold(time.Now(), time.Minute), entrance: &entrance{conn: door, lasting: 9 * time.Second}, drainage: &drainage{conn: &fakeInlet{}}}
		steering := &steering{}
		held.safe = &steering.safe
		var mu sync.Mutex
		var against error
		set := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			against = err
		}
		g := &gate{nodes: func() []*heldNode { return []*heldNode{held} }, logger: slog.New(slog.DiscardHandler), against: func() error {
			mu.Lock()
			defer mu.Unlock()
			return against
		}}
		pass := func(d time.Duration) {
			<-time.After(d) // of the bubble's clock
			synctest.Wait()
		}
		g.start(t.Context())
		pass(time.Second)
		require.False(t, door.open(), "a node that is not steered takes no calls")
		steering.safe.Store(true)
		pass(gateEvery)
		require.True(t, door.open())
		require.Equal(t, []string{"accept after "}, door.heard())
		for range 60 {
			pass(time.Second)
			require.True(t, door.open())
		}
		renewed := door.heard()
		require.InDelta(t, 20, len(renewed), 2, "every third of the time")
		require.Equal(t, "accept after 1", renewed[0])

		set(errors.New("overloaded"))
		pass(gateEvery)
		require.False(t, door.open())
		pass(time.Minute)
		require.Equal(t, []string{"refuse"}, door.heard(), "said once")
		set(nil)
		pass(gateRest / 2)
		require.False(t, door.open(), "it does not flutter")
		pass(gateRest)
		require.True(t, door.open())

		door.mu.Lock()
		door.failed = errors.New("no answer")
		door.mu.Unlock()
		pass(9 * time.Second)
		require.False(t, door.open(), "the switch closes it")
		door.mu.Lock()
		door.failed, door.told = nil, nil
		door.mu.Unlock()
		pass(gateEvery)
		require.True(t, door.open())
		require.Equal(t, []string{"accept after "}, door.heard(), "what the switch has scheduled is not known any more")

		require.NoError(t, g.stop(t.Context()))
		require.True(t, door.open(), "left to the next controller")
		pass(9 * time.Second)
		require.False(t, door.open(), "unless there is none")
	})
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 5, memoryLimit(5))
	require.GreaterOrEqual(t, memoryLimit(0), int64(0))
	require.EqualValues(t, 2<<20, totalMemory("MemTotal:           2048 kB\nMemFree: 1 kB\n"))
	for _, text := range []string{"", "MemTotal: x kB", "MemTotal: -5 kB", "MemTotal: 5 MB", "MemTotal: 99999999999999999 kB"} {
		require.Zero(t, totalMemory(text), text)
	}
}
