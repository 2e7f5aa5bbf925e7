package calls

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestInboundCallHearsAndIsHungUp(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", reply(`{"actions":[{"action":"say","text":"Hello"},{"action":"hangup"}],"variables":{"tier":"gold"}}`))
		s.callIn()
		call := s.end()
		require.Equal(t, StatusCompleted, call.Status)
		require.Equal(t, ReasonCompleted, call.Reason)
		require.Equal(t, SourceActions, call.HangupSource)
		require.Equal(t, "NORMAL_CLEARING", call.Cause)
		require.Equal(t, 16, call.Q850)
		require.Equal(t, 200, call.SIPCode)
		require.Equal(t, 7, call.BilledSeconds)
		require.EqualValues(t, inboundPrice, call.CostMicros)
		require.Equal(t, map[string]string{"tier": "gold"}, call.Variables)
		require.Equal(t, s.did.ID, *call.DIDID)
		require.NotNil(t, call.TrunkID)
		require.NotNil(t, call.AnsweredAt)
		require.Equal(t, []string{"call.ringing", "call.answered", "call.completed"}, s.kinds(call.ID))
		require.Equal(t, []string{
			"setvar playback_terminators=none", "sched_hangup 1h0m0s ALLOTTED_TIMEOUT", "execute answer", "execute speak flite|slt|Hello", "kill NORMAL_CLEARING",
		}, s.sw.log())

		require.Len(t, s.requests(), 1)
		q := s.requests()[0]
		require.Equal(t, "answer", q.Type)
		require.Equal(t, 1, q.Attempt)
		require.Equal(t, "ringing", q.Call["status"])
		require.Equal(t, call.ID, q.Call["id"])
		require.Equal(t, map[string]string{"X-Test": "yes"}, q.SIPHeaders)
		data := s.data(call.ID, "call.completed")
		require.Equal(t, "completed", data["reason"])
		require.Equal(t, "actions", data["hangup_source"])
		require.EqualValues(t, 7, data["billed_seconds"])
	})
}

func TestUninvitedLegIsRefusedWithoutACall(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	other := modelstest.Customer(t, s.store, startBalance)
	theirApp := modelstest.Application(t, s.store, other)
	theirs := modelstest.DID(t, s.store, other, theirApp)
	suspended := modelstest.DID(t, s.store, s.customer, s.app)
	suspended.Status = "suspended"
	require.NoError(t, s.store.UpdateDID(t.Context(), suspended))
	elsewhere := modelstest.DID(t, s.store, s.customer, s.app)
	elsewhere.RouteMode = "reject"
	elsewhere.RejectCode = 486
	require.NoError(t, s.store.UpdateDID(t.Context(), elsewhere))
	for name, leg := range map[string]struct{ to, source string }{
		"from nowhere":          {s.did.NumberE164, "192.0.2.200"},
		"another's number":      {theirs.NumberE164, s.source},
		"no address":            {s.did.NumberE164, "somewhere"},
		"a suspended number":    {suspended.NumberE164, s.source},
		"a number that rejects": {elsewhere.NumberE164, s.source},
	} {
		s.sw.callIn("+15559876543", leg.to, leg.source)
		require.Equal(t, "UNALLOCATED_NUMBER", s.sw.await("kill").args, name)
	}
	s.noCalls()
	require.Empty(t, s.requests())
}

func TestInboundByTrunkAndByProvider(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t), func(c *Config) { c.Providers = prefixes("198.51.100.0/24") })
	s.answers("/answer", reply(`[{"action":"hangup","reason":"busy"}]`))

	s.sw.callIn("anonymous\x00 caller", "4711", s.source)
	call := s.end()
	require.Nil(t, call.DIDID)
	require.Equal(t, "4711", call.To)
	require.Equal(t, "anonymous caller", call.From)
	require.Equal(t, StatusRejected, call.Status)
	require.Equal(t, ReasonBusy, call.Reason)
	require.Equal(t, 486, call.SIPCode)

	s.sw.callIn("15559876543", s.did.NumberE164[1:], "198.51.100.7")
	call = s.end()
	require.Equal(t, s.did.ID, *call.DIDID)
	require.Nil(t, call.TrunkID)
	require.Equal(t, s.did.NumberE164, call.To)
	require.Equal(t, "+15559876543", call.From)
}

func TestInboundWithoutMoneyIsRefusedAndTold(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		poor := modelstest.Customer(t, store, 1)
		app := modelstest.Application(t, store, poor)
		trunk := modelstest.InboundTrunk(t, store, poor, app)
		s.sw.callIn("+15559876543", "100", trunk.InboundIPs[0])
		require.Equal(t, "NORMAL_TEMPORARY_FAILURE", s.sw.await("kill").args)
		require.NoError(t, s.manager.Stop(t.Context()))
		calls, _, err := store.ListCalls(t.Context(), poor.ID, models.CallFilter{}, models.Page{})
		require.NoError(t, err)
		require.Len(t, calls, 1)
		require.Equal(t, StatusFailed, calls[0].Status)
		require.Equal(t, ReasonInsufficientBalance, calls[0].Reason)
		events, err := store.CallEvents(t.Context(), poor.ID, calls[0].ID)
		require.NoError(t, err)
		require.Len(t, events, 2)
		require.Equal(t, "call.failed", events[1].Type)
		require.Empty(t, s.requests())
	})
}

func TestCallerHangsUp(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"say","text":"a long story"}]`))
	s.sw.script("execute speak", func(command) error { return nil })

	// While the prompt plays.
	channel := s.callIn()
	s.sw.await("execute speak")
	s.sw.hangup(channel, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye", "variable_sip_term_status", "200")
	call := s.end()
	require.Equal(t, StatusCompleted, call.Status)
	require.Equal(t, ReasonCallerHangup, call.Reason)
	require.Equal(t, SourceCaller, call.HangupSource)

	// While it rings and the application thinks.
	hold := make(chan struct{})
	s.answers("/answer", func(w http.ResponseWriter, _ asked) { <-hold; reply("[]")(w, asked{}) })
	channel = s.callIn()
	<-s.askedc
	<-s.askedc
	s.sw.hangup(channel, "ORIGINATOR_CANCEL", "variable_sip_hangup_disposition", "recv_cancel", "variable_sip_invite_failure_status", "487")
	call = s.end()
	close(hold)
	require.Equal(t, StatusCanceled, call.Status)
	require.Equal(t, ReasonCallerHangup, call.Reason)
	require.Equal(t, 487, call.SIPCode)
	require.Zero(t, call.CostMicros)
}

func TestRingingIsToldToAWaitingCaller(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t), func(c *Config) { c.RingAfter = 1 })
	hold := make(chan struct{})
	s.answers("/answer", func(w http.ResponseWriter, _ asked) { <-hold; reply(`[{"action":"answer"}]`)(w, asked{}) })
	s.callIn()
	s.sw.await("execute ring_ready")
	close(hold)
	call := s.end()
	require.Equal(t, StatusCompleted, call.Status)
	require.Equal(t, []string{"call.ringing", "call.answered", "call.completed"}, s.kinds(call.ID))
}
