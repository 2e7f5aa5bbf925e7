package calls

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
	"tandem/lab"
	"tandem/models"
	"tandem/models/modelstest"
)

// TestFreeSWITCHDTMF sends keys to the caller.
func TestFreeSWITCHDTMF(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"answer"},{"action":"dtmf","digits":"12w#A9*"},{"action":"pause","seconds":20}]`))
		keys := l.listensIn(t)
		require.Equal(t, "12#A9*", keys(6))
		l.hangUpAll(t)
		require.Equal(t, ReasonAPIHangup, l.end().Reason)
	})
}

// listensIn lets a call in, and returns what waits for the keys that its caller is sent.
func (l *live) listensIn(t *testing.T) (keys func(digits int) string) {
	t.Helper()
	if l.sim != nil {
		channel, err := l.sim.CallIn(simswitch.IncomingCall{From: "+15559876543", To: l.did.NumberE164})
		require.NoError(t, err)
		return func(digits int) string {
			result, err := l.sim.Caller(channel).Wait(t.Context(), func(r simswitch.Result) bool { return len(r.Heard) >= digits })
			require.NoError(t, err)
			return result.Heard
		}
	}
	watch, err := lab.DialESL(t.Context(), l.carrier.ESLAddr, l.carrier.Password)
	require.NoError(t, err)
	t.Cleanup(func() { _ = watch.Close() })
	require.NoError(t, watch.Subscribe(t.Context(), "DTMF"))
	require.NoError(t, l.carrier.CallIn("+15559876543", l.did.NumberE164, l.sipAddr, lab.AppPark))
	return func(digits int) string {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var heard strings.Builder
		for heard.Len() < digits {
			event, err := watch.Await(ctx, "DTMF")
			require.NoError(t, err, "heard %q", heard.String())
			heard.WriteString(event.Event("DTMF-Digit"))
		}
		return heard.String()
	}
}

// hangUpAll hangs up what lives.
func (l *live) hangUpAll(t *testing.T) {
	t.Helper()
	calls, _, err := l.store.ListCalls(t.Context(), l.customer.ID, models.CallFilter{}, models.Page{})
	require.NoError(t, err)
	for _, call := range calls {
		if call.Live() {
			_, err := l.manager.Cancel(t.Context(), l.customer.ID, call.ID, nil)
			require.NoError(t, err)
		}
	}
}

// TestFreeSWITCHStreamWithoutTheModule is refused, and the list goes on.
func TestFreeSWITCHStreamWithoutTheModule(t *testing.T) {
	t.Parallel()
	fitting{edit: []func(*Config){streaming}}.onSwitches(t, func(t *testing.T, l *live) {
		call := l.calledIn(t, `[{"action":"stream","url":"wss://media.example.com/in"},{"action":"stream","op":"stop"},{"action":"pause","seconds":0.5}]`)
		require.Equal(t, ReasonCompleted, call.Reason)
		require.Equal(t, []any{"failed", "failed"}, l.outcomes(call.ID, "stream"))
		errs := l.dataOf(call.ID, "call.error")
		require.Len(t, errs, 2)
		for _, data := range errs {
			require.Equal(t, []any{"not_supported_by_node", "stream"}, []any{data["code"], data["action"]})
			require.Contains(t, data["message"], "mod_audio_stream")
		}
	})
}

func streaming(c *Config) { c.StreamHosts = []string{"example.com"} }

// TestStream streams on a simulated switch that has the module: no machine of ours has the real one.
func TestStream(t *testing.T) {
	t.Parallel()
	l := fitting{edit: []func(*Config){streaming}, with: []string{moduleStream}}.simulated(t, modelstest.Open(t), 4)
	call := l.calledIn(t, `[{"action":"stream","url":"wss://media.example.com/in"},{"action":"stream","url":"wss://media.example.com/twice"},{"action":"stream","op":"stop"},
		{"action":"stream","op":"stop"},{"action":"stream","url":"wss://example.org/in"},{"action":"stream","url":"wss://example.com/in","track":"outbound"},
		{"action":"stream","url":"wss://example.com/in","bidirectional":true},{"action":"stream","url":"wss://example.com/in","track":"both"}]`)
	require.Equal(t, ReasonCompleted, call.Reason)
	require.Equal(t, []any{"started", "failed", "stopped", "failed", "failed", "failed", "failed", "started"}, l.outcomes(call.ID, "stream"))
	var told []any
	for _, data := range l.dataOf(call.ID, "call.error") {
		told = append(told, []any{data["code"], data["index"], data["field"]})
	}
	require.Equal(t, []any{
		[]any{"action_failed", 1.0, nil}, []any{"action_failed", 3.0, nil}, []any{"action_failed", 4.0, "url"},
		[]any{"not_supported_by_node", 5.0, "track"}, []any{"not_supported_by_node", 6.0, "bidirectional"},
	}, told)
}

func TestStreamsTo(t *testing.T) {
	t.Parallel()
	c := &Config{StreamHosts: []string{"example.com", "10.0.0.9"}}
	for url, want := range map[string]bool{
		"wss://example.com/a": true, "wss://EXAMPLE.com:8443": true, "wss://example.com./": true, "wss://a.b.example.com": true, "wss://10.0.0.9/x": true,
		"wss://badexample.com": false, "wss://example.com.evil.org": false, "wss://example.org/example.com": false, "wss://com": false, "": false,
		"wss://example.com@evil.org": false, "wss://evil.org#example.com": false, "wss://110.0.0.9": false, "wss://%zz": false, "wss://[::1]": false,
	} {
		require.Equal(t, want, c.streamsTo(url), url)
	}
	require.False(t, (&Config{}).streamsTo("wss://example.com"), "nothing is listed")
}
