package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTrunksTest prints each step with what shows it and what to do, and fails with the trunk.
func TestTrunksTest(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	report := object{"trunk_id": "trunk_1", "outcome": "ok", "duration_ms": 30, "steps": []object{
		{"step": "dns", "outcome": "ok", "summary": "sip.example has one address", "evidence": []string{"A 192.0.2.1\x1b[2J"}, "duration_ms": 4},
		{"step": "options", "outcome": "warning", "summary": "no answer", "evidence": []string{}, "advice": "ask the carrier", "duration_ms": 26},
	}}
	api.says("POST /trunks/trunk_1/test", 200, report)
	require.Equal(t, strings.Join([]string{
		"ok       dns            sip.example has one address (4 ms)",
		"           A 192.0.2.1�[2J",
		"warning  options        no answer (26 ms)",
		"         → ask the carrier",
		"",
	}, "\n"), runs(t, 0, "trunks", "test", "trunk_1").out)
	require.Equal(t, "dns\noptions\n", runs(t, 0, "trunks", "test", "trunk_1", "-o", "name").out)
	require.Contains(t, runs(t, 0, "trunks", "test", "trunk_1", "-o", "json").out, `"advice": "ask the carrier"`)
	require.Contains(t, runs(t, 2, "trunks", "test", "trunk_1", "--to", "+12025550100").err, "Call +12025550100 over trunk trunk_1?")
	report["outcome"] = "failed"
	got := runs(t, 1, "trunks", "test", "trunk_1", "--to", "+12025550100", "--from", "+12025550101", "--ring", "20s", "-y")
	require.Contains(t, got.err, "trunk trunk_1 does not work")
	require.Contains(t, got.out, "dns")
	asked := api.requests()
	require.Equal(t, `POST /trunks/trunk_1/test {"from":"+12025550101","timeout":20,"to":"+12025550100"}`, asked[len(asked)-1])
}
