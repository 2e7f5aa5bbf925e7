package models

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// BreakConnection ends the database connection of a transaction and returns what the next statement says.
func BreakConnection(ctx context.Context, tx *Store) error {
	var own int
	if err := tx.write(ctx).Raw("SELECT pg_backend_pid()").Row().Scan(&own); err != nil {
		return err
	}
	if err := tx.reader.WithContext(ctx).Exec("SELECT pg_terminate_backend(?)", own).Error; err != nil {
		return err
	}
	return tx.write(ctx).Exec("SELECT 1").Error
}

// Write gives tests a statement that no method offers: to plant violations and to swap sealed values.
func Write(ctx context.Context, s *Store, statement string, args ...any) error {
	return s.InTx(ctx, func(tx *Store) error { return tx.write(ctx).Exec(statement, args...).Error })
}

// MigrateTo brings the schema to a version, up or down.
func MigrateTo(ctx context.Context, s *Store, version int64) error {
	provider, err := s.migrator()
	if err != nil {
		return err
	}
	current, err := provider.GetDBVersion(ctx)
	if err != nil {
		return err
	}
	if version < current {
		_, err = provider.DownTo(ctx, version)
	} else {
		_, err = provider.UpTo(ctx, version)
	}
	return err
}

// Commits counts the write transactions that were committed.
func Commits(s *Store) int64 { return s.commits.Load() }

// Retryable says whether a transaction that failed so runs again.
func Retryable(err error) bool { return retryable(err) }

// Reader gives tests the pool of readers.
func Reader(s *Store) *gorm.DB { return s.reader }

// InSeparateTx is InTx without group commit: a transaction for each call.
func InSeparateTx(ctx context.Context, s *Store, fn func(tx *Store) error) error {
	return s.core.writer.WithContext(ctx).Transaction(func(db *gorm.DB) error {
		state := &txState{db: db, life: ctx}
		if err := fn(&Store{core: s.core, tx: state}); err != nil {
			return err
		}
		return state.conclude()
	})
}

// Away is how an error is classified.
func Away(err error) error { return away(err) }

// LoseCommit runs fn in a transaction whose commit is made and then reported as lost with the connection.
func LoseCommit(ctx context.Context, s *Store, fn func(tx *Store) error) error {
	if err := s.InTx(ctx, fn); err != nil {
		return err
	}
	return fmt.Errorf("commit transaction: %w", classify(io.ErrUnexpectedEOF))
}

// RefusedPlans counts the plans that the database has refused.
func RefusedPlans(s *Store) int64 { return s.plans.schema.Load() }

// Snapshot reads a customer in a snapshot.
func Snapshot(ctx context.Context, s *Store, customerID string) error {
	return s.snapshot(ctx, func(tx *Store) error {
		_, err := tx.Customer(ctx, customerID)
		return err
	})
}

// ExplainFindCalls is how SQLite would find calls.
func ExplainFindCalls(ctx context.Context, s *Store, filter OperatorCallFilter, page Page) (string, error) {
	query, err := s.findCalls(ctx, &filter, page)
	if err != nil {
		return "", err
	}
	statement := query.Session(&gorm.Session{DryRun: true}).Find(&[]Call{}).Statement
	var steps []struct{ Detail string }
	err = s.read(ctx).Raw("EXPLAIN QUERY PLAN "+statement.SQL.String(), statement.Vars...).Scan(&steps).Error
	var plan []string
	for _, step := range steps {
		plan = append(plan, step.Detail)
	}
	return strings.Join(plan, "; "), err
}

// KeepStrangers keeps less of them than MaxStrangers.
func KeepStrangers(s *Store, most int64) { s.strangersKept = most }

// HostPrefix is what is protected of an address with or without a port.
var HostPrefix = hostPrefix

// Long runs a statement outside of transactions and their limits.
func Long(ctx context.Context, s *Store, statement string, args ...any) error {
	return s.writer.WithContext(ctx).Exec(statement, args...).Error
}

// Explained returns the plans, as PostgreSQL carried them out, of all that look asks of the store that it is given.
func Explained(ctx context.Context, s *Store, look func(s *Store) error) ([]string, error) {
	recorder := &asked{Interface: logger.Discard}
	own := &core{dialect: s.dialect, now: s.now, logger: s.logger, reader: s.reader.Session(&gorm.Session{NewDB: true, Context: ctx, Logger: recorder})}
	if err := look(&Store{core: own}); err != nil {
		return nil, err
	}
	var plans []string
	for _, statement := range recorder.statements {
		var lines []string
		if err := s.reader.WithContext(ctx).Raw("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) " + statement).Scan(&lines).Error; err != nil {
			return nil, err
		}
		plans = append(plans, strings.Join(lines, "\n"))
	}
	return plans, nil
}

// asked is a logger that keeps the statements, with their values.
type asked struct {
	logger.Interface
	statements []string
}

// Trace implements logger.Interface.
func (a *asked) Trace(_ context.Context, _ time.Time, statement func() (string, int64), _ error) {
	text, _ := statement()
	a.statements = append(a.statements, text)
}
