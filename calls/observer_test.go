package calls

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// observer hears what applications a switch runs, without the product's help.
type observer struct {
	t    *testing.T
	more chan struct{}

	mu   sync.Mutex
	runs []run
}

// run is an application that a channel has run, or runs.
type run struct {
	channel, app, args string
	over               bool
}

func (l *live) observe(t *testing.T) *observer {
	t.Helper()
	probe, err := lab.DialESL(t.Context(), l.addr, l.password)
	require.NoError(t, err)
	require.NoError(t, probe.Subscribe(t.Context(), "CHANNEL_EXECUTE", "CHANNEL_EXECUTE_COMPLETE"))
	w := &observer{t: t, more: make(chan struct{}, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			ev, err := probe.Next(context.WithoutCancel(t.Context()))
			if err != nil {
				return
			}
			w.note(run{
				channel: ev.Event("Unique-ID"), app: ev.Event("Application"), args: ev.Event("Application-Data"),
				over: ev.Event("Event-Name") == "CHANNEL_EXECUTE_COMPLETE",
			})
		}
	}()
	t.Cleanup(func() {
		_ = probe.Close()
		<-done
	})
	return w
}

func (w *observer) note(r run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := -1
	if r.over {
		at = slices.IndexFunc(w.runs, func(o run) bool { return !o.over && o.channel == r.channel && o.app == r.app && o.args == r.args })
	}
	if at >= 0 {
		w.runs[at].over = true
	} else {
		w.runs = append(w.runs, r)
	}
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// await waits until the nth run of an application on a channel has begun, or is over.
func (w *observer) await(channel, app string, nth int, over bool) {
	w.t.Helper()
	for {
		n := 0
		for _, r := range w.of(channel) {
			if r.app == app && (r.over || !over) {
				n++
			}
		}
		if n >= nth {
			return
		}
		select {
		case <-w.more:
		case <-time.After(40 * time.Second):
			require.Failf(w.t, "no such application", "waited for %s, number %d, saw %v", app, nth, w.of(channel))
		}
	}
}

// of are the applications of a channel, without those that leave no trace for the caller.
func (w *observer) of(channel string) []run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.runs), func(r run) bool {
		return r.channel != channel || r.app == "sleep" && strings.HasPrefix(r.args, "1 ") || r.app == "park" || r.app == "answer" || r.app == "sched_hangup"
	})
}

// names are the names of a channel's applications.
func (w *observer) names(channel string) (names []string) {
	for _, r := range w.of(channel) {
		names = append(names, r.app)
	}
	return names
}

// until waits until a call has a status.
func (l *live) until(t *testing.T, callID, status string) {
	t.Helper()
	require.Eventually(t, func() bool {
		call, err := l.store.CallByID(t.Context(), callID)
		return err == nil && call.Status == status
	}, patience, 5*time.Millisecond)
}

// park waits until a channel is parked, as the switch says.
func (l *live) park(t *testing.T, channel string) {
	t.Helper()
	probe, err := lab.DialESL(t.Context(), l.addr, l.password)
	require.NoError(t, err)
	defer func() { _ = probe.Close() }()
	require.Eventually(t, func() bool {
		answer, err := probe.API(t.Context(), "uuid_getvar "+channel+" current_application")
		return err == nil && strings.TrimSpace(answer) == "park"
	}, patience, 10*time.Millisecond)
}
