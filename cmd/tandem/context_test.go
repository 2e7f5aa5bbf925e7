package main

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestContexts(t *testing.T) { //nolint:paralleltest // t.Setenv
	one, two := startAPI(t), startAPI(t)
	isolate(t)
	for _, api := range []*fakeAPI{one, two} {
		api.says("GET /nodes", 200, listOf(object{"name": strings.TrimPrefix(api.server.URL, "http://")}))
	}
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("op_good\n"), 0o600))

	require.Contains(t, runs(t, 0, "context", "add", "one", "--url", one.server.URL+"/", "--token-file", token).err, "is ana, with the role admin")
	got := run(t.Context(), "op_good\n", "context", "add", "two", "--url", two.server.URL)
	require.Zero(t, got.code, got.err)
	require.Contains(t, got.err, "context two is kept; the current one is one")
	require.NotContains(t, got.out+got.err, "op_good")
	for wrong, said := range map[string]string{"": "one line", "op_bad": "unauthorized"} {
		got := run(t.Context(), wrong+"\n", "context", "add", "three", "--url", two.server.URL)
		require.NotZero(t, got.code, wrong)
		require.Contains(t, got.err, said)
	}
	for _, wrong := range []string{"localhost", "ftp://h", "http://u:p@h", "http://h?q", "http://"} {
		require.Contains(t, runs(t, 2, "context", "add", "three", "--token-file", token, "--url", wrong).err, "is no URL")
	}

	file := os.Getenv(envContexts)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	folder, err := os.Stat(filepath.Dir(file))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), folder.Mode().Perm())

	host := func(api *fakeAPI) string {
		u, err := url.Parse(api.server.URL)
		require.NoError(t, err)
		return u.Host + "\n"
	}
	require.Equal(t, host(one), runs(t, 0, "nodes", "ls", "-o", "name").out, "the first is the current one")
	require.Equal(t, host(two), runs(t, 0, "nodes", "ls", "-o", "name", "--context", "two").out)
	require.Contains(t, runs(t, 0, "context", "use", "two").err, "the current context is two")
	require.Equal(t, host(two), runs(t, 0, "nodes", "ls", "-o", "name").out)
	list := runs(t, 0, "context", "ls").out
	require.Contains(t, list, "current")
	require.NotContains(t, list, "op_good")

	// The URL of the environment takes no token of a context.
	t.Setenv(envAPIURL, one.server.URL)
	require.Equal(t, host(two), runs(t, 0, "nodes", "ls", "-o", "name").out)
	t.Setenv(envOperatorToken, "op_good")
	require.Equal(t, host(one), runs(t, 0, "nodes", "ls", "-o", "name").out, "the token of the environment does")
	require.Equal(t, host(two), runs(t, 0, "nodes", "ls", "-o", "name", "--context", "two").out)
	t.Setenv(envOperatorToken, "")

	runs(t, 2, "context", "use", "three")
	require.Contains(t, runs(t, 2, "context", "rm", "two").err, "--yes")
	runs(t, 0, "context", "rm", "two", "--yes")
	require.Equal(t, "one\n", runs(t, 0, "context", "ls", "-o", "name").out)
	require.Contains(t, runs(t, 2, "nodes", "ls").err, "no installation is chosen", "nobody chose another one")

	require.NoError(t, os.WriteFile(file, []byte("contexts: {one: {url: x, password: y}}\n"), 0o600))
	require.Contains(t, runs(t, 1, "nodes", "ls").err, "read the contexts")
}

// TestFirstOperator makes the first token on the database, keeps it, and takes it back there.
func TestFirstOperator(t *testing.T) { //nolint:paralleltest // t.Setenv
	isolate(t)
	dir := t.TempDir()
	t.Setenv("TANDEM_DATABASE_URL", "sqlite:"+filepath.Join(dir, "tandem.db"))
	t.Setenv("TANDEM_SECRET_KEY_FILE", filepath.Join(dir, "secret.key"))
	made := runs(t, 0, "operators", "create", "ana", "--role", "admin", "--save", "here", "--url", "http://127.0.0.1:1")
	require.Contains(t, made.err, "working on the database of the configuration")
	require.Empty(t, made.out, "the token is kept and not shown")
	known, err := readContexts()
	require.NoError(t, err)
	require.Equal(t, "here", known.Current)
	require.Regexp(t, `^op_[A-Za-z0-9_-]{43}$`, known.Installations["here"].Token)
	require.Equal(t, "http://127.0.0.1:1", known.Installations["here"].URL)

	require.Contains(t, runs(t, 1, "operators", "ls").err, "reach http://127.0.0.1:1", "an installation is chosen now")
	shown := runs(t, 0, "operators", "create", "ben", "--role", "viewer", "--expires-in", "1h", "--database").out
	require.Regexp(t, `op_[A-Za-z0-9_-]{43}`, shown)
	ids := strings.Fields(runs(t, 0, "operators", "ls", "--database", "-o", "name").out)
	require.Len(t, ids, 2)
	runs(t, 0, "operators", "revoke", ids[0], "--database", "--yes")
	require.Contains(t, runs(t, 0, "operators", "ls", "--database").out, "revoked")
	runs(t, 1, "operators", "revoke", "oper_none", "--database", "--yes")

	// An installation is chosen, and cannot be found: that is no leave to make a token elsewhere.
	require.NoError(t, (&contexts{Current: "gone", Installations: known.Installations}).write())
	require.Contains(t, runs(t, 2, "operators", "create", "eve", "--role", "admin").err, `there is no context "gone"`)
	file, err := contextsFile()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("no YAML: ["), 0o600))
	require.Contains(t, runs(t, 1, "operators", "create", "eve", "--role", "admin").err, "read the contexts")
	require.Contains(t, runs(t, 1, "operators", "ls").err, "read the contexts")
	require.Len(t, strings.Fields(runs(t, 0, "operators", "ls", "--database", "-o", "name").out), 2)
	runs(t, 1, "operators", "create", "x", "--role", "root", "--database")
	runs(t, 0, "ledger", "verify", "--database")
}
