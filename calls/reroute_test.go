package calls

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// trunks gives the scene's customer this many outbound trunks, to be tried in their order.
func (s *scene) trunks(count int) []*models.Trunk {
	s.t.Helper()
	all := []*models.Trunk{s.trunk}
	for len(all) < count {
		all = append(all, modelstest.OutboundTrunk(s.t, s.store, s.customer))
	}
	for i, trunk := range all {
		trunk.Routing.Priority = i
		require.NoError(s.t, s.store.UpdateTrunk(s.t.Context(), trunk))
	}
	return all
}

// fails makes the switch refuse calls: by gateway, a cause and the SIP status that it came with.
func (s *scene) fails(how map[string][2]string) (gateways func() []string) {
	var mu sync.Mutex
	var dialled []string
	s.sw.script("originate", func(c command) error {
		gateway := gatewayOf(c.args)
		mu.Lock()
		dialled = append(dialled, gateway)
		mu.Unlock()
		if end, ok := how[gateway]; ok {
			s.sw.hangup(c.channel, end[0], "variable_sip_hangup_disposition", "recv_refuse", "variable_sip_term_status", end[1])
			return nil
		}
		s.sw.event("CHANNEL_PROGRESS", c.channel)
		s.sw.answer(c.channel)
		s.sw.event("CHANNEL_PARK", c.channel)
		return nil
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), dialled...)
	}
}

// gatewayOf is the gateway that a switch was told to dial over.
func gatewayOf(args string) string {
	_, rest, _ := strings.Cut(args, "gateway=")
	gateway, _, _ := strings.Cut(rest, " ")
	return gateway
}

var busyCarrier = [2]string{"NORMAL_TEMPORARY_FAILURE", "503"}

func TestCallGoesOverTheNextTrunk(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		trunks := s.trunks(3)
		s.answers("/answer", reply(`[{"action":"hangup"}]`))
		dialled := s.fails(map[string][2]string{trunks[0].GatewayName: busyCarrier, trunks[1].GatewayName: {"CALL_REJECTED", "403"}})
		created := s.create()
		require.Equal(t, trunks[0].ID, *created.TrunkID)
		call := s.end()
		require.Equal(t, []any{StatusCompleted, trunks[2].ID}, []any{call.Status, *call.TrunkID})
		require.NotEqual(t, created.ChannelID, call.ChannelID)
		require.Equal(t, []string{trunks[0].GatewayName, trunks[1].GatewayName, trunks[2].GatewayName}, dialled())
		require.Equal(t, []string{"call.created", "call.rerouted", "call.rerouted", "call.ringing", "call.answered", "call.completed"}, s.kinds(call.ID))
		require.EqualValues(t, outboundPrice, call.CostMicros, "once")

		legs, err := store.LegsOfCall(t.Context(), s.customer.ID, call.ID)
		require.NoError(t, err)
		require.Len(t, legs, 2)
		told := s.dataOf(call.ID, "call.rerouted")
		for i, want := range []struct {
			reason string
			sip    int
			cause  string
		}{{ReasonCarrierError, 503, "NORMAL_TEMPORARY_FAILURE"}, {ReasonCarrierRejected, 403, "CALL_REJECTED"}} {
			leg := legs[i]
			require.Equal(t, []any{models.LegAttempt, models.LegEnded, dialFailed, trunks[i].ID, want.reason, want.sip, want.cause, call.To},
				[]any{leg.Kind, leg.Status, leg.DialStatus, *leg.TrunkID, leg.Reason, leg.SIPCode, leg.Cause, leg.To})
			require.NotNil(t, leg.EndedAt)
			require.False(t, leg.EndedAt.Before(leg.CreatedAt))
			require.EqualValues(t, i+1, told[i]["attempt"])
			require.Equal(t, []any{leg.ID, trunks[i].ID, trunks[i+1].ID, want.reason}, []any{told[i]["leg_id"], told[i]["trunk_id"], told[i]["next_trunk_id"], told[i]["reason"]})
		}
		require.Equal(t, created.ChannelID, legs[0].ChannelID)
		require.NotContains(t, []string{created.ChannelID, call.ChannelID}, legs[1].ChannelID)
		commands, err := store.Commands(t.Context(), call.ID, 0)
		require.NoError(t, err)
		require.Empty(t, commands)
		require.Zero(t, s.manager.LiveCalls())
	})
}

