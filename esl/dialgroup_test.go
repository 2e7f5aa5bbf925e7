package esl

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDialGroup(t *testing.T) {
	t.Parallel()
	two := []Target{
		{Gateway: "gw1", Number: "+15550100", ChannelID: "11111111-1111-1111-1111-111111111111", CallerIDNumber: "+1555", Timeout: 20 * time.Second},
		{SIPURI: "sip:anna@pbx.example", ChannelID: "22222222-2222-2222-2222-222222222222", Timeout: 15 * time.Second},
	}
	for _, tt := range []struct {
		group Group
		want  string
	}{
		{Group{Targets: []Target{{Gateway: "gw1", Number: "123"}}}, "sofia/gateway/gw1/123"},
		{Group{Targets: two}, "{originate_timeout=25}[origination_uuid=11111111-1111-1111-1111-111111111111,origination_caller_id_number=+1555,leg_timeout=20,bridge_answer_timeout=20]sofia/gateway/gw1/+15550100," +
			"[origination_uuid=22222222-2222-2222-2222-222222222222,leg_timeout=15,bridge_answer_timeout=15]sofia/external/sip:anna@pbx.example"},
		{Group{Targets: []Target{
			{Gateway: "gw1", Number: "123", ChannelID: "11111111-1111-1111-1111-111111111111", Codecs: []string{"PCMA", "AMR-WB"}, Timeout: 20 * time.Second},
			{Gateway: "gw2", Number: "456", Codecs: []string{"PCMU"}}, {Gateway: "gw3", Number: "789", ChannelID: "a"},
		}}, "{originate_timeout=25}[^^:origination_uuid=11111111-1111-1111-1111-111111111111:absolute_codec_string=PCMA,AMR-WB:leg_timeout=20:bridge_answer_timeout=20]sofia/gateway/gw1/123," +
			"[^^:absolute_codec_string=PCMU]sofia/gateway/gw2/456,[origination_uuid=a]sofia/gateway/gw3/789"},
	} {
		dial, err := NewDialGroup(tt.group)
		require.NoError(t, err)
		require.Equal(t, tt.want, dial.String())
	}
}

// Only names of codecs pass, whatever a trunk says.
func TestCodecsAreNames(t *testing.T) {
	t.Parallel()
	only := func(_ any, err error) error { return err }
	for _, bad := range []string{"", "PCMA,PCMU", "PCMA@8000h", "a:b", "a]b", "${x}", "-a", "a b", strings.Repeat("a", 21)} {
		for name, err := range map[string]error{
			"group":     only(NewDialGroup(Group{Targets: []Target{{Gateway: "g", Number: "1", Codecs: []string{"PCMA", bad}}}})),
			"dial":      only(NewDial(Target{Gateway: "g", Number: "1", Codecs: []string{bad}})),
			"originate": only((&Originate{ChannelID: "a", Gateway: "g", Number: "1", Codecs: []string{bad}}).arguments()),
		} {
			require.ErrorIs(t, err, ErrRefusedInput, "%s %q", name, bad)
		}
	}
	_, err := NewDial(Target{Gateway: "g", Number: "1", Codecs: slices.Repeat([]string{"PCMA"}, 17)})
	require.ErrorIs(t, err, ErrRefusedInput)
	args, err := (&Originate{ChannelID: "a", Gateway: "g", Number: "1", Codecs: []string{"PCMA", "G722"}}).arguments()
	require.NoError(t, err)
	require.Contains(t, args, `absolute_codec_string=PCMA`)
	list := strings.TrimPrefix(strings.SplitN(modelSeparate(args, ' ', 8)[0], "}", 2)[0], "{")
	require.Contains(t, modelSeparate(list, ',', 64), "absolute_codec_string=PCMA,G722")
}

