package calls

import (
	"io"
	"net/http"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
	"tandem/models"
	"tandem/models/modelstest"
)

// The callers of the load test.
const (
	oldCaller = "+15551110000" // whose calls are there before the load and must not suffer
	newCaller = "+15552220000"
)

// crowd makes calls on a simulated switch and counts what becomes of them.
type crowd struct {
	*live
	taken   atomic.Int64
	refused atomic.Int64
	old     chan models.Call
	done    sync.WaitGroup
	stop    chan struct{}
	slots   chan struct{} // of the closed loop, nil in the open one
}

// newCrowd has an application with a flow of four actions for every new call, and a menu for the old ones.
func newCrowd(t *testing.T, limits Limits) *crowd {
	t.Helper()
	l := newSimulated(t, modelstest.Open(t), 1, quiet, func(c *Config) { c.Limits = limits })
	require.NoError(t, l.store.InTx(t.Context(), func(tx *models.Store) error {
		_, err := tx.Credit(t.Context(), l.customer.ID, "load", models.LedgerTopup, 1_000_000_000_000, "")
		return err
	}))
	l.answers("/answer", func(w http.ResponseWriter, q asked) {
		if q.Call["from"] == oldCaller {
			_, _ = io.WriteString(w, `[{"action":"answer"},{"action":"gather","num_digits":2,"timeout":60,"result_url":"/digits"}]`)
			return
		}
		_, _ = io.WriteString(w, `[{"action":"answer"},{"action":"notify","payload":1},{"action":"dtmf","digits":"1"},{"action":"hangup"}]`)
	})
	l.answers("/digits", reply(`[{"action":"notify","payload":2},{"action":"dtmf","digits":"2"},{"action":"hangup"}]`))
	c := &crowd{live: l, old: make(chan models.Call, 1000), stop: make(chan struct{})}
	c.done.Go(func() {
		for {
			select {
			case <-l.askedc: // that nobody waits for here
			case call := <-l.ended:
				if call.From == oldCaller {
					c.old <- call
					continue
				}
				c.taken.Add(1)
				if c.slots != nil {
					<-c.slots
				}
			case <-c.stop:
				return
			}
		}
	})
	return c
}

// call lets a caller call in, and waits for the end of the call.
func (c *crowd) call(t *testing.T, from, digits string, after time.Duration) {
	channel, err := c.sim.CallIn(simswitch.IncomingCall{From: from, To: c.did.NumberE164, Digits: digits, DigitsAfter: after})
	if err != nil {
		t.Errorf("call in: %v", err)
		return
	}
	end, err := c.sim.Caller(channel).Wait(t.Context(), func(r simswitch.Result) bool { return r.Ended })
	switch {
	case err != nil:
		t.Errorf("the end of a call: %v", err)
	case end.SIPStatus == http.StatusServiceUnavailable:
		c.refused.Add(1)
	case end.SIPStatus != http.StatusOK:
		t.Errorf("a call ended with %d, %s", end.SIPStatus, end.Cause)
	}
}

// capacity is how many calls a second are served when there are always some to serve.
func (c *crowd) capacity(t *testing.T, together int, lasting time.Duration) float64 {
	t.Helper()
	c.slots = make(chan struct{}, together)
	began := time.Now()
	for time.Since(began) < lasting {
		c.slots <- struct{}{}
		c.done.Go(func() { c.call(t, newCaller, "", 0) })
	}
	for range together {
		c.slots <- struct{}{}
	}
	served := float64(c.taken.Load()) / time.Since(began).Seconds()
	c.slots = nil
	return served
}

// most keeps the greatest of what was measured.
type most struct {
	calls, goroutines, backlog int
	memory                     int64
	waiting                    time.Duration
}

func (m *most) look(c *crowd) {
	manager := c.manager
	m.calls = max(m.calls, manager.LiveCalls())
	m.goroutines = max(m.goroutines, runtime.NumGoroutine())
	m.backlog = max(m.backlog, int(manager.load.mail.Load())+c.esl.Backlog())
	m.waiting = max(m.waiting, manager.load.waiting())
	sample := []metrics.Sample{{Name: liveHeap}}
	metrics.Read(sample)
	m.memory = max(m.memory, int64(sample[0].Value.Uint64())) //nolint:gosec // no heap has 2^63 bytes
}

