package models

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrInService says that a controller works on the database.
var ErrInService = errors.New("a controller is at work")

// programsAbout says what the migrations do that are no files of SQL, by their version.
var programsAbout = map[int64]string{
	8:  "References of rows that every call writes to rows that all calls of an application share.",
	11: "Further attempts of a call over other trunks.",
	20: "Recordings on the nodes, and their uploads.",
	28: "Balances may be overdrawn by the credit limit.",
}

// about is what a migration does: the comment that its file begins with.
func about(version int64, path string) string {
	if path == "" {
		return programsAbout[version]
	}
	raw, err := migrations.ReadFile("migrations/" + path)
	if err != nil {
		return "" // it was listed, so it is there; the step is worth naming without it
	}
	var words []string
	for line := range strings.Lines(string(raw)) {
		text, comment := strings.CutPrefix(strings.TrimSpace(line), "--")
		switch text = strings.TrimSpace(text); {
		case !comment:
			return strings.Join(words, " ")
		case !strings.HasPrefix(text, "+goose"):
			words = append(words, text)
		}
	}
	return strings.Join(words, " ")
}

// LastMigration returns the newest step of the schema, the one that MigrateDown takes back. ErrNotFound where there is none, and an error
// that says so where a newer version of the program has applied it, which this one knows no way back from.
func (s *Store) LastMigration(ctx context.Context) (*Migration, error) {
	provider, err := s.migrator()
	if err != nil {
		return nil, err
	}
	current, err := provider.GetDBVersion(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the version of the schema: %w", err)
	}
	if current == 0 {
		return nil, fmt.Errorf("last step of the schema: %w", ErrNotFound)
	}
	steps, err := s.MigrationStatus(ctx)
	if err != nil {
		return nil, err
	}
	for i := range steps {
		if steps[i].Version == current {
			return &steps[i], nil
		}
	}
	return nil, fmt.Errorf("the schema is at step %d, which this version of the program does not know: only the version that applied it can take it back", current)
}

// MigrateDown takes the newest step of the schema back, and with it all that only this step can hold. It must be the step with the version
// given, or ErrStale: another has been applied or taken back meanwhile. ErrInService, with who it is, while a controller holds the lease
// of a node or delivers webhooks: it would go on with a schema that it does not know.
func (s *Store) MigrateDown(ctx context.Context, version int64) error {
	last, err := s.LastMigration(ctx)
	if err != nil {
		return err
	}
	if last.Version != version {
		return fmt.Errorf("take back step %d of the schema, which is at %d: %w", version, last.Version, ErrStale)
	}
	if err := s.OutOfService(ctx); err != nil {
		return err
	}
	provider, err := s.migrator()
	if err != nil {
		return err
	}
	if _, err := provider.Down(ctx); err != nil {
		return fmt.Errorf("take back step %d of the schema: %w", version, err)
	}
	return nil
}

// OutOfService returns ErrInService, with who it is, while a controller holds a lease that has not run out: of a node, or of a stream of
// webhooks. It needs no newer schema than the first.
func (s *Store) OutOfService(ctx context.Context) error {
	now, err := s.leaseNow(ctx)
	if err != nil {
		return err
	}
	var held []struct {
		What, LeaseOwner string
		LeaseUntil       int64
	}
	err = s.read(ctx).Raw(`SELECT 'node ' || name AS what, lease_owner, lease_until FROM nodes WHERE lease_until > ?
		UNION ALL SELECT 'webhooks of ' || endpoint_id, lease_owner, lease_until FROM webhook_streams WHERE lease_until > ?
		ORDER BY 1 LIMIT 1`, now, now).Scan(&held).Error
	if err != nil {
		return explain(err, "look for controllers at work")
	}
	if len(held) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s holds %s until %s", ErrInService, held[0].LeaseOwner, held[0].What, time.UnixMicro(held[0].LeaseUntil).UTC().Format(time.RFC3339))
}
