package calls

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
	"tandem/models/modelstest"
)

func TestFreeSWITCHGather(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		const long = `"prompt":[{"action":"say","text":"This is a very long story, and nobody who knows the menu wants to hear all of it before the first key.","loop":9}]`
		l.answers("/result", status(204))
		for _, tt := range []struct {
			name, gather, typed string
			after               time.Duration
			want                map[string]any
		}{
			{"the first key ends the prompt", `"num_digits":4,` + long, "1234", 2 * time.Second, map[string]any{"outcome": "digits", "digits": "1234", "tries": 1.0}},
			{"a key ends the input", `"finish_on_key":"*",` + long, "77*", 2 * time.Second, map[string]any{"outcome": "digits", "digits": "77", "terminator": "*", "tries": 1.0}},
			{"nobody types", `"timeout":1,"tries":2,"prompt":[{"action":"say","text":"Well?"}]`, "", 0, map[string]any{"outcome": "timeout", "digits": "", "tries": 2.0}},
			{"too few", `"num_digits":4,"digit_timeout":1`, "12", time.Second, map[string]any{"outcome": "invalid", "digits": "12", "tries": 1.0}},
			{"enough of many", `"min_digits":2,"max_digits":9,"digit_timeout":1`, "123", time.Second, map[string]any{"outcome": "digits", "digits": "123", "tries": 1.0}},
			{"only the end", `"timeout":20`, "#", time.Second, map[string]any{"outcome": "invalid", "digits": "", "terminator": "#", "tries": 1.0}},
			{"no key ends it", `"finish_on_key":"","max_digits":3,"timeout":20`, "1#*", time.Second, map[string]any{"outcome": "digits", "digits": "1#*", "tries": 1.0}},
			{"a wrong key first", `"num_digits":1,"valid_digits":"12","tries":3,"timeout":20,"invalid_prompt":[{"action":"say","text":"Wrong."}]`, "92", time.Second,
				map[string]any{"outcome": "digits", "digits": "2", "tries": 2.0}},
			{"only wrong keys", `"num_digits":1,"valid_digits":"12","tries":2,"timeout":20,"invalid_prompt":[{"action":"say","text":"Wrong."}]`, "98", time.Second,
				map[string]any{"outcome": "invalid", "digits": "8", "tries": 2.0}},
		} {
			before := len(l.results())
			l.answers("/answer", reply(`[{"action":"gather","result_url":"/result",`+tt.gather+`}]`))
			l.callIn(t, l.did.NumberE164, tt.typed, tt.after, 0)
			call := l.end()
			results := l.results()[before:]
			require.Len(t, results, 1, tt.name)
			tt.want["action"], tt.want["index"] = "gather", 0.0
			require.Equal(t, tt.want, results[0], tt.name)
			if call.AnsweredAt != nil && tt.typed != "" && l.sim == nil {
				require.Less(t, call.EndedAt.Sub(*call.AnsweredAt), 30*time.Second, "%s: nobody heard the story to its end", tt.name)
			}
		}
	})
}

