package calls

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// An application that could not be sent is sent when the node is back. The marker that the return queued completes before it and is
// no word on it.
func TestReconnectBeforeTheApplicationWasSent(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"say","text":"Hello"},{"action":"dtmf","digits":"1"}]`))
	var tries atomic.Int32
	finished := make(chan struct{})
	s.sw.script("execute speak", func(command) error {
		if tries.Add(1) > 1 {
			return nil
		}
		s.sw.setDown(true)
		s.sw.handler.HandleDown(errors.New("reset"))
		return esl.ErrDown
	})
	s.sw.script("execute send_dtmf", func(c command) error {
		select {
		case <-finished:
		default:
			t.Error("the list went on before the prompt was over")
		}
		s.sw.complete(c)
		return nil
	})
	s.sw.script("execute sleep", func(command) error {
		t.Error("a marker behind nothing makes the next controller believe that the prompt was heard")
		return nil
	})
	s.create()
	c := s.sw.await("execute speak")
	s.sw.setDown(false)
	s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core", Channels: []esl.Channel{row(c.channel, "outbound", "park")}})
	again := s.sw.await("execute speak")
	require.Equal(t, c.id, again.id)
	session := s.manager.channelSession(c.channel)
	require.Eventually(t, session.box.empty, patience, time.Millisecond, "what came so far was looked at")
	close(finished)
	s.sw.complete(again)
	require.Equal(t, ReasonCompleted, s.end().Reason)
}

// A replacement that comes while the call is being answered breaks the answer off, if its turn has not come: the new list answers.
func TestReplaceWhileTheCallIsBeingAnswered(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"say","text":"Hello"}]`))
	var tries atomic.Int32
	s.sw.script("execute answer", func(c command) error {
		if tries.Add(1) > 1 {
			s.sw.answer(c.channel)
			s.sw.complete(c)
		}
		return nil // dropped by the break
	})
	channel := s.callIn()
	s.sw.await("execute answer")
	call, err := s.store.CallByChannel(t.Context(), channel)
	require.NoError(t, err)
	s.direct(call.ID, ModeReplace, `[{"action":"say","text":"Instead"}]`)
	ended := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{ended.Status, ended.Reason})
}

// While a manager hangs up its calls, callers are refused, not left to listen to nothing.
func TestManagerThatHangsUpRefusesCallers(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t), func(c *Config) { c.HangUpAtStop = true })
	s.hold()
	s.create()
	c := s.sw.await("execute speak")
	refuse := make(chan struct{})
	s.sw.script("kill", func(k command) error {
		if k.channel == c.channel {
			<-refuse
			s.sw.hangup(k.channel, k.args, "variable_sip_hangup_disposition", "send_bye")
		}
		return nil
	})
	stopped := make(chan error, 1)
	go func() { stopped <- s.manager.Stop(t.Context()) }()
	require.Eventually(t, func() bool { return errors.Is(s.manager.Start(t.Context()), ErrStopping) }, patience, time.Millisecond)
	s.sw.await("kill")
	channel := s.callIn()
	kill := s.sw.await("kill")
	require.Equal(t, []string{channel, causeTempFailure}, []string{kill.channel, kill.args})
	close(refuse)
	require.NoError(t, <-stopped)
	s.end()
}

