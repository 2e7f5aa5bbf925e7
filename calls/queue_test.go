package calls

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

const (
	waitInQueue   = `[{"action":"enqueue","name":"help","wait_actions":[{"action":"pause","seconds":300}],"result_url":"/left"}]`
	takeFromQueue = `[{"action":"dequeue","name":"help","result_url":"/taken"}]`
)

// queueScene is a scene whose switch bridges, and whose application says nothing to results.
func queueScene(t *testing.T, store *models.Store, edit ...func(*Config)) *scene {
	t.Helper()
	s := newScene(t, store, edit...)
	s.sw.meets()
	s.answers("/left", status(204))
	s.answers("/taken", status(204))
	return s
}

// funds gives the scene's customer money for many calls at once.
func (s *scene) funds() {
	s.t.Helper()
	_, err := s.store.Credit(s.t.Context(), s.customer.ID, "many", models.LedgerTopup, 1_000_000_000, "")
	require.NoError(s.t, err)
}

// enqueue lets a call in that waits in the queue, and returns its channel and its call.
func (s *scene) enqueue(list string) (channel, callID string) {
	s.t.Helper()
	s.answers("/answer", reply(list))
	channel = s.callIn()
	return channel, s.queued(channel)
}

// queued waits until the call of a channel waits in a queue.
func (s *scene) queued(channel string) string {
	s.t.Helper()
	var callID string
	require.Eventually(s.t, func() bool {
		call, err := s.store.CallByChannel(s.t.Context(), channel)
		if err != nil {
			return false
		}
		callID = call.ID
		return s.count(callID, "queue.joined") > 0
	}, patience, time.Millisecond)
	return callID
}

// dequeue lets a call in that takes from the queue.
func (s *scene) dequeue(list string) (channel string) {
	s.t.Helper()
	s.answers("/answer", reply(list))
	return s.callIn()
}

// count is how many events of a kind a call has.
func (s *scene) count(callID, kind string) int { return len(s.dataOf(callID, kind)) }

// happens waits for an event of a call.
func (s *scene) happens(callID, kind string) map[string]any {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.count(callID, kind) > 0 }, patience, time.Millisecond, "%s of %s; commands %q", kind, callID, s.sw.log())
	return s.data(callID, kind)
}

// callID is the id of the call of a channel, once it has one.
func (s *scene) callID(channel string) string {
	s.t.Helper()
	var id string
	require.Eventually(s.t, func() bool {
		call, err := s.store.CallByChannel(s.t.Context(), channel)
		if err == nil {
			id = call.ID
		}
		return err == nil
	}, patience, time.Millisecond)
	return id
}

// result waits for the result of an action that the application is told of a call.
func (s *scene) result(callID, path string) map[string]any {
	s.t.Helper()
	var result map[string]any
	require.Eventually(s.t, func() bool {
		for _, q := range s.requests() {
			if q.Path == path && q.Call["id"] == callID {
				result = q.Result
				return true
			}
		}
		return false
	}, patience, time.Millisecond, "result of %s at %s; commands %q", callID, path, s.sw.log())
	return result
}

// endAll waits for the end of calls and checks that nothing is left in the queue.
func (s *scene) endAll(n int) map[string]models.Call {
	s.t.Helper()
	ended := map[string]models.Call{}
	for range n {
		call := s.end()
		ended[call.ID] = call
	}
	entries, err := s.store.QueueEntries(s.t.Context(), s.customer.ID, "help")
	require.NoError(s.t, err)
	require.Empty(s.t, entries, "nobody is left in the queue")
	require.Eventually(s.t, func() bool {
		s.manager.board.mu.Lock()
		defer s.manager.board.mu.Unlock()
		return len(s.manager.board.lines) == 0
	}, patience, time.Millisecond, "nobody is left in a line")
	return ended
}

func TestQueueConnectsACallerAndATaker(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := queueScene(t, store)
		waiting, waitingID := s.enqueue(waitInQueue)
		joined := s.data(waitingID, "queue.joined")
		require.Equal(t, []any{"help", 1.0, 0.0}, []any{joined["queue"], joined["position"], joined["priority"]})
		require.Contains(t, s.sw.log(), "execute answer", "a caller in a queue is answered")

		taking := s.dequeue(takeFromQueue)
		bridge := s.sw.await("bridge")
		require.Equal(t, []string{taking, waiting}, []string{bridge.channel, bridge.args}, "the taker's channel is the first")
		left := s.happens(waitingID, "queue.left")
		takingID := s.callID(taking)
		require.Equal(t, []any{"help", queueBridged, takingID, joined["queue_entry_id"]},
			[]any{left["queue"], left["outcome"], left["peer_call_id"], left["queue_entry_id"]})

		s.sw.leave(taking, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
		result := s.result(waitingID, "/left")
		require.Equal(t, []any{queueBridged, 1.0, "enqueue"}, []any{result["outcome"], result["position"], result["action"]})
		require.Contains(t, result, "wait_seconds")
		ended := s.endAll(2)
		require.Equal(t, ReasonCallerHangup, ended[takingID].Reason)
		require.Equal(t, ReasonCompleted, ended[waitingID].Reason, "the caller's own list has gone on")
		require.Equal(t, []string{"call.ringing", "call.answered", "queue.joined", "queue.left", "call.completed"}, s.kinds(waitingID))
		require.Contains(t, s.sw.log(), "setvar park_after_bridge=true")
		require.Contains(t, s.sw.log(), "setvar park_after_bridge=")
	})
}

