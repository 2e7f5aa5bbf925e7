package dialplan

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

// invitedExample is example with trunks of every kind.
func invitedExample() Input {
	in := example()
	in.Trunks = append(in.Trunks,
		inbound("trunk_20", "cust_b", "203.0.113.40", ""),
		inbound("trunk_21", "cust_z", "198.51.0.0/16", "app_z"),
		inbound("trunk_22", "cust_z", "::ffff:203.0.113.50", "app_z"),
		inbound("trunk_23", "cust_z", "2001:db8:ffff::7", ""), // a provider's
	)
	return in
}

// TestExplanationIsWhatTheNodesDo holds Explain to a model of the switch that has everything loaded.
func TestExplanationIsWhatTheNodesDo(t *testing.T) {
	t.Parallel()
	in := invitedExample()
	rendering, err := Render(in)
	require.NoError(t, err)
	w := newWorld(t, rendering.Files)
	s, err := NewSyncer(Config{Store: &fakeStore{trunks: in.Trunks, dids: in.DIDs}, Providers: in.Providers})
	require.NoError(t, err)
	addresses := []string{
		"203.0.113.7", "203.0.113.40", "203.0.113.50", "203.0.113.99", "2001:db8:1::9", "2001:db8:ffff::1", "2001:db8:ffff::7", "198.51.1.1", "198.51.100.7", "198.51.100.200",
		"192.0.2.1", "192.0.2.77", "::ffff:203.0.113.7", "9.9.9.9",
	}
	numbers := []string{
		"+15550001567", "15550001567", "0015550001567", "+15550002567", "+15550003567", "+15550004567", "+15550004111", "+4930123456", "+4930123499",
		"1001", "alice", "", "100", "+100", "*97", "030123456", "$1${x}\n", "+155500015670000000",
	}
	outcomes := map[string]int{}
	for _, address := range addresses {
		for _, dialed := range numbers {
			x, err := s.Explain(t.Context(), dialed, netip.MustParseAddr(address))
			require.NoError(t, err)
			for _, asked := range []struct {
				accept string
				got    Outcome
			}{{"true", x.Outcome}, {"", x.Unsteered}, {"false", x.Unsteered}} {
				w.taken = asked.accept
				application, data, at := w.call(t, address, dialed)
				require.Equal(t, outcome([]Step{{Application: application, Data: data}}), asked.got, "%s calls %q", address, dialed)
				if asked.accept == "true" {
					last := x.Steps[len(x.Steps)-1]
					require.Equal(t, []string{application, data, at}, []string{last.Application, last.Data, last.Destination})
					outcomes[asked.got.Kind]++
				}
			}
			require.Equal(t, w.token(address), x.Token)
			require.NotEmpty(t, x.Why)
		}
	}
	require.Len(t, outcomes, 3, "every kind of outcome was met: %v", outcomes)
}

