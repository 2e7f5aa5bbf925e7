package calls

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

// die ends a manager as the death of its process would: its sessions stop where they are, and nothing is told to anybody.
func (m *Manager) die() {
	m.mu.Lock()
	m.stopping, m.stopped = true, true
	if len(m.byChannel) == 0 {
		select {
		case <-m.idle:
		default:
			close(m.idle)
		}
	}
	m.mu.Unlock()
	m.cancel()
	m.work.Wait()
}

// die ends the controller, and its connections to the switch.
func (l *live) die() {
	l.esl.Stop()
	l.manager.die()
}

// The controller dies while an application runs, and another goes on with the call, before the application is over or after: the
// caller hears everything once, and the application is told what happened.
func TestFreeSWITCHResume(t *testing.T) {
	t.Parallel()
	type result = map[string]any
	for _, tt := range []struct {
		name, list string
		during     string // the application that runs when the controller dies
		nth        int    // which of that name
		typed      string // by the caller, a while after the answer
		after      time.Duration
		runs       []string // all applications that the caller's channel may have run
		check      func(t *testing.T, l *live, call models.Call, results []result)
	}{
		{
			name: "say", during: "speak", nth: 1, runs: []string{"speak", "send_dtmf"},
			list: `[{"action":"say","text":"This is a sentence that takes its time, and then some more of it, until it is over."},{"action":"dtmf","digits":"1"}]`,
		},
		{
			name: "the second round of three", during: "playback", nth: 2, runs: []string{"playback", "playback", "playback"},
			list: `[{"action":"play","tone":"ringback_us","max_seconds":60,"loop":3,"result_url":"/result"}]`,
			check: func(t *testing.T, _ *live, _ models.Call, results []result) {
				require.Len(t, results, 1)
				require.Equal(t, "played", results[0]["outcome"])
			},
		},
		{
			name: "gather", during: "play_and_get_digits", nth: 1, typed: "1234", after: 3 * time.Second, runs: []string{"play_and_get_digits", "speak"},
			list: `[{"action":"gather","num_digits":4,"timeout":20,"result_url":"/result"},{"action":"say","text":"Thanks."}]`,
			check: func(t *testing.T, _ *live, _ models.Call, results []result) {
				require.Len(t, results, 1)
				require.Equal(t, []any{"digits", "1234"}, []any{results[0]["outcome"], results[0]["digits"]})
			},
		},
		{
			name: "the second try of a gather", during: "play_and_get_digits", nth: 2, runs: []string{"play_and_get_digits", "play_and_get_digits", "play_and_get_digits"},
			list: `[{"action":"gather","num_digits":4,"timeout":3,"tries":3,"result_url":"/result"}]`,
			check: func(t *testing.T, _ *live, _ models.Call, results []result) {
				require.Len(t, results, 1)
				require.Equal(t, []any{"timeout", 3.0}, []any{results[0]["outcome"], results[0]["tries"]})
			},
		},
		{
			name: "record", during: "record", nth: 1, runs: []string{"playback", "record", "speak"},
			list: `[{"action":"record","max_seconds":4,"beep":true,"result_url":"/result"},{"action":"say","text":"Thanks."}]`,
			check: func(t *testing.T, l *live, call models.Call, results []result) {
				require.Len(t, results, 1)
				row := l.recorded(t, call.ID)
				require.Equal(t, row.ID, results[0]["recording_id"])
				require.InDelta(t, 4, row.Seconds, 1.1)
				require.Equal(t, 1, count(l.allKinds(call.ID), "recording.started"))
			},
		},
		{
			name: "a recording beside", during: "playback", nth: 1, runs: []string{"playback", "speak"},
			list: `[{"action":"record_call"},{"action":"pause","seconds":4},{"action":"record_call","op":"stop","result_url":"/result"},{"action":"say","text":"Thanks."}]`,
			check: func(t *testing.T, l *live, call models.Call, results []result) {
				require.Equal(t, "done", results[0]["outcome"])
				require.Greater(t, l.recorded(t, call.ID).Seconds, 2.0)
			},
		},
		{
			name: "dial", during: "bridge", nth: 1, runs: []string{"bridge", "speak"},
			list: `[{"action":"dial","to":"+15550000701","timeout":20,"result_url":"/result"},{"action":"say","text":"They have left."}]`,
			check: func(t *testing.T, l *live, call models.Call, results []result) {
				require.Len(t, results, 1)
				require.Equal(t, "answered", results[0]["dial_status"])
				require.InDelta(t, 2, results[0]["seconds"], 1.5)
				legs := l.legs(t, call.ID)
				require.Len(t, legs, 1)
				require.Equal(t, 1, count(l.allKinds(call.ID), "leg.ended"))
				require.Equal(t, 1, count(l.allKinds(call.ID), "leg.answered"))
			},
		},
		{
			name: "dial busy then another", during: "bridge", nth: 1, runs: []string{"bridge", "bridge", "speak"},
			list: `[{"action":"dial","to":["+15550000486","+15550000701"],"strategy":"sequential","timeout":20,"result_url":"/result"},{"action":"say","text":"They have left."}]`,
			check: func(t *testing.T, l *live, call models.Call, results []result) {
				require.Len(t, results, 1)
				require.Equal(t, "answered", results[0]["dial_status"])
				require.Len(t, l.legs(t, call.ID), 2)
			},
		},
		{
			name: "transfer", during: "bridge", nth: 1, runs: []string{"bridge"},
			list: `[{"action":"transfer","to":"+15550000701"},{"action":"say","text":"Never said."}]`,
			check: func(t *testing.T, l *live, call models.Call, _ []result) {
				require.Equal(t, 1, count(l.allKinds(call.ID), "call.transferred"))
			},
		},
		{
			name: "conference", during: "conference", nth: 1, runs: []string{"conference", "speak"},
			list: `[{"action":"conference","name":"alone","max_seconds":6,"result_url":"/result"},{"action":"say","text":"Over."}]`,
			check: func(t *testing.T, l *live, call models.Call, results []result) {
				require.Len(t, results, 1)
				require.Equal(t, roomMaxSeconds, results[0]["outcome"])
				require.Equal(t, 1, count(l.allKinds(call.ID), "conference.joined"))
				require.Equal(t, 1, count(l.allKinds(call.ID), "conference.left"))
			},
		},
		{
			name: "enqueue", during: "playback", nth: 1, runs: nil,
			list: `[{"action":"enqueue","name":"line","max_wait":6,"wait_actions":[{"action":"pause","seconds":3}],"result_url":"/result"},{"action":"say","text":"Nobody came."}]`,
			check: func(t *testing.T, l *live, call models.Call, results []result) {
				require.Len(t, results, 1)
				require.Equal(t, queueTimeout, results[0]["outcome"])
				require.Equal(t, 1, count(l.allKinds(call.ID), "queue.joined"))
				require.Equal(t, 1, count(l.allKinds(call.ID), "queue.left"))
			},
		},
	} {
		for _, over := range []bool{false, true} {
			if over && (tt.during == "conference" || tt.name == "enqueue") {
				continue // they do not end without a controller
			}
			t.Run(fmt.Sprintf("%s over %t", tt.name, over), func(t *testing.T) {
				t.Parallel()
				onSwitches(t, func(t *testing.T, l *live) {
					w := l.observe(t)
					l.answers("/answer", reply(tt.list))
					l.answers("/result", status(http.StatusNoContent))
					l.callIn(t, l.did.NumberE164, tt.typed, tt.after, 0)
					<-l.askedc
					first := l.requests()[0]
					call, err := l.store.CallByID(t.Context(), first.Call["id"].(string))
					require.NoError(t, err)
					w.await(call.ChannelID, tt.during, tt.nth, false)
					l.die()
					if over {
						w.await(call.ChannelID, tt.during, tt.nth, true)
					}
					l.succeed(t)
					ended := l.end()
					require.Equal(t, call.ID, ended.ID)
					require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{ended.Status, ended.Reason})
					if tt.runs != nil {
						require.Equal(t, tt.runs, w.names(call.ChannelID), "nothing is run twice")
					}
					done := l.dataOf(call.ID, "call.action_completed")
					for i, data := range done {
						require.EqualValues(t, i, data["index"], "each action is told once: %v", done)
					}
					require.Empty(t, l.dataOf(call.ID, "call.error"))
					asked := 0
					for _, q := range l.requests() {
						if q.Type == askAnswer {
							asked++
						}
					}
					require.Equal(t, 1, asked, "the answer_url is not asked again")
					if tt.check != nil {
						tt.check(t, l, ended, l.results())
					}
					l.noChannels(t)
				})
			})
		}
	}
}

