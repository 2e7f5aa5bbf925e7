package calls

import (
	"cmp"
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
	var refused error
	for i := range ways {
		over := &ways[i]
		offer, err := m.cfg.Rater.Offer(ctx, m.cfg.Store, priced(call, &over.trunk), over.longest)
		switch {
		case err == nil:
			return &Prospect{Trunk: over.trunk, Number: over.number, CallerID: over.callerID, Offer: offer}, nil
		case !priceless(err):
			return nil, err
		}
		refused = cmp.Or(refused, err)
	}
	return nil, refused
}
