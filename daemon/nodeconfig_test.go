package daemon

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
