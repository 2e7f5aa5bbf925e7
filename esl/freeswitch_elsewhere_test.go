package esl

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

func TestFreeSWITCHCallersAreSentElsewhere(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{Edit: parksEverybody})
	heard := carrierHears(t, l.carrier, "CHANNEL_CREATE", "CHANNEL_HANGUP_COMPLETE")

	// 302 before the answer.
	leg, err := l.carrier.Call(t.Context(), lab.Caller{From: "+15551111111", To: "+15550000003", NodeSIP: l.node.SIPAddr})
	require.NoError(t, err)
	parked, err := l.heard.await(deadline(t, 20*time.Second), func(e *Event) bool { return e.Name() == "CHANNEL_PARK" })
	require.NoError(t, err)
	const elsewhere = "sip:a.b~c+1@127.0.0.1:9;transport=udp"
	app, err := RedirectApp(elsewhere)
	require.NoError(t, err)
	require.NoError(t, l.Execute(t.Context(), parked.ChannelID(), NewEventUUID(), app))
	l.event("CHANNEL_HANGUP_COMPLETE", parked.ChannelID())
	outcome, err := leg.Ended(deadline(t, 20*time.Second))
	require.NoError(t, err)
	require.False(t, outcome.Answered)
	e := heard.awaitTB(t, "the end of the redirected call", func(e *Event) bool { return e.Name() == "CHANNEL_HANGUP_COMPLETE" && e.ChannelID() == leg.UUID })
	require.Contains(t, e.Variable("sip_redirect_contact_0")+e.Variable("sip_redirected_to"), elsewhere)

	// REFER after it: the carrier takes it and calls the number itself.
	channel := l.call("+15550000010")
	app, err = Deflect("sip:+15550000723@" + l.carrier.SIPAddr)
	require.NoError(t, err)
	require.NoError(t, l.Execute(t.Context(), channel, NewEventUUID(), app))
	end := l.event("CHANNEL_HANGUP_COMPLETE", channel)
	require.Equal(t, "202", end.Variable("sip_refer_status_code"))
	require.Equal(t, "BLIND_TRANSFER", end.Get("Hangup-Cause"))
}