// What append has accepted runs, also when the list ends in the same moment; what comes later is refused.
func TestAppendToAListThatEnds(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", reply(`[{"action":"say","text":"The only one"}]`))
		s.sw.script("execute speak", func(command) error { return nil })
		created := s.create()
		c := s.sw.await("execute speak")
		s.sw.script("kill", func(k command) error {
			_, err := s.manager.Direct(t.Context(), s.customer.ID, created.ID, DirectRequest{Actions: list(t, `[{"action":"dtmf","digits":"3"}]`), Mode: ModeAppend})
			if !errors.Is(err, ErrCallNotActive) {
				t.Errorf("appended to a call that is being ended: %v", err)
			}
			s.sw.hangup(k.channel, k.args, "variable_sip_hangup_disposition", "send_bye")
			return nil
		})
		session := s.manager.channelSession(c.channel)
		_, err := s.manager.Direct(t.Context(), s.customer.ID, created.ID, DirectRequest{
			Actions: list(t, `[{"action":"dtmf","digits":"2"}]`), Mode: ModeAppend,
			InTx: func(*models.Store, *models.Call) error {
				s.sw.complete(c)
				// The session has nothing left to do before this transaction is over.
				for !session.box.empty() {
					runtime.Gosched()
				}
				return nil
			},
		})
		require.NoError(t, err)
		require.Equal(t, ReasonCompleted, s.end().Reason)
		require.Contains(t, s.sw.log(), "execute send_dtmf 2@100")
	})
}

// The switch's word on how a call ended stands, whatever happens to its node while the last words on its parties are waited for.
func TestEndStandsWhenTheNodeIsLostAfterIt(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t), func(c *Config) { c.HangupGrace = 300 * time.Millisecond })
	s.answers("/answer", reply(`[{"action":"dial","to":"+15550100003"}]`))
	s.sw.script("execute bridge", func(command) error { return nil })
	s.create()
	c := s.sw.await("execute bridge")
	legKilled := make(chan struct{})
	var once sync.Once
	s.sw.script("kill", func(command) error {
		once.Do(func() { close(legKilled) })
		return nil
	})
	s.sw.mu.Lock()
	for id := range s.manager.legChannels() {
		s.sw.channels[id] = &fakeChannel{direction: "outbound"}
	}
	s.sw.mu.Unlock()
	s.sw.hangup(c.channel, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
	<-legKilled
	s.manager.RemoveNode(s.node.ID)
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonCalleeHangup}, []any{call.Status, call.Reason})
}

// legChannels are the channels of the parties that live.
func (m *Manager) legChannels() map[string]*session {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]*session{}
	for id, s := range m.byLeg {
		all[id] = s
	}
	return all
}

// A call that is placed in the moment in which its node is removed is refused.
func TestNodeThatIsRemovedTakesNoCall(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	n, _, err := s.manager.pick(t.Context())
	require.NoError(t, err)
	s.manager.RemoveNode(s.node.ID)
	require.ErrorIs(t, s.manager.register(newSession(n, "late")), ErrNoNode)
	require.Zero(t, s.manager.LiveCalls())
}

// A command whose reply is lost with the connection is sent again; the call does not end for it.
func TestReplyLostWithTheConnection(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"hangup","after_seconds":30},{"action":"dtmf","digits":"1"}]`))
	var tries atomic.Int32
	s.sw.script("sched_api", func(command) error {
		if tries.Add(1) == 1 {
			return errors.Join(esl.ErrDown, esl.ErrNoReply)
		}
		return nil
	})
	s.create()
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason})
	require.EqualValues(t, 2, tries.Load())
}

// A node that connects while an inbound call is being stored does not take the call for an earlier controller's.
func TestReconnectWhileACallIsStored(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	n, _, err := s.manager.pick(t.Context())
	require.NoError(t, err)
	session := newSession(n, "arriving")
	require.NoError(t, s.manager.register(session))
	defer s.manager.forget(session)
	call := &models.Call{
		CustomerID: s.customer.ID, ApplicationID: s.app.ID, NodeID: &s.node.ID, Direction: DirectionInbound, Status: StatusRinging,
		ChannelID: "arriving", From: "+15550100001", To: "+15550100002",
	}
	require.NoError(t, s.store.InTx(t.Context(), func(tx *models.Store) error { return tx.CreateCall(t.Context(), call) }))
	n.adopt(esl.Snapshot{CoreUUID: "core"}, nil, 0)
	stored, err := s.store.CallByID(t.Context(), call.ID)
	require.NoError(t, err)
	require.True(t, stored.Live(), "it is %s", stored.Status)
}
