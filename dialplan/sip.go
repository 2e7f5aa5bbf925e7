package dialplan

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// hostName is a name of RFC 1123: labels of letters, digits and inner hyphens.
var hostName = regexp.MustCompile(`^(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\.?$`)

// sipUser is the part of RFC 3261's user that means nothing in a dial string.
var sipUser = regexp.MustCompile(`^[A-Za-z0-9._+*#-]{1,64}$`)

// endpoint is a SIP host with what may follow it.
type endpoint struct {
	host      string // a name, an IPv4 address or a bracketed IPv6 address
	port      string // empty: the transport's own
	transport string // udp, tcp, tls or empty
}

func (e endpoint) hostPort() string {
	if e.port == "" {
		return e.host
	}
	return e.host + ":" + e.port
}

func (e endpoint) String() string {
	if e.transport == "" {
		return e.hostPort()
	}
	return e.hostPort() + ";transport=" + e.transport
}

// parseEndpoint reads host[:port][;transport=udp|tcp|tls]; every other parameter is refused.
func parseEndpoint(s string) (endpoint, error) {
	var e endpoint
	hostPort, parameters, found := strings.Cut(s, ";")
	if found {
		name, value, _ := strings.Cut(parameters, "=")
		e.transport = strings.ToLower(value)
		if !strings.EqualFold(name, "transport") || e.transport != "udp" && e.transport != "tcp" && e.transport != "tls" {
			return endpoint{}, fmt.Errorf("has parameters other than transport=udp, tcp or tls")
		}
	}
	var host, port string
	var hasPort bool
	if strings.HasPrefix(hostPort, "[") {
		end := strings.IndexByte(hostPort, ']')
		if end < 0 {
			return endpoint{}, fmt.Errorf("has a bracket that is not closed")
		}
		addr, err := netip.ParseAddr(hostPort[1:end])
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return endpoint{}, fmt.Errorf("has no IPv6 address between the brackets")
		}
		host, port, hasPort = "["+addr.String()+"]", strings.TrimPrefix(hostPort[end+1:], ":"), hostPort[end+1:] != ""
		if hasPort && hostPort[end+1] != ':' {
			return endpoint{}, fmt.Errorf("has text after the closing bracket")
		}
	} else {
		host, port, hasPort = strings.Cut(hostPort, ":")
		if len(host) > 253 || !hostName.MatchString(host) {
			return endpoint{}, fmt.Errorf("has no valid host name or address")
		}
	}
	e.host = host
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return endpoint{}, fmt.Errorf("has a port that is not between 1 and 65535")
		}
		e.port = strconv.FormatUint(n, 10)
	}
	return e, nil
}

// NormalizeSIPURI parses the SIP address that a DID routes to and builds it anew from its parts: sip or sips, a user of
// letters, digits and ._+*#- (optional), a host, a port and transport=udp, tcp or tls (RFC 3261 §19.1.1). Everything else
// (headers, other parameters, passwords, percent escapes) is refused, since a dial string would read some of it as syntax.
func NormalizeSIPURI(uri string) (string, error) {
	scheme, rest, _ := strings.Cut(uri, ":")
	scheme = strings.ToLower(scheme)
	if scheme != "sip" && scheme != "sips" {
		return "", errors.New("SIP URI has a scheme other than sip and sips")
	}
	user := ""
	if name, host, found := strings.Cut(rest, "@"); found {
		if !sipUser.MatchString(name) {
			return "", fmt.Errorf("SIP URI has a user with characters other than letters, digits and ._+*#-")
		}
		user, rest = name+"@", host
	}
	to, err := parseEndpoint(rest)
	if err != nil {
		return "", fmt.Errorf("SIP URI %w", err)
	}
	return scheme + ":" + user + to.String(), nil
}

// percentEncoded writes a SIP user with %XX for everything but RFC 3261's unreserved characters: a user name such as
// "acme@example.com" stays one user.
func percentEncoded(user string) string {
	var b strings.Builder
	for i := range len(user) {
		c := user[i]
		if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.IndexByte("-_.!~*'()+", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}
