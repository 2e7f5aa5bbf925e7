package esl

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// carrierHears makes the carrier tell what it hears.
func carrierHears(t *testing.T, c *lab.Carrier, events ...string) *journal {
	t.Helper()
	heard := newJournal()
	n, err := NewNode(Config{Addr: c.ESLAddr, Password: c.Password, Handler: heard, Events: events})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(n.Stop)
	require.NoError(t, n.WaitUp(deadline(t, 20*time.Second)))
	return heard
}

func (j *journal) awaitTB(t *testing.T, what string, fits func(*Event) bool) *Event {
	t.Helper()
	e, err := j.await(deadline(t, 20*time.Second), fits)
	require.NoError(t, err, what)
	return e
}

func TestFreeSWITCHEveryLegOfAGroupShowsItsOwnCallerID(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	heard := carrierHears(t, l.carrier, "CHANNEL_CREATE", "CHANNEL_HANGUP_COMPLETE")
	channel := l.call("+15550000010")
	ringing, _ := ToneRingback("%(400,200,400,450);%(400,2000,400,450)")
	require.NoError(t, l.SetRingback(t.Context(), channel, ringing))
	dump, err := l.Dump(t.Context(), channel)
	require.NoError(t, err)
	require.Equal(t, ringing.String(), dump.Variable("ringback"))
	require.Equal(t, ringing.String(), dump.Variable("transfer_ringback"))

	slow, quick := uuid.NewString(), uuid.NewString()
	value := `O'Brien, "Ltd" = 5; \n a!b`
	dial, err := NewDialGroup(Group{
		Targets: []Target{
			{SIPURI: "sip:+15550000719@" + l.carrier.SIPAddr, ChannelID: slow, CallerIDNumber: "+15550111", Timeout: 20 * time.Second},
			{SIPURI: "sip:+15550000711@" + l.carrier.SIPAddr, ChannelID: quick, CallerIDNumber: "+15550122", Timeout: 20 * time.Second},
		},
		IgnoreEarlyMedia: true, Variables: []Var{{"note", value}, {"sip_h_X-Note", "O'Brien, Ltd = 5; a"}},
	})
	require.NoError(t, err)
	require.NoError(t, l.Execute(t.Context(), channel, NewEventUUID(), Bridge(dial)))
	l.event("CHANNEL_BRIDGE", channel)
	require.Equal(t, "LOSE_RACE", l.event("CHANNEL_HANGUP_COMPLETE", slow).Get("Hangup-Cause"))
	dump, err = l.Dump(t.Context(), quick)
	require.NoError(t, err)
	require.Equal(t, value, dump.Variable("note"))
	for number, from := range map[string]string{"+15550000719": "+15550111", "+15550000711": "+15550122"} {
		e := heard.awaitTB(t, number, func(e *Event) bool { return e.Get("Caller-Destination-Number") == number })
		require.Equal(t, from, e.Get("Caller-Caller-ID-Number"), "the From of %s", number)
	}
	e := heard.awaitTB(t, "the end of the slow leg", func(e *Event) bool {
		return e.Name() == "CHANNEL_HANGUP_COMPLETE" && e.Get("Caller-Destination-Number") == "+15550000719"
	})
	require.Equal(t, "+15550111", e.Variable("sip_from_user"))
	require.Equal(t, "O'Brien, Ltd = 5; a", e.Variable("sip_h_X-Note"))

	// Torn out of the bridge, the caller is parked again.
	require.NoError(t, l.Park(t.Context(), channel))
	l.event("CHANNEL_HANGUP_COMPLETE", quick)
	exists, err := l.Exists(t.Context(), channel)
	require.NoError(t, err)
	require.True(t, exists)
}

func TestFreeSWITCHWhoeverAnswersIsAskedForAKey(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	prompt, err := SpeechPrompt(`Press 1, O'Brien! "It's" {me}; a=b, [x] ${system(touch /tmp/x)}`)
	require.NoError(t, err)
	for number, bridged := range map[string]bool{"+15550000731": true, "+15550000732": false} {
		channel, leg := l.call("+15550000010"), uuid.NewString()
		dial, err := NewDialGroup(Group{
			Targets: []Target{{SIPURI: "sip:" + number + "@" + l.carrier.SIPAddr, ChannelID: leg, Timeout: 10 * time.Second}},
			Confirm: &Confirm{Key: "1", Timeout: 6 * time.Second, Prompt: prompt, Engine: "flite", Voice: "slt"}, IgnoreEarlyMedia: true,
		})
		require.NoError(t, err)
		if bridged {
			require.NoError(t, l.Execute(t.Context(), channel, NewEventUUID(), Bridge(dial)))
			l.event("CHANNEL_BRIDGE", channel)
		} else {
			done := l.run(channel, Bridge(dial), nil)
			require.Empty(t, done.Variable("bridge_uuid"))
			require.NotEqual(t, "SUCCESS", done.Variable("originate_disposition"))
		}
		e, err := l.heard.await(deadline(t, 10*time.Second), func(e *Event) bool { return e.Name() == "DTMF" && e.ChannelID() == leg })
		require.NoError(t, err)
		require.Equal(t, number[len(number)-1:], e.Get("DTMF-Digit"))
	}
}

func TestFreeSWITCHDialsOnWithDigits(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	heard := carrierHears(t, l.carrier, "DTMF")
	channel := l.call("+15550000723")
	app, err := SendDTMF("12A#w9*", 120*time.Millisecond)
	l.run(channel, app, err)
	var digits strings.Builder
	_, err = heard.await(deadline(t, 20*time.Second), func(e *Event) bool {
		digits.WriteString(e.Get("DTMF-Digit"))
		return strings.HasSuffix(digits.String(), "*")
	})
	require.NoError(t, err, digits.String())
	require.Equal(t, "12A#9*", digits.String())
}

func TestFreeSWITCHTwoChannelsAreConnected(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	keep := Var{"park_after_bridge", "true"}
	first, second := l.call("+15550000010", keep), l.call("+15550000723", keep)
	require.NoError(t, l.BridgeChannels(t.Context(), first, second))
	e := l.event("CHANNEL_BRIDGE", first)
	require.Equal(t, second, e.Get("Other-Leg-Unique-ID"))
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the switch writes its tables behind
		tally, err := l.Tally(t.Context())
		require.NoError(c, err)
		require.Equal(c, Tally{Calls: 1, BridgedCalls: 1}, tally)
	}, 10*time.Second, 50*time.Millisecond)
	require.NoError(t, l.Kill(t.Context(), second, "NORMAL_CLEARING"))
	l.event("CHANNEL_UNBRIDGE", first)
	l.event("CHANNEL_HANGUP_COMPLETE", second)
	app, err := Silence(50 * time.Millisecond)
	l.run(first, app, err)
	require.Error(t, l.BridgeChannels(t.Context(), first, second), "whoever has gone cannot be bridged")
}
