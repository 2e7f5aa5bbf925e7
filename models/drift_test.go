package models_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestDrifts(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		node, other := modelstest.Node(t, s), modelstest.Node(t, s)
		kinds := []string{models.DriftGatewayUnknown, models.DriftGatewayMissing}
		unknown, missing := models.Drift{Kind: models.DriftGatewayUnknown, Name: "handmade"}, models.Drift{Kind: models.DriftGatewayMissing, Name: "acme"}
		record := func(node string, kinds []string, found, healed []models.Drift) int {
			t.Helper()
			news, err := s.RecordDrifts(ctx, node, kinds, found, healed)
			require.NoError(t, err)
			return len(news)
		}
		require.Equal(t, 2, record(node.ID, kinds, []models.Drift{unknown, missing}, nil))
		require.Equal(t, 0, record(node.ID, kinds, []models.Drift{unknown, missing}, nil), "known")
		require.Equal(t, 1, record(other.ID, kinds, []models.Drift{unknown}, nil), "each node has its own")
		odd := []models.Drift{{Kind: models.DriftFileUnknown, Name: "tandem/gateways/a\xff\x00.xml"}} // whoever puts a file there names it
		require.Equal(t, 1, record(other.ID, []string{models.DriftFileUnknown}, odd, odd[:0]))
		require.Equal(t, 0, record(other.ID, []string{models.DriftFileUnknown}, odd, nil), "known")
		edited := models.Drift{Kind: models.DriftFileEdited, Name: "tandem/gateways/acme.xml"}
		require.Equal(t, 1, record(node.ID, []string{models.DriftFileEdited}, nil, []models.Drift{edited}), "of other kinds nothing was said")
		require.Equal(t, 1, record(node.ID, []string{models.DriftFileEdited}, nil, []models.Drift{edited}), "once more is once more")
		require.Equal(t, 0, record(node.ID, kinds, []models.Drift{unknown}, nil), "one has ended")

		rows, err := s.Drifts(ctx, node.ID)
		require.NoError(t, err)
		open := map[string]int{}
		over := map[string]int{}
		for _, d := range rows {
			if d.EndedAt == nil {
				open[d.Kind]++
			} else {
				over[d.Kind]++
			}
		}
		require.Equal(t, map[string]int{models.DriftGatewayUnknown: 1}, open)
		require.Equal(t, map[string]int{models.DriftGatewayMissing: 1, models.DriftFileEdited: 2}, over)
		groups, err := s.DriftGroups(ctx)
		require.NoError(t, err)
		counted := map[string]int{}
		for _, g := range groups {
			require.False(t, g.FoundAt.IsZero())
			counted[g.NodeID+" "+g.Kind] = g.Lasting
		}
		require.Equal(t, map[string]int{
			node.ID + " " + models.DriftGatewayUnknown: 1, node.ID + " " + models.DriftGatewayMissing: 0, node.ID + " " + models.DriftFileEdited: 0,
			other.ID + " " + models.DriftGatewayUnknown: 1, other.ID + " " + models.DriftFileUnknown: 1,
		}, counted, "what is over is found, and does not last")
		require.Equal(t, 1, record(node.ID, kinds, []models.Drift{unknown, missing}, nil), "it is back")

		var many []models.Drift
		for i := range 250 {
			many = append(many, models.Drift{Kind: models.DriftFileEdited, Name: fmt.Sprint(i)})
		}
		require.Equal(t, 250, record(node.ID, []string{models.DriftFileEdited}, nil, many))
		rows, err = s.Drifts(ctx, node.ID)
		require.NoError(t, err)
		require.Len(t, rows, 202, "200 that are over, and what lasts")
		require.NoError(t, s.DeleteNode(ctx, node.ID))
	})
}

func TestNodeOrders(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		node := modelstest.Node(t, s)
		order := &models.NodeOrder{NodeID: node.ID, Kind: models.OrderApply, Prune: true}
		require.NoError(t, s.AskNode(ctx, order))
		require.ErrorIs(t, s.AskNode(ctx, &models.NodeOrder{NodeID: "node_none", Kind: models.OrderDiff}), models.ErrNotFound)
		open, err := s.OpenOrders(ctx)
		require.NoError(t, err)
		require.Equal(t, []models.NodeOrder{*order}, open)
		require.NoError(t, s.FinishOrder(ctx, order.ID, []byte(`{"a":1}`), "no"))
		require.ErrorIs(t, s.FinishOrder(ctx, order.ID, nil, ""), models.ErrStale)
		done, err := s.NodeOrder(ctx, order.ID)
		require.NoError(t, err)
		require.NotNil(t, done.DoneAt)
		require.Equal(t, []any{`{"a":1}`, "no", true}, []any{string(done.Result), done.Error, done.Prune})
		open, err = s.OpenOrders(ctx)
		require.NoError(t, err)
		require.Empty(t, open)
		_, err = s.NodeOrder(ctx, "order_none")
		require.ErrorIs(t, err, models.ErrNotFound)
	})
}

// TestOrderThatNobodyTookIsDropped: a node that comes back is not changed by what somebody gave up waiting for.
func TestOrderThatNobodyTookIsDropped(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		order := &models.NodeOrder{NodeID: modelstest.Node(t, s).ID, Kind: models.OrderApply, Prune: true}
		require.NoError(t, s.AskNode(ctx, order))
		clock.Advance(9 * time.Minute)
		open, err := s.OpenOrders(ctx)
		require.NoError(t, err)
		require.Len(t, open, 1)
		clock.Advance(2 * time.Minute)
		open, err = s.OpenOrders(ctx)
		require.NoError(t, err)
		require.Empty(t, open)
		_, err = s.NodeOrder(ctx, order.ID)
		require.NoError(t, err, "it can still be read")
	})
}

func TestLiveCallsByGateway(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		node, customer := modelstest.Node(t, s), modelstest.Customer(t, s, 0)
		app, trunk := modelstest.Application(t, s, customer), modelstest.OutboundTrunk(t, s, customer)
		on := func(node, trunk *string, status string) string {
			t.Helper()
			call := &models.Call{
				CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: models.Outbound, Status: status, From: "+15550000001", To: "+15550000002",
				NodeID: node, TrunkID: trunk, ChannelID: models.NewID("channel_"),
			}
			require.NoError(t, s.CreateCall(ctx, call))
			return call.ID
		}
		one, two := on(&node.ID, &trunk.ID, models.CallDialing), on(&node.ID, &trunk.ID, models.CallInProgress)
		on(&node.ID, nil, models.CallInProgress)
		on(nil, &trunk.ID, models.CallInProgress)
		on(&node.ID, &trunk.ID, models.CallCompleted)
		backup := modelstest.OutboundTrunk(t, s, customer)
		party := func(call, status string) {
			t.Helper()
			require.NoError(t, s.SaveLeg(ctx, &models.Leg{CallID: call, CustomerID: customer.ID, Kind: models.LegDial, ChannelID: models.NewID("channel_"), TrunkID: &backup.ID, Status: status}))
		}
		party(two, models.LegAnswered)
		party(one, models.LegEnded)
		calls, err := s.LiveCallsByGateway(ctx, node.ID)
		require.NoError(t, err)
		require.Equal(t, map[string][]string{trunk.GatewayName: {one, two}, backup.GatewayName: {two}}, calls)

		// A trunk that is switched off keeps its calls.
		trunk.IsActive = false
		require.NoError(t, s.UpdateTrunk(ctx, trunk))
		calls, err = s.LiveCallsByGateway(ctx, node.ID)
		require.NoError(t, err)
		require.Equal(t, []string{one, two}, calls[trunk.GatewayName])
	})
}
