package lab_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// without takes walls out of a copy of the configuration, and fails when they are not written there as expected.
func without(walls ...string) func(string) error {
	places := map[string][3]string{
		"app_disable_expand_variables": {"vars.xml", `data="app_disable_expand_variables=true"`, `data="app_disable_expand_variables=false"`},
		"disable_system":               {"vars.xml", `_commands=true"`, `_commands=false"`},
		"api-expansion":                {"autoload_configs/switch.conf.xml", `name="api-expansion" value="false"`, `name="api-expansion" value="true"`},
	}
	return func(confDir string) error {
		for _, wall := range walls {
			place := places[wall]
			path := filepath.Join(confDir, place[0])
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if !strings.Contains(string(text), place[1]) {
				return fmt.Errorf("no wall %s in %s", wall, place[0])
			}
			if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), place[1], place[2])), 0o600); err != nil {
				return err
			}
		}
		return nil
	}
}

// Each wall alone against text that a customer might have written, run as an application's argument on a real call. The first row
// shows that without walls the attack works, so that the others prove something.
func TestFreeSWITCHWalls(t *testing.T) {
	t.Parallel()
	carrier := lab.StartCarrier(t)
	for name, tc := range map[string]struct {
		missing []string
		// stopped and passed are the applications through which the command does not or does reach the shell.
		stopped, passed []string
	}{
		"none": {
			missing: []string{"app_disable_expand_variables", "disable_system", "api-expansion"},
			passed:  []string{"set", "log", "speak", "playback"},
		},
		"app_disable_expand_variables alone": {
			missing: []string{"disable_system", "api-expansion"},
			stopped: []string{"log", "speak", "playback"},
			passed:  []string{"set"}, // set expands once more by itself (mod_dptools.c, set_function)
		},
		"api-expansion alone": {
			missing: []string{"app_disable_expand_variables", "disable_system"},
			stopped: []string{"set", "log", "speak", "playback"},
		},
		"disable_system alone": {
			missing: []string{"app_disable_expand_variables", "api-expansion"},
			stopped: []string{"set", "log", "speak", "playback"},
		},
		"all": {
			stopped: []string{"set", "log", "speak", "playback"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := lab.StartNode(t, lab.Options{Edit: without(tc.missing...)})
			for _, app := range tc.stopped {
				require.NoFileExists(t, attack(t, node, carrier, app), app)
			}
			for _, app := range tc.passed {
				require.FileExists(t, attack(t, node, carrier, app), app)
			}
		})
	}
}

// attack runs an application with a command in its argument on a new call and returns the file that the command would make.
func attack(t *testing.T, node *lab.Node, carrier *lab.Carrier, app string) string {
	t.Helper()
	// A short path, since it may be spoken to its end.
	folder, err := os.MkdirTemp("", "w") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	file := filepath.Join(folder, app)
	argument := map[string]string{
		"set":      "x=${system(touch %s)}",
		"log":      "NOTICE ${system(touch %s)}",
		"speak":    "flite|slt|hello ${system(touch %s)}",
		"playback": "silence_stream://${system(touch %s)}",
	}[app]
	probe := node.Probe(t)
	require.NoError(t, probe.Subscribe(t.Context(), "CHANNEL_EXECUTE_COMPLETE"))
	channel := callOut(t, node, carrier, "+15550000010")
	require.NoError(t, probe.Execute(t.Context(), channel, app, fmt.Sprintf(argument, file)))
	for {
		done, err := probe.Await(seconds(t, 60), "CHANNEL_EXECUTE_COMPLETE")
		require.NoError(t, err, app)
		if done.Event("Unique-ID") == channel && done.Event("Application") == app {
			return file
		}
	}
}

// callOut makes the node call the carrier, parks the answered call and returns its channel.
func callOut(t *testing.T, node *lab.Node, carrier *lab.Carrier, to string) string {
	t.Helper()
	probe := node.Probe(t)
	reply, err := probe.API(seconds(t, 20), fmt.Sprintf("originate sofia/external/%s@%s &park()", to, carrier.SIPAddr))
	require.NoError(t, err)
	channel, answered := strings.CutPrefix(reply, "+OK ")
	require.True(t, answered, reply)
	t.Cleanup(func() { _, _ = probe.API(t.Context(), "uuid_kill "+channel) })
	return channel
}

// The shell commands do not exist at all: neither as an api command nor as an application.
func TestFreeSWITCHNoShellCommands(t *testing.T) {
	t.Parallel()
	node := lab.StartNode(t, lab.Options{})
	probe := node.Probe(t)
	for _, command := range []string{"system", "bg_system", "spawn_stream"} {
		file := filepath.Join(t.TempDir(), command)
		reply, err := probe.API(t.Context(), command+" touch "+file)
		require.NoError(t, err)
		require.Contains(t, reply, "-ERR", command)
		require.NoFileExists(t, file, command)
	}
	for _, kind := range []string{"api", "application"} {
		list, err := probe.API(t.Context(), "show "+kind)
		require.NoError(t, err)
		for line := range strings.SplitSeq(list, "\n") {
			name, _, _ := strings.Cut(line, ",")
			require.NotContains(t, []string{"system", "bg_system", "bgsystem", "spawn", "bg_spawn", "spawn_stream"}, name, kind)
		}
	}
}

// A node can be asked whether its walls stand, as tandem doctor does.
func TestFreeSWITCHWallsCanBeAskedFor(t *testing.T) {
	t.Parallel()
	node := lab.StartNode(t, lab.Options{})
	probe := node.Probe(t)
	for _, name := range []string{"app_disable_expand_variables", "disable_system_api_commands", "disable_system_app_commands", "outbound_redirect_fatal"} {
		value, err := probe.API(t.Context(), "global_getvar "+name)
		require.NoError(t, err)
		require.Equal(t, "true", value, name)
	}
	value, err := probe.API(t.Context(), "eval ${create_uuid()}")
	require.NoError(t, err)
	require.NotRegexp(t, `[0-9a-f]{8}-`, value)
}
