package calls

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// The phases of a connection, and what brings two calls there. The switch stops at the phase until go is called.
func queuePhases(s *scene) map[string]func() (waiting, taking, waitingID string) {
	enter := func() (string, string) { return s.enqueue(waitInQueue) }
	return map[string]func() (string, string, string){
		"offered": func() (string, string, string) {
			// The wait action does not end, so the caller is not ready.
			channel, id := enter()
			s.sw.await("execute playback")
			broken := make(chan struct{}, 16)
			s.sw.script("break", func(command) error { broken <- struct{}{}; return nil })
			taking := s.dequeue(takeFromQueue)
			<-broken
			return channel, taking, id
		},
		"bridging": func() (string, string, string) {
			channel, id := enter()
			s.sw.script("bridge", func(command) error { return nil })
			taking := s.dequeue(takeFromQueue)
			s.sw.await("bridge")
			return channel, taking, id
		},
		"bridged": func() (string, string, string) {
			channel, id := enter()
			taking := s.dequeue(takeFromQueue)
			s.happens(id, "queue.left")
			return channel, taking, id
		},
	}
}

func TestQueueCallerHangsUpInEachPhase(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{"offered", "bridging", "bridged"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			s := queueScene(t, modelstest.Open(t))
			waiting, taking, waitingID := queuePhases(s)[phase]()
			s.sw.script("bridge", nil)
			s.sw.leave(waiting, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
			if phase == "bridged" {
				require.Equal(t, ReasonCallerHangup, s.endAll(2)[waitingID].Reason)
				require.Equal(t, queueBridged, s.data(waitingID, "queue.left")["outcome"])
				require.Equal(t, waitingID, s.result(s.callID(taking), "/taken")["peer_call_id"])
				return
			}
			call := s.end()
			require.Equal(t, []any{waitingID, ReasonCallerHangup}, []any{call.ID, call.Reason})
			left := s.data(waitingID, "queue.left")
			require.Equal(t, queueHangup, left["outcome"])
			s.sw.hold("playback")
			_, nextID := s.enqueue(waitInQueue)
			left = s.happens(nextID, "queue.left")
			require.Equal(t, []any{queueBridged, s.callID(taking)}, []any{left["outcome"], left["peer_call_id"]}, "the taker gets the next one")
			s.sw.leave(taking, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
			s.endAll(2)
		})
	}
}

func TestQueueTakerHangsUpInEachPhase(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{"offered", "bridging", "bridged"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			s := queueScene(t, modelstest.Open(t))
			_, taking, waitingID := queuePhases(s)[phase]()
			s.sw.script("bridge", nil)
			s.sw.leave(taking, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
			if phase == "bridged" {
				require.Equal(t, ReasonCallerHangup, s.endAll(2)[s.callID(taking)].Reason)
				require.Equal(t, queueBridged, s.result(waitingID, "/left")["outcome"])
				return
			}
			require.Equal(t, s.callID(taking), s.end().ID)
			s.sw.hold("playback")
			s.completeHeld(waitingID)
			second := s.dequeue(takeFromQueue)
			left := s.happens(waitingID, "queue.left")
			require.Equal(t, []any{queueBridged, s.callID(second)}, []any{left["outcome"], left["peer_call_id"]}, "the caller has kept its place")
			require.Len(t, s.dataOf(waitingID, "queue.joined"), 1)
			s.sw.leave(second, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
			s.endAll(2)
		})
	}
}

// completeHeld ends the wait action of a caller whose break was ignored, if it still runs.
func (s *scene) completeHeld(callID string) {
	s.t.Helper()
	call, err := s.store.CallByID(s.t.Context(), callID)
	require.NoError(s.t, err)
	s.sw.mu.Lock()
	var last command
	for _, c := range s.sw.commands {
		if c.verb == "execute" && c.channel == call.ChannelID {
			last = c
		}
	}
	s.sw.mu.Unlock()
	s.sw.complete(last)
}

