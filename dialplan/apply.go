package dialplan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tandem/esl"
)

// Apply makes a node as it should be, taking nothing for granted: all of its files are looked at, and the switch is told everything. With prune it
// also unloads the gateways of our profile that nobody knows; without, they stay.
func (s *Syncer) Apply(ctx context.Context, nodeID string, prune bool) (Report, error) {
	s.mu.Lock()
	n := s.nodes[nodeID]
	s.mu.Unlock()
	if n == nil {
		return Report{NodeID: nodeID}, fmt.Errorf("apply the configuration of node %q: %w", nodeID, ErrUnknownNode)
	}
	rendering, err := s.render(ctx, true)
	if err != nil {
		return Report{NodeID: nodeID}, fmt.Errorf("apply the configuration of node %q: %w", nodeID, err)
	}
	n.mu.Lock()
	n.fresh, n.held = true, nil
	if n.copy != nil {
		n.copy.state, n.copy.proved, n.copy.turn = nil, time.Time{}, ""
		n.copy.whole = true
	}
	n.mu.Unlock()
	report, err := n.sync(ctx, rendering)
	if err != nil {
		return report, err
	}
	s.watchFiles(ctx, n, report, rendering, false)
	if prune {
		pruned, err := n.prune(ctx, rendering.Gateways)
		report.Killed = append(report.Killed, pruned...)
		if err != nil {
			return report, fmt.Errorf("apply the configuration of node %q: %w", nodeID, err)
		}
	}
	if report.Pending {
		return report, fmt.Errorf("apply the configuration of node %q: %w: it will be told when it is back", nodeID, esl.ErrDown)
	}
	return report, nil
}

// prune unloads gateways that are loaded in our profile and in no rendering.
func (n *node) prune(ctx context.Context, gateways map[string]string) (pruned []string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	loaded, err := n.control.Gateways(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the gateways: %w", err)
	}
	for _, g := range loaded {
		if g.Profile != n.profile || gateways[g.Name] != "" || checkGatewayName(g.Name) != nil {
			continue
		}
		err := n.control.KillGateway(ctx, n.profile, g.Name)
		if refused := new(esl.CommandError); errors.As(err, &refused) && strings.Contains(refused.Reply, "no such gateway") {
			continue
		}
		if err != nil {
			return pruned, fmt.Errorf("unload gateway %q: %w", g.Name, err)
		}
		pruned = append(pruned, g.Name)
	}
	return pruned, nil
}
