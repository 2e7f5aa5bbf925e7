package models_test

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestPlansOutliveMigrations changes a table, as the migration of another process does in a rolling upgrade, under a process that has read it on all
// of its connections: in no use of it does that show.
func TestPlansOutliveMigrations(t *testing.T) {
	t.Parallel()
	for name, writers := range map[string]int{"many writers": 4, "one writer": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			location := modelstest.EmptyPostgresURL(t)
			s, err := models.Open(t.Context(), models.Config{URL: location, Key: modelstest.Key, Writers: writers, MaxConnections: 4})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			require.NoError(t, s.Migrate(t.Context()))
			other, err := models.Open(t.Context(), models.Config{URL: location, Key: modelstest.Key})
			require.NoError(t, err)
			defer func() { require.NoError(t, other.Close()) }()
			customer := models.Customer{Name: "One", Currency: "EUR"}
			require.NoError(t, s.CreateCustomer(t.Context(), &customer))

			// Each of these selects all columns, in a way of its own.
			uses := map[string]func() error{
				"query": func() error {
					_, _, err := s.ListCustomers(t.Context(), models.Page{Limit: 10})
					return err
				},
				"transaction": func() error {
					return s.InTx(t.Context(), func(tx *models.Store) error {
						_, err := tx.Customer(t.Context(), customer.ID)
						return err
					})
				},
				"row": func() error {
					// There is no such row: only the plan can fail.
					err := models.Reader(s).Raw("SELECT customers.* FROM customers WHERE id = ?", "nobody").Row().Scan(new(string))
					if errors.Is(err, sql.ErrNoRows) {
						return nil
					}
					return err
				},
				"snapshot": func() error { return models.Snapshot(t.Context(), s, customer.ID) },
			}
			everywhere := func() {
				t.Helper()
				var all sync.WaitGroup
				errs := make(chan error, 16*len(uses))
				for name, use := range uses {
					for range 16 {
						all.Go(func() {
							if err := use(); err != nil {
								errs <- fmt.Errorf("%s: %w", name, err)
							}
						})
					}
				}
				all.Wait()
				close(errs)
				for err := range errs {
					require.NoError(t, err)
				}
			}
			everywhere()
			for i := range 3 {
				require.NoError(t, models.Write(t.Context(), other, fmt.Sprintf("ALTER TABLE customers ADD COLUMN extra_%d INTEGER", i)))
				for name, use := range uses {
					require.NoError(t, use(), name)
				}
				everywhere()
			}
			require.Positive(t, models.RefusedPlans(s), "no plan was refused: this test shows nothing")
		})
	}
}
