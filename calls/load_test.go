package calls

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models/modelstest"
)

// crowdedSwitch is a switch with events that nobody has taken yet.
type crowdedSwitch struct {
	*fakeSwitch
	events int
}

func (c *crowdedSwitch) Backlog() int { return c.events }

// TestLimits reaches each limit: new calls are refused at it, in every way in which they come, and taken below it; nothing else happens.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits Limits
		reach  func(s *scene) (leave func())
	}{
		"calls": {Limits{Calls: 1}, func(s *scene) func() {
			speaks, complete := s.sw.gate("execute speak")
			s.callIn()
			say := speaks()
			return func() {
				complete(say)
				s.end()
				require.Eventually(s.t, func() bool { return s.manager.LiveCalls() == 0 }, patience, time.Millisecond)
			}
		}},
		"setup": {Limits{Setup: time.Millisecond}, func(s *scene) func() {
			done := s.manager.load.begin()
			require.Eventually(s.t, func() bool { return s.manager.load.waiting() > time.Millisecond }, patience, time.Millisecond)
			return done
		}},
		"backlog of the switch": {Limits{Backlog: 5}, func(s *scene) func() {
			crowded := &crowdedSwitch{fakeSwitch: s.sw, events: 6}
			node := s.node
			node.ID = "node_crowded"
			s.manager.AddNode(node, crowded).HandleUp(esl.Snapshot{})
			return func() { s.manager.RemoveNode(node.ID) }
		}},
		"backlog of the calls": {Limits{Backlog: 5}, func(s *scene) func() {
			s.manager.load.mail.Add(6)
			return func() { s.manager.load.mail.Add(-6) }
		}},
		"goroutines": {Limits{Goroutines: 1}, func(s *scene) func() {
			return func() { s.manager.load.limits.Goroutines = 1 << 20 }
		}},
		"memory": {Limits{Memory: 1}, func(s *scene) func() {
			return func() { s.manager.load.limits.Memory = 0 }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, modelstest.Open(t), func(cfg *Config) { cfg.Limits = c.limits })
			s.answers("/answer", reply(`[{"action":"say","text":"x"},{"action":"hangup"}]`))
			leave := c.reach(s)
			require.ErrorIs(t, s.manager.Accepting(), ErrOverloaded)
			before := s.manager.LiveCalls()
			request := CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"}
			_, err := s.manager.Create(t.Context(), request)
			require.ErrorIs(t, err, ErrOverloaded)
			queued := request
			queued.Queued = true
			waiting, err := s.manager.Create(t.Context(), queued)
			require.NoError(t, err, "what waits to be started costs nothing yet")
			_, err = s.manager.StartCall(t.Context(), s.customer.ID, waiting.ID, nil)
			require.ErrorIs(t, err, ErrOverloaded)
			refused := s.callIn()
			for s.sw.await("kill").channel != refused {
			}
			require.Equal(t, before, s.manager.LiveCalls())
			leave()
			s.sw.script("execute speak", nil)
			require.NoError(t, s.manager.Accepting())
			s.callIn()
			require.Equal(t, StatusCompleted, s.end().Status)
		})
	}
	_, err := NewManager(Config{Store: modelstest.Open(t), Rater: newScene(t, modelstest.Open(t)).manager.cfg.Rater, Client: http.DefaultClient, Limits: Limits{Calls: -1}})
	require.Error(t, err)
}

// TestMailboxIsBounded: what a call is sent beyond its mailbox ends it, but for keys, and what ends it always has room.
func TestMailboxIsBounded(t *testing.T) {
	t.Parallel()
	event := func(name string) message {
		ev, err := esl.ParseEvent(fmt.Sprintf(`{"Event-Name":%q,"Unique-ID":"a"}`, name))
		require.NoError(t, err)
		return message{event: ev}
	}
	box := newMailbox("a")
	for range 2 * mailboxLimit {
		box.put(event(eventDTMF))
	}
	require.EqualValues(t, mailboxLimit/2, box.total.Load())
	for range mailboxLimit / 2 {
		require.True(t, box.put(event(eventPark)))
	}
	require.False(t, box.put(event(eventPark)))
	require.True(t, box.put(event(eventHangupComplete)))
	require.EqualValues(t, mailboxLimit, box.total.Load())
	for range mailboxLimit {
		_, overflowed, ok := box.take()
		require.True(t, ok)
		require.False(t, overflowed)
	}
	_, overflowed, _ := box.take()
	require.True(t, overflowed)
	m, _, ok := box.take()
	require.True(t, ok)
	require.Equal(t, eventHangupComplete, m.event.Name())
	require.Zero(t, box.total.Load())
	box.put(event(eventPark))
	box.discard()
	require.False(t, box.put(event(eventPark)), "nobody takes it")
	require.Zero(t, box.total.Load())
}
