package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// devRun is a running `tandem dev` whose output is read line by line.
type devRun struct {
	lines  chan string
	banner string
	url    string
	app    string
	stop   func() error
}

// startDev runs Dev in dir on a free port and waits for its banner.
func startDev(t *testing.T, dir string, opts DevOptions) *devRun {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	opts.DataDir, opts.Out, opts.Log = dir, writer, testLog{t}
	ended := make(chan error, 1)
	go func() {
		err := Dev(ctx, opts)
		_ = writer.CloseWithError(io.EOF)
		ended <- err
	}()
	run := &devRun{lines: make(chan string, 1000)}
	go func() {
		defer close(run.lines)
		for scanner := bufio.NewScanner(reader); scanner.Scan(); {
			run.lines <- scanner.Text()
		}
	}()
	stopped := false
	run.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() { _ = run.stop() })

	var banner strings.Builder
	for line := range run.lines {
		fmt.Fprintln(&banner, line)
		if strings.HasPrefix(line, "What the example is asked") {
			run.banner = banner.String()
			run.url = regexp.MustCompile(`http://[0-9.:]+`).FindString(run.banner)
			run.app = regexp.MustCompile(`app_[0-9a-z]+`).FindString(run.banner)
			return run
		}
	}
	require.NoError(t, <-ended)
	require.Fail(t, "tandem dev ended before its banner", banner.String())
	return nil
}

// testLog writes the log of what runs into the test's.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// webhooks reads printed webhooks until the terminal one of a call. The example's other lines are skipped.
func (r *devRun) webhooks(t *testing.T) []string {
	t.Helper()
	var kinds []string
	pattern := regexp.MustCompile(`webhook +(\d+)  (\S+)`)
	limit := time.After(60 * time.Second)
	for {
		select {
		case line, ok := <-r.lines:
			require.True(t, ok, "tandem dev ended; so far %v", kinds)
			match := pattern.FindStringSubmatch(line)
			if match == nil {
				continue
			}
			require.Contains(t, line, "signature ok")
			require.Equal(t, fmt.Sprint(len(kinds)+1), match[1], "webhooks arrive in order, without a gap: %s", line)
			kinds = append(kinds, match[2])
			if match[2] == "call.completed" || match[2] == "call.failed" {
				return kinds
			}
		case <-limit:
			require.Fail(t, "no terminal webhook", "so far %v", kinds)
		}
	}
}

func post(t *testing.T, url, key string, body any) (int, map[string]any) {
	t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(raw))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	var answer map[string]any
	require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
	return response.StatusCode, answer
}

// TestDevEndToEnd is the main job: `tandem dev`, a call out, a call in, webhooks in order, a restart that keeps the data.
func TestDevEndToEnd(t *testing.T) { //nolint:paralleltest // t.Setenv
	t.Setenv("TANDEM_HTTP_ADDR", "127.0.0.1:0")
	t.Setenv("TANDEM_DEV_API_KEY", "tandem_preset_key_of_the_test_0123456789")
	const key = "tandem_preset_key_of_the_test_0123456789"
	dir := filepath.Join(t.TempDir(), "data")

	run := startDev(t, dir, DevOptions{})
	require.Contains(t, run.banner, key)
	status, call := post(t, run.url+"/v1/calls", key, map[string]string{"application_id": run.app, "from": devNumber, "to": devCallee})
	require.Equal(t, http.StatusCreated, status, call)
	require.Equal(t, "dialing", call["status"])
	require.Equal(t, []string{"call.created", "call.ringing", "call.answered", "call.completed"}, run.webhooks(t))

	status, answer := post(t, run.url+"/dev/call-in", "", map[string]string{"digits": "4321"})
	require.Equal(t, http.StatusAccepted, status, answer)
	require.Equal(t, []string{"call.ringing", "call.answered", "call.completed"}, run.webhooks(t))

	status, failed := post(t, run.url+"/v1/calls", key, map[string]string{"application_id": run.app, "from": devNumber, "to": "+12025550486"})
	require.Equal(t, http.StatusCreated, status, failed)
	require.Equal(t, []string{"call.created", "call.failed"}, run.webhooks(t))
	require.NoError(t, run.stop())

	again := startDev(t, dir, DevOptions{})
	require.Equal(t, run.app, again.app, "a second start keeps the data")
	status, call = post(t, again.url+"/v1/calls", key, map[string]string{"application_id": again.app, "from": devNumber, "to": devCallee})
	require.Equal(t, http.StatusCreated, status, call)
	require.Equal(t, []string{"call.created", "call.ringing", "call.answered", "call.completed"}, again.webhooks(t))
	require.NoError(t, again.stop())
}

// TestStopEndsLiveCalls: an orderly stop hangs live calls up and says so, while their switch is still there to be told.
func TestStopEndsLiveCalls(t *testing.T) { //nolint:paralleltest // t.Setenv
	t.Setenv("TANDEM_HTTP_ADDR", "127.0.0.1:0")
	t.Setenv("TANDEM_DEV_API_KEY", "tandem_preset_key_of_the_test_0123456789")
	const key = "tandem_preset_key_of_the_test_0123456789"
	dir := filepath.Join(t.TempDir(), "data")
	run := startDev(t, dir, DevOptions{})
	status, call := post(t, run.url+"/v1/calls", key, map[string]string{"application_id": run.app, "from": devNumber, "to": "+12025550800"})
	require.Equal(t, http.StatusCreated, status, call)
	for line := range run.lines {
		if strings.Contains(line, "call.answered") {
			break
		}
	}
	require.NoError(t, run.stop())

	again := startDev(t, dir, DevOptions{})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, again.url+"/v1/calls/"+call["id"].(string), nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	var ended map[string]any
	require.NoError(t, json.NewDecoder(response.Body).Decode(&ended))
	require.Equal(t, []any{"completed", "shutdown"}, []any{ended["status"], ended["reason"]})
	require.NoError(t, again.stop())
}
