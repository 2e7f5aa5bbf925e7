package calls

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/models"
	"tandem/models/modelstest"
)

// stored is a list as an application's row holds it.
func stored(t testing.TB, raw string) json.RawMessage {
	t.Helper()
	out, err := actions.Encode(list(t, raw))
	require.NoError(t, err)
	return out
}

func (s *scene) setApplication(edit func(app *models.Application)) {
	s.t.Helper()
	edit(s.app)
	require.NoError(s.t, s.store.UpdateApplication(s.t.Context(), s.app))
}

func TestFallbackActionsAnswerForADeadServer(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", status(500))
		s.answers("/backup", reply(`[{"action":"fly"}]`))
		s.setApplication(func(app *models.Application) {
			app.FallbackURL = s.server.URL + "/backup"
			app.FallbackActions = stored(t, `[{"action":"say","text":"A human will call you."},{"action":"gather","num_digits":1}]`)
		})
		s.callIn()
		call := s.end()
		require.Equal(t, []any{StatusCompleted, ReasonAnswerURLFailed, SourcePlatform}, []any{call.Status, call.Reason, call.HangupSource},
			"the gather asks the dead server again: the fallback is not run twice in a row")
		require.Equal(t, []string{"call.ringing", "call.error", "call.error", "call.answered", "call.error", "call.error", "call.completed"}, s.kinds(call.ID))
		var nexts []any
		for _, data := range s.dataOf(call.ID, "call.error") {
			nexts = append(nexts, data["next"])
		}
		require.Equal(t, []any{"fallback_url", "fallback_actions", "fallback_url", "end"}, nexts)
		require.Contains(t, s.sw.log(), "execute speak flite|slt|A human will call you.")
	})
}

func TestFallbackActionsServeAgainAfterTheServerWasBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.setApplication(func(app *models.Application) {
		app.FallbackActions = stored(t, `[{"action":"dtmf","digits":"1"},{"action":"redirect","url":"/alive"}]`)
	})
	s.answers("/answer", status(500))
	s.answers("/alive", reply(`[{"action":"dtmf","digits":"2"},{"action":"redirect","url":"/answer"}]`), reply(`[{"action":"dtmf","digits":"3"}]`))
	s.create()
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason})
	require.Equal(t, []string{"execute send_dtmf 1@100", "execute send_dtmf 2@100", "execute send_dtmf 1@100", "execute send_dtmf 3@100", "kill NORMAL_CLEARING"}, s.sw.log()[1:])
}

func TestFallbackActionsWithoutAnAnswerURL(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.setApplication(func(app *models.Application) {
		app.AnswerURL = ""
		app.FallbackActions = stored(t, `[{"action":"dtmf","digits":"1"}]`)
	})
	s.create()
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason})
	require.Equal(t, "fallback_actions", s.data(call.ID, "call.error")["next"])
}

// An answered caller hears the wait actions while the server is slow, and the reply cuts them short.
func TestWaitActionsWhileTheServerIsSlow(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store, func(c *Config) { c.WaitAfter, c.RequestTimeout = time.Millisecond, time.Minute })
		s.setApplication(func(app *models.Application) {
			app.WaitActions = stored(t, `[{"action":"dtmf","digits":"0"},{"action":"say","text":"One moment."}]`)
		})
		s.sw.hold("speak")
		release := make(chan struct{})
		t.Cleanup(sync.OnceFunc(func() { close(release) }))
		s.answers("/answer", func(w http.ResponseWriter, q asked) {
			<-release
			reply(`[{"action":"dtmf","digits":"1"}]`)(w, q)
		})
		s.create()
		s.sw.await("execute speak")
		release <- struct{}{}
		call := s.end()
		require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason})
		require.Equal(t, []string{"execute send_dtmf 0@100", "execute speak flite|slt|One moment.", "break", "execute send_dtmf 1@100", "kill NORMAL_CLEARING"}, s.sw.log()[1:])
		require.Equal(t, []string{"call.created", "call.ringing", "call.answered", "call.action_completed", "call.completed"}, s.allKinds(call.ID), "wait actions are not the call's list")
	})
}

func TestWaitActionsAreNotForACallerWhoHearsRinging(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t), func(c *Config) {
		c.WaitAfter = time.Millisecond
		c.RingAfter = 10 * time.Millisecond
		c.RequestTimeout = time.Minute
	})
	s.setApplication(func(app *models.Application) { app.WaitActions = stored(t, `[{"action":"say","text":"One moment."}]`) })
	release := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	s.answers("/answer", func(w http.ResponseWriter, q asked) {
		<-release
		reply(`[{"action":"reject","reason":"busy"}]`)(w, q)
	})
	s.callIn()
	s.sw.await("execute ring_ready")
	release <- struct{}{}
	s.end()
	require.Equal(t, []string{"setvar playback_terminators=none", "execute ring_ready", "kill USER_BUSY"}, s.sw.log())
}

func TestHangupWhileWaitActionsRun(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t), func(c *Config) { c.WaitAfter, c.RequestTimeout = time.Millisecond, time.Minute })
	s.setApplication(func(app *models.Application) { app.WaitActions = stored(t, `[{"action":"say","text":"One moment."}]`) })
	s.sw.hold("speak")
	stall := make(chan struct{})
	t.Cleanup(func() { close(stall) })
	s.answers("/answer", func(http.ResponseWriter, asked) { <-stall })
	s.create()
	spoken := s.sw.await("execute speak")
	s.sw.hangup(spoken.channel, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonCalleeHangup}, []any{call.Status, call.Reason})
}

// A list that cannot be heard must not spin.
func TestWaitActionsThatFailAtOnceDoNotSpin(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t), func(c *Config) { c.WaitAfter, c.RequestTimeout = time.Millisecond, time.Minute })
	s.setApplication(func(app *models.Application) { app.WaitActions = stored(t, `[{"action":"say","text":"One moment."}]`) })
	stall := make(chan struct{})
	t.Cleanup(func() { close(stall) })
	s.answers("/answer", func(http.ResponseWriter, asked) { <-stall })
	created := s.create()
	s.sw.await("execute speak")
	_, err := s.manager.Cancel(t.Context(), s.customer.ID, created.ID, nil)
	require.NoError(t, err)
	s.end()
	spoken := 0
	for _, line := range s.sw.log() {
		if line == "execute speak flite|slt|One moment." {
			spoken++
		}
	}
	require.LessOrEqual(t, spoken, 2)
}
