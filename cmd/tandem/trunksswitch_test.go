package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTrunksAreSwitched(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("GET /calls", 200, listOf(object{"id": "call_1"}, object{"id": "call_2"}))
	api.says("PATCH /trunks/trunk_1", 200, object{"id": "trunk_1", "name": "Carrier", "direction": "outbound", "is_active": false})
	refused := runs(t, 2, "trunks", "disable", "trunk_1")
	require.Contains(t, refused.err, "Its live calls go on: call_1 call_2.")
	require.Contains(t, refused.err, "--yes")
	require.Equal(t, []string{"GET /calls?limit=5&state=live&trunk_id=trunk_1"}, api.requests(), "nothing was changed")
	require.Contains(t, runs(t, 0, "trunks", "disable", "trunk_1", "-y").out, "inactive")
	require.Equal(t, `PATCH /trunks/trunk_1 {"is_active":false}`, api.requests()[1])
	runs(t, 0, "trunks", "enable", "trunk_1")
	require.True(t, strings.HasSuffix(api.requests()[2], `{"is_active":true}`))
	api.says("GET /calls", 200, listOf())
	require.Contains(t, runs(t, 2, "trunks", "disable", "trunk_1").err, "no live calls")
	runs(t, 1, "trunks", "enable", "trunk_2")
}
