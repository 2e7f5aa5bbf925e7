package calls

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

// actionResults are the results of a call's actions of a verb, as its events tell them.
func (l *live) actionResults(callID, verb string) []map[string]any {
	var results []map[string]any
	for _, data := range l.dataOf(callID, "call.action_completed") {
		if data["action"] == verb {
			result, _ := data["result"].(map[string]any)
			results = append(results, result)
		}
	}
	return results
}

// outcomes are the outcomes of a call's actions of a verb.
func (l *live) outcomes(callID, verb string) []any {
	var outcomes []any
	for _, result := range l.actionResults(callID, verb) {
		outcomes = append(outcomes, result["outcome"])
	}
	return outcomes
}

// recorded is the one recording of a call, which is available.
func (l *live) recorded(t *testing.T, callID string) models.Recording {
	t.Helper()
	rows, err := l.store.RecordingsOfCall(t.Context(), l.customer.ID, callID)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, models.RecordingAvailable, rows[0].Status)
	return rows[0]
}

func TestFreeSWITCHSay(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		call := l.calledIn(t, `[{"action":"record_call"},{"action":"say","text":"One, two, three.","loop":2},
			{"action":"say","text":"Good day to you.","voice":"rms","language":"en-GB"},{"action":"say","text":"$5 {four} 'five' | six! ~"}]`)
		require.Equal(t, []any{"played", "played", "played"}, l.outcomes(call.ID, "say"))
		require.Empty(t, l.dataOf(call.ID, "call.error"))
		results := l.actionResults(call.ID, "say")
		require.Greater(t, results[0]["played_ms"], 100.0)
		require.Greater(t, results[2]["played_ms"], 100.0, "a text is spoken as it is")
		row := l.recorded(t, call.ID)
		if l.sim == nil {
			require.Greater(t, results[0]["played_ms"], 2000.0, "twice")
			require.Greater(t, loudness(t, row.Path), 100.0, "it is heard")
		}
	})
}

// speaker is a text-to-speech server that fails at the text "fail".
type speaker struct {
	*httptest.Server
	mu    sync.Mutex
	asked []map[string]string
	auth  []string
}

func newSpeaker(t *testing.T) *speaker {
	t.Helper()
	sp := &speaker{}
	sp.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]string
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Method != http.MethodPost {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		sp.mu.Lock()
		sp.asked, sp.auth = append(sp.asked, body), append(sp.auth, r.Header.Get("Authorization"))
		sp.mu.Unlock()
		if body["text"] == "fail" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(loudWAV())
	}))
	t.Cleanup(sp.Close)
	return sp
}

func (sp *speaker) speaks(c *Config) {
	c.VoiceEngine, c.Voice = EngineHTTP, "anna"
	c.Synthesis = Synthesis{URL: sp.URL + "/speak", Token: "t0ken", Client: sp.Client()}
}

