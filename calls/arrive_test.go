package calls

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// A call that comes back to park while the next controller looks for the calls that it has is neither a new one nor refused, also where
// no new one would be taken. One that parks for the first time meanwhile is treated as ever.
func TestParksWhileCallsAreLookedFor(t *testing.T) {
	t.Parallel()
	for _, overloaded := range []bool{false, true} {
		modelstest.Run(t, fmt.Sprintf("overloaded %t", overloaded), func(t *testing.T, store *models.Store) {
			s := newScene(t, store)
			s.hold()
			channel := s.callIn()
			s.sw.await("execute speak")
			require.NoError(t, s.manager.Stop(t.Context()))

			s.newManager(func(c *Config) { c.HangupGrace = 50 * time.Millisecond })
			s.sw.handler = s.manager.AddNode(s.node, s.sw)
			var fresh string
			s.sw.asked = func(asked string) {
				require.Equal(t, channel, asked)
				s.sw.asked = nil
				s.sw.event("CHANNEL_PARK", channel)
				fresh = s.callIn()
			}
			o := s.manager.outage
			if overloaded {
				o.mu.Lock()
				for range backlogCalls + 1 {
					o.behind[new(session)] = struct{}{}
				}
				o.mu.Unlock()
			}
			s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core"})
			speaks, again := 2, command{}
			if overloaded {
				speaks = 1
			}
			for range speaks {
				said := s.sw.await("execute speak")
				if said.channel == fresh {
					s.sw.hangup(fresh, "NORMAL_CLEARING")
					require.Equal(t, fresh, s.end().ChannelID)
					continue
				}
				require.Equal(t, channel, said.channel)
				again = said
			}
			if overloaded { // before or after the other went on
				require.Eventually(t, func() bool {
					alive, err := s.sw.Exists(t.Context(), fresh)
					return err == nil && !alive
				}, patience, time.Millisecond)
			}
			s.sw.complete(again)
			call := s.end()
			require.Equal(t, channel, call.ChannelID)
			require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason})
		})
	}
}

// What parks is let in after the calls were looked for, in its order, and nothing that belongs to an earlier connection.
func TestArrivalsBelongToOneConnection(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	n, _, err := s.manager.pick(t.Context())
	require.NoError(t, err)
	park := func(channel string) *esl.Event {
		ev, err := esl.ParseEvent(`{"Event-Name":"CHANNEL_PARK","Call-Direction":"inbound","Unique-ID":"` + channel + `"}`)
		require.NoError(t, err)
		return ev
	}
	waiting := func(ups int, looking bool) (channels []string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		require.Equal(t, looking, n.looking)
		require.Equal(t, ups, n.ups)
		for _, ev := range n.arrivals {
			channels = append(channels, ev.ChannelID())
		}
		return channels
	}
	n.mu.Lock()
	ups := n.ups + 1
	n.ups, n.looking = ups, true
	n.mu.Unlock()
	var all []string
	for i := range arrivalsLimit + 1 {
		all = append(all, fmt.Sprintf("channel-%d", i))
		n.arrive(park(all[i]))
	}
	require.Equal(t, all[:arrivalsLimit], waiting(ups, true))
	require.NoError(t, n.admitArrivals(t.Context(), ups-1))
	require.Len(t, waiting(ups, true), arrivalsLimit, "an earlier connection lets nobody in")
	require.NoError(t, n.admitArrivals(t.Context(), ups))
	require.Empty(t, waiting(ups, false))

	n.mu.Lock()
	n.looking, n.arrivals = true, []*esl.Event{park("late")}
	n.mu.Unlock()
	n.stopLooking(ups - 1)
	require.Equal(t, []string{"late"}, waiting(ups, true))
	n.stopLooking(ups)
	require.Empty(t, waiting(ups, false), "who comes after a failure is let in")
}
