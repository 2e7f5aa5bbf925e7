package daemon

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/dialplan"
	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// droppedStatuses is a store that tells when statuses were dropped.
type droppedStatuses struct {
	*models.Store
	dropped chan error
}

func (d *droppedStatuses) DropGatewayStatuses(ctx context.Context, nodeID string, until time.Time) error {
	err := d.Store.DropGatewayStatuses(ctx, nodeID, until)
	d.dropped <- err
	return err
}

// downs counts what the calls are told.
type downs struct {
	esl.Handler
	told int
}

func (d *downs) HandleDown(error) { d.told++ }

// offline is a switch that is not connected.
type offline struct{ dialplan.Switch }

func (offline) Up() bool { return false }

// TestNodeThatGoesDownReportsNothing: nothing stands of what its gateways were, whether it was steered or not; the calls are
// told of a node that was.
func TestNodeThatGoesDownReportsNothing(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		trunk := modelstest.OutboundTrunk(t, s, modelstest.Customer(t, s, 0))
		node := &models.Node{Name: "one", ESLAddr: "127.0.0.1:8021", Password: "a password", ConfDir: t.TempDir(), IsActive: true}
		require.NoError(t, s.CreateNode(t.Context(), node))
		store := &droppedStatuses{Store: s, dropped: make(chan error, 1)}
		logger := slog.New(slog.DiscardHandler)
		syncer, err := dialplan.NewSyncer(dialplan.Config{Store: store, Logger: logger})
		require.NoError(t, err)
		syncer.AddNode(*node, offline{})
		syncer.Start(t.Context())
		t.Cleanup(syncer.Stop)
		require.NoError(t, <-store.dropped)

		calls := &downs{}
		steered := &steering{node: node.ID, name: node.Name, calls: calls, syncer: syncer, store: s, logger: logger, hold: newHold(time.Now(), time.Minute)}
		for _, safe := range []bool{true, false} {
			require.NoError(t, s.SaveGatewayStatus(t.Context(), []models.GatewayStatus{{NodeID: node.ID, TrunkID: trunk.ID, State: "REGED", Status: "UP"}}))
			steered.safe.Store(safe)
			steered.HandleDown(errors.New("reset"))
			require.NoError(t, <-store.dropped)
			statuses, err := s.GatewayStatuses(t.Context(), []string{trunk.ID})
			require.NoError(t, err)
			require.Empty(t, statuses)
		}
		require.Equal(t, 1, calls.told)
	})
}
