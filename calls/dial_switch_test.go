package calls

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/lab"
	"tandem/models"
	"tandem/models/modelstest"
)

// results are what the application was told of its actions, in order.
func (l *live) results() []map[string]any {
	var results []map[string]any
	for _, q := range l.requests() {
		if q.Type == "result" {
			results = append(results, q.Result)
		}
	}
	return results
}

// calledIn lets a call in that runs a list whose results go to /result, and waits for its end.
func (l *live) calledIn(t *testing.T, list string) models.Call {
	t.Helper()
	l.answers("/answer", reply(list))
	l.answers("/result", status(http.StatusNoContent))
	l.callIn(t, l.did.NumberE164, "", 0, 0)
	return l.end()
}

// noChannels waits until the switch carries nothing.
func (l *live) noChannels(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		channels, err := l.esl.Channels(t.Context())
		return err == nil && len(channels) == 0
	}, patience, 10*time.Millisecond, "no leg is left")
}

// legs are the rows of a call's legs.
func (l *live) legs(t *testing.T, callID string) []models.Leg {
	t.Helper()
	legs, err := l.store.LegsOfCall(t.Context(), l.customer.ID, callID)
	require.NoError(t, err)
	for _, leg := range legs {
		require.Equal(t, models.LegEnded, leg.Status)
		require.NotNil(t, leg.EndedAt)
	}
	return legs
}

func TestFreeSWITCHDialSimultaneous(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		call := l.calledIn(t, `[{"action":"dial","to":["+15550000180","+15550000486","+15550000701"],"result_url":"/result"}]`)
		require.Equal(t, ReasonCompleted, call.Reason)
		result := l.results()[0]
		require.Equal(t, []any{"answered", ReasonCalleeHangup, 200.0}, []any{result["dial_status"], result["reason"], result["sip_code"]})
		require.Greater(t, result["seconds"], 1.0)
		legs := result["legs"].([]any)
		require.Len(t, legs, 3)
		var said []string
		for _, leg := range legs {
			leg := leg.(map[string]any)
			said = append(said, fmt.Sprint(leg["to"], " ", leg["dial_status"], " ", leg["reason"]))
		}
		require.Equal(t, []string{"+15550000180 canceled answered_elsewhere", "+15550000486 busy busy", "+15550000701 answered callee_hangup"}, said)
		require.Equal(t, legs[2].(map[string]any)["leg_id"], result["leg_id"])
		rows := l.legs(t, call.ID)
		require.Len(t, rows, 3)
		require.Equal(t, "LOSE_RACE", rows[0].Cause)
		require.Len(t, l.dataOf(call.ID, "leg.ended"), 3)
		require.Len(t, l.dataOf(call.ID, "leg.answered"), 1)
		l.noChannels(t)
	})
}

func TestFreeSWITCHDialSequential(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		call := l.calledIn(t, `[{"action":"dial","strategy":"sequential","to":[{"number":"+15550000180","timeout":5},"+15550000603","+15550000701","+15550000702"],"result_url":"/result"}]`)
		result := l.results()[0]
		require.Equal(t, "answered", result["dial_status"])
		rows := l.legs(t, call.ID)
		require.Len(t, rows, 3, "nobody is called after the one that answered")
		require.Equal(t, []any{"no_answer", ReasonNoAnswer, "failed", ReasonDeclined, "answered"},
			[]any{rows[0].DialStatus, rows[0].Reason, rows[1].DialStatus, rows[1].Reason, rows[2].DialStatus})
		require.InDelta(t, 5, rows[0].EndedAt.Sub(rows[0].CreatedAt).Seconds(), 4)
	})
}

