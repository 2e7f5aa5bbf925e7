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
// commit, and with a transaction each (one writer connection on SQLite, 16 on PostgreSQL). PostgreSQL as the tests start it
// does not flush; point TANDEM_TEST_DATABASE_URL at a durable one for the real ratio.
func BenchmarkGroupCommit(b *testing.B) {
	for dialect, location := range map[string]func(testing.TB) string{
		models.DialectSQLite: modelstest.SQLiteURL, models.DialectPostgres: modelstest.PostgresURL,
	} {
		for name, inTx := range map[string]func(context.Context, *models.Store, func(*models.Store) error) error{
			"with":    func(ctx context.Context, s *models.Store, fn func(*models.Store) error) error { return s.InTx(ctx, fn) },
			"without": models.InSeparateTx,
		} {
			b.Run(fmt.Sprintf("%s/%s", dialect, name), func(b *testing.B) {
				s, err := models.Open(b.Context(), models.Config{URL: location(b), Key: modelstest.Key})
				require.NoError(b, err)
				defer func() { require.NoError(b, s.Close()) }()
				if name == "without" && dialect == models.DialectPostgres {
					require.NoError(b, models.SetWriters(s, 16))
				}
				app := modelstest.Application(b, s, modelstest.Customer(b, s, 0))
				const writers = 64
				calls := make(chan *models.Call, writers)
				for range writers {
					calls <- modelstest.Call(b, s, app)
				}
				var failed atomic.Pointer[error]
				b.SetParallelism(writers / 2)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					call := <-calls
					defer func() { calls <- call }()
					for pb.Next() {
						err := inTx(b.Context(), s, func(tx *models.Store) error {
							return tx.AppendEvent(b.Context(), &models.CallEvent{CallID: call.ID, Type: "call.tested"}, body)
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
