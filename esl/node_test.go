package esl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSubscribesWithFiltersAndThenIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSwitch()
		var mu sync.Mutex
		seen := map[*fakeConn][]string{}
		f.intercept = func(c *fakeConn, m clientMessage) bool {
			mu.Lock()
			defer mu.Unlock()
			seen[c] = append(seen[c], m.line)
			return false
		}
		h := newRecorder()
		n := startNode(t, f, h, nil)
		receive(t, h.up)
		_, err := n.Version(t.Context())
		require.NoError(t, err)
		events := receive(t, f.eventCh)
		pass(30 * time.Second) // of the bubble's clock: heartbeats are not due yet, probes are

		mu.Lock()
		defer mu.Unlock()
		require.Len(t, seen, 2, "two connections")
		lines := seen[events]
		require.Equal(t, "auth "+fakePassword, lines[0])
		require.Equal(t, "filter Application-UUID /^tandem-/", lines[1])
		require.True(t, strings.HasPrefix(lines[len(lines)-1], "event json CHANNEL_PROGRESS "), "nothing follows the subscription: %q", lines)
		for _, name := range []string{"CHANNEL_PARK", "HEARTBEAT", "BACKGROUND_JOB"} {
			require.Contains(t, lines, "filter Event-Name "+name)
		}
		require.NotContains(t, lines, "filter Event-Name CHANNEL_EXECUTE_COMPLETE")
		require.Contains(t, lines, "filter Event-Subclass sofia::gateway_state")
		require.Contains(t, lines, "filter Action add-member")
		require.NotContains(t, lines, "filter Event-Name CUSTOM")
		for c, lines := range seen {
			if c != events {
				require.NotContains(t, strings.Join(lines, "\n"), "event ")
				require.Contains(t, lines, "api version")
			}
		}
	})
}

func TestConnectErrorsAreTypedAndRetriedSlowly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		greet func(*fakeConn) bool
		pass  string
		want  error
		step  string
	}{
		"rude rejection": {want: ErrRejected, step: "greeting", greet: func(c *fakeConn) bool {
			c.send("Content-Type: text/rude-rejection\nContent-Length: 24\n\nAccess Denied, go away.\n")
			return false
		}},
		"bad password": {want: ErrBadPassword, step: "auth", pass: "guess"},
		"silent peer": {want: ErrSilent, step: "greeting", greet: func(c *fakeConn) bool {
			_, _ = io.Copy(io.Discard, c)
			return false
		}},
		"another protocol": {want: ErrNotFreeSWITCH, step: "greeting", greet: func(c *fakeConn) bool {
			c.send("SSH-2.0-OpenSSH_9.9\r\n\r\n")
			return false
		}},
		"endless header": {want: ErrNotFreeSWITCH, step: "greeting", greet: func(c *fakeConn) bool {
			c.send(strings.Repeat("x", maxHeaderBytes+2))
			return false
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFakeSwitch()
				f.greet = tc.greet
				var log logBuffer
				began := time.Now()
				h := newRecorder()
				n := startNode(t, f, h, func(cfg *Config) {
					if tc.pass != "" {
						cfg.Password = tc.pass
					}
					cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
				})
				_, err := n.cfg.dial(t.Context())
				require.ErrorIs(t, err, tc.want)
				failed := new(ConnectError)
				require.ErrorAs(t, err, &failed)
				require.Equal(t, tc.step, failed.Step)
				require.Less(t, time.Since(began), 6*time.Second, "a peer that does not speak is given up")

				dials := f.dialled()
				pass(14 * time.Second)
				require.LessOrEqual(t, f.dialled(), dials+1, "trying soon cannot help")
				require.False(t, n.Up())
				require.Contains(t, log.String(), "esl node is down")
				require.NotContains(t, log.String(), fakePassword)
				require.ErrorIs(t, n.Kill(t.Context(), "chan", "NORMAL_CLEARING"), ErrDown)
				pass(60 * time.Second)
				require.Greater(t, f.dialled(), dials+1, "but it is tried again")
				require.Empty(t, h.up)
				require.Empty(t, h.down)
			})
		})
	}
}

// logBuffer keeps what was logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestBackoffGrowsAndEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSwitch()
		var mu sync.Mutex
		var dials []time.Time
		var refuse atomic.Bool
		refuse.Store(true)
		h := newRecorder()
		n := startNode(t, f, h, func(cfg *Config) {
			cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				mu.Lock()
				dials = append(dials, time.Now())
				mu.Unlock()
				if refuse.Load() {
					return nil, errors.New("connection refused")
				}
				return f.dialPipe(ctx, network, addr)
			}
		})
		pass(60 * time.Second)
		mu.Lock()
		require.Greater(t, len(dials), 12)
		require.Less(t, len(dials), 40)
		for i := 1; i < len(dials); i++ {
			require.LessOrEqual(t, dials[i].Sub(dials[i-1]), 5*time.Second+time.Millisecond)
		}
		require.Less(t, dials[1].Sub(dials[0]), 101*time.Millisecond)
		mu.Unlock()
		refuse.Store(false)
		require.NoError(t, n.WaitUp(t.Context()))
		receive(t, h.up)
	})
}

