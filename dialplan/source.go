package dialplan

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
	"strings"

	"tandem/models"
)

const (
	// domain is the directory domain whose users are the sources; freeswitch-conf's access list "tandem" is made of it.
	domain = "tandem"
	// providerName stands where a customer's id stands in the user id of a trunk.
	providerName = "provider"

	sourcePath = directoryFolder + "/sources.xml"

	// The XML parser is quadratic in siblings, so users are spread over groups.
	sourceGroups = 64

	// Shorter prefixes are nobody's own network; as an inbound address they would invite the internet.
	minBits4 = 8
	minBits6 = 19
)

// source is an address that may call in.
type source struct {
	id     string // user id in the directory
	prefix netip.Prefix
	names  []string // channel variables of its calls, name and value in turn
}

// providerSources returns the operator's providers, sorted.
func providerSources(providers []netip.Prefix) ([]source, error) {
	sorted := make([]netip.Prefix, 0, len(providers))
	for _, prefix := range providers {
		if !prefix.IsValid() {
			return nil, errors.New("a provider's network is not valid")
		}
		sorted = append(sorted, unmapped(prefix))
	}
	slices.SortFunc(sorted, netip.Prefix.Compare)
	sorted = slices.Compact(sorted)
	sources := make([]source, len(sorted))
	for i, prefix := range sorted {
		sources[i] = source{
			id: fmt.Sprintf("%s.%d.did", providerName, i+1), prefix: prefix, names: []string{"tandem_provider", prefix.String()},
		}
	}
	return sources, nil
}

// trunkSources returns the sources of an inbound trunk, one for each of its addresses.
func trunkSources(trunk *models.Trunk) ([]source, error) {
	if !idPattern.MatchString(trunk.ID) || !idPattern.MatchString(trunk.CustomerID) || trunk.CustomerID == providerName {
		return nil, errors.New("id of trunk or customer holds characters other than letters, digits and underscores")
	}
	if len(trunk.InboundIPs) == 0 {
		return nil, errors.New("inbound_ip: an inbound trunk has none")
	}
	kind := "did"
	if trunk.ApplicationID != nil && *trunk.ApplicationID != "" {
		kind = "any"
	}
	sources := make([]source, len(trunk.InboundIPs))
	for i, address := range trunk.InboundIPs {
		prefix, _, err := models.ParseInboundIP(address)
		if err != nil {
			return nil, fmt.Errorf("inbound_ip: %w", err)
		}
		prefix = unmapped(prefix)
		if bits := prefix.Bits(); prefix.Addr().Is4() && bits < minBits4 || prefix.Addr().Is6() && bits < minBits6 {
			return nil, fmt.Errorf("inbound_ip %s is wider than /%d (IPv4) or /%d (IPv6)", prefix, minBits4, minBits6)
		}
		place := ""
		if i > 0 { // a user of the directory has one address
			place = fmt.Sprintf(".%d", i+1)
		}
		sources[i] = source{
			id: trunk.CustomerID + "." + trunk.ID + place + "." + kind, prefix: prefix,
			names: []string{"tandem_customer_id", trunk.CustomerID, "tandem_trunk_id", trunk.ID},
		}
	}
	return sources, nil
}

// unmapped is a prefix in the form in which FreeSWITCH compares it: masked, IPv4 for IPv4-mapped IPv6 (switch_core.c,
// switch_check_network_list_ip_port_token).
func unmapped(prefix netip.Prefix) netip.Prefix {
	if addr := prefix.Addr(); addr.Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked()
}

// covered tells whether one of the sources' networks holds the whole prefix.
func covered(prefix netip.Prefix, by []source) bool {
	return slices.ContainsFunc(by, func(s source) bool {
		return s.prefix.Bits() <= prefix.Bits() && s.prefix.Contains(prefix.Addr())
	})
}

// renderSources writes the directory. Its users have no password and must never pass for one who has given one: without
// allow-empty-password FreeSWITCH takes any digest for such a user (sofia_reg.c, sofia_reg_parse_auth).
func renderSources(sources []source) ([]byte, error) {
	groups := make([][]source, sourceGroups)
	for _, s := range sources {
		n := crc32.ChecksumIEEE([]byte(s.id)) % sourceGroups
		groups[n] = append(groups[n], s)
	}
	var d document
	d.line("<include>")
	d.line(`  <domain name="%s">`, domain)
	d.line(`    <params><param name="allow&#45;empty&#45;password" value="false"/></params>`)
	d.line("    <groups>")
	for n, group := range groups {
		if len(group) == 0 {
			continue
		}
		slices.SortFunc(group, func(a, b source) int { return strings.Compare(a.id, b.id) })
		d.line(`      <group name="%02d">`, n)
		d.line("        <users>")
		for _, s := range group {
			id, err := attribute(s.id)
			if err != nil {
				return nil, fmt.Errorf("source %q %w", s.id, err)
			}
			d.line(`          <user id="%s" cidr="%s">`, id, s.prefix)
			d.line("            <variables>")
			for i := 0; i < len(s.names); i += 2 {
				value, err := attribute(s.names[i+1])
				if err != nil {
					return nil, fmt.Errorf("source %q: %s %w", s.id, s.names[i], err)
				}
				d.line(`              <variable name="%s" value="%s"/>`, s.names[i], value)
			}
			d.line("            </variables>")
			d.line("          </user>")
		}
		d.line("        </users>")
		d.line("      </group>")
	}
	d.line("    </groups>")
	d.line("  </domain>")
	d.line("</include>")
	return d.bytes(), nil
}
