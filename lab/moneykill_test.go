package lab_test

import (
	"fmt"
	"net/http"
	"regexp"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
	"tandem/models"
)

// extendedAtOnce is how many calls are about to be extended when their controller is killed.
const extendedAtOnce = 6

// swallows makes a link pass nothing on any more once a client is about to send a command, that included, and returns a channel that is closed then.
func swallows(link *lab.Link, command *regexp.Regexp) <-chan struct{} {
	swallowed := make(chan struct{})
	var done atomic.Bool
	link.Tap(func(_ int, sent []byte) {
		if command.Match(sent) && done.CompareAndSwap(false, true) {
			link.Set(lab.LinkSilent)
			close(swallowed)
		}
	})
	return swallowed
}

// The commands of an extension. Others of their names are not for channels: the switch's own watch over its controller is scheduled, too.
var (
	newCap = regexp.MustCompile(`sched_api \+\d+ [0-9a-f-]{36}\.\d+ uuid_kill`)
	oldCap = regexp.MustCompile(`sched_del [0-9a-f-]{36}`)
)

// TestFreeSWITCHKilledWhileExtending kills the controller at each step of an extension: when more is held and the switch has not been told, and when it has
// the new cap and still the old one. No call is cut, none is left without a cap, and the next controller leaves each with one, which is paid for.
func TestFreeSWITCHKilledWhileExtending(t *testing.T) {
	t.Parallel()
	s, link, store := witnessed(t, append(moneyPrices, "TANDEM_NODE_LEASE=1s")...)
	probe := s.node.Probe(t)
	who := s.payer(t, "killed", "600")
	app := s.newApplication(t, who, "killed", nil, func(question) any { return []object{{"action": "pause", "seconds": 300}} })
	var ids []string
	for i := range extendedAtOnce {
		ids = append(ids, s.callFrom(t, app, fmt.Sprintf("+155509100%02d", i), nil).text("id"))
	}
	for _, id := range ids {
		app.until(soon(t), t, id, "call.answered")
	}
	for _, command := range []*regexp.Regexp{newCap, oldCap, newCap} {
		before := map[string]models.Call{}
		for _, id := range ids {
			before[id] = *rowOf(t, store, id)
		}
		wait(seconds(t, 80), t, swallows(link, command), "no "+command.String())
		// The database is there: what the other calls need is held meanwhile, and their commands wait.
		more := func() (extended int) {
			for _, id := range ids {
				if rowOf(t, store, id).HoldMicros > before[id].HoldMicros {
					extended++
				}
			}
			return extended
		}
		for began := time.Now(); more() < len(ids) && time.Since(began) < 2*time.Second; {
			require.True(t, rest(t.Context(), 20*time.Millisecond))
		}
		struck := time.Now()
		s.stop(syscall.SIGKILL)
		// What the controller had sent, and the link had not passed on, is lost.
		link.Tap(nil)
		link.Set(lab.LinkReset)
		var left [3]int // calls with so many caps
		for _, id := range ids {
			caps := len(capsOf(t, probe, rowOf(t, store, id).ChannelID))
			require.Contains(t, []int{1, 2}, caps, "caps of a call while nobody is here")
			left[caps]++
		}
		extended := more()
		require.Positive(t, extended, "more is held")
		link.Set(lab.LinkUp)
		s.start(t)
		for _, id := range ids {
			restored(t, store, probe, id, before[id])
		}
		t.Logf("%s swallowed, %d of %d calls held more when the controller died, %d had one cap and %d two; all had their one later cap %s after the kill",
			command, extended, len(ids), left[1], left[2], time.Since(struck).Round(time.Millisecond))
	}
	for _, id := range ids {
		row := rowOf(t, store, id)
		require.Nil(t, row.EndedAt, "cut")
		require.Greater(t, time.Since(*row.AnsweredAt).Seconds(), 2.0*leastGrant, "past two caps")
		status, answer := s.ask(t, customer{key: app.key}, http.MethodPost, "/v1/calls/"+id+"/cancel", nil)
		require.Less(t, status, 300, answer)
	}
	var cost int64
	for _, id := range ids {
		app.ended(soon(t), t, s, id)
		cost += charged(t, store, id, outboundSecond)
		row := rowOf(t, store, id)
		require.Eventually(t, func() bool { return len(capsOf(t, probe, row.ChannelID)) == 0 }, 5*time.Second, 50*time.Millisecond, "a cap of a call that has ended")
	}
	balance, held := purseOf(t, store, who)
	require.Equal(t, []int64{600_000_000 - cost, 0}, []int64{balance, held})
	s.ledgerHolds(t)
}

// restored waits until a call has one cap again: that of the number that is stored, later than the one before, and not later than what is held pays for.
func restored(t *testing.T, store *models.Store, probe *lab.Probe, id string, before models.Call) {
	t.Helper()
	var row *models.Call
	var caps []task
	require.Eventually(t, func() bool {
		row = rowOf(t, store, id)
		caps = capsOf(t, probe, row.ChannelID)
		return len(caps) == 1 && caps[0].group == fmt.Sprintf("%s.%d", row.ChannelID, row.Caps) && row.GrantedSeconds > before.GrantedSeconds
	}, 25*time.Second, 20*time.Millisecond, "no later cap")
	require.Nil(t, row.EndedAt, "cut")
	// Whole seconds, on our side and on the switch's, may make it two earlier; it is never later.
	require.InDelta(t, float64(row.GrantedSeconds)-1, caps[0].due.Sub(*row.AnsweredAt).Seconds(), 1.3)
	require.LessOrEqual(t, priceOf(outboundSecond, row.GrantedSeconds), row.HoldMicros, "paid for")
}
