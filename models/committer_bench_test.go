package models_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// BenchmarkGroupCommit has 64 calls each append event after event (with its delivery and stream), as their flows do: with a
// transaction for each change, one at a time; with 16 of these at a time, as on PostgreSQL; and with group commit, where the
// changes of many calls share a transaction, as on SQLite. PostgreSQL as the tests start it does not flush; point
// TANDEM_TEST_DATABASE_URL at a durable one for the real ratio.
func BenchmarkGroupCommit(b *testing.B) {
	type runner = func(context.Context, *models.Store, func(*models.Store) error) error
	for _, bench := range []struct {
		dialect, name string
		location      func(testing.TB) string
		writers       int
		run           runner
	}{
		{models.DialectSQLite, "each", modelstest.SQLiteURL, 1, models.InSeparateTx},
		{models.DialectSQLite, "group", modelstest.SQLiteURL, 1, inTx},
		{models.DialectPostgres, "each", modelstest.PostgresURL, 2, oneAtATime()},
		{models.DialectPostgres, "16 at a time", modelstest.PostgresURL, 16, inTx},
		{models.DialectPostgres, "group", modelstest.PostgresURL, 1, inTx},
	} {
		b.Run(fmt.Sprintf("%s/%s", bench.dialect, bench.name), func(b *testing.B) {
			s, err := models.Open(b.Context(), models.Config{URL: bench.location(b), Key: modelstest.Key, Writers: bench.writers})
			require.NoError(b, err)
			defer func() { require.NoError(b, s.Close()) }()
			app := modelstest.Application(b, s, modelstest.Customer(b, s, 0))
			const parallel = 64
			calls := make(chan *models.Call, parallel)
			for range parallel {
				calls <- modelstest.Call(b, s, app)
			}
			var failed atomic.Pointer[error]
			b.SetParallelism(max(1, parallel/runtime.GOMAXPROCS(0)))
			commits := models.Commits(s)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				call := <-calls
				defer func() { calls <- call }()
				for pb.Next() {
					err := bench.run(b.Context(), s, func(tx *models.Store) error {
						return tx.AppendEvent(b.Context(), &models.Event{CallID: call.ID, Type: "call.tested"}, body)
					})
					if err != nil {
						failed.Store(&err)
						return
					}
				}
			})
			b.StopTimer()
			if err := failed.Load(); err != nil {
				b.Fatal(*err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
			if commits = models.Commits(s) - commits; commits > 0 {
				b.ReportMetric(float64(b.N)/float64(commits), "changes/commit")
			}
		})
	}
}

func inTx(ctx context.Context, s *models.Store, fn func(*models.Store) error) error {
	return s.InTx(ctx, fn)
}

// oneAtATime makes a transaction wait for the one before.
func oneAtATime() func(context.Context, *models.Store, func(*models.Store) error) error {
	var turn sync.Mutex
	return func(ctx context.Context, s *models.Store, fn func(*models.Store) error) error {
		turn.Lock()
		defer turn.Unlock()
		return s.InTx(ctx, fn)
	}
}
