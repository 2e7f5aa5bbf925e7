package esl

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// burst makes one string of count events spread over channels, numbered within each.
func burst(count, channels int) string {
	var b strings.Builder
	for i := range count {
		b.WriteString(eventFrame("CHANNEL_ANSWER", "Unique-ID", "chan-"+strconv.Itoa(i%channels), "N", strconv.Itoa(i/channels), "Padding", strings.Repeat("x", 500)))
	}
	return b.String()
}

// orderKeeper is a handler that checks the numbers of each channel.
type orderKeeper struct {
	*recorder
	mu       sync.Mutex
	next     map[string]int
	wrong    []string
	taken    atomic.Int64
	want     int64
	complete chan struct{}
}

func newOrderKeeper(want int) *orderKeeper {
	return &orderKeeper{recorder: newRecorder(), next: map[string]int{}, want: int64(want), complete: make(chan struct{})}
}

func (o *orderKeeper) HandleEvent(e *Event) {
	if o.onEvent != nil {
		o.onEvent(e)
	}
	o.mu.Lock()
	if n, _ := strconv.Atoi(e.Get("N")); n != o.next[e.ChannelID()] {
		o.wrong = append(o.wrong, fmt.Sprintf("%s: %d instead of %d", e.ChannelID(), n, o.next[e.ChannelID()]))
	}
	o.next[e.ChannelID()]++
	o.mu.Unlock()
	if o.taken.Add(1) == o.want {
		close(o.complete)
	}
}

func TestOrderUnderLoad(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ events, channels int }{{10_000, 1}, {10_000, 7}, {30_000, 500}} {
		t.Run(fmt.Sprint(tc.events, " events of ", tc.channels, " channels"), func(t *testing.T) {
			t.Parallel()
			f, h := newFakeSwitch(), newOrderKeeper(tc.events)
			addr := f.listen(t)
			startNode(t, f, h, func(cfg *Config) { cfg.Addr, cfg.Dial = addr, nil })
			receive(t, h.up)
			receive(t, f.eventCh).send(burst(tc.events, tc.channels))
			receive(t, h.complete)
			require.Empty(t, h.wrong)
			require.Empty(t, h.down)
		})
	}
}

func TestBurstDuringResyncIsHeld(t *testing.T) {
	t.Parallel()
	const events = 10_000
	f, h := newFakeSwitch(), newOrderKeeper(events)
	hold := make(chan struct{})
	h.onUp = func(Snapshot) { <-hold }
	addr := f.listen(t)
	startNode(t, f, h, func(cfg *Config) { cfg.Addr, cfg.Dial, cfg.Watchdog = addr, nil, time.Minute })
	receive(t, f.eventCh).send(burst(events, 50)) // returns although the handler takes nothing
	require.Zero(t, h.taken.Load())
	close(hold)
	receive(t, h.complete)
	require.Empty(t, h.wrong)
}

func TestChannelsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		stuck := make(chan struct{})
		h.onEvent = func(e *Event) {
			if e.ChannelID() == "chan-0" {
				<-stuck
			}
		}
		startNode(t, f, h, nil)
		<-h.up
		c := <-f.eventCh
		c.event("CHANNEL_ANSWER", "Unique-ID", "chan-0")
		for i := 1; i < 200; i++ {
			c.event("CHANNEL_ANSWER", "Unique-ID", fmt.Sprint("chan-", i))
		}
		synctest.Wait()
		require.Greater(t, len(h.got), 140, "only one worker in eight is busy")
		close(stuck)
		synctest.Wait()
		require.Len(t, h.got, 200)
	})
}

func TestSlowConsumerNeverPushesBack(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"count": func(cfg *Config) { cfg.QueueEvents = 100 },
		"bytes": func(cfg *Config) { cfg.QueueBytes = 64 << 10 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, h := newFakeSwitch(), newRecorder()
				h.onEvent = func(*Event) { pass(100 * time.Millisecond) }
				startNode(t, f, h, change)
				<-h.up
				c := <-f.eventCh
				began := time.Now()
				c.send(burst(1000, 1)) // returns only when it was read or the connection was closed
				require.Zero(t, time.Since(began), "the switch never waits for the handler")
				require.ErrorIs(t, <-h.down, ErrOverflow)
				require.Less(t, time.Since(began), time.Second, "what was queued is dropped")
				taken := len(h.got)
				up := <-h.up
				require.Equal(t, fakeCore, up.CoreUUID, "and resynchronised")
				(<-f.eventCh).event("CHANNEL_ANSWER", "Unique-ID", "after")
				for e := range h.got {
					if e.ChannelID() == "after" {
						break
					}
				}
				require.Less(t, taken, 10)
			})
		})
	}
}

func TestWatchdogFreesTheSwitchFromAStuckHandler(t *testing.T) {
	t.Parallel()
	for name, stick := range map[string]func(h *recorder, stuck chan struct{}){
		"HandleEvent": func(h *recorder, stuck chan struct{}) { h.onEvent = func(*Event) { <-stuck } },
		"HandleUp":    func(h *recorder, stuck chan struct{}) { h.onUp = func(Snapshot) { <-stuck } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, h := newFakeSwitch(), newRecorder()
				stuck := make(chan struct{})
				stick(h, stuck)
				n := startNode(t, f, h, nil)
				c := <-f.eventCh
				c.event("CHANNEL_ANSWER", "Unique-ID", "chan")
				began := time.Now()
				for f.connected() > 0 {
					pass(100 * time.Millisecond)
				}
				require.InDelta(t, 11, time.Since(began).Seconds(), 1.5)
				require.False(t, n.Up())
				pass(time.Minute)
				require.Zero(t, f.connected(), "no new connection while the handler is in its old one")
				close(stuck)
				require.ErrorIs(t, <-h.down, ErrHandlerStuck)
				for !n.Up() {
					require.NoError(t, n.WaitUp(t.Context()))
				}
			})
		})
	}
}

// connected is how many connections are open.
func (f *fakeSwitch) connected() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}
