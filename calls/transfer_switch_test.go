package calls

import (
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/models"
)

// transferred is what was told of a call's transfer.
func (s *scene) transferred(callID string) map[string]any {
	s.t.Helper()
	return withoutCall(s.data(callID, "call.transferred"))
}

// withoutCall leaves out of an event's data the call, which every event has.
func withoutCall(data map[string]any) map[string]any {
	data = maps.Clone(data)
	delete(data, "call")
	return data
}

func TestFreeSWITCHTransferBlind(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		call := l.calledIn(t, `[{"action":"transfer","to":"+15550000486","result_url":"/result"},{"action":"transfer","to":"+15550000603","result_url":"/result"},
			{"action":"transfer","to":"+15550000701","result_url":"/result"},{"action":"transfer","to":"+15550000702","result_url":"/never"}]`)
		require.Equal(t, []any{StatusCompleted, ReasonCompleted, SourceActions}, []any{call.Status, call.Reason, call.HangupSource})
		results := l.results()
		require.Len(t, results, 3)
		require.Equal(t, []any{"busy", 486.0, "busy"}, []any{results[0]["transfer_status"], results[0]["sip_code"], results[0]["reason"]})
		require.Equal(t, []any{"rejected", 603.0, "declined"}, []any{results[1]["transfer_status"], results[1]["sip_code"], results[1]["reason"]})
		require.Equal(t, []any{"completed", 200.0, ReasonCalleeHangup}, []any{results[2]["transfer_status"], results[2]["sip_code"], results[2]["reason"]})
		require.NotContains(t, results[2], "dial_status")
		told := l.dataOf(call.ID, "call.transferred")
		require.Len(t, told, 3)
		require.Equal(t, map[string]any{
			"mode": "blind", "to": "+15550000701", "transfer_status": "completed", "sip_code": 200.0, "leg_id": results[2]["leg_id"],
		}, withoutCall(told[2]))
		rows := l.legs(t, call.ID)
		require.Len(t, rows, 3)
		require.Equal(t, models.LegTransfer, rows[2].Kind)
		l.noChannels(t)
	})
}

func TestFreeSWITCHTransferAttended(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		call := l.calledIn(t, `[{"action":"transfer","mode":"attended","to":"+15550000713","max_seconds":1,"result_url":"/result",
			"announce":[{"action":"say","text":"A caller about an invoice: it's urgent, please take it."}]}]`)
		result := l.results()[0]
		require.Equal(t, []any{"completed", ReasonTimeLimit}, []any{result["transfer_status"], result["reason"]})
		rows := l.legs(t, call.ID)
		if l.sim == nil { // whose clock runs fast
			require.Greater(t, rows[0].EndedAt.Sub(*rows[0].AnsweredAt).Seconds()-rows[0].Seconds, 1.0, "the announcement comes before the joining")
		}

		// Who hangs up on the announcement was not joined.
		call = l.calledIn(t, `[{"action":"transfer","mode":"attended","to":"+15550000701","result_url":"/result",
			"announce":[{"action":"say","text":"This is a story that is much too long for anybody to wait until it is over, and so it goes on and on, and on and on."}]}]`)
		require.Equal(t, []any{"no_answer", ReasonCalleeHangup}, []any{l.results()[1]["transfer_status"], l.results()[1]["reason"]})
		require.Equal(t, ReasonCompleted, call.Reason)
	})
}

func TestFreeSWITCHTransferWhileConnected(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		list, err := actions.ParseList([]byte(`[{"action":"transfer","mode":"attended","to":"+15550000701","announce":[{"action":"say","text":"A caller."}],"result_url":"/result"}]`), "actions")
		require.NoError(t, err)
		l.answers("/answer", reply(`[{"action":"dial","to":"+15550000702"}]`))
		l.answers("/result", status(http.StatusNoContent))
		l.callIn(t, l.did.NumberE164, "", 0, 0)
		id := l.awaitLeg(t, models.LegAnswered)
		require.Eventually(t, func() bool {
			call, err := l.store.CallByID(t.Context(), id)
			return err == nil && call.Status == StatusInProgress
		}, patience, 10*time.Millisecond)
		_, err = l.manager.Direct(t.Context(), l.customer.ID, id, DirectRequest{Actions: list})
		require.NoError(t, err)
		call := l.end()
		rows := l.legs(t, call.ID)
		require.Len(t, rows, 2)
		require.Equal(t, []any{"answered", reasonInterrupted}, []any{rows[0].DialStatus, rows[0].Reason}, "the first party is let go")
		require.Equal(t, "completed", l.data(call.ID, "call.transferred")["transfer_status"])
	})
}

func TestFreeSWITCHTransferRefer(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		// The lab's carrier cannot transfer a call that it has nobody on the other end of: it takes the REFER, and reports 403.
		call := l.calledIn(t, `[{"action":"answer"},{"action":"transfer","mode":"refer","to":"+15550000403","timeout":5,"result_url":"/result"},{"action":"say","text":"Still here"}]`)
		require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason}, "the call goes on")
		result := l.results()[0]
		require.Equal(t, []any{"failed", 403.0, ReasonCarrierRejected}, []any{result["transfer_status"], result["sip_code"], result["reason"]})
		require.Equal(t, map[string]any{"mode": "refer", "to": "+15550000403", "transfer_status": "failed", "sip_code": 403.0}, l.transferred(call.ID))

		// Before the answer: a 302.
		call = l.calledIn(t, `[{"action":"transfer","mode":"refer","to":"sip:anna@pbx.example"}]`)
		require.Equal(t, []any{StatusRejected, ReasonCompleted, SourceActions, 302}, []any{call.Status, call.Reason, call.HangupSource, call.SIPCode})
		require.Equal(t, map[string]any{"mode": "refer", "to": "sip:anna@pbx.example", "transfer_status": "accepted", "sip_code": 302.0}, l.transferred(call.ID))
	})
}

func TestFreeSWITCHTransferReferTaken(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"answer"},{"action":"transfer","mode":"refer","to":"sip:+15550000800@127.0.0.1","timeout":5,"result_url":"/result"},{"action":"say","text":"Never"}]`))
		l.answers("/result", status(http.StatusNoContent))
		l.callBridged(t, l.did.NumberE164)
		call := l.end()
		require.Equal(t, "completed", l.data(call.ID, "call.transferred")["transfer_status"], "%+v", call)
		require.Equal(t, StatusCompleted, call.Status)
		require.NotContains(t, l.allKinds(call.ID)[len(l.allKinds(call.ID))-2:], "call.error")
	})
}
