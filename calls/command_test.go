package calls

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// holdNode takes the lease of the scene's node, again and again if need be, as its next controller does.
func (s *scene) holdNode() {
	s.t.Helper()
	ctx := s.t.Context()
	token, ok, err := s.store.AcquireNode(ctx, s.node.ID, "holder", time.Hour, 0)
	require.NoError(s.t, err)
	require.True(s.t, ok)
	require.NoError(s.t, s.store.RenewNode(ctx, s.node.ID, "holder", token, time.Hour, true))
	s.node.LeaseToken = token
}

// heldScene is a scene whose node is held.
func heldScene(t *testing.T, store *models.Store, edit ...func(*Config)) *scene {
	t.Helper()
	s := newStage(t, store)
	s.holdNode()
	s.start(edit...)
	return s
}

// elsewhere is another controller on the same database, which holds no node.
func (s *scene) elsewhere(edit ...func(*Config)) *Manager {
	s.t.Helper()
	here := s.manager
	s.newManager(edit...)
	other := s.manager
	s.manager = here
	return other
}

// deaf makes a manager that never looks for what other controllers have accepted.
func deaf(c *Config) { c.CommandInterval = time.Hour }

// commandsOf are the kinds of the commands that are stored for a call.
func (s *scene) commandsOf(callID string) []string {
	s.t.Helper()
	rows, err := s.store.Commands(s.t.Context(), callID, 0)
	require.NoError(s.t, err)
	kinds := []string{}
	for _, row := range rows {
		kinds = append(kinds, row.Kind)
	}
	return kinds
}

// Any controller takes any request for any call, whoever holds the call's node.
func TestAnyControllerTakesAnyRequest(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "calls", func(t *testing.T, store *models.Store) {
		s := heldScene(t, store)
		other := s.elsewhere()
		ctx := t.Context()
		s.answers("/answer", reply(`[{"action":"say","text":"First"},{"action":"dtmf","digits":"1"}]`))
		s.sw.hold("speak")
		request := CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"}
		created, err := other.Create(ctx, request)
		require.NoError(t, err)
		require.Equal(t, []any{StatusDialing, s.node.ID}, []any{created.Status, *created.NodeID})
		require.Equal(t, created.ChannelID, s.sw.await("originate").channel)
		s.sw.await("execute speak")
		direct := func(mode, raw string) {
			_, err := other.Direct(ctx, s.customer.ID, created.ID, DirectRequest{Actions: list(t, raw), Mode: mode})
			require.NoError(t, err)
		}
		direct(ModeReplace, `[{"action":"dtmf","digits":"2"},{"action":"say","text":"Second"}]`)
		s.sw.await("execute send_dtmf 2")
		said := s.sw.await("execute speak")
		direct(ModeAppend, `[{"action":"dtmf","digits":"3"},{"action":"say","text":"Third"}]`)
		require.Eventually(t, func() bool { return s.manager.callSession(created.ID).received.Load() == 3 }, patience, time.Millisecond)
		s.sw.complete(said)
		s.sw.await("execute send_dtmf 3")
		s.sw.await("execute speak")
		require.Empty(t, s.commandsOf(created.ID), "they have taken effect for good")
		_, err = other.Cancel(ctx, s.customer.ID, created.ID, nil)
		require.NoError(t, err)
		call := s.end()
		require.Equal(t, []any{created.ID, StatusCompleted, ReasonAPIHangup}, []any{call.ID, call.Status, call.Reason})
		require.Equal(t, []string{"call.created", "call.ringing", "call.answered", "call.completed"}, s.kinds(call.ID))
		require.Empty(t, s.commandsOf(created.ID))

		request.Queued = true
		queued, err := other.Create(ctx, request)
		require.NoError(t, err)
		started, err := other.StartCall(ctx, s.customer.ID, queued.ID, nil)
		require.NoError(t, err)
		require.Equal(t, StatusDialing, started.Status)
		_, err = s.manager.StartCall(ctx, s.customer.ID, queued.ID, nil)
		require.ErrorIs(t, err, ErrCallNotQueued)
		require.Equal(t, started.ChannelID, s.sw.await("originate").channel)
		s.sw.await("execute speak")
		_, err = other.Cancel(ctx, s.customer.ID, queued.ID, nil)
		require.NoError(t, err)
		require.Equal(t, queued.ID, s.end().ID)
		again, err := other.Retry(ctx, s.customer.ID, queued.ID, nil)
		require.NoError(t, err)
		require.Equal(t, again.ChannelID, s.sw.await("originate").channel)
		s.sw.await("execute speak")
		_, err = other.Cancel(ctx, s.customer.ID, again.ID, nil)
		require.NoError(t, err)
		s.end()
	})
	modelstest.Run(t, "conferences", func(t *testing.T, store *models.Store) {
		s := heldScene(t, store)
		s.sw.meets()
		s.answers("/out", status(204))
		other := s.elsewhere()
		ctx := t.Context()
		_, firstID := s.confer("")
		_, secondID := s.confer("")
		_, thirdID := s.confer("")
		room := s.conference()
		require.NoError(t, other.MuteMember(ctx, s.customer.ID, room.ID, firstID, true, nil))
		require.Equal(t, "true", s.sw.await("conference_mute").args)
		require.NoError(t, other.KickMember(ctx, s.customer.ID, "standup", secondID, nil))
		require.Equal(t, secondID, s.end().ID)
		require.NoError(t, other.EndConference(ctx, s.customer.ID, room.ID, nil))
		ended := []string{s.end().ID, s.end().ID}
		require.ElementsMatch(t, []string{firstID, thirdID}, ended)
		require.Equal(t, roomEnded, s.data(firstID, "conference.left")["outcome"])
	})
	modelstest.Run(t, "queues", func(t *testing.T, store *models.Store) {
		s := heldScene(t, store)
		s.sw.meets()
		s.answers("/left", status(204))
		other := s.elsewhere()
		_, waitingID := s.enqueue(waitInQueue)
		require.NoError(t, other.LeaveQueue(t.Context(), s.customer.ID, "help", waitingID, nil))
		require.Equal(t, queueLeft, s.result(waitingID, "/left")["outcome"])
		s.endAll(1)
	})
}

