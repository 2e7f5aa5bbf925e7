package dialplan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
	"tandem/models"
)

// TestSimulatedSwitchReadsTheSameFiles holds the simulated switch to what the real one does with our documents.
func TestSimulatedSwitchReadsTheSameFiles(t *testing.T) {
	t.Parallel()
	busy, suspended := number("did_2", "cust_a", "+15550002567"), number("did_3", "cust_a", "+15550003567")
	busy.RouteMode, busy.RejectCode = models.RouteReject, 486
	suspended.Status = models.DIDSuspended
	gateway := outbound("trunk_9", "cust_a", ".one")
	gateway.Password = secret(hostile[7])
	store := &fakeStore{
		trunks: []models.Trunk{gateway, inbound("trunk_1", "cust_a", "127.0.0.2", ""), inbound("trunk_2", "cust_b", "2001:db8::/32", "app_b")},
		dids:   []models.DID{number("did_1", "cust_a", "+15550001567"), busy, suspended},
	}
	confDir := t.TempDir()
	sim, err := simswitch.New(simswitch.Config{Password: "a password", ConfDir: confDir})
	require.NoError(t, err)
	require.NoError(t, sim.Start())
	t.Cleanup(func() { require.NoError(t, sim.Close()) })
	l := connectLive(t, store, sim.Addr(), "a password", confDir)
	require.Equal(t, []string{".one"}, l.gatewayNames(t))

	for _, c := range []struct{ from, number, at, token string }{
		{"127.0.0.2", "15550001567", "+15550001567", "cust_a.trunk_1.did@tandem"},
		{"127.0.0.200", "0015550001567", "+15550001567", "provider.1.did@tandem"},
		{"2001:db8::7", "+15550001567", "+15550001567", "cust_b.trunk_2.any@tandem"},
		{"2001:db8::7", "100", "100", "cust_b.trunk_2.any@tandem"},
	} {
		_, err := sim.CallIn(simswitch.IncomingCall{From: "+15559990000", To: c.number, SourceIP: c.from})
		require.NoError(t, err)
		e := receive(t, l.parks)
		require.Equal(t, c.at, e.Get("Caller-Destination-Number"))
		require.Equal(t, c.token, e.Variable("acl_token"))
		require.NoError(t, l.control.Kill(within(t), e.ChannelID(), "USER_BUSY"))
		require.Equal(t, e.ChannelID(), receive(t, l.ended).ChannelID())
	}
	for _, c := range []struct{ from, number, application string }{
		{"127.0.0.2", "+15550002567", "486"},
		{"127.0.0.2", "+15550003567", refuseSuspended},
		{"127.0.0.2", "+15550009567", refuseUnknown},
		{"127.0.0.2", "+15550009111", refuseUnknown},
		{"127.0.0.9", "+15550001567", refuseUninvited},
	} {
		channel, err := sim.CallIn(simswitch.IncomingCall{From: "+15559990000", To: c.number, SourceIP: c.from})
		require.NoError(t, err)
		e := receive(t, l.ended)
		require.Equal(t, channel, e.ChannelID())
		require.Equal(t, c.application, e.Variable("current_application_data"))
	}
	store.set(func(f *fakeStore) { f.blocks = blocked("127.0.0.8/30") })
	l.sync(t)
	for _, c := range []struct{ from, application string }{{"127.0.0.9", ""}, {"127.0.0.12", refuseUninvited}, {"127.0.0.2", "486"}} {
		_, err := sim.CallIn(simswitch.IncomingCall{From: "+15559990000", To: "+15550002567", SourceIP: c.from})
		require.NoError(t, err)
		require.Equal(t, c.application, receive(t, l.ended).Variable("current_application_data"), c.from)
	}
	store.set(func(f *fakeStore) { f.blocks = nil })
	l.sync(t)
	_, err = sim.CallIn(simswitch.IncomingCall{From: "+15559990000", To: "+15550002567", SourceIP: "127.0.0.9"})
	require.NoError(t, err)
	require.Equal(t, refuseUninvited, receive(t, l.ended).Variable("current_application_data"))
	require.Empty(t, l.parks)
	require.Equal(t, map[Refusal]uint64{RefusedUninvited: 3, RefusedUnknown: 2, RefusedSuspended: 1, RefusedUnsteered: 0, RefusedBlocked: 1}, l.syncer.Refused())
}
