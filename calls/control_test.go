package calls

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/models"
	"tandem/models/modelstest"
)

// list parses a list of actions.
func list(t testing.TB, raw string) []actions.Action {
	t.Helper()
	reply, err := actions.Parse([]byte(raw))
	require.NoError(t, err)
	return reply.Actions
}

// hold makes an application of the switch run until it is broken off.
func (f *fakeSwitch) hold(app string) {
	var mu sync.Mutex
	running := map[string]command{}
	f.script("execute "+app, func(c command) error {
		mu.Lock()
		defer mu.Unlock()
		running[c.channel] = c
		return nil
	})
	f.script("break", func(c command) error {
		mu.Lock()
		held, ok := running[c.channel]
		delete(running, c.channel)
		mu.Unlock()
		if ok {
			f.complete(held)
		}
		return nil
	})
}

func (s *scene) direct(callID, mode, raw string) *models.Call {
	s.t.Helper()
	call, err := s.manager.Direct(s.t.Context(), s.customer.ID, callID, DirectRequest{Actions: list(s.t, raw), Mode: mode})
	require.NoError(s.t, err)
	return call
}

func TestDirectReplacesWhatRuns(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.sw.hold("speak")
		s.answers("/answer", reply(`[{"action":"say","id":"long","text":"First","result_url":"/asked"},{"action":"dtmf","digits":"1"}]`))
		created := s.create()
		s.sw.await("execute speak")
		require.Equal(t, StatusInProgress, s.direct(created.ID, ModeReplace, `[{"action":"dtmf","digits":"9"}]`).Status)
		call := s.end()
		require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason})
		require.Equal(t, []string{"execute speak flite|slt|First", "break", "execute send_dtmf 9@100", "kill NORMAL_CLEARING"}, s.sw.log()[1:])
		require.Len(t, s.requests(), 1, "nobody is asked what follows an action that was interrupted")
		require.Equal(t, []string{"call.created", "call.ringing", "call.answered", "call.action_completed", "call.action_completed", "call.completed"}, s.allKinds(call.ID))
		done := s.data(call.ID, "call.action_completed")
		require.Equal(t, []any{"say", "long", 0.0}, []any{done["action"], done["id"], done["index"]})
		require.Equal(t, "interrupted", done["result"].(map[string]any)["outcome"])
	})
}

func TestDirectAppends(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.sw.hold("speak")
	s.answers("/answer", reply(`[{"action":"say","text":"First"},{"action":"dtmf","digits":"1"}]`))
	created := s.create()
	spoken := s.sw.await("execute speak")
	s.direct(created.ID, ModeAppend, `[{"action":"dtmf","digits":"2"}]`)
	s.direct(created.ID, ModeAppend, `[{"action":"dtmf","digits":"3"}]`)
	s.sw.complete(spoken)
	s.end()
	require.Equal(t, []string{"execute speak flite|slt|First", "execute send_dtmf 1@100", "execute send_dtmf 2@100", "execute send_dtmf 3@100", "kill NORMAL_CLEARING"}, s.sw.log()[1:])
}

func TestDirectBeforeTheFirstList(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	release := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	s.answers("/answer", func(w http.ResponseWriter, q asked) {
		<-release
		reply(`[{"action":"dtmf","digits":"1"}]`)(w, q)
	})
	created := s.create()
	<-s.askedc
	s.direct(created.ID, ModeAppend, `[{"action":"dtmf","digits":"2"}]`)
	release <- struct{}{}
	s.end()
	require.Equal(t, []string{"execute send_dtmf 1@100", "execute send_dtmf 2@100", "kill NORMAL_CLEARING"}, s.sw.log()[1:], "what was appended follows the answer")

	s.sw.hold("speak")
	created = s.create()
	<-s.askedc
	s.direct(created.ID, ModeReplace, `[{"action":"say","text":"Instead"}]`)
	spoken := s.sw.await("execute speak")
	s.direct(created.ID, ModeAppend, `[{"action":"dtmf","digits":"9"}]`)
	s.sw.complete(spoken)
	call := s.end()
	require.Equal(t, created.ID, call.ID)
	log := s.sw.log()
	require.Equal(t, []string{"execute speak flite|slt|Instead", "execute send_dtmf 9@100", "kill NORMAL_CLEARING"}, log[len(log)-3:], "a replacement does not wait for the answer")
}

func TestDirectWhileItRings(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	var channel string
	s.sw.script("originate", func(c command) error {
		channel = c.channel
		s.sw.event("CHANNEL_PROGRESS", c.channel)
		return nil
	})
	created := s.create()
	s.sw.await("originate")
	s.direct(created.ID, "", `[{"action":"dtmf","digits":"5"}]`)
	s.sw.answer(channel)
	s.sw.event("CHANNEL_PARK", channel)
	s.end()
	require.Equal(t, []string{"execute send_dtmf 5@100", "kill NORMAL_CLEARING"}, s.sw.log()[1:])
	require.Empty(t, s.requests(), "the answer_url is not asked")
}