// Commands are done in the order in which they were accepted, whichever controllers accepted them.
func TestCommandsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := heldScene(t, store, deaf)
		other := s.elsewhere()
		s.answers("/answer", reply(`[{"action":"say","text":"On and on"}]`))
		s.sw.hold("speak")
		created := s.create()
		s.sw.await("execute speak")
		_, err := other.Direct(t.Context(), s.customer.ID, created.ID, DirectRequest{Actions: list(t, `[{"action":"dtmf","digits":"1"}]`)})
		require.NoError(t, err)
		s.direct(created.ID, ModeAppend, `[{"action":"dtmf","digits":"2"}]`)
		s.end()
		require.Equal(t, []string{"execute send_dtmf 1@100", "execute send_dtmf 2@100"}, only(s.sw.log(), "execute send_dtmf"))
	})
}

// What is appended elsewhere has the same bound as here.
func TestAppendElsewhereIsBounded(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := heldScene(t, store, deaf)
		other := s.elsewhere()
		s.answers("/answer", reply(`[{"action":"say","text":"One"},{"action":"say","text":"Two"}]`))
		s.sw.hold("speak")
		created := s.create()
		s.sw.await("execute speak")
		many := list(t, `[{"action":"pause"}]`)
		for range 99 {
			many = append(many, many[0])
		}
		ask := func(mode string) error {
			_, err := other.Direct(t.Context(), s.customer.ID, created.ID, DirectRequest{Actions: many, Mode: mode})
			return err
		}
		for range 4 {
			require.NoError(t, ask(ModeAppend))
		}
		var refused *RequestError
		require.ErrorAs(t, ask(ModeAppend), &refused, "402 wait")
		require.NoError(t, ask(ModeReplace))
		for range 4 {
			require.NoError(t, ask(ModeAppend), "the replacement has dropped the others")
		}
		require.ErrorAs(t, ask(ModeAppend), &refused)
		_, err := other.Cancel(t.Context(), s.customer.ID, created.ID, nil)
		require.NoError(t, err)
	})
}

// nextController takes the scene's node as the next controller does, after the first has gone without a word.
func (s *scene) nextController(edit ...func(*Config)) {
	s.t.Helper()
	s.holdNode()
	s.newManager(append([]func(*Config){func(c *Config) { c.HangupGrace = 50 * time.Millisecond }}, edit...)...)
	s.sw.handler = s.manager.AddNode(s.node, s.sw)
	var snapshot esl.Snapshot
	s.sw.mu.Lock()
	for id, ch := range s.sw.channels {
		if !ch.dead {
			snapshot.Channels = append(snapshot.Channels, row(id, ch.direction, "park"))
		}
	}
	s.sw.mu.Unlock()
	snapshot.CoreUUID = "core"
	s.sw.handler.HandleUp(snapshot)
}

