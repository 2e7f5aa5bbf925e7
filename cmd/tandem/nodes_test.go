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

// testNode is a node as the API tells of one.
func testNode(state string, calls int) object {
	node := object{
		"id": "node_1", "name": "fs-1", "esl_addr": "127.0.0.1:8021", "conf_dir": "/etc/freeswitch", "held_by": "one", "connected": true, "state": state,
		"weight": 100, "calls": calls, "draining": nil, "problems": []object{
			{"code": "clock_skew", "severity": "error", "message": "its clock is 60s behind the controller's", "fix": "keep both machines on NTP"},
			{"code": "busy", "severity": "warning", "message": "its CPU is 9 % idle", "fix": "add a node"},
		},
		"health": object{"version": "1.10.12", "uptime_seconds": 61, "sessions": calls, "max_sessions": 2000, "idle_cpu": 9.25, "clock_skew_ms": -60000, "answer_ms": 0.7},
	}
	if strings.HasPrefix(state, "drain") {
		node["draining"] = object{"since": "2026-01-01T00:00:00.000Z", "by": "ana", "reason": "new kernel"}
	}
	return node
}

// The list has what operators look for; a node by itself has all of it, with each problem and its fix.
func TestNodesAreShown(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("GET /nodes", 200, listOf(testNode("draining", 7), object{"name": "fs-2", "esl_addr": "127.0.0.1:8022", "state": "unheld", "problems": []object{}}))
	api.says("GET /nodes/fs-1", 200, testNode("draining", 7))
	table := runs(t, 0, "nodes", "ls").out
	require.Regexp(t, `(?m)^NAME +ESL +STATE +CALLS +SESSIONS +IDLE +PROBLEMS$`, table)
	require.Regexp(t, `(?m)^fs-1 +127.0.0.1:8021 +draining +7 +7/2000 +9 % +clock_skew and 1 more$`, table)
	require.Regexp(t, `(?m)^fs-2 +127.0.0.1:8022 +unheld +0 +- +- +-$`, table)
	wide := runs(t, 0, "nodes", "ls", "-o", "wide").out
	require.Regexp(t, `(?m)^NAME +ESL +STATE +CALLS +SESSIONS +IDLE +WEIGHT +CLOCK +HEARTBEAT +VERSION +PROBLEMS +HELD BY`, wide)
	require.Regexp(t, `(?m)^fs-1 .* 100 +-60000 ms +- +1\.10\.12 +clock_skew and 1 more +one `, wide)
	require.Equal(t, "fs-1\nfs-2\n", runs(t, 0, "nodes", "ls", "-o", "name").out)
	shown := runs(t, 0, "nodes", "get", "fs-1").out
	for _, line := range []string{
		`state +draining, weight 100, 7 calls`, `draining +since 2026-01-01T00:00:00.000Z, by ana: new kernel`, `sessions +7 of 2000, 0 a second of 0`, `cpu +9\.\d % idle`,
		`clock +-60000 ms; answers in 0.7 ms`, `error +clock_skew: its clock is 60s behind`, `- +fix: keep both machines on NTP`, `warning +busy: `, `held by +one`,
	} {
		require.Regexp(t, `(?m)^`+line, shown)
	}
	var whole object
	require.NoError(t, json.Unmarshal([]byte(runs(t, 0, "nodes", "get", "fs-1", "-o", "json").out), &whole))
	require.Equal(t, "draining", whole["state"])
}

// drain waits until the node is empty, through an API that is away for a moment, and says how it goes on; it gives up where that takes too long.
func TestDrainWaits(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	asked := 0
	api.says("POST /nodes/fs-1/drain", 200, testNode("draining", 9))
	api.on("GET /nodes/fs-1", func(*http.Request, []byte) (int, any) {
		asked++
		switch asked {
		case 1:
			return 200, testNode("draining", 9)
		case 2:
			return 503, object{"error": object{"code": "unavailable", "message": "the database is away"}}
		default:
			return 200, testNode("drained", 0)
		}
	})
	got := runs(t, 0, "nodes", "drain", "fs-1", "--reason", "new kernel", "--wait", "-o", "name", "--progress", "plain")
	require.Equal(t, "fs-1\n", got.out)
	require.Contains(t, got.err, "waiting for the API")
	require.Contains(t, got.err, "draining: 9/9, 100 %")
	require.Contains(t, api.requests(), `POST /nodes/fs-1/drain {"reason":"new kernel"}`)

	api.says("GET /nodes/fs-1", 200, testNode("draining", 9))
	require.Contains(t, runs(t, 1, "nodes", "drain", "fs-1", "--wait", "--wait-timeout", "20ms").err, "not empty after 20ms; it drains on")
	api.says("GET /nodes/fs-1", 200, testNode("up", 9))
	require.Contains(t, runs(t, 1, "nodes", "drain", "fs-1", "--wait").err, "resumed meanwhile")
	api.says("GET /nodes/fs-1", 404, object{"error": object{"code": "not_found", "message": "node not found"}})
	require.Contains(t, runs(t, 1, "nodes", "drain", "fs-1", "--wait").err, "node not found")
	before := len(api.requests())
	require.Equal(t, "fs-1\n", runs(t, 0, "nodes", "drain", "fs-1", "-o", "name").out, "without --wait it does not")
	require.Len(t, api.requests(), before+1)
	api.says("POST /nodes/fs-1/resume", 200, testNode("up", 9))
	require.Equal(t, "fs-1\n", runs(t, 0, "nodes", "resume", "fs-1", "-o", "name").out)
}

// set sends what is given and nothing else, and asks before it has nobody steer a node.
func TestNodesSet(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("PATCH /nodes/fs-1", 200, testNode("up", 0))
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("n3w\n"), 0o600))
	for want, arguments := range map[string][]string{
		`{"weight":0}`: {"--weight", "0"},
		`{"esl_addr":"fs-1:8021","esl_password":"n3w"}`: {"--esl-addr", "fs-1:8021", "--esl-password-file", password},
		`{"conf_dir":"` + t.TempDir():                   {"--conf-dir", "."},
		`{"is_active":false}`:                           {"--active=false", "--yes"},
		`{"is_active":true}`:                            {"--active"},
	} {
		runs(t, 0, append([]string{"nodes", "set", "fs-1", "-o", "name"}, arguments...)...)
		sent := api.requests()[len(api.requests())-1]
		if strings.HasPrefix(want, `{"conf_dir"`) {
			here, err := filepath.Abs(".")
			require.NoError(t, err)
			want = `{"conf_dir":"` + here + `"}`
		}
		require.Equal(t, "PATCH /nodes/fs-1 "+want, sent)
	}
	before := len(api.requests())
	require.Contains(t, runs(t, 2, "nodes", "set", "fs-1").err, "say what to change")
	require.Contains(t, runs(t, 2, "nodes", "set", "fs-1", "--active=false").err, "Have nobody steer node fs-1?")
	require.Contains(t, runs(t, 1, "nodes", "set", "fs-1", "--esl-password-file", password+"x").err, "--esl-password-file")
	require.Len(t, api.requests(), before)
}
