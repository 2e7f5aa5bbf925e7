package models_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestRoutingRevisionChangesWithTrunksAndDIDs(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		seen := map[string]bool{}
		changed := func() {
			t.Helper()
			revision, err := other.RoutingRevision(ctx)
			require.NoError(t, err)
			require.False(t, seen[revision], revision)
			seen[revision] = true
			again, err := other.RoutingRevision(ctx)
			require.NoError(t, err)
			require.Equal(t, revision, again)
		}
		changed()
		customer := modelstest.Customer(t, s, 0)
		trunk := modelstest.OutboundTrunk(t, s, customer)
		changed()
		did := modelstest.DID(t, s, customer, nil)
		changed()
		did.Status = models.DIDSuspended
		require.NoError(t, s.UpdateDID(ctx, did))
		changed()
		trunk.Password = "another SIP password"
		require.NoError(t, s.UpdateTrunk(ctx, trunk))
		changed()
		require.NoError(t, s.DeleteDID(ctx, customer.ID, did.ID))
		changed()
		require.NoError(t, s.DeleteTrunk(ctx, customer.ID, trunk.ID))
		changed()
	})
}