func count(all []string, one string) (n int) {
	for _, other := range all {
		if other == one {
			n++
		}
	}
	return n
}

// The controller dies while the caller is not in an application of the list: while a call rings, while the application is asked, and
// while the caller waits for its answer.
func TestFreeSWITCHResumeBetween(t *testing.T) {
	t.Parallel()
	t.Run("ringing", func(t *testing.T) {
		t.Parallel()
		onSwitches(t, func(t *testing.T, l *live) {
			w := l.observe(t)
			l.answers("/answer", reply(`[{"action":"say","text":"Hello."}]`))
			call := l.create(func(r *CreateRequest) { r.To, r.Record = "+15550000713", true })
			l.until(t, call.ID, StatusRinging)
			l.die()
			l.succeed(t)
			ended := l.end()
			require.Equal(t, []any{call.ID, StatusCompleted, ReasonCompleted}, []any{ended.ID, ended.Status, ended.Reason})
			require.Equal(t, 1, count(w.names(call.ChannelID), "speak"))
			require.Equal(t, []string{"call.created", "call.ringing", "call.answered", "recording.started", "recording.available", "call.completed"}, l.kinds(call.ID))
		})
	})
	t.Run("answered while nobody watched", func(t *testing.T) {
		t.Parallel()
		onSwitches(t, func(t *testing.T, l *live) {
			l.answers("/answer", reply(`[{"action":"say","text":"Hello."}]`))
			call := l.create(func(r *CreateRequest) { r.To, r.Record = "+15550000711", true })
			l.until(t, call.ID, StatusRinging)
			l.die()
			l.park(t, call.ChannelID)
			l.succeed(t)
			ended := l.end()
			require.Equal(t, []any{call.ID, StatusCompleted, ReasonCompleted}, []any{ended.ID, ended.Status, ended.Reason})
			require.Equal(t, []string{"call.created", "call.ringing", "call.answered", "recording.started", "recording.available", "call.completed"}, l.kinds(call.ID))
		})
	})
	t.Run("asking for the first list", func(t *testing.T) {
		t.Parallel()
		onSwitches(t, func(t *testing.T, l *live) {
			release := make(chan struct{})
			l.answers("/answer", func(http.ResponseWriter, asked) { <-release }, reply(`[{"action":"say","text":"Hello."}]`))
			l.callIn(t, l.did.NumberE164, "", 0, 0)
			first := <-l.askedc
			l.die()
			close(release)
			l.succeed(t)
			ended := l.end()
			require.Equal(t, []any{first.Call["id"], StatusCompleted, ReasonCompleted}, []any{ended.ID, ended.Status, ended.Reason})
			require.Len(t, l.requests(), 2, "asked once more")
		})
	})
	t.Run("waiting for the answer to what was typed", func(t *testing.T) {
		t.Parallel()
		onSwitches(t, func(t *testing.T, l *live) {
			w := l.observe(t)
			l.app.WaitActions = []byte(`[{"action":"pause","seconds":1}]`)
			require.NoError(t, l.store.UpdateApplication(t.Context(), l.app))
			l.manager.cfg.WaitAfter = 100 * time.Millisecond
			release := make(chan struct{})
			l.answers("/answer", reply(`[{"action":"gather","num_digits":2,"timeout":20,"result_url":"/typed"},{"action":"say","text":"Never said."}]`))
			l.answers("/typed", func(http.ResponseWriter, asked) { <-release }, reply(`[{"action":"say","text":"Thanks."}]`))
			l.callIn(t, l.did.NumberE164, "42", 2*time.Second, 0)
			first := <-l.askedc
			<-l.askedc
			call, err := l.store.CallByID(t.Context(), first.Call["id"].(string))
			require.NoError(t, err)
			w.await(call.ChannelID, "playback", 1, false) // what the caller hears meanwhile
			l.die()
			close(release)
			l.succeed(t)
			ended := l.end()
			require.Equal(t, []any{call.ID, StatusCompleted, ReasonCompleted}, []any{ended.ID, ended.Status, ended.Reason})
			require.Equal(t, 1, count(w.names(call.ChannelID), "play_and_get_digits"), "nobody types it again")
			require.Equal(t, 1, count(w.names(call.ChannelID), "speak"))
			results := l.results()
			require.Equal(t, results[0], results[len(results)-1])
			require.Equal(t, "42", results[0]["digits"])
		})
	})
	t.Run("a secret that was not told is asked for again", func(t *testing.T) {
		t.Parallel()
		onSwitches(t, func(t *testing.T, l *live) {
			w := l.observe(t)
			release := make(chan struct{})
			l.answers("/answer", reply(`[{"action":"gather","num_digits":2,"timeout":4,"sensitive":true,"result_url":"/typed"}]`))
			l.answers("/typed", func(http.ResponseWriter, asked) { <-release }, status(http.StatusNoContent))
			l.callIn(t, l.did.NumberE164, "42", 2*time.Second, 0)
			first := <-l.askedc
			<-l.askedc
			l.die()
			close(release)
			stored, err := l.store.CallByID(t.Context(), first.Call["id"].(string))
			require.NoError(t, err)
			require.NotContains(t, fmt.Sprintf("%s %q", stored.Cursor.Ask, stored.Cursor.Last), `"42"`, "no secret is stored")
			l.succeed(t)
			l.end()
			require.Equal(t, 2, count(w.names(stored.ChannelID), "play_and_get_digits"))
		})
	})
}

