package modelstest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tandem/models"
)

// EnvDatabaseURL names the variable with the URL of a PostgreSQL server for tests; its user must be allowed to create
// databases.
const EnvDatabaseURL = "TANDEM_TEST_DATABASE_URL"

// server is the PostgreSQL of this process and the migrated database that each test's own is copied from.
type server struct {
	url      *url.URL
	template string
	cluster  *cluster
}

var (
	serverMu   sync.Mutex
	theServer  *server
	serverErr  error
	serverDone bool
)

// errNoPostgres is why tests on PostgreSQL are skipped.
type errNoPostgres string

func (e errNoPostgres) Error() string { return string(e) }

// startServer finds or starts PostgreSQL once per process.
func startServer() (*server, error) {
	serverMu.Lock()
	defer serverMu.Unlock()
	if !serverDone {
		theServer, serverErr = newServer()
		serverDone = true
	}
	return theServer, serverErr
}

func newServer() (*server, error) {
	srv := &server{template: databaseName("template")}
	if given := os.Getenv(EnvDatabaseURL); given != "" {
		location, err := url.Parse(given)
		if err != nil || location.Host == "" && location.Query().Get("host") == "" {
			return nil, fmt.Errorf("%s is not a PostgreSQL URL", EnvDatabaseURL)
		}
		srv.url = location
	} else {
		cluster, err := newCluster()
		if err != nil {
			return nil, err
		}
		srv.url, srv.cluster = cluster.url(), cluster
	}
	if err := srv.exec("CREATE DATABASE " + srv.template); err != nil {
		return nil, err
	}
	if err := migrate(srv.database(srv.template)); err != nil {
		return nil, err
	}
	return srv, nil
}

func stopCluster() error {
	serverMu.Lock()
	defer serverMu.Unlock()
	srv := theServer
	theServer, serverErr, serverDone = nil, nil, false
	switch {
	case srv == nil:
		return nil
	case srv.cluster != nil:
		return srv.cluster.stop()
	default:
		return srv.exec("DROP DATABASE IF EXISTS " + srv.template + " WITH (FORCE)")
	}
}

// exec runs one statement that no transaction may hold, on a connection of its own.
func (s *server) exec(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url.String())
	if err != nil {
		return fmt.Errorf("connect to the PostgreSQL for tests: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

func (s *server) database(name string) string {
	location := *s.url
	location.Path = "/" + name
	return location.String()
}

func databaseName(kind string) string { return "tandem_" + kind + "_" + strings.ToLower(rand.Text()) }

// PostgresURL returns the URL of an empty, migrated PostgreSQL database for a test that opens it itself, and skips the test
// where there is no PostgreSQL. The database is dropped when the test ends.
func PostgresURL(t testing.TB) string {
	t.Helper()
	return newDatabase(t, func(srv *server) string { return srv.template })
}

// EmptyPostgresURL is PostgresURL for a database that has not been migrated.
func EmptyPostgresURL(t testing.TB) string {
	t.Helper()
	return newDatabase(t, func(*server) string { return "template0" })
}

func newDatabase(t testing.TB, template func(*server) string) string {
	t.Helper()
	srv, err := startServer()
	if missing, ok := errors.AsType[errNoPostgres](err); ok {
		t.Skip(missing.Error())
	}
	require.NoError(t, err)
	name := databaseName("test")
	require.NoError(t, srv.exec("CREATE DATABASE "+name+" TEMPLATE "+template(srv)))
	t.Cleanup(func() { require.NoError(t, srv.exec("DROP DATABASE "+name+" WITH (FORCE)")) })
	return srv.database(name)
}

func migrate(location string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := models.Open(ctx, models.Config{URL: location, Key: Key})
	if err != nil {
		return err
	}
	if err := s.Migrate(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	return s.Close()
}
