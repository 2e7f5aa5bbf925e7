package models_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// audit is the trail, newest first.
func audit(t *testing.T, s *models.Store, filter models.AuditFilter) []models.AuditEntry {
	t.Helper()
	entries, _, err := s.ListAudit(t.Context(), filter, models.Page{Limit: models.MaxPageLimit})
	require.NoError(t, err)
	return entries
}

func pending(action string) *models.PendingAudit {
	return &models.PendingAudit{Entry: models.AuditEntry{
		ActorKind: models.ActorOperator, ActorID: "oper_1", ActorName: "ana", Action: action, CustomerID: "cust_x", Detail: json.RawMessage(`{"a": 1}`),
	}}
}

// TestAuditIsOfTheTransaction: an entry is written with the first change that is committed, once, and undone with one that is not.
func TestAuditIsOfTheTransaction(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		entry := pending("createCustomer")
		ctx := models.WithAudit(t.Context(), entry)
		failure := errors.New("no")
		require.ErrorIs(t, s.InTx(ctx, func(tx *models.Store) error {
			entry.Entry.ObjectID = "undone"
			require.NoError(t, tx.CreateCustomer(ctx, &models.Customer{Name: "undone"}))
			return failure
		}), failure)
		require.Empty(t, audit(t, s, models.AuditFilter{}))
		require.False(t, entry.Written)

		customer := &models.Customer{Name: "made", BalanceMicros: 5}
		require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
			if err := tx.CreateCustomer(ctx, customer); err != nil { // which runs transactions of its own inside this one
				return err
			}
			entry.Entry.ObjectID = customer.ID
			return nil
		}))
		require.True(t, entry.Written)
		_, err := s.Credit(ctx, customer.ID, "k", models.LedgerTopup, 1, "")
		require.NoError(t, err)
		require.NoError(t, s.Audit(ctx))
		entries := audit(t, s, models.AuditFilter{})
		require.Len(t, entries, 1)
		require.Equal(t, customer.ID, entries[0].ObjectID)
		require.Equal(t, "cust_x", entries[0].CustomerID)
		require.JSONEq(t, `{"a": 1}`, string(entries[0].Detail))
		require.Equal(t, entries, audit(t, s, models.AuditFilter{
			ActorKind: models.ActorOperator, ActorID: "oper_1", Action: "createCustomer", CustomerID: "cust_x", ObjectID: customer.ID,
			CreatedAfter: &entries[0].CreatedAt, CreatedBefore: &entries[0].CreatedAt,
		}))
		for _, other := range []models.AuditFilter{{ActorKind: models.ActorKey}, {ActorID: "x"}, {Action: "x"}, {CustomerID: "x"}, {ObjectID: "x"}} {
			require.Empty(t, audit(t, s, other), "%+v", other)
		}

		came := entries[0].CreatedAt.Add(-time.Second)
		earlier := pending("came")
		earlier.Entry.CreatedAt = came
		require.NoError(t, s.Audit(models.WithAudit(t.Context(), earlier)))
		require.Equal(t, came, audit(t, s, models.AuditFilter{Action: "came"})[0].CreatedAt)

		require.Error(t, s.InTx(models.WithAudit(t.Context(), &models.PendingAudit{Entry: models.AuditEntry{ActorKind: "nobody"}}), func(tx *models.Store) error {
			return tx.CreateCustomer(t.Context(), &models.Customer{Name: "unaudited"})
		}), "what cannot be audited does not happen")
		rows, _, err := s.ListCustomers(t.Context(), models.Page{})
		require.NoError(t, err)
		require.Len(t, rows, 1)
	})
}

// TestAuditLater: what begins with transactions that change nothing is audited with the one that does, or by itself.
func TestAuditLater(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		entry := pending("hangupCall")
		entry.Later = true
		ctx := models.WithAudit(t.Context(), entry)
		require.NoError(t, s.InTx(ctx, func(*models.Store) error { return nil }))
		require.Empty(t, audit(t, s, models.AuditFilter{}))
		require.NoError(t, s.InTx(ctx, func(*models.Store) error { entry.Later = false; return nil }))
		require.Len(t, audit(t, s, models.AuditFilter{}), 1)

		entry = pending("testTrunk")
		entry.Later = true
		require.NoError(t, s.Audit(models.WithAudit(t.Context(), entry)))
		require.NoError(t, s.Audit(models.WithAudit(t.Context(), entry)))
		require.Len(t, audit(t, s, models.AuditFilter{}), 2)
		require.NoError(t, s.Audit(context.WithoutCancel(t.Context())), "there is none")
	})
}

// TestAuditTogether: transactions that share a commit, some of which fail, keep their entries apart.
func TestAuditTogether(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		const writers = 40
		var working sync.WaitGroup
		failures := make([]error, writers)
		for i := range writers {
			working.Go(func() {
				entry := pending(fmt.Sprintf("action-%d", i))
				ctx := models.WithAudit(t.Context(), entry)
				failures[i] = s.InTx(ctx, func(tx *models.Store) error {
					if err := tx.CreateCustomer(ctx, &models.Customer{Name: fmt.Sprint(i)}); err != nil || i%4 == 0 {
						return errors.Join(err, errors.New("undone"))
					}
					return nil
				})
			})
		}
		working.Wait()
		for i, err := range failures {
			require.Equal(t, i%4 == 0, err != nil, "%d: %v", i, err)
			require.Len(t, audit(t, s, models.AuditFilter{Action: fmt.Sprintf("action-%d", i)}), map[bool]int{true: 0, false: 1}[i%4 == 0], i)
		}
	})
}
