package calls

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// media is a server of sound files that counts what it is asked for.
type media struct {
	*httptest.Server
	mu    sync.Mutex
	asked map[string][]string // by path: the If-None-Match of each request
}

func newMedia(t *testing.T) *media {
	t.Helper()
	m := &media{asked: map[string][]string{}}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.asked[r.URL.Path] = append(m.asked[r.URL.Path], r.Header.Get("If-None-Match"))
		m.mu.Unlock()
		switch r.URL.Path {
		case "/fresh.wav":
			w.Header().Set("Cache-Control", "max-age=600")
		case "/tagged.wav":
			w.Header().Set("ETag", `"one"`)
			if r.Header.Get("If-None-Match") == `"one"` {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		case "/secret.wav":
			w.Header().Set("Cache-Control", "no-store")
		case "/song.mp3":
			_, _ = w.Write([]byte("\xff\xfb\x90\x00 no node of these can play this"))
			return
		case "/page.html":
			_, _ = w.Write([]byte("<html>"))
			return
		case "/gone.wav":
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(loudWAV())
	}))
	t.Cleanup(m.Close)
	return m
}

// requests returns what was asked of a path, and forgets it.
func (m *media) requests(path string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := m.asked[path]
	delete(m.asked, path)
	return asked
}

func TestFreeSWITCHPlayFiles(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		m := newMedia(t)
		call := l.calledIn(t, `[{"action":"record_call"},
			{"action":"play","url":["`+m.URL+`/fresh.wav","`+m.URL+`/tagged.wav","`+m.URL+`/secret.wav"]},
			{"action":"play","url":"`+m.URL+`/fresh.wav","loop":3},
			{"action":"play","url":"`+m.URL+`/tagged.wav"},
			{"action":"play","url":"`+m.URL+`/secret.wav"}]`)
		require.Equal(t, []any{"played", "played", "played", "played"}, l.outcomes(call.ID, "play"))
		require.Equal(t, []string{""}, m.requests("/fresh.wav"), "it serves again without a question")
		require.Equal(t, []string{"", `"one"`}, m.requests("/tagged.wav"), "it is asked about")
		require.Equal(t, []string{"", ""}, m.requests("/secret.wav"), "it must not be kept")
		results := l.actionResults(call.ID, "play")
		if l.sim == nil {
			// A busy machine makes it longer, never shorter.
			require.Greater(t, results[0]["played_ms"], 2800.0, "three files of a second")
			require.Greater(t, results[1]["played_ms"], 2800.0, "one, three times")
			row := l.recorded(t, call.ID)
			require.Greater(t, loudness(t, row.Path), 1000.0, "they are heard")
			require.Greater(t, row.Seconds, 7.5)
		}
		// The next call finds what the first has left.
		call = l.calledIn(t, `[{"action":"play","url":["`+m.URL+`/fresh.wav","`+m.URL+`/tagged.wav"]}]`)
		require.Equal(t, []any{"played"}, l.outcomes(call.ID, "play"))
		require.Empty(t, m.requests("/fresh.wav"))
		require.Equal(t, []string{`"one"`}, m.requests("/tagged.wav"))
	})
}

func TestFreeSWITCHPlayTone(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		call := l.calledIn(t, `[{"action":"record_call"},{"action":"play","tone":"dial_uk","loop":2},{"action":"play","tone":"ringback_us","loop":0,"max_seconds":1}]`)
		require.Equal(t, []any{"played", "max_seconds"}, l.outcomes(call.ID, "play"))
		if l.sim == nil {
			require.Greater(t, l.actionResults(call.ID, "play")[0]["played_ms"], 1800.0)
			require.Greater(t, loudness(t, l.recorded(t, call.ID).Path), 500.0)
		}
	})
}

// TestFreeSWITCHPlayRefusals plays what cannot be played: each is told, and the list goes on.
func TestFreeSWITCHPlayRefusals(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		m := newMedia(t)
		call := l.calledIn(t, `[{"action":"play","url":"`+m.URL+`/song.mp3"},{"action":"play","url":["`+m.URL+`/fresh.wav","`+m.URL+`/page.html"]},
			{"action":"play","url":"`+m.URL+`/gone.wav"},{"action":"gather","timeout":1,"result_url":"/result","prompt":[{"action":"play","url":"`+m.URL+`/song.mp3"}]},
			{"action":"record","format":"mp3"},{"action":"record_call","format":"mp3"},{"action":"play","url":"`+m.URL+`/fresh.wav"}]`)
		require.Equal(t, ReasonCompleted, call.Reason)
		require.Equal(t, []any{"failed", "failed", "failed", "played"}, l.outcomes(call.ID, "play"))
		var told []any
		for _, data := range l.dataOf(call.ID, "call.error") {
			told = append(told, []any{data["code"], data["action"], data["field"], data["index"]})
		}
		require.Equal(t, []any{
			[]any{"not_supported_by_node", "play", "url", 0.0},
			[]any{"action_failed", "play", "url", 1.0},
			[]any{"action_failed", "play", "url", 2.0},
			[]any{"not_supported_by_node", "gather", "prompt", 3.0},
			[]any{"not_supported_by_node", "record", "format", 4.0},
			[]any{"not_supported_by_node", "record_call", "format", 5.0},
		}, told)
		require.Contains(t, l.data(call.ID, "call.error")["message"], "mod_shout")
	})
}
