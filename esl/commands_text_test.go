package esl

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// hostile is text that some layer of the switch reads as syntax, and that no name, number, path or address may hold.
var hostile = []string{
	"", "a\nb", "a\n\napi shutdown", "a\rb", "a\r\nb", "a\x00b", "a\x7fb", "a'b", `a"b`, "a,b", "a|b", "^^:a", "${x}", "${system(touch /tmp/x)}", `$\{x}`, "a;b", `a\b`, "a!b",
	"{a=b}c", "a}b", "[a=b]c", "a]b", "<a>", "a b", " a", "a\xffb", "é", "a:_:b", "a&b", "a(b)", "a?b", "%x[a]", strings.Repeat("a", 70<<10),
}

// roomReply is what the fake switch says to json_list.
const roomReply = `[{"members":[{"id":1,"uuid":"u","flags":{"can_speak":true}}]}]`

func TestCommandsAsTheSwitchReadsThem(t *testing.T) {
	t.Parallel()
	tone, err := ToneRingback("%(2000,4000,440,480)")
	require.NoError(t, err)
	file, err := FileRingback("/media/ring.wav")
	require.NoError(t, err)
	for want, command := range map[string]func(ctx context.Context, n *Node) error{
		"uuid_transfer chan-1 park inline":    func(ctx context.Context, n *Node) error { return n.Park(ctx, "chan-1") },
		"uuid_break chan-1 all":               func(ctx context.Context, n *Node) error { return n.Break(ctx, "chan-1") },
		"uuid_kill chan-1 USER_BUSY":          func(ctx context.Context, n *Node) error { return n.Kill(ctx, "chan-1", "USER_BUSY") },
		"uuid_setvar chan-1 name it\\'s\\sso": func(ctx context.Context, n *Node) error { return n.SetVariable(ctx, "chan-1", "name", "it's so") },
		"uuid_setvar chan-1 name":             func(ctx context.Context, n *Node) error { return n.SetVariable(ctx, "chan-1", "name", "") },
		"sched_hangup +61 chan-1 USER_BUSY": func(ctx context.Context, n *Node) error {
			return n.SchedHangup(ctx, "chan-1", time.Minute+1, "USER_BUSY")
		},
		"sched_api +61 chan-1.2 uuid_kill chan-1 USER_BUSY": func(ctx context.Context, n *Node) error {
			return n.ScheduleKill(ctx, "chan-1", "chan-1.2", time.Minute+1, "USER_BUSY")
		},
		"sched_del chan-1.2":                    func(ctx context.Context, n *Node) error { return n.Unschedule(ctx, "chan-1.2") },
		"uuid_displace chan-1 start /a.wav 0 m": func(ctx context.Context, n *Node) error { return n.Overlay(ctx, "chan-1", "/a.wav") },
		"uuid_record chan-1 start /rec/a.wav": func(ctx context.Context, n *Node) error {
			return n.RecordStartWith(ctx, "chan-1", "/rec/a.wav", RecordOptions{})
		},
		"uuid_record chan-1 stop /rec/a.wav":                   func(ctx context.Context, n *Node) error { return n.RecordStop(ctx, "chan-1", "/rec/a.wav") },
		"uuid_record chan-1 pause /rec/a.wav":                  func(ctx context.Context, n *Node) error { return n.RecordPause(ctx, "chan-1", "/rec/a.wav") },
		"uuid_record chan-1 resume /rec/a.wav":                 func(ctx context.Context, n *Node) error { return n.RecordResume(ctx, "chan-1", "/rec/a.wav") },
		"uuid_record chan-1 mask /rec/a.wav":                   func(ctx context.Context, n *Node) error { return n.RecordMask(ctx, "chan-1", "/rec/a.wav") },
		"uuid_record chan-1 unmask /rec/a.wav":                 func(ctx context.Context, n *Node) error { return n.RecordUnmask(ctx, "chan-1", "/rec/a.wav") },
		"uuid_bridge chan-1 chan-2":                            func(ctx context.Context, n *Node) error { return n.BridgeChannels(ctx, "chan-1", "chan-2") },
		"conference room_1 kick 7":                             func(ctx context.Context, n *Node) error { return n.ConferenceKick(ctx, "room_1", "7") },
		"conference room_1 mute 7":                             func(ctx context.Context, n *Node) error { return n.ConferenceMute(ctx, "room_1", "7", true) },
		"conference room_1 unmute 7":                           func(ctx context.Context, n *Node) error { return n.ConferenceMute(ctx, "room_1", "7", false) },
		"conference room_1 record /rec/a.wav":                  func(ctx context.Context, n *Node) error { return n.ConferenceRecord(ctx, "room_1", "/rec/a.wav") },
		"conference room_1 norecord /rec/a.wav":                func(ctx context.Context, n *Node) error { return n.ConferenceRecordStop(ctx, "room_1", "/rec/a.wav") },
		"uuid_audio_stream chan-1 stop":                        func(ctx context.Context, n *Node) error { return n.StreamStop(ctx, "chan-1") },
		"sofia profile external rescan":                        func(ctx context.Context, n *Node) error { return n.RescanProfile(ctx, "external") },
		"sofia profile external killgw acme":                   func(ctx context.Context, n *Node) error { return n.KillGateway(ctx, "external", "acme") },
		"uuid_setvar chan-1 ringback":                          func(ctx context.Context, n *Node) error { return n.SetRingback(ctx, "chan-1", Ringback{}) },
		"uuid_setvar chan-1 transfer_ringback":                 func(ctx context.Context, n *Node) error { return n.SetRingback(ctx, "chan-1", Ringback{}) },
		"uuid_setvar chan-1 ringback %(2000,4000,440,480)":     func(ctx context.Context, n *Node) error { return n.SetRingback(ctx, "chan-1", tone) },
		"uuid_setvar chan-1 transfer_ringback /media/ring.wav": func(ctx context.Context, n *Node) error { return n.SetRingback(ctx, "chan-1", file) },
		"uuid_record chan-1 start /rec/a.wav 0 {RECORD_STEREO=true,RECORD_READ_ONLY=true,RECORD_INITIAL_TIMEOUT_MS=5000,RECORD_FINAL_TIMEOUT_MS=2000,RECORD_SILENCE_THRESHOLD=200}": func(ctx context.Context, n *Node) error {
			return n.RecordStartWith(ctx, "chan-1", "/rec/a.wav", RecordOptions{
				Stereo: true, ReadOnly: true, InitialSilence: 5 * time.Second, FinalSilence: 2 * time.Second, Threshold: 200,
			})
		},
		"uuid_audio_stream chan-1 start wss://ears.example/in?call=1&key=a%20b mixed 8k": func(ctx context.Context, n *Node) error {
			return n.StreamStart(ctx, "chan-1", AudioStream{URL: "wss://ears.example/in?call=1&key=a%20b", Mix: "mixed"})
		},
		"module_exists mod_flite": func(ctx context.Context, n *Node) error {
			has, err := n.HasModule(ctx, "mod_flite")
			require.True(t, has)
			return err
		},
		"uuid_exists chan-1": func(ctx context.Context, n *Node) error {
			exists, err := n.Exists(ctx, "chan-1")
			require.True(t, exists)
			return err
		},
		"conference room_1 json_list": func(ctx context.Context, n *Node) error {
			members, err := n.ConferenceMembers(ctx, "room_1")
			require.Equal(t, []ConferenceMember{{ID: "1", ChannelID: "u"}}, members)
			return err
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, heardBySwitch(t, command), want)
		})
	}
}

