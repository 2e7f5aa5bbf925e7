package lab_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// Until Tandem has written who may call in, nobody may.
func TestFreeSWITCHStrangersAreRefused(t *testing.T) {
	t.Parallel()
	node := lab.StartNode(t, lab.Options{Edit: gateways(map[string]string{"acme": `<param name="proxy" value="127.0.0.1:9"/><param name="register" value="false"/>`})})
	watch := node.Probe(t)
	require.NoError(t, watch.Subscribe(t.Context(), "CHANNEL_PARK", "CHANNEL_ANSWER", "CHANNEL_HANGUP_COMPLETE"))
	for _, r := range []lab.Request{
		{To: "+15550000001"},
		{To: "+15550000001", Local: "127.0.0.2"},
		{To: "park"},
		{To: "1", URI: "sip:1@" + node.SIPAddr + ";gw=acme"},
		{To: "1", Headers: []string{`Authorization: Digest username="acme", realm="x", nonce="x", uri="sip:1", response="x"`}},
		{To: "%24%7Bsystem(touch%20x)%7D"},
	} {
		r.NodeSIP = node.SIPAddr
		status, err := lab.SendRequest(seconds(t, 10), r)
		require.NoError(t, err, r)
		require.Equal(t, 403, status, r)
		event, err := watch.Next(seconds(t, 10))
		require.NoError(t, err)
		require.Equal(t, "CHANNEL_HANGUP_COMPLETE", event.Event("Event-Name"))
	}
}

func TestFreeSWITCHNothingButCallsIsHeard(t *testing.T) {
	t.Parallel()
	node := lab.StartNode(t, lab.Options{Edit: parksEverybody})
	watch := node.Probe(t)
	require.NoError(t, watch.Subscribe(t.Context(), "all"))
	for _, r := range []lab.Request{
		{Method: "MESSAGE", To: "api", Body: "status", ContentType: "text/plain"},
		{Method: "MESSAGE", To: "api+system", Body: "touch x", ContentType: "text/plain"},
		{Method: "MESSAGE", To: "chat", Body: "status", ContentType: "text/plain"},
		{Method: "REGISTER", To: "acme"},
		{Method: "SUBSCRIBE", To: "acme", Headers: []string{"Event: presence", "Expires: 60"}},
		{Method: "REFER", To: "acme", Headers: []string{"Refer-To: <sip:1@127.0.0.1>"}},
		{Method: "PUBLISH", To: "acme", Headers: []string{"Event: presence"}, Body: "x", ContentType: "text/plain"},
		{Method: "NOTIFY", To: "acme", Headers: []string{"Event: check-sync", "Subscription-State: active"}},
	} {
		r.NodeSIP = node.SIPAddr
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		status, err := lab.SendRequest(ctx, r)
		cancel()
		t.Logf("%s to %s: %d, %v", r.Method, r.To, status, err)
		// A MESSAGE is answered 202 by the SIP stack and then dropped (sofia_presence.c: enable-chat is off).
		if err == nil && r.Method != "MESSAGE" {
			require.GreaterOrEqual(t, status, 400, r)
		}
	}
	// None of them became an event of its own, which the call after them shows, since events come in order.
	_, err := lab.SendRequest(seconds(t, 2), lab.Request{NodeSIP: node.SIPAddr, To: "last"})
	require.Error(t, err, "a parked call has no final response")
	for {
		event, err := watch.Next(seconds(t, 10))
		require.NoError(t, err)
		name := event.Event("Event-Name")
		require.NotContains(t, []string{"MESSAGE", "SEND_MESSAGE", "PRESENCE_IN", "PRESENCE_PROBE", "NOTIFY"}, name)
		require.NotContains(t, event.Event("Event-Subclass"), "sofia::register")
		if name == "CHANNEL_PARK" {
			return
		}
	}
}

// A carrier's redirection ends the leg; it is not followed to wherever it points.
func TestFreeSWITCHRedirectionIsNotFollowed(t *testing.T) {
	t.Parallel()
	node := lab.StartNode(t, lab.Options{})
	redirector, asked := redirects(t, "sip:+15559999999@"+node.SIPAddr)
	probe := node.Probe(t)
	reply, err := probe.API(seconds(t, 20), "originate sofia/external/+15550000001@"+redirector+" &park()")
	require.NoError(t, err)
	require.Contains(t, reply, "-ERR")
	require.Equal(t, int64(1), asked.Load())
}
