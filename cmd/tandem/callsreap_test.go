package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCallsReap(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("GET /nodes", 200, listOf(object{"name": "fs-1"}))
	answer := object{"id": "order_1", "node": "fs-1", "done_at": "2026-01-01T00:00:00Z", "error": nil, "strays": []any{}}
	var asked []string
	api.on("POST /nodes/fs-1/orders", func(_ *http.Request, body []byte) (int, any) {
		var in struct{ Kind string }
		_ = json.Unmarshal(body, &in)
		asked = append(asked, in.Kind)
		return 202, answer
	})
	reap := func(args ...string) result {
		asked = nil
		return run(t.Context(), "", append([]string{"calls", "reap"}, args...)...)
	}

	got := reap()
	require.Equal(t, 0, got.code, got.err)
	require.Empty(t, got.out)
	require.Contains(t, got.err, "nothing to reap")
	require.Equal(t, []string{"strays"}, asked)

	answer["strays"] = []any{
		object{"kind": "gone", "call_id": "call_1", "channel_id": "a"}, object{"kind": "stale", "call_id": nil, "channel_id": "b\x1b[2J"},
	}
	table := "CHANNEL  CALL    KIND   NODE  FATE\na        call_1  gone   fs-1  ends as its CDR says, or as lost\nb\ufffd[2J    -       stale  fs-1  is hung up\n"
	got = reap("fs-1")
	require.Equal(t, 2, got.code, "it is asked about first, and nobody answers")
	require.Equal(t, []string{"strays"}, asked)
	got = reap("fs-1", "--dry-run")
	require.Equal(t, 0, got.code, got.err)
	require.Equal(t, table, got.out)
	require.Equal(t, []string{"strays"}, asked)
	got = reap("--yes")
	require.Equal(t, 0, got.code, got.err)
	require.Equal(t, table, got.out)
	require.Equal(t, []string{"reap"}, asked)
	require.Equal(t, "a\nb\ufffd[2J\n", reap("--yes", "-o", "name").out)

	answer["error"] = "node is down"
	got = reap("--dry-run")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.err, "1 of 1 nodes were not looked at: fs-1: node is down")
}
