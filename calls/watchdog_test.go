package calls

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// twice is two rounds of the watchdog.
func (s *scene) twice() {
	s.t.Helper()
	s.manager.look(s.t.Context(), s.manager.look(s.t.Context(), newSuspicion()))
}

// newSettledScene is a scene whose node has been compared with the database already: a caller that was parked before is through.
func newSettledScene(t *testing.T, store *models.Store) *scene {
	t.Helper()
	s := newStage(t, store)
	s.answers("/answer", status(204))
	parked := s.sw.addChannel("inbound", map[string]string{
		"Caller-Caller-ID-Number": "+15559876543", "Caller-Destination-Number": s.did.NumberE164, "variable_sip_network_ip": s.source,
	})
	s.newManager(func(c *Config) { c.HangupGrace = 50 * time.Millisecond })
	s.sw.handler = s.manager.AddNode(s.node, s.sw)
	s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core", Channels: []esl.Channel{row(parked, "inbound", "park")}})
	require.Equal(t, parked, s.end().ChannelID)
	return s
}

// TestLostHangupIsHeardOfTheCDR has the switch end channels of which no event comes: a call's, and a party's.
func TestLostHangupIsHeardOfTheCDR(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.hold()
		s.create()
		c := s.sw.await("execute speak")
		s.report(c.channel)
		s.manager.hearCDRs(t.Context(), store.Now().Add(-unheardAfter))
		require.NotNil(t, s.manager.channelSession(c.channel), "the event may be on its way")
		s.manager.hearCDRs(t.Context(), store.Now().Add(time.Second))
		call := s.end()
		require.Equal(t, []any{StatusCompleted, ReasonCalleeHangup, SourceCallee, 20}, []any{call.Status, call.Reason, call.HangupSource, call.BilledSeconds})
		s.manager.hearCDRs(t.Context(), store.Now().Add(time.Second))
	})
}

