package egress

import (
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, client *http.Client, url string) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	if err == nil {
		t.Cleanup(func() {
			require.NoError(t, resp.Body.Close())
			client.CloseIdleConnections()
		})
	}
	return resp, err
}

// canary is a server that nobody may reach; it counts who did.
func canary(t *testing.T) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	hits := &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	t.Cleanup(server.Close)
	return server, hits
}

func loopback() Config {
	return Config{AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowAnyPort: true}
}

func TestGuardRefusesSpecialAddresses(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"127.0.0.1",                // loopback
		"127.255.255.254",          // all of loopback
		"0.0.0.0",                  // this host
		"10.0.0.1",                 // private
		"172.16.0.1",               // private
		"192.168.1.1",              // private
		"100.64.0.1",               // carrier-grade NAT, where clouds keep services
		"169.254.169.254",          // link-local: metadata of most clouds
		"192.0.0.192",              // metadata of Oracle Cloud
		"198.18.0.1",               // benchmarking
		"224.0.0.1",                // multicast
		"255.255.255.255",          // broadcast
		"[::1]",                    // loopback
		"[::]",                     // this host
		"[::ffff:127.0.0.1]",       // IPv4-mapped loopback
		"[::ffff:169.254.169.254]", // IPv4-mapped metadata
		"[64:ff9b::a9fe:a9fe]",     // NAT64 of the metadata address
		"[64:ff9b:1::7f00:1]",      // local-use NAT64
		"[2002:a9fe:a9fe::]",       // 6to4 of the metadata address
		"[2001:0:7f00:1::]",        // Teredo
		"[fe80::1]",                // link-local
		"[fc00::1]",                // unique local
		"[fd00:ec2::254]",          // metadata of AWS over IPv6
		"[ff02::1]",                // multicast
		"[2001:db8::1]",            // documentation
	} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			_, err := get(t, NewClient(Config{}), "http://"+host+"/")
			require.ErrorIs(t, err, ErrBlocked)
		})
	}
}

func TestGuardAllowsPublicAddresses(t *testing.T) {
	t.Parallel()
	guard := newGuard(Config{})
	require.NoError(t, guard("tcp4", "93.184.215.14:443", nil))
	require.NoError(t, guard("tcp6", "[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:80", nil))
}

func TestPorts(t *testing.T) {
	t.Parallel()
	const host = "93.184.215.14:"
	require.ErrorIs(t, newGuard(Config{})("tcp4", host+"8080", nil), ErrBlocked)
	require.NoError(t, newGuard(Config{AllowedPorts: []uint16{8080}})("tcp4", host+"8080", nil))
	require.ErrorIs(t, newGuard(Config{AllowedPorts: []uint16{8080}})("tcp4", host+"443", nil), ErrBlocked)
	require.NoError(t, newGuard(Config{AllowAnyPort: true})("tcp4", host+"22", nil))
	require.ErrorIs(t, newGuard(Config{AllowAnyPort: true})("tcp4", "10.0.0.1:22", nil), ErrBlocked)
	require.ErrorIs(t, newGuard(Config{AllowAnyPort: true})("udp4", host+"53", nil), ErrBlocked)
}

func TestAllowedNetworks(t *testing.T) {
	t.Parallel()
	server, hits := canary(t)
	_, err := get(t, NewClient(Config{AllowAnyPort: true}), server.URL)
	require.ErrorIs(t, err, ErrBlocked)
	require.Zero(t, hits.Load())

	_, err = get(t, NewClient(loopback()), server.URL)
	require.NoError(t, err)
	require.EqualValues(t, 1, hits.Load())

	guard := newGuard(Config{AllowAnyPort: true, AllowedNetworks: []netip.Prefix{
		netip.MustParsePrefix("::ffff:10.1.0.0/112"), netip.MustParsePrefix("fd00::/8"),
	}})
	require.NoError(t, guard("tcp4", "10.1.2.3:80", nil))
	require.ErrorIs(t, guard("tcp4", "10.2.0.1:80", nil), ErrBlocked)
	require.NoError(t, guard("tcp6", "[fd12::1]:80", nil))
	require.ErrorIs(t, guard("tcp6", "[fe80::1]:80", nil), ErrBlocked)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	target, hits := canary(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL, http.StatusFound)
	}))
	t.Cleanup(server.Close)
	resp, err := get(t, NewClient(loopback()), server.URL)
	require.NoError(t, err)
	require.Equal(t, http.StatusFound, resp.StatusCode)
	require.Equal(t, target.URL, resp.Header.Get("Location"))
	require.Zero(t, hits.Load())
}

