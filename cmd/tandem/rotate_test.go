package main

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRotate(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("POST /customers/cust_1/api-keys/key_1/rotate", 201, object{
		"id": "key_2", "name": "server", "api_key": "tandem_new", "previous_id": "key_1", "previous_valid_until": "2030-01-02T03:04:05Z",
	})
	got := runs(t, 0, "keys", "rotate", "cust_1", "key_1")
	require.Contains(t, got.out, "tandem_new")
	require.Contains(t, got.err, "key_1 goes on working until 2030-01-02T03:04:05Z")
	require.Equal(t, `POST /customers/cust_1/api-keys/key_1/rotate {"grace_seconds":86400}`, strings.Join(api.requests(), "\n"))

	// What stops working at once needs a yes.
	require.Contains(t, runs(t, 2, "keys", "rotate", "cust_1", "key_1", "--grace", "0").err, "--yes")
	require.Contains(t, runs(t, 2, "keys", "rotate", "cust_1", "key_1", "--grace", "-1h").err, "--grace")
	require.Contains(t, runs(t, 2, "keys", "rotate", "cust_1", "key_1", "--grace", "1500ms").err, "--grace")
	require.Len(t, api.requests(), 1)
	require.Contains(t, runs(t, 0, "keys", "rotate", "cust_1", "key_1", "--grace", "0", "--yes").err, "key_1 is revoked")
	require.Equal(t, `POST /customers/cust_1/api-keys/key_1/rotate {"grace_seconds":0}`, api.requests()[1])

	api.on("POST /operators/oper_1/rotate", func(_ *http.Request, body []byte) (int, any) {
		var asked struct {
			Grace     int       `json:"grace_seconds"`
			ExpiresAt time.Time `json:"expires_at"`
		}
		if json.Unmarshal(body, &asked) != nil || asked.Grace != 3600 || time.Until(asked.ExpiresAt) < 71*time.Hour {
			return 400, object{"error": object{"code": "invalid_request", "message": string(body)}}
		}
		return 201, object{"id": "oper_2", "name": "ana", "role": "admin", "token": "op_new", "previous_id": "oper_1", "previous_valid_until": "2030-01-02T03:04:05Z"}
	})
	got = runs(t, 0, "operators", "rotate", "oper_1", "--grace", "1h", "--expires-in", "72h", "--save", "prod")
	require.Empty(t, got.out, "it is kept, not printed")
	kept, err := os.ReadFile(os.Getenv(envContexts))
	require.NoError(t, err)
	require.Contains(t, string(kept), "op_new")
	require.Contains(t, runs(t, 0, "operators", "rotate", "oper_1", "--grace", "1h", "--expires-in", "72h").out, "op_new")
	runs(t, 2, "operators", "rotate", "oper_1", "--save", "a b")
}
