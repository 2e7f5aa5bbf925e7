package calls

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// TestStraysAreReapedOnRequest has each kind of stray on one node, and a call on another: a look changes nothing, reaping deals with each.
func TestStraysAreReapedOnRequest(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, store *models.Store, clock *modelstest.Clock) {
		s := newScene(t, store)
		_, err := store.Credit(t.Context(), s.customer.ID, "enough for all", models.LedgerTopup, startBalance, "")
		require.NoError(t, err)
		s.answers("/answer", status(204))
		over := s.create()
		s.end()
		s.hold()
		held := func() *models.Call {
			call := s.create()
			call.ChannelID = s.sw.await("execute speak").channel
			return call
		}
		steered, stuck, unlisted := held(), held(), held()
		gone := s.leave(StatusInProgress, DirectionOutbound)
		unsteered := s.leave(StatusInProgress, DirectionOutbound, func(c *models.Call) { c.ChannelID = s.sw.addChannel("outbound", nil) })
		other := &models.Node{Name: "other", Password: "secret", IsActive: true}
		require.NoError(t, store.CreateNode(t.Context(), other))
		elsewhere := s.leave(StatusInProgress, DirectionOutbound, func(c *models.Call) { c.NodeID = &other.ID })
		clock.Advance(strayAfter)
		young := s.leave(StatusDialing, DirectionOutbound)
		party := s.sw.addChannel("outbound", nil)
		require.NoError(t, store.SaveLeg(t.Context(), &models.Leg{
			CallID: over.ID, CustomerID: s.customer.ID, ChannelID: party, Kind: models.LegDial, Status: models.LegEnded,
		}))
		s.sw.mu.Lock()
		s.sw.channels[over.ChannelID].dead = false
		s.sw.channels[stuck.ChannelID].dead, s.sw.channels[stuck.ChannelID].stuck = true, true
		s.sw.channels[unlisted.ChannelID].dead = true
		s.sw.mu.Unlock()
		want := []Stray{
			{Kind: StrayGone, CallID: gone.ID, ChannelID: gone.ChannelID},
			{Kind: StrayUnsteered, CallID: unsteered.ID, ChannelID: unsteered.ChannelID},
			{Kind: StrayStuck, CallID: stuck.ID, ChannelID: stuck.ChannelID},
			{Kind: StrayUnlisted, CallID: unlisted.ID, ChannelID: unlisted.ChannelID},
			{Kind: StrayStale, CallID: over.ID, ChannelID: over.ChannelID},
			{Kind: StrayStale, ChannelID: party},
		}

		found, err := s.manager.Strays(t.Context(), s.node.ID)
		require.NoError(t, err)
		require.ElementsMatch(t, want, found)
		require.Empty(t, s.ended, "a look changes nothing")
		require.Nil(t, s.manager.callSession(unsteered.ID))
		s.sw.mu.Lock()
		require.False(t, s.sw.channels[over.ChannelID].dead)
		s.sw.mu.Unlock()

		found, err = s.manager.Reap(t.Context(), s.node.ID)
		require.NoError(t, err)
		require.ElementsMatch(t, want, found)
		reasons := map[string]string{}
		for range 3 {
			call := s.end()
			reasons[call.ID] = call.Reason
		}
		require.Equal(t, map[string]string{gone.ID: ReasonNodeLost, stuck.ID: ReasonNodeLost, unlisted.ID: ReasonNodeLost}, reasons)
		require.NotNil(t, s.manager.callSession(unsteered.ID), "it is taken over")
		s.sw.mu.Lock()
		require.True(t, s.sw.channels[over.ChannelID].dead)
		require.True(t, s.sw.channels[party].dead)
		s.sw.mu.Unlock()
		for _, call := range []*models.Call{steered, elsewhere, young} {
			row, err := store.CallByID(t.Context(), call.ID)
			require.NoError(t, err)
			require.True(t, row.Live())
		}
		_, err = s.manager.Reap(t.Context(), other.ID)
		require.ErrorIs(t, err, ErrNotHeld)
		s.sw.handler.HandleDown(errors.New("reset"))
		_, err = s.manager.Strays(t.Context(), s.node.ID)
		require.ErrorIs(t, err, esl.ErrDown)
	})
}
