package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNodesExec(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	answer := object{"id": "order_1", "node": "fs-1", "done_at": "2026-01-01T00:00:00Z", "error": nil, "reply": "UP 0 years\n\x1b[31m2 sessions\r\n", "truncated": true}
	api.says("POST /nodes/fs-1/exec", 202, object{"id": "order_1", "node": "fs-1", "done_at": nil, "error": nil, "reply": nil, "truncated": false})
	api.says("GET /nodes/fs-1/orders/order_1", 200, answer)
	got := run(t.Context(), "", "nodes", "exec", "fs-1", "status")
	require.Equal(t, 0, got.code, got.err)
	require.Equal(t, "UP 0 years\n\uFFFD[31m2 sessions\n", got.out)
	require.Contains(t, got.err, "said more than is kept")
	require.NotEqual(t, 0, run(t.Context(), "", "nodes", "exec", "fs-1", "fsctl", "shutdown").code, "it is asked about first")
	got = run(t.Context(), "", "nodes", "exec", "fs-1", "fsctl shutdown", "--yes")
	require.Equal(t, 0, got.code, got.err)
	answer["error"] = "-ERR no"
	api.says("GET /nodes/fs-1/orders/order_1", 200, answer)
	got = run(t.Context(), "", "nodes", "exec", "fs-1", "status")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.err, "-ERR no")
	require.Equal(t, 2, run(t.Context(), "", "nodes", "exec", "fs-1").code)
}

func TestOnlyShows(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]bool{
		"status": true, "sofia  status profile external": true, "show calls": true, "showdown": false, "sofia": false, "sofia profile external restart": false,
		"uuid_kill x": false, "": false, "fsctl pause_check": true, "fsctl pause": false,
	} {
		require.Equal(t, want, onlyShows(command), command)
	}
}