func TestQueueTakerGoesOnWhenTheCallerHangsUp(t *testing.T) {
	t.Parallel()
	s := queueScene(t, modelstest.Open(t))
	waiting, waitingID := s.enqueue(waitInQueue)
	taking := s.dequeue(takeFromQueue)
	s.happens(waitingID, "queue.left")
	s.sw.leave(waiting, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
	result := s.result(s.callID(taking), "/taken")
	require.Equal(t, []any{queueBridged, waitingID}, []any{result["outcome"], result["peer_call_id"]})
	s.endAll(2)
	require.Equal(t, []string{"call.ringing", "call.answered", "queue.joined", "queue.left", "call.completed"}, s.kinds(waitingID))
}

func TestQueueTakerWaitsForACaller(t *testing.T) {
	t.Parallel()
	s := queueScene(t, modelstest.Open(t))
	taking := s.dequeue(takeFromQueue)
	s.sw.await("execute playback") // silence, so that media flows
	_, waitingID := s.enqueue(waitInQueue)
	s.happens(waitingID, "queue.left")
	s.sw.leave(taking, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
	s.endAll(2)
}

func TestQueueOrder(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := queueScene(t, store)
		var order []string
		byChannel := map[string]string{}
		for _, caller := range []struct {
			name     string
			priority int
		}{{"first", 0}, {"second", 0}, {"urgent", 9}, {"urgent too", 9}} {
			channel, id := s.enqueue(fmt.Sprintf(`[{"action":"enqueue","name":"help","priority":%d}]`, caller.priority))
			byChannel[channel] = caller.name
			if caller.name == "urgent too" {
				require.EqualValues(t, 2, s.data(id, "queue.joined")["position"], "behind the other urgent one only")
			}
		}
		s.dequeue(`[{"action":"dequeue","name":"help"},{"action":"dequeue","name":"help"},{"action":"dequeue","name":"help"},{"action":"dequeue","name":"help"},{"action":"dequeue","name":"help","timeout":0}]`)
		for range 4 {
			bridge := s.sw.await("bridge")
			order = append(order, byChannel[bridge.args])
			s.happens(s.callID(bridge.args), "queue.left")
			s.sw.leave(bridge.args, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
		}
		require.Equal(t, []string{"urgent", "urgent too", "first", "second"}, order)
		s.endAll(5)
	})
}

func TestQueueTimeouts(t *testing.T) {
	t.Parallel()
	s := queueScene(t, modelstest.Open(t))
	_, waitingID := s.enqueue(`[{"action":"enqueue","name":"help","max_wait":1,"result_url":"/left"}]`)
	result := s.result(waitingID, "/left")
	require.Equal(t, queueTimeout, result["outcome"])
	require.GreaterOrEqual(t, result["wait_seconds"], 0.9)
	require.Equal(t, queueTimeout, s.data(waitingID, "queue.left")["outcome"])
	for _, seconds := range []int{0, 1} {
		began := time.Now()
		taking := s.dequeue(fmt.Sprintf(`[{"action":"dequeue","name":"help","timeout":%d,"result_url":"/taken"}]`, seconds))
		result = s.result(s.callID(taking), "/taken")
		require.Equal(t, []any{queueTimeout, 0.0}, []any{result["outcome"], result["seconds"]})
		require.GreaterOrEqual(t, time.Since(began), time.Duration(seconds)*time.Second)
	}
	s.endAll(3)
}

func TestQueueMaxSecondsPartsTheCalls(t *testing.T) {
	t.Parallel()
	s := queueScene(t, modelstest.Open(t))
	_, waitingID := s.enqueue(waitInQueue)
	taking := s.dequeue(`[{"action":"dequeue","name":"help","max_seconds":1,"result_url":"/taken"}]`)
	result := s.result(s.callID(taking), "/taken")
	require.Equal(t, "max_seconds", result["outcome"])
	require.GreaterOrEqual(t, result["seconds"], 0.9)
	require.Equal(t, queueBridged, s.result(waitingID, "/left")["outcome"])
	s.endAll(2)
}

func TestQueueLeaveByAPI(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := queueScene(t, store)
		_, waitingID := s.enqueue(waitInQueue)
		ctx := t.Context()
		require.ErrorIs(t, s.manager.LeaveQueue(ctx, s.customer.ID, "other", waitingID, nil), models.ErrNotFound)
		stranger := modelstest.Customer(t, store, 0)
		require.ErrorIs(t, s.manager.LeaveQueue(ctx, stranger.ID, "help", waitingID, nil), models.ErrNotFound)
		inTx := 0
		require.NoError(t, s.manager.LeaveQueue(ctx, s.customer.ID, "help", waitingID, func(*models.Store, *models.Call) error { inTx++; return nil }))
		require.Equal(t, 1, inTx)
		require.Equal(t, queueLeft, s.result(waitingID, "/left")["outcome"])
		require.Equal(t, queueLeft, s.data(waitingID, "queue.left")["outcome"])
		s.endAll(1)
		require.ErrorIs(t, s.manager.LeaveQueue(ctx, s.customer.ID, "help", waitingID, nil), ErrCallNotActive)
	})
}