// logbook is what a manager logs, whatever the level.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestFreeSWITCHGatherSensitive types a code that nobody but the application that asked may learn.
func TestFreeSWITCHGatherSensitive(t *testing.T) {
	t.Parallel()
	const code = "90817263"
	var logs logbook
	setup := fitting{edit: []func(*Config){func(c *Config) {
		c.Logger = slog.New(slog.NewJSONHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}}}
	setup.onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"record_call"},{"action":"gather","num_digits":8,"timeout":20,"sensitive":true,"result_url":"/code"},
			{"action":"gather","num_digits":1,"timeout":20,"result_url":"/open"},{"action":"set","variables":{"a":"b"}},{"action":"redirect","url":"/last"}]`))
		l.answers("/code", status(204))
		l.answers("/open", status(204))
		l.answers("/last", reply(`[]`))
		l.callIn(t, l.did.NumberE164, code+"5", 2*time.Second, 0)
		call := l.end()
		for _, q := range l.requests() {
			switch q.Path {
			case "/code":
				require.Equal(t, map[string]any{"action": "gather", "index": 1.0, "outcome": "digits", "digits": code, "tries": 1.0}, q.Result)
			case "/open":
				require.Equal(t, "5", q.Result["digits"])
			}
			if q.Path == "/code" {
				q.Result = nil // it alone may hold the code
			}
			raw, err := json.Marshal(q)
			require.NoError(t, err)
			require.NotContains(t, string(raw), code, "a request to %s", q.Path)
		}
		require.Equal(t, "/last", l.requests()[len(l.requests())-1].Path)
		events, err := l.store.CallEvents(t.Context(), l.customer.ID, call.ID)
		require.NoError(t, err)
		var keys string
		for _, ev := range events {
			require.NotContains(t, string(ev.Body), code, ev.Type)
		}
		for _, data := range l.dataOf(call.ID, "call.dtmf") {
			keys += data["digit"].(string)
		}
		require.Equal(t, "5", keys, "the keys of the code are not told, later ones are")
		require.Equal(t, map[string]any{"action": "gather", "index": 1.0, "outcome": "digits", "tries": 1.0}, withPlace(l.dataOf(call.ID, "call.action_completed")[1]))
		stored, err := json.Marshal(call)
		require.NoError(t, err)
		require.NotContains(t, string(stored), code)
		require.NotContains(t, logs.String(), code)
	})
}

// withPlace is the result of a call.action_completed, with its place in the list.
func withPlace(data map[string]any) map[string]any {
	result, _ := data["result"].(map[string]any)
	result["action"], result["index"] = data["action"], data["index"]
	return result
}

// TestFreeSWITCHSpeechWithoutARecognizer asks for speech where nothing understands it.
func TestFreeSWITCHSpeechWithoutARecognizer(t *testing.T) {
	t.Parallel()
	for name, recognizer := range map[string]Recognizer{"of no service": {}, "that the node lacks": {Engine: "vosk", Module: "mod_vosk"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fitting{edit: []func(*Config){func(c *Config) { c.Recognizer = recognizer }}}.onSwitches(t, func(t *testing.T, l *live) {
				call := l.calledIn(t, `[{"action":"gather","input":["speech"],"result_url":"/result"},{"action":"gather","input":["digits","speech"],"result_url":"/result"},{"action":"pause","seconds":0.5}]`)
				require.Equal(t, ReasonCompleted, call.Reason)
				require.Equal(t, []any{"failed", "failed"}, l.outcomes(call.ID, "gather"))
				errs := l.dataOf(call.ID, "call.error")
				require.Len(t, errs, 2)
				for i, data := range errs {
					require.Equal(t, []any{"not_supported_by_node", "gather", "input", float64(i)}, []any{data["code"], data["action"], data["field"], data["index"]})
					require.Contains(t, data["message"], "has no")
				}
			})
		})
	}
}

// TestSpeechIsUnderstood gathers speech on a simulated switch that has a recognizer: no machine of ours has a real one.
func TestSpeechIsUnderstood(t *testing.T) {
	t.Parallel()
	setup := fitting{with: []string{"mod_vosk"}, edit: []func(*Config){func(c *Config) { c.Recognizer = Recognizer{Engine: "vosk", Module: "mod_vosk"} }}}
	l := setup.simulated(t, modelstest.Open(t), 4)
	l.answers("/result", status(204))
	for name, tt := range map[string]struct {
		input, prompt string
		call          simswitch.IncomingCall
		want          map[string]any
	}{
		"speech":      {`["speech"]`, ``, simswitch.IncomingCall{Speech: []string{"the second floor"}}, map[string]any{"outcome": "speech", "speech": map[string]any{"text": "the second floor", "confidence": 0.0}}},
		"with prompt": {`["digits","speech"]`, `"prompt":[{"action":"say","text":"Where to?"}],`, simswitch.IncomingCall{Speech: []string{"up"}}, map[string]any{"outcome": "speech", "speech": map[string]any{"text": "up", "confidence": 0.0}}},
		"confidence": {`["speech"]`, ``, simswitch.IncomingCall{Speech: []string{`{"alternatives":[{"text":"yes","confidence":87.5}]}`}},
			map[string]any{"outcome": "speech", "speech": map[string]any{"text": "yes", "confidence": 0.875}}},
		"digits":   {`["digits","speech"]`, ``, simswitch.IncomingCall{Digits: "42#", DigitsAfter: 4 * time.Second, DigitsEvery: 2 * time.Second}, map[string]any{"outcome": "digits", "digits": "42", "terminator": "#"}},
		"a key":    {`["digits","speech"]`, `"num_digits":1,`, simswitch.IncomingCall{Digits: "4", DigitsAfter: 4 * time.Second}, map[string]any{"outcome": "digits", "digits": "4"}},
		"just #":   {`["digits","speech"]`, ``, simswitch.IncomingCall{Digits: "#", DigitsAfter: 4 * time.Second}, map[string]any{"outcome": "invalid", "digits": "", "terminator": "#"}},
		"a secret": {`["digits","speech"]`, `"sensitive":true,"max_digits":4,`, simswitch.IncomingCall{Digits: "1357", DigitsAfter: 4 * time.Second, DigitsEvery: 2 * time.Second}, map[string]any{"outcome": "digits", "digits": "1357"}},
		"silence":  {`["speech"]`, ``, simswitch.IncomingCall{}, map[string]any{"outcome": "timeout"}},
	} {
		before := len(l.results())
		l.answers("/answer", reply(`[{"action":"gather","input":`+tt.input+`,`+tt.prompt+`"timeout":8,"digit_timeout":20,"result_url":"/result"}]`))
		tt.call.From, tt.call.To = "+15559876543", l.did.NumberE164
		_, err := l.sim.CallIn(tt.call)
		require.NoError(t, err)
		l.end()
		results := l.results()[before:]
		require.Len(t, results, 1, name)
		tt.want["action"], tt.want["index"], tt.want["tries"] = "gather", 0.0, 1.0
		require.Equal(t, tt.want, results[0], name)
	}
}
