package models

import (
	"context"
	"fmt"
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
	// Transport is udp, tcp, tls or empty, Port 0 or a port: where Proxy says neither.
	Transport string
	Port      int
	Register  bool
	IsActive  bool
	// InboundIPs are the addresses and CIDRs that calls come from, at most MaxInboundIPs; the store keeps their normal forms.
	InboundIPs []string `gorm:"-"`
	// ApplicationID answers inbound calls to numbers that are no DIDs.
	ApplicationID *string
	// Routing says which calls an outbound trunk takes, and how it is told of them.
	Routing TrunkRouting `gorm:"embedded"`
	// RateDeckID is the deck of what goes over the trunk, empty for that of the customer.
	RateDeckID string `gorm:"serializer:reference"`
	// Limits are of both directions.
	Limits    CallLimits `gorm:"embedded"`
	CreatedAt time.Time  `gorm:"serializer:moment;autoCreateTime:false"`
	UpdatedAt time.Time  `gorm:"serializer:moment;autoUpdateTime:false"`
	DeletedAt *time.Time `gorm:"serializer:moment"`
}

// trunkRow is a trunk as stored: its password sealed, its addresses in a table of their own.
type trunkRow struct {
	Trunk          `gorm:"embedded"`
	SealedPassword string `gorm:"column:password"`
}

const trunkTable = "trunks"

// TableName implements gorm's schema.Tabler.
func (trunkRow) TableName() string { return trunkTable }

func (s *Store) sealTrunk(trunk *Trunk) *trunkRow {
	row := &trunkRow{Trunk: *trunk, SealedPassword: s.sealer.seal(trunkTable, "password", trunk.ID, trunk.Password)}
	row.Routing = row.Routing.withDefaults()
	return row
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

// openTrunks opens the trunks and reads their addresses.
func (s *Store) openTrunks(ctx context.Context, rows []trunkRow) ([]Trunk, error) {
	trunks := make([]Trunk, 0, len(rows))
	for i := range rows {
		trunk, err := s.openTrunk(&rows[i])
		if err != nil {
			return nil, err
		}
		trunks = append(trunks, *trunk)
	}
	return trunks, s.readAddresses(ctx, trunks)
}

// CreateTrunk inserts a trunk, fills ID and times and normalises InboundIPs. ErrGatewayNameExists where an undeleted trunk of
// any customer has the gateway name, ErrInboundIPExists where one has an overlapping address, or two of its own overlap.
func (s *Store) CreateTrunk(ctx context.Context, trunk *Trunk) error {
	return s.InTx(ctx, func(tx *Store) error {
		fresh := *trunk
		if fresh.ID == "" {
			fresh.ID = NewID(PrefixTrunk)
		}
		fresh.CreatedAt = tx.Now()
		fresh.UpdatedAt, fresh.DeletedAt = fresh.CreatedAt, nil
		row := tx.sealTrunk(&fresh)
		if err := tx.pin(ctx, applicationTable, row.CustomerID, row.ApplicationID); err != nil {
			return fmt.Errorf("trunk %q: %w", row.Name, err)
		}
		if err := tx.write(ctx).Create(row).Error; err != nil {
			return explain(err, "create trunk %q", row.Name)
		}
		if err := tx.saveAddresses(ctx, &row.Trunk); err != nil {
			return err
		}
		*trunk = row.Trunk
		return nil
	})
}

// Trunk returns an undeleted trunk of a customer, or ErrNotFound.
func (s *Store) Trunk(ctx context.Context, customerID, id string) (*Trunk, error) {
	return s.takeTrunk(ctx, s.read(ctx).Where("id = ? AND customer_id = ? AND deleted_at IS NULL", id, customerID), "trunk %q", id)
}

// TrunkByID returns a trunk whosesoever it is, deleted or not. Never answer a customer's request from it.
func (s *Store) TrunkByID(ctx context.Context, id string) (*Trunk, error) {
	return s.takeTrunk(ctx, s.read(ctx).Where("id = ?", id), "trunk %q", id)
}

func (s *Store) takeTrunk(ctx context.Context, query *gorm.DB, format string, args ...any) (*Trunk, error) {
	var row trunkRow
	if err := query.Take(&row).Error; err != nil {
		return nil, explain(err, format, args...)
	}
	trunks, err := s.openTrunks(ctx, []trunkRow{row})
	if err != nil {
		return nil, err
	}
	return &trunks[0], nil
}

// ListTrunks returns a page of a customer's undeleted trunks, newest first, and the cursor of the next page.
func (s *Store) ListTrunks(ctx context.Context, customerID string, page Page) ([]Trunk, string, error) {
	query := s.read(ctx).Where("customer_id = ? AND deleted_at IS NULL", customerID)
	rows, next, err := paged(query, page, func(r *trunkRow) (time.Time, string) { return r.CreatedAt, r.ID })
	if err != nil {
		return nil, "", explain(err, "list trunks")
	}
	trunks, err := s.openTrunks(ctx, rows)
	return trunks, next, err
}

// UpdateTrunk writes what a customer may change of an undeleted trunk, found by ID and CustomerID. Errors as CreateTrunk.
func (s *Store) UpdateTrunk(ctx context.Context, trunk *Trunk) error {
	return s.InTx(ctx, func(tx *Store) error {
		fresh := *trunk
		fresh.UpdatedAt = tx.Now()
		row := tx.sealTrunk(&fresh)
		if err := tx.pin(ctx, applicationTable, row.CustomerID, row.ApplicationID); err != nil {
			return fmt.Errorf("trunk %q: %w", row.Name, err)
		}
		result := tx.write(ctx).Model(&trunkRow{}).
			Where("id = ? AND customer_id = ? AND deleted_at IS NULL", row.ID, row.CustomerID).
			Select(columnsWith("name", "direction", "gateway_name", "proxy", "username", "password", "realm", "from_domain", "register", "is_active",
				"transport", "port", "application_id", "priority", "weight", "allowed_prefixes", "strip_prefix", "add_prefix", "caller_id_policy", "caller_id",
				"codecs", "updated_at")).
			Updates(row)
		if err := changedOne(result, "update trunk %q", row.ID); err != nil {
			return err
		}
		if err := tx.saveAddresses(ctx, &row.Trunk); err != nil {
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
		for _, table := range []string{"trunk_addresses", "trunk_usage", "trunk_starts", "trunk_health", "trunk_changes"} {
			if err := tx.write(ctx).Exec("DELETE FROM "+table+" WHERE trunk_id = ?", id).Error; err != nil {
				return explain(err, "clear %s of trunk %q", table, id)
			}
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
	return s.openTrunks(ctx, rows)
}

// ActiveOutboundTrunks returns all active outbound trunks of a customer, those of the lowest priority first, of one priority the oldest first.
func (s *Store) ActiveOutboundTrunks(ctx context.Context, customerID string) ([]Trunk, error) {
	var rows []trunkRow
	err := s.read(ctx).Where("customer_id = ? AND direction = ? AND is_active AND deleted_at IS NULL", customerID, Outbound).
		Order("priority, created_at, id").Find(&rows).Error
	if err != nil {
		return nil, explain(err, "active outbound trunks of customer %q", customerID)
	}
	return s.openTrunks(ctx, rows)
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
