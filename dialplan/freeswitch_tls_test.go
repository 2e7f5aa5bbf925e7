package dialplan

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/lab"
	"tandem/models"
)

// certificate makes a certificate for 127.0.0.1 that vouches for itself, and returns it with its parts in PEM.
func certificate(t *testing.T) (pair tls.Certificate, cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "127.0.0.1"}, DNSNames: []string{"127.0.0.1"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
	pair, err = tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	return pair, cert, key
}

// startTLSCarrier serves SIP over TLS: every INVITE is answered busy, everything else is fine.
func startTLSCarrier(t *testing.T, pair tls.Certificate) (addr string) {
	t.Helper()
	listener, err := tls.Listen("tcp4", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			all.Go(func() { serveBusy(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return listener.Addr().String()
}

// serveBusy answers the requests of one connection.
func serveBusy(conn net.Conn) {
	read := bufio.NewReader(conn)
	for {
		var lines []string
		length := 0
		for {
			line, err := read.ReadString('\n')
			if err != nil {
				return
			}
			line = strings.TrimRight(line, "\r\n")
			if line == "" {
				break
			}
			if size, found := strings.CutPrefix(line, "Content-Length: "); found {
				length, _ = strconv.Atoi(size)
			}
			lines = append(lines, line)
		}
		if _, err := read.Discard(length); err != nil {
			return
		}
		if len(lines) == 0 || strings.HasPrefix(lines[0], "ACK ") {
			continue // a keep-alive, or the end of a refusal
		}
		status := "200 OK"
		if strings.HasPrefix(lines[0], "INVITE ") {
			status = "486 Busy Here"
		}
		answer := []string{"SIP/2.0 " + status}
		for _, line := range lines[1:] {
			for _, name := range []string{"Via:", "From:", "Call-ID:", "CSeq:"} {
				if strings.HasPrefix(line, name) {
					answer = append(answer, line)
				}
			}
			if strings.HasPrefix(line, "To:") {
				answer = append(answer, line+";tag=carrier")
			}
		}
		if _, err := conn.Write([]byte(strings.Join(answer, "\r\n") + "\r\nContent-Length: 0\r\n\r\n")); err != nil {
			return
		}
	}
}

// TestFreeSWITCHSpeaksTLS calls over a trunk with the transport tls: to a carrier that the node trusts, and to one that it does not.
func TestFreeSWITCHSpeaksTLS(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	trusted, trustedPEM, _ := certificate(t)
	stranger, _, _ := certificate(t)
	_, own, ownKey := certificate(t)
	port, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	_, number, err := net.SplitHostPort(port.Addr().String())
	require.NoError(t, err)
	trunk := func(id, name, addr string) models.Trunk {
		trunk := outbound(id, "cust_a", name)
		host, at, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		trunk.Proxy, trunk.Transport, trunk.Register, trunk.FromDomain = host, "tls", false, ""
		trunk.Port, err = strconv.Atoi(at)
		require.NoError(t, err)
		return trunk
	}
	store := &fakeStore{trunks: []models.Trunk{
		trunk("trunk_1", "trusted", startTLSCarrier(t, trusted)), trunk("trunk_2", "stranger", startTLSCarrier(t, stranger)),
	}}
	require.NoError(t, port.Close())
	l := startLive(t, store, lab.Options{
		Env: map[string]string{"TANDEM_TLS": "true", "TANDEM_TLS_PORT": number},
		Edit: func(confDir string) error {
			dir := filepath.Join(confDir, "tls")
			return errors.Join(
				os.MkdirAll(dir, 0o750), os.WriteFile(filepath.Join(dir, "agent.pem"), append(own, ownKey...), 0o600),
				os.WriteFile(filepath.Join(dir, "cafile.pem"), append(trustedPEM, own...), 0o600),
			)
		},
	})
	cause := func(gateway string) string {
		t.Helper()
		job, err := l.control.Originate(within(t), esl.Originate{ChannelID: uuid.NewString(), Gateway: gateway, Number: "+15550000800", Timeout: 20 * time.Second})
		require.NoError(t, err)
		_, err = job.Wait(within(t))
		var refused *esl.CommandError
		require.ErrorAs(t, err, &refused)
		return refused.Cause()
	}
	require.Equal(t, "USER_BUSY", cause("trusted"))
	require.NotEqual(t, "USER_BUSY", cause("stranger"))
}
