package models

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// What keeps an address from being blocked.
const (
	ProtectedTrunk     = "trunk"     // an inbound address, or the proxy of an outbound trunk that is given by its address
	ProtectedProvider  = "provider"  // a network of the operator's providers
	ProtectedNode      = "node"      // the Event Socket's address of a node that is given by its address
	ProtectedException = "exception" // an exception
)

// ProtectedError refuses to block what is known. The source of a SIP request over UDP can be forged (RFC 3261 section 18 asks nobody to prove where a
// datagram comes from): could a known address be blocked, anybody could have a carrier cut off by calling in its name.
type ProtectedError struct {
	Kind string
	// Name is the ID of the trunk or exception, the network of the provider, or the name of the node; Address is what it has.
	Name    string
	Address string
}

// Error implements error.
func (e *ProtectedError) Error() string {
	if e.Kind == ProtectedProvider {
		return fmt.Sprintf("%s belongs to a provider and is never blocked", e.Address)
	}
	return fmt.Sprintf("%s belongs to %s %s and is never blocked", e.Address, e.Kind, e.Name)
}

// protection is something that is never blocked.
type protection struct {
	kind, name string
	prefix     netip.Prefix
}

// mayBlock refuses a prefix that has an address in common with anything protected.
func (s *Store) mayBlock(ctx context.Context, prefix netip.Prefix, providers []netip.Prefix) error {
	all, err := s.protections(ctx, providers)
	if err != nil {
		return err
	}
	return refusedBy(all, prefix)
}

func refusedBy(all []protection, prefix netip.Prefix) error {
	for _, p := range all {
		if p.prefix.Overlaps(prefix) {
			return &ProtectedError{Kind: p.kind, Name: p.name, Address: plain(p.prefix)}
		}
	}
	return nil
}

// plain writes a prefix as ParseInboundIP does.
func plain(prefix netip.Prefix) string {
	if prefix.IsSingleIP() {
		return prefix.Addr().String()
	}
	return prefix.String()
}

// protections returns all that is never blocked. Names are not resolved: what they stand for changes without us.
func (s *Store) protections(ctx context.Context, providers []netip.Prefix) ([]protection, error) {
	exceptions, err := s.exceptionPrefixes(ctx)
	if err != nil {
		return nil, err
	}
	all := exceptions
	for _, p := range providers {
		if prefix, normal, err := ParseInboundIP(p.String()); err == nil {
			all = append(all, protection{ProtectedProvider, normal, prefix})
		}
	}
	var trunks []struct{ ID, Address string }
	err = s.read(ctx).Raw(`SELECT trunk_id AS id, address FROM trunk_addresses
		UNION ALL SELECT id, proxy AS address FROM trunks WHERE deleted_at IS NULL AND proxy <> '' ORDER BY 1, 2`).Scan(&trunks).Error
	if err != nil {
		return nil, explain(err, "read the addresses of trunks")
	}
	for _, trunk := range trunks {
		if prefix, ok := hostPrefix(trunk.Address); ok {
			all = append(all, protection{ProtectedTrunk, trunk.ID, prefix})
		}
	}
	nodes, err := s.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		if prefix, ok := hostPrefix(nodes[i].ESLAddr); ok {
			all = append(all, protection{ProtectedNode, nodes[i].Name, prefix})
		}
	}
	return all, nil
}

func (s *Store) exceptionPrefixes(ctx context.Context) ([]protection, error) {
	var rows []BlockException
	if err := s.read(ctx).Order("id").Find(&rows).Error; err != nil {
		return nil, explain(err, "read the exceptions of blocks")
	}
	all := make([]protection, 0, len(rows))
	for i := range rows {
		prefix, _, err := ParseInboundIP(rows[i].Address)
		if err != nil {
			return nil, fmt.Errorf("exception %s: %w", rows[i].ID, err)
		}
		all = append(all, protection{ProtectedException, rows[i].ID, prefix})
	}
	return all, nil
}

// hostPrefix is the address in ADDRESS, ADDRESS:PORT, [ADDRESS]:PORT or a CIDR; false for a name.
func hostPrefix(text string) (netip.Prefix, bool) {
	text, _, _ = strings.Cut(text, ";") // parameters of a SIP URI
	if prefix, _, err := ParseInboundIP(strings.Trim(text, "[]")); err == nil {
		return prefix, true
	}
	host, _, err := net.SplitHostPort(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	prefix, _, err := ParseInboundIP(host)
	return prefix, err == nil
}

// BlockedNetworks returns what the blocks in force come to: their addresses without the exceptions, in the fewest networks that do not overlap,
// sorted. It is what the nodes refuse.
func (s *Store) BlockedNetworks(ctx context.Context) ([]netip.Prefix, error) {
	exceptions, err := s.exceptionPrefixes(ctx)
	if err != nil {
		return nil, err
	}
	return s.blockedWithout(ctx, exceptions)
}

// DroppableNetworks is BlockedNetworks without anything that is never blocked, such as a trunk that got its address after the block was made: what a
// firewall may drop packets of.
func (s *Store) DroppableNetworks(ctx context.Context, providers []netip.Prefix) ([]netip.Prefix, error) {
	protected, err := s.protections(ctx, providers)
	if err != nil {
		return nil, err
	}
	return s.blockedWithout(ctx, protected)
}

func (s *Store) blockedWithout(ctx context.Context, protected []protection) ([]netip.Prefix, error) {
	var addresses []string
	if err := s.read(ctx).Raw("SELECT address FROM blocks WHERE "+liveBlock, micros(s.Now())).Scan(&addresses).Error; err != nil {
		return nil, explain(err, "read the blocks")
	}
	var set netipx.IPSetBuilder
	for _, address := range addresses {
		prefix, _, err := ParseInboundIP(address)
		if err != nil {
			return nil, fmt.Errorf("read the blocks: %w", err)
		}
		set.AddPrefix(prefix)
	}
	for _, p := range protected {
		set.RemovePrefix(p.prefix)
	}
	blocked, err := set.IPSet()
	if err != nil {
		return nil, fmt.Errorf("combine the blocks: %w", err)
	}
	return blocked.Prefixes(), nil
}
