package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"tandem/models"
)

// Operator is what the command line does to the database itself, without a server: what must work before there is one, or when it
// is down. Everything else goes through the operator API.
type Operator struct {
	store *models.Store
	cfg   Config
}

// OpenOperator opens the database and brings its schema up to date.
func OpenOperator(ctx context.Context, cfg Config) (*Operator, error) {
	store, err := openStore(ctx, cfg, newLogger(cfg, os.Stderr))
	if err != nil {
		return nil, err
	}
	return &Operator{store: store, cfg: cfg}, nil
}

// Close closes the database.
func (o *Operator) Close() error { return o.store.Close() }

// States of a Migration.
const (
	MigrationApplied = "applied"
	MigrationPending = "pending"
)

// Migration is one step of the schema and whether it has been applied.
type Migration struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
	About   string `json:"about"`
	State   string `json:"state"`
}

// Migrations lists the schema's steps; opening the operator has applied them.
func (o *Operator) Migrations(ctx context.Context) ([]Migration, error) {
	return migrationsOf(ctx, o.store)
}

// MigrationStatus lists the schema's steps and applies none.
func MigrationStatus(ctx context.Context, cfg Config) ([]Migration, error) {
	store, err := connectStore(ctx, cfg, newLogger(cfg, os.Stderr))
	if err != nil {
		return nil, err
	}
	migrations, err := migrationsOf(ctx, store)
	return migrations, errors.Join(err, store.Close())
}

// MigrateDown takes the newest step of the schema back once agree, which is shown it, returns nil, and lists all steps as they are then.
// While a controller is at work on the database nothing is asked or done, see models.ErrInService.
func MigrateDown(ctx context.Context, cfg Config, agree func(last Migration) error) (migrations []Migration, err error) {
	store, err := connectStore(ctx, cfg, newLogger(cfg, os.Stderr))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	last, err := store.LastMigration(ctx)
	if errors.Is(err, models.ErrNotFound) {
		return nil, errors.New("the database has no step of the schema that could be taken back")
	}
	if err != nil {
		return nil, err
	}
	if err := store.OutOfService(ctx); err != nil {
		return nil, inService(err)
	}
	if err := agree(Migration{Version: last.Version, Name: last.Name, About: last.About, State: MigrationApplied}); err != nil {
		return nil, err
	}
	if err := store.MigrateDown(ctx, last.Version); err != nil {
		return nil, inService(err)
	}
	return migrationsOf(ctx, store)
}

// inService says what to do about a controller that is at work.
func inService(err error) error {
	if errors.Is(err, models.ErrInService) {
		return fmt.Errorf("the schema is not changed under a controller: stop every one of them first (a lease of one that has died runs out by itself): %w", err)
	}
	return err
}

func migrationsOf(ctx context.Context, store *models.Store) ([]Migration, error) {
	status, err := store.MigrationStatus(ctx)
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	out := make([]Migration, 0, len(status))
	for _, m := range status {
		state := MigrationPending
		if m.AppliedAt != nil {
			state = MigrationApplied
		}
		out = append(out, Migration{Version: m.Version, Name: m.Name, About: m.About, State: state})
	}
	return out, nil
}

var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// newNode checks what describes a node and reads its password.
func newNode(name, eslAddr, passwordFile, confDir string) (*models.Node, error) {
	if !nodeName.MatchString(name) {
		return nil, fmt.Errorf("name must be 1 to 63 letters, digits, dots, dashes or underscores, was %q", name)
	}
	if _, _, err := net.SplitHostPort(eslAddr); err != nil {
		return nil, fmt.Errorf("esl-addr must be HOST:PORT, was %q", eslAddr)
	}
	password, err := readPassword(passwordFile)
	if err != nil {
		return nil, err
	}
	confDir, err = filepath.Abs(confDir)
	if err != nil {
		return nil, fmt.Errorf("conf-dir: %w", err)
	}
	info, err := os.Stat(confDir)
	if err != nil {
		return nil, fmt.Errorf("conf-dir: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("conf-dir: %s is not a folder", confDir)
	}
	return &models.Node{Name: name, ESLAddr: eslAddr, Password: models.Secret(password), ConfDir: confDir, IsActive: true}, nil
}

func readPassword(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("esl-password-file: %w", err)
	}
	password := strings.TrimRight(string(raw), "\r\n")
	if password == "" || strings.ContainsAny(password, "\r\n") {
		return "", fmt.Errorf("esl-password-file: %s must hold the password in one line", file)
	}
	return password, nil
}

// VerifyLedger names each invariant of the ledger that does not hold.
func (o *Operator) VerifyLedger(ctx context.Context) ([]string, error) {
	violations, err := o.store.VerifyLedger(ctx)
	if err != nil {
		return nil, fmt.Errorf("verify the ledger: %w", err)
	}
	return violations, nil
}