// heardBySwitch returns the api commands that a switch hears while one command of ours runs, without the verb "api" and the job.
func heardBySwitch(t *testing.T, command func(ctx context.Context, n *Node) error) (lines []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		f, h := newFakeSwitch(), newRecorder()
		f.intercept = func(c *fakeConn, m clientMessage) bool {
			verb, text, _ := strings.Cut(m.line, " ")
			if verb != "api" && verb != "bgapi" || strings.HasPrefix(text, "global_getvar core") || strings.HasPrefix(text, "show") {
				return false
			}
			mu.Lock()
			lines = append(lines, text)
			mu.Unlock()
			switch {
			case verb == "bgapi":
				ev := <-f.eventCh
				f.eventCh <- ev
				c.reply("+OK Job-UUID: " + m.headers["job-uuid"])
				ev.event("BACKGROUND_JOB", "Job-UUID", m.headers["job-uuid"], "_body", "+OK\n")
			case strings.HasSuffix(text, "json_list"):
				c.api(roomReply)
			case strings.Contains(text, "exists"):
				c.api("true")
			default:
				c.api("+OK")
			}
			return true
		}
		n := startNode(t, f, h, nil)
		<-h.up
		require.NoError(t, command(t.Context(), n))
	})
	return lines
}

func TestCommandsRefuseHostileWords(t *testing.T) {
	t.Parallel()
	n, err := NewNode(Config{Addr: "127.0.0.1:1", Password: "x", Handler: &recorder{}})
	require.NoError(t, err)
	ctx := t.Context()
	for _, text := range hostile {
		only := func(_ any, err error) error { return err }
		for field, errs := range map[string][]error{
			"channel_id": {
				n.Park(ctx, text), n.Break(ctx, text), n.Kill(ctx, text, "USER_BUSY"), n.SetVariable(ctx, text, "n", "v"), n.SchedHangup(ctx, text, time.Minute, "USER_BUSY"),
				n.RecordStartWith(ctx, text, "/a.wav", RecordOptions{}), n.RecordStop(ctx, text, "/a.wav"), n.RecordPause(ctx, text, "/a.wav"),
				n.RecordResume(ctx, text, "/a.wav"), n.RecordMask(ctx, text, "/a.wav"), n.RecordUnmask(ctx, text, "/a.wav"), n.BridgeChannels(ctx, text, "b"),
				n.SetRingback(ctx, text, Ringback{}), n.StreamStart(ctx, text, AudioStream{URL: "wss://x", Mix: "mono"}), n.StreamStop(ctx, text), n.Execute(ctx, text, NewEventUUID(), Answer()),
				only(n.Exists(ctx, text)), only(n.Dump(ctx, text)), n.ScheduleKill(ctx, text, "g", time.Minute, "USER_BUSY"), n.Overlay(ctx, text, "/a.wav"),
			},
			"group":            {n.ScheduleKill(ctx, "a", text, time.Minute, "USER_BUSY"), n.Unschedule(ctx, text)},
			"other_channel_id": {n.BridgeChannels(ctx, "a", text)},
			"event_uuid":       {n.Execute(ctx, "a", EventUUIDPrefix+text+" ", Answer())},
			"cause":            {n.Kill(ctx, "a", text), n.SchedHangup(ctx, "a", time.Minute, text), only(SchedHangupApp(time.Minute, text)), n.ScheduleKill(ctx, "a", "g", time.Minute, text)},
			"path": {
				n.RecordStartWith(ctx, "a", text, RecordOptions{}), n.RecordStop(ctx, "a", text), n.RecordPause(ctx, "a", text), n.RecordResume(ctx, "a", text),
				n.RecordMask(ctx, "a", text), n.RecordUnmask(ctx, "a", text), n.ConferenceRecord(ctx, "room", text), n.ConferenceRecordStop(ctx, "room", text), only(Record(text, time.Minute, 0, 0)),
				n.Overlay(ctx, "a", text),
			},
			"conference": {
				n.ConferenceKick(ctx, text, "1"), n.ConferenceMute(ctx, text, "1", true), n.ConferenceMute(ctx, text, "1", false),
				n.ConferenceRecord(ctx, text, "/a.wav"), n.ConferenceRecordStop(ctx, text, "/a.wav"), only(n.ConferenceMembers(ctx, text)), only(ConferenceApp(text, "tandem")),
			},
			"member":   {n.ConferenceKick(ctx, "room", text), n.ConferenceMute(ctx, "room", text, true), n.ConferenceMute(ctx, "room", text, false)},
			"flags":    {only(ConferenceApp("room", "tandem", text))},
			"module":   {only(n.HasModule(ctx, text))},
			"mix":      {n.StreamStart(ctx, "a", AudioStream{URL: "wss://x", Mix: text})},
			"url":      {n.StreamStart(ctx, "a", AudioStream{URL: text, Mix: "mono"}), n.StreamStart(ctx, "a", AudioStream{URL: "wss://" + text + " /", Mix: "mono"})},
			"engine":   {only(Speak(text, "slt", "x")), only(DetectSpeech(recognition(func(r *Recognition) { r.Engine = text })))},
			"voice":    {only(Speak("flite", text, "x"))},
			"language": {only(DetectSpeech(recognition(func(r *Recognition) { r.Language = text })))},
			"tone":     {only(Tone(text, 1)), only(ToneRingback(text)), only(TonePrompt(text))},
			"ringback": {only(FileRingback(text))},
			"file":     {only(FilePrompt(text))},
			"files":    {only(Playback(text)), only(Playback("/a.wav", text))},
			"sip_uri": {
				only(Deflect(text)), only(RedirectApp(text)), only(Deflect("sip:" + text + "@")), only(RedirectApp("sip:a@b;transport=" + text)), only(Deflect("sip:a@" + text + " ")),
			},
			"confirm.key": {only(NewDialGroup(Group{Targets: []Target{{Gateway: "g", Number: "1"}}, Confirm: &Confirm{Key: text + "x", Timeout: time.Second}}))},
		} {
			for i, err := range errs {
				refused := new(InputError)
				require.ErrorAs(t, err, &refused, "%s, case %d, %.40q", field, i, text)
				require.Equal(t, field, refused.Field, "case %d, %.40q", i, text)
				require.True(t, strings.HasPrefix(err.Error(), "esl: "+field+" "), err)
			}
		}
	}
	for field, err := range map[string]error{
		"initial_silence": n.RecordStartWith(ctx, "a", "/a.wav", RecordOptions{InitialSilence: time.Millisecond}),
		"final_silence":   n.RecordStartWith(ctx, "a", "/a.wav", RecordOptions{FinalSilence: 2 * time.Hour}),
		"threshold":       n.RecordStartWith(ctx, "a", "/a.wav", RecordOptions{Threshold: 32768}),
		"after":           n.SchedHangup(ctx, "a", 0, "USER_BUSY"),
		"group":           n.Unschedule(ctx, "17"),
		"url":             n.StreamStart(ctx, "a", AudioStream{URL: "wss://user@x/", Mix: "mono"}),
		"gateway":         n.KillGateway(ctx, "external", "_ALL_"),
	} {
		refused := new(InputError)
		require.ErrorAs(t, err, &refused, field)
		require.Equal(t, field, refused.Field)
	}
	require.ErrorIs(t, n.Park(ctx, "a"), ErrDown)
}

// recognition is a recognition that is taken, changed.
func recognition(change func(*Recognition)) Recognition {
	r := Recognition{Engine: "vosk", Language: "en-US", NoInput: 5 * time.Second, EndSilence: time.Second, Limit: time.Minute}
	change(&r)
	return r
}