// The controller dies while two calls are connected through a queue: they go on talking, and each list goes on when they part.
func TestFreeSWITCHResumeQueue(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.plans(map[string]string{
			echoes:  `[{"action":"enqueue","name":"line","result_url":"/left"},{"action":"pause","seconds":0.2}]`,
			echoes2: `[{"action":"dequeue","name":"line","timeout":20,"max_seconds":8,"result_url":"/taken"},{"action":"pause","seconds":0.2}]`,
		})
		caller, taker := l.calls(echoes), l.calls(echoes2)
		require.Eventually(t, func() bool {
			entry, err := l.store.QueueEntryOfCall(t.Context(), l.customer.ID, caller.ID)
			return err == nil && entry.State == models.QueueBridged
		}, patience, 5*time.Millisecond)
		l.die()
		l.succeed(t)
		for range 2 {
			ended := l.end()
			require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{ended.Status, ended.Reason}, ended.ID)
		}
		results := l.results()
		require.Len(t, results, 2)
		for _, result := range results {
			if result["action"] == "enqueue" {
				require.Equal(t, queueBridged, result["outcome"])
			} else {
				require.Equal(t, []any{"max_seconds", caller.ID}, []any{result["outcome"], result["peer_call_id"]})
				require.InDelta(t, 8, result["seconds"], 2)
			}
		}
		require.Equal(t, 1, count(l.kinds(caller.ID), "queue.left"))
		require.NotEqual(t, caller.ID, taker.ID)
		l.noChannels(t)
	})
}

