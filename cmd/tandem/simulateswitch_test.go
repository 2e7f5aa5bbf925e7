package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSimulateOnTheSwitch has a trunk of `tandem dev` flap, and a caller send no sound: the trunk's page and the call's story tell it.
func TestSimulateOnTheSwitch(t *testing.T) { //nolint:paralleltest // t.Setenv
	isolate(t)
	address, _, folder := startDev(t)
	runs(t, 0, "context", "add", "dev", "--url", address, "--token-file", filepath.Join(folder, "operator.token"))

	body := `{"name": "Acme", "gateway_name": "acme", "proxy": "127.0.0.1:5090", "username": "acme", "password": "s3cret"}`
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/v1/trunks", bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer a-key-of-the-tests")
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, response.StatusCode, "%s", answer)
	var trunk struct {
		ID string `json:"id"`
	}
	require.NoError(t, json.Unmarshal(answer, &trunk))
	registered := func() bool {
		return strings.Contains(seenByCustomer(t, address, "/v1/trunks/"+trunk.ID+"/status"), `"registration_status":"REGED"`)
	}
	require.Eventually(t, registered, 30*time.Second, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		told := runs(t, 0, "events", "tail", "--once", "--since", "10m", "--type", "trunk.*", "-o", "json").out
		return strings.Contains(told, "trunk.registered")
	}, 30*time.Second, 100*time.Millisecond)

	flapped := runs(t, 0, "simulate", "flap", "acme", "--times", "2", "--every", "3s", "--away", "1s")
	require.Contains(t, flapped.out, trunk.ID)
	require.Contains(t, flapped.err, "2 of 2: acme has lost its registration for 1s")
	require.Contains(t, runs(t, 1, "simulate", "flap", trunk.ID).err, "not registered now", "the last loss goes on for a moment")
	require.Eventually(t, registered, 30*time.Second, 50*time.Millisecond)
	require.Regexp(t, `"flaps":\{"last_hour":([2-9]|1[0-9]),`, seenByCustomer(t, address, "/v1/trunks/"+trunk.ID+"/status"), "the second command may have begun its own")

	for name, said := range map[string]string{"nobody": `none with the id or the gateway name "nobody"`, "dev-carrier": "does not register"} {
		require.Contains(t, runs(t, 1, "simulate", "flap", name).err, said)
	}

	call := strings.TrimSpace(runs(t, 0, "simulate", "one-way", "--media-timeout", "6s", "-o", "name").out)
	told := runs(t, 0, "calls", "trace", call, "--follow", "--interval", "200ms").out
	t.Log(told)
	require.Contains(t, told, "media_timeout")
	require.Eventually(t, func() bool {
		for line := range strings.Lines(runs(t, 0, "calls", "trace", call).out) {
			if strings.Contains(line, " 0 packets of sound received and 3") && strings.Contains(line, "!") {
				return true
			}
		}
		return false
	}, 10*time.Second, 100*time.Millisecond, "the switch's record is marked")
	require.Contains(t, runs(t, 1, "simulate", "one-way", "--to", "+1 2").err, "is no SIP user")
}

// seenByCustomer is what the customer of `tandem dev` reads at a path.
func seenByCustomer(t *testing.T, address, path string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+path, nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer a-key-of-the-tests")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	var out bytes.Buffer
	_, err = out.ReadFrom(response.Body)
	require.NoError(t, err)
	return out.String()
}

// TestSimulateNeedsASimulatedSwitch: a server that is no `tandem dev` is named as such, and wrong flags are refused before it is asked.
func TestSimulateNeedsASimulatedSwitch(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	for _, command := range []string{"simulate flap trunk_1", "simulate one-way"} {
		require.Contains(t, runs(t, 1, strings.Fields(command)...).err, "is no `tandem dev`", command)
	}
	asked := len(api.requests())
	require.Equal(t, 2, asked)
	for command, said := range map[string]string{
		"simulate flap":                             "accepts 1 arg(s)",
		"simulate flap t --times 0":                 "--times must be from 1 to 1000",
		"simulate flap t --times 1001":              "--times must be from 1 to 1000",
		"simulate flap t --every 1s":                "--every must be from 2s to 1h",
		"simulate flap t --every 2h":                "--every must be from 2s to 1h",
		"simulate flap t --away 0s":                 "--away must be from 1s",
		"simulate flap t --every 5s --away 4500ms":  "--away must be from 1s to a second less than --every",
		"simulate one-way --media-timeout 0s":       "--media-timeout must be from 1s to 1h",
		"simulate one-way --media-timeout 61m":      "--media-timeout must be from 1s to 1h",
		"simulate one-way x":                        "unknown command",
		"simulate one-way --context nowhere":        `there is no context "nowhere"`,
		"simulate":                                  "give --answer-url or an APPLICATION_ID",
		"simulate call":                             "give --answer-url or an APPLICATION_ID",
		"simulate flap t --api-url ftp://localhost": "is no URL of a server",
	} {
		require.Contains(t, runs(t, 2, strings.Fields(command)...).err, said, command)
	}
	require.Len(t, api.requests(), asked)
}
