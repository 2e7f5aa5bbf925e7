package daemon

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDevUnregister: the example is told, with a good signature, that a trunk registered, and what cannot be lost is refused by name.
func TestDevUnregister(t *testing.T) { //nolint:paralleltest // t.Setenv
	t.Setenv("TANDEM_HTTP_ADDR", "127.0.0.1:0")
	const key = "tandem_preset_key_of_the_test_0123456789"
	t.Setenv("TANDEM_DEV_API_KEY", key)
	run := startDev(t, filepath.Join(t.TempDir(), "data"), DevOptions{})
	status, trunk := post(t, run.url+"/v1/trunks", key, map[string]any{
		"name": "Acme", "gateway_name": "acme", "proxy": "127.0.0.1:5090", "username": "acme", "password": "s3cret",
	})
	require.Equal(t, http.StatusCreated, status, trunk)
	id := trunk["id"].(string)
	limit := time.After(60 * time.Second)
	for told := false; !told; {
		select {
		case line, ok := <-run.lines:
			require.True(t, ok)
			if told = strings.Contains(line, "trunk.registered"); told {
				require.Contains(t, line, id)
				require.Contains(t, line, "signature ok")
			}
		case <-limit:
			require.Fail(t, "trunk.registered was not told")
		}
	}

	for _, wrong := range []struct {
		body   map[string]any
		status int
		said   string
	}{
		{map[string]any{"trunk": "acme"}, 400, "seconds must be from 1 to 3600"},
		{map[string]any{"trunk": "acme", "seconds": 3601}, 400, "seconds must be from 1 to 3600"},
		{map[string]any{"trunk": "acme", "seconds": 5, "more": 1}, 400, "trunk and seconds"},
		{map[string]any{"seconds": 5}, 404, "trunk: there is none"},
		{map[string]any{"trunk": "trunk_nobody", "seconds": 5}, 404, `"trunk_nobody"`},
		{map[string]any{"trunk": "dev-carrier", "seconds": 5}, 409, "does not register"},
	} {
		status, answer := post(t, run.url+"/dev/unregister", "", wrong.body)
		require.Equal(t, wrong.status, status, "%v: %v", wrong.body, answer)
		require.Contains(t, answer["error"], wrong.said)
	}
	status, answer := post(t, run.url+"/dev/unregister", "", map[string]any{"trunk": id, "seconds": 30})
	require.Equal(t, http.StatusAccepted, status, answer)
	require.Equal(t, map[string]any{"trunk_id": id, "gateway_name": "acme"}, answer)
	status, answer = post(t, run.url+"/dev/unregister", "", map[string]any{"trunk": id, "seconds": 30})
	require.Equal(t, http.StatusBadGateway, status, answer)
	require.Contains(t, answer["error"], "not registered now")
	require.NoError(t, run.stop())
}
