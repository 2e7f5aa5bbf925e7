package calls

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

func TestOutboundCall(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", reply(`[{"action":"pause","seconds":2}]`))
		created := s.create(func(r *CreateRequest) { r.Timeout = 42 })
		require.Equal(t, StatusDialing, created.Status)
		require.Equal(t, s.trunk.ID, *created.TrunkID)
		require.Equal(t, s.node.ID, *created.NodeID)
		require.Equal(t, 3600, created.GrantedSeconds)
		require.EqualValues(t, 60*outboundPrice, created.HoldMicros)
		call := s.end()
		require.Equal(t, created.ID, call.ID)
		require.Equal(t, StatusCompleted, call.Status)
		require.Equal(t, ReasonCompleted, call.Reason)
		require.EqualValues(t, outboundPrice, call.CostMicros)
		require.Equal(t, []string{"call.created", "call.ringing", "call.answered", "call.completed"}, s.kinds(call.ID))
		require.Equal(t, []string{
			"originate gateway=" + s.trunk.GatewayName + " number=+15550100002 from=+15550100001 timeout=42s answer=sched_hangup +3600 ALLOTTED_TIMEOUT",
			"execute playback silence_stream://2000", "kill NORMAL_CLEARING",
		}, s.sw.log())
		q := s.requests()[0]
		require.Equal(t, "in_progress", q.Call["status"], "an outbound call is asked for after the answer")
		require.Equal(t, map[string]any{"order": "7"}, q.Call["metadata"])
		customer, err := store.Customer(t.Context(), s.customer.ID)
		require.NoError(t, err)
		require.EqualValues(t, startBalance-outboundPrice, customer.BalanceMicros)
	})
}

// The carrier is told what its trunk says, by the API's call and by the one of a dial.
func TestTrunksAreToldTheirWay(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.trunk.Routing = models.TrunkRouting{Priority: 5, AllowedPrefixes: []string{"+1555"}, CallerIDPolicy: models.CallerIDOwn}
		require.NoError(t, store.UpdateTrunk(t.Context(), s.trunk))
		last := modelstest.OutboundTrunk(t, store, s.customer)
		last.Routing = models.TrunkRouting{
			Priority: 6, AllowedPrefixes: []string{"+1", "+49"}, StripPrefix: "+", AddPrefix: "00", CallerIDPolicy: models.CallerIDFixed, CallerID: "+15550199999",
		}
		require.NoError(t, store.UpdateTrunk(t.Context(), last))
		s.answers("/answer", reply(`[{"action":"hangup"}]`))
		dialled := func(from, to string) string {
			t.Helper()
			s.create(func(r *CreateRequest) { r.From, r.To = from, to })
			said := s.sw.await("originate").args
			require.Equal(t, StatusCompleted, s.end().Status)
			before, _, _ := strings.Cut(said, " timeout=")
			return before
		}
		require.Equal(t, "gateway="+s.trunk.GatewayName+" number=+15550100002 from="+s.did.NumberE164, dialled(s.did.NumberE164, "+15550100002"))
		require.Equal(t, "gateway="+last.GatewayName+" number=0015550100002 from=+15550199999", dialled("+15550100001", "+15550100002"), "that number is nobody's DID")
		require.Equal(t, "gateway="+last.GatewayName+" number=004930123456 from=+15550199999", dialled(s.did.NumberE164, "+4930123456"))

		_, err := s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: s.did.NumberE164, To: "+33123456789"})
		require.ErrorIs(t, err, ErrDestinationNotAllowed)
		last.IsActive = false
		require.NoError(t, store.UpdateTrunk(t.Context(), last))
		_, err = s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
		var refused *RequestError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "from", refused.Field)

		last.IsActive = true
		require.NoError(t, store.UpdateTrunk(t.Context(), last))
		s.answers("/answer", reply(`[{"action":"dial","to":["+4930123456","+33123456789"]}]`))
		s.callIn()
		bridge := s.sw.await("execute bridge")
		require.Contains(t, bridge.args, "origination_caller_id_number=+15550199999")
		require.Contains(t, bridge.args, "sofia/gateway/"+last.GatewayName+"/004930123456")
		require.NotContains(t, bridge.args, "33123456789", "no trunk may call it")
		s.sw.hangup(bridge.channel, "NORMAL_CLEARING")
		s.end()
	})
}

