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

// leave stores a live call of an earlier controller, whose channel is gone.
func (s *scene) leave(status, direction string, edit ...func(*models.Call)) *models.Call {
	s.t.Helper()
	call := &models.Call{
		CustomerID: s.customer.ID, ApplicationID: s.app.ID, NodeID: &s.node.ID, Direction: direction, Status: status, ChannelID: uuid.NewString(),
		From: "+15550100001", To: "+15550100002", PricePerMinuteMicros: outboundPrice, HoldMicros: 2 * outboundPrice, GrantedSeconds: 120,
	}
	if status == StatusInProgress {
		answered := s.store.Now().Add(-time.Minute)
		call.AnsweredAt = &answered
	}
	for _, fn := range edit {
		fn(call)
	}
	require.NoError(s.t, s.store.InTx(s.t.Context(), func(tx *models.Store) error {
		if err := tx.Hold(s.t.Context(), s.customer.ID, call.HoldMicros); err != nil {
			return err
		}
		return tx.CreateCall(s.t.Context(), call)
	}))
	return call
}

// report stores a CDR of a channel of the scene's node.
func (s *scene) report(channel string, edit ...func(*models.CDR)) models.CDR {
	s.t.Helper()
	now := s.store.Now()
	answered := now.Add(-20 * time.Second)
	cdr := models.CDR{
		NodeID: s.node.ID, ChannelID: channel, Direction: DirectionOutbound, Cause: causeNormal, Q850: 16, SIPCode: 200, Disposition: "recv_bye",
		BilledSeconds: 20, StartedAt: now.Add(-30 * time.Second), AnsweredAt: &answered, EndedAt: now,
	}
	for _, fn := range edit {
		fn(&cdr)
	}
	require.NoError(s.t, s.store.SaveCDRs(s.t.Context(), []models.CDR{cdr}))
	return cdr
}

func neverAnswered(cause, disposition string, sip int) func(*models.CDR) {
	return func(cdr *models.CDR) {
		cdr.Cause, cdr.Q850, cdr.Disposition, cdr.SIPCode, cdr.BilledSeconds, cdr.AnsweredAt = cause, q850[cause], disposition, sip, 0, nil
	}
}

// TestOrphanEndsAsItsCDRSays has a controller find calls that ended while nobody watched.
func TestOrphanEndsAsItsCDRSays(t *testing.T) {
	t.Parallel()
	type ended struct {
		Status, Reason, Source, Cause string
		Q850, SIP, Billed             int
		Cost                          int64
		Kinds                         []string
	}
	cases := map[string]struct {
		status, direction string
		cdr               func(*models.CDR)
		want              ended
	}{
		"the callee hung up": {
			status: StatusInProgress, direction: DirectionOutbound, cdr: func(*models.CDR) {},
			want: ended{StatusCompleted, ReasonCalleeHangup, SourceCallee, causeNormal, 16, 200, 20, outboundPrice, []string{"call.completed"}},
		},
		"the caller hung up after a minute": {
			status: StatusInProgress, direction: DirectionInbound, cdr: func(c *models.CDR) { c.Direction, c.BilledSeconds = DirectionInbound, 61 },
			want: ended{StatusCompleted, ReasonCallerHangup, SourceCaller, causeNormal, 16, 200, 61, 2 * outboundPrice, []string{"call.completed"}},
		},
		"the time was over": {
			status: StatusInProgress, direction: DirectionOutbound, cdr: func(c *models.CDR) { c.Cause, c.Disposition, c.BilledSeconds = causeTimeLimit, "send_bye", 120 },
			want: ended{StatusCompleted, ReasonTimeLimit, SourcePlatform, causeTimeLimit, 16, 200, 120, 2 * outboundPrice, []string{"call.completed"}},
		},
		"answered, unheard": {
			status: StatusDialing, direction: DirectionOutbound, cdr: func(*models.CDR) {},
			want: ended{StatusCompleted, ReasonCalleeHangup, SourceCallee, causeNormal, 16, 200, 20, outboundPrice, []string{"call.answered", "call.completed"}},
		},
		"busy": {
			status: StatusDialing, direction: DirectionOutbound, cdr: neverAnswered(causeBusy, "recv_refuse", 486),
			want: ended{StatusBusy, ReasonBusy, SourceCallee, causeBusy, 17, 486, 0, 0, []string{"call.failed"}},
		},
		"a caller who did not wait": {
			status: StatusRinging, direction: DirectionInbound, cdr: neverAnswered(causeCancel, "recv_cancel", 487),
			want: ended{StatusCanceled, ReasonCallerHangup, SourceCaller, causeCancel, 16, 487, 0, 0, []string{"call.failed"}},
		},
	}
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newStage(t, store)
		calls := map[string]*models.Call{}
		for name, tc := range cases {
			calls[name] = s.leave(tc.status, tc.direction)
		}
		s.start(func(c *Config) { c.CDRWait = time.Minute })
		// The CDRs come after the controller: by posts that were repeated, or out of the node's folder.
		want, answers, ends := map[string]ended{}, map[string]*time.Time{}, map[string]time.Time{}
		for name, call := range calls {
			cdr := s.report(call.ChannelID, cases[name].cdr)
			want[call.ID], ends[call.ID] = cases[name].want, cdr.EndedAt
			if cases[name].status == StatusDialing && cdr.AnsweredAt != nil {
				answers[call.ID] = cdr.AnsweredAt
			}
		}
		require.Len(t, answers, 1)
		got := map[string]ended{}
		for range calls {
			call := s.end()
			got[call.ID] = ended{
				call.Status, call.Reason, call.HangupSource, call.Cause, call.Q850, call.SIPCode, call.BilledSeconds, call.CostMicros, s.kinds(call.ID),
			}
			require.WithinDuration(t, ends[call.ID], *call.EndedAt, time.Microsecond, "when the switch says, not when it was heard of")
			if at := answers[call.ID]; at != nil {
				require.WithinDuration(t, *at, *call.AnsweredAt, time.Microsecond)
			}
		}
		require.Equal(t, want, got)
	})
}

