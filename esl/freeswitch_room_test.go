package esl

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// size is how large a file is; 0 where there is none.
func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func TestFreeSWITCHRooms(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	const room = "conf_A-1.b"
	_, err := l.ConferenceMembers(t.Context(), room)
	refused := new(CommandError)
	require.ErrorAs(t, err, &refused)

	first, second := l.call("+15550000010"), l.call("+15550000702")
	firstDone, secondDone := NewEventUUID(), NewEventUUID()
	app, err := ConferenceApp(room, "tandem", "moderator")
	require.NoError(t, err)
	require.NoError(t, l.Execute(t.Context(), first, firstDone, app))
	app, err = ConferenceApp(room, "tandem", "mute")
	require.NoError(t, err)
	require.NoError(t, l.Execute(t.Context(), second, secondDone, app))
	member := func(channel, action string) string {
		e, err := l.heard.await(deadline(t, 20*time.Second), func(e *Event) bool {
			return e.Subclass() == "conference::maintenance" && e.ChannelID() == channel && e.Get("Action") == action
		})
		require.NoError(t, err)
		require.Equal(t, room, e.Get("Conference-Name"))
		return e.Get("Member-ID")
	}
	one, two := member(first, "add-member"), member(second, "add-member")
	members, err := l.ConferenceMembers(t.Context(), room)
	require.NoError(t, err)
	require.ElementsMatch(t, []ConferenceMember{{ID: one, ChannelID: first}, {ID: two, ChannelID: second, Muted: true}}, members)

	require.NoError(t, l.ConferenceMute(t.Context(), room, two, false))
	require.NoError(t, l.ConferenceMute(t.Context(), room, one, true))
	members, err = l.ConferenceMembers(t.Context(), room)
	require.NoError(t, err)
	require.ElementsMatch(t, []ConferenceMember{{ID: one, ChannelID: first, Muted: true}, {ID: two, ChannelID: second}}, members)

	file := filepath.Join(l.node.ConfDir, "tandem", "room.wav")
	require.NoError(t, l.ConferenceRecord(t.Context(), room, file))
	require.Eventually(t, func() bool { return size(file) > 4000 }, 15*time.Second, 50*time.Millisecond)
	members, err = l.ConferenceMembers(t.Context(), room)
	require.NoError(t, err)
	require.Len(t, members, 2, "a recording is no member")
	require.NoError(t, l.ConferenceRecordStop(t.Context(), room, file))

	require.ErrorAs(t, l.ConferenceKick(t.Context(), room, "4000000000"), &refused)
	require.ErrorAs(t, l.ConferenceKick(t.Context(), "no_such_room", one), &refused)
	require.NoError(t, l.ConferenceKick(t.Context(), room, two))
	require.Equal(t, two, member(second, "del-member"))
	l.completion(secondDone)
	exists, err := l.Exists(t.Context(), second)
	require.NoError(t, err)
	require.True(t, exists, "who is kicked goes on")
	require.NoError(t, l.Park(t.Context(), first))
	require.Equal(t, one, member(first, "del-member"))
	l.completion(firstDone)
}

func TestFreeSWITCHRecordingIsPausedAndMasked(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	channel := l.call("+15550000702")
	file := filepath.Join(l.node.ConfDir, "tandem", "it~is+1_a-b.wav")
	ctx := t.Context()
	require.NoError(t, l.RecordStartWith(ctx, channel, file, RecordOptions{Stereo: true}))
	silence, err := Silence(time.Second)
	require.NoError(t, err)
	l.run(channel, silence, nil)
	require.NoError(t, l.RecordMask(ctx, channel, file))
	l.run(channel, silence, nil)
	require.NoError(t, l.RecordUnmask(ctx, channel, file))
	require.NoError(t, l.RecordPause(ctx, channel, file))
	l.run(channel, silence, nil)
	l.run(channel, silence, nil)
	require.NoError(t, l.RecordResume(ctx, channel, file))
	l.run(channel, silence, nil)
	require.NoError(t, l.RecordStop(ctx, channel, file))
	stop := l.event("RECORD_STOP", channel)
	require.Equal(t, file, stop.Get("Record-File-Path"))
	wav, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, byte(2), wav[22], "two channels")
	seconds := float64(len(wav)-44) / (8000 * 2 * 2)
	require.InDelta(t, 3, seconds, 0.9, "the two seconds of the pause are left out, the masked one is not")
	// The left side is a tone, but for the masked second.
	loud := func(from, to float64) (peak int) {
		for at := 44 + int(from*8000)*4; at+1 < 44+int(to*8000)*4 && at+1 < len(wav); at += 4 {
			peak = max(peak, int(int16(uint16(wav[at])|uint16(wav[at+1])<<8)))
		}
		return peak
	}
	require.Greater(t, loud(0.3, 0.7), 1000)
	require.Less(t, loud(1.3, 1.7), 100)
	require.Greater(t, loud(seconds-0.5, seconds-0.1), 1000)
}

func TestFreeSWITCHModulesAndBeeps(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	for module, loaded := range map[string]bool{"mod_flite": true, "mod_avmd": true, "mod_conference": true, "mod_shell_stream": false, "mod_audio_stream": false} {
		has, err := l.HasModule(t.Context(), module)
		require.NoError(t, err)
		require.Equal(t, loaded, has, module)
	}
	channel := l.call("+15550000721") // a greeting of some nine seconds, then the beep
	require.Error(t, l.StreamStart(t.Context(), channel, AudioStream{URL: "wss://127.0.0.1/", Mix: "mono"}), "without the module")
	l.run(channel, AVMDStart(), nil)
	e, err := l.heard.await(deadline(t, 30*time.Second), func(e *Event) bool { return e.Subclass() == "avmd::beep" && e.ChannelID() == channel })
	require.NoError(t, err)
	require.Equal(t, "DETECTED", e.Get("Beep-Status"))
	l.run(channel, AVMDStop(), nil)
	for _, spec := range []string{"%(200,0,440)", "%(100,50,440,480);%(100,0,913.8)"} {
		app, err := Tone(spec, 2)
		require.Equal(t, "FILE PLAYED", l.run(channel, app, err).Get("Application-Response"), spec)
	}
	app, err := DetectSpeech(recognition(func(*Recognition) {}))
	require.Equal(t, "ASR INIT ERROR", l.run(channel, app, err).Get("Application-Response"))
}
