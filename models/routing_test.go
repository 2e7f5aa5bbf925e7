package models_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestRevisionsChangeWithTrunksAndDIDs(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		seen := map[string]bool{}
		changed := func() {
			t.Helper()
			read := func() string {
				trunks, err := other.TrunkRevision(ctx)
				require.NoError(t, err)
				numbers, err := other.DIDShards(ctx)
				require.NoError(t, err)
				return fmt.Sprint(trunks, numbers)
			}
			revision := read()
			require.False(t, seen[revision], revision)
			seen[revision] = true
			require.Equal(t, revision, read())
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
