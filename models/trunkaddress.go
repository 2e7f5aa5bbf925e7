package models

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
)

// MaxInboundIPs is how many addresses and networks an inbound trunk may have.
const MaxInboundIPs = 64

// trunkAddress is an address of an inbound trunk, as a range that can be searched.
type trunkAddress struct {
	TrunkID      string `gorm:"primaryKey"`
	Place        int    `gorm:"primaryKey;autoIncrement:false"`
	Address      string
	FirstAddress string
	LastAddress  string
}

// TableName implements gorm's schema.Tabler.
func (trunkAddress) TableName() string { return "trunk_addresses" }

// ParseInboundIP reads an address or a CIDR and returns it in its normal form: the network address where it is a CIDR, no
// prefix length where it is one host, IPv4 where it is an IPv4-mapped IPv6 address.
func ParseInboundIP(s string) (netip.Prefix, string, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		addr, err := netip.ParseAddr(s)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, "", fmt.Errorf("inbound address %q is neither an IP address nor a CIDR", s)
		}
		addr = addr.Unmap()
		prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	if prefix.Addr().Is4In6() {
		if prefix.Bits() < 96 {
			return netip.Prefix{}, "", fmt.Errorf("inbound address %q is neither an IP address nor a CIDR", s)
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	prefix = prefix.Masked()
	if prefix.IsSingleIP() {
		return prefix, prefix.Addr().String(), nil
	}
	return prefix, prefix.String(), nil
}

// addressKey writes an address so that text order is address order within a family.
func addressKey(addr netip.Addr) string {
	addr = addr.Unmap()
	family := "6"
	if addr.Is4() {
		family = "4"
	}
	return family + hex.EncodeToString(addr.AsSlice())
}

// lastAddress returns the highest address of a prefix.
func lastAddress(prefix netip.Prefix) netip.Addr {
	raw := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(raw)
	return last
}

// readAddresses fills in the addresses of trunks.
func (s *Store) readAddresses(ctx context.Context, trunks []Trunk) error {
	places := make(map[string]*Trunk)
	var inbound []string
	for i := range trunks {
		if trunk := &trunks[i]; trunk.Direction == Inbound {
			places[trunk.ID], inbound = trunk, append(inbound, trunk.ID)
		}
	}
	for ids := range slices.Chunk(inbound, 500) {
		var rows []trunkAddress
		if err := s.read(ctx).Where("trunk_id IN ?", ids).Order("trunk_id, place").Find(&rows).Error; err != nil {
			return explain(err, "read the addresses of trunks")
		}
		for _, row := range rows {
			trunk := places[row.TrunkID]
			trunk.InboundIPs = append(trunk.InboundIPs, row.Address)
		}
	}
	return nil
}

// saveAddresses writes the addresses of a trunk in place of those that it had, and normalises them. An overlap with one of another undeleted
// trunk is refused. No index can do that, so it takes the row lock that stands for all inbound addresses: of two transactions, the second
// sees the first one's.
func (s *Store) saveAddresses(ctx context.Context, trunk *Trunk) error {
	if trunk.Direction != Inbound {
		return nil
	}
	if len(trunk.InboundIPs) > MaxInboundIPs {
		return fmt.Errorf("trunk %q has more than %d inbound addresses", trunk.ID, MaxInboundIPs)
	}
	rows := make([]trunkAddress, len(trunk.InboundIPs))
	for i, text := range trunk.InboundIPs {
		prefix, normal, err := ParseInboundIP(text)
		if err != nil {
			return err
		}
		rows[i] = trunkAddress{
			TrunkID: trunk.ID, Place: i, Address: normal, FirstAddress: addressKey(prefix.Addr()), LastAddress: addressKey(lastAddress(prefix)),
		}
	}
	if err := s.lock(ctx, "trunks.inbound_ip"); err != nil {
		return err
	}
	if err := s.write(ctx).Exec("DELETE FROM trunk_addresses WHERE trunk_id = ?", trunk.ID).Error; err != nil {
		return explain(err, "replace the addresses of trunk %q", trunk.ID)
	}
	normal := make([]string, len(rows))
	for i := range rows {
		row := &rows[i]
		var taken bool
		err := s.write(ctx).Raw("SELECT EXISTS (SELECT 1 FROM trunk_addresses WHERE first_address <= ? AND last_address >= ?)", row.LastAddress, row.FirstAddress).
			Row().Scan(&taken)
		if err != nil {
			return explain(err, "look for trunks with address %s", row.Address)
		}
		if taken {
			return fmt.Errorf("trunk address %s: %w", row.Address, ErrInboundIPExists)
		}
		if err := s.write(ctx).Create(row).Error; err != nil {
			return explain(err, "save address %s of trunk %q", row.Address, trunk.ID)
		}
		normal[i] = row.Address
	}
	trunk.InboundIPs = nil
	if len(normal) > 0 {
		trunk.InboundIPs = normal
	}
	return nil
}

// InboundTrunkByAddress returns the active inbound trunk with an address or network that holds ip, or ErrNotFound. Networks of trunks never
// overlap, so there is at most one.
func (s *Store) InboundTrunkByAddress(ctx context.Context, ip netip.Addr) (*Trunk, error) {
	trunk, err := s.TrunkByAddress(ctx, ip)
	if err == nil && !trunk.IsActive {
		return nil, fmt.Errorf("inbound trunk of address %s is not active: %w", ip, ErrNotFound)
	}
	return trunk, err
}

// TrunkByAddress is InboundTrunkByAddress of all undeleted trunks, active or not.
func (s *Store) TrunkByAddress(ctx context.Context, ip netip.Addr) (*Trunk, error) {
	key := addressKey(ip)
	// The last network that begins at or before the address is the only one that can hold it.
	var row trunkAddress
	err := s.read(ctx).Where("first_address <= ?", key).Order("first_address DESC").Take(&row).Error
	if err != nil {
		return nil, explain(err, "inbound trunk of address %s", ip)
	}
	if row.LastAddress < key || len(row.LastAddress) != len(key) {
		return nil, fmt.Errorf("inbound trunk of address %s: %w", ip, ErrNotFound)
	}
	return s.takeTrunk(ctx, s.read(ctx).Where("id = ? AND deleted_at IS NULL", row.TrunkID), "inbound trunk of address %s", ip)
}
