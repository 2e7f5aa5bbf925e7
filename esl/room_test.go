package esl

import (
	"testing"

	"github.com/percipia/eslgo/command"
	"github.com/stretchr/testify/require"
)

func TestConferenceApp(t *testing.T) {
	t.Parallel()
	app, err := ConferenceApp("conf_1", "tandem")
	require.NoError(t, err)
	require.Equal(t, []string{"conference", "conf_1@tandem"}, []string{app.Name(), app.Args()})
	app, err = ConferenceApp("conf_1", "tandem", "moderator", "mute")
	require.NoError(t, err)
	require.Equal(t, "conf_1@tandem+flags{moderator|mute}", app.Args())
	for _, room := range []string{"", "a b", "a+1234", "a@other", "bridge:a", "a\nb", "${x}"} {
		_, err = ConferenceApp(room, "tandem")
		require.ErrorIs(t, err, ErrRefusedInput, "%q", room)
	}
	_, err = ConferenceApp("conf_1", "tandem", "mute}x")
	require.ErrorIs(t, err, ErrRefusedInput)
	_, err = ConferenceApp("conf_1", "tan dem")
	require.ErrorIs(t, err, ErrRefusedInput)
	_, err = ConferenceApp("conf_1", "tandem", make([]string, 11)...)
	require.ErrorIs(t, err, ErrRefusedInput)
}

func TestRoomCommandsRefuseWhatIsNoName(t *testing.T) {
	t.Parallel()
	n, err := NewNode(Config{Addr: "127.0.0.1:1", Password: "x", Handler: &recorder{}})
	require.NoError(t, err)
	ctx := t.Context()
	for what, err := range map[string]error{
		"kick all":        n.ConferenceKick(ctx, "conf_1", "all"),
		"kick a sound":    n.ConferenceKick(ctx, "conf_1", "1 /sound.wav"),
		"mute everywhere": n.ConferenceMute(ctx, "conf_1", "non_moderator", true),
		"unmute no room":  n.ConferenceMute(ctx, "", "1", false),
		"record all":      n.ConferenceRecord(ctx, "conf_1", "a b"),
		"stop all":        n.ConferenceRecordStop(ctx, "conf_1", "{x}"),
		"bridge":          n.BridgeChannels(ctx, "a b", "c"),
		"bridge other":    n.BridgeChannels(ctx, "a", "c d"),
	} {
		require.ErrorIs(t, err, ErrRefusedInput, what)
	}
	_, err = n.ConferenceMembers(ctx, "conf 1")
	require.ErrorIs(t, err, ErrRefusedInput)
	require.ErrorIs(t, n.ConferenceKick(ctx, "conf_1", "1"), ErrDown)
}

func TestParseMembers(t *testing.T) {
	t.Parallel()
	// As a FreeSWITCH 1.10.12 answers, shortened.
	members, err := parseMembers("[{\n\t\"conference_name\":\t\"conf_1\",\n\"members\":\t[{\n\"type\":\t\"recording_node\",\"record_path\":\"/r.wav\",\"join_time\":1}, {\n" +
		"\"type\":\"caller\",\"id\":6,\"flags\":{\"can_hear\":true,\"can_speak\":false},\"uuid\":\"u-6\",\"caller_id_name\":\"a;b \xff\"},{\"type\":\"caller\",\"id\":7,\"flags\":{\"can_speak\":true},\"uuid\":\"u-7\"}]}]")
	require.NoError(t, err)
	require.Equal(t, []ConferenceMember{{ID: "6", ChannelID: "u-6", Muted: true}, {ID: "7", ChannelID: "u-7"}}, members)
	members, err = parseMembers("[]")
	require.NoError(t, err)
	require.Empty(t, members)
	_, err = parseMembers("-USAGE")
	require.Error(t, err)
}

func FuzzParseMembers(f *testing.F) {
	f.Add(`[{"members":[{"id":1,"uuid":"u","flags":{"can_speak":true}}]}]`)
	f.Add(`[{"members":null}]`)
	f.Add(`[{"members":[{"id":"x"}]}]`)
	f.Fuzz(func(t *testing.T, doc string) {
		members, err := parseMembers(doc)
		if err != nil {
			return
		}
		for _, m := range members {
			require.NotEmpty(t, m.ChannelID)
		}
	})
}

func TestSubclassFilters(t *testing.T) {
	t.Parallel()
	list := filters([]string{"CHANNEL_PARK", "CUSTOM", "a::b", "conference::maintenance"})
	require.Equal(t, []command.Filter{
		{EventHeader: "Application-UUID", FilterValue: "/^tandem-/"}, {EventHeader: "Event-Name", FilterValue: "CHANNEL_PARK"},
		{EventHeader: "Event-Subclass", FilterValue: "a::b"}, {EventHeader: "Action", FilterValue: "add-member"}, {EventHeader: "Action", FilterValue: "del-member"},
	}, list)
	require.Contains(t, filters([]string{"CUSTOM"}), command.Filter{EventHeader: "Event-Name", FilterValue: "CUSTOM"})
}
