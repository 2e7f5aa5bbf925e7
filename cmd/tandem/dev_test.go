package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// startDev runs `tandem dev` and returns its address, the example application and the folder of its data.
func startDev(t *testing.T) (address, application, folder string) {
	t.Helper()
	folder = t.TempDir()
	t.Setenv("TANDEM_HTTP_ADDR", "127.0.0.1:0")
	t.Setenv("TANDEM_DEV_API_KEY", "a-key-of-the-tests")
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	root := newRoot()
	root.SetOut(writer)
	root.SetErr(t.Output())
	root.SetArgs([]string{"dev", "--data-dir", folder})
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = writer.Close()
		ended <- err
	}()
	banner := make(chan string, 1)
	go func() {
		var text strings.Builder
		for lines := bufio.NewScanner(reader); lines.Scan(); {
			text.WriteString(lines.Text() + "\n")
			if strings.HasPrefix(lines.Text(), "What the example is asked") {
				banner <- text.String()
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	select {
	case text := <-banner:
		return regexp.MustCompile(`http://[0-9.:]+`).FindString(text), regexp.MustCompile(`app_[0-9a-z]+`).FindString(text), folder
	case err := <-ended:
		ended <- err
		require.Fail(t, "tandem dev ended", "%v", err)
	case <-time.After(time.Minute):
		require.Fail(t, "tandem dev is not ready")
	}
	return "", "", ""
}

// TestOperatorsDay runs an installation by the command line: the token that `tandem dev` keeps, a customer, a call and its story.
func TestOperatorsDay(t *testing.T) { //nolint:paralleltest // t.Setenv
	isolate(t)
	address, application, folder := startDev(t)
	runs(t, 0, "context", "add", "dev", "--url", address, "--token-file", filepath.Join(folder, "operator.token"))
	require.Equal(t, "dev\n", runs(t, 0, "nodes", "ls", "-o", "name").out)
	require.Contains(t, runs(t, 0, "nodes", "get", "dev").out, "connected")
	trunk := strings.TrimSpace(runs(t, 0, "trunks", "ls", "-o", "name").out)
	require.Contains(t, runs(t, 0, "trunks", "get", trunk).out, "Dev carrier")

	body := `{"application_id": "` + application + `", "from": "+12025550100", "to": "+12025550700"}`
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/v1/calls", bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer a-key-of-the-tests")
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	require.Equal(t, http.StatusCreated, response.StatusCode)
	var call struct {
		ID string `json:"id"`
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&call))

	told := runs(t, 0, "calls", "trace", call.ID, "--follow", "--interval", "200ms").out
	t.Log(told)
	at := 0
	for _, step := range []string{"call.created outbound", "-> INVITE +12025550700", "call.ringing", "call.answered", "/dev/answer (answer, attempt 1) -> 200", "gather", "call.completed", "completed, ended by the actions"} {
		place := strings.Index(told[at:], step)
		require.GreaterOrEqual(t, place, 0, "%q is not there, or not in its place", step)
		at += place
	}
	for _, lane := range []string{"answer_url", "action", "money", "webhook", "sip", "switch"} {
		require.Contains(t, told, " "+lane+" ", lane)
	}
	require.Contains(t, runs(t, 0, "calls", "ls", "--ended").out, call.ID)
	require.Empty(t, runs(t, 0, "calls", "ls", "--live", "-o", "name").out)
	require.Contains(t, runs(t, 0, "events", "tail", "--once", "--call", call.ID).out, "call.completed")
	delivered := strings.Fields(runs(t, 0, "webhooks", "ls", "--call", call.ID, "-o", "name").out)
	require.NotEmpty(t, delivered)
	require.Contains(t, runs(t, 0, "webhooks", "get", delivered[0]).out, "ATTEMPT")
	runs(t, 0, "webhooks", "redeliver", delivered[0])
	require.Contains(t, runs(t, 0, "calls", "hangup", call.ID, "-y").err, "1 had ended already")

	customer := strings.TrimSpace(runs(t, 0, "customers", "create", "Acme", "--balance", "50", "-o", "name").out)
	require.Contains(t, runs(t, 0, "customers", "credit", customer, "25", "--key", "invoice-1").out, "75.00")
	require.Regexp(t, `75\.00 +0\.00 +75\.00 +`, runs(t, 0, "customers", "balance", customer).out)
	carrier := strings.TrimSpace(runs(t, 0, "trunks", "create", "--customer", customer, "--name", "Carrier", "--proxy", "127.0.0.1:5099", "--weight", "3",
		"--max-calls", "2", "--codecs", "PCMA,PCMU", "--is-active=false", "-o", "name").out)
	require.Regexp(t, "inactive.*127.0.0.1:5099.*"+customer, runs(t, 0, "trunks", "get", carrier, "-o", "wide").out)
	require.Contains(t, runs(t, 1, "trunks", "create", "--customer", customer, "--name", "x", "--proxy", "127.0.0.1", "--weight", "0").err, "weight")
	require.Contains(t, runs(t, 0, "keys", "create", customer).out, "tandem_")
	require.Contains(t, runs(t, 0, "ledger", "verify").err, "the ledger holds")
	trail := runs(t, 0, "audit", "ls").out
	for _, action := range []string{"createCustomer", "creditCustomer", "createCustomerKey", "createCustomerTrunk", "redeliverCustomerEvent"} {
		require.Contains(t, trail, action)
	}

	runs(t, 0, "operators", "create", "eve", "--role", "viewer", "--save", "eve")
	require.Contains(t, runs(t, 1, "customers", "create", "x", "--context", "eve").err, "forbidden")
	runs(t, 0, "customers", "ls", "--context", "eve")
	runs(t, 0, "operators", "revoke", strings.Fields(runs(t, 0, "operators", "ls", "-o", "name").out)[0], "--yes")
	require.Contains(t, runs(t, 1, "customers", "ls", "--context", "eve").err, "unauthorized")
}
