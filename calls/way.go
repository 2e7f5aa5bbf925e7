package calls

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"tandem/models"
)

// ErrDestinationNotAllowed says that no active outbound trunk of the customer may call the number.
var ErrDestinationNotAllowed = errors.New("no active outbound trunk may call the number")

// ErrTrunksFull says that each active outbound trunk of the customer that may call the number has all the calls that it may have now.
var ErrTrunksFull = errors.New("every active outbound trunk has all the calls that it may have")

// errForeignCallerID: no trunk that may call the number shows the caller that the call names.
var errForeignCallerID = errors.New("no active outbound trunk may show the caller")

// way is a trunk to a number, with what its carrier is told.
type way struct {
	trunk    models.Trunk
	number   string
	callerID string // empty shows what the switch shows
	longest  int    // Call.MaxSeconds of a call that goes this way
}

// waysTo are the trunks that take a call to a number, in the order in which they are tried: the lowest priority first, those of one priority by
// chance, as their weights have it. The chance is the seed's, so that the next controller finds the same order. caller is the number that
// is to be shown, empty for none; owns says whether a number is an active DID of the customer. Errors: ErrNoActiveTrunk,
// ErrDestinationNotAllowed, errForeignCallerID, or what owns returns.
func waysTo(trunks []models.Trunk, number, caller, seed string, owns func(number string) (bool, error)) ([]way, error) {
	if len(trunks) == 0 {
		return nil, ErrNoActiveTrunk
	}
	var ways []way
	allowed := false
	for i := range trunks {
		trunk := &trunks[i]
		if !trunk.Routing.Allows(number) || !within(&trunk.Limits).Number(number).Allowed {
			continue
		}
		allowed = true
		shown, err := shownCaller(&trunk.Routing, caller, owns)
		if errors.Is(err, errForeignCallerID) {
			continue
		}
		if err != nil {
			return nil, err
		}
		ways = append(ways, way{trunk: *trunk, number: trunk.Routing.Dialled(number), callerID: shown})
	}
	switch {
	case !allowed:
		return nil, ErrDestinationNotAllowed
	case len(ways) == 0:
		return nil, errForeignCallerID
	}
	shuffle(ways, seed)
	return ways, nil
}

// shownCaller is the number that a call shows on a trunk, or errForeignCallerID where the trunk does not take it.
func shownCaller(r *models.TrunkRouting, caller string, owns func(number string) (bool, error)) (string, error) {
	switch r.CallerIDPolicy {
	case models.CallerIDFixed:
		return r.CallerID, nil
	case models.CallerIDOwn:
		own := false
		if caller != "" {
			var err error
			if own, err = owns(caller); err != nil {
				return "", err
			}
		}
		switch {
		case own:
			return caller, nil
		case r.CallerID != "":
			return r.CallerID, nil
		default:
			return "", errForeignCallerID
		}
	default:
		return caller, nil
	}
}

// shuffle sorts ways by priority and mixes those of one priority: each next one is drawn by its share of the weights that are left.
func shuffle(ways []way, seed string) {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(seed)) // it never fails
	chance := rand.New(rand.NewPCG(hash.Sum64(), 0))
	slices.SortStableFunc(ways, func(a, b way) int { return a.trunk.Routing.Priority - b.trunk.Routing.Priority })
	for begin := 0; begin < len(ways); begin++ {
		end, sum := begin, 0
		for end < len(ways) && ways[end].trunk.Routing.Priority == ways[begin].trunk.Routing.Priority {
			sum += ways[end].trunk.Routing.Weight
			end++
		}
		at := begin
		for drawn := chance.IntN(max(sum, 1)); drawn >= ways[at].trunk.Routing.Weight && at < end-1; at++ {
			drawn -= ways[at].trunk.Routing.Weight
		}
		ways[begin], ways[at] = ways[at], ways[begin]
	}
}

// owner says whether numbers are active DIDs of a customer, and asks for each once.
func (m *Manager) owner(ctx context.Context, customerID string) func(number string) (bool, error) {
	known := map[string]bool{}
	return func(number string) (bool, error) {
		if own, asked := known[number]; asked {
			return own, nil
		}
		did, err := m.cfg.Store.DIDByNumber(ctx, customerID, number)
		if err != nil && !errors.Is(err, models.ErrNotFound) {
			return false, fmt.Errorf("look for the caller's number: %w", err)
		}
		known[number] = err == nil && did.Status == didActive
		return known[number], nil
	}
}

// waysOut are the ways that an outbound call may be dialled by, the first one first.
func (m *Manager) waysOut(ctx context.Context, call *models.Call, app *models.Application) ([]way, error) {
	page, err := m.trunks.read(ctx, call.CustomerID)
	if err != nil {
		return nil, fmt.Errorf("find trunk: %w", err)
	}
	if err := m.mayCall(app, &page.limits, call.To, ""); err != nil {
		return nil, err
	}
	ways, err := waysTo(page.trunks, call.To, call.From, call.ID, m.owner(ctx, call.CustomerID))
	if errors.Is(err, errForeignCallerID) {
		return nil, &RequestError{Field: "from", Message: "must be one of your active DIDs: no trunk that may call the number shows another"}
	}
	for i := range ways {
		ways[i].longest = longest(page.limits.MaxCallSeconds, app.Limits.MaxCallSeconds, ways[i].trunk.Limits.MaxCallSeconds)
	}
	return ways, err
}

// wayOver is the way over the trunk that was chosen for a call before.
func (m *Manager) wayOver(ctx context.Context, call *models.Call) (way, error) {
	trunk, err := m.cfg.Store.Trunk(ctx, call.CustomerID, *call.TrunkID)
	if err != nil {
		return way{}, fmt.Errorf("find trunk: %w", err)
	}
	shown, err := shownCaller(&trunk.Routing, call.From, m.owner(ctx, call.CustomerID))
	if err != nil {
		return way{}, err
	}
	return way{trunk: *trunk, number: trunk.Routing.Dialled(call.To), callerID: shown}, nil
}
