package models

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"time"

	"gorm.io/gorm"
)

// Directions of trunks and calls.
const (
	Outbound = "outbound"
	Inbound  = "inbound"
)

// Trunk is a customer's own carrier path: outbound it is a gateway (proxy, credentials), inbound a source address.
type Trunk struct {
	ID          string
	CustomerID  string
	Name        string
	Direction   string
	GatewayName string
	Proxy       string
	Username    string
	Password    Secret `gorm:"-"`
	Realm       string
	FromDomain  string
	Register    bool
	IsActive    bool
	// InboundIP is the address or CIDR that calls come from; the store keeps its normal form.
	InboundIP string `gorm:"column:inbound_ip"`
	// ApplicationID answers inbound calls to numbers that are no DIDs.
	ApplicationID *string
	CreatedAt     time.Time  `gorm:"serializer:moment;autoCreateTime:false"`
	UpdatedAt     time.Time  `gorm:"serializer:moment;autoUpdateTime:false"`
	DeletedAt     *time.Time `gorm:"serializer:moment"`
}

// trunkRow is a trunk as stored: its password sealed, its address as a range that can be searched.
type trunkRow struct {
	Trunk          `gorm:"embedded"`
	SealedPassword string `gorm:"column:password"`
	InboundFirst   string
	InboundLast    string
}

const trunkTable = "trunks"

// TableName implements gorm's schema.Tabler.
func (trunkRow) TableName() string { return trunkTable }

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

func (s *Store) sealTrunk(trunk *Trunk) (*trunkRow, error) {
	row := &trunkRow{Trunk: *trunk, SealedPassword: s.sealer.seal(trunkTable, "password", trunk.ID, trunk.Password)}
	if trunk.InboundIP != "" {
		prefix, normal, err := ParseInboundIP(trunk.InboundIP)
		if err != nil {
			return nil, err
		}
		row.InboundIP = normal
		row.InboundFirst, row.InboundLast = addressKey(prefix.Addr()), addressKey(lastAddress(prefix))
	}
	return row, nil
}

func (s *Store) openTrunk(row *trunkRow) (*Trunk, error) {
	trunk := row.Trunk
	var err error
	trunk.Password, err = s.sealer.open(trunkTable, "password", trunk.ID, row.SealedPassword)
	if err != nil {
		return nil, err
	}
	return &trunk, nil
}

func (s *Store) openTrunks(rows []trunkRow) ([]Trunk, error) {
	trunks := make([]Trunk, 0, len(rows))
	for i := range rows {
		trunk, err := s.openTrunk(&rows[i])
		if err != nil {
			return nil, err
		}
		trunks = append(trunks, *trunk)
	}
	return trunks, nil
}

// CreateTrunk inserts a trunk, fills ID and times and normalises InboundIP. ErrGatewayNameExists where an undeleted trunk of
// any customer has the gateway name, ErrInboundIPExists where one has an overlapping address.
func (s *Store) CreateTrunk(ctx context.Context, trunk *Trunk) error {
	return s.InTx(ctx, func(tx *Store) error {
		fresh := *trunk
		if fresh.ID == "" {
			fresh.ID = NewID(PrefixTrunk)
		}
		fresh.CreatedAt = tx.Now()
		fresh.UpdatedAt, fresh.DeletedAt = fresh.CreatedAt, nil
		row, err := tx.sealTrunk(&fresh)
		if err != nil {
			return err
		}
		if err := tx.pin(ctx, applicationTable, row.CustomerID, row.ApplicationID); err != nil {
			return fmt.Errorf("trunk %q: %w", row.Name, err)
		}
		if err := tx.claimAddress(ctx, row); err != nil {
			return err
		}
		if err := tx.write(ctx).Create(row).Error; err != nil {
			return explain(err, "create trunk %q", row.Name)
		}
		*trunk = row.Trunk
		return nil
	})
}