// TestOrphanWithoutCDR is billed until the last sign of life: of the call itself, or of its node.
func TestOrphanWithoutCDR(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newStage(t, store)
		answered := store.Now().Add(-50 * time.Second)
		call := s.leave(StatusInProgress, DirectionOutbound, func(c *models.Call) { c.AnsweredAt = &answered })
		seen := store.Now().Add(30 * time.Second)
		s.node.SeenAt = &seen
		s.report(uuid.NewString())
		s.start()
		got := s.end()
		require.Equal(t, []any{call.ID, StatusCompleted, ReasonNodeLost, SourcePlatform}, []any{got.ID, got.Status, got.Reason, got.HangupSource})
		require.InDelta(t, 80, got.BilledSeconds, 2)
		require.EqualValues(t, 2*outboundPrice, got.CostMicros)
	})
}

// TestOrphanIsEndedOnce has the connection come and go while the CDR is waited for.
func TestOrphanIsEndedOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, modelstest.Open(t))
	call := s.leave(StatusInProgress, DirectionOutbound)
	s.start(func(c *Config) { c.CDRWait = time.Minute })
	for range 3 {
		s.sw.handler.HandleDown(esl.ErrDown)
		s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core"})
	}
	s.report(call.ChannelID)
	require.Equal(t, ReasonCalleeHangup, s.end().Reason)
	require.NoError(t, s.manager.Stop(t.Context()))
	require.Empty(t, s.ended)
	require.Equal(t, []string{"call.completed"}, s.kinds(call.ID))
}

// TestOrphanOfAnotherController is left to the controller that has taken the call while its CDR was waited for.
func TestOrphanOfAnotherController(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newStage(t, store)
		call := s.leave(StatusInProgress, DirectionOutbound)
		s.start(func(c *Config) { c.CDRWait = time.Minute })
		n := s.manager.nodes[s.node.ID]
		waiting := func(want int) {
			t.Helper()
			count := func() bool { n.mu.Lock(); defer n.mu.Unlock(); return len(n.orphans) == want }
			require.Eventually(t, count, patience, 10*time.Millisecond)
		}
		waiting(1)
		_, taken, err := store.AcquireNode(t.Context(), s.node.ID, "another", time.Minute, 7)
		require.NoError(t, err)
		require.True(t, taken)
		s.report(call.ChannelID)
		waiting(0)
		found, err := store.CallByID(t.Context(), call.ID)
		require.NoError(t, err)
		require.True(t, found.Live())
	})
}

