package dialplan

import (
	"context"
	"slices"
	"strings"

	"tandem/models"
)

// Drifts keeps what is found of nodes that are not as they should be; *models.Store is one.
type Drifts interface {
	RecordDrifts(ctx context.Context, nodeID string, kinds []string, found, healed []models.Drift) (news []models.Drift, err error)
}

// driftContexts is how many contexts of a switch are compared with their files each time that all files are: the next time it is the turn of others.
const driftContexts = 50

// drift is what is known of a node that no change of ours explains.
type drift struct {
	// applied are the digests of the documents that the node had when it was last synchronised, nil before that: what differs from them without
	// a change of ours was changed by somebody else.
	applied map[string]digest
	// strange are gateways that the last poll found and nobody knows; one that was unloaded stays in the list for a moment.
	strange []string
	// told is what was recorded last, of the gateways and of the contexts.
	told map[string]string
	turn int
}

// strayed tells which of the files that are to be written or removed somebody else has changed.
func (n *node) strayed(d difference, wanted map[string]digest) []models.Drift {
	if n.drift.applied == nil {
		return nil // it may have changed while nobody synchronised it
	}
	var found []models.Drift
	for _, path := range d.written {
		if before, known := n.drift.applied[path]; known && before == wanted[path] {
			found = append(found, models.Drift{Kind: models.DriftFileEdited, Name: path})
		}
	}
	for _, path := range d.removed {
		if _, known := n.drift.applied[path]; !known {
			found = append(found, models.Drift{Kind: models.DriftFileUnknown, Name: path})
		}
	}
	return found
}

// strangers are the gateways of our profile that two polls in a row have found and nobody knows.
func (n *node) strangers(names []string) []models.Drift {
	before := n.drift.strange
	n.drift.strange = names
	var found []models.Drift
	for _, name := range names {
		if slices.Contains(before, name) {
			found = append(found, models.Drift{Kind: models.DriftGatewayUnknown, Name: name})
		}
	}
	return found
}

// stale looks at some contexts of the switch.
func (n *node) stale(ctx context.Context, rendering *Rendering) ([]models.Drift, bool) {
	memory, ok := n.control.(Loaded)
	if !ok || !n.control.Up() {
		return nil, false
	}
	names := contextNames(rendering)
	if len(names) > driftContexts {
		n.drift.turn %= len(names)
		names = append(names[n.drift.turn:], names[:n.drift.turn]...)[:driftContexts]
		n.drift.turn += driftContexts
	}
	contexts, err := staleContexts(ctx, memory, rendering, names)
	if err != nil {
		return nil, false
	}
	found := make([]models.Drift, 0, len(contexts))
	for _, name := range contexts {
		found = append(found, models.Drift{Kind: models.DriftContextStale, Name: name})
	}
	return found, true
}

// Kinds of drift that are looked for together.
var (
	fileDrifts    = []string{models.DriftFileEdited, models.DriftFileUnknown}
	gatewayDrifts = []string{models.DriftGatewayUnknown, models.DriftGatewayMissing}
	contextDrifts = []string{models.DriftContextStale}
)

// watchFiles records what a synchronisation found, and looks at some of the switch's contexts when all files were looked at.
func (s *Syncer) watchFiles(ctx context.Context, n *node, report Report, rendering *Rendering, whole bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s.recordDrift(ctx, n, fileDrifts, nil, report.Drifted)
	if !whole || report.Pending {
		return
	}
	if found, seen := n.stale(ctx, rendering); seen {
		s.recordDrift(ctx, n, contextDrifts, found, nil)
		if len(found) > 0 {
			n.fresh = true // the next synchronisation tells the switch everything
			n.settled.Store(false)
		}
	}
}

// watchGateways records what a poll found.
func (s *Syncer) watchGateways(ctx context.Context, n *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone || !n.control.Up() {
		return // nothing was asked
	}
	found := n.strangers(n.unknown)
	for _, name := range n.lacking {
		found = append(found, models.Drift{Kind: models.DriftGatewayMissing, Name: name})
	}
	s.recordDrift(ctx, n, gatewayDrifts, found, nil)
}

// recordDrift stores and logs what was found, unless that is what was stored last. The node's lock is held.
func (s *Syncer) recordDrift(ctx context.Context, n *node, kinds []string, found, healed []models.Drift) {
	key := strings.Join(kinds, " ")
	var text strings.Builder
	for _, d := range found {
		text.WriteString(d.Kind + " " + d.Name + "\n")
	}
	if before, told := n.drift.told[key]; told && before == text.String() && len(healed) == 0 {
		return
	}
	var news []models.Drift
	if s.drifts != nil {
		var err error
		if news, err = s.drifts.RecordDrifts(ctx, n.id, kinds, found, healed); err != nil {
			if ctx.Err() == nil {
				s.logger.Error("drift not recorded", "node_id", n.id, "error", err)
			}
			return
		}
	} else {
		news = append(slices.Clone(found), healed...)
	}
	if n.drift.told == nil {
		n.drift.told = map[string]string{}
	}
	n.drift.told[key] = text.String()
	for _, d := range news {
		s.logger.Warn("node is not as it should be", "node_id", n.id, "drift", d.Kind, "name", d.Name)
	}
}