func TestLostHangupOfAPartyIsHeardOfTheCDR(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"dial","to":"+15550100009"}]`))
	s.sw.script("execute bridge", func(command) error { return nil }) // it rings
	created := s.create()
	s.sw.await("execute bridge")
	var legs []models.Leg
	require.Eventually(t, func() bool {
		var err error
		legs, err = s.store.LegsOfCall(t.Context(), s.customer.ID, created.ID)
		return err == nil && len(legs) == 1
	}, patience, 10*time.Millisecond)
	s.report(legs[0].ChannelID, neverAnswered(causeBusy, "recv_refuse", 486))
	s.manager.hearCDRs(t.Context(), s.store.Now().Add(time.Second))
	require.Eventually(t, func() bool { return len(s.dataOf(created.ID, "leg.ended")) == 1 }, patience, 10*time.Millisecond)
	data := s.data(created.ID, "leg.ended")
	require.Equal(t, []any{dialBusy, ReasonBusy, 486.0}, []any{data["dial_status"], data["reason"], data["sip_code"]})
}

// TestOrphanIsHeardOfTheCDR ends a call without a session as soon as its CDR is there.
func TestOrphanIsHeardOfTheCDR(t *testing.T) {
	t.Parallel()
	s := newSettledScene(t, modelstest.Open(t))
	call, other := s.leave(StatusInProgress, DirectionOutbound), s.leave(StatusInProgress, DirectionOutbound)
	s.report(call.ChannelID)
	second := models.Node{Name: "second", Password: "secret"}
	require.NoError(t, s.store.CreateNode(t.Context(), &second))
	s.report(other.ChannelID, func(c *models.CDR) { c.NodeID = second.ID }) // another node's word is nothing
	s.manager.hearCDRs(t.Context(), s.store.Now().Add(time.Second))
	require.Equal(t, []any{call.ID, ReasonCalleeHangup}, func(c models.Call) []any { return []any{c.ID, c.Reason} }(s.end()))
	require.NoError(t, s.manager.Stop(t.Context()))
	require.Empty(t, s.ended)
}

// TestStraysAreEnded has calls that neither a channel nor a node has, and calls that only look like it.
func TestStraysAreEnded(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, store *models.Store, clock *modelstest.Clock) {
		s := newSettledScene(t, store)
		node := func(name string) *models.Node {
			row := &models.Node{Name: name, Password: "secret", IsActive: true}
			require.NoError(t, store.CreateNode(t.Context(), row))
			return row
		}
		on := func(row *models.Node) func(*models.Call) {
			return func(c *models.Call) {
				c.NodeID = nil
				if row != nil {
					c.NodeID = &row.ID
				}
			}
		}
		held, left := node("held"), node("left")
		_, ok, err := store.AcquireNode(t.Context(), held.ID, "another", time.Hour, 0)
		require.NoError(t, err)
		require.True(t, ok)
		want := map[string]string{
			s.leave(StatusInProgress, DirectionOutbound).ID:           ReasonNodeLost, // ours, without a session or a channel
			s.leave(StatusInProgress, DirectionOutbound, on(nil)).ID:  ReasonNodeLost,
			s.leave(StatusDialing, DirectionOutbound, on(left)).ID:    ReasonNodeLost,
			s.leave(StatusInProgress, DirectionOutbound, on(left)).ID: ReasonNodeLost,
		}
		alive := s.leave(StatusInProgress, DirectionOutbound, on(held))
		waits := s.leave(StatusQueued, DirectionOutbound, func(c *models.Call) { c.ChannelID, c.HoldMicros = "", 0 })
		s.twice()
		require.Empty(t, s.ended, "none is old enough")
		clock.Advance(strayAfter)
		young := s.leave(StatusDialing, DirectionOutbound, on(nil))
		first := s.manager.look(t.Context(), newSuspicion())
		require.Empty(t, s.ended, "what is odd once may be on its way")
		s.manager.look(t.Context(), first)
		got := map[string]string{}
		for range want {
			call := s.end()
			got[call.ID] = call.Reason
		}
		require.Equal(t, want, got)
		for _, call := range []*models.Call{alive, waits, young} {
			found, err := store.CallByID(t.Context(), call.ID)
			require.NoError(t, err)
			require.True(t, found.Live())
		}
		clock.Advance(time.Hour + s.manager.cfg.NodeLostAfter)
		s.twice() // the lease of the node that was held has run out, and nobody took it
		ended := map[string]bool{s.end().ID: true, s.end().ID: true}
		require.Equal(t, map[string]bool{alive.ID: true, young.ID: true}, ended)
	})
}

// TestStuckChannels has a switch list a channel that it does not have, and not list one that it has.
func TestStuckChannels(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.hold()
	s.sw.script("execute sleep", func(command) error { return nil }) // it waits behind the prompt
	s.create()
	stuck := s.sw.await("execute speak").channel
	s.create()
	unlisted := s.sw.await("execute speak").channel
	s.create()
	lost := s.sw.await("execute speak").channel
	s.sw.mu.Lock()
	s.sw.channels[stuck].dead, s.sw.channels[stuck].stuck = true, true
	s.sw.channels[unlisted].unlisted = true
	s.sw.channels[lost].dead = true
	s.sw.mu.Unlock()
	first := s.manager.look(t.Context(), newSuspicion())
	require.Zero(t, s.manager.StuckChannels(), "the list lags behind")
	s.manager.look(t.Context(), first)
	require.Equal(t, 1, s.manager.StuckChannels())
	for range 2 { // the switch said itself that it does not have them
		call := s.end()
		require.Contains(t, []string{stuck, lost}, call.ChannelID)
		require.Equal(t, ReasonNodeLost, call.Reason)
	}
	require.NotNil(t, s.manager.channelSession(unlisted), "it lives")
	require.Empty(t, s.ended)
}

// TestStaleChannelsAreHungUp has a node come back with channels whose calls were given up.
func TestStaleChannelsAreHungUp(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", status(204))
		ended := s.create()
		s.end()
		leg := s.sw.addChannel("outbound", nil)
		require.NoError(t, store.SaveLeg(t.Context(), &models.Leg{
			CallID: ended.ID, CustomerID: s.customer.ID, ChannelID: leg, Kind: models.LegDial, Status: models.LegAnswered,
		}))
		s.sw.mu.Lock()
		s.sw.channels[ended.ChannelID].dead = false
		s.sw.mu.Unlock()
		foreign := s.sw.addChannel("outbound", nil)
		s.twice()
		s.sw.mu.Lock()
		defer s.sw.mu.Unlock()
		require.True(t, s.sw.channels[ended.ChannelID].dead)
		require.True(t, s.sw.channels[leg].dead)
		require.False(t, s.sw.channels[foreign].dead, "not ours")
	})
}

// TestBillsAreHeldAgainstTheCDRs tells of a call that was billed other seconds than its switch recorded, and leaves the money.
func TestBillsAreHeldAgainstTheCDRs(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, store *models.Store, clock *modelstest.Clock) {
		s := newScene(t, store)
		s.answers("/answer", status(204))
		right, wrong := s.create(), s.create()
		first := []models.Call{s.end(), s.end()}
		s.report(right.ChannelID, func(c *models.CDR) { c.BilledSeconds = first[0].BilledSeconds })
		s.report(wrong.ChannelID, func(c *models.CDR) { c.BilledSeconds = first[0].BilledSeconds + 5 })
		s.report(uuid.NewString())
		clock.Advance(checkAfter + time.Second)
		s.manager.look(t.Context(), newSuspicion())
		differences, err := store.BillingDifferences(t.Context())
		require.NoError(t, err)
		require.Len(t, differences, 1)
		require.Equal(t, []any{wrong.ID, 5}, []any{differences[0].CallID, differences[0].CDRSeconds - differences[0].BilledSeconds})
		call, err := store.CallByID(t.Context(), wrong.ID)
		require.NoError(t, err)
		require.Equal(t, []any{first[0].BilledSeconds, first[0].CostMicros}, []any{call.BilledSeconds, call.CostMicros}, "money is not moved")
	})
}
