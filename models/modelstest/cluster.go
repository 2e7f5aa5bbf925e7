package modelstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// cluster is a throw-away PostgreSQL that listens on a socket in its own directory only. A shell looks after it and waits for
// the end of its input: the pipe closes when this process stops it, and also when this process panics or is killed, so that
// no server and no directory is left behind.
type cluster struct {
	dir    string
	keeper *exec.Cmd
	pipe   io.Closer
}

// keeper runs the server until its input ends. $1 is the directory of PostgreSQL's programs, $2 that of the cluster. Durability
// is switched off: nobody needs these rows after a crash.
const keeper = `"$1"/postgres -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c synchronous_commit=off -c full_page_writes=off \
	-c max_connections=500 -c shared_buffers=64MB -c autovacuum=off -c deadlock_timeout=200ms >"$2/log" 2>&1 </dev/null &
read -r end
kill -QUIT $! 2>/dev/null
wait $!
rm -rf "$2"`

// socketRoot keeps the socket's path below the 107 bytes that a Unix address holds, and is open to the server's user.
const socketRoot = "/tmp"

const startTimeout = time.Minute

func newCluster() (*cluster, error) {
	programs, err := findPrograms()
	if err != nil {
		return nil, err
	}
	attributes := &syscall.SysProcAttr{Setpgid: true}
	owner := -1
	if os.Geteuid() == 0 {
		// PostgreSQL refuses to run as root.
		credential, err := serverUser()
		if err != nil {
			return nil, err
		}
		attributes.Credential, owner = credential, int(credential.Uid)
	}
	dir, err := os.MkdirTemp(socketRoot, "tandem-pg-")
	if err != nil {
		return nil, fmt.Errorf("make directory for PostgreSQL: %w", err)
	}
	c := &cluster{dir: dir}
	if owner >= 0 {
		err = os.Chown(dir, owner, -1)
	}
	if err == nil {
		err = c.start(programs, attributes)
	}
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) start(programs string, attributes *syscall.SysProcAttr) error {
	initdb := exec.CommandContext(context.Background(), filepath.Join(programs, "initdb"), "-D", filepath.Join(c.dir, "data"), "-U", "tandem", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	initdb.SysProcAttr, initdb.Dir = attributes, c.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	c.keeper = exec.CommandContext(context.Background(), "/bin/sh", "-c", keeper, "sh", programs, c.dir)
	c.keeper.SysProcAttr, c.keeper.Dir = attributes, c.dir
	pipe, err := c.keeper.StdinPipe()
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	c.pipe = pipe
	if err := c.keeper.Start(); err != nil {
		c.keeper = nil
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	return c.wait()
}

// wait tries until the server answers. It leaves no other sign in a directory that this process can watch.
func (c *cluster) wait() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, c.url().String())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(c.dir, "log"))
			return fmt.Errorf("PostgreSQL did not start: %w: %s", err, log)
		}
	}
}

func (c *cluster) url() *url.URL {
	return &url.URL{Scheme: "postgres", User: url.User("tandem"), Path: "/postgres", RawQuery: url.Values{"host": {c.dir}, "sslmode": {"disable"}}.Encode()}
}

// stop ends the server and waits until its directory is gone.
func (c *cluster) stop() error {
	if c.keeper == nil {
		return os.RemoveAll(c.dir)
	}
	return errors.Join(c.pipe.Close(), c.keeper.Wait(), os.RemoveAll(c.dir))
}

// findPrograms returns the directory with initdb and postgres: Debian's, newest version first, or that of the PATH.
func findPrograms() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	if len(found) > 0 {
		return filepath.Dir(found[0]), nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	return "", errNoPostgres("no PostgreSQL: set " + EnvDatabaseURL + " or install the postgresql package")
}

func version(initdb string) int {
	number, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(initdb))))
	return number
}

// serverUser is whom PostgreSQL runs as where the tests run as root.
func serverUser() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(account.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(account.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errNoPostgres("no PostgreSQL: tests run as root and there is no user postgres to run it")
}