// What was dropped by the break before it began never completes: the marker behind it tells.
func TestDirectReplacesWhatHasNotBegun(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.sw.script("execute speak", func(command) error { return nil })
	s.answers("/answer", reply(`[{"action":"say","text":"First"}]`))
	created := s.create()
	s.sw.await("execute speak")
	s.direct(created.ID, ModeReplace, `[{"action":"dtmf","digits":"9"}]`)
	s.end()
	require.Equal(t, []string{"execute speak flite|slt|First", "break", "execute sleep 1", "execute send_dtmf 9@100", "kill NORMAL_CLEARING"}, s.sw.log()[1:])
}

// What neither a break nor a marker ends is torn out with a park.
func TestDirectReplacesWhatDoesNotStop(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	var spoken command
	s.sw.script("execute speak", func(c command) error { spoken = c; return nil })
	s.sw.script("execute sleep", func(command) error { return nil })
	s.sw.script("park", func(command) error { s.sw.complete(spoken); return nil })
	s.answers("/answer", reply(`[{"action":"say","text":"First"}]`))
	created := s.create()
	s.sw.await("execute speak")
	s.direct(created.ID, ModeReplace, `[{"action":"dtmf","digits":"9"}]`)
	s.end()
	require.Equal(t, []string{"execute speak flite|slt|First", "break", "execute sleep 1", "setvar max_session_transfers=1000000", "park", "execute send_dtmf 9@100", "kill NORMAL_CLEARING"}, s.sw.log()[1:])
}

func TestDirectRefuses(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.sw.hold("speak")
		s.answers("/answer", reply(`[{"action":"say","text":"First"}]`))
		created := s.create()
		s.sw.await("execute speak")
		one := list(t, `[{"action":"dtmf","digits":"1"}]`)
		refused := func(customer, call string, req DirectRequest) error {
			_, err := s.manager.Direct(t.Context(), customer, call, req)
			require.Error(t, err)
			return err
		}
		var field *RequestError
		require.ErrorAs(t, refused(s.customer.ID, created.ID, DirectRequest{}), &field)
		require.Equal(t, "actions", field.Field)
		require.ErrorAs(t, refused(s.customer.ID, created.ID, DirectRequest{Actions: one, Mode: "prepend"}), &field)
		require.Equal(t, "mode", field.Field)
		other := modelstest.Customer(t, store, 0)
		require.ErrorIs(t, refused(other.ID, created.ID, DirectRequest{Actions: one}), models.ErrNotFound)
		require.ErrorIs(t, refused(s.customer.ID, "call_none", DirectRequest{Actions: one}), models.ErrNotFound)
		hundred := make([]actions.Action, 100)
		for i := range hundred {
			hundred[i] = one[0]
		}
		for range 4 {
			_, err := s.manager.Direct(t.Context(), s.customer.ID, created.ID, DirectRequest{Actions: hundred, Mode: ModeAppend})
			require.NoError(t, err)
		}
		live := s.manager.callSession(created.ID)
		require.Eventually(t, func() bool { return live.pending.Load() == 401 }, patience, time.Millisecond)
		require.ErrorAs(t, refused(s.customer.ID, created.ID, DirectRequest{Actions: hundred, Mode: ModeAppend}), &field)
		require.Equal(t, "actions", field.Field)
		_, err := s.manager.Cancel(t.Context(), s.customer.ID, created.ID, nil)
		require.NoError(t, err)
		s.end()
		require.ErrorIs(t, refused(s.customer.ID, created.ID, DirectRequest{Actions: one}), ErrCallNotActive)
	})
}

func TestQueuedCallIsStarted(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", reply(`[{"action":"pause"}]`))
		created := s.create(func(r *CreateRequest) { r.Queued = true })
		require.Equal(t, []any{StatusQueued, int64(0), 0}, []any{created.Status, created.HoldMicros, created.GrantedSeconds})
		require.Nil(t, created.NodeID)
		require.Empty(t, s.sw.log())
		customer, err := store.Customer(t.Context(), s.customer.ID)
		require.NoError(t, err)
		require.Zero(t, customer.HeldMicros)

		started, err := s.manager.StartCall(t.Context(), s.customer.ID, created.ID, nil)
		require.NoError(t, err)
		require.Equal(t, []any{created.ID, StatusDialing, int64(60 * outboundPrice), 3600}, []any{started.ID, started.Status, started.HoldMicros, started.GrantedSeconds})
		_, err = s.manager.StartCall(t.Context(), s.customer.ID, created.ID, nil)
		require.Error(t, err)
		call := s.end()
		require.Equal(t, StatusCompleted, call.Status)
		require.EqualValues(t, outboundPrice, call.CostMicros)
		require.Equal(t, []string{"call.created", "call.dialing", "call.ringing", "call.answered", "call.completed"}, s.kinds(call.ID))
		_, err = s.manager.StartCall(t.Context(), s.customer.ID, created.ID, nil)
		require.ErrorIs(t, err, ErrCallNotActive)
	})
}

