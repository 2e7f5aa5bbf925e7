package billing_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/billing"
	"tandem/models"
	"tandem/models/modelstest"
)

// BenchmarkReserveAndSettle has 32 callers each begin a call, which holds what it may cost, and settle it with a bill of one line: two transactions,
// for one customer, whose balance all contend for, and for a hundred. PostgreSQL as the tests start it does not flush; point
// TANDEM_TEST_DATABASE_URL at a durable one for what a disk makes of it. Compare only figures of one run.
func BenchmarkReserveAndSettle(b *testing.B) {
	const parallel = 32
	for _, dialect := range []struct {
		name     string
		location func(testing.TB) string
	}{{models.DialectPostgres, modelstest.PostgresURL}, {models.DialectSQLite, modelstest.SQLiteURL}} {
		for _, customers := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/customers=%d", dialect.name, customers), func(b *testing.B) {
				s, err := models.Open(b.Context(), models.Config{URL: dialect.location(b), Key: modelstest.Key})
				require.NoError(b, err)
				defer func() { require.NoError(b, s.Close()) }()
				rater := newRater(b, billing.Config{OutboundPerMinuteMicros: 10_000})
				apps := make([]*models.Application, customers)
				for i := range apps {
					apps[i] = modelstest.Application(b, s, modelstest.Customer(b, s, 1_000_000_000_000))
				}
				var next atomic.Int64
				var failed atomic.Pointer[error]
				b.SetParallelism(max(1, parallel/runtime.GOMAXPROCS(0)))
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := reserveAndSettle(b.Context(), s, rater, apps[int(next.Add(1))%customers]); err != nil {
							failed.Store(&err)
							return
						}
					}
				})
				b.StopTimer()
				if err := failed.Load(); err != nil {
					b.Fatal(*err)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
				requireSound(b, s)
			})
		}
	}
}

func reserveAndSettle(ctx context.Context, s *models.Store, rater *billing.Rater, app *models.Application) error {
	call, err := begin(ctx, s, rater, app, outbound(app.CustomerID), 0)
	if err != nil {
		return err
	}
	at := time.Now()
	call.AnsweredAt = &at
	return rater.Settle(ctx, s, call, 61, true)
}
