package models_test

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// onNode is a live call on a node that a controller holds, with the controller's token.
func onNode(t *testing.T, s *models.Store) (call *models.Call, node *models.Node, token int64) {
	t.Helper()
	ctx := t.Context()
	node = modelstest.Node(t, s)
	token, ok, err := s.AcquireNode(ctx, node.ID, "a", time.Minute, 0)
	require.NoError(t, err)
	require.True(t, ok)
	app := modelstest.Application(t, s, modelstest.Customer(t, s, 1_000_000))
	call = &models.Call{
		CustomerID: app.CustomerID, ApplicationID: app.ID, NodeID: &node.ID, Fence: token, Direction: "outbound", Status: models.CallDialing,
		From: "+15550100001", To: "+15550100002", ChannelID: models.NewID("channel_"),
	}
	require.NoError(t, s.CreateCall(ctx, call))
	return call, node, token
}

func TestCommands(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		call, node, _ := onNode(t, s)
		first, err := s.AddCommand(ctx, call.ID, models.CommandDirect, json.RawMessage(`{"n":1}`))
		require.NoError(t, err)
		second, err := s.AddCommand(ctx, call.ID, models.CommandDial, json.RawMessage(`{}`))
		require.NoError(t, err)
		require.Equal(t, []any{node.ID, int64(1), int64(2)}, []any{first.NodeID, first.Position, second.Position})
		heads, err := s.CommandHeads(ctx, []string{node.ID, "node_none"})
		require.NoError(t, err)
		require.Equal(t, []models.CommandHead{{CallID: call.ID, NodeID: node.ID, Last: 2, Dials: true}}, heads)
		rows, err := s.Commands(ctx, call.ID, 0)
		require.NoError(t, err)
		require.Equal(t, []models.Command{*first, *second}, rows)
		require.NoError(t, s.DeleteCommands(ctx))
		require.NoError(t, s.DeleteCommands(ctx, first.ID, "cmd_none"))
		third, err := s.AddCommand(ctx, call.ID, models.CommandCancel, json.RawMessage(`{}`))
		require.NoError(t, err)
		require.EqualValues(t, 3, third.Position, "positions do not come back")
		rows, err = s.Commands(ctx, call.ID, 2)
		require.NoError(t, err)
		require.Equal(t, []models.Command{*third}, rows)
		heads, err = s.CommandHeads(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, heads)

		call.Status = models.CallFailed
		require.NoError(t, s.TransitionCall(ctx, call, []string{models.CallDialing}))
		rows, err = s.Commands(ctx, call.ID, 0)
		require.NoError(t, err)
		require.Empty(t, rows, "what is left goes with the end")
		_, err = s.AddCommand(ctx, call.ID, models.CommandCancel, nil)
		require.ErrorIs(t, err, models.ErrStale)
		waiting := modelstest.Call(t, s, modelstest.Application(t, s, modelstest.Customer(t, s, 0)))
		_, err = s.AddCommand(ctx, waiting.ID, models.CommandCancel, nil)
		require.ErrorIs(t, err, models.ErrStale, "a call without a node")
	})
}

// Whoever sees a position sees every position before it, also while many are given at once.
func TestCommandsAreSeenInOrder(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		call, _, _ := onNode(t, s)
		const writers, each = 4, 10
		var writing sync.WaitGroup
		for range writers {
			writing.Go(func() {
				for range each {
					_, err := s.AddCommand(ctx, call.ID, models.CommandDirect, json.RawMessage(`{}`))
					if err != nil {
						t.Errorf("add: %v", err)
					}
				}
			})
		}
		for last := int64(0); last < writers*each; {
			rows, err := s.Commands(ctx, call.ID, last)
			require.NoError(t, err)
			for _, row := range rows {
				last++
				require.Equal(t, last, row.Position)
			}
		}
		writing.Wait()
	})
}

func TestClaimDial(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		placed, node, token := onNode(t, s)
		call := &models.Call{
			CustomerID: placed.CustomerID, ApplicationID: placed.ApplicationID, NodeID: &node.ID, Direction: "outbound", Status: models.CallDialing,
			ChannelID: models.NewID("channel_"),
		}
		require.NoError(t, s.CreateCall(ctx, call), "a controller without the lease places no fence")
		dial, err := s.AddCommand(ctx, call.ID, models.CommandDial, json.RawMessage(`{}`))
		require.NoError(t, err)
		_, err = s.ClaimDial(ctx, dial, token+1, false)
		require.ErrorIs(t, err, models.ErrStale, "not the lease's token")
		_, err = s.AddCommand(ctx, call.ID, models.CommandDial, json.RawMessage(`{}`))
		require.NoError(t, err, "stored twice, for the word that it was stored was lost")
		claimed, err := s.ClaimDial(ctx, dial, token, false)
		require.NoError(t, err)
		require.Equal(t, []any{call.ID, token}, []any{claimed.ID, claimed.Fence})
		_, err = s.ClaimDial(ctx, dial, token, false)
		require.ErrorIs(t, err, models.ErrStale, "nobody is dialled twice")
		claimed, err = s.ClaimDial(ctx, dial, token, true)
		require.NoError(t, err, "the word that it was claimed was lost")
		require.Equal(t, []any{call.ID, token}, []any{claimed.ID, claimed.Fence})
		_, err = s.ClaimDial(ctx, dial, token+1, true)
		require.ErrorIs(t, err, models.ErrStale, "claimed by another")

		ended := &models.Call{
			CustomerID: placed.CustomerID, ApplicationID: placed.ApplicationID, NodeID: &node.ID, Direction: "outbound", Status: models.CallDialing,
			ChannelID: models.NewID("channel_"),
		}
		require.NoError(t, s.CreateCall(ctx, ended))
		dial, err = s.AddCommand(ctx, ended.ID, models.CommandDial, json.RawMessage(`{}`))
		require.NoError(t, err)
		ended.Status = models.CallCanceled
		require.NoError(t, s.TransitionCall(ctx, ended, []string{models.CallDialing}))
		for _, again := range []bool{false, true} {
			_, err = s.ClaimDial(ctx, dial, token, again)
			require.ErrorIs(t, err, models.ErrStale)
		}
	})
}
