package models

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Who blocked an address.
const (
	BlockAutomatic = "automatic" // it called uninvited too often, see BlockRules
	BlockOperator  = "operator"
)

const (
	// MaxBlocks is how many blocks may be in force at a time; automatic blocking stops there, and so does CreateBlock. The nodes compare the
	// source of each call that nobody invited with all of them, one after the other (switch_utils.c,
	// switch_network_list_validate_ip_port_token).
	MaxBlocks = 10_000
	// MaxBlockExceptions is how many addresses and networks may be kept from being blocked.
	MaxBlockExceptions = 1000
	// MinBlockBits4 is the shortest prefix of IPv4 that may be blocked: anything wider is half of the internet and a slip of the hand.
	MinBlockBits4 = 8
	// MinBlockBits6 is that of IPv6.
	MinBlockBits6 = 19
)

var (
	// ErrBlockExists says that the address is blocked already, or kept from being blocked already.
	ErrBlockExists = errors.New("block exists")
	// ErrTooManyBlocks says that MaxBlocks are in force, or there are MaxBlockExceptions.
	ErrTooManyBlocks = errors.New("too many blocks")
)

// Block is an address or network whose calls the nodes refuse before they look at anything else, until it expires or is lifted.
type Block struct {
	ID           string
	Address      string // in the form of ParseInboundIP
	FirstAddress string
	LastAddress  string
	Origin       string
	Reason       string
	Note         string
	CreatedBy    string // name of the operator's token; empty for BlockAutomatic
	// Relapse counts the automatic blocks of the address before this one, see BlockRules.
	Relapse   int64
	CreatedAt time.Time  `gorm:"serializer:moment;autoCreateTime:false"`
	ExpiresAt *time.Time `gorm:"serializer:moment"` // nil: never
	// EndedAt is when it was lifted, or when it was noted that it had expired; EndedBy is who lifted it.
	EndedAt *time.Time `gorm:"serializer:moment"`
	EndedBy string
}

// TableName implements gorm's schema.Tabler.
func (Block) TableName() string { return "blocks" }

// Live tells whether the block is in force.
func (b *Block) Live(now time.Time) bool {
	return b.EndedAt == nil && (b.ExpiresAt == nil || b.ExpiresAt.After(now))
}

// liveBlock is Block.Live in SQL; its argument is the present.
const liveBlock = "ended_at IS NULL AND (expires_at IS NULL OR expires_at > ?)"

// BlockFilter narrows ListBlocks; zero fields do not.
type BlockFilter struct {
	// Over lists the blocks that are not in force any more, instead of those that are.
	Over bool
	// All lists both.
	All     bool
	Origin  string
	Overlap netip.Prefix // blocks that have an address in common with it
}

// ListBlocks returns a page of blocks, newest first, and the cursor of the next page.
func (s *Store) ListBlocks(ctx context.Context, filter BlockFilter, page Page) ([]Block, string, error) {
	query := s.read(ctx).Model(&Block{})
	switch now := micros(s.Now()); {
	case filter.All:
	case filter.Over:
		query = query.Where("NOT ("+liveBlock+")", now)
	default:
		query = query.Where(liveBlock, now)
	}
	if filter.Origin != "" {
		query = query.Where("origin = ?", filter.Origin)
	}
	if filter.Overlap.IsValid() {
		query = query.Where("first_address <= ? AND last_address >= ?", addressKey(lastAddress(filter.Overlap)), addressKey(filter.Overlap.Addr()))
	}
	rows, next, err := paged(query, page, func(b *Block) (time.Time, string) { return b.CreatedAt, b.ID })
	return rows, next, explain(err, "list blocks")
}

// BlockCounts counts the blocks in force, by origin.
func (s *Store) BlockCounts(ctx context.Context) (map[string]int64, error) {
	var rows []struct {
		Origin string
		Blocks int64
	}
	err := s.read(ctx).Raw("SELECT origin, COUNT(*) AS blocks FROM blocks WHERE "+liveBlock+" GROUP BY origin", micros(s.Now())).Scan(&rows).Error
	counts := map[string]int64{BlockAutomatic: 0, BlockOperator: 0}
	for _, row := range rows {
		counts[row.Origin] = row.Blocks
	}
	return counts, explain(err, "count blocks")
}

// BlockOf returns the block in force that holds the address, the narrowest where there are several, or ErrNotFound.
func (s *Store) BlockOf(ctx context.Context, ip netip.Addr) (*Block, error) {
	key := addressKey(ip)
	var row Block
	err := s.read(ctx).Where(liveBlock+" AND first_address <= ? AND last_address >= ? AND LENGTH(first_address) = ?", micros(s.Now()), key, key, len(key)).
		Order("first_address DESC, last_address").Take(&row).Error
	if err != nil {
		return nil, explain(err, "block of address %s", ip)
	}
	return &row, nil
}

