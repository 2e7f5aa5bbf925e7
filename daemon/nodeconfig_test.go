package daemon

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/calls"
	"tandem/esl/simswitch"
	"tandem/models"
	"tandem/models/modelstest"
)

// TestOrderThatTakesTooLongHasFailed: it is not begun again for ever.
func TestOrderThatTakesTooLongHasFailed(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	node := modelstest.Node(t, store)
	k := &nodeKeeper{store: store, logger: slog.New(slog.DiscardHandler)}
	order := &models.NodeOrder{NodeID: node.ID, Kind: models.OrderDiff}
	require.NoError(t, store.AskNode(t.Context(), order))
	k.carryOut(t.Context(), &heldNode{row: *node}, order, time.Nanosecond)
	done, err := store.NodeOrder(t.Context(), order.ID)
	require.NoError(t, err)
	require.NotNil(t, done.DoneAt)
	require.Contains(t, done.Error, "deadline exceeded")
	open, err := store.OpenOrders(t.Context())
	require.NoError(t, err)
	require.Empty(t, open)
}

// TestNodeIsToldACommand: a switch is told an operator's command once, whoever dies, and what it says is kept.
func TestNodeIsToldACommand(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		ctx := t.Context()
		s := newSteered(t, store, simswitch.Config{})
		s.becomes(t, models.NodeUp)
		ask := func(command string, begun bool) *models.NodeOrder {
			t.Helper()
			order := &models.NodeOrder{NodeID: s.node.ID, Kind: models.OrderExec, Command: command}
			require.NoError(t, store.InTx(ctx, func(tx *models.Store) error {
				if err := tx.AskNode(ctx, order); err != nil || !begun {
					return err
				}
				return tx.BeginOrder(ctx, order.ID) // by a controller that has died since
			}))
			var done *models.NodeOrder
			require.Eventually(t, func() bool {
				var err error
				done, err = store.NodeOrder(ctx, order.ID)
				return err == nil && done.DoneAt != nil
			}, 30*time.Second, 20*time.Millisecond)
			return done
		}
		done := ask("status", false)
		require.Empty(t, done.Error)
		var reply models.SwitchReply
		require.NoError(t, json.Unmarshal(done.Result, &reply))
		require.Contains(t, reply.Text, "session(s) since startup")
		require.False(t, reply.Truncated)
		require.ErrorIs(t, store.BeginOrder(ctx, done.ID), models.ErrStale)

		require.Contains(t, ask("no_such_command at all", false).Error, "no_such_command")
		require.Empty(t, ask("global_setvar told=once", false).Error)
		require.Contains(t, ask("global_setvar told=twice", true).Error, "a controller that has not said how it ended")
		require.NoError(t, json.Unmarshal(ask("global_getvar told", false).Result, &reply))
		require.Equal(t, "once", reply.Text)
	})
}

// TestNodeIsReapedOnRequest: the controller of a node looks for what fell between the parts, and deals with it when told to.
func TestNodeIsReapedOnRequest(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, store *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		clock.Advance(-2 * time.Minute) // the call is as old as that
		call := modelstest.Call(t, store, modelstest.Application(t, store, modelstest.Customer(t, store, 0)))
		clock.Advance(2 * time.Minute)
		s := newSteered(t, store, simswitch.Config{})
		s.becomes(t, models.NodeUp)
		call.NodeID, call.ChannelID = &s.node.ID, "4f0b2a5c-8a3d-4f6e-9d2b-1c7e5a9b3d10"
		require.NoError(t, store.UpdateCall(ctx, call, "node_id", "channel_id"))
		ask := func(kind string) []calls.Stray {
			order := &models.NodeOrder{NodeID: s.node.ID, Kind: kind}
			require.NoError(t, store.AskNode(ctx, order))
			var strays []calls.Stray
			require.Eventually(t, func() bool {
				done, err := store.NodeOrder(ctx, order.ID)
				if err != nil || done.DoneAt == nil {
					return false
				}
				require.Empty(t, done.Error)
				require.NoError(t, json.Unmarshal(done.Result, &strays))
				return true
			}, 30*time.Second, 20*time.Millisecond)
			return strays
		}
		want := []calls.Stray{{Kind: calls.StrayGone, CallID: call.ID, ChannelID: call.ChannelID}}
		require.Equal(t, want, ask(models.OrderStrays))
		require.Equal(t, want, ask(models.OrderReap))
	})
}
