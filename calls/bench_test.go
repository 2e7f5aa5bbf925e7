package calls

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/esl/simswitch"
	"tandem/models"
	"tandem/models/modelstest"
)

// openBench opens an empty SQLite store for a benchmark.
func openBench(b *testing.B) *models.Store {
	b.Helper()
	store, err := models.Open(b.Context(), models.Config{URL: modelstest.SQLiteURL(b), Key: modelstest.Key})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	return store
}

func quiet(c *Config) { c.Logger = slog.New(slog.DiscardHandler) }

// stopwatch notes when a channel parked, and stands before a switch to note its first application.
type stopwatch struct {
	*esl.Node
	esl.Handler

	mu     sync.Mutex
	parked map[string]time.Time
	took   []time.Duration
}

// HandleEvent notes the moment at which a park reaches the handler.
func (w *stopwatch) HandleEvent(ev *esl.Event) {
	if ev.Name() == eventPark {
		w.mu.Lock()
		w.parked[ev.ChannelID()] = time.Now()
		w.mu.Unlock()
	}
	w.Handler.HandleEvent(ev)
}

// Execute notes the moment at which a channel's first application has been written and taken by the switch.
func (w *stopwatch) Execute(ctx context.Context, channel, id string, app esl.App) error {
	err := w.Node.Execute(ctx, channel, id, app)
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := w.parked[channel]; ok {
		delete(w.parked, channel)
		w.took = append(w.took, time.Since(at))
	}
	return err
}

// BenchmarkParkToFirstCommand measures from the CHANNEL_PARK event to the acknowledged first action of an inbound call: the
// route, the call's row, hold and event (durable), the answer_url over HTTP on loopback, which replies at once, the cursor
// (durable), and the command. Calls come one after the other.
func BenchmarkParkToFirstCommand(b *testing.B) {
	l := newSimulated(b, openBench(b), 100, quiet)
	watch := &stopwatch{Node: l.esl, Handler: l.relay.get(), parked: map[string]time.Time{}}
	watch.Handler = l.manager.AddNode(l.node, watch)
	l.relay.set(watch)
	watch.HandleUp(esl.Snapshot{})
	l.answers("/answer", reply(`[{"action":"answer"},{"action":"hangup"}]`))
	b.ResetTimer()
	for range b.N {
		l.callIn(b, l.did.NumberE164, "", 0, 0)
		<-l.ended
	}
	b.StopTimer()
	watch.mu.Lock()
	defer watch.mu.Unlock()
	slices.Sort(watch.took)
	b.ReportMetric(milliseconds(watch.took[len(watch.took)/2]), "p50-ms")
	b.ReportMetric(milliseconds(watch.took[len(watch.took)*99/100]), "p99-ms")
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkCallsPerSecond runs whole calls through the simulated switch in the same process, 100 at a time: answered,
// hung up, settled, with all their events stored durably.
func BenchmarkCallsPerSecond(b *testing.B) {
	const together = 100
	for name, start := range map[string]func(l *live) error{
		"inbound": func(l *live) error {
			_, err := l.sim.CallIn(simswitch.IncomingCall{From: "+15559876543", To: l.did.NumberE164})
			return err
		},
		"outbound": func(l *live) error {
			_, err := l.manager.Create(b.Context(), CreateRequest{
				CustomerID: l.customer.ID, ApplicationID: l.app.ID, From: "+15550100001", To: "+15550000800",
			})
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			l := newSimulated(b, openBench(b), 100, quiet)
			require.NoError(b, l.store.InTx(b.Context(), func(tx *models.Store) error {
				_, err := tx.Credit(b.Context(), l.customer.ID, "bench", "topup", 1_000_000_000_000, "")
				return err
			}))
			l.answers("/answer", reply(`[{"action":"answer"},{"action":"hangup"}]`))
			slots := make(chan struct{}, together)
			done := make(chan struct{})
			b.ResetTimer()
			go func() {
				defer close(done)
				for range b.N {
					call := <-l.ended
					if call.Status != StatusCompleted {
						b.Errorf("call ended %s, %s", call.Status, call.Reason)
					}
					<-slots
				}
			}()
			for range b.N {
				slots <- struct{}{}
				go func() {
					if err := start(l); err != nil {
						b.Errorf("start a call: %v", err)
					}
				}()
			}
			<-done
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}