// TestOrphanTakesItsPartiesAlong ends the legs and recordings of a call that ended while nobody watched.
func TestOrphanTakesItsPartiesAlong(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newStage(t, store)
		call := s.leave(StatusInProgress, DirectionOutbound)
		answered := store.Now().Add(-10 * time.Second)
		legs := map[string]*models.Leg{
			"joined":  {Status: models.LegAnswered, AnsweredAt: &answered},
			"silent":  {Status: models.LegRinging},
			"nowhere": {Status: models.LegAnswered, AnsweredAt: &answered},
			"before":  {Status: models.LegEnded, DialStatus: dialBusy},
		}
		for to, leg := range legs {
			leg.CallID, leg.CustomerID, leg.ChannelID, leg.Kind, leg.To = call.ID, call.CustomerID, uuid.NewString(), models.LegDial, to
			require.NoError(t, store.SaveLeg(t.Context(), leg))
		}
		for _, state := range []string{models.RecordingRunning, models.RecordingPaused} {
			require.NoError(t, store.SaveRecording(t.Context(), &models.Recording{
				CallID: call.ID, CustomerID: call.CustomerID, Path: "/nowhere.wav", Format: "wav", Channels: 1, Status: state,
			}))
		}
		s.report(legs["joined"].ChannelID)
		s.report(legs["silent"].ChannelID, neverAnswered(causeNoAnswer, "send_cancel", 487))
		s.report(call.ChannelID, func(c *models.CDR) { c.RecordedMS = 1500 })
		s.start()
		require.Equal(t, ReasonCalleeHangup, s.end().Reason)
		told := map[string][]any{}
		for _, data := range s.dataOf(call.ID, "leg.ended") {
			told[data["to"].(string)] = []any{data["dial_status"], data["reason"], data["cause"]}
		}
		require.Equal(t, map[string][]any{
			"joined": {dialAnswered, ReasonCalleeHangup, causeNormal}, "silent": {dialNoAnswer, ReasonNoAnswer, causeNoAnswer},
			"nowhere": {dialAnswered, ReasonNodeLost, ""},
		}, told)
		rows, err := store.LegsOfCall(t.Context(), call.CustomerID, call.ID)
		require.NoError(t, err)
		for _, row := range rows {
			require.Equal(t, models.LegEnded, row.Status)
			if row.To == "joined" {
				require.InDelta(t, 10, row.Seconds, 1)
			}
		}
		recordings, err := store.RecordingsOfCall(t.Context(), call.CustomerID, call.ID)
		require.NoError(t, err)
		for _, row := range recordings {
			require.Equal(t, []any{models.RecordingAvailable, 1.5}, []any{row.Status, row.Seconds})
		}
	})
}

// TestLostSessionEndsAsItsCDRSays has the node go away for good, after it has reported.
func TestLostSessionEndsAsItsCDRSays(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store, func(c *Config) { c.NodeLostAfter = time.Millisecond; c.CDRWait = time.Minute })
		s.hold()
		s.create()
		c := s.sw.await("execute speak")
		s.sw.setDown(true)
		s.report(c.channel, func(c *models.CDR) { c.BilledSeconds = 61 })
		s.sw.handler.HandleDown(esl.ErrDown)
		call := s.end()
		require.Equal(t, []any{StatusCompleted, ReasonCalleeHangup, SourceCallee, 61}, []any{call.Status, call.Reason, call.HangupSource, call.BilledSeconds})
	})
}

// TestLostSessionIsLeft has the controller stop while a session waits for its CDR: the next one ends the call.
func TestLostSessionIsLeft(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store, func(c *Config) { c.CDRWait = time.Hour })
		s.hold()
		created := s.create()
		c := s.sw.await("execute speak")
		s.sw.handler.HandleDown(esl.ErrDown)
		s.sw.mu.Lock()
		s.sw.channels[c.channel].dead = true
		s.sw.mu.Unlock()
		s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core"})
		n := s.manager.nodes[s.node.ID]
		require.Eventually(t, func() bool { n.witness.mu.Lock(); defer n.witness.mu.Unlock(); return len(n.witness.wanted) == 1 }, patience, 10*time.Millisecond)
		require.NoError(t, s.manager.Stop(t.Context()))
		call, err := store.CallByID(t.Context(), created.ID)
		require.NoError(t, err)
		require.True(t, call.Live())
		require.Empty(t, s.ended)

		s.newManager(func(c *Config) { c.CDRWait = time.Minute })
		s.sw.handler = s.manager.AddNode(s.node, s.sw)
		s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core"})
		s.report(c.channel)
		ended := s.end()
		require.Equal(t, []any{ReasonCalleeHangup, 20}, []any{ended.Reason, ended.BilledSeconds})
	})
}

