// Package egress makes the HTTP client for every request that goes to an address a customer chose: answer_url,
// webhook_url, media, and the dialer for what is no HTTP. The guard runs when a connection is made, on the address it is made to, so that neither a redirect
// nor a name that changes its answer (DNS rebinding) leads inside.
package egress

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// ErrBlocked is wrapped by the error of a request whose address or port the guard refuses.
var ErrBlocked = errors.New("destination is not allowed")

const (
	defaultConnectTimeout = 5 * time.Second
	// maxResponseHeader bounds the header of an answer; its body is for the caller to bound.
	maxResponseHeader = 64 << 10
	idleTimeout       = 60 * time.Second
	idlePerHost       = 64 // many customers may share a host
)

// Config says where requests may go.
type Config struct {
	// AllowedNetworks are networks that the operator allows although they are private, loopback or otherwise special.
	AllowedNetworks []netip.Prefix
	// AllowedPorts are the ports that may be connected to; 80 and 443 when empty.
	AllowedPorts []uint16
	// AllowAnyPort lifts the rule on ports.
	AllowAnyPort bool
	// ConnectTimeout bounds the TCP connect and, again, the TLS handshake; 5 s when zero. The whole request is bounded
	// by its context.
	ConnectTimeout time.Duration
	// Resolver looks up host names; the system's when nil.
	Resolver *net.Resolver
}

// NewClient returns a client that connects only where cfg allows. It uses no proxy, follows no redirect (the redirect
// itself is the answer) and does not decompress. Errors wrap ErrBlocked when the guard refused.
func NewClient(cfg Config) *http.Client {
	connectTimeout := cmp.Or(cfg.ConnectTimeout, defaultConnectTimeout)
	dialer := &net.Dialer{
		Timeout:  connectTimeout,
		Resolver: cfg.Resolver,
		Control:  newGuard(cfg),
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  nil,
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    connectTimeout,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true, // a small answer must not unpack into a large one
			MaxResponseHeaderBytes: maxResponseHeader,
			MaxIdleConnsPerHost:    idlePerHost,
			IdleConnTimeout:        idleTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// NewDialer returns a dialer that connects, and opens sockets of UDP, only where cfg allows: for what is no HTTP. Errors wrap ErrBlocked when the
// guard refused.
func NewDialer(cfg Config) *net.Dialer {
	return &net.Dialer{
		Timeout:  cmp.Or(cfg.ConnectTimeout, defaultConnectTimeout),
		Resolver: cfg.Resolver,
		Control:  newGuard(cfg, ssrf.WithNetworks("tcp4", "tcp6", "udp4", "udp6")),
	}
}

// newGuard returns the check that the dialer runs on each address it is about to connect to.
func newGuard(cfg Config, more ...ssrf.Option) func(network, address string, conn syscall.RawConn) error {
	var v4, v6 []netip.Prefix
	for _, prefix := range cfg.AllowedNetworks {
		if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
		}
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix)
		} else {
			v6 = append(v6, prefix)
		}
	}
	options := append([]ssrf.Option{ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...)}, more...)
	switch {
	case cfg.AllowAnyPort:
		options = append(options, ssrf.WithAnyPort())
	case len(cfg.AllowedPorts) > 0:
		options = append(options, ssrf.WithPorts(cfg.AllowedPorts...))
	}
	guardian := ssrf.New(options...)
	return func(network, address string, conn syscall.RawConn) error {
		if err := guardian.Safe(network, address, conn); err != nil {
			return fmt.Errorf("%w: %w", ErrBlocked, err)
		}
		return nil
	}
}
