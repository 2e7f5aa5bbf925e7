package main

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// TestCommands walks the tree: every command says what it is, and completes what its flags take.
func TestCommands(t *testing.T) {
	t.Parallel()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		require.NotEmpty(t, cmd.Short, cmd.CommandPath())
		require.False(t, strings.HasSuffix(cmd.Short, "."), "%s: a short help is no sentence", cmd.CommandPath())
		require.NotNil(t, cmd.RunE, cmd.CommandPath())
		require.NotNil(t, cmd.Args, cmd.CommandPath())
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	root := newRoot()
	walk(root)
	for _, flag := range []string{"output", "progress", "context"} {
		_, found := root.GetFlagCompletionFunc(flag)
		require.True(t, found, flag)
	}
}

// TestCommandsAreDocumented: docs/cli.md names every command.
func TestCommandsAreDocumented(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	for _, noun := range newRoot().Commands() {
		require.Contains(t, string(raw), "`"+noun.Name(), "%s", noun.Name())
		for _, verb := range noun.Commands() {
			row := regexp.MustCompile("(?m)^\\| `" + noun.Name() + " [^\n]*\\b" + verb.Name() + "\\b")
			require.Regexp(t, row, string(raw), "%s", verb.CommandPath())
		}
	}
}

// TestCompletion asks what the shell would ask: commands, values of flags, and names that the server knows.
func TestCompletion(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("GET /nodes", 200, listOf(object{"name": "fs-1"}, object{"name": "fs-2"}))
	api.says("GET /calls", 200, listOf(object{"id": "call_1"}))
	for typed, offered := range map[string]string{
		"cal":                   "calls",
		"calls ls -o ":          "wide",
		"calls ls --node ":      "fs-2",
		"calls ls --direction ": "inbound",
		"nodes get ":            "fs-1",
		"calls trace ":          "call_1",
		"customers get ":        ":4", // the server does not answer: nothing is offered, and no files
	} {
		got := run(t.Context(), "", append([]string{"__complete"}, strings.Split(typed, " ")...)...)
		require.Zero(t, got.code, got.err)
		require.Contains(t, got.out, offered, typed)
	}
	t.Setenv(envOperatorToken, "")
	require.NotContains(t, run(t.Context(), "", "__complete", "nodes", "get", "").out, "fs-1", "no installation is chosen")
}

// TestUsageErrors: what is wrong with a command is said on standard error, and ends with 2, before anything is asked of a server.
func TestUsageErrors(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	for command, said := range map[string]string{
		"nothing":                                   `"nothing" is no command of tandem`,
		"cals":                                      "did you mean calls?",
		"nodes lst":                                 `"lst" is no command of tandem nodes`,
		"calls get":                                 "accepts 1 arg(s)",
		"calls ls --colour":                         "unknown flag",
		"calls ls --live --ended":                   "if any flags in the group [live ended] are set none of the others can be",
		"calls ls --limit 0":                        "--limit",
		"calls ls --since -1h":                      "--since",
		"calls ls --watch --interval 1ms":           "--interval",
		"calls ls -o xml":                           "--output must be one of table, wide, json, yaml, name",
		"calls ls --progress loud":                  "--progress",
		"calls ls --timeout 0s":                     "--timeout",
		"calls hangup":                              "name calls, or choose",
		"calls hangup call_1 --customer cust_1":     "name calls, or choose",
		"calls trace call_1 --interval 1ms":         "--interval",
		"customers credit cust_1 5":                 `required flag(s) "key" not set`,
		"operators create ana":                      `required flag(s) "role" not set`,
		"operators create a --role viewer --save ?": "a context's name",
		"nodes add fs-1":                            "--esl-addr, --esl-password-file and --conf-dir are required",
		"nodes add fs-1 --esl-addr h:1":             "if any flags in the group",
		"webhooks redeliver":                        "name events, or --application",
		"events tail --from x --since 1h":           "give --from or --since",
		"calls ls --context nowhere":                `there is no context "nowhere"`,
		"keys revoke cust_1 key_1":                  "This needs --yes",
		"nodes rm fs-1":                             "This needs --yes",
	} {
		got := run(t.Context(), "", strings.Fields(command)...)
		require.Equal(t, 2, got.code, "%s: %s", command, got.err)
		require.Contains(t, got.err, said, command)
		require.Empty(t, got.out, command)
	}
	require.Empty(t, api.requests())
	require.Contains(t, runs(t, 0, "nodes").out, "Available Commands", "a group prints its help")
}

// TestFailures: what the server refuses ends with 1 and the server's words, on standard error.
func TestFailures(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("GET /customers", 403, object{"error": object{"code": "forbidden", "message": "this needs the role admin"}})
	api.says("GET /calls", 500, object{"error": object{"code": "internal_error", "message": "something went wrong", "request_id": "req_7"}})
	api.on("GET /trunks", func(*http.Request, []byte) (int, any) { return 502, nil })
	api.says("GET /nodes", 200, []int{1})
	for command, said := range map[string]string{
		"customers ls":     "tandem: forbidden: this needs the role admin",
		"calls ls":         "(request req_7)",
		"trunks ls":        "http_502: the answer is not one of a Tandem server",
		"nodes ls":         "did not answer as a Tandem server does",
		"calls get call_x": "not_found",
	} {
		got := runs(t, 1, strings.Fields(command)...)
		require.Contains(t, got.err, said, command)
		require.Empty(t, got.out, command)
	}
	t.Setenv(envOperatorToken, "op_bad")
	require.Contains(t, runs(t, 1, "nodes", "ls").err, "unauthorized: the operator's token is not valid")
	t.Setenv(envAPIURL, "http://127.0.0.1:1")
	require.Contains(t, runs(t, 1, "nodes", "ls").err, "reach http://127.0.0.1:1")
	t.Setenv(envOperatorToken, "")
	got := runs(t, 2, "nodes", "ls")
	require.Contains(t, got.err, "no installation is chosen")
}

// TestRedirectsAreNotFollowed: the token is for the server that it was given for.
func TestRedirectsAreNotFollowed(t *testing.T) { //nolint:paralleltest // t.Setenv
	api, other := startAPI(t), startAPI(t)
	api.as(t, "op_good")
	api.server.Config.Handler = http.RedirectHandler(other.server.URL+operatorPath+"/me", http.StatusTemporaryRedirect)
	require.Contains(t, runs(t, 1, "nodes", "ls").err, "http_307")
	require.Empty(t, other.requests())
}
