package models

import (
	"context"
	"database/sql"
	"fmt"
)

// snapshot runs fn on a read-only transaction in which every query sees the same moment. fn may run again, see plans.
func (s *Store) snapshot(ctx context.Context, fn func(tx *Store) error) error {
	if s.tx != nil {
		return fn(s)
	}
	options := &sql.TxOptions{ReadOnly: true}
	if s.dialect == DialectPostgres {
		// SQLite's readers have a snapshot anyway.
		options.Isolation = sql.LevelRepeatableRead
	}
	for try := 1; ; try++ {
		err := s.snapshotOnce(ctx, options, fn)
		if !s.plans.refused(err) || try == planTries {
			return err
		}
	}
}

func (s *Store) snapshotOnce(ctx context.Context, options *sql.TxOptions, fn func(tx *Store) error) error {
	db := s.reader.WithContext(ctx).Begin(options)
	if db.Error != nil {
		return fmt.Errorf("begin snapshot: %w", db.Error)
	}
	defer db.Rollback()
	return fn(&Store{core: s.core, tx: &txState{db: db, life: ctx}})
}
