package models

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// BlockException is an address or network that is never blocked.
type BlockException struct {
	ID           string
	Address      string // in the form of ParseInboundIP
	FirstAddress string
	LastAddress  string
	Note         string
	CreatedBy    string
	CreatedAt    time.Time `gorm:"serializer:moment;autoCreateTime:false"`
}

// TableName implements gorm's schema.Tabler.
func (BlockException) TableName() string { return "block_exceptions" }

// CreateBlockException keeps an address from being blocked; Address, Note and CreatedBy are taken from the argument, which gets the rest. Blocks in
// force that lie in it are lifted, and returned; of a wider one it is left out.
func (s *Store) CreateBlockException(ctx context.Context, exception *BlockException) (lifted []Block, err error) {
	prefix, normal, err := ParseInboundIP(exception.Address)
	if err != nil {
		return nil, err
	}
	err = s.InTx(ctx, func(tx *Store) error {
		lifted = nil
		if err := tx.lock(ctx, "blocks"); err != nil {
			return err
		}
		var present int64
		if err := tx.write(ctx).Raw("SELECT COUNT(*) FROM block_exceptions").Row().Scan(&present); err != nil {
			return explain(err, "count exceptions")
		}
		if present >= MaxBlockExceptions {
			return fmt.Errorf("never block %s: %w", normal, ErrTooManyBlocks)
		}
		now := tx.Now()
		row := BlockException{
			ID: NewID(PrefixException), Address: normal, FirstAddress: addressKey(prefix.Addr()), LastAddress: addressKey(lastAddress(prefix)),
			Note: exception.Note, CreatedBy: exception.CreatedBy, CreatedAt: now,
		}
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "never block %s", normal)
		}
		within := tx.write(ctx).Where(liveBlock+" AND first_address >= ? AND last_address <= ?", micros(now), row.FirstAddress, row.LastAddress)
		if err := within.Order("id").Find(&lifted).Error; err != nil {
			return explain(err, "find the blocks in %s", normal)
		}
		for i := range lifted {
			b := &lifted[i]
			b.EndedAt, b.EndedBy = &now, row.CreatedBy
			if err := tx.write(ctx).Exec("UPDATE blocks SET ended_at = ?, ended_by = ? WHERE id = ?", micros(now), b.EndedBy, b.ID).Error; err != nil {
				return explain(err, "lift block %q", b.ID)
			}
		}
		*exception = row
		return nil
	})
	return lifted, err
}

// ListBlockExceptions returns a page of exceptions, newest first, and the cursor of the next page. A valid overlap lists those that have an
// address in common with it.
func (s *Store) ListBlockExceptions(ctx context.Context, overlap netip.Prefix, page Page) ([]BlockException, string, error) {
	query := s.read(ctx).Model(&BlockException{})
	if overlap.IsValid() {
		query = query.Where("first_address <= ? AND last_address >= ?", addressKey(lastAddress(overlap)), addressKey(overlap.Addr()))
	}
	rows, next, err := paged(query, page, func(e *BlockException) (time.Time, string) { return e.CreatedAt, e.ID })
	return rows, next, explain(err, "list exceptions of blocks")
}

// DeleteBlockException lets an address be blocked again and returns what it was; ErrNotFound where there is none. It blocks nothing by itself.
func (s *Store) DeleteBlockException(ctx context.Context, id string) (*BlockException, error) {
	var row BlockException
	err := s.InTx(ctx, func(tx *Store) error {
		row = BlockException{}
		if err := tx.lock(ctx, "blocks"); err != nil {
			return err
		}
		if err := tx.write(ctx).Where("id = ?", id).Take(&row).Error; err != nil {
			return explain(err, "delete exception %q", id)
		}
		return explain(tx.write(ctx).Exec("DELETE FROM block_exceptions WHERE id = ?", id).Error, "delete exception %q", id)
	})
	if err != nil {
		return nil, err
	}
	return &row, nil
}
