package simswitch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
)

// TestSoundOneWay: the switch counts no packet of a caller that sends no sound, and ends its call where it has a media timeout.
func TestSoundOneWay(t *testing.T) {
	t.Parallel()
	s, c, _ := parked(t, simswitch.Config{Speed: 20}, simswitch.IncomingCall{})
	for name, tc := range map[string]struct {
		call     string
		cause    string
		received bool
	}{
		"as usual":      {`"hangup_after":8`, "NORMAL_CLEARING", true},
		"no sound":      {`"hangup_after":8,"no_sound":true`, "NORMAL_CLEARING", false},
		"media timeout": {`"hangup_after":60,"no_sound":true,"media_timeout":8`, "MEDIA_TIMEOUT", false},
	} {
		reply := c.api(`sim_call {"from":"+15551111","to":"3002","source_ip":"127.0.0.7",` + tc.call + `}`)
		uuid, found := strings.CutPrefix(strings.TrimSpace(reply), "+OK ")
		require.True(t, found, "%s: %s", name, reply)
		c.await("park", named("CHANNEL_PARK", uuid))
		require.Equal(t, "+OK\n", c.api("uuid_answer "+uuid))
		end := c.await("the end", named("CHANNEL_HANGUP_COMPLETE", uuid))
		require.Equal(t, tc.cause, end["Hangup-Cause"], name)
		sent := end["variable_rtp_audio_out_media_packet_count"]
		require.Regexp(t, `^[4-9]\d\d$`, sent, "%s: 50 a second for 8 s", name)
		if tc.received {
			require.Equal(t, sent, end["variable_rtp_audio_in_media_packet_count"], name)
		} else {
			require.Equal(t, "0", end["variable_rtp_audio_in_media_packet_count"], name)
		}
		_, err := s.Caller(uuid).Wait(within(t), ended)
		require.NoError(t, err)
	}
	refused := strings.TrimPrefix(strings.TrimSpace(c.api(`sim_call {"from":"+15551111","to":"3002","source_ip":"127.0.0.7","cancel_after":0.1,"no_sound":true}`)), "+OK ")
	require.NotContains(t, c.await("the end", named("CHANNEL_HANGUP_COMPLETE", refused)), "variable_rtp_audio_in_media_packet_count", "a channel without media has no statistics")
	for _, wrong := range []string{`"media_timeout":5`, `"no_sound":true,"media_timeout":-1`, `"no_sound":true,"says":[1,1]`, `"no_sound":true,"speech":["a"]`, `"no_sound":true,"talk_for":1`} {
		require.Contains(t, c.api(`sim_call {"from":"+15551111","to":"3002",`+wrong+`}`), "-ERR incoming call: ", wrong)
	}
}
