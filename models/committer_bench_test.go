package models_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// BenchmarkGroupCommit has 64 writers each append an event (with its delivery and stream) to a call of their own: with group
// commit (one writer), and with a transaction each (one connection on SQLite, 16 on PostgreSQL). PostgreSQL as the tests start it
// does not flush; point TANDEM_TEST_DATABASE_URL at a durable one for the real ratio.
func BenchmarkGroupCommit(b *testing.B) {
	for dialect, location := range map[string]func(testing.TB) string{
		models.DialectSQLite: modelstest.SQLiteURL, models.DialectPostgres: modelstest.PostgresURL,
	} {
		for name, run := range map[string]func(context.Context, *models.Store, func(*models.Store) error) error{
			"with":    inTx,
			"without": separately,
		} {
			b.Run(fmt.Sprintf("%s/%s", dialect, name), func(b *testing.B) {
				writers := 1
				if name == "without" {
					writers = 16
				}
				s, err := models.Open(b.Context(), models.Config{URL: location(b), Key: modelstest.Key, Writers: writers})
				require.NoError(b, err)
				defer func() { require.NoError(b, s.Close()) }()
				app := modelstest.Application(b, s, modelstest.Customer(b, s, 0))
				const parallel = 64
				calls := make(chan *models.Call, parallel)
				for range parallel {
					calls <- modelstest.Call(b, s, app)
				}
				var failed atomic.Pointer[error]
				b.SetParallelism(parallel / 2)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					call := <-calls
					defer func() { calls <- call }()
					for pb.Next() {
						err := run(b.Context(), s, func(tx *models.Store) error {
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
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
			})
		}
	}
}

func inTx(ctx context.Context, s *models.Store, fn func(*models.Store) error) error {
	return s.InTx(ctx, fn)
}

// separately is what InTx does on PostgreSQL anyway.
func separately(ctx context.Context, s *models.Store, fn func(*models.Store) error) error {
	if s.Dialect() == models.DialectSQLite {
		return models.InSeparateTx(ctx, s, fn)
	}
	return s.InTx(ctx, fn)
}