func TestWhatIsHeardBeforeJoining(t *testing.T) {
	t.Parallel()
	speech, err := SpeechPrompt("Press 1, please! It's {me}.")
	require.NoError(t, err)
	file, err := FilePrompt("/media/abc.wav")
	require.NoError(t, err)
	target := []Target{{Gateway: "gw1", Number: "123", Timeout: 15 * time.Second}}
	dial, err := NewDialGroup(Group{Targets: target, IgnoreEarlyMedia: true,
		Confirm: &Confirm{Key: "1", Timeout: 10 * time.Second, Engine: "flite", Voice: "slt", Prompt: Prompts(file, speech)}})
	require.NoError(t, err)
	globals, leg, ok := strings.Cut(strings.TrimPrefix(dial.String(), "{"), "}")
	require.True(t, ok)
	require.Equal(t, "[leg_timeout=15,bridge_answer_timeout=15]sofia/gateway/gw1/123", leg)
	require.False(t, strings.ContainsAny(globals, "{}[]<>|^$"), globals)
	vars := map[string]string{}
	for _, pair := range modelSeparate(globals, ',', 64) {
		parts := modelSeparate(pair, '=', 2)
		require.Len(t, parts, 2, pair)
		vars[parts[0]] = parts[1]
	}
	require.Equal(t, map[string]string{
		"group_confirm_key": "1", "group_confirm_timeout": "10", "group_confirm_read_timeout": "3000", "tts_engine": "flite", "tts_voice": "slt",
		"playback_delimiter": "!", "originate_timeout": "30", "ignore_early_media": "true", "group_confirm_file": vars["group_confirm_file"],
	}, vars)
	require.Equal(t, []string{"/media/abc.wav", "say:Press 1, please! It's  me ."}, modelSeparate(vars["group_confirm_file"], '!', 64))

	dial, err = NewDialGroup(Group{Targets: target, Announce: &Announcement{Prompt: file, Engine: "flite", Voice: "slt", Limit: time.Minute}})
	require.NoError(t, err)
	require.Equal(t, "{group_confirm_key=exec,group_confirm_timeout=60,group_confirm_file=playback\\\\s/media/abc.wav,tts_engine=flite,tts_voice=slt,playback_delimiter=!,originate_timeout=80}[leg_timeout=15,bridge_answer_timeout=15]sofia/gateway/gw1/123", dial.String())
}

func TestHoldAndTone(t *testing.T) {
	t.Parallel()
	target := []Target{{Gateway: "gw1", Number: "123", Timeout: 15 * time.Second}}
	dial, err := NewDialGroup(Group{Targets: target, Hold: 6 * time.Second})
	require.NoError(t, err)
	require.Contains(t, dial.String(), `group_confirm_key=exec,group_confirm_timeout=11,group_confirm_file=playback\\ssilence_stream://6000,originate_timeout=31}`)
	_, err = NewDialGroup(Group{Targets: target, Hold: time.Millisecond})
	require.ErrorIs(t, err, ErrRefusedInput)
	dial, err = NewDialGroup(Group{Targets: target, Confirm: &Confirm{Key: "#", Timeout: 5 * time.Second}})
	require.NoError(t, err)
	require.Contains(t, dial.String(), `group_confirm_file=tone_stream://%(200\,100\,640)`)
}

func TestDialGroupRefuses(t *testing.T) {
	t.Parallel()
	target := Target{Gateway: "gw1", Number: "123", Timeout: time.Second}
	speech, err := SpeechPrompt("Hello")
	require.NoError(t, err)
	for field, group := range map[string]Group{
		"targets":          {},
		"number":           {Targets: []Target{{Gateway: "gw1", Number: "1,2"}}},
		"channel_id":       {Targets: []Target{{Gateway: "gw1", Number: "1", ChannelID: "a]b"}}},
		"caller_id_number": {Targets: []Target{{Gateway: "gw1", Number: "1", CallerIDNumber: "1,x=y"}}},
		"confirm.key":      {Targets: []Target{target}, Confirm: &Confirm{Key: "exec", Timeout: time.Second}},
		"confirm.timeout":  {Targets: []Target{target}, Confirm: &Confirm{Key: "1"}},
		"confirm.voice":    {Targets: []Target{target}, Confirm: &Confirm{Key: "1", Timeout: time.Second, Prompt: speech, Engine: "flite", Voice: "a b"}},
		"announce":         {Targets: []Target{target}, Announce: &Announcement{Limit: time.Second}},
		"announce.limit":   {Targets: []Target{target}, Announce: &Announcement{Prompt: speech, Engine: "flite", Voice: "slt"}},
		"hold":             {Targets: []Target{target}, Hold: time.Second, Confirm: &Confirm{Key: "1", Timeout: time.Second}},
		"variables":        {Targets: []Target{target}, Variables: []Var{{"execute_on_answer", "x"}}},
	} {
		_, err := NewDialGroup(group)
		var refused *InputError
		require.ErrorAs(t, err, &refused, field)
		require.Equal(t, field, refused.Field)
	}
	many := make([]Target, maxGroup+1)
	for i := range many {
		many[i] = target
	}
	_, err = NewDialGroup(Group{Targets: many})
	require.ErrorIs(t, err, ErrRefusedInput)
}

func TestRingbacksAndTones(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"%(2000,4000,440,480)", "%(400,200,400,450);%(400,2000,400,450)", "%(274,0,913.8)"} {
		_, err := ToneRingback(spec)
		require.NoError(t, err, spec)
		app, err := Tone(spec, 2)
		require.NoError(t, err, spec)
		require.Equal(t, "tone_stream://"+spec+";loops=2", app.Args())
	}
	for _, spec := range []string{"", "/etc/passwd", "%(1,2)", "%(1,2,440);loops=9", "%(1,2,440) x", "${system(x)}"} {
		_, err := ToneRingback(spec)
		require.Error(t, err, spec)
		_, err = Tone(spec, 1)
		require.Error(t, err, spec)
	}
	_, err := FileRingback("http_cache://x")
	require.Error(t, err)
}
