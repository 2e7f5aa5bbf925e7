package calls

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestAnswerURLFailuresEndTheCallAndAreTold(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t), func(c *Config) { c.RequestTimeout = 200 * time.Millisecond })
	stall := make(chan struct{})
	t.Cleanup(func() { close(stall) })
	for name, tt := range map[string]struct {
		reply    func(http.ResponseWriter, asked)
		attempts int
		data     map[string]any
	}{
		"500": {status(500), 1, map[string]any{"status": 500.0}},
		"404": {status(404), 1, map[string]any{"status": 404.0}},
		"503": {status(503), 2, map[string]any{"status": 503.0}},
		"429": {status(429), 2, map[string]any{"status": 429.0}},
		"502": {status(502), 2, map[string]any{"status": 502.0}},
		"504": {status(504), 2, map[string]any{"status": 504.0}},
		"redirect": {func(w http.ResponseWriter, _ asked) {
			w.Header().Set("Location", "/other")
			w.WriteHeader(http.StatusFound)
		}, 1, map[string]any{"status": 302.0}},
		"not JSON":   {reply(`<Response/>`), 1, map[string]any{"status": 200.0, "code": "invalid_actions"}},
		"bad action": {reply(`[{"action":"answer"},{"action":"say"}]`), 1, map[string]any{"code": "invalid_actions", "index": 1.0, "action": "say", "field": "text"}},
		"too large":  {reply(`[{"action":"say","text":"` + strings.Repeat("x", 70_000) + `"}]`), 1, map[string]any{"status": 200.0}},
		"timeout":    {func(http.ResponseWriter, asked) { <-stall }, 2, nil},
		"cut in pieces": {func(w http.ResponseWriter, _ asked) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("["))
		}, 2, map[string]any{"status": 200.0}},
	} {
		s.answers("/answer", tt.reply)
		before := len(s.requests())
		s.callIn()
		call := s.end()
		require.Equal(t, []any{StatusFailed, ReasonAnswerURLFailed, SourcePlatform, 503}, []any{call.Status, call.Reason, call.HangupSource, call.SIPCode}, name)
		require.Equal(t, []string{"call.ringing", "call.error", "call.failed"}, s.kinds(call.ID), name)
		data := s.data(call.ID, "call.error")
		require.Equal(t, s.app.AnswerURL, data["url"], name)
		require.EqualValues(t, tt.attempts, data["attempts"], name)
		require.NotEmpty(t, data["message"], name)
		for key, want := range tt.data {
			require.Equal(t, want, data[key], "%s: %s", name, key)
		}
		asks := s.requests()[before:]
		require.Len(t, asks, tt.attempts, name)
		for i, q := range asks {
			require.Equal(t, i+1, q.Attempt, name)
			require.Equal(t, asks[0].RequestID, q.RequestID, name)
		}
	}
}

func TestAnswerURLThatCannotBeReached(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.app.AnswerURL = "http://127.0.0.1:1/closed"
	require.NoError(t, s.store.UpdateApplication(t.Context(), s.app))
	s.create()
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonAnswerURLFailed}, []any{call.Status, call.Reason}, "an answered call is hung up")
	require.EqualValues(t, 2, s.data(call.ID, "call.error")["attempts"])
}

func TestSecondAttemptAndFallback(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", status(503), reply(`[{"action":"answer"}]`))
		s.callIn()
		call := s.end()
		require.Equal(t, StatusCompleted, call.Status)
		require.Equal(t, []string{"call.ringing", "call.answered", "call.completed"}, s.kinds(call.ID))

		s.app.FallbackURL = s.server.URL + "/fallback"
		require.NoError(t, store.UpdateApplication(t.Context(), s.app))
		s.answers("/answer", status(400))
		s.answers("/fallback", reply(`[{"action":"answer"}]`))
		s.callIn()
		call = s.end()
		require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason})
		require.Equal(t, []string{"call.ringing", "call.error", "call.answered", "call.completed"}, s.kinds(call.ID))

		s.answers("/fallback", status(500))
		s.callIn()
		call = s.end()
		require.Equal(t, ReasonAnswerURLFailed, call.Reason)
		require.Equal(t, []string{"call.ringing", "call.error", "call.error", "call.failed"}, s.kinds(call.ID))
	})
}

func TestNothingToDo(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	for name, answer := range map[string]func(http.ResponseWriter, asked){"empty list": reply(`[]`), "204": status(204), "empty": reply("")} {
		s.answers("/answer", answer)
		s.callIn()
		call := s.end()
		require.Equal(t, []any{StatusRejected, SourceActions, 480}, []any{call.Status, call.HangupSource, call.SIPCode}, name)
		s.create()
		call = s.end()
		require.Equal(t, []any{StatusCompleted, ReasonCompleted, SourceActions}, []any{call.Status, call.Reason, call.HangupSource}, name)
	}
}

func TestLoopGuard(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"redirect","url":"/again"}]`))
	s.answers("/again", reply(`[{"action":"redirect","url":"answer"}]`))
	s.callIn()
	call := s.end()
	require.Equal(t, ReasonAnswerURLFailed, call.Reason)
	require.Len(t, s.requests(), maxIdleFetches)
	require.Contains(t, s.data(call.ID, "call.error")["message"], "20 times without media")
	require.Equal(t, maxIdleFetches+1, call.Cursor.Request)

	// Media in between starts the count anew.
	n := 0
	s.answers("/answer", func(w http.ResponseWriter, _ asked) {
		n++
		if n > 2*maxIdleFetches {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = fmt.Fprint(w, `[{"action":"pause","seconds":0.1},{"action":"redirect","url":"/answer"}]`)
	})
	s.callIn()
	call = s.end()
	require.Equal(t, ReasonCompleted, call.Reason)
}

func TestResolve(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]string{
		"next": "https://a.example/flow/next", "/next?x=1": "https://a.example/next?x=1", "https://b.example/": "https://b.example/", "?x": "https://a.example/flow/start?x",
	} {
		got, err := resolve("https://a.example/flow/start", ref)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
