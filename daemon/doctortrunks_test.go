package daemon

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestDoctorNamesTrunks(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		ctx := t.Context()
		o := &Operator{store: store}
		customer, node, other := modelstest.Customer(t, store, 0), modelstest.Node(t, store), modelstest.Node(t, store)
		examined := func() string {
			t.Helper()
			checks, err := o.examineTrunks(ctx)
			require.NoError(t, err)
			var lines []string
			for _, c := range checks {
				require.True(t, c.OK, "a carrier's trouble is a warning")
				lines = append(lines, c.Subject+" "+c.Finding+" "+c.Fix)
			}
			return strings.Join(lines, "\n")
		}
		report := func(node *models.Node, trunk *models.Trunk, state, status string) {
			t.Helper()
			require.NoError(t, store.SaveGatewayStatus(ctx, []models.GatewayStatus{{NodeID: node.ID, TrunkID: trunk.ID, State: state, Status: status}}))
		}
		registering, plain := modelstest.OutboundTrunk(t, store, customer), modelstest.OutboundTrunk(t, store, customer)
		registering.Register, plain.Register = true, false
		require.NoError(t, store.UpdateTrunk(ctx, registering))
		require.NoError(t, store.UpdateTrunk(ctx, plain))
		require.Empty(t, examined(), "nobody has said anything of them")

		report(node, registering, "FAIL_WAIT", "UP")
		report(node, plain, "NOREG", "DOWN")
		require.Regexp(t, "trunk "+registering.GatewayName+" is registered on no node: FAIL_WAIT at .* tandem trunks test "+registering.ID, examined())
		require.Regexp(t, "trunk "+plain.GatewayName+" does not answer OPTIONS to any node: NOREG at .* tandem trunks test "+plain.ID, examined())
		report(other, registering, "REGED", "UP")
		report(other, plain, "NOREG", "UP")
		require.Equal(t, "trunks 2 outbound trunks can be used ", examined(), "one node is enough")
		report(other, plain, "NOREG", "DOWN")
		plain.IsActive = false
		require.NoError(t, store.UpdateTrunk(ctx, plain))
		require.Equal(t, "trunks 1 outbound trunks can be used ", examined(), "one that is not active is not expected to work")
		for range troubledTrunks + 2 {
			trunk := modelstest.OutboundTrunk(t, store, customer)
			report(node, trunk, "NOREG", "DOWN")
		}
		require.Contains(t, examined(), "trunks 2 more cannot be used")
		require.Equal(t, troubledTrunks, strings.Count(examined(), "tandem trunks test"))
	})
}