func TestQueueSwitchThatDoesNotConnect(t *testing.T) {
	t.Parallel()
	s := queueScene(t, modelstest.Open(t))
	s.sw.script("bridge", func(command) error { return &esl.CommandError{Command: "uuid_bridge", Reply: "-ERR Invalid uuid"} })
	waiting, waitingID := s.enqueue(waitInQueue)
	taking := s.dequeue(takeFromQueue)
	takingID := s.callID(taking)
	require.Equal(t, "failed", s.result(takingID, "/taken")["outcome"])
	require.Equal(t, "dequeue", s.data(takingID, "call.error")["action"])
	require.Equal(t, takingID, s.end().ID)
	require.Zero(t, s.count(waitingID, "queue.left"), "the caller waits on")
	s.sw.leave(waiting, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
	s.endAll(1)
}

func TestQueueNobodyIsTakenTwice(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := queueScene(t, store)
		s.funds()
		const callers, takers = 20, 5
		s.answers("/answer", reply(`[{"action":"enqueue","name":"help"}]`))
		var mu sync.Mutex
		taken := map[string]int{}
		s.sw.script("bridge", func(c command) error {
			mu.Lock()
			taken[c.args]++
			mu.Unlock()
			if err := s.sw.connect(c.channel, c.args); err != nil {
				return err
			}
			go s.sw.leave(c.args, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
			return nil
		})
		for range callers {
			s.queued(s.callIn())
		}
		list := make([]string, 0, callers)
		for range callers {
			list = append(list, `{"action":"dequeue","name":"help","timeout":0}`)
		}
		s.answers("/answer", reply("["+strings.Join(list, ",")+"]"))
		for range takers {
			s.callIn()
		}
		s.endAll(callers + takers)
		require.Len(t, taken, callers)
		for channel, times := range taken {
			require.Equal(t, 1, times, channel)
		}
	})
}

func TestBoardWakesOneTakerForEachCaller(t *testing.T) {
	t.Parallel()
	b, key := newBoard(), queueKey{"c", "q", "n"}
	taker := func() *session { return &session{box: newMailbox("x")} }
	first, second := b.join(key, taker()), b.join(key, taker())
	require.True(t, b.rest(key, first))
	require.True(t, b.rest(key, second))
	require.False(t, b.woken(first))

	b.wake(key)
	require.True(t, b.woken(first), "the first in line")
	require.False(t, b.woken(second))
	require.NotEmpty(t, first.s.box.ready)
	b.wake(key)
	require.True(t, b.woken(second))

	b.wake(key)
	require.False(t, b.rest(key, first), "who came while all were looking is looked for again")
	require.True(t, b.rest(key, first))
	require.True(t, b.rest(key, second))

	b.wake(key)
	require.True(t, b.woken(first))
	b.leave(key, first)
	require.True(t, b.woken(second), "what the first was woken for goes to the second")
	b.leave(key, second)
	require.Empty(t, b.lines)
	b.wake(key)
	require.Empty(t, b.lines, "nobody waits")
}

// A taker whose offer reaches a caller that is ending, or has ended, is told so.
func TestOfferToACallerThatEnds(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	n, _, err := s.manager.pick(t.Context())
	require.NoError(t, err)
	caller, taker := newSession(n, "caller"), newSession(n, "taker")
	require.NoError(t, s.manager.register(caller))
	unread := &bond{caller: caller, taker: taker}
	require.True(t, unread.tellCaller(bondOffer))
	require.True(t, unread.tellCaller(bondMade), "only an offer is answered")
	s.manager.forget(caller)
	m, _, ok := taker.box.take()
	require.True(t, ok)
	require.Equal(t, &bondMessage{bond: unread, step: bondOver}, m.bond)
	require.True(t, taker.box.empty())
	late := &bond{caller: caller, taker: taker}
	require.False(t, late.tellCaller(bondOffer))
	require.True(t, taker.box.empty())
}
