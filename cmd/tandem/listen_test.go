package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestListenExitCodes runs the command line with all that can be wrong with it, and lets it be stopped.
func TestListenExitCodes(t *testing.T) { //nolint:paralleltest // t.Setenv
	t.Setenv("TANDEM_WEBHOOK_SECRET", "")
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer good":
			http.Error(w, `{"error": {"code": "unauthorized", "message": "no such key"}}`, http.StatusUnauthorized)
		case r.URL.Query().Get("type") == "x":
			http.Error(w, `{"error": {"code": "invalid_request", "message": "type is no kind of event"}}`, http.StatusBadRequest)
		default:
			_, _ = w.Write([]byte(`{"data": [], "has_more": false, "next_cursor": "c"}`))
		}
	}))
	defer api.Close()
	run := func(ctx context.Context, key string, arguments ...string) (code int, said string) {
		t.Setenv("TANDEM_API_KEY", key)
		var out bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append([]string{"listen", "--api-url", api.URL}, arguments...))
		if err := root.ExecuteContext(ctx); err != nil {
			return exitCode(err), out.String() + err.Error()
		}
		return 0, out.String()
	}
	const forward = "http://127.0.0.1:1/hook"
	for name, tc := range map[string]struct {
		key       string
		arguments []string
		code      int
		said      string
	}{
		"no URL":       {"good", nil, 2, "--forward is required"},
		"no key":       {"", []string{"--forward", forward}, 2, "TANDEM_API_KEY"},
		"bad URL":      {"good", []string{"--forward", "localhost"}, 2, "--forward"},
		"bad output":   {"good", []string{"--forward", forward, "-o", "xml"}, 2, "--output"},
		"unknown flag": {"good", []string{"--forward", forward, "--loud"}, 2, "unknown flag"},
		"an argument":  {"good", []string{"--forward", forward, "more"}, 2, "listen"},
		"bad kind":     {"good", []string{"--forward", forward, "--type", "x"}, 2, "no kind of event"},
		"wrong key":    {"bad", []string{"--forward", forward}, 1, "401 unauthorized: no such key"},
	} {
		code, said := run(t.Context(), tc.key, tc.arguments...)
		require.Equal(t, tc.code, code, "%s: %s", name, said)
		require.Contains(t, said, tc.said, name)
	}

	ctx, cancel := context.WithCancel(t.Context())
	stop := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cancel() })
	stopping := httptest.NewServer(stop)
	defer stopping.Close()
	code, said := run(ctx, "good", "--api-url", stopping.URL, "--forward", forward)
	require.Zero(t, code, said)
	require.Contains(t, said, "signed with the secret whsec_")
}
