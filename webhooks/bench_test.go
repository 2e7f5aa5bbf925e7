package webhooks

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

const (
	benchEndpoints = 20
	benchPerCall   = 10
)

// onBoth runs a benchmark on an empty store of each database.
func onBoth(b *testing.B, fn func(b *testing.B, r *rig)) {
	b.Helper()
	for name, location := range map[string]func(testing.TB) string{
		models.DialectSQLite: modelstest.SQLiteURL, models.DialectPostgres: modelstest.PostgresURL,
	} {
		b.Run(name, func(b *testing.B) {
			s, err := models.Open(b.Context(), models.Config{URL: location(b), Key: modelstest.Key})
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, s.Close()) })
			fn(b, newRig(b, s, nil))
		})
	}
}

// benchWorker starts a worker with the product's own settings.
func (r *rig) benchWorker(onAttempt func(Attempt)) {
	r.worker(func(c *Config) {
		*c = Config{Store: r.store, Client: r.client, OnAttempt: onAttempt}
	})
}

// benchCalls creates calls enough for n events, spread over the endpoints.
func (r *rig) benchCalls(apps []*models.Application, n int) []*models.Call {
	calls := make([]*models.Call, (n+benchPerCall-1)/benchPerCall)
	r.parallel(len(calls), func(i int) { calls[i] = modelstest.Call(r.t, r.store, apps[i%len(apps)]) })
	return calls
}

// parallel runs fn for 0…n-1 in 16 goroutines, as so many calls would.
func (r *rig) parallel(n int, fn func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				fn(i)
			}
		})
	}
	wg.Wait()
}

// emitAll adds n events, ten to each call, each in its own InTx.
func (r *rig) emitAll(calls []*models.Call, n int) {
	r.parallel(len(calls), func(i int) { r.emit(calls[i], min(benchPerCall, n-i*benchPerCall)) })
}

// BenchmarkDelivery measures events per second from the queue to an endpoint that answers at once: "drain" of a backlog,
// and "through" from Emit to the answer while 16 producers fill the queue.
func BenchmarkDelivery(b *testing.B) {
	for name, backlog := range map[string]bool{"drain": true, "through": false} {
		b.Run(name, func(b *testing.B) {
			onBoth(b, func(b *testing.B, r *rig) {
				b.Helper()
				rec := newReceiver(b, nil)
				apps := make([]*models.Application, benchEndpoints)
				for i := range apps {
					apps[i] = r.application(rec.URL)
				}
				calls := r.benchCalls(apps, b.N)
				var delivered atomic.Int64
				done := make(chan struct{})
				onAttempt := func(a Attempt) {
					if a.Result == models.ResultDelivered && delivered.Add(1) == int64(b.N) {
						close(done)
					}
				}
				if backlog {
					r.emitAll(calls, b.N)
				}
				b.ResetTimer()
				r.benchWorker(onAttempt)
				if !backlog {
					r.emitAll(calls, b.N)
				}
				<-done
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
				require.Len(b, rec.seen(), b.N)
			})
		})
	}
}

// BenchmarkIsolation measures, at 200 events a second, from the commit of a healthy endpoint's event to its request, while
// a quarter of the endpoints hang until the attempt times out.
func BenchmarkIsolation(b *testing.B) {
	onBoth(b, func(b *testing.B, r *rig) {
		b.Helper()
		dead := newReceiver(b, func(_ http.ResponseWriter, req request) { <-req.ctx.Done() })
		var mu sync.Mutex
		emitted, latencies := map[string]time.Time{}, []time.Duration{}
		healthy := newReceiver(b, nil)
		apps := make([]*models.Application, benchEndpoints)
		for i := range apps {
			url := healthy.URL
			if i%4 == 0 {
				url = dead.URL
			}
			apps[i] = r.application(url)
		}
		var wg sync.WaitGroup
		expected := b.N - (b.N+3)/4
		wg.Go(func() {
			for range expected {
				req := <-healthy.arrived
				mu.Lock()
				latencies = append(latencies, time.Since(emitted[req.id()]))
				mu.Unlock()
			}
		})
		calls := make([]*models.Call, b.N)
		r.parallel(b.N, func(i int) { calls[i] = modelstest.Call(b, r.store, apps[i%len(apps)]) })
		r.worker(func(c *Config) {
			*c = Config{Store: r.store, Client: r.client, Timeout: time.Second}
		})
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		b.ResetTimer()
		for _, call := range calls {
			<-ticker.C
			require.NoError(b, r.store.InTx(b.Context(), func(tx *models.Store) error {
				event, err := Emit(b.Context(), tx, call, KindNotify, nil)
				if err == nil {
					mu.Lock()
					emitted[event.ID] = time.Now() // the commit itself is part of the wait
					mu.Unlock()
				}
				return err
			}))
		}
		wg.Wait()
		b.StopTimer()
		slices.Sort(latencies)
		if len(latencies) > 0 {
			b.ReportMetric(float64(latencies[len(latencies)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(latencies[len(latencies)*99/100].Microseconds())/1000, "p99-ms")
		}
	})
}
