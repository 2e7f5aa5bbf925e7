package simswitch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
)

// A blocked address is refused before the dialplan: all that is told of its call is the end of a channel without a caller profile, as on the real switch.
func TestBlockedAddresses(t *testing.T) {
	t.Parallel()
	dir := layOut(t, map[string]string{
		"tandem/dialplan/public.xml":   parkEverything,
		"tandem/directory/sources.xml": `<domain name="tandem"><user id="a.b.did" cidr="192.0.2.1/32"/></domain>`,
		"tandem/directory/blocks.xml":  `<domain name="tandem_blocked"><groups><group name="00"><users><user id="x" cidr="192.0.2.0/24"/></users></group></groups></domain>`,
	})
	s := start(t, simswitch.Config{ConfDir: dir})
	c := login(t, s.Addr(), password)
	require.Contains(t, c.command("event json CHANNEL_CREATE CHANNEL_PARK CHANNEL_HANGUP_COMPLETE"), "+OK")
	blocked, err := s.CallIn(simswitch.IncomingCall{From: "1", To: "2", SourceIP: "192.0.2.7"})
	require.NoError(t, err)
	end := c.await("the end of the call", named("CHANNEL_HANGUP_COMPLETE", blocked))
	require.Equal(t, []string{"CALL_REJECTED", "inbound", "192.0.2.7"}, []string{end["Hangup-Cause"], end["Call-Direction"], end["variable_sip_from_host"]})
	for _, absent := range []string{"Caller-Direction", "Caller-Network-Addr", "variable_sip_network_ip", "variable_current_application", "variable_acl_token"} {
		require.NotContains(t, end, absent)
	}
	result, err := s.Caller(blocked).Wait(t.Context(), func(r simswitch.Result) bool { return r.Ended })
	require.NoError(t, err)
	require.Equal(t, 403, result.SIPStatus)

	known, err := s.CallIn(simswitch.IncomingCall{From: "1", To: "2", SourceIP: "192.0.2.1"})
	require.NoError(t, err)
	require.Equal(t, "a.b.did@tandem", c.await("the park", named("CHANNEL_PARK", known))["variable_acl_token"], "who is known is asked for first")

	write(t, dir, "tandem/directory/blocks.xml", `<domain name="tandem_blocked"></domain>`)
	require.Equal(t, "+OK acl reloaded\n", c.api("reloadacl"))
	free, err := s.CallIn(simswitch.IncomingCall{From: "1", To: "2", SourceIP: "192.0.2.7"})
	require.NoError(t, err)
	c.await("the park", named("CHANNEL_PARK", free))
}
