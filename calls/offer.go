package calls

import (
	"context"
	"fmt"

	"tandem/billing"
	"tandem/models"
)

// Prospect is what would become of a call if it was created now.
type Prospect struct {
	// Trunk is the one that it would be dialled over first, Number what its carrier would be told to dial, and CallerID what it would show, empty for
	// what the node shows.
	Trunk    models.Trunk
	Number   string
	CallerID string
	Offer    billing.Offer
}

// Foresee says by what way Create would dial a call, at what price, what would be held, and how long the balance would last. Nothing is stored,
// held or dialled, and no limit on numbers of calls is looked at. Errors are those of Create that it could meet.
func (m *Manager) Foresee(ctx context.Context, req CreateRequest) (*Prospect, error) {
	call, err := m.newCall(&req)
	if err != nil {
		return nil, err
	}
	app, err := m.cfg.Store.Application(ctx, req.CustomerID, req.ApplicationID)
	if err != nil {
		return nil, fmt.Errorf("find application: %w", err)
	}
	ways, err := m.waysOut(ctx, call, app)
	if err != nil {
		return nil, err
	}
	first := &ways[0]
	offer, err := m.cfg.Rater.Offer(ctx, m.cfg.Store, priced(call, &first.trunk), first.longest)
	if err != nil {
		return nil, err
	}
	return &Prospect{Trunk: first.trunk, Number: first.number, CallerID: first.callerID, Offer: offer}, nil
}
