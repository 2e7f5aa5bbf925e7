package models_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestUnwitnessedCalls(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		node, other := modelstest.Node(t, s), modelstest.Node(t, s)
		began := clock.Now()
		ended := func(on *models.Node, channel string) *models.Call {
			t.Helper()
			call := &models.Call{CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallDialing, From: "+1", To: "+2", NodeID: &on.ID, ChannelID: channel}
			require.NoError(t, s.CreateCall(ctx, call))
			at := clock.Now()
			call.Status, call.EndedAt = models.CallFailed, &at
			require.NoError(t, s.TransitionCall(ctx, call, []string{models.CallDialing}))
			return call
		}
		first := ended(node, "chan-1")
		require.NoError(t, s.SaveLeg(ctx, &models.Leg{CallID: first.ID, CustomerID: app.CustomerID, ChannelID: "leg-1", To: "+3", Status: models.LegEnded, Kind: "dial"}))
		second := ended(node, "chan-2") // at the same moment
		ended(other, "chan-3")
		clock.Advance(time.Minute)
		third := ended(node, "chan-4")
		require.NoError(t, s.SaveCDRs(ctx, []models.CDR{{NodeID: node.ID, ChannelID: "chan-2", Direction: "outbound", Cause: "X", StartedAt: began, EndedAt: began}}))

		found := func(after time.Time, id string, before time.Time, limit int) (calls []string, channels []string) {
			t.Helper()
			rows, err := s.UnwitnessedCalls(ctx, node.ID, after, id, before, limit)
			require.NoError(t, err)
			for _, row := range rows {
				calls = append(calls, row.CallID)
				channels = append(channels, row.Channels...)
			}
			return calls, channels
		}
		calls, channels := found(began.Add(-time.Hour), "", clock.Now(), 10)
		require.ElementsMatch(t, []string{first.ID, second.ID, third.ID}, calls)
		require.Equal(t, third.ID, calls[2])
		require.ElementsMatch(t, []string{"chan-1", "leg-1", "chan-4"}, channels, "what is reported is not asked for, nor another node's")
		one, _ := found(began, "", clock.Now(), 1)
		two, _ := found(began, one[0], clock.Now().Add(-time.Second), 10)
		require.ElementsMatch(t, []string{first.ID, second.ID}, append(one, two...), "page by page, and not what has only just ended")
		rest, _ := found(third.UpdatedAt, third.ID, clock.Now().Add(time.Hour), 10)
		require.Empty(t, rest)
	})
}
