package dialplan

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestSyncFromTheDatabase goes through the life of a trunk and a number with the real store.
func TestSyncFromTheDatabase(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		customer := modelstest.Customer(t, store, 0)
		app := modelstest.Application(t, store, customer)
		trunk := modelstest.OutboundTrunk(t, store, customer)
		modelstest.InboundTrunk(t, store, customer, app)
		did := modelstest.DID(t, store, customer, app)
		node := &models.Node{Name: "one", ESLAddr: "127.0.0.1:8021", Password: "a password", ConfDir: t.TempDir(), IsActive: true}
		require.NoError(t, store.CreateNode(t.Context(), node))

		s, err := NewSyncer(Config{Store: store})
		require.NoError(t, err)
		control := &fakeSwitch{fail: map[string]error{}}
		s.AddNode(*node, control)
		sync := func() Report {
			t.Helper()
			report, err := s.Sync(t.Context(), node.ID)
			require.NoError(t, err)
			require.Empty(t, report.Problems)
			return report
		}
		report := sync()
		require.ElementsMatch(t, []string{entryPath, sourcePath, gatewayPath(trunk.GatewayName), shardPath(shardOf(did.NumberE164))}, report.Written)
		require.False(t, sync().Changed())

		require.NoError(t, s.store.RecordGateways(t.Context(), []models.GatewayReport{
			{GatewayStatus: models.GatewayStatus{NodeID: node.ID, TrunkID: trunk.ID, State: "REGED", Status: "UP"}},
		}, nil))
		statuses, err := store.GatewayStatuses(t.Context(), []string{trunk.ID})
		require.NoError(t, err)
		require.Equal(t, "REGED", statuses[trunk.ID].State)

		did.Status = models.DIDSuspended
		require.NoError(t, store.UpdateDID(t.Context(), did))
		require.Equal(t, []string{shardPath(shardOf(did.NumberE164))}, sync().Written)
		require.NoError(t, store.DeleteDID(t.Context(), customer.ID, did.ID))
		require.Equal(t, []string{shardPath(shardOf(did.NumberE164))}, sync().Removed)
		require.NoError(t, store.DeleteTrunk(t.Context(), customer.ID, trunk.ID))
		require.Equal(t, []string{gatewayPath(trunk.GatewayName)}, sync().Removed)
		require.NoFileExists(t, filepath.Join(node.ConfDir, journalPath))
	})
}
