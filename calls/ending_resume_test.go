package calls

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// Why a call is ended is stored, with all that waited to be told, before the switch is told to end it.
func TestWhyACallEndsIsStoredFirst(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"pause","seconds":1},{"action":"notify","payload":{"a":1}},{"action":"hangup","reason":"busy"}]`))
	s.sw.script("kill", func(command) error { return nil }) // the controller dies in this moment
	created := s.create()
	s.sw.await("kill")
	s.manager.die()
	stored, err := s.store.CallByID(t.Context(), created.ID)
	require.NoError(t, err)
	require.True(t, stored.Live())
	require.Equal(t, 1, count(s.allKinds(created.ID), "call.notify"))
	wish := wishOf(&stored.Cursor)
	require.Equal(t, []any{"busy", SourceActions, causeBusy}, []any{wish.reason, wish.source, wish.cause})
}

// A call whose originate could not be sent is dialled when the node is back.
func TestOriginateIsSentWhenTheNodeIsBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"dtmf","digits":"1"}]`))
	s.sw.script("originate", func(command) error { return esl.ErrDown })
	created := s.create()
	s.sw.await("originate")
	s.sw.handler.HandleDown(errors.New("reset"))
	s.sw.script("originate", nil)
	s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core"})
	call := s.end()
	require.Equal(t, []any{created.ID, StatusCompleted, ReasonCompleted}, []any{call.ID, call.Status, call.Reason})

	s.sw.script("originate", func(command) error { return esl.ErrDown })
	created = s.create()
	s.sw.await("originate")
	_, err := s.manager.Cancel(t.Context(), s.customer.ID, created.ID, nil)
	require.NoError(t, err)
	call = s.end()
	require.Equal(t, []any{created.ID, StatusCanceled}, []any{call.ID, call.Status})
	require.WithinDuration(t, time.Now(), *call.EndedAt, 10*time.Second)
}

// A call that waits for its node to be dialled is dialled by the next controller when the first dies meanwhile.
func TestCallThatWaitsForItsNodeOutlivesItsController(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := heldScene(t, store)
		s.answers("/answer", reply(`[{"action":"dtmf","digits":"1"}]`))
		s.sw.script("originate", func(command) error { return esl.ErrDown })
		created := s.create()
		s.sw.await("originate")
		s.sw.handler.HandleDown(errors.New("reset"))
		require.Eventually(t, func() bool { return slices.Equal(s.commandsOf(created.ID), []string{models.CommandDial}) }, patience, time.Millisecond)
		s.manager.die()
		s.sw.script("originate", nil)
		s.nextController()
		call := s.end()
		require.Equal(t, []any{created.ID, StatusCompleted, ReasonCompleted}, []any{call.ID, call.Status, call.Reason})
		require.Len(t, only(s.sw.log(), "originate"), 2, "the first was never sent")
	})
}

// The connection ends while the command to dial is on the way. The switch has it, and the call goes on when the node is back.
func TestOriginateWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"dtmf","digits":"1"}]`))
	s.sw.script("originate", func(command) error { return errors.Join(esl.ErrDown, esl.ErrNoReply) })
	created := s.create()
	dialed := s.sw.await("originate")
	s.sw.handler.HandleDown(errors.New("reset"))
	s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core", Channels: []esl.Channel{row(dialed.channel, "outbound", "")}})
	s.sw.answer(dialed.channel)
	s.sw.event("CHANNEL_PARK", dialed.channel)
	call := s.end()
	require.Equal(t, []any{created.ID, StatusCompleted, ReasonCompleted}, []any{call.ID, call.Status, call.Reason})
	dials := slices.DeleteFunc(s.sw.log(), func(line string) bool { return !strings.HasPrefix(line, "originate") })
	require.Len(t, dials, 1, "nobody is dialled twice")
}

// What live control adds while a round runs leaves the stored place at that round: whoever takes over runs each of them once.
func TestAppendKeepsTheStoredRound(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.sw.script("execute speak", func(command) error { return nil })
	s.app.EventKinds = []string{"*"}
	require.NoError(t, s.store.UpdateApplication(t.Context(), s.app))
	s.answers("/answer", reply(`[{"action":"say","text":"Twice","loop":2},{"action":"dtmf","digits":"1"}]`))
	created := s.create()
	for round := range 2 {
		c := s.sw.await("execute speak")
		s.direct(created.ID, ModeAppend, `[{"action":"dtmf","digits":"2"}]`)
		s.manager.callSession(created.ID).box.put(message{event: keyEvent(t, c.channel)})
		require.Eventually(t, func() bool {
			stored, err := s.store.CallByID(t.Context(), created.ID)
			return err == nil && stored.Cursor.EventUUID == c.id && strings.Count(string(stored.Cursor.List), `"2"`) == round+1
		}, patience, 5*time.Millisecond)
		stored, err := s.store.CallByID(t.Context(), created.ID)
		require.NoError(t, err)
		require.Equal(t, round, stored.Cursor.Step)
		s.sw.complete(c)
	}
	s.end()
}

// keyEvent is a key that the party has pressed.
func keyEvent(t *testing.T, channel string) *esl.Event {
	t.Helper()
	ev, err := esl.ParseEvent(`{"Event-Name":"DTMF","Unique-ID":"` + channel + `","DTMF-Digit":"5"}`)
	require.NoError(t, err)
	return ev
}

// The time of a playback is over before it has begun: the switch drops it with the break, and never tells of its end.
func TestPlaybackThatTheBreakDropped(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"play","tone":"busy_us","max_seconds":1,"result_url":"/result"}]`))
	s.answers("/result", reply(`[]`))
	s.sw.script("execute playback", func(command) error { return nil })
	s.create()
	require.Equal(t, ReasonCompleted, s.end().Reason)
	log := s.sw.log()
	broken := slices.Index(log, "break")
	require.Positive(t, broken, log)
	require.True(t, strings.HasPrefix(log[broken+1], "execute sleep 1"), log)
}

// A controller dies when it has told the switch to record a call, and the next tells it again: that the channel refuses is no fault of ours.
func TestRecordCallBegunTwice(t *testing.T) {
	t.Parallel()
	s := heldScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"record_call"},{"action":"say","text":"Hello"}]`))
	s.sw.script("record_start", func(command) error { return errors.Join(esl.ErrDown, esl.ErrNoReply) })
	s.create()
	s.sw.await("record_start")
	s.manager.die()
	s.sw.script("record_start", func(command) error { return &esl.CommandError{Reply: "-ERR Cannot record session!"} })
	s.nextController()
	require.Equal(t, []any{StatusCompleted, ReasonCompleted}, func(call models.Call) []any { return []any{call.Status, call.Reason} }(s.end()))
	require.Len(t, only(s.sw.log(), "record_start"), 2)
}
