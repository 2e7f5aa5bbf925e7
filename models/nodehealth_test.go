package models_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// What a node says of itself is kept for as long as there is the node, from whoever holds it, and placed by.
func TestNodeHealth(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		node, silent := modelstest.Node(t, s), modelstest.Node(t, s)
		tokens := map[string]int64{}
		for _, n := range []*models.Node{node, silent} {
			token, _, err := s.AcquireNode(ctx, n.ID, "a", time.Hour, 0)
			require.NoError(t, err)
			require.NoError(t, s.RenewNode(ctx, n.ID, "a", token, time.Hour, true))
			tokens[n.ID] = token
		}
		at := s.Now().Truncate(time.Microsecond)
		health := &models.NodeHealth{
			NodeID: node.ID, MeasuredAt: at, HeartbeatAt: &at, Version: "1.10.12", UptimeSeconds: 61, Ready: true, OutboundPaused: true,
			Sessions: 3, PeakSessions: 5, PeakSessionsFiveMinutes: 4, MaxSessions: 2000, SessionsSinceStart: 1 << 40, Rate: 1, PeakRate: 9, PeakRateFiveMinutes: 8,
			MaxRate: 200, IdleCPU: 81.5, MinIdleCPU: 2, ClockSkew: models.MicrosOf(-1500 * time.Millisecond), Answer: models.MicrosOf(time.Millisecond),
			MissingModules: []string{"mod_avmd"},
			Problems:       []models.NodeProblem{{Code: "clock_skew", Severity: models.SeverityWarning, Message: "late", Fix: "ntp"}},
		}
		require.ErrorIs(t, s.RecordNodeHealth(ctx, tokens[node.ID]-1, health), models.ErrStale, "of an earlier holder")
		require.NoError(t, s.RecordNodeHealth(ctx, tokens[node.ID], health))
		healths, err := s.NodeHealths(ctx)
		require.NoError(t, err)
		require.Equal(t, map[string]models.NodeHealth{node.ID: *health}, healths)
		require.Equal(t, -1500*time.Millisecond, health.ClockSkew.Duration())

		connected, err := s.ConnectedNodes(ctx)
		require.NoError(t, err)
		want := []models.ConnectedNode{
			{ID: node.ID, Weight: 100, Load: models.NodeLoad{
				MeasuredAt: at.UTC(), Ready: true, OutboundPaused: true, Sessions: 3, MaxSessions: 2000, MaxRate: 200, IdleCPU: 81.5, MinIdleCPU: 2,
			}},
			{ID: silent.ID, Weight: 100},
		}
		require.ElementsMatch(t, want, connected)

		clock.Advance(time.Second)
		later := *health
		later.MeasuredAt, later.HeartbeatAt, later.MissingModules, later.Problems, later.Sessions = s.Now().UTC().Truncate(time.Microsecond), nil, nil, nil, 4
		require.NoError(t, s.RecordNodeHealth(ctx, tokens[node.ID], &later))
		require.NoError(t, s.DrainNode(ctx, silent.ID, "op_1", ""))
		require.NoError(t, s.SetNodeWeight(ctx, silent.ID, 7))
		healths, err = s.NodeHealths(ctx)
		require.NoError(t, err)
		require.Equal(t, map[string]models.NodeHealth{node.ID: later}, healths)
		connected, err = s.ConnectedNodes(ctx)
		require.NoError(t, err)
		require.Contains(t, connected, models.ConnectedNode{ID: silent.ID, Weight: 7, Draining: true})

		require.NoError(t, s.DeleteNode(ctx, node.ID))
		healths, err = s.NodeHealths(ctx)
		require.NoError(t, err)
		require.Empty(t, healths)
		require.ErrorIs(t, s.RecordNodeHealth(ctx, tokens[node.ID], &later), models.ErrStale)
	})
}