func TestQueueReplaceInEachPhase(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"caller", "taker"} {
		for _, phase := range []string{"offered", "bridging", "bridged"} {
			t.Run(who+" "+phase, func(t *testing.T) {
				t.Parallel()
				s := queueScene(t, modelstest.Open(t))
				waiting, taking, waitingID := queuePhases(s)[phase]()
				takingID := s.callID(taking)
				directed, other := waitingID, taking
				if who == "taker" {
					directed, other = takingID, waiting
				}
				s.direct(directed, ModeReplace, `[{"action":"dtmf","digits":"9"}]`)
				s.sw.script("bridge", nil)
				if phase == "offered" {
					s.sw.hold("playback")
					s.completeHeld(waitingID)
				}
				var call models.Call
				if phase == "bridged" {
					call = s.endAll(2)[directed]
				} else {
					call = s.end()
				}
				require.Equal(t, []any{directed, ReasonCompleted}, []any{call.ID, call.Reason})
				digits := s.sw.await("execute send_dtmf")
				require.Equal(t, call.ChannelID, digits.channel)
				require.Empty(t, s.sw.peersOf(call.ChannelID), "nothing is connected with a call that does something else")

				switch {
				case phase == "bridged":
					require.Equal(t, queueBridged, s.data(waitingID, "queue.left")["outcome"])
					if who == "taker" {
						require.Equal(t, queueBridged, s.result(waitingID, "/left")["outcome"])
					} else {
						require.Equal(t, queueBridged, s.result(takingID, "/taken")["outcome"])
					}
				case who == "caller":
					require.Equal(t, queueLeft, s.data(waitingID, "queue.left")["outcome"])
					_, nextID := s.enqueue(waitInQueue)
					require.Equal(t, takingID, s.happens(nextID, "queue.left")["peer_call_id"])
					s.sw.leave(other, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
					s.endAll(2)
				default:
					second := s.dequeue(takeFromQueue)
					require.Equal(t, s.callID(second), s.happens(waitingID, "queue.left")["peer_call_id"])
					s.sw.leave(other, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
					s.endAll(2)
				}
			})
		}
	}
}

func (f *fakeSwitch) peersOf(channel string) string {
	f.groups.mu.Lock()
	defer f.groups.mu.Unlock()
	return f.groups.peers[channel]
}

func TestQueueBothHangUpAtOnce(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{"offered", "bridging", "bridged"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			s := queueScene(t, modelstest.Open(t))
			waiting, taking, waitingID := queuePhases(s)[phase]()
			var both sync.WaitGroup
			for _, channel := range []string{waiting, taking} {
				both.Go(func() { s.sw.hangup(channel, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye") })
			}
			both.Wait()
			s.endAll(2)
			require.Equal(t, 1, s.count(waitingID, "queue.left"))
		})
	}
}

func TestQueueCancelInEachPhase(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{"offered", "bridging", "bridged"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			s := queueScene(t, modelstest.Open(t))
			_, taking, waitingID := queuePhases(s)[phase]()
			_, err := s.manager.Cancel(t.Context(), s.customer.ID, waitingID, nil)
			require.NoError(t, err)
			if _, err = s.manager.Cancel(t.Context(), s.customer.ID, s.callID(taking), nil); phase == "bridged" && err != nil {
				require.ErrorIs(t, err, ErrCallNotActive, "its list was done when the other one had gone")
			} else {
				require.NoError(t, err)
			}
			ended := s.endAll(2)
			require.Equal(t, ReasonAPIHangup, ended[waitingID].Reason)
			if phase != "bridged" {
				require.Equal(t, ReasonAPIHangup, ended[s.callID(taking)].Reason)
			}
			require.Equal(t, 1, s.count(waitingID, "queue.left"))
		})
	}
}

func TestQueueNodeLostInEachPhase(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{"waiting", "offered", "bridging", "bridged"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			s := queueScene(t, modelstest.Open(t))
			n := 2
			if phase == "waiting" {
				s.enqueue(waitInQueue)
				n = 1
			} else {
				queuePhases(s)[phase]()
			}
			s.manager.RemoveNode(s.node.ID)
			for _, call := range s.endAll(n) {
				require.Equal(t, ReasonNodeLost, call.Reason)
			}
		})
	}
}

func TestQueueConnectionLostWhileBridging(t *testing.T) {
	t.Parallel()
	for _, bridged := range []bool{true, false} {
		t.Run(fmt.Sprintf("bridged %t", bridged), func(t *testing.T) {
			t.Parallel()
			s := queueScene(t, modelstest.Open(t))
			waiting, taking, waitingID := queuePhases(s)["bridging"]()
			// Nobody heard what became of it.
			if bridged {
				s.sw.mu.Lock()
				s.sw.channels[taking].headers["variable_bridge_to"] = waiting
				s.sw.mu.Unlock()
			}
			s.sw.handler.HandleDown(nil)
			s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core", Channels: []esl.Channel{{UUID: waiting}, {UUID: taking}}})
			if bridged {
				require.Equal(t, queueBridged, s.happens(waitingID, "queue.left")["outcome"])
				s.sw.leave(taking, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
				s.sw.event("CHANNEL_PARK", waiting)
				s.endAll(2)
				return
			}
			s.sw.script("bridge", nil)
			require.Equal(t, queueBridged, s.happens(waitingID, "queue.left")["outcome"], "tried again")
			s.sw.leave(taking, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
			s.endAll(2)
		})
	}
}