// TestProxyIsNotUsed proves that an HTTP_PROXY in the environment cannot carry a request round the guard.
func TestProxyIsNotUsed(t *testing.T) {
	server, hits := canary(t)
	t.Setenv("HTTP_PROXY", server.URL)
	t.Setenv("http_proxy", server.URL)
	_, err := get(t, NewClient(Config{AllowAnyPort: true}), "http://10.0.0.1/")
	require.ErrorIs(t, err, ErrBlocked)
	require.Zero(t, hits.Load())
	require.Nil(t, NewClient(Config{}).Transport.(*http.Transport).Proxy)
}

// TestRebinding has a name server that answers with a public address when a check would ask, and with 127.0.0.1 when
// the connection is made.
func TestRebinding(t *testing.T) {
	t.Parallel()
	server, hits := canary(t)
	resolver := rebinder(t, netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr("127.0.0.1"))
	checked, err := resolver.LookupNetIP(t.Context(), "ip4", "rebind.example.")
	require.NoError(t, err)
	require.Equal(t, "93.184.215.14", checked[0].Unmap().String(), "a check before the connection would have passed")

	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	_, err = get(t, NewClient(Config{AllowAnyPort: true, Resolver: resolver}), "http://rebind.example.:"+port+"/")
	require.ErrorIs(t, err, ErrBlocked)
	require.ErrorContains(t, err, "127.0.0.1")
	require.Zero(t, hits.Load())

	_, err = get(t, NewClient(Config{AllowAnyPort: true, Resolver: resolver, AllowedNetworks: loopback().AllowedNetworks}),
		"http://rebind.example.:"+port+"/")
	require.NoError(t, err, "the name does lead to the canary once the network is allowed")
	require.EqualValues(t, 1, hits.Load())
}

// rebinder returns a resolver on a name server of its own that gives the first address once and the second ever after.
func rebinder(t *testing.T, first, then netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		answers := 0
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			addr := first
			if answers > 0 {
				addr = then
			}
			reply, isA := dnsAnswer(buf[:n], addr)
			if isA {
				answers++
			}
			if _, err := conn.WriteTo(reply, from); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		<-done
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp4", conn.LocalAddr().String())
	}}
}

// dnsAnswer answers a question of one name (RFC 1035 §4): type A with addr, any other type with nothing.
func dnsAnswer(query []byte, addr netip.Addr) (reply []byte, isA bool) {
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // the root label, type and class
	isA = binary.BigEndian.Uint16(query[end-4:]) == 1
	reply = append(reply, query[:end]...)
	reply[2], reply[3] = 0x81, 0x80 // response, recursion available
	for i := 6; i < 12; i++ {
		reply[i] = 0
	}
	if isA {
		reply[7] = 1
		reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		reply = append(reply, addr.AsSlice()...)
	}
	return reply, isA
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"https://app.example/answer?x=1", "http://app.example:8080", "https://[2606:2800:21f::1]/", "http://127.0.0.1:9000/hook",
	} {
		parsed, err := CheckURL(raw)
		require.NoError(t, err, raw)
		require.Equal(t, raw, parsed.String())
	}
	for raw, message := range map[string]string{
		"":                              "is empty",
		"app.example/answer":            "must begin with http:// or https://",
		"ftp://app.example/":            "must begin with http:// or https://",
		"file:///etc/passwd":            "must begin with http:// or https://",
		"https:app.example":             "has no host",
		"https:///answer":               "has no host",
		"https://:8080/":                "has no host",
		"https://user:secret@a.example": "must not hold a user name or password",
		"https://a.example:0/":          "has a port that is not between 1 and 65535",
		"https://a.example:70000/":      "has a port that is not between 1 and 65535",
		"https://a.example/\n":          "is not a URL",
		"https://a b/":                  "is not a URL",
		"https://a.example/" + strings.Repeat("x", MaxURL): "is longer than 2048 bytes",
	} {
		_, err := CheckURL(raw)
		require.EqualError(t, err, message, raw)
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, raw := range []string{"https://a.example/x", "http://[::1]:80", "https://u@h", "http://h:99999", "//h", "http:h"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		parsed, err := CheckURL(raw)
		if err != nil {
			return
		}
		require.NotEmpty(t, parsed.Hostname())
		require.Nil(t, parsed.User)
		require.NotContains(t, raw, "\n")
		_, err = http.NewRequest(http.MethodPost, raw, nil)
		require.NoError(t, err)
	})
}
