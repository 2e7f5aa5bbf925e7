package models

import (
	"context"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Reading a row, changing some of it and writing it back loses what another transaction changes in between. The Edit… methods
// read a row that a transaction is going to change: until the transaction ends, another one that wants to edit the row waits.
// They belong inside InTx. SQLite has one writer and no row locks; its dialect leaves the clause out.

func (s *Store) edit(ctx context.Context, customerID, id string) *gorm.DB {
	return s.write(ctx).Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).
		Where("id = ? AND customer_id = ? AND deleted_at IS NULL", id, customerID)
}

// EditApplication is Application for a transaction that goes on to change the row. ErrNotFound as there.
func (s *Store) EditApplication(ctx context.Context, customerID, id string) (*Application, error) {
	var row applicationRow
	if err := s.edit(ctx, customerID, id).Take(&row).Error; err != nil {
		return nil, explain(err, "application %q", id)
	}
	return s.openApplication(&row)
}

// EditTrunk is Trunk for a transaction that goes on to change the row. ErrNotFound as there.
func (s *Store) EditTrunk(ctx context.Context, customerID, id string) (*Trunk, error) {
	return s.takeTrunk(ctx, s.edit(ctx, customerID, id), "trunk %q", id)
}

// EditDID is DID for a transaction that goes on to change the row. ErrNotFound as there.
func (s *Store) EditDID(ctx context.Context, customerID, id string) (*DID, error) {
	var row DID
	if err := s.edit(ctx, customerID, id).Take(&row).Error; err != nil {
		return nil, explain(err, "DID %q", id)
	}
	return &row, nil
}
