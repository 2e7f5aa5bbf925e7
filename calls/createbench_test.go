package calls

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/billing"
	"tandem/models"
)

// createRounds is of how many rounds the median is told.
const createRounds = 5

// BenchmarkCreateCall measures what money adds to POST /v1/calls, from the request to the durable row of the call, its hold and its event: calls that cost
// nothing and calls that do take turns, each kind on a PostgreSQL of its own that writes through to the disk, one at a time and sixteen at once on one
// balance. Told are the medians of five rounds, and what remains of a call, to its settled end, is waited for and not measured.
func BenchmarkCreateCall(b *testing.B) {
	for name, together := range map[string]int{"one": 1, "sixteen": 16} {
		b.Run(name, func(b *testing.B) {
			free, priced := newTill(b, 0), newTill(b, outboundPrice)
			var took [2][]time.Duration
			var ratios []float64
			b.ResetTimer()
			for range createRounds {
				var round [2][]time.Duration
				for range b.N {
					for kind, till := range []*till{free, priced} {
						round[kind] = append(round[kind], till.create(b, together)...)
					}
				}
				for kind := range round {
					slices.Sort(round[kind])
					took[kind] = append(took[kind], round[kind][len(round[kind])/2])
				}
				ratios = append(ratios, float64(took[1][len(ratios)])/float64(took[0][len(ratios)]))
			}
			b.StopTimer()
			slices.Sort(ratios)
			for kind, unit := range []string{"free-ms", "priced-ms"} {
				slices.Sort(took[kind])
				b.ReportMetric(milliseconds(took[kind][createRounds/2]), unit)
			}
			b.ReportMetric(ratios[createRounds/2], "priced/free")
		})
	}
}

// till is a scene whose calls are refused as soon as they are dialled.
type till struct{ *scene }

func newTill(b *testing.B, price int64) *till {
	b.Helper()
	s := newStage(b, openBenchPostgres(b))
	rater, err := billing.New(billing.Config{OutboundPerMinuteMicros: price})
	require.NoError(b, err)
	require.NoError(b, s.store.InTx(b.Context(), func(tx *models.Store) error {
		_, err := tx.Credit(b.Context(), s.customer.ID, "bench", models.LedgerTopup, 1_000_000_000_000, "")
		return err
	}))
	s.start(quiet, func(c *Config) { c.Rater = rater })
	s.sw.script("originate", func(c command) error {
		s.sw.hangup(c.channel, "USER_BUSY")
		return nil
	})
	return &till{s}
}

// create creates calls at once, waits for their ends and returns how long each took to be created.
func (s *till) create(b *testing.B, together int) []time.Duration {
	b.Helper()
	took := make([]time.Duration, together)
	var creating sync.WaitGroup
	for i := range together {
		creating.Go(func() {
			began := time.Now()
			_, err := s.manager.Create(b.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
			took[i] = time.Since(began)
			if err != nil {
				b.Errorf("create a call: %v", err)
				s.ended <- models.Call{}
			}
		})
	}
	creating.Wait()
	for range together {
		<-s.ended
	}
	for len(s.sw.told) > 0 {
		<-s.sw.told
	}
	return took
}
