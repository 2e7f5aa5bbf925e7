package sipprobe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tandem/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loopback lets a Prober ask the servers of the tests.
var loopback = egress.Config{AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}

// carrier is a SIP server that answers as a test says.
type carrier struct {
	place Place
	mu    sync.Mutex
	asked []string
	reply func(request string, count int) string
}

// startCarrier serves one transport. reply writes the answer's lines after the ones that it repeats; an empty one is no answer, and one that begins with
// "raw:" is sent as it is.
func startCarrier(t *testing.T, transport string, certificate *tls.Certificate, reply func(request string, count int) string) *carrier {
	t.Helper()
	c := &carrier{reply: reply}
	if transport == UDP {
		conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
		require.NoError(t, err)
		c.place = Place{UDP, netip.MustParseAddrPort(conn.LocalAddr().String())}
		serve(t, func() { c.packets(conn) }, conn)
		return c
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	c.place = Place{transport, netip.MustParseAddrPort(listener.Addr().String())}
	if transport == TLS {
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{*certificate}})
	}
	serve(t, func() { c.accept(listener) }, listener)
	return c
}

// serve runs fn until the test ends.
func serve(t *testing.T, fn func(), closer io.Closer) {
	t.Helper()
	var done sync.WaitGroup
	done.Go(fn)
	t.Cleanup(func() {
		_ = closer.Close()
		done.Wait()
	})
}

func (c *carrier) packets(conn net.PacketConn) {
	packet := make([]byte, 65536)
	for {
		n, from, err := conn.ReadFrom(packet)
		if err != nil {
			return
		}
		for _, answer := range c.answer(string(packet[:n])) {
			_, _ = conn.WriteTo([]byte(answer), from)
		}
	}
}

func (c *carrier) accept(listener net.Listener) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			defer conn.Close()
			read := bufio.NewReader(conn)
			for {
				var request bytes.Buffer
				for !strings.HasSuffix(request.String(), "\r\n\r\n") {
					line, err := read.ReadString('\n')
					if err != nil {
						return
					}
					request.WriteString(line)
				}
				for _, answer := range c.answer(request.String()) {
					if _, err := conn.Write([]byte(answer)); err != nil {
						return
					}
				}
			}
		})
	}
}

// answer writes what is sent back for a request.
func (c *carrier) answer(request string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, request)
	said := c.reply(request, len(c.asked))
	if raw, found := strings.CutPrefix(said, "raw:"); found {
		return []string{raw}
	}
	if said == "" {
		return nil
	}
	var answers []string
	for _, one := range strings.Split(said, "\n\n") {
		status, headers, _ := strings.Cut(one, "\n")
		lines := []string{"SIP/2.0 " + status}
		for _, name := range []string{"Via", "From", "To", "Call-ID", "CSeq"} {
			lines = append(lines, name+": "+headerOf(request, name))
		}
		if headers != "" {
			lines = append(lines, strings.Split(headers, "\n")...)
		}
		answers = append(answers, strings.Join(append(lines, "Content-Length: 0"), "\r\n")+"\r\n\r\n")
	}
	return answers
}

func (c *carrier) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.asked...)
}

func headerOf(message, name string) string {
	for _, line := range strings.Split(message, "\r\n") {
		if value, found := strings.CutPrefix(line, name+": "); found {
			return value
		}
	}
	return ""
}

// certificateFor makes a certificate and who vouches for it.
func certificateFor(t *testing.T, host string) (*tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// startDNS serves records, each a line of a zone file, and returns where it is asked and a resolver that asks there.
func startDNS(t *testing.T, records ...string) (address string, resolver *net.Resolver) {
	t.Helper()
	zone := map[string][]dns.RR{}
	for _, record := range records {
		rr, err := dns.NewRR(record)
		require.NoError(t, err)
		key := fmt.Sprint(strings.ToLower(rr.Header().Name), rr.Header().Rrtype)
		zone[key] = append(zone[key], rr)
	}
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		answer := new(dns.Msg).SetReply(q)
		answer.Authoritative, answer.RecursionAvailable = true, true
		question := q.Question[0]
		answer.Answer = zone[fmt.Sprint(strings.ToLower(question.Name), question.Qtype)]
		_ = w.WriteMsg(answer)
	})}
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	var done sync.WaitGroup
	done.Go(func() { _ = server.ActivateAndServe() })
	<-started
	t.Cleanup(func() {
		_ = server.Shutdown()
		done.Wait()
	})
	address = conn.LocalAddr().String()
	return address, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", address)
	}}
}