func TestCreateRefusesAndChargesNothing(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		other := modelstest.Customer(t, store, startBalance)
		foreign := modelstest.Application(t, store, other)
		good := CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"}
		check := func(edit func(*CreateRequest)) error {
			req := good
			edit(&req)
			_, err := s.manager.Create(t.Context(), req)
			require.Error(t, err)
			return err
		}
		for field, edit := range map[string]func(*CreateRequest){
			"to":      func(r *CreateRequest) { r.To = "5550100" },
			"from":    func(r *CreateRequest) { r.From = "" },
			"timeout": func(r *CreateRequest) { r.Timeout = 4 },
		} {
			var refused *RequestError
			require.ErrorAs(t, check(edit), &refused)
			require.Equal(t, field, refused.Field)
		}
		require.ErrorIs(t, check(func(r *CreateRequest) { r.ApplicationID = foreign.ID }), models.ErrNotFound)
		require.ErrorIs(t, check(func(r *CreateRequest) { r.ApplicationID = "app_none" }), models.ErrNotFound)
		refusal := errors.New("no")
		require.ErrorIs(t, check(func(r *CreateRequest) {
			r.InTx = func(*models.Store, *models.Call) error { return refusal }
		}), refusal)
		poor := modelstest.Customer(t, store, 2*outboundPrice-1)
		poorApp := modelstest.Application(t, store, poor)
		require.ErrorIs(t, check(func(r *CreateRequest) { r.CustomerID, r.ApplicationID = poor.ID, poorApp.ID }), ErrNoActiveTrunk)
		modelstest.OutboundTrunk(t, store, poor)
		require.ErrorIs(t, check(func(r *CreateRequest) { r.CustomerID, r.ApplicationID = poor.ID, poorApp.ID }), models.ErrInsufficientBalance)
		s.sw.handler.HandleDown(errors.New("gone"))
		require.ErrorIs(t, check(func(*CreateRequest) {}), ErrNoNode)
		require.Zero(t, s.manager.LiveCalls())
		s.noCalls()
		require.Empty(t, s.sw.log())
	})
}

func TestOutboundCallsThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	for name, tt := range map[string]struct {
		cause  string
		pairs  []string
		status string
		reason string
		source string
		sip    int
	}{
		"busy":          {"USER_BUSY", []string{"variable_sip_term_status", "486"}, StatusBusy, ReasonBusy, SourceCallee, 486},
		"declined":      {"CALL_REJECTED", []string{"variable_sip_term_status", "603"}, StatusRejected, ReasonDeclined, SourceCallee, 603},
		"forbidden":     {"CALL_REJECTED", []string{"variable_sip_hangup_disposition", "recv_refuse", "variable_sip_invite_failure_status", "403"}, StatusFailed, ReasonCarrierRejected, SourceCarrier, 403},
		"unauthorized":  {"CALL_REJECTED", []string{"variable_sip_term_status", "407"}, StatusFailed, ReasonTrunkAuthFailed, SourceCarrier, 407},
		"not found":     {"UNALLOCATED_NUMBER", []string{"variable_sip_term_status", "404"}, StatusFailed, ReasonInvalidNumber, SourceCarrier, 404},
		"ring timer":    {"NO_ANSWER", []string{"variable_sip_hangup_disposition", "send_cancel", "variable_sip_invite_failure_status", "487"}, StatusNoAnswer, ReasonNoAnswer, SourcePlatform, 487},
		"unavailable":   {"NORMAL_TEMPORARY_FAILURE", []string{"variable_sip_term_status", "503"}, StatusFailed, ReasonCarrierError, SourceCarrier, 503},
		"absent":        {"NO_USER_RESPONSE", []string{"variable_sip_term_status", "480"}, StatusNoAnswer, ReasonUnavailable, SourceCallee, 480},
		"no such cause": {"SOMETHING_NEW", nil, StatusFailed, ReasonCarrierError, SourceCarrier, 0},
	} {
		s.sw.script("originate", func(c command) error {
			s.sw.hangup(c.channel, tt.cause, tt.pairs...)
			return nil
		})
		s.create()
		call := s.end()
		require.Equal(t, []any{tt.status, tt.reason, tt.source, tt.cause, tt.sip}, []any{call.Status, call.Reason, call.HangupSource, call.Cause, call.SIPCode}, name)
		require.Equal(t, []string{"call.created", "call.failed"}, s.kinds(call.ID), name)
		require.Zero(t, call.CostMicros, name)
	}
	require.Empty(t, s.requests())
}

func TestOriginateRefusedByTheSwitch(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.sw.script("originate", func(c command) error {
		s.sw.mu.Lock()
		delete(s.sw.channels, c.channel)
		s.sw.mu.Unlock()
		return &esl.CommandError{Command: "originate", Reply: "-ERR no"}
	})
	s.create()
	call := s.end()
	require.Equal(t, StatusFailed, call.Status)
	require.Equal(t, ReasonInternalError, call.Reason)
	require.Equal(t, SourcePlatform, call.HangupSource)

	// What is not sent is tried again for as long as the call may ring.
	s.sw.script("originate", func(command) error { return esl.ErrDown })
	s.create(func(r *CreateRequest) { r.Timeout = minRing })
	call = s.end()
	require.GreaterOrEqual(t, call.EndedAt.Sub(call.CreatedAt), (minRing-1)*time.Second)
	require.Equal(t, []any{StatusFailed, ReasonNodeLost, SourcePlatform}, []any{call.Status, call.Reason, call.HangupSource})
	require.NotContains(t, s.sw.log(), "kill NORMAL_TEMPORARY_FAILURE", "there is no channel to end")
}

