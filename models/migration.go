package models

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migration is one step of the schema; AppliedAt is nil while it is pending. About says in words what the step brings.
type Migration struct {
	Version   int64
	Name      string
	About     string
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
	dialect, options := goose.DialectSQLite3, []goose.ProviderOption{
		goose.WithDisableGlobalRegistry(true), goose.WithSlog(s.logger), goose.WithGoMigrations(s.unshared(), s.attempts(), s.remoteRecordings(), s.credit()),
	}
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

// unsharedName is what the migration is called that drops sharedRows.
const unsharedName = "00008_unshared.go"

// programs are the names of the migrations that are no files of SQL, by their version.
var programs = map[int64]string{8: unsharedName, 11: attemptsName, 20: remoteRecordingsName, 28: creditName}

// sharedRows are references of rows that every call writes to rows that all calls of an application share. PostgreSQL checks each by locking
// the shared row, which writes to it, and under a list of lockers where several do at a time: on two cores, 16 writers of events came to 1.2 to
// 1.5 times the rate without these three. Applications and their endpoints are never deleted, only marked so.
var sharedRows = []struct{ table, name, key string }{
	{"events", "events_application_id_customer_id_fkey", "(application_id, customer_id) REFERENCES applications (id, customer_id)"},
	{"webhook_streams", "webhook_streams_endpoint_id_fkey", "(endpoint_id) REFERENCES webhook_endpoints (application_id)"},
	{"webhook_deliveries", "webhook_deliveries_endpoint_id_fkey", "(endpoint_id) REFERENCES webhook_endpoints (application_id)"},
}

// unshared drops them on PostgreSQL. SQLite knows no such locks, and cannot drop a reference without a new table.
func (s *Store) unshared() *goose.Migration {
	each := func(form string) *goose.GoFunc {
		return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			if s.dialect != DialectPostgres {
				return nil
			}
			for _, shared := range sharedRows {
				if _, err := tx.ExecContext(ctx, strings.NewReplacer("TABLE_", shared.table, "NAME_", shared.name, "KEY_", shared.key).Replace(form)); err != nil {
					return fmt.Errorf("reference %s: %w", shared.name, err)
				}
			}
			return nil
		}}
	}
	return goose.NewGoMigration(8, each("ALTER TABLE TABLE_ DROP CONSTRAINT NAME_"), each("ALTER TABLE TABLE_ ADD CONSTRAINT NAME_ FOREIGN KEY KEY_"))
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
		migration := Migration{Version: status.Source.Version, Name: cmp.Or(status.Source.Path, programs[status.Source.Version]),
			About: about(status.Source.Version, status.Source.Path)}
		if status.State == goose.StateApplied {
			at := status.AppliedAt.UTC()
			migration.AppliedAt = &at
		}
		out = append(out, migration)
	}
	return out, nil
}
