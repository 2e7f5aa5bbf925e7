package models

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migration is one step of the schema; AppliedAt is nil while it is pending.
type Migration struct {
	Version   int64
	Name      string
	AppliedAt *time.Time
}

func (s *Store) migrator() (*goose.Provider, error) {
	pool, err := s.core.writer.DB()
	if err != nil {
		return nil, fmt.Errorf("prepare migrations: %w", err)
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("prepare migrations: %w", err)
	}
	dialect, options := goose.DialectSQLite3, []goose.ProviderOption{goose.WithDisableGlobalRegistry(true), goose.WithSlog(s.logger)}
	if s.dialect == DialectPostgres {
		dialect = goose.DialectPostgres
		// Several processes may start at once; SQLite has its one writer.
		locker, err := lock.NewPostgresSessionLocker()
		if err != nil {
			return nil, fmt.Errorf("prepare migrations: %w", err)
		}
		options = append(options, goose.WithSessionLocker(locker))
	}
	provider, err := goose.NewProvider(dialect, pool, files, options...)
	if err != nil {
		return nil, fmt.Errorf("prepare migrations: %w", err)
	}
	return provider, nil
}

// Migrate brings the schema to the newest version; on one that is there already it changes nothing.
func (s *Store) Migrate(ctx context.Context) error {
	provider, err := s.migrator()
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate database: %w", err)
	}
	return s.prepareJournal(ctx)
}

// MigrationStatus returns every known migration in order.
func (s *Store) MigrationStatus(ctx context.Context) ([]Migration, error) {
	provider, err := s.migrator()
	if err != nil {
		return nil, err
	}
	statuses, err := provider.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	out := make([]Migration, 0, len(statuses))
	for _, status := range statuses {
		migration := Migration{Version: status.Source.Version, Name: status.Source.Path}
		if status.State == goose.StateApplied {
			at := status.AppliedAt.UTC()
			migration.AppliedAt = &at
		}
		out = append(out, migration)
	}
	return out, nil
}