// TestLostSessionHearsTheEvent has the event come while the CDR is waited for.
func TestLostSessionHearsTheEvent(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t), func(c *Config) { c.CDRWait = time.Hour })
	s.hold()
	s.create()
	c := s.sw.await("execute speak")
	s.sw.handler.HandleDown(esl.ErrDown)
	s.sw.mu.Lock()
	s.sw.channels[c.channel].dead = true
	s.sw.mu.Unlock()
	s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core"})
	n := s.manager.nodes[s.node.ID]
	require.Eventually(t, func() bool { n.witness.mu.Lock(); defer n.witness.mu.Unlock(); return len(n.witness.wanted) == 1 }, patience, 10*time.Millisecond)
	s.sw.hangup(c.channel, causeNormal, "variable_sip_hangup_disposition", "recv_bye")
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonCalleeHangup, 7}, []any{call.Status, call.Reason, call.BilledSeconds})
}

// TestNodeThatIsNeverReached has a controller take a node that is gone, with the calls that an earlier one left on it.
func TestNodeThatIsNeverReached(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newStage(t, store)
		call, ended := s.leave(StatusInProgress, DirectionOutbound), s.leave(StatusInProgress, DirectionOutbound)
		queued := s.leave(StatusQueued, DirectionOutbound, func(c *models.Call) { c.ChannelID, c.HoldMicros = "", 0 })
		s.report(ended.ChannelID)
		s.newManager(func(c *Config) { c.NodeLostAfter = 10 * time.Millisecond })
		s.manager.AddNode(s.node, s.sw)
		reasons := map[string]string{}
		for range 2 {
			got := s.end()
			reasons[got.ID] = got.Reason
		}
		require.Equal(t, map[string]string{call.ID: ReasonNodeLost, ended.ID: ReasonCalleeHangup}, reasons)
		found, err := store.CallByID(t.Context(), queued.ID)
		require.NoError(t, err)
		require.True(t, found.Live(), "it waits for its start, not for a node")
		_, err = s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
		require.ErrorIs(t, err, ErrNoNode)
	})
}

// TestLostNodeAndTheOther has one of two nodes go away for good and come back: its calls end, new ones go to the other, and what
// is left of the old ones is hung up.
func TestLostNodeAndTheOther(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store, func(c *Config) { c.NodeLostAfter = 50 * time.Millisecond })
		second := models.Node{Name: "second", ESLAddr: "127.0.0.1:8022", Password: "secret", ConfDir: t.TempDir(), IsActive: true}
		require.NoError(t, store.CreateNode(t.Context(), &second))
		other := newFakeSwitch(t)
		other.handler = s.manager.AddNode(second, other)
		other.handler.HandleUp(esl.Snapshot{CoreUUID: "other"})
		_, err := store.Credit(t.Context(), s.customer.ID, "topup", models.LedgerTopup, 10*startBalance, "")
		require.NoError(t, err)
		s.hold()
		for _, sw := range []*fakeSwitch{s.sw, other} {
			sw.script("execute speak", func(command) error { return nil })
		}
		var lost []string
		for range 4 {
			if call := s.create(); *call.NodeID == s.node.ID {
				lost = append(lost, call.ID)
			}
		}
		require.Len(t, lost, 2, "each node has its turn")
		s.sw.await("execute speak")
		s.sw.await("execute speak")
		s.sw.setDown(true)
		s.sw.handler.HandleDown(esl.ErrDown)
		for range 3 {
			require.Equal(t, second.ID, *s.create().NodeID)
		}
		var channels []string
		for range lost {
			call := s.end()
			require.Contains(t, lost, call.ID)
			require.Equal(t, []any{StatusCompleted, ReasonNodeLost}, []any{call.Status, call.Reason})
			channels = append(channels, call.ChannelID)
		}
		// It was only cut off.
		s.sw.setDown(false)
		s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core", Channels: []esl.Channel{row(channels[0], "outbound", "speak"), row(channels[1], "outbound", "park")}})
		dead := func() bool {
			s.sw.mu.Lock()
			defer s.sw.mu.Unlock()
			return s.sw.channels[channels[0]].dead && s.sw.channels[channels[1]].dead
		}
		require.Eventually(t, dead, patience, 10*time.Millisecond, "channels of calls that were given up")
		require.Empty(t, s.ended, "and nothing is told of them again")
		used := map[string]bool{}
		for range 2 {
			used[*s.create().NodeID] = true
		}
		require.Equal(t, map[string]bool{s.node.ID: true, second.ID: true}, used)
	})
}
