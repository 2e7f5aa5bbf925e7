package sipprobe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestResolve goes through RFC 3263 §4: what is given decides, then NAPTR, then SRV, then the addresses.
func TestResolve(t *testing.T) {
	t.Parallel()
	address, resolver := startDNS(t,
		`naptr.example. 60 IN NAPTR 20 10 "s" "SIP+D2U" "" _sip._udp.naptr.example.`,
		`naptr.example. 60 IN NAPTR 10 20 "s" "SIP+D2T" "" _sip._tcp.naptr.example.`,
		`naptr.example. 60 IN NAPTR 10 10 "s" "SIPS+D2T" "" _sips._tcp.naptr.example.`,
		`naptr.example. 60 IN NAPTR 10 5 "u" "E2U+sip" "!^.*$!sip:info@example!" .`,
		`_sips._tcp.naptr.example. 60 IN SRV 10 10 5071 one.example.`,
		`_sip._tcp.naptr.example. 60 IN SRV 20 10 5070 two.example.`,
		`_sip._tcp.naptr.example. 60 IN SRV 10 10 5072 one.example.`,
		`_sip._udp.srv.example. 60 IN SRV 10 10 5090 one.example.`,
		`_sip._tcp.srv.example. 60 IN SRV 10 10 5091 two.example.`,
		`one.example. 60 IN A 192.0.2.1`, `two.example. 60 IN A 192.0.2.2`, `two.example. 60 IN AAAA 2001:db8::2`,
		`plain.example. 60 IN A 192.0.2.3`,
		`none.example. 60 IN A 192.0.2.9`, `_sip._udp.none.example. 60 IN SRV 0 0 0 .`,
	)
	p := New(Config{Resolver: resolver, NameServers: []string{address}, Patience: 4 * time.Second})
	for name, tt := range map[string]struct {
		target Target
		places []string
		says   string
	}{
		"address":         {Target{Host: "192.0.2.7"}, []string{"192.0.2.7:5060 (udp)"}, "DNS has no part in it"},
		"IPv6":            {Target{Host: "[2001:db8::7]", Transport: TLS}, []string{"[2001:db8::7]:5061 (tls)"}, "DNS has no part in it"},
		"port":            {Target{Host: "srv.example", Port: 5070}, nil, "neither NAPTR nor SRV"},
		"port of a host":  {Target{Host: "one.example", Port: 5070, Transport: TCP}, []string{"192.0.2.1:5070 (tcp)"}, "neither NAPTR nor SRV"},
		"transport":       {Target{Host: "srv.example", Transport: TCP}, []string{"192.0.2.2:5091 (tcp)", "[2001:db8::2]:5091 (tcp)"}, "SRV _sip._tcp.srv.example: 10 10 5091 two.example"},
		"no SRV":          {Target{Host: "plain.example", Transport: TLS}, []string{"192.0.2.3:5061 (tls)"}, "SRV _sips._tcp.plain.example: no such record"},
		"NAPTR":           {Target{Host: "naptr.example"}, []string{"192.0.2.1:5071 (tls)", "192.0.2.1:5072 (tcp)", "192.0.2.2:5070 (tcp)", "[2001:db8::2]:5070 (tcp)"}, `NAPTR naptr.example: 10 10 "s" "SIPS+D2T"`},
		"SRV":             {Target{Host: "srv.example"}, []string{"192.0.2.1:5090 (udp)", "192.0.2.2:5091 (tcp)", "[2001:db8::2]:5091 (tcp)"}, "NAPTR srv.example: no such record"},
		"nothing but A":   {Target{Host: "plain.example"}, []string{"192.0.2.3:5060 (udp)"}, "SRV _sip._udp.plain.example: no such record"},
		"nothing":         {Target{Host: "nowhere.example"}, nil, "A, AAAA nowhere.example: no such record"},
		"decidedly not":   {Target{Host: "none.example"}, []string{"192.0.2.9:5060 (udp)"}, "SRV _sip._udp.none.example: 0 0 0"},
		"a trailing dot?": {Target{Host: "plain.example."}, []string{"192.0.2.3:5060 (udp)"}, "192.0.2.3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := p.Resolve(t.Context(), tt.target)
			var places []string
			for _, place := range found.Places {
				places = append(places, place.String())
			}
			require.Equal(t, len(tt.places) == 0, err != nil, "%v", err)
			require.ElementsMatch(t, tt.places, places)
			if len(tt.places) > 0 && tt.target.Port == 0 {
				require.Equal(t, tt.places[0], places[0])
			}
			require.Contains(t, strings.Join(found.Records, "\n"), tt.says)
			require.NotContains(t, strings.Join(found.Records, "\n"), address, "our name servers are nobody's business")
		})
	}

	// Name servers that are not there are no reason to give up.
	lame := New(Config{Resolver: resolver, NameServers: []string{"127.0.0.1:1"}, Patience: time.Second})
	found, err := lame.Resolve(t.Context(), Target{Host: "srv.example"})
	require.NoError(t, err)
	require.Contains(t, found.Records[0], "the name server did not answer")
	require.NotEmpty(t, found.Places)
}

// TestResolveEnds: whoever owns the zone has us look for so much and no more, and keeps no more of our time and memory.
func TestResolveEnds(t *testing.T) {
	t.Parallel()
	var zone []string
	for i := range 6 {
		name := fmt.Sprintf("_s%d.x.example.", i)
		zone = append(zone, fmt.Sprintf(`many.example. 60 IN NAPTR 10 %d "s" "SIP+D2U" "" %s`, i, name))
		for j := range 12 {
			zone = append(zone, fmt.Sprintf("%s 60 IN SRV 10 10 5060 n%d.x.example.", name, j))
		}
	}
	for i := range 30 {
		zone = append(zone, fmt.Sprintf("wide.example. 60 IN A 192.0.2.%d", i))
	}
	address, resolver := startDNS(t, zone...)
	p := New(Config{Resolver: resolver, NameServers: []string{address}, Patience: 4 * time.Second})
	found, err := p.Resolve(t.Context(), Target{Host: "many.example"})
	require.Error(t, err)
	require.LessOrEqual(t, len(found.Records), maxRecords)
	found, err = p.Resolve(t.Context(), Target{Host: "wide.example", Port: 5060})
	require.NoError(t, err)
	require.Len(t, found.Places, maxPlaces)
	require.LessOrEqual(t, len(found.Records), maxRecords)
}
