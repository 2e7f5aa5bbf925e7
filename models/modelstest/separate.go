package modelstest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Separate is a PostgreSQL of one test's own that can be killed and started again: nothing that it has confirmed is lost by that,
// unlike by the cluster that tests share. It listens on a socket in its own directory only, and dies with the test process.
type Separate struct {
	dir, programs string
	attributes    *syscall.SysProcAttr
	server        *exec.Cmd
	exited        chan struct{}
}

// StartSeparate starts a PostgreSQL and stops it at the end of the test, which it skips where none is installed.
func StartSeparate(t testing.TB) *Separate {
	t.Helper()
	programs, err := findPrograms()
	if missing := errNoPostgres(""); errors.As(err, &missing) {
		t.Skip(err)
	}
	require.NoError(t, err)
	s := &Separate{programs: programs, attributes: dieWithTests()}
	owner := -1
	if os.Geteuid() == 0 {
		credential, err := serverUser()
		require.NoError(t, err)
		s.attributes.Credential, owner = credential, int(credential.Uid)
	}
	// Not t.TempDir: a socket's path has at most 107 bytes, and the server's user must be able to get there.
	dir, err := os.MkdirTemp(socketRoot, "tandem-pg-") //nolint:usetesting // see above
	require.NoError(t, err)
	s.dir = dir
	t.Cleanup(func() {
		s.Kill()
		require.NoError(t, os.RemoveAll(dir))
	})
	if owner >= 0 {
		require.NoError(t, os.Chown(dir, owner, -1))
	}
	initdb := exec.CommandContext(t.Context(), filepath.Join(programs, "initdb"), "-D", filepath.Join(dir, "data"), "-U", "tandem", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	initdb.SysProcAttr, initdb.Dir = s.attributes, dir
	out, err := initdb.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, s.Start(t.Context()))
	conn, err := pgx.Connect(t.Context(), s.location("postgres"))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE DATABASE tandem")
	require.NoError(t, errors.Join(err, conn.Close(t.Context())))
	return s
}

// URL is where its empty database tandem is.
func (s *Separate) URL() string { return s.location("tandem") }

func (s *Separate) location(database string) string {
	u := &url.URL{Scheme: "postgres", User: url.User("tandem"), Path: "/" + database, RawQuery: url.Values{"host": {s.dir}, "sslmode": {"disable"}}.Encode()}
	return u.String()
}

// Start starts the server where its data is and waits until it answers, after a kill once it has recovered.
func (s *Separate) Start(ctx context.Context) error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	defer func() { _ = log.Close() }()
	// The machine goes on when a process dies, so what was written need not be forced to the disk.
	server := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(s.programs, "postgres"), "-D", filepath.Join(s.dir, "data"), "-k", s.dir,
		"-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=300", "-c", "shared_buffers=64MB", "-c", "log_checkpoints=off")
	server.SysProcAttr, server.Dir, server.Stdout, server.Stderr = s.attributes, s.dir, log, log
	if err := server.Start(); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = server.Wait()
	}()
	s.server, s.exited = server, exited
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.location("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-exited:
			return fmt.Errorf("PostgreSQL ended while it started: %s", s.LogText())
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL did not start: %w: %s", err, s.LogText())
		}
	}
}

// Kill stops the server at once, its connections with it (pg_ctl's immediate stop: what is under way is undone at the next start),
// and waits until it is gone. A server that is dead already is left so.
func (s *Separate) Kill() {
	if s.server == nil {
		return
	}
	_ = s.server.Process.Signal(syscall.SIGQUIT)
	select {
	case <-s.exited:
	case <-time.After(10 * time.Second):
		_ = s.server.Process.Kill()
		<-s.exited
	}
	s.server = nil
}

// Dump writes the database as SQL into a file.
func (s *Separate) Dump(ctx context.Context, file string) error {
	out, err := exec.CommandContext(ctx, filepath.Join(s.programs, "pg_dump"), "-d", s.URL(), "-f", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("pg_dump: %w: %s", err, out)
	}
	return nil
}

// LogText returns what the server logged so far.
func (s *Separate) LogText() string {
	log, _ := os.ReadFile(s.logFile())
	return strings.TrimSpace(string(log))
}

func (s *Separate) logFile() string { return filepath.Join(s.dir, "log") }