// A command that was accepted is done by the next controller when the one that was to do it is gone.
func TestAcceptedCommandOutlivesItsController(t *testing.T) {
	t.Parallel()
	for _, here := range []bool{true, false} {
		modelstest.Run(t, fmt.Sprintf("accepted here %t", here), func(t *testing.T, store *models.Store) {
			s := heldScene(t, store, deaf)
			s.answers("/answer", reply(`[{"action":"say","text":"First"}]`))
			s.sw.hold("speak")
			created := s.create()
			s.sw.await("execute speak")
			first, accepting := s.manager, s.manager
			if !here {
				accepting = s.elsewhere()
			}
			_, err := accepting.Direct(t.Context(), s.customer.ID, created.ID, DirectRequest{
				Actions: list(t, `[{"action":"dtmf","digits":"7"},{"action":"say","text":"Last"}]`), Mode: ModeAppend,
			})
			require.NoError(t, err)
			if !here {
				_, err = accepting.Direct(t.Context(), s.customer.ID, created.ID, DirectRequest{Actions: list(t, `[{"action":"dtmf","digits":"8"}]`), Mode: ModeAppend})
				require.NoError(t, err)
			}
			require.NoError(t, first.Stop(t.Context()), "it leaves its calls")
			require.NotEmpty(t, s.commandsOf(created.ID))
			s.sw.script("execute speak", func(c command) error { s.sw.complete(c); return nil })
			s.nextController()
			call := s.end()
			require.Equal(t, []any{created.ID, ReasonCompleted}, []any{call.ID, call.Reason})
			want := []string{"execute send_dtmf 7@100"}
			if !here {
				want = append(want, "execute send_dtmf 8@100")
			}
			require.Equal(t, want, only(s.sw.log(), "execute send_dtmf"), "once")
		})
	}
	modelstest.Run(t, "cancel", func(t *testing.T, store *models.Store) {
		s := heldScene(t, store, deaf)
		s.answers("/answer", reply(`[{"action":"say","text":"First"}]`))
		s.sw.hold("speak")
		created := s.create()
		s.sw.await("execute speak")
		_, err := s.elsewhere().Cancel(t.Context(), s.customer.ID, created.ID, nil)
		require.NoError(t, err)
		require.NoError(t, s.manager.Stop(t.Context()))
		s.nextController()
		call := s.end()
		require.Equal(t, []any{created.ID, ReasonAPIHangup}, []any{call.ID, call.Reason})
	})
	modelstest.Run(t, "dial", func(t *testing.T, store *models.Store) {
		s := heldScene(t, store, deaf)
		s.answers("/answer", reply(`[{"action":"pause"}]`))
		created, err := s.elsewhere().Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
		require.NoError(t, err)
		require.NoError(t, s.manager.Stop(t.Context()))
		require.Empty(t, s.sw.log())
		s.nextController()
		require.Equal(t, created.ID, s.end().ID)
		require.Len(t, only(s.sw.log(), "originate"), 1)
	})
}

// A call whose commands the next controller cannot read, because the database has just gone away, does not come to its end before them.
func TestCommandsAreReadBeforeTheCallGoesOn(t *testing.T) {
	t.Parallel()
	server, store := killable(t)
	const patience = 500 * time.Millisecond
	s := heldScene(t, store, deaf)
	s.answers("/answer", reply(`[{"action":"say","text":"First"}]`))
	s.sw.hold("speak")
	created := s.create()
	s.sw.await("execute speak")
	_, err := s.manager.Direct(t.Context(), s.customer.ID, created.ID, DirectRequest{Actions: list(t, `[{"action":"dtmf","digits":"7"}]`), Mode: ModeAppend})
	require.NoError(t, err)
	require.NoError(t, s.manager.Stop(t.Context()), "it leaves its calls")
	goesOn := make(chan struct{})
	s.sw.script("execute speak", func(c command) error {
		close(goesOn)
		s.sw.complete(c)
		return nil
	})
	release := server.Hang(t, "call_commands")
	s.nextController(func(c *Config) { c.CommandTimeout = patience })
	select {
	case <-goesOn:
		t.Error("it goes on without its commands")
	case <-time.After(3 * patience):
	}
	release()
	require.Equal(t, ReasonCompleted, s.end().Reason)
	require.Equal(t, []string{"execute send_dtmf 7@100"}, only(s.sw.log(), "execute send_dtmf"))
}

