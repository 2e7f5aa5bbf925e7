package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTrunksCreate(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	var sent object
	api.on("POST /trunks", func(_ *http.Request, body []byte) (int, any) {
		sent = nil
		require.NoError(t, json.Unmarshal(body, &sent))
		return 201, object{"id": "trunk_1", "customer_id": "cust_1", "name": "Carrier", "direction": "outbound", "proxy": "sip.example.com", "is_active": true}
	})
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	password := write("password", "s3cret \n")

	got := runs(t, 0, "trunks", "create", "--customer", "cust_1", "--name", "Carrier", "--proxy", "sip.example.com", "--username", "u", "--password-file", password,
		"--from-domain", "example.com", "--gateway-name", "carrier", "--port", "5070", "--priority", "0", "--allowed-prefixes", "+44,+49", "--codecs", "PCMA",
		"--caller-id-policy", "fixed", "--caller-id", "+15550000001", "--max-calls", "5", "--register=false", "--is-active=false")
	require.Equal(t, object{
		"customer_id": "cust_1", "name": "Carrier", "proxy": "sip.example.com", "username": "u", "password": "s3cret ", "from_domain": "example.com",
		"gateway_name": "carrier", "port": float64(5070), "priority": float64(0), "allowed_prefixes": []any{"+44", "+49"}, "codecs": []any{"PCMA"},
		"caller_id_policy": "fixed", "caller_id": "+15550000001", "max_calls": float64(5), "register": false, "is_active": false,
	}, sent)
	require.Contains(t, got.out, "trunk_1")
	require.NotContains(t, got.out+got.err, "s3cret")
	require.Equal(t, "trunk_1\n", runs(t, 0, "trunks", "create", "--customer", "cust_1", "--name", "In", "--inbound-ips", "192.0.2.1,198.51.100.0/24", "-o", "name").out)
	require.Equal(t, object{"customer_id": "cust_1", "name": "In", "inbound_ips": []any{"192.0.2.1", "198.51.100.0/24"}}, sent, "no more than what was named")

	// A file, and flags over it; every field of it goes to the API, which knows them.
	file := write("trunk.json", `{"customer_id":"cust_2","name":"From the file","proxy":"a.example.com","username":"u","password":"in-the-file","weight":7,"later":null}`)
	runs(t, 0, "trunks", "create", "--file", file)
	require.Equal(t, object{
		"customer_id": "cust_2", "name": "From the file", "proxy": "a.example.com", "username": "u", "password": "in-the-file", "weight": float64(7), "later": nil,
	}, sent)
	runs(t, 0, "trunks", "create", "--file", file, "--customer", "cust_1", "--name", "Flag", "--password-file", password)
	require.Equal(t, []any{"cust_1", "Flag", "s3cret ", "a.example.com"}, []any{sent["customer_id"], sent["name"], sent["password"], sent["proxy"]})

	minimal := []string{"trunks", "create", "--customer", "cust_1", "--name", "x", "--proxy", "a.example.com"}
	require.Equal(t, 0, run(t.Context(), "from-stdin\n", append(minimal, "--username", "u", "--password-file", "-")...).code)
	require.Equal(t, "from-stdin", sent["password"])
	require.Equal(t, 0, run(t.Context(), `{"name":"piped","proxy":"b.example.com"}`, "trunks", "create", "--customer", "cust_1", "--file", "-").code)
	require.Equal(t, object{"customer_id": "cust_1", "name": "piped", "proxy": "b.example.com"}, sent)

	asked := len(api.requests())
	require.Contains(t, runs(t, 2, append(minimal, "--password-file", "-", "--file", "-")...).err, "standard input")
	require.Contains(t, runs(t, 2, append(minimal, "--password-file", "-")...).err, "--password-file")
	require.Contains(t, runs(t, 2, "trunks", "create", "--name", "x", "--proxy", "a.example.com").err, "--customer is required")
	runs(t, 2, append(minimal, "--password", "seen-by-all")...)
	runs(t, 2, append(minimal, "--port", "many")...)
	require.Contains(t, runs(t, 1, append(minimal, "--password-file", password+"x")...).err, "--password-file")
	for _, bad := range []string{"", "[]", "null", `{"name":`, `{} {}`, `"x"`, "{}" + strings.Repeat(" ", trunkFileLimit)} {
		require.Contains(t, runs(t, 1, append(minimal, "--file", write("bad.json", bad))...).err, "--file", "%.20s", bad)
	}
	require.Contains(t, runs(t, 1, append(minimal, "--file", file+"x")...).err, "--file")
	require.Len(t, api.requests(), asked, "none of these reached the server")

	api.says("POST /trunks", 400, object{"error": object{"code": "invalid_request", "message": "weight must be from 1 to 100"}})
	require.Contains(t, runs(t, 1, append(minimal, "--weight", "0")...).err, "weight must be")
}
