package sipprobe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// maxPlaces bounds how many addresses of a target are asked.
const maxPlaces = 8

// maxRecords bounds what is found of a target: the rest is neither looked for nor kept.
const maxRecords = 40

// Resolution is what DNS says of a target.
type Resolution struct {
	// Records are what was found, and what was looked for in vain, one line each for a person to read, at most 40.
	Records []string
	// Places are where to ask, in the order in which they are to be tried: at least one, at most 8.
	Places []Place
}

func (r *Resolution) note(format string, args ...any) {
	if len(r.Records) < maxRecords {
		r.Records = append(r.Records, fmt.Sprintf(format, args...))
	}
}

// enough says that no more is to be looked for.
func (r *Resolution) enough() bool { return len(r.Places) >= maxPlaces || len(r.Records) >= maxRecords }

// Resolve finds out where a target is, as RFC 3263 §4 has it: a numeric host is there; a port makes it the addresses of the host; otherwise NAPTR names
// the transport and SRV the host and port, as far as there are any. The error says that there is no place; what was found stands in Records even so.
func (p *Prober) Resolve(ctx context.Context, t Target) (*Resolution, error) {
	r := &Resolution{}
	host := strings.TrimSuffix(strings.TrimPrefix(t.Host, "["), "]")
	if addr, err := netip.ParseAddr(host); err == nil {
		transport := cmp.Or(t.Transport, UDP)
		r.note("%s is an address: DNS has no part in it", addr)
		r.Places = []Place{{transport, netip.AddrPortFrom(addr, port(t.Port, transport))}}
		return r, nil
	}
	var err error
	switch {
	case t.Port != 0:
		r.note("a port is given: neither NAPTR nor SRV is looked for")
		err = p.addresses(ctx, r, host, cmp.Or(t.Transport, UDP), t.Port)
	case t.Transport != "":
		err = p.services(ctx, r, host, []string{t.Transport})
	default:
		err = p.byNAPTR(ctx, r, host)
	}
	r.Places = slices.Compact(r.Places)
	r.Places = r.Places[:min(len(r.Places), maxPlaces)]
	if len(r.Places) == 0 {
		return r, cmp.Or(err, fmt.Errorf("%s has no address", host))
	}
	return r, nil
}

func port(given int, transport string) uint16 {
	switch {
	case given > 0 && given <= 65535:
		return uint16(given)
	case transport == TLS:
		return 5061
	default:
		return 5060
	}
}

// byNAPTR lets the host's NAPTR records choose among the transports; without any, SRV records of UDP and TCP are looked for (RFC 3263 §4.1).
func (p *Prober) byNAPTR(ctx context.Context, r *Resolution, host string) error {
	records, err := p.naptr(ctx, host)
	if err != nil {
		r.note("NAPTR %s: %s", host, err)
	}
	// Those with an order above the lowest that can be used are not looked at (RFC 3403 §4.1).
	slices.SortStableFunc(records, func(a, b *dns.NAPTR) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Preference, b.Preference))
	})
	order, found := -1, false
	for _, record := range records {
		if r.enough() {
			break
		}
		r.note("NAPTR %s: %d %d %q %q %s", host, record.Order, record.Preference, record.Flags, record.Service, record.Replacement)
		transport := map[string]string{"SIP+D2U": UDP, "SIP+D2T": TCP, "SIPS+D2T": TLS}[strings.ToUpper(record.Service)]
		if transport == "" || !strings.EqualFold(record.Flags, "s") || order >= 0 && int(record.Order) != order {
			continue
		}
		order, found = int(record.Order), true
		p.service(ctx, r, strings.TrimSuffix(record.Replacement, "."), transport)
	}
	if found {
		return nil
	}
	return p.services(ctx, r, host, []string{UDP, TCP})
}