// CreateBlock blocks an address by an operator's hand; Address, Reason, Note, CreatedBy and ExpiresAt are taken from the argument, which gets the
// rest. Where something in it is never blocked the answer is a ProtectedError. providers are the networks of the operator's providers.
func (s *Store) CreateBlock(ctx context.Context, block *Block, providers []netip.Prefix) error {
	prefix, normal, err := ParseInboundIP(block.Address)
	if err != nil {
		return err
	}
	return s.InTx(ctx, func(tx *Store) error {
		if err := tx.lock(ctx, "blocks"); err != nil {
			return err
		}
		row := *block
		row.Address, row.Origin, row.Relapse = normal, BlockOperator, 0
		if err := tx.mayBlock(ctx, prefix, providers); err != nil {
			return fmt.Errorf("block %s: %w", normal, err)
		}
		if err := tx.insertBlock(ctx, &row, prefix); err != nil {
			return err
		}
		*block = row
		return nil
	})
}

// insertBlock stores a block, under the lock. One of the same address that has expired makes room.
func (s *Store) insertBlock(ctx context.Context, row *Block, prefix netip.Prefix) error {
	now := s.Now()
	if err := s.write(ctx).Exec("UPDATE blocks SET ended_at = expires_at WHERE address = ? AND ended_at IS NULL AND expires_at <= ?", row.Address, micros(now)).Error; err != nil {
		return explain(err, "end the expired block of %s", row.Address)
	}
	var live int64
	if err := s.write(ctx).Raw("SELECT COUNT(*) FROM blocks WHERE "+liveBlock, micros(now)).Row().Scan(&live); err != nil {
		return explain(err, "count blocks")
	}
	if live >= MaxBlocks {
		return fmt.Errorf("block %s: %w", row.Address, ErrTooManyBlocks)
	}
	row.ID, row.CreatedAt, row.ExpiresAt, row.EndedAt, row.EndedBy = NewID(PrefixBlock), now, cut(row.ExpiresAt), nil, ""
	row.FirstAddress, row.LastAddress = addressKey(prefix.Addr()), addressKey(lastAddress(prefix))
	return explain(s.write(ctx).Create(row).Error, "block %s", row.Address)
}

// LiftBlock ends a block, now, and returns it. What its address did before no longer counts towards an automatic block. ErrNotFound where there is no
// such block in force.
func (s *Store) LiftBlock(ctx context.Context, id, by string) (*Block, error) {
	var row Block
	err := s.InTx(ctx, func(tx *Store) error {
		row = Block{}
		now := tx.Now()
		if err := tx.lock(ctx, "blocks"); err != nil {
			return err
		}
		result := tx.write(ctx).Exec("UPDATE blocks SET ended_at = ?, ended_by = ? WHERE id = ? AND "+liveBlock, micros(now), by, id, micros(now))
		if err := changedOne(result, "lift block %q", id); err != nil {
			return err
		}
		if err := tx.write(ctx).Where("id = ?", id).Take(&row).Error; err != nil {
			return explain(err, "lift block %q", id)
		}
		return explain(tx.write(ctx).Exec("UPDATE strangers SET window_count = 0 WHERE source = ?", row.Address).Error, "lift block %q", id)
	})
	if err != nil {
		return nil, err
	}
	return &row, nil
}

// BlockRevision changes with every block that begins or ends, expires among them, and with every exception.
func (s *Store) BlockRevision(ctx context.Context) (string, error) {
	var row struct{ Blocks, Newest, Sum, Exceptions, ExceptionSum int64 }
	sum := fmt.Sprint(sumModulus)
	err := s.read(ctx).Raw(`SELECT COUNT(*) AS blocks, COALESCE(MAX(created_at), 0) AS newest, CAST(COALESCE(SUM(created_at % `+sum+`), 0) AS BIGINT) AS sum,
		(SELECT COUNT(*) FROM block_exceptions) AS exceptions,
		(SELECT CAST(COALESCE(SUM(created_at % `+sum+`), 0) AS BIGINT) FROM block_exceptions) AS exception_sum
		FROM blocks WHERE `+liveBlock, micros(s.Now())).Scan(&row).Error
	if err != nil {
		return "", explain(err, "revision of blocks")
	}
	return fmt.Sprintf("%d.%d.%d.%d.%d", row.Blocks, row.Newest, row.Sum, row.Exceptions, row.ExceptionSum), nil
}
