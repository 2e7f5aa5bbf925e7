package calls

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/models/modelstest"
)

// refers scripts what a fake switch hears of a REFER: the channel's variables from then on.
func (f *fakeSwitch) refers(variables map[string]string) {
	f.script("execute deflect", func(c command) error {
		f.mu.Lock()
		for name, value := range variables {
			f.channels[c.channel].headers["variable_"+name] = value
		}
		f.mu.Unlock()
		f.complete(c)
		return nil
	})
}

func TestTransferRefer(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	for _, tt := range []struct {
		reply, target, status, reason string
		code                          any
		ends                          bool
	}{
		{"202", "200", "completed", "", 200.0, true},
		{"405", "", "rejected", ReasonDeclined, 405.0, false},
		{"202", "486", "busy", ReasonBusy, 486.0, false},
		{"202", "603", "rejected", ReasonDeclined, 603.0, false},
		{"202", "480", "no_answer", ReasonUnavailable, 480.0, false},
		{"202", "404", "failed", ReasonInvalidNumber, 404.0, false},
		{"202", "401", "failed", ReasonTrunkAuthFailed, 401.0, false},
		{"202", "500", "failed", ReasonCarrierError, 500.0, false},
	} {
		s.answers("/answer", reply(`[{"action":"answer"},{"action":"transfer","mode":"refer","to":"sip:anna@pbx.example","result_url":"/result"},{"action":"say","text":"`+tt.reply+tt.target+`"}]`))
		s.answers("/result", status(204))
		s.sw.refers(map[string]string{referReply: tt.reply, referOutcome: tt.target})
		s.callIn()
		call := s.end()
		require.Equal(t, []any{StatusCompleted, ReasonCompleted, SourceActions}, []any{call.Status, call.Reason, call.HangupSource})
		asks := s.requests()
		result := asks[len(asks)-1].Result
		require.Equal(t, []any{tt.status, tt.code}, []any{result["transfer_status"], result["sip_code"]}, tt)
		if tt.reason != "" {
			require.Equal(t, tt.reason, result["reason"])
		}
		told := s.transferred(call.ID)
		require.Equal(t, map[string]any{"mode": "refer", "to": "sip:anna@pbx.example", "transfer_status": tt.status, "sip_code": tt.code}, told)
		said := "execute speak flite|slt|" + tt.reply + tt.target
		if tt.ends {
			require.NotContains(t, s.sw.log(), said, "the list is over")
		} else {
			require.Contains(t, s.sw.log(), said, "the list goes on")
		}
	}
	require.Contains(t, s.sw.log(), "execute deflect <sip:anna@pbx.example>")
	require.Contains(t, s.sw.log(), "setvar sip_refer_continue_after_reply=true")
}

func TestTransferReferToANumber(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.sw.script("execute deflect", func(c command) error {
		require.Equal(t, "deflect <sip:+15550001234@carrier.example>", c.args)
		s.sw.mu.Lock()
		s.sw.channels[c.channel].headers["variable_sip_refer_status_code"] = "202"
		s.sw.mu.Unlock()
		s.sw.complete(c)
		// The other side hangs up without a word about the new call.
		s.sw.hangup(c.channel, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
		return nil
	})
	id := s.sw.addChannel("inbound", map[string]string{
		"Caller-Caller-ID-Number": "+15559876543", "Caller-Destination-Number": s.did.NumberE164, "variable_sip_network_ip": s.source,
		"variable_sip_from_host": "carrier.example",
	})
	s.answers("/answer", reply(`[{"action":"answer"},{"action":"transfer","mode":"refer","to":"+15550001234","timeout":5}]`))
	s.sw.event(eventPark, id)
	call := s.end()
	require.Equal(t, ReasonCallerHangup, call.Reason)
	require.Equal(t, map[string]any{"mode": "refer", "to": "+15550001234", "transfer_status": "accepted", "sip_code": 202.0}, s.transferred(call.ID))
}

func TestTransferReferInterrupted(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"answer"},{"action":"transfer","mode":"refer","to":"sip:anna@pbx.example","timeout":600,"result_url":"/never"}]`))
	s.sw.refers(map[string]string{referReply: "202"})
	channel := s.callIn()
	s.sw.await("execute deflect")
	list, err := actions.ParseList([]byte(`[{"action":"say","text":"instead"}]`), "actions")
	require.NoError(t, err)
	_, err = s.manager.Direct(t.Context(), s.customer.ID, s.callOn(channel), DirectRequest{Actions: list})
	require.NoError(t, err)
	call := s.end()
	require.Equal(t, ReasonCompleted, call.Reason)
	require.Contains(t, s.sw.log(), "execute speak flite|slt|instead")
}

func TestTransferBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"transfer","mode":"refer","to":"sip:anna@pbx.example"}]`))
	s.sw.script("execute redirect", func(c command) error {
		s.sw.complete(c)
		s.sw.hangup(c.channel, "NORMAL_UNSPECIFIED", "variable_sip_hangup_disposition", "send_refuse")
		return nil
	})
	s.callIn()
	call := s.end()
	require.Equal(t, []any{StatusRejected, ReasonCompleted, 302}, []any{call.Status, call.Reason, call.SIPCode})
	require.Equal(t, "accepted", s.transferred(call.ID)["transfer_status"])

	// A caller who was faster was not sent anywhere.
	s.sw.script("execute redirect", func(c command) error {
		s.sw.hangup(c.channel, "ORIGINATOR_CANCEL", "variable_sip_hangup_disposition", "recv_cancel")
		return nil
	})
	s.callIn()
	call = s.end()
	require.Equal(t, []any{StatusCanceled, ReasonCallerHangup}, []any{call.Status, call.Reason})
	require.Empty(t, s.dataOf(call.ID, "call.transferred"))
}

func TestTransferEndsTheListWhenItIsMade(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.sw.dials(map[string]dialedParty{"0200": {answers: true, joined: true, lives: true}})
	s.answers("/answer", reply(`[{"action":"transfer","to":"+15550000200","result_url":"/result"},{"action":"say","text":"never"}]`))
	s.answers("/result", status(204))
	channel := s.callIn()
	bridge := s.sw.await("execute bridge")
	id := s.callOn(channel)
	require.Eventually(t, func() bool { return len(s.dataOf(id, "call.transferred")) == 1 }, patience, time.Millisecond, "told when it is made")
	list, err := actions.ParseList([]byte(`[{"action":"say","text":"appended"}]`), "actions")
	require.NoError(t, err)
	_, err = s.manager.Direct(t.Context(), s.customer.ID, id, DirectRequest{Actions: list, Mode: ModeAppend})
	require.NoError(t, err)
	s.sw.hangup(legOf(bridge.args), "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
	s.sw.complete(bridge, "variable_originate_disposition", "SUCCESS")
	call := s.end()
	require.Equal(t, ReasonCompleted, call.Reason)
	require.Contains(t, s.sw.log(), "execute speak flite|slt|appended")
	require.NotContains(t, s.sw.log(), "execute speak flite|slt|never")
	asks := s.requests()
	require.Equal(t, "completed", asks[len(asks)-1].Result["transfer_status"])
}
