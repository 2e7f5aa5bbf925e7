package daemon

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// devOnAnotherSwitch runs `tandem dev` on a switch that is already running and places one call.
func devOnAnotherSwitch(t *testing.T, eslAddr, passwordFile, confDir, to string, want []string) *devRun {
	t.Helper()
	t.Setenv("TANDEM_HTTP_ADDR", "127.0.0.1:0")
	t.Setenv("TANDEM_DEV_API_KEY", "tandem_preset_key_of_the_test_0123456789")
	run := startDev(t, filepath.Join(t.TempDir(), "data"), DevOptions{ESLAddr: eslAddr, ESLPasswordFile: passwordFile, ConfDir: confDir})
	require.Contains(t, run.banner, eslAddr)
	status, call := post(t, run.url+"/v1/calls", "tandem_preset_key_of_the_test_0123456789", map[string]string{
		"application_id": run.app, "from": devNumber, "to": to,
	})
	require.Equal(t, http.StatusCreated, status, call)
	require.Equal(t, want, run.webhooks(t))
	return run
}

func TestDevOnASimulatedSwitchOfAnotherProcess(t *testing.T) { //nolint:paralleltest // t.Setenv
	confDir := t.TempDir()
	passwordFile := filepath.Join(t.TempDir(), "esl.password")
	require.NoError(t, os.WriteFile(passwordFile, []byte("of the test\n"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- SimSwitch(ctx, SimSwitchOptions{ESLAddr: "127.0.0.1:0", ESLPasswordFile: passwordFile, ConfDir: confDir, Out: writer, Log: testLog{t}})
	}()
	line := make([]byte, 1024)
	n, err := reader.Read(line)
	require.NoError(t, err)
	eslAddr := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(string(line[:n]))

	run := devOnAnotherSwitch(t, eslAddr, passwordFile, confDir, devCallee, []string{"call.created", "call.ringing", "call.answered", "call.completed"})
	status, answer := post(t, run.url+"/dev/call-in", "", map[string]string{"digits": "4321"})
	require.Equal(t, http.StatusAccepted, status, answer)
	require.Equal(t, []string{"call.ringing", "call.answered", "call.completed"}, run.webhooks(t))
	require.NoError(t, run.stop())
	cancel()
	require.NoError(t, <-ended)
}

// TestFreeSWITCHDev: a real switch, no carrier behind the seeded trunk, and no simulated caller to let in.
func TestFreeSWITCHDev(t *testing.T) { //nolint:paralleltest // t.Setenv
	node := lab.StartNode(t, lab.Options{})
	run := devOnAnotherSwitch(t, node.ESLAddr, node.PasswordFile, node.ConfDir, devCallee, []string{"call.created", "call.failed"})
	status, answer := post(t, run.url+"/dev/call-in", "", map[string]string{"digits": "4321"})
	require.Equal(t, http.StatusBadGateway, status, answer)
	require.Contains(t, answer["error"], "only a simulated switch can")
	require.NoError(t, run.stop())
}

func TestDevNamesASwitchThatDoesNotAnswer(t *testing.T) { //nolint:paralleltest // t.Setenv
	t.Setenv("TANDEM_HTTP_ADDR", "127.0.0.1:0")
	passwordFile := filepath.Join(t.TempDir(), "esl.password")
	require.NoError(t, os.WriteFile(passwordFile, nil, 0o600))
	err := Dev(t.Context(), DevOptions{
		DataDir: t.TempDir(), ESLAddr: "127.0.0.1:1", ESLPasswordFile: passwordFile, ConfDir: t.TempDir(), Out: io.Discard, Log: testLog{t},
	})
	require.ErrorContains(t, err, "must hold the password in one line")
}

func TestTwoDevsDoNotShareAFolder(t *testing.T) { //nolint:paralleltest // t.Setenv
	t.Setenv("TANDEM_HTTP_ADDR", "127.0.0.1:0")
	dir := filepath.Join(t.TempDir(), "data")
	run := startDev(t, dir, DevOptions{})
	err := Dev(t.Context(), DevOptions{DataDir: dir, Out: io.Discard, Log: testLog{t}})
	require.ErrorContains(t, err, "another `tandem dev` uses")
	require.NoError(t, run.stop())
}
