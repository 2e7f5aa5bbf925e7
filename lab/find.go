package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// installed lists where FreeSWITCH is usually found when neither the environment nor PATH names it.
var installed = []string{
	"/usr/local/freeswitch/bin/freeswitch",
	"/opt/freeswitch/bin/freeswitch",
	"/usr/bin/freeswitch",
	"/usr/sbin/freeswitch",
}

// Find returns the path of a FreeSWITCH binary: FREESWITCH_BIN, then PATH, then the usual install folders. A
// FREESWITCH_BIN that names no executable file finds nothing, rather than quietly testing another binary.
func Find() (path string, ok bool) {
	if named := os.Getenv("FREESWITCH_BIN"); named != "" {
		path, err := exec.LookPath(named)
		return path, err == nil
	}
	for _, candidate := range append([]string{"freeswitch"}, installed...) {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, true
		}
	}
	return "", false
}

// Require returns the path of a FreeSWITCH binary and skips the test where there is none.
func Require(t testing.TB) string {
	t.Helper()
	path, ok := Find()
	if !ok {
		t.Skip("no FreeSWITCH here: set FREESWITCH_BIN to the path of a freeswitch 1.10 binary")
	}
	return path
}

// modules returns the folder of the loadable modules that belong to a binary: FREESWITCH_MOD, or the one installed beside
// the binary. Empty means that the binary knows its own.
func modules(binary string) string {
	if named := os.Getenv("FREESWITCH_MOD"); named != "" {
		return named
	}
	if resolved, err := filepath.EvalSymlinks(binary); err == nil {
		binary = resolved
	}
	prefix := filepath.Dir(filepath.Dir(binary))
	for _, folder := range []string{"lib/freeswitch/mod", "mod"} {
		candidate := filepath.Join(prefix, folder)
		if _, err := os.Stat(filepath.Join(candidate, "mod_event_socket.so")); err == nil {
			return candidate
		}
	}
	return ""
}

// nodeConfiguration returns the repository's freeswitch-conf, found from the working directory upwards, since a test runs in
// the folder of its package.
func nodeConfiguration() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module root: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "freeswitch-conf"), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("find freeswitch-conf: no go.mod above the working directory")
		}
		dir = parent
	}
}