func TestEndsOfAConnectionAreNoticed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end  func(*fakeConn)
		want error
	}{
		"EOF":               {want: ErrDisconnected, end: func(c *fakeConn) { _ = c.Close() }},
		"disconnect notice": {want: ErrDisconnected, end: func(c *fakeConn) { c.send("Content-Type: text/disconnect-notice\nContent-Length: 4\n\nbye\n") }},
		"half a frame": {want: io.ErrUnexpectedEOF, end: func(c *fakeConn) {
			c.send("Content-Length: 100\nContent-Type: text/event-json\n\n{\"Event")
			_ = c.Close()
		}},
		"negative length": {want: ErrFrame, end: func(c *fakeConn) { c.send("Content-Length: -1\nContent-Type: text/event-json\n\n") }},
		"absurd length":   {want: ErrFrame, end: func(c *fakeConn) { c.send("Content-Length: 100000000000000\n\n") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, h := newFakeSwitch(), newRecorder()
				n := startNode(t, f, h, nil)
				receive(t, h.up)
				tc.end(receive(t, f.eventCh))
				require.ErrorIs(t, receive(t, h.down), tc.want)
				again := receive(t, h.up)
				require.False(t, again.Restarted, "the same switch")
				require.True(t, n.Up())
			})
		})
	}
}

func TestResetIsNoticed(t *testing.T) {
	t.Parallel()
	f, h := newFakeSwitch(), newRecorder()
	addr := f.listen(t)
	startNode(t, f, h, func(cfg *Config) { cfg.Addr, cfg.Dial = addr, nil })
	receive(t, h.up)
	c := receive(t, f.eventCh)
	require.NoError(t, c.Conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, c.Close())
	require.Error(t, receive(t, h.down))
	receive(t, h.up)
}

func TestCommandConnectionLostFailsWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		f.intercept = func(c *fakeConn, m clientMessage) bool {
			if m.line == "api status" {
				_ = c.Close()
				return true
			}
			return false
		}
		n := startNode(t, f, h, nil)
		receive(t, h.up)
		_, err := n.Status(t.Context())
		require.ErrorIs(t, err, ErrDown)
		require.ErrorIs(t, err, ErrNoReply, "nobody knows whether it ran")
		receive(t, h.down)
		receive(t, h.up)
	})
}

func TestMissedHeartbeatsEndTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		startNode(t, f, h, nil)
		receive(t, h.up)
		c := receive(t, f.eventCh)
		for range 5 {
			pass(20 * time.Second)
			c.event("HEARTBEAT")
		}
		synctest.Wait()
		require.Empty(t, h.down, "heartbeats keep it alive")
		last := time.Now()
		require.ErrorIs(t, <-h.down, ErrHeartbeatLost)
		require.GreaterOrEqual(t, time.Since(last), 40*time.Second)
		require.LessOrEqual(t, time.Since(last), 52*time.Second)
		<-h.up
	})
}

func TestUnansweredProbeEndsTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		var asked atomic.Int64
		f.intercept = func(_ *fakeConn, m clientMessage) bool {
			return m.line == "api global_getvar core_uuid" && asked.Add(1) == 2
		}
		began := time.Now()
		startNode(t, f, h, nil)
		<-h.up
		require.ErrorIs(t, <-h.down, ErrNoReply)
		require.Less(t, time.Since(began), 20*time.Second)
		<-h.up
	})
}

func TestNewCoreMeansRestarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		var core atomic.Value
		core.Store(fakeCore)
		f.core = func() string { return core.Load().(string) }
		n := startNode(t, f, h, nil)
		require.False(t, (<-h.up).Restarted)
		c := <-f.eventCh
		core.Store("core-2")
		_ = c.Close()
		<-h.down
		up := <-h.up
		require.True(t, up.Restarted)
		require.Equal(t, "core-2", up.CoreUUID)
		require.Equal(t, "core-2", n.Core())
		_ = (<-f.eventCh).Close()
		<-h.down
		require.False(t, (<-h.up).Restarted, "a restart is told once")
		// A switch behind a proxy may change without ending the connection: an event gives it away, and so does the probe.
		(<-f.eventCh).event("HEARTBEAT") // of core-1
		require.ErrorIs(t, <-h.down, ErrRestarted)
		<-h.up
		core.Store("core-3")
		require.ErrorIs(t, <-h.down, ErrRestarted)
		require.True(t, (<-h.up).Restarted)
	})
}

func TestRestartSinceAnotherProcessIsTold(t *testing.T) {
	t.Parallel()
	for last, restarted := range map[string]bool{"": false, fakeCore: false, "core-0": true} {
		synctest.Test(t, func(t *testing.T) {
			f, h := newFakeSwitch(), newRecorder()
			n := startNode(t, f, h, func(cfg *Config) { cfg.CoreUUID = last })
			require.Equal(t, restarted, (<-h.up).Restarted, "last seen as %q", last)
			require.Equal(t, fakeCore, n.Core())
		})
	}
}