// Only what is the trunk's fault is tried on another one; the last attempt says how the call ended.
func TestWhenCallsAreNotRerouted(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	trunks := s.trunks(2)
	for name, tt := range map[string]struct {
		first, second [2]string
		reason        string
		attempts      int
	}{
		"busy":          {[2]string{"USER_BUSY", "486"}, busyCarrier, ReasonBusy, 1},
		"declined":      {[2]string{"CALL_REJECTED", "603"}, busyCarrier, ReasonDeclined, 1},
		"wrong number":  {[2]string{"UNALLOCATED_NUMBER", "404"}, busyCarrier, ReasonInvalidNumber, 1},
		"nobody":        {[2]string{"NO_ANSWER", "487"}, busyCarrier, ReasonNoAnswer, 1},
		"both fail":     {busyCarrier, [2]string{"CALL_REJECTED", "407"}, ReasonTrunkAuthFailed, 2},
		"then busy":     {busyCarrier, [2]string{"USER_BUSY", "486"}, ReasonBusy, 2},
		"no codec":      {[2]string{"INCOMPATIBLE_DESTINATION", "488"}, [2]string{"USER_BUSY", "486"}, ReasonBusy, 2},
		"gateway down":  {[2]string{"GATEWAY_DOWN", ""}, [2]string{"USER_BUSY", "486"}, ReasonBusy, 2},
		"no such cause": {[2]string{"SOMETHING_NEW", ""}, [2]string{"USER_BUSY", "486"}, ReasonBusy, 2},
	} {
		dialled := s.fails(map[string][2]string{trunks[0].GatewayName: tt.first, trunks[1].GatewayName: tt.second})
		s.create()
		call := s.end()
		require.Equal(t, tt.reason, call.Reason, name)
		require.Len(t, dialled(), tt.attempts, name)
		require.Len(t, s.dataOf(call.ID, "call.rerouted"), tt.attempts-1, name)
		require.Equal(t, trunks[tt.attempts-1].ID, *call.TrunkID, name)
		require.Zero(t, call.CostMicros, name)
	}
	require.Empty(t, s.requests())
}

// A call that somebody wants to end is dialled nowhere else, and an attempt that is under way is canceled like the first.
func TestCancelBetweenAttempts(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	trunks := s.trunks(2)
	s.sw.script("originate", func(c command) error {
		gateway := gatewayOf(c.args)
		if gateway == trunks[0].GatewayName {
			s.sw.hangup(c.channel, busyCarrier[0], "variable_sip_term_status", busyCarrier[1])
		}
		return nil
	})
	created := s.create()
	s.sw.await("originate")
	second := s.sw.await("originate")
	// What the first channel says late is nobody's.
	s.sw.event("CHANNEL_ANSWER", created.ChannelID)
	s.sw.event("CHANNEL_HANGUP_COMPLETE", created.ChannelID, "Hangup-Cause", "NORMAL_CLEARING")
	_, err := s.manager.Cancel(t.Context(), s.customer.ID, created.ID, nil)
	require.NoError(t, err)
	require.Equal(t, second.channel, s.sw.await("kill").channel)
	call := s.end()
	require.Equal(t, []any{StatusCanceled, ReasonCanceled, SourceAPI}, []any{call.Status, call.Reason, call.HangupSource})
	require.Equal(t, second.channel, call.ChannelID)
}

// A trunk that has all the calls that it may have is passed over, at first and later.
func TestFullTrunksArePassedOver(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		trunks := s.trunks(3)
		_, err := store.Credit(t.Context(), s.customer.ID, "more", "topup", 10*startBalance, "")
		require.NoError(t, err)
		trunks[0].Limits.MaxCalls, trunks[1].Limits.MaxCalls = 1, 1
		for _, trunk := range trunks {
			require.NoError(t, store.UpdateTrunk(t.Context(), trunk))
		}
		s.sw.script("originate", func(command) error { return nil })
		ringing := []*models.Call{s.create(), s.create(), s.create()}
		for i, call := range ringing {
			require.Equal(t, trunks[i].ID, *call.TrunkID)
			s.sw.await("originate")
		}
		trunks[2].Limits.MaxCalls = 1
		require.NoError(t, store.UpdateTrunk(t.Context(), trunks[2]))
		_, err = s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
		require.ErrorIs(t, err, ErrTrunksFull)
		waiting := s.create(func(r *CreateRequest) { r.Queued = true })
		_, err = s.manager.StartCall(t.Context(), s.customer.ID, waiting.ID, nil)
		require.ErrorIs(t, err, ErrTrunksFull)

		// The first fails: there is room nowhere else. The second then frees its trunk, over which the third is dialled.
		s.sw.hangup(ringing[0].ChannelID, busyCarrier[0], "variable_sip_term_status", busyCarrier[1])
		call := s.end()
		require.Equal(t, []any{ringing[0].ID, ReasonCarrierError, trunks[0].ID}, []any{call.ID, call.Reason, *call.TrunkID})
		s.sw.hangup(ringing[1].ChannelID, "USER_BUSY", "variable_sip_term_status", "486")
		require.Equal(t, ringing[1].ID, s.end().ID)
		trunks[0].IsActive = false
		require.NoError(t, store.UpdateTrunk(t.Context(), trunks[0]))
		s.sw.hangup(ringing[2].ChannelID, busyCarrier[0], "variable_sip_term_status", busyCarrier[1])
		again := s.sw.await("originate")
		s.sw.hangup(again.channel, "USER_BUSY", "variable_sip_term_status", "486")
		call = s.end()
		require.Equal(t, []any{ringing[2].ID, ReasonBusy, trunks[1].ID}, []any{call.ID, call.Reason, *call.TrunkID})
		started, err := s.manager.StartCall(t.Context(), s.customer.ID, waiting.ID, nil)
		require.NoError(t, err)
		require.Equal(t, trunks[1].ID, *started.TrunkID)
		last := s.sw.await("originate")
		s.sw.hangup(last.channel, "USER_BUSY", "variable_sip_term_status", "486")
		s.end()
	})
}