// services are the SRV records of a host for transports; without any, the addresses of the host itself for the first transport.
func (p *Prober) services(ctx context.Context, r *Resolution, host string, transports []string) error {
	for _, transport := range transports {
		name := map[string]string{UDP: "_sip._udp.", TCP: "_sip._tcp.", TLS: "_sips._tcp."}[transport] + host
		p.service(ctx, r, name, transport)
	}
	if len(r.Places) > 0 {
		return nil
	}
	return p.addresses(ctx, r, host, transports[0], int(port(0, transports[0])))
}

// service are the places of one SRV name.
func (p *Prober) service(ctx context.Context, r *Resolution, name, transport string) {
	_, records, err := p.cfg.Resolver.LookupSRV(ctx, "", "", name)
	if err != nil {
		r.note("SRV %s: %s", name, reason(err))
	}
	for _, record := range records {
		if r.enough() {
			return
		}
		target := strings.TrimSuffix(record.Target, ".")
		r.note("SRV %s: %d %d %d %s", name, record.Priority, record.Weight, record.Port, target)
		if target == "" {
			continue // the service is decidedly not there (RFC 2782)
		}
		_ = p.addresses(ctx, r, target, transport, int(record.Port)) // what is missing is noted
	}
}

// addresses are the places of a host.
func (p *Prober) addresses(ctx context.Context, r *Resolution, host, transport string, number int) error {
	addrs, err := p.cfg.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		r.note("A, AAAA %s: %s", host, reason(err))
		return fmt.Errorf("%s: %s", host, reason(err))
	}
	for _, addr := range addrs {
		if r.enough() {
			break
		}
		addr = addr.Unmap()
		kind := "A"
		if addr.Is6() {
			kind = "AAAA"
		}
		r.note("%s %s: %s", kind, host, addr)
		r.Places = append(r.Places, Place{transport, netip.AddrPortFrom(addr, port(number, transport))})
	}
	return nil
}

// reason is an error of the resolver without the names of our servers.
func reason(err error) string {
	var failed *net.DNSError
	switch {
	case !errors.As(err, &failed):
		return err.Error()
	case failed.IsNotFound:
		return "no such record"
	case failed.IsTimeout:
		return "the name server did not answer in time"
	default:
		return failed.Err
	}
}

// naptr asks the name servers in turn.
func (p *Prober) naptr(ctx context.Context, host string) ([]*dns.NAPTR, error) {
	servers := p.cfg.NameServers
	if len(servers) == 0 {
		system, err := dns.ClientConfigFromFile("/etc/resolv.conf")
		if err != nil {
			return nil, errors.New("the system names no name servers")
		}
		for _, server := range system.Servers {
			servers = append(servers, net.JoinHostPort(server, system.Port))
		}
	}
	question := new(dns.Msg).SetQuestion(dns.Fqdn(host), dns.TypeNAPTR)
	failure := errors.New("the system names no name servers")
	for _, server := range servers {
		answer, err := p.exchange(ctx, question, server)
		if err != nil {
			failure = errors.New("the name server did not answer")
			continue
		}
		switch answer.Rcode {
		case dns.RcodeSuccess:
		case dns.RcodeNameError:
			return nil, errors.New("no such record")
		default:
			failure = fmt.Errorf("the name server answered %s", dns.RcodeToString[answer.Rcode])
			continue
		}
		var records []*dns.NAPTR
		for _, record := range answer.Answer {
			if naptr, ok := record.(*dns.NAPTR); ok {
				records = append(records, naptr)
			}
		}
		if len(records) == 0 {
			return nil, errors.New("no such record")
		}
		return records, nil
	}
	return nil, failure
}

// exchange asks one name server, over TCP where the answer is too long for UDP.
func (p *Prober) exchange(ctx context.Context, question *dns.Msg, server string) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Patience/2)
	defer cancel()
	answer, _, err := (&dns.Client{Net: "udp"}).ExchangeContext(ctx, question, server)
	if err == nil && answer.Truncated {
		answer, _, err = (&dns.Client{Net: "tcp"}).ExchangeContext(ctx, question, server)
	}
	return answer, err
}
