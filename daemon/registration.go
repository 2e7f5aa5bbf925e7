package daemon

import (
	"context"

	"tandem/models"
	"tandem/webhooks"
)

// tellRegistration tells the trunk's customer that it registered at a node, or that its registration there ended.
func tellRegistration(ctx context.Context, tx *models.Store, change models.RegistrationChange) error {
	kind := webhooks.KindTrunkUnregistered
	if change.Registered {
		kind = webhooks.KindTrunkRegistered
	}
	_, err := webhooks.EmitTrunk(ctx, tx, &change.Trunk, kind, map[string]any{
		"node_id": change.Status.NodeID, "state": change.Status.State, "status": change.Status.Status,
	})
	return err
}
