package models_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestMigrateCreditDown: an overdrawn balance is what an older version's schema cannot hold; it keeps the step from being taken back, and nothing is changed.
func TestMigrateCreditDown(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		customer.CreditLimitMicros = 500
		require.NoError(t, s.SetAccount(ctx, customer))
		_, err := s.Credit(ctx, customer.ID, "over", models.LedgerAdjust, -100, "")
		require.NoError(t, err)
		require.NoError(t, models.MigrateTo(ctx, s, 28))
		require.ErrorContains(t, models.MigrateTo(ctx, s, 27), "1 customers do not cover")
		require.NoError(t, models.Write(ctx, s, "UPDATE customers SET balance_micros = -200 WHERE id = ?", customer.ID), "the check is as it was")

		require.NoError(t, models.Write(ctx, s, "UPDATE customers SET balance_micros = 0 WHERE id = ?", customer.ID))
		require.NoError(t, models.MigrateTo(ctx, s, 27))
		require.Error(t, models.Write(ctx, s, "UPDATE customers SET balance_micros = -1 WHERE id = ?", customer.ID))
		require.NoError(t, s.Migrate(ctx))
		require.NoError(t, models.Write(ctx, s, "UPDATE customers SET balance_micros = -1 WHERE id = ?", customer.ID))
	})
}
