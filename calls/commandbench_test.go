package calls

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/models"
	"tandem/models/modelstest"
)

// openBenchPostgres opens an empty PostgreSQL store for a benchmark, on a server that writes through to the disk.
func openBenchPostgres(b *testing.B) *models.Store {
	b.Helper()
	store, err := models.Open(b.Context(), models.Config{URL: modelstest.StartSeparate(b).URL(), Key: modelstest.Key})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	require.NoError(b, store.Migrate(b.Context()))
	return store
}

// BenchmarkCommandTravel measures from the request for a new list at a controller that does not hold the call's node to the moment in
// which the call's session begins with the list: the command's row (durable), the holder's look for it, and the taking out of what
// the call was doing. A list that the holder itself is asked for is measured beside it.
func BenchmarkCommandTravel(b *testing.B) {
	for _, c := range []struct {
		name      string
		open      func(b *testing.B) *models.Store
		elsewhere bool
	}{
		{"sqlite/here", openBench, false},
		{"sqlite/elsewhere", openBench, true},
		{"postgres/here", openBenchPostgres, false},
		{"postgres/elsewhere", openBenchPostgres, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := newStage(b, c.open(b))
			s.holdNode()
			begun := make(chan time.Time, 1)
			s.start(quiet, func(c *Config) {
				c.OnAction = func(string, int, actions.Action) { begun <- time.Now() }
			})
			asked := s.manager
			if c.elsewhere {
				asked = s.elsewhere(quiet)
			}
			s.sw.hold("speak")
			s.answers("/answer", reply(`[{"action":"say","text":"On and on"}]`))
			created := s.create()
			<-begun
			next := list(b, `[{"action":"say","text":"On and on"}]`)
			var took []time.Duration
			b.ResetTimer()
			for range b.N {
				s.sw.await("execute speak")
				<-time.After(rand.N(s.manager.cfg.CommandInterval)) // at any moment between two looks
				at := time.Now()
				_, err := asked.Direct(b.Context(), s.customer.ID, created.ID, DirectRequest{Actions: next})
				require.NoError(b, err)
				took = append(took, (<-begun).Sub(at))
			}
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(milliseconds(took[len(took)/2]), "p50-ms")
			b.ReportMetric(milliseconds(took[len(took)*99/100]), "p99-ms")
			_, err := s.manager.Cancel(b.Context(), s.customer.ID, created.ID, nil)
			require.NoError(b, err)
			s.end()
		})
	}
}