// A dialled party takes a place on its trunk, and goes over the next one where there is none.
func TestDialPassesOverFullTrunks(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	trunks := s.trunks(2)
	trunks[0].Limits.MaxCalls, trunks[1].Limits.MaxCalls = 2, 1
	for _, trunk := range trunks {
		require.NoError(t, s.store.UpdateTrunk(t.Context(), trunk))
	}
	s.answers("/answer", reply(`[{"action":"dial","to":["+15550100003","+15550100004"],"result_url":"`+s.server.URL+`/result"}]`))
	s.answers("/result", reply(`[{"action":"hangup"}]`))
	s.sw.script("execute bridge", func(command) error { return nil })
	first := s.callIn()
	bridge := s.sw.await("execute bridge")
	require.Contains(t, bridge.args, "sofia/gateway/"+trunks[0].GatewayName+"/+15550100003")
	require.Contains(t, bridge.args, "sofia/gateway/"+trunks[0].GatewayName+"/+15550100004")
	// One place is left for two parties: the other is not called. For the next ones there is none.
	second := s.callIn()
	bridge = s.sw.await("execute bridge")
	require.Equal(t, second, bridge.channel)
	require.Contains(t, bridge.args, "sofia/gateway/"+trunks[1].GatewayName+"/+15550100003")
	require.NotContains(t, bridge.args, "+15550100004")
	third := s.callIn()
	require.Equal(t, third, s.sw.await("kill").channel)
	call := s.end()
	results := s.requests()
	require.Equal(t, ReasonTrunkLimit, results[len(results)-1].Result["reason"])
	legs, err := s.store.LegsOfCall(t.Context(), s.customer.ID, call.ID)
	require.NoError(t, err)
	require.Empty(t, legs)
	s.sw.hangup(second, "ORIGINATOR_CANCEL", "variable_sip_hangup_disposition", "recv_bye")
	s.end()
	s.sw.hangup(first, "ORIGINATOR_CANCEL", "variable_sip_hangup_disposition", "recv_bye")
	s.end()
}

