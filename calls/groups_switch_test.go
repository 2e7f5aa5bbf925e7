package calls

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
)

// plans makes the application answer each call by the number that it is for, and remember the results.
func (l *live) plans(byNumber map[string]string) {
	l.funds()
	l.answers("/answer", func(w http.ResponseWriter, q asked) {
		list, ok := byNumber[fmt.Sprint(q.Call["to"])]
		if !ok {
			list = "[]"
		}
		_, _ = io.WriteString(w, list)
	})
	for _, path := range []string{"/out", "/left", "/taken"} {
		l.answers(path, status(http.StatusNoContent))
	}
}

// Numbers of the carrier: what the far end does once it has answered.
const (
	echoes  = "+15550000800"
	echoes2 = "+15550000801"
	echoes3 = "+15550000802"
	leaves  = "+15550000703" // after eight seconds: what is to happen before has to be over by then, on a fast clock too
	sounds  = "+15550000702" // a tone
	silent  = "+15550000723" // nothing at all
)

// calls places a call to a number.
func (l *live) calls(to string) *models.Call {
	l.t.Helper()
	return l.create(func(r *CreateRequest) { r.To = to })
}

// loudest is the greatest sample of a 16-bit WAV file, of 32767.
func loudest(t testing.TB, path string) int {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	at := bytes.Index(raw, []byte("data"))
	require.Positive(t, at)
	peak := 0
	for raw = raw[at+8:]; len(raw) > 1; raw = raw[2:] {
		sample := int(int16(binary.LittleEndian.Uint16(raw))) //nolint:gosec // a sample is signed
		peak = max(peak, sample, -sample)
	}
	return peak
}

// heard checks, on a real switch, that a recording of a call has sound in it: the simulated one writes silence.
func (l *live) heard(call *models.Call) {
	l.t.Helper()
	rows, err := l.store.RecordingsOfCall(l.t.Context(), l.customer.ID, call.ID)
	require.NoError(l.t, err)
	require.Len(l.t, rows, 1)
	if l.sim == nil {
		peak := loudest(l.t, rows[0].Path)
		l.t.Logf("the loudest sample is %d of 32767", peak)
		require.Greater(l.t, peak, 2000)
	}
}

// roomOf is the live conference and the switch's list of its room, once it has a number of members.
func (l *live) roomOf(name string, members int) (*models.Conference, []esl.ConferenceMember) {
	l.t.Helper()
	var conference *models.Conference
	var list []esl.ConferenceMember
	require.Eventually(l.t, func() bool {
		var err error
		if conference, err = l.store.Conference(l.t.Context(), l.customer.ID, name); err != nil {
			return false
		}
		list, err = l.esl.ConferenceMembers(l.t.Context(), conference.Room)
		return err == nil && len(list) == members
	}, patience, 10*time.Millisecond, "%d members of %s", members, name)
	return conference, list
}