func TestQueuedCallIsStartedOnce(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", reply(`[{"action":"pause"}]`))
		created := s.create(func(r *CreateRequest) { r.Queued = true })
		var wg sync.WaitGroup
		results := make(chan error, 10)
		for range 10 {
			wg.Go(func() {
				_, err := s.manager.StartCall(t.Context(), s.customer.ID, created.ID, nil)
				results <- err
			})
		}
		wg.Wait()
		close(results)
		started := 0
		for err := range results {
			if err == nil {
				started++
			}
		}
		require.Equal(t, 1, started)
		s.end()
		require.Eventually(t, func() bool {
			s.manager.mu.Lock()
			defer s.manager.mu.Unlock()
			return len(s.manager.byCall) == 0
		}, patience, time.Millisecond, "nobody who came too late is left behind")
	})
}

func TestQueuedCallIsCanceled(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		created := s.create(func(r *CreateRequest) { r.Queued = true })
		canceled, err := s.manager.Cancel(t.Context(), s.customer.ID, created.ID, nil)
		require.NoError(t, err)
		require.Equal(t, StatusCanceled, canceled.Status)
		call := s.end()
		require.Equal(t, []any{StatusCanceled, ReasonCanceled, SourceAPI, int64(0)}, []any{call.Status, call.Reason, call.HangupSource, call.CostMicros})
		require.Equal(t, []string{"call.created", "call.failed"}, s.kinds(call.ID))
		_, err = s.manager.Cancel(t.Context(), s.customer.ID, created.ID, nil)
		require.ErrorIs(t, err, ErrCallNotActive)
		_, err = s.manager.StartCall(t.Context(), s.customer.ID, created.ID, nil)
		require.ErrorIs(t, err, ErrCallNotActive)
	})
}

func TestStartRefusesAndTheCallWaitsOn(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	created := s.create(func(r *CreateRequest) { r.Queued = true })
	require.NoError(t, s.store.DeleteTrunk(t.Context(), s.customer.ID, s.trunk.ID))
	_, err := s.manager.StartCall(t.Context(), s.customer.ID, created.ID, nil)
	require.ErrorIs(t, err, ErrNoActiveTrunk)
	s.trunk = modelstest.OutboundTrunk(t, s.store, s.customer)
	_, err = s.store.Credit(t.Context(), s.customer.ID, "drain", "adjust", -startBalance, "")
	require.NoError(t, err)
	_, err = s.manager.StartCall(t.Context(), s.customer.ID, created.ID, nil)
	require.ErrorIs(t, err, models.ErrInsufficientBalance)
	call, err := s.store.CallByID(t.Context(), created.ID)
	require.NoError(t, err)
	require.Equal(t, StatusQueued, call.Status)
	require.Nil(t, s.manager.callSession(created.ID))
}

func TestRetry(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.sw.hold("speak")
		s.answers("/answer", reply(`[{"action":"say","text":"First"}]`))
		first := s.create(func(r *CreateRequest) { r.Timeout = 42 })
		s.sw.await("execute speak")
		_, err := s.manager.Retry(t.Context(), s.customer.ID, first.ID, nil)
		require.ErrorIs(t, err, ErrCallActive)
		_, err = s.manager.Cancel(t.Context(), s.customer.ID, first.ID, nil)
		require.NoError(t, err)
		s.end()
		s.answers("/answer", reply(`[]`))
		again, err := s.manager.Retry(t.Context(), s.customer.ID, first.ID, nil)
		require.NoError(t, err)
		require.NotEqual(t, first.ID, again.ID)
		require.Equal(t, []any{first.ID, first.To, first.From, first.ApplicationID, 42}, []any{*again.RetryOf, again.To, again.From, again.ApplicationID, again.TimeoutSeconds})
		require.Equal(t, first.Metadata, again.Metadata)
		s.end()
		s.callIn()
		inbound := s.end()
		var refused *RequestError
		_, err = s.manager.Retry(t.Context(), s.customer.ID, inbound.ID, nil)
		require.ErrorAs(t, err, &refused)
	})
}

// TestStartAndCancelAtOnce: whichever comes first, the cancel holds, a start is refused for nothing else, and no money stays held.
func TestStartAndCancelAtOnce(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.sw.hold("playback")
		s.answers("/answer", reply(`[{"action":"pause","seconds":60}]`))
		for range 30 {
			created := s.create(func(r *CreateRequest) { r.Queued = true })
			var both sync.WaitGroup
			var started, canceled error
			both.Go(func() { _, started = s.manager.StartCall(t.Context(), s.customer.ID, created.ID, nil) })
			both.Go(func() { _, canceled = s.manager.Cancel(t.Context(), s.customer.ID, created.ID, nil) })
			both.Wait()
			if started != nil {
				require.ErrorIs(t, started, ErrCallNotActive)
			}
			require.NoError(t, canceled)
			call := s.end()
			require.Equal(t, created.ID, call.ID)
			require.Equal(t, SourceAPI, call.HangupSource)
		}
	})
}
