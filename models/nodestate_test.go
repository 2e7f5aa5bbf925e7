package models_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

func TestNodeState(t *testing.T) {
	t.Parallel()
	now := time.Now()
	before, later := now.Add(-time.Second), now.Add(time.Second)
	empty := &models.NodeHealth{MeasuredAt: now, Drained: true}
	for name, tc := range map[string]struct {
		change func(*models.Node)
		health *models.NodeHealth
		live   int
		state  string
	}{
		"up":                       {func(*models.Node) {}, nil, 7, models.NodeUp},
		"inactive":                 {func(n *models.Node) { n.IsActive = false }, nil, 0, models.NodeInactive},
		"never held":               {func(n *models.Node) { n.LeaseUntil = nil }, nil, 0, models.NodeUnheld},
		"not held any more":        {func(n *models.Node) { n.LeaseUntil = &before }, nil, 0, models.NodeUnheld},
		"not held, draining":       {func(n *models.Node) { n.LeaseUntil, n.DrainingAt = &before, &before }, empty, 0, models.NodeUnheld},
		"not connected":            {func(n *models.Node) { n.ConnectedUntil = nil }, nil, 0, models.NodeAway},
		"drains":                   {func(n *models.Node) { n.DrainingAt = &before }, empty, 1, models.NodeDraining},
		"has legs left":            {func(n *models.Node) { n.DrainingAt = &before }, &models.NodeHealth{MeasuredAt: now, Drained: true, Sessions: 1}, 0, models.NodeDraining},
		"takes callers still":      {func(n *models.Node) { n.DrainingAt = &before }, &models.NodeHealth{MeasuredAt: now}, 0, models.NodeDraining},
		"has not said since":       {func(n *models.Node) { n.DrainingAt = &now }, empty, 0, models.NodeDraining},
		"has never said":           {func(n *models.Node) { n.DrainingAt = &before }, nil, 0, models.NodeDraining},
		"drained":                  {func(n *models.Node) { n.DrainingAt = &before }, empty, 0, models.NodeDrained},
		"drained, was measured up": {func(*models.Node) {}, empty, 0, models.NodeUp},
	} {
		node := &models.Node{IsActive: true, LeaseUntil: &later, ConnectedUntil: &later}
		tc.change(node)
		require.Equal(t, tc.state, node.State(tc.health, tc.live, now), name)
		require.Contains(t, models.NodeStates, tc.state)
	}
}
