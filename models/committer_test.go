package models_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

var errRefused = errors.New("refused by the test")

// eachWriter runs fn with group commit and with several writers (the same on SQLite, which has one).
func eachWriter(t *testing.T, fn func(t *testing.T, s *models.Store)) {
	t.Helper()
	for _, writers := range []int{1, 8} {
		modelstest.RunURL(t, fmt.Sprint(writers, " writers"), func(t *testing.T, location string) {
			s, err := models.Open(t.Context(), models.Config{URL: location, Key: modelstest.Key, Writers: writers})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			fn(t, s)
		})
	}
}

func TestInTxKeepsAndUndoes(t *testing.T) {
	t.Parallel()
	eachWriter(t, func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		err := s.InTx(ctx, func(tx *models.Store) error {
			_, err := tx.Credit(ctx, customer.ID, "lost", models.LedgerTopup, 10, "")
			return errors.Join(err, errRefused)
		})
		require.ErrorIs(t, err, errRefused)
		err = s.InTx(ctx, func(tx *models.Store) error {
			return tx.InTx(ctx, func(nested *models.Store) error {
				require.Same(t, tx, nested)
				_, err := nested.Credit(ctx, customer.ID, "kept", models.LedgerTopup, 3, "")
				return err
			})
		})
		require.NoError(t, err)
		found, err := s.Customer(ctx, customer.ID)
		require.NoError(t, err)
		require.Equal(t, int64(3), found.BalanceMicros)
	})
}

// TestInTxSharesCommits lets writers pile up behind one that is held, and looks at the failures and successes of the batch:
// each undoes its own writes only, whatever way it fails.
func TestInTxSharesCommits(t *testing.T) {
	t.Parallel()
	eachWriter(t, func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		entered, release := make(chan struct{}), make(chan struct{})
		var group errgroup.Group
		group.Go(func() error {
			return s.InTx(ctx, func(*models.Store) error {
				close(entered)
				<-release
				return nil
			})
		})
		<-entered
		const writers = 60
		credit := func(tx *models.Store, i int) error {
			_, err := tx.Credit(ctx, customer.ID, fmt.Sprint(i), models.LedgerTopup, 1, "")
			return err
		}
		for i := range writers {
			group.Go(func() error {
				var err error
				switch i % 5 {
				case 0: // refuses after writing
					err = s.InTx(ctx, func(tx *models.Store) error { return errors.Join(credit(tx, i), errRefused) })
					if !errors.Is(err, errRefused) {
						return fmt.Errorf("writer %d: %w", i, err)
					}
					return nil
				case 1: // breaks a constraint after writing
					err = s.InTx(ctx, func(tx *models.Store) error {
						if err := credit(tx, i); err != nil {
							return err
						}
						return tx.CreateApplication(ctx, &models.Application{CustomerID: "cust_none", Name: "none"})
					})
					if !errors.Is(err, models.ErrNotFound) {
						return fmt.Errorf("writer %d: %w", i, err)
					}
					return nil
				case 2: // panics after writing
					defer func() { _ = recover() }()
					_ = s.InTx(ctx, func(tx *models.Store) error {
						if credit(tx, i) == nil {
							panic("on purpose")
						}
						return nil
					})
					return fmt.Errorf("writer %d did not panic", i)
				default:
					return s.InTx(ctx, func(tx *models.Store) error { return credit(tx, i) })
				}
			})
		}
		var gone sync.WaitGroup
		gone.Go(func() {
			// As t.FailNow does: the goroutine ends inside the transaction.
			_ = s.InTx(ctx, func(tx *models.Store) error {
				_ = credit(tx, writers)
				runtime.Goexit()
				return nil
			})
		})
		close(release)
		gone.Wait()
		require.NoError(t, group.Wait())
		found, err := s.Customer(ctx, customer.ID)
		require.NoError(t, err)
		require.Equal(t, int64(writers/5*2), found.BalanceMicros)
		violations, err := s.VerifyLedger(ctx)
		require.NoError(t, err)
		require.Empty(t, violations)
	})
}

func TestInTxRunsAgainWhenAsked(t *testing.T) {
	t.Parallel()
	eachWriter(t, func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		runs := 0
		require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
			runs++
			if _, err := tx.Credit(ctx, customer.ID, fmt.Sprint("run ", runs), models.LedgerTopup, 1, ""); err != nil {
				return err
			}
			if runs < 3 {
				return &pgconn.PgError{Code: "40P01"}
			}
			return nil
		}))
		require.Equal(t, 3, runs)
		found, err := s.Customer(ctx, customer.ID)
		require.NoError(t, err)
		require.Equal(t, int64(1), found.BalanceMicros, "only the last run counts")

		runs = 0
		err = s.InTx(ctx, func(*models.Store) error { runs++; return &pgconn.PgError{Code: "40001"} })
		require.Error(t, err)
		require.Equal(t, 5, runs, "not for ever")
	})
}

// TestInTxSurvivesBrokenConnection ends the writer's connection from outside between two statements of a transaction.
func TestInTxSurvivesBrokenConnection(t *testing.T) {
	t.Parallel()
	eachWriter(t, func(t *testing.T, s *models.Store) {
		if s.Dialect() == models.DialectSQLite {
			return // has no connection that can break
		}
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		runs := 0
		require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
			runs++
			if _, err := tx.Credit(ctx, customer.ID, "once", models.LedgerTopup, 1, ""); err != nil {
				return err
			}
			if runs == 1 {
				return models.BreakConnection(ctx, tx)
			}
			return nil
		}))
		require.Equal(t, 2, runs)
		found, err := s.Customer(ctx, customer.ID)
		require.NoError(t, err)
		require.Equal(t, int64(1), found.BalanceMicros)
	})
}

func TestInTxCancelled(t *testing.T) {
	t.Parallel()
	eachWriter(t, func(t *testing.T, s *models.Store) {
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		err := s.InTx(cancelled, func(*models.Store) error { t.Error("ran"); return nil })
		require.ErrorIs(t, err, context.Canceled)

		// Cancelled while it runs: the writes of the batch are not torn down with it.
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
			cancel()
			return tx.CreateCustomer(ctx, &models.Customer{Name: "kept"})
		}))
		customers, _, err := s.ListCustomers(t.Context(), models.Page{})
		require.NoError(t, err)
		require.Len(t, customers, 1)
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	eachWriter(t, func(t *testing.T, s *models.Store) {
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.InTx(t.Context(), func(*models.Store) error { return nil }), models.ErrClosed)
	})
}