// A call that nobody could dial for a minute is not dialled any more.
func TestCallThatWaitsTooLongToBeDialled(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, store *models.Store, clock *modelstest.Clock) {
		s := heldScene(t, store, deaf)
		created, err := s.elsewhere().Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
		require.NoError(t, err)
		require.NoError(t, s.manager.Stop(t.Context()))
		clock.Advance(dialLimit + time.Second)
		s.nextController()
		require.Eventually(t, func() bool {
			call, err := store.CallByID(t.Context(), created.ID)
			require.NoError(t, err)
			return !call.Live()
		}, patience, 5*time.Millisecond)
		call, err := store.CallByID(t.Context(), created.ID)
		require.NoError(t, err)
		s.checkEnded(call)
		require.Equal(t, []any{StatusFailed, ReasonNodeLost, 0}, []any{call.Status, call.Reason, call.BilledSeconds})
		require.Empty(t, s.sw.log(), "nobody is called")
	})
}

// A controller whose node was taken writes nothing more about its calls, and lets go of them without a word.
func TestFencedControllerWritesNothing(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := heldScene(t, store, deaf)
		s.answers("/answer", reply(`[{"action":"say","text":"First"},{"action":"say","text":"Second"}]`))
		s.sw.hold("speak")
		created := s.create()
		c := s.sw.await("execute speak")
		before := s.allKinds(created.ID)
		s.holdNode() // another's
		session := s.manager.callSession(created.ID)
		s.sw.complete(c)
		<-session.gone
		require.Equal(t, before, s.allKinds(created.ID))
		call, err := store.CallByID(t.Context(), created.ID)
		require.NoError(t, err)
		require.True(t, call.Live())
		arriving := s.callIn()
		require.Eventually(t, func() bool { return s.manager.channelSession(arriving) == nil }, patience, time.Millisecond)
		_, err = store.CallByChannel(t.Context(), arriving)
		require.ErrorIs(t, err, models.ErrNotFound, "its caller is the next controller's")
		_, err = s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
		require.ErrorIs(t, err, ErrNoNode)
		require.Empty(t, only(s.sw.log(), "kill"))
	})
}