// TestFreeSWITCHSayByHTTP speaks through a text-to-speech server, on nodes without a voice of their own.
func TestFreeSWITCHSayByHTTP(t *testing.T) {
	t.Parallel()
	sp := newSpeaker(t)
	var mu sync.Mutex
	fitting{edit: []func(*Config){sp.speaks}, without: moduleFlite}.onSwitches(t, func(t *testing.T, l *live) {
		mu.Lock() // both switches ask the same server
		defer mu.Unlock()
		before := len(sp.asked)
		call := l.calledIn(t, `[{"action":"record_call"},{"action":"say","text":"hello","language":"de-DE"},{"action":"say","text":"hello","language":"de-DE"},
			{"action":"say","text":"fail","voice":"berta","id":"wrong"},{"action":"gather","timeout":1,"result_url":"/result","prompt":[{"action":"say","text":"type"}]},
			{"action":"gather","timeout":1,"result_url":"/result","prompt":[{"action":"say","text":"fail"}]}]`)
		require.Equal(t, []any{"played", "played", "failed"}, l.outcomes(call.ID, "say"))
		require.Equal(t, []map[string]string{
			{"text": "hello", "voice": "anna", "language": "de-DE"}, {"text": "fail", "voice": "berta", "language": "en-US"},
			{"text": "type", "voice": "anna", "language": "en-US"}, {"text": "fail", "voice": "anna", "language": "en-US"},
		}, sp.asked[before:], "the same text is asked for once")
		for _, auth := range sp.auth {
			require.Equal(t, "Bearer t0ken", auth)
		}
		errs := l.dataOf(call.ID, "call.error")
		require.Len(t, errs, 2)
		require.Equal(t, []any{"action_failed", "say", "text", "wrong", 3.0}, []any{errs[0]["code"], errs[0]["action"], errs[0]["field"], errs[0]["id"], errs[0]["index"]})
		require.Contains(t, errs[0]["message"], "text-to-speech server failed: fetch the file: answered 500")
		require.Equal(t, []any{"timeout", "failed"}, l.outcomes(call.ID, "gather"))
		require.Equal(t, []any{"gather", "prompt", 5.0}, []any{errs[1]["action"], errs[1]["field"], errs[1]["index"]})
		results := l.actionResults(call.ID, "say")
		require.Greater(t, results[0]["played_ms"], 200.0)
		row := l.recorded(t, call.ID)
		if l.sim == nil {
			require.Greater(t, loudness(t, row.Path), 500.0, "it is heard")
		}
	})
}

// TestFreeSWITCHSayWhenTheServerFails falls back to the switch's own voice.
func TestFreeSWITCHSayWhenTheServerFails(t *testing.T) {
	t.Parallel()
	sp := newSpeaker(t)
	fitting{edit: []func(*Config){sp.speaks}}.onSwitches(t, func(t *testing.T, l *live) {
		call := l.calledIn(t, `[{"action":"record_call"},{"action":"say","text":"fail"},{"action":"gather","timeout":1,"result_url":"/result","prompt":[{"action":"say","text":"fail"}]}]`)
		require.Equal(t, []any{"played"}, l.outcomes(call.ID, "say"))
		require.Equal(t, []any{"timeout"}, l.outcomes(call.ID, "gather"))
		require.Empty(t, l.dataOf(call.ID, "call.error"))
		if l.sim == nil {
			require.Greater(t, loudness(t, l.recorded(t, call.ID).Path), 50.0, "it is heard")
		}
	})
}

func TestFreeSWITCHPauseSetNotifyRedirect(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/next", reply(`{"variables":{"tier":"silver"},"actions":[{"action":"pause","seconds":1},{"action":"hangup","after_seconds":2},{"action":"pause","seconds":60}]}`))
		call := l.calledIn(t, `[{"action":"set","variables":{"tier":"gold","kept":"yes"},"result_url":"/result"},{"action":"notify","id":"n","payload":{"step":[1,null]}},{"action":"redirect","url":"/next"}]`)
		require.Equal(t, []any{StatusCompleted, ReasonCompleted, SourceActions}, []any{call.Status, call.Reason, call.HangupSource})
		require.Equal(t, map[string]string{"tier": "silver", "kept": "yes"}, call.Variables)
		require.Equal(t, []any{map[string]any{"step": []any{1.0, nil}}, "n"}, []any{l.data(call.ID, "call.notify")["payload"], l.data(call.ID, "call.notify")["id"]})
		asks := l.requests()
		require.Equal(t, []string{"/answer", "/result", "/next"}, []string{asks[0].Path, asks[1].Path, asks[2].Path})
		require.Equal(t, "done", asks[1].Result["outcome"])
		require.Equal(t, "gold", asks[2].Variables["tier"])
		require.Equal(t, "ringing", asks[2].Call["status"], "nothing was heard before")
		lasted := call.EndedAt.Sub(*call.AnsweredAt)
		require.Less(t, lasted, 20*time.Second, "the hang-up came in the pause")
		if l.sim == nil {
			require.Greater(t, lasted, 2500*time.Millisecond, "a second of pause, two until the hang-up")
		}
	})
}
