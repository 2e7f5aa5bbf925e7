package api

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// clientAddress is where a request comes from: the peer of its connection or, where that is a trusted proxy, the last address of X-Forwarded-For that is no
// trusted proxy's. What stands before that was written by the client and proves nothing. fiber's own reading takes the first one.
func (s *Server) clientAddress(c *fiber.Ctx) netip.Addr {
	addr, ok := netip.AddrFromSlice(c.Context().RemoteIP())
	if !ok {
		return netip.Addr{}
	}
	addr = addr.Unmap()
	if !s.trusts(addr) {
		return addr
	}
	hops := strings.Split(strings.Join(c.GetReqHeaders()[fiber.HeaderXForwardedFor], ","), ",")
	for _, hop := range slices.Backward(hops) {
		next, err := forwardedAddress(strings.TrimSpace(hop))
		if err != nil {
			return addr
		}
		if addr = next; !s.trusts(addr) {
			return addr
		}
	}
	return addr
}

// forwardedAddress reads an address that a proxy has written: some add the port.
func forwardedAddress(s string) (netip.Addr, error) {
	if at, err := netip.ParseAddrPort(s); err == nil {
		return at.Addr().Unmap().WithZone(""), nil
	}
	addr, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return addr.Unmap().WithZone(""), err
}

func (s *Server) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(s.proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// neighbourhood is what counts as one source: an IPv4 address, of IPv6 the network of one subscriber.
func neighbourhood(addr netip.Addr) string {
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			return network.String()
		}
	}
	return addr.String()
}