func TestCancelInEveryLiveState(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		cancel := func(call *models.Call) {
			ran := false
			live, err := s.manager.Cancel(t.Context(), s.customer.ID, call.ID, func(*models.Store, *models.Call) error { ran = true; return nil })
			require.NoError(t, err)
			require.True(t, ran)
			require.Equal(t, call.ID, live.ID)
		}

		// Dialing: the channel does not exist yet when the first hangup is sent.
		started := make(chan command, 1)
		s.sw.script("originate", func(c command) error {
			s.sw.mu.Lock()
			saved := s.sw.channels[c.channel]
			delete(s.sw.channels, c.channel)
			s.sw.mu.Unlock()
			started <- c
			s.sw.script("kill", func(command) error { return errNoChannel })
			time.AfterFunc(250*time.Millisecond, func() {
				s.sw.mu.Lock()
				s.sw.channels[c.channel] = saved
				delete(s.sw.on, "kill")
				s.sw.mu.Unlock()
			})
			return nil
		})
		call := s.create()
		<-started
		cancel(call)
		ended := s.end()
		require.Equal(t, []any{StatusCanceled, ReasonCanceled, SourceAPI, "ORIGINATOR_CANCEL"}, []any{ended.Status, ended.Reason, ended.HangupSource, ended.Cause})
		require.Equal(t, []string{"call.created", "call.failed"}, s.kinds(call.ID))

		// Ringing.
		s.sw.script("originate", func(c command) error { s.sw.event("CHANNEL_PROGRESS", c.channel); return nil })
		call = s.create()
		s.sw.await("originate")
		cancel(call)
		ended = s.end()
		require.Equal(t, StatusCanceled, ended.Status)

		// In progress, in the middle of a prompt that holds the channel.
		s.sw.script("originate", nil)
		s.sw.script("execute speak", func(command) error { return nil })
		s.answers("/answer", reply(`[{"action":"say","text":"on and on"}]`))
		call = s.create()
		s.sw.await("execute speak")
		cancel(call)
		ended = s.end()
		require.Equal(t, []any{StatusCompleted, ReasonAPIHangup, SourceAPI, "NORMAL_CLEARING"}, []any{ended.Status, ended.Reason, ended.HangupSource, ended.Cause})
		require.EqualValues(t, outboundPrice, ended.CostMicros)

		_, err := s.manager.Cancel(t.Context(), s.customer.ID, call.ID, nil)
		require.ErrorIs(t, err, ErrCallNotActive)
		_, err = s.manager.Cancel(t.Context(), "cust_other", call.ID, nil)
		require.ErrorIs(t, err, models.ErrNotFound)
		refusal := errors.New("no")
		inbound := modelstest.Call(t, store, s.app)
		_, err = s.manager.Cancel(t.Context(), s.customer.ID, inbound.ID, func(*models.Store, *models.Call) error { return refusal })
		require.ErrorIs(t, err, ErrNoNode, "a live call that is not steered here")
	})
}

func TestCapEndsTheCallAsTimeLimit(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"pause","seconds":300}]`))
	s.sw.script("execute playback", func(command) error { return nil })
	call := s.create()
	c := s.sw.await("execute playback")
	s.sw.hangup(c.channel, "ALLOTTED_TIMEOUT", "variable_sip_hangup_disposition", "send_bye", "variable_billsec", "3600")
	ended := s.end()
	require.Equal(t, call.ID, ended.ID)
	require.Equal(t, []any{StatusCompleted, ReasonTimeLimit, SourcePlatform}, []any{ended.Status, ended.Reason, ended.HangupSource})
	require.EqualValues(t, 60*outboundPrice, ended.CostMicros)
}

func TestLateEventsChangeNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"pause"}]`))
	created := s.create()
	call := s.end()
	for _, name := range []string{"CHANNEL_PROGRESS", "CHANNEL_ANSWER", "CHANNEL_PARK", "CHANNEL_EXECUTE_COMPLETE", "CHANNEL_HANGUP_COMPLETE"} {
		s.sw.event(name, created.ChannelID)
	}
	require.NoError(t, s.manager.Stop(t.Context()))
	after, err := s.store.CallByID(t.Context(), call.ID)
	require.NoError(t, err)
	require.Equal(t, call.Status, after.Status)
	require.Equal(t, call.LastSequence, after.LastSequence)
	require.Zero(t, s.manager.LiveCalls())
}
