package models_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// A node that drains takes no call that is to be dialled, from its own controller or another's, and keeps who wanted it and since when.
func TestDrainedNodeTakesNoCalls(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		node := modelstest.Node(t, s)
		require.Equal(t, models.DefaultNodeWeight, node.Weight)
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		token, _, err := s.AcquireNode(ctx, node.ID, "a", time.Hour, 0)
		require.NoError(t, err)
		create := func(fence int64, direction, status string) error {
			return s.CreateCall(ctx, &models.Call{
				CustomerID: app.CustomerID, ApplicationID: app.ID, NodeID: &node.ID, Fence: fence, Direction: direction, Status: status,
				From: "+15550000001", To: "+15550000002", ChannelID: models.NewID("channel_"),
			})
		}
		require.NoError(t, create(token, models.Outbound, models.CallDialing))
		began := s.Now()
		require.NoError(t, s.DrainNode(ctx, node.ID, "op_1", "new kernel"))
		clock.Advance(time.Minute)
		require.NoError(t, s.DrainNode(ctx, node.ID, "op_2", "another"), "it drains already")
		read, err := s.NodeByName(ctx, node.Name)
		require.NoError(t, err)
		require.True(t, read.Draining())
		require.Equal(t, []any{began.UnixMicro(), "op_1", "new kernel"}, []any{read.DrainingAt.UnixMicro(), read.DrainedBy, read.DrainReason})

		require.ErrorIs(t, create(token, models.Outbound, models.CallDialing), models.ErrNodeDraining)
		require.ErrorIs(t, create(0, models.Outbound, models.CallDialing), models.ErrNodeDraining, "of another controller")
		require.NoError(t, create(token, models.Inbound, models.CallRinging), "it is on the switch already")
		queued := &models.Call{CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallQueued, From: "+15550000001", To: "+15550000002"}
		require.NoError(t, s.CreateCall(ctx, queued))
		queued.Status, queued.NodeID, queued.ChannelID = models.CallDialing, &node.ID, models.NewID("channel_")
		require.ErrorIs(t, s.StartCall(ctx, queued), models.ErrNodeDraining)

		counts, err := s.LiveCallsByNode(ctx)
		require.NoError(t, err)
		require.Equal(t, map[string]int{node.ID: 2}, counts)
		require.NoError(t, s.ResumeNode(ctx, node.ID))
		require.NoError(t, s.StartCall(ctx, queued))
		require.NoError(t, create(0, models.Outbound, models.CallDialing))
		read, err = s.NodeByName(ctx, node.Name)
		require.NoError(t, err)
		require.Equal(t, []any{false, "", ""}, []any{read.Draining(), read.DrainedBy, read.DrainReason})

		require.ErrorIs(t, s.DrainNode(ctx, "node_none", "", ""), models.ErrNotFound)
		require.ErrorIs(t, s.ResumeNode(ctx, "node_none"), models.ErrNotFound)
		require.ErrorIs(t, s.SetNodeWeight(ctx, "node_none", 1), models.ErrNotFound)
		for _, weight := range []int{-1, models.MaxNodeWeight + 1} {
			require.ErrorContains(t, s.SetNodeWeight(ctx, node.ID, weight), "from 0 to 10000")
		}
		require.NoError(t, s.SetNodeWeight(ctx, node.ID, 0))
		read, err = s.NodeByName(ctx, node.Name)
		require.NoError(t, err)
		require.Zero(t, read.Weight)
	})
}

// A drain waits for the calls that are being stored: once it has returned, none is stored any more.
func TestDrainWaitsForCallsThatAreBeingStored(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		placed, node, _ := onNode(t, s)
		inserted, drained := make(chan struct{}), make(chan error, 1)
		go func() {
			<-inserted
			drained <- other.DrainNode(ctx, node.ID, "op_1", "")
		}()
		require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
			err := tx.CreateCall(ctx, &models.Call{
				CustomerID: placed.CustomerID, ApplicationID: placed.ApplicationID, NodeID: &node.ID, Direction: models.Outbound, Status: models.CallDialing,
				From: "+15550000001", To: "+15550000002", ChannelID: models.NewID("channel_"),
			})
			if err != nil {
				return err
			}
			select {
			case <-inserted:
			default:
				close(inserted)
			}
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			select {
			case err := <-drained:
				t.Errorf("the node was drained under a call that is being stored: %v", err)
			case <-short.Done():
			}
			return nil
		}))
		require.NoError(t, <-drained)
	})
}
