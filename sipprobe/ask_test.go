package sipprobe

import (
	"crypto/md5" //nolint:gosec // RFC 2617 has no other
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/egress"
)

// prober asks on loopback, and trusts who is given.
func prober(patience time.Duration, config *tls.Config) *Prober {
	return New(Config{Egress: loopback, Patience: patience, TLS: config})
}

func open(t *testing.T, p *Prober, place Place, host string) *Line {
	t.Helper()
	line, err := p.Connect(t.Context(), place, host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = line.Close() })
	return line
}

func TestOptions(t *testing.T) {
	t.Parallel()
	certificate, roots := certificateFor(t, "carrier.example")
	for _, transport := range []string{UDP, TCP, TLS} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			c := startCarrier(t, transport, certificate, func(string, int) string {
				return "100 Trying\n\n200 Fine\nServer: Carrier 1\x01.0\nWarning: 399 x \"slow\""
			})
			line := open(t, prober(4*time.Second, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}), c.place, "carrier.example")
			for range 2 {
				reply, err := line.Options(t.Context(), Identity{User: "acme%40x", Domain: "carrier.example"}, "carrier.example")
				require.NoError(t, err)
				require.Equal(t, []any{200, "Fine", "Carrier 1.0", `399 x "slow"`, c.place}, []any{reply.Status, reply.Phrase, reply.Server, reply.Warning, reply.Place})
				require.Contains(t, reply.String(), "200 Fine in ")
			}
			asked := c.requests()
			require.Len(t, asked, 2)
			require.True(t, strings.HasPrefix(asked[0], "OPTIONS sip:carrier.example SIP/2.0\r\n"), asked[0])
			require.Regexp(t, `^<sip:acme%40x@carrier\.example>;tag=[a-z0-9]+$`, headerOf(asked[0], "From"))
			require.Regexp(t, `^SIP/2\.0/`+strings.ToUpper(transport)+` 127\.0\.0\.1:[0-9]+;branch=z9hG4bK[a-z0-9]+;rport$`, headerOf(asked[0], "Via"))
			require.NotEqual(t, headerOf(asked[0], "Call-ID"), headerOf(asked[1], "Call-ID"))
			if transport == TLS {
				require.Contains(t, line.Certificate, `certificate of "carrier.example" by "carrier.example"`)
			}
		})
	}
}

// TestCertificates: a server that is not who it should be is not spoken to.
func TestCertificates(t *testing.T) {
	t.Parallel()
	certificate, roots := certificateFor(t, "carrier.example")
	c := startCarrier(t, TLS, certificate, func(string, int) string { return "200 OK" })
	_, err := prober(4*time.Second, nil).Connect(t.Context(), c.place, "carrier.example")
	require.ErrorContains(t, err, "TLS handshake")
	_, err = prober(4*time.Second, &tls.Config{RootCAs: roots}).Connect(t.Context(), c.place, "other.example")
	require.ErrorContains(t, err, "other.example")
	require.Empty(t, c.requests())
}

// TestNoAnswer: a request is sent again over UDP until its time is over; what answers something else is passed over.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	silent := startCarrier(t, UDP, nil, func(string, int) string { return "" })
	line := open(t, prober(1200*time.Millisecond, nil), silent.place, "x.example")
	_, err := line.Options(t.Context(), Identity{Domain: "x.example"}, "x.example")
	require.ErrorIs(t, err, ErrNoAnswer)
	require.Len(t, silent.requests(), 2, "at 0 and 500 ms; the third would come at 1.5 s")
	require.Equal(t, silent.requests()[0], silent.requests()[1])

	late := startCarrier(t, UDP, nil, func(_ string, count int) string {
		if count == 1 {
			return "raw:\x00\xff not SIP\r\n\r\n"
		}
		return "486 Busy"
	})
	line = open(t, prober(4*time.Second, nil), late.place, "x.example")
	reply, err := line.Options(t.Context(), Identity{Domain: "x.example"}, "x.example")
	require.NoError(t, err)
	require.Equal(t, 486, reply.Status)

	foreign := startCarrier(t, TCP, nil, func(request string, _ int) string {
		return "raw:SIP/2.0 200 OK\r\nVia: " + strings.Replace(headerOf(request, "Via"), "branch=", "branch=another", 1) + "\r\nFrom: <sip:a>\r\nTo: <sip:a>\r\nCall-ID: " + headerOf(request, "Call-ID") +
			"\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
	})
	line = open(t, prober(300*time.Millisecond, nil), foreign.place, "x.example")
	_, err = line.Options(t.Context(), Identity{Domain: "x.example"}, "x.example")
	require.Error(t, err)

	endless := startCarrier(t, TCP, nil, func(string, int) string { return "raw:" + strings.Repeat("a", 2*maxAnswer) })
	line = open(t, prober(4*time.Second, nil), endless.place, "x.example")
	_, err = line.Options(t.Context(), Identity{Domain: "x.example"}, "x.example")
	require.Error(t, err)
}