func TestFreeSWITCHConferenceMuteKickEnd(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		plan := `[{"action":"conference","name":"standup","result_url":"/out"%s},{"action":"pause","seconds":0.2}]`
		l.plans(map[string]string{
			sounds: fmt.Sprintf(plan, `,"record":true`), echoes: fmt.Sprintf(plan, `,"muted":true`), echoes2: fmt.Sprintf(plan, `,"max_members":2`),
		})
		first := l.calls(sounds)
		l.roomOf("standup", 1)
		second := l.calls(echoes)
		conference, _ := l.roomOf("standup", 2)
		ctx := t.Context()

		speaks := func(call *models.Call) bool {
			stored, err := l.store.CallByID(ctx, call.ID)
			require.NoError(t, err)
			list, err := l.esl.ConferenceMembers(ctx, conference.Room)
			require.NoError(t, err)
			for _, m := range list {
				if m.ChannelID == stored.ChannelID {
					return !m.Muted
				}
			}
			return false
		}
		require.True(t, speaks(first))
		require.False(t, speaks(second), "muted from the start")
		require.NoError(t, l.manager.MuteMember(ctx, l.customer.ID, conference.ID, second.ID, false, nil))
		require.Eventually(t, func() bool { return speaks(second) }, patience, 10*time.Millisecond)
		require.NoError(t, l.manager.MuteMember(ctx, l.customer.ID, conference.ID, first.ID, true, nil))
		require.Eventually(t, func() bool { return !speaks(first) }, patience, 10*time.Millisecond)

		third := l.calls(echoes2)
		require.Equal(t, third.ID, l.end().ID)
		require.Equal(t, roomFull, l.result(third.ID, "/out")["outcome"])

		require.NoError(t, l.manager.KickMember(ctx, l.customer.ID, conference.ID, second.ID, nil))
		call := l.end()
		require.Equal(t, []any{second.ID, ReasonCompleted}, []any{call.ID, call.Reason}, "the channel lives on, and its list")
		require.Equal(t, roomKicked, l.result(second.ID, "/out")["outcome"])

		require.NoError(t, l.manager.EndConference(ctx, l.customer.ID, conference.ID, nil))
		require.Equal(t, first.ID, l.end().ID)
		result := l.result(first.ID, "/out")
		require.Equal(t, roomEnded, result["outcome"])
		require.Positive(t, result["seconds"])
		require.Equal(t, []string{
			"call.created", "call.ringing", "call.answered", "conference.joined", "recording.started", "recording.available", "conference.left", "call.completed",
		}, l.kinds(first.ID))
		rows, err := l.store.RecordingsOfCall(ctx, l.customer.ID, first.ID)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		length, err := fileSeconds(rows[0].Path)
		require.NoError(t, err, "a playable file")
		require.Positive(t, length)
		require.InDelta(t, rows[0].Seconds, length, 0.001)
		t.Logf("the recording lasts %.2f s", length)
		l.heard(first)
		l.noConference()
	})
}

func TestFreeSWITCHConferenceStartAndEnd(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/music.wav", func(w http.ResponseWriter, _ asked) { _, _ = w.Write(silentWAV()) })
		l.plans(map[string]string{
			echoes:  fmt.Sprintf(`[{"action":"conference","name":"standup","start_on_enter":false,"wait_url":"%s/music.wav","result_url":"/out"}]`, l.server.URL),
			echoes2: `[{"action":"conference","name":"standup","start_on_enter":false,"result_url":"/out"}]`,
			leaves:  `[{"action":"conference","name":"standup","end_on_exit":true,"beep":true,"result_url":"/out"}]`,
		})
		guest := l.calls(echoes)
		l.roomOf("standup", 1)
		other := l.calls(echoes2)
		conference, _ := l.roomOf("standup", 2)
		waits := func() bool {
			list, err := l.esl.API(t.Context(), "conference "+conference.Room+" json_list")
			require.NoError(t, err)
			return strings.Contains(strings.ReplaceAll(list, "\t", ""), `"wait_mod":true`)
		}
		if l.sim == nil {
			require.True(t, waits(), "nobody has come who starts it")
		}
		host := l.calls(leaves)
		l.roomOf("standup", 3)
		if l.sim == nil {
			require.False(t, waits())
		}
		for range 3 {
			l.end()
		}
		for _, call := range []*models.Call{guest, other} {
			require.Equal(t, roomEnded, l.result(call.ID, "/out")["outcome"])
		}
		require.Equal(t, roomHangup, l.data(host.ID, "conference.left")["outcome"])
		l.noConference()
	})
}