// size is how many channels hold slots.
func (f *inflight) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.channels)
}

func TestSlotsOfAForgottenChannelAreSwept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		n := startNode(t, f, h, func(cfg *Config) { cfg.Heartbeat = 100 * time.Hour })
		<-h.up
		require.NoError(t, n.Execute(t.Context(), "chan", NewEventUUID(), Answer()))
		pass(23 * time.Hour)
		require.Equal(t, 1, n.inflight.size())
		pass(2 * time.Hour)
		require.Zero(t, n.inflight.size())
	})
}

func TestResyncHoldsEventsUntilTheSnapshotIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		f.channels = func() string {
			return `{"row_count":1,"rows":[{"uuid":"c1","direction":"inbound","created_epoch":"1795214734","state":"CS_EXECUTE","callstate":"ACTIVE",` +
				`"cid_name":"Ann","cid_num":"+15550100","ip_addr":"127.0.0.1","dest":"3001","application":"park","name":"sofia/external/x"}]}`
		}
		var order []string
		var mu sync.Mutex
		note := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, s)
		}
		f.intercept = func(_ *fakeConn, m clientMessage) bool {
			if m.line == "api show channels as json" {
				// Subscribed already: what happens while the snapshot is made comes as an event.
				ev := <-f.eventCh
				for i := range 3 {
					ev.event("CHANNEL_PARK", "Unique-ID", "c1", "N", fmt.Sprint(i))
				}
			}
			return false
		}
		var n *Node
		started := make(chan struct{})
		h.onUp = func(Snapshot) {
			<-started
			exists, err := n.Exists(t.Context(), "c1")
			note(fmt.Sprint("up ", exists, err))
			pass(time.Second)
		}
		h.onEvent = func(e *Event) { note("event " + e.Get("N")) }
		n = startNode(t, f, h, nil)
		close(started)
		up := <-h.up
		for range 3 {
			<-h.got
		}
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []string{"up false <nil>", "event 0", "event 1", "event 2"}, order)
		require.Equal(t, []Channel{{
			UUID: "c1", Direction: "inbound", State: "CS_EXECUTE", CallState: "ACTIVE", CallerName: "Ann", CallerNumber: "+15550100",
			Address: "127.0.0.1", Destination: "3001", Application: "park", Name: "sofia/external/x", Created: time.Unix(1795214734, 0).UTC(),
		}}, up.Channels)
	})
}

func TestEventsBeforeTheEndComeBeforeDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		h.onEvent = func(*Event) { pass(10 * time.Millisecond) }
		startNode(t, f, h, nil)
		<-h.up
		c := <-f.eventCh
		for i := range 50 {
			c.event("CHANNEL_ANSWER", "Unique-ID", fmt.Sprint("c", i))
		}
		_ = c.Close()
		<-h.down
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Len(t, h.events, 50)
	})
}

func TestStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		n := startNode(t, f, h, nil)
		<-h.up
		var both sync.WaitGroup
		both.Go(n.Stop)
		both.Go(n.Stop)
		both.Wait()
		require.ErrorIs(t, <-h.down, ErrStopped)
		require.ErrorIs(t, n.WaitUp(t.Context()), ErrStopped)
		require.ErrorIs(t, n.Start(t.Context()), ErrStopped)
		require.False(t, n.Up())
	})
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		stuck := make(chan struct{})
		h.onEvent = func(*Event) { <-stuck }
		n := startNode(t, f, h, nil)
		<-h.up
		(<-f.eventCh).event("CHANNEL_ANSWER", "Unique-ID", "c")
		synctest.Wait()
		began := time.Now()
		n.Stop()
		require.Equal(t, 10*time.Second, time.Since(began), "a stuck handler cannot hold Stop for ever")
		close(stuck)
		<-h.down
	})
	unstarted, err := NewNode(Config{Addr: "x", Password: "x", Handler: newRecorder()})
	require.NoError(t, err)
	unstarted.Stop()
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := Config{Addr: "127.0.0.1:8021", Password: "x", Handler: newRecorder()}
	for name, change := range map[string]func(*Config){
		"Addr":     func(c *Config) { c.Addr = "" },
		"Handler":  func(c *Config) { c.Handler = nil },
		"Password": func(c *Config) { c.Password = "a\n\napi shutdown" },
		"Events":   func(c *Config) { c.Events = []string{"HEARTBEAT\n\napi shutdown"} },
		"limits":   func(c *Config) { c.Workers = -1 },
		"times":    func(c *Config) { c.Probe = -time.Second },
	} {
		cfg := good
		change(&cfg)
		_, err := NewNode(cfg)
		require.ErrorContains(t, err, name)
	}
	require.True(t, slices.Contains(DefaultEvents(), "CHANNEL_EXECUTE_COMPLETE"))
}
