// Package sipprobe asks a SIP server what only the network can tell: what DNS says of it (RFC 3263), whether it can be reached, whether it answers
// OPTIONS, and whether it takes a login. It changes nothing anywhere: the REGISTER that it sends has no Contact, which asks for the
// bindings of an address and makes none (RFC 3261 §10.2.3), so that no call ever comes to whoever asks.
//
// Messages are written here from parts that were checked; answers, which anybody may have written, are read by the parser of sipgo, and never more
// than 64 KiB of them.
package sipprobe

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"time"

	"tandem/egress"
)

// Transports of SIP as a target names them.
const (
	UDP = "udp"
	TCP = "tcp"
	TLS = "tls"
)

// Target is a SIP server.
type Target struct {
	// Host is a name, an IPv4 address, or an IPv6 address with or without brackets.
	Host string
	// Port is 0 where DNS or the transport decides.
	Port int
	// Transport is UDP, TCP, TLS or empty where DNS decides.
	Transport string
}

// Place is an address at which a target may be asked.
type Place struct {
	Transport string
	Addr      netip.AddrPort
}

// String is the place for a person to read.
func (p Place) String() string { return p.Addr.String() + " (" + p.Transport + ")" }

// Config is what a Prober needs.
type Config struct {
	// Egress says where may be connected to; its ports are not looked at.
	Egress egress.Config
	// Resolver looks up addresses and SRV records; the system's when nil.
	Resolver *net.Resolver
	// NameServers, as host:port, are asked for NAPTR records, which the system's resolver does not know. Default: those of /etc/resolv.conf.
	NameServers []string
	// TLS is what connections with TLS are made with; nil for the defaults.
	TLS *tls.Config
	// Patience is how long one answer is waited for. Default 4 s.
	Patience time.Duration
	// UserAgent names the sender. Default "Tandem".
	UserAgent string
}

// Errors of this package; test with errors.Is.
var (
	// ErrNoAnswer: nothing came back in time.
	ErrNoAnswer = errors.New("no answer")
	// ErrBlocked: the address must not be connected to from here.
	ErrBlocked = egress.ErrBlocked
)

// Prober asks SIP servers. It may be used by several goroutines at a time.
type Prober struct {
	cfg    Config
	dialer *net.Dialer
}

// New returns a Prober.
func New(cfg Config) *Prober {
	if cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	cfg.Egress.AllowAnyPort = true
	cfg.Patience = cmp.Or(cfg.Patience, 4*time.Second)
	cfg.UserAgent = cmp.Or(cfg.UserAgent, "Tandem")
	return &Prober{cfg: cfg, dialer: egress.NewDialer(cfg.Egress)}
}