func TestFreeSWITCHDialFailover(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		gateway := l.trunk.GatewayName
		l.trunk.GatewayName = "no-such-gateway"
		require.NoError(t, l.store.UpdateTrunk(t.Context(), l.trunk))
		second := *l.trunk
		second.ID, second.GatewayName, second.Name = "", gateway, "second"
		second.CreatedAt, second.Routing.Priority = time.Time{}, l.trunk.Routing.Priority+1
		require.NoError(t, l.store.CreateTrunk(t.Context(), &second))
		call := l.calledIn(t, `[{"action":"dial","to":"+15550000486","result_url":"/result"},
			{"action":"dial","to":["+15550000701","+15550000486"],"result_url":"/result"},
			{"action":"dial","to":{"number":"+15550000701","trunk_id":"`+l.trunk.ID+`"},"result_url":"/result"}]`)
		results := l.results()
		require.Equal(t, []any{"busy", "answered", "failed"}, []any{results[0]["dial_status"], results[1]["dial_status"], results[2]["dial_status"]})
		require.Equal(t, ReasonTrunkUnavailable, results[2]["reason"])
		rows := l.legs(t, call.ID)
		var said []string
		for _, row := range rows {
			name := "first"
			if *row.TrunkID == second.ID {
				name = "second"
			}
			said = append(said, row.To[len(row.To)-3:]+" "+name+" "+row.Reason)
		}
		require.Equal(t, []string{
			"486 first trunk_unavailable", "486 second busy",
			"701 first trunk_unavailable", "486 first trunk_unavailable", "701 second callee_hangup", "486 second busy",
			"701 first trunk_unavailable",
		}, said)
	})
}

func TestFreeSWITCHDialConfirm(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		call := l.calledIn(t, `[{"action":"dial","strategy":"sequential","to":["+15550000732","+15550000731"],"max_seconds":2,"result_url":"/result",
			"confirm":{"key":"1","timeout":6,"prompt":[{"action":"say","text":"Press 1, please."}]}}]`)
		rows := l.legs(t, call.ID)
		require.Len(t, rows, 2)
		require.Equal(t, []any{"no_answer", reasonNotConfirmed}, []any{rows[0].DialStatus, rows[0].Reason})
		require.NotNil(t, rows[0].AnsweredAt)
		require.Zero(t, rows[0].Seconds)
		require.Equal(t, []any{"answered", ReasonTimeLimit}, []any{rows[1].DialStatus, rows[1].Reason})
		require.InDelta(t, 2, rows[1].Seconds, 1.5)
		require.Equal(t, "answered", l.results()[0]["dial_status"])

		// All at once, without a prompt: who answers first and presses another key does not keep the one who presses it.
		call = l.calledIn(t, `[{"action":"dial","to":["+15550000730","+15550000734"],"max_seconds":1,"confirm":{"key":"4"},"result_url":"/result"}]`)
		result := l.results()[1]
		require.Equal(t, []any{"answered", ReasonTimeLimit}, []any{result["dial_status"], result["reason"]})
		rows = l.legs(t, call.ID)
		require.Equal(t, []any{"canceled", reasonAnsweredElsewhere}, []any{rows[0].DialStatus, rows[0].Reason})
		l.noChannels(t)
	})
}

func TestFreeSWITCHDialCallerLeaves(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		for _, list := range []string{
			`[{"action":"answer"},{"action":"dial","to":["+15550000180","+15550000180"]}]`,
			`[{"action":"answer"},{"action":"dial","to":"+15550000730","confirm":{"key":"9","timeout":30}}]`,
			`[{"action":"answer"},{"action":"dial","to":"+15550000702"}]`,
		} {
			l.answers("/answer", reply(list))
			l.callIn(t, l.did.NumberE164, "", 0, 4*time.Second)
			call := l.end()
			require.Equal(t, []any{StatusCompleted, ReasonCallerHangup}, []any{call.Status, call.Reason}, list)
			for _, row := range l.legs(t, call.ID) {
				require.Equal(t, ReasonCallerHangup, row.Reason, "%s: %+v", list, row)
			}
			l.noChannels(t)
		}
	})
}

