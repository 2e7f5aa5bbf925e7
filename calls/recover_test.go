package calls

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// row is how a snapshot lists a channel.
func row(channel, direction, app string) esl.Channel {
	return esl.Channel{UUID: channel, Direction: direction, Application: app}
}

// hold makes the application's prompts last until the test ends them.
func (s *scene) hold() {
	s.answers("/answer", reply(`[{"action":"say","text":"on and on"},{"action":"dtmf","digits":"1"}]`))
	s.sw.script("execute speak", func(command) error { return nil })
}

func TestReconnectGoesOnWithTheCall(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.hold()
	s.create()
	c := s.sw.await("execute speak")
	s.sw.setDown(true)
	s.sw.handler.HandleDown(errors.New("reset"))
	s.sw.setDown(false)
	// The prompt's completion was lost with the connection: the marker behind it tells.
	s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core", Channels: []esl.Channel{row(c.channel, "outbound", "speak")}})
	require.Equal(t, "sleep "+esl.Marker(c.id).Args(), s.sw.await("execute sleep").args)
	s.sw.await("execute send_dtmf")
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason})
}

func TestReconnectFindsTheCallAnswered(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"pause"}]`))
	s.sw.script("originate", func(command) error { return nil })
	s.create()
	c := s.sw.await("originate")
	s.sw.handler.HandleDown(errors.New("reset"))
	s.sw.mu.Lock()
	s.sw.channels[c.channel].answered = true // and its events are lost
	s.sw.mu.Unlock()
	s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core", Channels: []esl.Channel{row(c.channel, "outbound", "park")}})
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason})
	require.Equal(t, []string{"call.created", "call.answered", "call.completed"}, s.kinds(call.ID))
}

func TestEndRemembersALostAnswer(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.sw.script("originate", func(c command) error {
		s.sw.hangup(c.channel, "NORMAL_CLEARING", "Caller-Channel-Answered-Time", microseconds(time.Now()), "variable_sip_hangup_disposition", "recv_bye")
		return nil
	})
	s.create()
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonCalleeHangup}, []any{call.Status, call.Reason})
	require.EqualValues(t, outboundPrice, call.CostMicros)
	require.Equal(t, []string{"call.created", "call.answered", "call.completed"}, s.kinds(call.ID))
}

func TestReconnectFindsTheChannelGone(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.hold()
		s.create()
		c := s.sw.await("execute speak")
		s.sw.handler.HandleDown(errors.New("reset"))
		s.sw.mu.Lock()
		s.sw.channels[c.channel].dead = true
		s.sw.mu.Unlock()
		s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core"})
		call := s.end()
		require.Equal(t, []any{StatusCompleted, ReasonNodeLost, SourcePlatform}, []any{call.Status, call.Reason, call.HangupSource})
		require.Equal(t, 1, call.BilledSeconds, "until the node was lost, a second begun")
	})
}

func TestRestartedNodeEndsEveryCall(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.hold()
	s.create()
	c := s.sw.await("execute speak")
	s.sw.script("originate", func(command) error { return nil })
	s.create()
	s.sw.await("originate")
	s.sw.handler.HandleDown(errors.New("gone"))
	s.sw.mu.Lock()
	for _, channel := range s.sw.channels {
		channel.dead = true
	}
	s.sw.mu.Unlock()
	s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "another", Restarted: true, Channels: []esl.Channel{row(c.channel, "outbound", "speak")}})
	reasons := map[string]string{}
	for range 2 {
		call := s.end()
		reasons[call.Status] = call.Reason
	}
	require.Equal(t, map[string]string{StatusCompleted: ReasonNodeLost, StatusFailed: ReasonNodeLost}, reasons)
}

func TestNodeThatStaysAwayLosesItsCalls(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t), func(c *Config) { c.NodeLostAfter = time.Millisecond })
	s.hold()
	s.create()
	s.sw.await("execute speak")
	s.sw.setDown(true)
	s.sw.handler.HandleDown(errors.New("gone"))
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonNodeLost}, []any{call.Status, call.Reason})
}

func TestRemovedNodeLosesItsCalls(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.hold()
	s.create()
	s.sw.await("execute speak")
	s.manager.RemoveNode(s.node.ID)
	s.manager.RemoveNode(s.node.ID)
	require.Equal(t, ReasonNodeLost, s.end().Reason)
	_, err := s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
	require.ErrorIs(t, err, ErrNoNode)
}

func TestCallsOfAnEarlierController(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} { // true also when an earlier controller could not note the process that its calls are of
		modelstest.Run(t, fmt.Sprintf("restarted %t", restarted), func(t *testing.T, store *models.Store) { testCallsOfAnEarlierController(t, store, restarted) })
	}
}

func testCallsOfAnEarlierController(t *testing.T, store *models.Store, restarted bool) {
	t.Helper()
	// The earlier controller. One of its calls has ended.
	s := newScene(t, store)
	s.answers("/answer", status(204))
	ended := s.create()
	s.end()
	require.NoError(t, s.manager.Stop(t.Context()))
	add := func(state string, present bool) *models.Call {
		channel := s.sw.addChannel("outbound", nil)
		if !present {
			s.sw.channels[channel].dead = true
		}
		answered := time.Now().Add(-time.Minute)
		call := &models.Call{
			CustomerID: s.customer.ID, ApplicationID: s.app.ID, NodeID: &s.node.ID, Direction: DirectionOutbound, Status: state, ChannelID: channel,
			From: "+15550100001", To: "+15550100002", PricePerMinuteMicros: outboundPrice, HoldMicros: 2 * outboundPrice, GrantedSeconds: 120,
		}
		if state == StatusInProgress {
			call.AnsweredAt = &answered
		}
		require.NoError(t, store.InTx(t.Context(), func(tx *models.Store) error {
			if err := tx.Hold(t.Context(), s.customer.ID, call.HoldMicros); err != nil {
				return err
			}
			if err := tx.CreateCall(t.Context(), call); err != nil || state != StatusInProgress {
				return err
			}
			return tx.SaveRecording(t.Context(), &models.Recording{
				CallID: call.ID, CustomerID: s.customer.ID, Path: "/nowhere.wav", Format: "wav", Status: models.RecordingRunning,
			})
		}))
		return call
	}
	gone := add(StatusInProgress, false)
	dialing := add(StatusDialing, false)
	alive := add(StatusInProgress, true)
	// A channel of a call that has ended, one that is nobody's, and one that arrived while nobody listened.
	s.sw.mu.Lock()
	s.sw.channels[ended.ChannelID].dead = false
	s.sw.mu.Unlock()
	foreign := s.sw.addChannel("outbound", nil)
	parked := s.sw.addChannel("inbound", map[string]string{
		"Caller-Caller-ID-Number": "+15559876543", "Caller-Destination-Number": s.did.NumberE164, "variable_sip_network_ip": s.source,
	})
	s.answers("/answer", reply(`[{"action":"answer"}]`))
	s.newManager(func(c *Config) { c.HangupGrace = 50 * time.Millisecond })
	s.sw.handler = s.manager.AddNode(s.node, s.sw)
	s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core", Restarted: restarted, Channels: []esl.Channel{
		row(alive.ChannelID, "outbound", "speak"), row(ended.ChannelID, "outbound", "park"), row(foreign, "outbound", "bridge"), row(parked, "inbound", "park"),
	}})
	for range 4 { // the adopted one, the parked one and the two whose channels are gone; they are looked at when all have ended
		<-s.ended
	}
	require.NoError(t, s.manager.Stop(t.Context()))
	for _, want := range []struct {
		call           *models.Call
		status, reason string
		billed         int
	}{
		{gone, StatusCompleted, ReasonNodeLost, 61},
		{dialing, StatusFailed, ReasonNodeLost, 0},
		{alive, StatusCompleted, ReasonCompleted, 7},
	} {
		call, err := store.CallByID(t.Context(), want.call.ID)
		require.NoError(t, err)
		s.checkEnded(call)
		require.Equal(t, []any{want.status, want.reason}, []any{call.Status, call.Reason})
		rows, err := store.RecordingsOfCall(t.Context(), s.customer.ID, call.ID)
		require.NoError(t, err)
		for _, row := range rows {
			require.Equal(t, models.RecordingFailed, row.Status, "no recording is left running")
		}
		require.InDelta(t, want.billed, call.BilledSeconds, 1)
	}
	call, err := store.CallByChannel(t.Context(), parked)
	require.NoError(t, err)
	require.Equal(t, ReasonCompleted, call.Reason)
	s.sw.mu.Lock()
	defer s.sw.mu.Unlock()
	require.True(t, s.sw.channels[ended.ChannelID].dead, "nobody pays for it")
	require.False(t, s.sw.channels[foreign].dead, "not ours")
}

func TestStopHangsUpAndWaits(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t), func(c *Config) { c.HangUpAtStop = true })
	s.hold()
	s.create()
	s.sw.await("execute speak")
	require.NoError(t, s.manager.Stop(t.Context()))
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonShutdown, SourcePlatform}, []any{call.Status, call.Reason, call.HangupSource})
	require.NoError(t, s.manager.Stop(t.Context()))
	require.ErrorIs(t, s.manager.Start(t.Context()), ErrStopping)
	_, err := s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
	require.ErrorIs(t, err, ErrStopping)
}

func TestStopLeavesTheCallsAlone(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.hold()
		created := s.create()
		s.sw.await("execute speak")
		channel := s.callIn()
		said := s.sw.await("execute speak")
		require.Equal(t, channel, said.channel)
		require.NoError(t, s.manager.Stop(t.Context()))
		require.NotContains(t, strings.Join(s.sw.log(), "\n"), "kill", "nothing is hung up")
		require.Empty(t, s.ended)
		for _, id := range []string{created.ChannelID, channel} {
			call, err := store.CallByChannel(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, StatusInProgress, call.Status)
			require.True(t, call.Cursor.Begun, "where it goes on is stored")
		}
		late := s.sw.callIn("+15559876543", s.did.NumberE164, s.source)
		s.sw.mu.Lock()
		defer s.sw.mu.Unlock()
		require.False(t, s.sw.channels[late].dead, "it stays parked for the next controller")
	})
}

func TestFullMailboxEndsTheCall(t *testing.T) {
	t.Parallel()
	box := newMailbox("a")
	event := func(name, channel string) *esl.Event {
		ev, err := esl.ParseEvent(`{"Event-Name":"` + name + `","Unique-ID":"` + channel + `"}`)
		require.NoError(t, err)
		return ev
	}
	require.True(t, box.put(message{event: event(eventHangupComplete, "a")}))
	require.True(t, box.put(message{event: event(eventHangupComplete, "leg")}))
	for range mailboxLimit - 1 {
		require.True(t, box.put(message{event: event(eventProgress, "a")}))
	}
	require.False(t, box.put(message{event: event(eventAnswer, "a")}), "full")
	require.True(t, box.put(message{lost: true}))
	require.True(t, box.put(message{ending: &intent{reason: "first"}}))
	require.True(t, box.put(message{ending: &intent{reason: "second"}}))
	<-box.ready
	m, _, ok := box.take()
	require.True(t, ok)
	require.Equal(t, "first", m.ending.reason)
	for range mailboxLimit {
		m, overflowed, ok := box.take()
		require.True(t, ok)
		require.False(t, overflowed)
		require.NotNil(t, m.event)
	}
	_, overflowed, ok := box.take()
	require.True(t, ok)
	require.True(t, overflowed)
	m, _, _ = box.take()
	require.Equal(t, eventHangupComplete, m.event.Name(), "the end is never lost, and comes last")
	m, _, _ = box.take()
	require.True(t, m.lost)
	_, _, ok = box.take()
	require.False(t, ok)
}

func TestFloodOfEventsNeverLosesTheEnd(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	hold := make(chan struct{})
	s.hold()
	s.sw.script("execute speak", func(command) error { <-hold; return nil })
	created := s.create()
	s.sw.await("execute speak")
	for range 10 * mailboxLimit {
		s.sw.event("CHANNEL_PROGRESS", created.ChannelID)
	}
	close(hold)
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonInternalError}, []any{call.Status, call.Reason})
}