func TestFreeSWITCHConferenceKeysDoNothing(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"conference","name":"standup","max_seconds":8,"result_url":"/out"},{"action":"say","text":"Good bye"}]`))
		l.answers("/out", status(http.StatusNoContent))
		// In the default group of the switch: mute, deaf, mute, volumes, energies, hang up.
		l.callIn(t, l.did.NumberE164, "0*123#", 1500*time.Millisecond, 0)
		conference, _ := l.roomOf("standup", 1)
		call := l.end()
		require.Equal(t, roomMaxSeconds, l.result(call.ID, "/out")["outcome"])
		require.Equal(t, ReasonCompleted, call.Reason)
		require.InDelta(t, 8, l.result(call.ID, "/out")["seconds"], 3)
		require.NotEmpty(t, conference.Room)
		l.noConference()
	})
}

func TestFreeSWITCHConferenceReplaced(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.plans(map[string]string{echoes: `[{"action":"conference","name":"standup","result_url":"/out"}]`})
		call := l.calls(echoes)
		l.roomOf("standup", 1)
		l.direct(call.ID, ModeReplace, `[{"action":"pause","seconds":0.2}]`)
		require.Equal(t, ReasonCompleted, l.end().Reason)
		require.Equal(t, roomInterrupted, l.data(call.ID, "conference.left")["outcome"])
		l.noConference()
	})
}

func TestFreeSWITCHConferenceMembersHearEachOther(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		// The second call is silent by itself and its far end too: what its recording holds comes from the first one.
		l.plans(map[string]string{
			sounds: `[{"action":"conference","name":"standup","result_url":"/out"}]`,
			silent: `[{"action":"conference","name":"standup","max_seconds":2,"end_on_exit":true,"result_url":"/out"}]`,
		})
		l.calls(sounds)
		l.roomOf("standup", 1)
		second := l.create(func(r *CreateRequest) { r.To, r.Record = silent, true })
		for range 2 {
			l.end()
		}
		require.Equal(t, roomMaxSeconds, l.result(second.ID, "/out")["outcome"])
		l.heard(second)
		l.noConference()
	})
}

func TestFreeSWITCHQueueConnectedCallsHearEachOther(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.plans(map[string]string{
			silent: `[{"action":"enqueue","name":"help","result_url":"/left"}]`,
			sounds: `[{"action":"dequeue","name":"help","max_seconds":2,"result_url":"/taken"}]`,
		})
		waiting := l.create(func(r *CreateRequest) { r.To, r.Record = silent, true })
		l.happens(waiting.ID, "queue.joined")
		l.calls(sounds)
		l.endAll(2)
		require.Equal(t, queueBridged, l.result(waiting.ID, "/left")["outcome"])
		l.heard(waiting)
	})
}

func TestFreeSWITCHQueueTakerLeaves(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.plans(map[string]string{
			echoes: `[{"action":"enqueue","name":"help","wait_actions":[{"action":"say","text":"Please hold the line, somebody will be with you soon."}],"result_url":"/left"},{"action":"pause","seconds":0.2}]`,
			leaves: `[{"action":"dequeue","name":"help","result_url":"/taken"}]`,
		})
		waiting := l.calls(echoes)
		l.happens(waiting.ID, "queue.joined")
		taking := l.calls(leaves)
		left := l.happens(waiting.ID, "queue.left")
		require.Equal(t, []any{queueBridged, taking.ID}, []any{left["outcome"], left["peer_call_id"]})
		ended := l.endAll(2)
		require.Equal(t, []any{ReasonCalleeHangup, StatusCompleted}, []any{ended[taking.ID].Reason, ended[taking.ID].Status})
		require.Equal(t, ReasonCompleted, ended[waiting.ID].Reason, "the caller's channel has outlived the connection")
		result := l.result(waiting.ID, "/left")
		require.Equal(t, []any{queueBridged, 1.0}, []any{result["outcome"], result["position"]})
		require.Positive(t, result["seconds"])
	})
}

func TestFreeSWITCHQueueCallerLeavesAndTheNextComes(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.plans(map[string]string{
			leaves:  `[{"action":"enqueue","name":"help","result_url":"/left"}]`,
			echoes2: `[{"action":"enqueue","name":"help","result_url":"/left"},{"action":"pause","seconds":0.2}]`,
			echoes:  `[{"action":"dequeue","name":"help","result_url":"/taken"},{"action":"dequeue","name":"help","max_seconds":1,"result_url":"/taken"},{"action":"dequeue","name":"help","timeout":0,"result_url":"/taken"}]`,
		})
		taking := l.calls(echoes)
		l.happens(taking.ID, "call.answered")
		first := l.calls(leaves)
		l.happens(first.ID, "queue.left")
		require.Equal(t, ReasonCalleeHangup, l.end().Reason)
		second := l.calls(echoes2)
		require.Equal(t, taking.ID, l.happens(second.ID, "queue.left")["peer_call_id"])
		l.endAll(2)
		var outcomes []any
		for _, q := range l.requests() {
			if q.Path == "/taken" {
				outcomes = append(outcomes, q.Result["outcome"])
			}
		}
		require.Equal(t, []any{queueBridged, "max_seconds", queueTimeout}, outcomes)
	})
}

func TestFreeSWITCHQueueReplacedWhileConnected(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"caller", "taker"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			onSwitches(t, func(t *testing.T, l *live) {
				l.plans(map[string]string{
					echoes:  `[{"action":"enqueue","name":"help","result_url":"/left"},{"action":"pause","seconds":0.2}]`,
					echoes2: `[{"action":"dequeue","name":"help","result_url":"/taken"},{"action":"pause","seconds":0.2}]`,
				})
				waiting := l.calls(echoes)
				l.happens(waiting.ID, "queue.joined")
				taking := l.calls(echoes2)
				l.happens(waiting.ID, "queue.left")
				directed := waiting
				if who == "taker" {
					directed = taking
				}
				l.direct(directed.ID, ModeReplace, `[{"action":"say","text":"Something else"}]`)
				for _, call := range l.endAll(2) {
					require.Equal(t, ReasonCompleted, call.Reason, "both channels have outlived the connection")
				}
			})
		})
	}
}

func TestFreeSWITCHQueueCallerHangsUpWhileBeingConnected(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.plans(map[string]string{
			echoes:  `[{"action":"enqueue","name":"help","result_url":"/left"}]`,
			echoes2: `[{"action":"dequeue","name":"help","result_url":"/taken"},{"action":"pause","seconds":0.2}]`,
			echoes3: `[{"action":"enqueue","name":"help","result_url":"/left"}]`,
		})
		for range 5 {
			waiting := l.calls(echoes)
			l.happens(waiting.ID, "queue.joined")
			stored, err := l.store.CallByID(t.Context(), waiting.ID)
			require.NoError(t, err)
			taking := l.calls(echoes2)
			require.Eventually(t, func() bool {
				entries, err := l.store.QueueEntries(t.Context(), l.customer.ID, "help")
				return err == nil && (len(entries) == 0 || entries[0].State != models.QueueWaiting)
			}, patience, time.Millisecond)
			timer := time.NewTimer(time.Duration(rand.IntN(60)) * time.Millisecond) // somewhere in the switch's doing
			<-timer.C
			_ = l.esl.Kill(t.Context(), stored.ChannelID, "NORMAL_CLEARING")
			require.Equal(t, waiting.ID, l.end().ID)
			left := l.data(waiting.ID, "queue.left")
			if left["outcome"] == queueHangup {
				// The taker waits for the next one.
				next := l.calls(echoes3)
				require.Equal(t, taking.ID, l.happens(next.ID, "queue.left")["peer_call_id"])
				found, err := l.store.CallByID(t.Context(), next.ID)
				require.NoError(t, err)
				require.NoError(t, l.esl.Kill(t.Context(), found.ChannelID, "NORMAL_CLEARING"))
				l.end()
			}
			call := l.end()
			require.Equal(t, []any{taking.ID, ReasonCompleted}, []any{call.ID, call.Reason}, "the taker is never lost; queue.left was %v", left["outcome"])
		}
		l.endAll(0)
	})
}

func TestFreeSWITCHQueueTwentyCallersFiveTakers(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		const callers, takers = 20, 5
		list := strings.Repeat(`{"action":"dequeue","name":"help","max_seconds":1,"timeout":0,"result_url":"/taken"},`, callers)
		l.plans(map[string]string{
			echoes:  `[{"action":"enqueue","name":"help","result_url":"/left"}]`,
			echoes2: "[" + strings.TrimSuffix(list, ",") + "]",
		})
		var waiting []*models.Call
		for range callers {
			waiting = append(waiting, l.calls(echoes))
		}
		for _, call := range waiting {
			l.happens(call.ID, "queue.joined")
		}
		for range takers {
			l.calls(echoes2)
		}
		l.endAll(callers + takers)
		met := map[string]int{}
		for _, q := range l.requests() {
			if q.Path == "/taken" && q.Result["peer_call_id"] != nil {
				met[fmt.Sprint(q.Result["peer_call_id"])]++
			}
		}
		for _, call := range waiting {
			require.Equal(t, 1, met[call.ID], "taken once")
			require.Equal(t, queueBridged, l.data(call.ID, "queue.left")["outcome"])
		}
	})
}