// A node that is let go keeps its calls, and they have no session here any more when that is done.
func TestReleasedNodeKeepsItsCalls(t *testing.T) {
	t.Parallel()
	s := heldScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"say","text":"On and on"}]`))
	s.sw.hold("speak")
	created := s.create()
	s.sw.await("execute speak")
	s.manager.ReleaseNode(t.Context(), s.node.ID)
	s.manager.ReleaseNode(t.Context(), s.node.ID)
	require.Zero(t, s.manager.LiveCalls())
	require.Empty(t, only(s.sw.log(), "kill"))
	call, err := s.store.CallByID(t.Context(), created.ID)
	require.NoError(t, err)
	require.Equal(t, StatusInProgress, call.Status)
}

// What a controller has fetched for its calls stays for whoever goes on with them, and is removed when no call can be playing it.
func TestMediaOfAReleasedNodeStays(t *testing.T) {
	t.Parallel()
	s := heldScene(t, modelstest.Open(t))
	s.answers("/prompt.wav", func(w http.ResponseWriter, _ asked) {
		w.Header().Set("Cache-Control", "max-age=3600")
		_, _ = w.Write(silentWAV())
	})
	s.answers("/answer", reply(`[{"action":"play","url":"`+s.server.URL+`/prompt.wav"}]`))
	s.sw.hold("playback")
	s.create()
	s.sw.await("execute playback")
	dir := s.manager.cfg.MediaDir(s.node)
	fetched, err := filepath.Glob(filepath.Join(dir, "*.wav"))
	require.NoError(t, err)
	require.Len(t, fetched, 1)
	s.manager.ReleaseNode(t.Context(), s.node.ID)
	require.NoError(t, s.manager.Stop(t.Context()))
	require.FileExists(t, fetched[0])

	s.newManager()
	s.manager.media.sweep(dir)
	require.FileExists(t, fetched[0], "a call may be playing it")
	long := time.Now().Add(-mediaStale - time.Minute)
	require.NoError(t, os.Chtimes(fetched[0], long, long))
	s.manager.media.held[fetched[0]] = 1
	s.manager.media.sweep(dir)
	require.FileExists(t, fetched[0], "a call of ours is")
	s.manager.media.release(fetched)
	require.NoFileExists(t, fetched[0])
	require.NoError(t, os.WriteFile(fetched[0], silentWAV(), 0o600))
	require.NoError(t, os.Chtimes(fetched[0], long, long))
	s.manager.media.sweep(dir)
	require.NoFileExists(t, fetched[0])
	s.manager.media.sweep(filepath.Join(dir, "none"))
}

// New calls go to all nodes that some controller is connected to, each in its turn.
func TestCallsGoToTheNodesOfAllControllers(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := heldScene(t, store)
		ctx := t.Context()
		second := &models.Node{Name: "second", ESLAddr: "127.0.0.1:8022", Password: "secret", ConfDir: t.TempDir(), IsActive: true}
		require.NoError(t, store.CreateNode(ctx, second))
		token, _, err := store.AcquireNode(ctx, second.ID, "another", time.Hour, 0)
		require.NoError(t, err)
		require.NoError(t, s.manager.lookForNodes(ctx))
		picked := func(n int) (ids []string) {
			for range n {
				n, elsewhere, err := s.manager.pick(ctx)
				require.NoError(t, err)
				if n != nil {
					elsewhere = n.row.ID
				}
				ids = append(ids, elsewhere)
			}
			slices.Sort(ids)
			return slices.Compact(ids)
		}
		require.Equal(t, []string{s.node.ID}, picked(4), "nobody is connected to the second")
		require.NoError(t, store.RenewNode(ctx, second.ID, "another", token, time.Hour, true))
		require.NoError(t, s.manager.lookForNodes(ctx))
		require.ElementsMatch(t, []string{s.node.ID, second.ID}, picked(4))
		s.manager.ReleaseNode(ctx, s.node.ID)
		require.NoError(t, store.RenewNode(ctx, second.ID, "another", token, time.Hour, false))
		require.NoError(t, store.RenewNode(ctx, s.node.ID, "holder", s.node.LeaseToken, time.Hour, false))
		require.NoError(t, s.manager.lookForNodes(ctx))
		_, _, err = s.manager.pick(ctx)
		require.ErrorIs(t, err, ErrNoNode)
	})
}

// What another controller accepts while the list comes to its end is done; once the end is stored, nothing is accepted any more.
func TestAcceptedListComesBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{`,{"action":"hangup","reason":"busy"}`, `,{"action":"reject","reason":"busy"}`, ``} {
		modelstest.Run(t, tail, func(t *testing.T, store *models.Store) {
			var ordered atomic.Bool
			var other *Manager
			var customer string
			s := heldScene(t, store, deaf, func(c *Config) {
				c.OnAction = func(callID string, index int, _ actions.Action) {
					if index == 1 && !ordered.Swap(true) {
						_, err := other.Direct(t.Context(), customer, callID, DirectRequest{Actions: list(t, `[{"action":"say","text":"Wanted"}]`)})
						assert.NoError(t, err)
					}
				}
			})
			other, customer = s.elsewhere(deaf), s.customer.ID
			refused := make(chan error, 1)
			s.sw.script("kill", func(k command) error {
				call, err := store.CallByChannel(t.Context(), k.channel)
				if assert.NoError(t, err) {
					_, err = other.Direct(t.Context(), customer, call.ID, DirectRequest{Actions: list(t, `[{"action":"say","text":"Too late"}]`)})
				}
				refused <- err
				s.sw.hangup(k.channel, k.args, "variable_sip_hangup_disposition", "send_bye")
				return nil
			})
			s.answers("/answer", reply(`[{"action":"say","text":"First"},{"action":"set","variables":{"a":"b"}}`+tail+`]`))
			s.create()
			require.Equal(t, ReasonCompleted, s.end().Reason)
			require.ErrorIs(t, <-refused, ErrCallNotActive)
			spoken := only(s.sw.log(), "execute speak")
			require.Len(t, spoken, 2, spoken)
			require.Contains(t, spoken[1], "Wanted")
		})
	}
}

// What an earlier controller has done already keeps no call from its end.
func TestDoneCommandsDoNotDelayTheEnd(t *testing.T) {
	t.Parallel()
	s := heldScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"say","text":"First"}]`))
	s.sw.hold("speak")
	created := s.create()
	s.sw.await("execute speak")
	s.direct(created.ID, ModeReplace, `[{"action":"say","text":"Second"}]`)
	s.sw.await("execute speak")
	require.Empty(t, s.commandsOf(created.ID))
	require.NoError(t, s.manager.Stop(t.Context()))
	s.sw.script("execute speak", func(c command) error { s.sw.complete(c); return nil })
	s.nextController()
	require.Equal(t, []any{created.ID, ReasonCompleted}, func(call models.Call) []any { return []any{call.ID, call.Reason} }(s.end()))
}
