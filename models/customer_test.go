package models_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestCustomer(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		customer := modelstest.Customer(t, s, 5_000_000)
		found, err := s.Customer(t.Context(), customer.ID)
		require.NoError(t, err)
		require.Equal(t, customer, found)
		require.Equal(t, int64(5_000_000), found.BalanceMicros)
		require.Equal(t, "USD", found.Currency)

		_, err = s.Customer(t.Context(), "cust_none")
		require.ErrorIs(t, err, models.ErrNotFound)

		entries, next, err := s.ListLedger(t.Context(), customer.ID, models.LedgerFilter{}, models.Page{})
		require.NoError(t, err)
		require.Empty(t, next)
		require.Len(t, entries, 1)
		require.Equal(t, int64(5_000_000), entries[0].AmountMicros)

		overdrawn := &models.Customer{Name: "overdrawn", BalanceMicros: -1}
		require.ErrorIs(t, s.CreateCustomer(t.Context(), overdrawn), models.ErrInsufficientBalance)
		customers, _, err := s.ListCustomers(t.Context(), models.Page{})
		require.NoError(t, err)
		require.Len(t, customers, 1, "the refused customer is not half there")
	})
}