// claimAddress refuses an overlap with another undeleted trunk. No index can, so it takes the row lock that stands for all
// inbound addresses: of two transactions, the second sees the first one's trunk.
func (s *Store) claimAddress(ctx context.Context, row *trunkRow) error {
	if row.InboundFirst == "" {
		return nil
	}
	if err := s.lock(ctx, "trunks.inbound_ip"); err != nil {
		return err
	}
	var taken bool
	err := s.write(ctx).Raw(`SELECT EXISTS (SELECT 1 FROM trunks WHERE deleted_at IS NULL AND inbound_first <> '' AND id <> ?
		AND inbound_first <= ? AND inbound_last >= ?)`, row.ID, row.InboundLast, row.InboundFirst).Row().Scan(&taken)
	if err != nil {
		return explain(err, "look for trunks with address %s", row.InboundIP)
	}
	if taken {
		return fmt.Errorf("trunk address %s: %w", row.InboundIP, ErrInboundIPExists)
	}
	return nil
}

// Trunk returns an undeleted trunk of a customer, or ErrNotFound.
func (s *Store) Trunk(ctx context.Context, customerID, id string) (*Trunk, error) {
	return s.takeTrunk(s.read(ctx).Where("id = ? AND customer_id = ? AND deleted_at IS NULL", id, customerID), "trunk %q", id)
}

// TrunkByID returns a trunk whosesoever it is, deleted or not. Never answer a customer's request from it.
func (s *Store) TrunkByID(ctx context.Context, id string) (*Trunk, error) {
	return s.takeTrunk(s.read(ctx).Where("id = ?", id), "trunk %q", id)
}

func (s *Store) takeTrunk(query *gorm.DB, format string, args ...any) (*Trunk, error) {
	var row trunkRow
	if err := query.Take(&row).Error; err != nil {
		return nil, explain(err, format, args...)
	}
	return s.openTrunk(&row)
}

// ListTrunks returns a page of a customer's undeleted trunks, newest first, and the cursor of the next page.
func (s *Store) ListTrunks(ctx context.Context, customerID string, page Page) ([]Trunk, string, error) {
	query := s.read(ctx).Where("customer_id = ? AND deleted_at IS NULL", customerID)
	rows, next, err := paged(query, page, func(r *trunkRow) (time.Time, string) { return r.CreatedAt, r.ID })
	if err != nil {
		return nil, "", explain(err, "list trunks")
	}
	trunks, err := s.openTrunks(rows)
	return trunks, next, err
}

// UpdateTrunk writes what a customer may change of an undeleted trunk, found by ID and CustomerID. Errors as CreateTrunk.
func (s *Store) UpdateTrunk(ctx context.Context, trunk *Trunk) error {
	return s.InTx(ctx, func(tx *Store) error {
		fresh := *trunk
		fresh.UpdatedAt = tx.Now()
		row, err := tx.sealTrunk(&fresh)
		if err != nil {
			return err
		}
		if err := tx.pin(ctx, applicationTable, row.CustomerID, row.ApplicationID); err != nil {
			return fmt.Errorf("trunk %q: %w", row.Name, err)
		}
		if err := tx.claimAddress(ctx, row); err != nil {
			return err
		}
		result := tx.write(ctx).Model(&trunkRow{}).
			Where("id = ? AND customer_id = ? AND deleted_at IS NULL", row.ID, row.CustomerID).
			Select("name", "direction", "gateway_name", "proxy", "username", "password", "realm", "from_domain", "register", "is_active",
				"inbound_ip", "inbound_first", "inbound_last", "application_id", "updated_at").
			Updates(row)
		if err := changedOne(result, "update trunk %q", row.ID); err != nil {
			return err
		}
		*trunk = row.Trunk
		return nil
	})
}