func TestExplanationSaysWhy(t *testing.T) {
	t.Parallel()
	in := invitedExample()
	broken := number("did_9", "cust_a", "+15550009567")
	broken.RouteMode, broken.SIPURI = models.RouteSIP, "sip:no host"
	in.DIDs = append(in.DIDs, broken)
	store := &fakeStore{trunks: in.Trunks, dids: in.DIDs}
	s, err := NewSyncer(Config{Store: store, Providers: in.Providers})
	require.NoError(t, err)
	for _, c := range []struct {
		from, number string
		why          []string
	}{
		{"203.0.113.7", "+15550001567", []string{
			"203.0.113.7 is an address of trunk trunk_10 of customer cust_a",
			"+15550001567 is number did_1 of customer cust_a, with route_mode webhook",
			"the call is given to the controller, which asks the application",
			"while no controller takes calls it is refused with SIP status 503 Not Taking Calls",
		}},
		{"203.0.113.7", "+4930123499", []string{
			"203.0.113.7 is an address of trunk trunk_10 of customer cust_a",
			"+4930123499 is number did_5 of customer cust_a and suspended",
			"the call is refused with SIP status 480 Number Suspended",
			"the switch decides that by itself, also while no controller takes calls",
		}},
		{"203.0.113.40", "15550001567", []string{
			"203.0.113.40 is an address of trunk trunk_20 of customer cust_b",
			"+15550001567 is number did_1 of customer cust_a, with route_mode webhook",
			"a customer's trunk may call that customer's numbers only",
			"the call is refused with SIP status 404 Number Not Served",
		}},
		{"2001:db8:1::9", "100", []string{
			"2001:db8:1::9 is an address of trunk trunk_11 of customer cust_b",
			`"100" is no number in E.164 form, with or without its plus or with 00 in its place`,
			"the trunk has an application of its own, app_b, for what is no number of its customer",
			"the call is given to the controller, which asks the application",
		}},
		{"203.0.113.99", "+15550002567", []string{
			"203.0.113.99 is an address of trunk trunk_12 of customer cust_c, which is not active",
			"+15550002567 is number did_2 of customer cust_a, with route_mode sip",
			"calls from an address that nobody has named are refused, whatever they dial",
			"the call is refused with SIP status 403 Source Not Invited",
		}},
		{"9.9.9.9", "+15550002567", []string{"9.9.9.9 is no address of an inbound trunk or of a provider"}},
		{"2001:db8:ffff::7", "+15550002567", []string{
			"2001:db8:ffff::7 belongs to the provider network 2001:db8:ffff::/48, which may call every number",
			"+15550002567 is number did_2 of customer cust_a, with route_mode sip",
			"trunk trunk_23 is not as configured on the nodes: inbound_ip 2001:db8:ffff::7/128 belongs to a provider",
			"the call is connected with sip:alice@pbx.example.com:5061;transport=tcp",
			"the switch decides that by itself, also while no controller takes calls",
		}},
		{"203.0.113.7", "+15550009567", []string{
			"203.0.113.7 is an address of trunk trunk_10 of customer cust_a",
			"+15550009567 is number did_9 of customer cust_a, with route_mode sip",
		}},
	} {
		x, err := s.Explain(t.Context(), c.number, netip.MustParseAddr(c.from))
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(x.Why), len(c.why))
		require.Equal(t, c.why, x.Why[:len(c.why)])
	}
	x, err := s.Explain(t.Context(), "+15550009567", netip.MustParseAddr("203.0.113.7"))
	require.NoError(t, err)
	require.Len(t, x.Problems, 1)
	require.Contains(t, strings.Join(x.Why, "\n"), "did did_9 is not as configured on the nodes")
	require.Equal(t, 480, x.Outcome.SIPStatus)

	store.err = errStore
	_, err = s.Explain(t.Context(), "+15550001567", netip.MustParseAddr("203.0.113.7"))
	require.ErrorIs(t, err, errStore)
}

// FuzzExplain follows any number from any address: whatever is dialed, the call ends in one outcome that the switch comes to as well.
func FuzzExplain(f *testing.F) {
	for _, seed := range []string{"+15550001567", "0015550002567", "alice", "", "${acl_token}", "$1", "did_567", "(", "+1555000156\u0667"} {
		f.Add(seed, []byte{203, 0, 113, 7})
	}
	in := invitedExample()
	rendering, err := Render(in)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, dialed string, from []byte) {
		addr, ok := netip.AddrFromSlice(from)
		if !ok {
			return
		}
		s, err := NewSyncer(Config{Store: &fakeStore{trunks: in.Trunks, dids: in.DIDs}, Providers: in.Providers})
		require.NoError(t, err)
		x, err := s.Explain(t.Context(), dialed, addr)
		require.NoError(t, err)
		application, data, _ := newWorld(t, rendering.Files).call(t, addr.Unmap().String(), dialed)
		require.Equal(t, outcome([]Step{{Application: application, Data: data}}), x.Outcome)
	})
}

// TestExplanationOfABridge: the target is the URI as it is stored, whatever its scheme.
func TestExplanationOfABridge(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{"sip:alice@example.com;transport=tcp", "sips:alice@example.com", "sips:[2001:db8::5]:5061"} {
		did := number("did_1", "cust_a", "+15550001567")
		did.RouteMode, did.SIPURI = models.RouteSIP, uri
		s, err := NewSyncer(Config{Store: &fakeStore{trunks: []models.Trunk{inbound("trunk_1", "cust_a", "203.0.113.7", "")}, dids: []models.DID{did}}})
		require.NoError(t, err)
		x, err := s.Explain(t.Context(), "+15550001567", netip.MustParseAddr("203.0.113.7"))
		require.NoError(t, err)
		require.Equal(t, Outcome{Kind: OutcomeBridge, Target: uri}, x.Outcome)
	}
}