// What live control was told and the dead controller had not done is done by the next one. A controller that dies while it takes a call
// over leaves it as it was.
func TestFreeSWITCHResumeOrders(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		w := l.observe(t)
		l.answers("/answer", reply(`[{"action":"pause","seconds":6},{"action":"dtmf","digits":"1"}]`))
		l.callIn(t, l.did.NumberE164, "", 0, 0)
		first := <-l.askedc
		call, err := l.store.CallByID(t.Context(), first.Call["id"].(string))
		require.NoError(t, err)
		w.await(call.ChannelID, "playback", 1, false)
		l.die()
		for _, digits := range []string{"2", "3"} {
			_, err := l.manager.Direct(t.Context(), l.customer.ID, call.ID, DirectRequest{
				Actions: list(t, `[{"action":"dtmf","digits":"`+digits+`"}]`), Mode: ModeAppend,
			})
			require.NoError(t, err)
		}
		l.succeed(t)
		l.die()
		l.succeed(t)
		l.end()
		var sent []string
		for _, r := range w.of(call.ChannelID) {
			if r.app == "send_dtmf" {
				sent = append(sent, strings.Split(r.args, "@")[0])
			}
		}
		require.Equal(t, []string{"1", "2", "3"}, sent)
		require.Equal(t, 1, count(w.names(call.ChannelID), "playback"))
	})
}

// The time of a conference is over by the time that somebody looks again: the caller is taken out at once.
func TestFreeSWITCHResumeLateConference(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		w := l.observe(t)
		l.answers("/answer", reply(`[{"action":"conference","name":"brief","max_seconds":1,"record":true,"result_url":"/result"},{"action":"say","text":"Over."}]`))
		l.answers("/result", status(http.StatusNoContent))
		l.callIn(t, l.did.NumberE164, "", 0, 0)
		first := <-l.askedc
		call, err := l.store.CallByID(t.Context(), first.Call["id"].(string))
		require.NoError(t, err)
		w.await(call.ChannelID, "conference", 1, false)
		l.die()
		wait(1200 * time.Millisecond)
		l.succeed(t)
		l.end()
		require.Equal(t, []string{"conference", "speak"}, w.names(call.ChannelID))
		require.Equal(t, roomMaxSeconds, l.results()[0]["outcome"])
		require.Equal(t, 1, count(l.allKinds(call.ID), "conference.left"))
	})
}