// TestBlocked: addresses that the operator has not allowed are not asked, over any transport.
func TestBlocked(t *testing.T) {
	t.Parallel()
	c := startCarrier(t, UDP, nil, func(string, int) string { return "200 OK" })
	for _, transport := range []string{UDP, TCP, TLS} {
		for _, addr := range []string{c.place.Addr.String(), "10.0.0.1:5060", "169.254.169.254:80", "[::1]:5060"} {
			_, err := New(Config{}).Connect(t.Context(), Place{transport, netip.MustParseAddrPort(addr)}, "x")
			require.ErrorIs(t, err, ErrBlocked, "%s %s", transport, addr)
		}
	}
	_, err := New(Config{Egress: egress.Config{AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}).Connect(t.Context(), c.place, "x")
	require.ErrorIs(t, err, ErrBlocked)
	require.Empty(t, c.requests())
}

var quoted = regexp.MustCompile(`(\w+)="?([^",]*)"?`)

// registrar asks for a login by RFC 2617 and knows one user.
func registrar(status int, challenge, answer string) func(string, int) string {
	return func(request string, _ int) string {
		given := headerOf(request, answer)
		if given == "" {
			return fmt.Sprintf("%d Login\n%s: Digest realm=\"carrier\", nonce=\"abc\", algorithm=MD5, qop=\"auth\"", status, challenge)
		}
		fields := map[string]string{}
		for _, match := range quoted.FindAllStringSubmatch(given, -1) {
			fields[match[1]] = match[2]
		}
		sum := func(s string) string {
			digest := md5.Sum([]byte(s))
			return hex.EncodeToString(digest[:])
		}
		want := sum(strings.Join([]string{
			sum("anna:carrier:secret"), "abc", fields["nc"], fields["cnonce"], "auth", sum("REGISTER:" + fields["uri"]),
		}, ":"))
		if fields["response"] != want {
			return "403 Wrong password"
		}
		return "200 OK\nContact: <sip:anna@192.0.2.5:5060>;expires=300\nContact: <sip:anna@192.0.2.6>"
	}
}

// TestBindings logs in, and registers nothing.
func TestBindings(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]func(string, int) string{
		"WWW": registrar(401, "WWW-Authenticate", "Authorization"), "proxy": registrar(407, "Proxy-Authenticate", "Proxy-Authorization"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCarrier(t, UDP, nil, reply)
			line := open(t, prober(4*time.Second, nil), c.place, "carrier.example")
			who := Identity{User: "anna", Domain: "carrier.example"}
			answer, err := line.Bindings(t.Context(), who, "anna", "secret")
			require.NoError(t, err)
			require.Equal(t, []any{200, true, "MD5"}, []any{answer.Status, answer.Challenged, answer.Algorithm})
			require.Len(t, answer.Contacts, 2)
			require.Contains(t, answer.Contacts[0], "sip:anna@192.0.2.5:5060")
			wrong, err := line.Bindings(t.Context(), who, "anna", "guess")
			require.NoError(t, err)
			require.Equal(t, []any{403, "Wrong password"}, []any{wrong.Status, wrong.Phrase})
			for _, request := range c.requests() {
				require.Empty(t, headerOf(request, "Contact"), "it would register us")
				require.NotContains(t, request, "secret")
				require.NotContains(t, request, "guess")
			}
			require.Len(t, c.requests(), 4)
		})
	}
}

// TestHostileChallenges: what cannot be given back without being read as syntax is not given back.
func TestHostileChallenges(t *testing.T) {
	t.Parallel()
	for _, challenge := range []string{
		`Digest realm="a", nonce="n", algorithm=ROT13`, `Basic realm="x"`, `Digest realm="a\" x", nonce="n"`, "", "Digest", `Digest nonce`,
	} {
		c := startCarrier(t, UDP, nil, func(string, int) string { return "401 No\nWWW-Authenticate: " + challenge })
		line := open(t, prober(4*time.Second, nil), c.place, "carrier.example")
		_, err := line.Bindings(t.Context(), Identity{User: "anna", Domain: "carrier.example"}, "anna", "secret")
		require.ErrorContains(t, err, "cannot be given", challenge)
		require.Len(t, c.requests(), 1, challenge)
	}
	c := startCarrier(t, UDP, nil, func(string, int) string { return "200 OK" })
	line := open(t, prober(4*time.Second, nil), c.place, "carrier.example")
	for _, who := range []Identity{{User: "a b", Domain: "x"}, {User: "a\r\nX: y", Domain: "x"}, {User: "a", Domain: "x>\r\n"}, {User: "a", Domain: ""}} {
		_, err := line.Bindings(t.Context(), who, "anna", "secret")
		require.Error(t, err)
		_, err = line.Options(t.Context(), who, "x")
		require.Error(t, err)
	}
	_, err := line.Options(t.Context(), Identity{Domain: "x"}, "x y")
	require.Error(t, err)
	require.Empty(t, c.requests())
}

// FuzzAnswers feeds whatever comes to both readers: they end, with a message or without.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{
		"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 127.0.0.1:5060;branch=b\r\nCSeq: 1 OPTIONS\r\nCall-ID: c\r\nContent-Length: 0\r\n\r\n",
		"SIP/2.0 401 No\r\nVia: SIP/2.0/UDP a;branch=b\r\nCSeq: 1 OPTIONS\r\nCall-ID: c\r\nWWW-Authenticate: Digest realm=\"a\"\r\nContact: <sip:a>;x, <sip:b\r\n\r\n",
		"OPTIONS sip:a SIP/2.0\r\n\r\n", "SIP/2.0 99999999999 \r\nContent-Length: -1\r\n\r\n", "\r\n\r\n", "SIP/2.0",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		if message, err := parse(packet); err == nil && message == nil {
			t.Fatal("neither a message nor an error")
		}
		read := func() {
			for _, reader := range []func() []*Reply{func() []*Reply { return packetReplies(packet) }, func() []*Reply { return streamReplies(packet) }} {
				for _, reply := range reader() {
					for _, text := range append([]string{reply.Phrase, reply.Server, reply.Warning, reply.String()}, reply.Contacts...) {
						if strings.ContainsAny(text, "\r\n\x00") {
							t.Fatalf("not printable: %q", text)
						}
					}
				}
			}
		}
		read()
	})
}