// TestOverload offers twice the calls that can be served, for some seconds: the calls that are there go on undisturbed, what is taken is
// served whole, the rest is refused with 503, and nothing grows without a bound.
func TestOverload(t *testing.T) { //nolint:paralleltest // it needs the machine for itself
	const lasting, olds, setup = 6 * time.Second, 50, 500 * time.Millisecond
	limits := Limits{Calls: 600, Setup: setup, Backlog: 5000}
	c := newCrowd(t, limits)
	defer func() {
		close(c.stop)
		c.done.Wait()
	}()
	capacity := c.capacity(t, 64, 3*time.Second)
	served := c.taken.Load()
	require.Zero(t, c.refused.Load(), "none was refused within the capacity")

	for range olds {
		c.done.Go(func() { c.call(t, oldCaller, "42", lasting/2) })
	}
	require.Eventually(t, func() bool { return c.manager.LiveCalls() == olds }, patience, 10*time.Millisecond)
	var seen most
	rate := 2 * capacity
	began := time.Now()
	var offered, sampled int64
	var callers sync.WaitGroup
	for since := time.Duration(0); since < lasting; since = time.Since(began) {
		for due := int64(rate * since.Seconds()); offered < due; offered++ {
			callers.Go(func() { c.call(t, newCaller, "", 0) })
		}
		if now := since.Milliseconds() / 20; now != sampled {
			sampled = now
			seen.look(c)
		}
		runtime.Gosched()
	}
	took := time.Since(began)
	for range olds {
		select {
		case call := <-c.old:
			require.Equal(t, []string{StatusCompleted, ReasonCompleted, SourceActions}, []string{call.Status, call.Reason, call.HangupSource})
		case <-time.After(2 * time.Minute):
			require.Fail(t, "an old call has not ended")
		}
	}
	callers.Wait()
	require.Eventually(t, func() bool { return c.manager.LiveCalls() == 0 && c.taken.Load()-served+c.refused.Load() >= offered }, 2*time.Minute, 10*time.Millisecond)
	taken, refused := c.taken.Load()-served, c.refused.Load()
	t.Logf("%.0f calls/s can be served; %.0f/s offered for %s: %d offered, %d served (%.0f/s), %d refused; at most %d calls, %d goroutines, %d events waiting, %d MiB live, oldest new call %s",
		capacity, float64(offered)/took.Seconds(), took.Round(time.Millisecond), offered, taken, float64(taken)/took.Seconds(), refused,
		seen.calls, seen.goroutines, seen.backlog, seen.memory>>20, seen.waiting.Round(time.Millisecond))

	require.Equal(t, offered, taken+refused, "each was served or refused")
	require.Positive(t, refused)
	require.Greater(t, float64(taken), 0.3*capacity*lasting.Seconds(), "refusing leaves room for serving")
	require.LessOrEqual(t, seen.calls, limits.Calls)
	require.Less(t, seen.backlog, 2*limits.Backlog)
	require.Less(t, seen.goroutines, 20*limits.Calls)
	require.Zero(t, c.manager.load.mail.Load())
	require.Zero(t, c.manager.load.waiting())
	c.check(t, int(offered-refused+served)+olds)
}

// check holds all calls to what must be true of each: an end, one, and its money.
func (c *crowd) check(t *testing.T, calls int) {
	t.Helper()
	found := 0
	for cursor := ""; ; {
		page, next, err := c.store.ListCalls(t.Context(), c.customer.ID, models.CallFilter{}, models.Page{Limit: 200, Cursor: cursor})
		require.NoError(t, err)
		for i := range page {
			require.Equal(t, StatusCompleted, page[i].Status)
			kinds := c.allKinds(page[i].ID)
			require.Equal(t, "call.completed", kinds[len(kinds)-1])
			found++
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	require.Equal(t, calls, found)
	wrong, err := c.store.VerifyLedger(t.Context())
	require.NoError(t, err)
	require.Empty(t, wrong)
	customer, err := c.store.Customer(t.Context(), c.customer.ID)
	require.NoError(t, err)
	require.Zero(t, customer.HeldMicros)
}