// An inbound trunk that has all the calls that it may have refuses the next one, which its customer is told of.
func TestInboundTrunkLimit(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.hold()
	trunks, _, err := s.store.ListTrunks(t.Context(), s.customer.ID, models.Page{Limit: 10})
	require.NoError(t, err)
	for i := range trunks {
		if trunks[i].Direction == models.Inbound {
			trunks[i].Limits.MaxCalls = 1
			require.NoError(t, s.store.UpdateTrunk(t.Context(), &trunks[i]))
		}
	}
	first := s.callIn()
	s.sw.await("execute speak")
	second := s.callIn()
	require.Equal(t, command{verb: "kill", channel: second, args: causeTempFailure}, s.sw.await("kill"))
	rows, _, err := s.store.ListCalls(t.Context(), s.customer.ID, models.CallFilter{Status: StatusFailed}, models.Page{Limit: 10})
	if err == nil && len(rows) == 0 { // it is stored after it was refused
		require.Eventually(t, func() bool {
			rows, _, err = s.store.ListCalls(t.Context(), s.customer.ID, models.CallFilter{Status: StatusFailed}, models.Page{Limit: 10})
			return err != nil || len(rows) > 0
		}, patience, 5*time.Millisecond)
	}
	require.NoError(t, err)
	require.Equal(t, []any{ReasonTrunkLimit, http.StatusServiceUnavailable, second}, []any{rows[0].Reason, rows[0].SIPCode, rows[0].ChannelID})
	require.Equal(t, []string{"call.ringing", "call.failed"}, s.kinds(rows[0].ID))
	s.sw.hangup(first, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
	s.end()
}

// The next attempt is accepted work: a controller that dies before it is made leaves it to the next one, which makes it once.
func TestRerouteOutlivesItsController(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		trunks := s.trunks(2)
		s.answers("/answer", reply(`[{"action":"hangup"}]`))
		s.sw.script("originate", func(c command) error {
			if gatewayOf(c.args) == trunks[0].GatewayName {
				s.sw.event("CHANNEL_PROGRESS", c.channel) // it has rung: the call is not dialing any more
				s.sw.setDown(true)
				s.sw.hangup(c.channel, busyCarrier[0], "variable_sip_term_status", busyCarrier[1])
				return nil
			}
			s.sw.answer(c.channel)
			s.sw.event("CHANNEL_PARK", c.channel)
			return nil
		})
		created := s.create()
		require.Eventually(t, func() bool { return len(s.dataOf(created.ID, "call.rerouted")) == 1 }, patience, 5*time.Millisecond)
		s.sw.handler.HandleDown(errors.New("gone"))
		require.NoError(t, s.manager.Stop(t.Context()))
		s.sw.setDown(false)
		s.start()
		s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core"})
		call := s.end()
		require.Equal(t, []any{created.ID, StatusCompleted, trunks[1].ID}, []any{call.ID, call.Status, *call.TrunkID})
		require.Equal(t, []string{"call.created", "call.ringing", "call.rerouted", "call.answered", "call.completed"}, s.kinds(call.ID))
		dialled := 0
		for _, line := range s.sw.log() {
			if gatewayOf(line) == trunks[1].GatewayName {
				dialled++
			}
		}
		require.Equal(t, 1, dialled)
	})
}

func TestFreeSWITCHOutboundFailover(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		gateway := l.trunk.GatewayName
		l.trunk.GatewayName = "no-such-gateway"
		require.NoError(t, l.store.UpdateTrunk(t.Context(), l.trunk))
		second := *l.trunk
		second.ID, second.GatewayName, second.Name, second.CreatedAt = "", gateway, "second", time.Time{}
		second.Routing.Codecs, second.Routing.Priority = []string{"PCMA"}, l.trunk.Routing.Priority+1
		require.NoError(t, l.store.CreateTrunk(t.Context(), &second))
		l.answers("/answer", reply(`[{"action":"say","text":"Hello from Tandem"},{"action":"hangup"}]`))
		l.create(func(r *CreateRequest) { r.To, r.Timeout = "+15550000800", 30 })
		call := l.end()
		require.Equal(t, []any{StatusCompleted, ReasonCompleted, second.ID}, []any{call.Status, call.Reason, *call.TrunkID})
		rows := l.legs(t, call.ID)
		require.Len(t, rows, 1)
		require.Equal(t, []any{models.LegAttempt, ReasonTrunkUnavailable, "INVALID_GATEWAY"}, []any{rows[0].Kind, rows[0].Reason, rows[0].Cause})
		// Both fail, the second by the carrier's word.
		l.create(func(r *CreateRequest) { r.To, r.Timeout = "+15550000503", 30 })
		call = l.end()
		require.Equal(t, []any{StatusFailed, ReasonCarrierError, 503, second.ID}, []any{call.Status, call.Reason, call.SIPCode, *call.TrunkID})
		// By a dial, with a codec of the trunk's own in the list of the leg.
		answered := l.calledIn(t, `[{"action":"dial","to":"+15550000701","result_url":"/result"}]`)
		require.Equal(t, "answered", l.results()[0]["dial_status"])
		require.Equal(t, ReasonCompleted, answered.Reason)
		l.noChannels(t)
	})
}

// A call lasts no longer than the trunk allows that it is dialled over after another one has failed.
func TestLongestCallOfTheNextTrunk(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.has(10 * outboundPrice)
	trunks := s.trunks(2)
	trunks[1].Limits.MaxCallSeconds = 45
	require.NoError(t, s.store.UpdateTrunk(t.Context(), trunks[1]))
	s.answers("/answer", reply(`[{"action":"hangup"}]`))
	s.fails(map[string][2]string{trunks[0].GatewayName: busyCarrier})
	created := s.create()
	require.Equal(t, 120, created.GrantedSeconds)
	call := s.end()
	require.Equal(t, []any{trunks[1].ID, 45, 45}, []any{*call.TrunkID, call.MaxSeconds, call.GrantedSeconds})
}