// DeleteTrunk marks a trunk deleted; its gateway name and address are free again. ErrInUse while a live call uses it.
func (s *Store) DeleteTrunk(ctx context.Context, customerID, id string) error {
	return s.InTx(ctx, func(tx *Store) error {
		now := micros(tx.Now())
		result := tx.write(ctx).Exec("UPDATE trunks SET deleted_at = ?, updated_at = ? WHERE id = ? AND customer_id = ? AND deleted_at IS NULL",
			now, now, id, customerID)
		if err := changedOne(result, "delete trunk %q", id); err != nil {
			return err
		}
		var used bool
		err := tx.write(ctx).Raw("SELECT EXISTS (SELECT 1 FROM calls WHERE trunk_id = ? AND status IN "+liveStatuses+")", id).Row().Scan(&used)
		if err != nil {
			return explain(err, "look for calls on trunk %q", id)
		}
		if used {
			return fmt.Errorf("delete trunk %q: %w", id, ErrInUse)
		}
		return nil
	})
}

// AllTrunks returns every undeleted trunk of every customer, active or not, in the order of their IDs: what the nodes'
// configuration is rendered from.
func (s *Store) AllTrunks(ctx context.Context) ([]Trunk, error) {
	var rows []trunkRow
	if err := s.read(ctx).Where("deleted_at IS NULL").Order("id").Find(&rows).Error; err != nil {
		return nil, explain(err, "read all trunks")
	}
	return s.openTrunks(rows)
}

// ActiveOutboundTrunk returns a customer's oldest active outbound trunk, or ErrNotFound.
func (s *Store) ActiveOutboundTrunk(ctx context.Context, customerID string) (*Trunk, error) {
	query := s.read(ctx).Where("customer_id = ? AND direction = ? AND is_active AND deleted_at IS NULL", customerID, Outbound).
		Order("created_at, id")
	return s.takeTrunk(query, "active outbound trunk of customer %q", customerID)
}

// ActiveOutboundTrunks returns all active outbound trunks of a customer, in the order in which they are tried: oldest first.
func (s *Store) ActiveOutboundTrunks(ctx context.Context, customerID string) ([]Trunk, error) {
	var rows []trunkRow
	err := s.read(ctx).Where("customer_id = ? AND direction = ? AND is_active AND deleted_at IS NULL", customerID, Outbound).
		Order("created_at, id").Find(&rows).Error
	if err != nil {
		return nil, explain(err, "active outbound trunks of customer %q", customerID)
	}
	return s.openTrunks(rows)
}

// InboundTrunkByAddress returns the active inbound trunk whose address or network holds ip, or ErrNotFound. Networks of
// trunks never overlap, so there is at most one.
func (s *Store) InboundTrunkByAddress(ctx context.Context, ip netip.Addr) (*Trunk, error) {
	key := addressKey(ip)
	// The last network that begins at or before the address is the only one that can hold it.
	query := s.read(ctx).Where("deleted_at IS NULL AND inbound_first <> '' AND inbound_first <= ?", key).Order("inbound_first DESC")
	var row trunkRow
	if err := query.Take(&row).Error; err != nil {
		return nil, explain(err, "inbound trunk of address %s", ip)
	}
	if row.InboundLast < key || len(row.InboundLast) != len(key) || !row.IsActive {
		return nil, fmt.Errorf("inbound trunk of address %s: %w", ip, ErrNotFound)
	}
	return s.openTrunk(&row)
}

// lock takes a named lock until the transaction ends.
func (s *Store) lock(ctx context.Context, name string) error {
	result := s.write(ctx).Exec("UPDATE locks SET taken = taken + 1 WHERE name = ?", name)
	return changedOne(result, "take lock %q", name)
}

// changedOne reports ErrNotFound where a change found no row.
func changedOne(result *gorm.DB, format string, args ...any) error {
	if result.Error == nil && result.RowsAffected == 0 {
		return fmt.Errorf(format+": %w", append(args, ErrNotFound)...)
	}
	return explain(result.Error, format, args...)
}