func TestFreeSWITCHDialCanceled(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"dial","to":["+15550000180","+15550000180"]}]`))
		l.callIn(t, l.did.NumberE164, "", 0, 0)
		id := l.awaitLeg(t, models.LegRinging)
		_, err := l.manager.Cancel(t.Context(), l.customer.ID, id, nil)
		require.NoError(t, err)
		call := l.end()
		require.Equal(t, []any{StatusCanceled, SourceAPI}, []any{call.Status, call.HangupSource})
		for _, row := range l.legs(t, call.ID) {
			require.Equal(t, []any{"canceled", ReasonAPIHangup}, []any{row.DialStatus, row.Reason})
		}
		l.noChannels(t)
	})
}

// awaitLeg waits until a leg of a call that lives is in a status, and returns the call's ID.
func (l *live) awaitLeg(t *testing.T, status string) string {
	t.Helper()
	var id string
	require.Eventually(t, func() bool {
		calls, _, err := l.store.ListCalls(t.Context(), l.customer.ID, models.CallFilter{}, models.Page{})
		require.NoError(t, err)
		for _, call := range calls {
			if !call.Live() {
				continue
			}
			legs, err := l.store.LegsOfCall(t.Context(), l.customer.ID, call.ID)
			require.NoError(t, err)
			for _, leg := range legs {
				if leg.Status == status {
					id = call.ID
					return true
				}
			}
		}
		return false
	}, patience, 10*time.Millisecond)
	return id
}

func TestFreeSWITCHDialInterrupted(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		replace, err := actions.ParseList([]byte(`[{"action":"say","text":"Sorry"},{"action":"dial","to":"+15550000701","result_url":"/result"}]`), "actions")
		require.NoError(t, err)
		l.answers("/result", status(http.StatusNoContent))
		for _, tt := range []struct{ list, status, dialStatus string }{
			{`[{"action":"answer"},{"action":"dial","to":["+15550000180","+15550000180"],"result_url":"/never"}]`, models.LegRinging, "canceled"},
			{`[{"action":"dial","to":"+15550000702","result_url":"/never"}]`, models.LegAnswered, "answered"},
			{`[{"action":"answer"},{"action":"dial","to":"+15550000730","confirm":{"key":"9"},"result_url":"/never"}]`, models.LegAnswered, "canceled"},
		} {
			l.answers("/answer", reply(tt.list))
			l.callIn(t, l.did.NumberE164, "", 0, 0)
			id := l.awaitLeg(t, tt.status)
			if tt.dialStatus == "answered" {
				require.Eventually(t, func() bool {
					call, err := l.store.CallByID(t.Context(), id)
					return err == nil && call.Status == StatusInProgress
				}, patience, 10*time.Millisecond)
			}
			_, err = l.manager.Direct(t.Context(), l.customer.ID, id, DirectRequest{Actions: replace})
			require.NoError(t, err)
			call := l.end()
			require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason}, "the caller stays")
			rows := l.legs(t, call.ID)
			require.Equal(t, []any{tt.dialStatus, reasonInterrupted}, []any{rows[0].DialStatus, rows[0].Reason}, "%+v", rows[0])
			require.Equal(t, "answered", rows[len(rows)-1].DialStatus)
			done := l.dataOf(call.ID, "call.action_completed")
			for _, data := range done {
				if result, ok := data["result"].(map[string]any); ok && data["action"] == "dial" {
					require.Equal(t, reasonInterrupted, result["outcome"])
					break
				}
			}
			l.noChannels(t)
		}
		for _, q := range l.requests() {
			require.NotEqual(t, "/never", q.Path)
		}
	})
}

func TestFreeSWITCHDialEarlyMedia(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		call := l.calledIn(t, `[{"action":"dial","to":"+15550000183","result_url":"/result"}]`)
		result := l.results()[0]
		require.Equal(t, []any{"answered", ReasonCalleeHangup}, []any{result["dial_status"], result["reason"]})
		rows := l.legs(t, call.ID)
		require.InDelta(t, 3, rows[0].Seconds, 2.5, "what was heard before the answer does not count")
		require.GreaterOrEqual(t, call.AnsweredAt.Sub(*call.RingingAt), 500*time.Millisecond, "early media does not answer the caller")
	})
}

func TestFreeSWITCHDialAnswersFirst(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		call := l.calledIn(t, `[{"action":"dial","to":{"number":"+15550000180","timeout":5},"answer_on_bridge":false,"ringback":"ringback_de","result_url":"/result"}]`)
		require.Equal(t, StatusCompleted, call.Status, "the caller was answered although nobody else was")
		require.Equal(t, "no_answer", l.results()[0]["dial_status"])
	})
}

func TestFreeSWITCHDialRecords(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		call := l.calledIn(t, `[{"action":"answer"},{"action":"dial","to":"+15550000713","max_seconds":2,"record":true,"result_url":"/result"},{"action":"pause","seconds":1}]`)
		rows, err := l.store.RecordingsOfCall(t.Context(), l.customer.ID, call.ID)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, []any{models.RecordingAvailable, 2}, []any{rows[0].Status, rows[0].Channels})
		require.InDelta(t, 2, rows[0].Seconds, 1, "the connection, not the ringing")
		require.Equal(t, []string{"call.ringing", "call.answered", "leg.ringing", "leg.answered", "recording.started", "leg.ended", "recording.available", "call.completed"}, l.kinds(call.ID))
	})
}

func TestFreeSWITCHDialMachineDetection(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		if l.sim != nil {
			t.Skip("the simulated switch records silence")
		}
		call := l.calledIn(t, `[{"action":"answer"},{"action":"dial","strategy":"sequential","to":["+15550000721","+15550000720"],"max_seconds":1,
			"machine_detection":{"async":false,"on_machine":"hangup"},"result_url":"/result"}]`)
		rows := l.legs(t, call.ID)
		require.Len(t, rows, 2)
		require.Equal(t, []any{"machine", reasonMachine, "machine"}, []any{rows[0].DialStatus, rows[0].Reason, rows[0].AnsweredBy})
		require.Zero(t, rows[0].Seconds, "the machine was never joined")
		require.Equal(t, []any{"answered", "human"}, []any{rows[1].DialStatus, rows[1].AnsweredBy})
		require.Equal(t, "human", l.results()[0]["answered_by"])
		require.Len(t, l.dataOf(call.ID, "call.machine_detected"), 2)

		// Beside the conversation.
		l.calledIn(t, `[{"action":"dial","to":"+15550000721","machine_detection":{"on_machine":"hangup"},"result_url":"/result"}]`)
		require.Equal(t, []any{"machine", "machine"}, []any{l.results()[1]["dial_status"], l.results()[1]["answered_by"]})
	})
}

// TestFreeSWITCHDialRingback listens to what an answered caller hears while a party rings.
func TestFreeSWITCHDialRingback(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	l := newReal(t, modelstest.Open(t))
	l.answers("/tone.wav", func(w http.ResponseWriter, _ asked) { _, _ = w.Write(loudWAV()) })
	for _, tt := range []struct {
		ringback string
		heard    bool
	}{
		{``, true},
		{`"ringback":"ringback_uk",`, true},
		{`"ringback":"none",`, false},
		{`"ringback":"` + l.server.URL + `/tone.wav",`, true},
	} {
		call := l.calledIn(t, `[{"action":"answer"},{"action":"record_call"},{"action":"dial",`+tt.ringback+`"to":{"number":"+15550000180","timeout":5},"result_url":"/result"}]`)
		rows, err := l.store.RecordingsOfCall(t.Context(), l.customer.ID, call.ID)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, models.RecordingAvailable, rows[0].Status)
		require.Greater(t, rows[0].Seconds, 3.0)
		loud := loudness(t, rows[0].Path)
		t.Logf("%s is as loud as %.0f", tt.ringback, loud)
		require.Equal(t, tt.heard, loud > 100, "%s: %.0f", tt.ringback, loud)
	}
}

// loudWAV is a second of a buzz, 8 kHz, 16 bit.
func loudWAV() []byte {
	wav := silentWAV()
	for i := 44; i+1 < len(wav); i += 2 {
		level := int16(4000)
		if i/2%16 < 8 {
			level = -4000
		}
		binary.LittleEndian.PutUint16(wav[i:], uint16(level))
	}
	return wav
}

// loudness is the mean level of what the call's own party heard: the second channel of a recording.
func loudness(t *testing.T, path string) float64 {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	at := bytes.Index(raw, []byte("data"))
	require.Positive(t, at)
	var sum float64
	samples := raw[at+8:]
	for i := 0; i+3 < len(samples); i += 4 {
		sum += math.Abs(float64(int16(binary.LittleEndian.Uint16(samples[i+2:]))))
	}
	return sum / float64(len(samples)/4)
}

// TestFreeSWITCHDialSoundsForEver has a party that sends early media and never answers: the time to ring holds for it, too.
func TestFreeSWITCHDialSoundsForEver(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	l := newReal(t, modelstest.Open(t))
	call := l.calledIn(t, `[{"action":"dial","to":{"number":"+15550000184","timeout":5},"result_url":"/result"},{"action":"dial","to":"+15550000701","result_url":"/result"}]`)
	results := l.results()
	require.Equal(t, []any{"no_answer", ReasonNoAnswer, 0.0}, []any{results[0]["dial_status"], results[0]["reason"], results[0]["seconds"]})
	require.Equal(t, "answered", results[1]["dial_status"], "the caller stays")
	rows := l.legs(t, call.ID)
	require.InDelta(t, 6, rows[0].EndedAt.Sub(rows[0].CreatedAt).Seconds(), 4)
	require.Nil(t, rows[0].AnsweredAt)
}
