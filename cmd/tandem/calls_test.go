package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHangup ends calls that are named, those that are chosen, and none with --dry-run or without a yes.
func TestHangup(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	one, two := object{"id": "call_1", "status": "in_progress"}, object{"id": "call_2", "status": "ringing"}
	api.says("GET /calls/call_1", 200, one)
	api.says("GET /calls", 200, listOf(one, two))
	api.says("POST /calls/call_1/hangup", 202, one)
	api.says("POST /calls/call_2/hangup", 409, object{"error": object{"code": "call_not_active", "message": "the call has already ended"}})
	posts := func() (sent []string) {
		for _, line := range api.requests() {
			if strings.HasPrefix(line, "POST") {
				sent = append(sent, line)
			}
		}
		return sent
	}
	require.Equal(t, "call_1\ncall_2\n", runs(t, 0, "calls", "hangup", "--node", "fs-1", "--dry-run", "-o", "name").out)
	require.Contains(t, runs(t, 2, "calls", "hangup", "call_1").err, "End call call_1")
	require.Contains(t, runs(t, 2, "calls", "hangup", "--all").err, "End 2 live calls?")
	require.Empty(t, posts())

	require.Equal(t, "call_1\n", runs(t, 0, "calls", "hangup", "call_1", "--yes", "-o", "name").out)
	require.Equal(t, []string{"POST /calls/call_1/hangup {}"}, posts())
	got := runs(t, 0, "calls", "hangup", "--customer", "cust_1", "-y", "-o", "name", "--progress", "none")
	require.Equal(t, "call_1\n", got.out)
	require.Equal(t, "1 had ended already\n", got.err)
	require.Contains(t, strings.Join(api.requests(), "\n"), "GET /calls?customer_id=cust_1&limit=200&state=live")

	api.says("POST /calls/call_2/hangup", 503, object{"error": object{"code": "no_node_available", "message": "away"}})
	got = runs(t, 1, "calls", "hangup", "--all", "-y", "-o", "name")
	require.Equal(t, "call_1\n", got.out)
	require.Contains(t, got.err, "1 of 2 calls were not ended: call_2: no_node_available")
	runs(t, 1, "calls", "hangup", "call_9", "-y")
}

// testStory is a call's story as the API tells it.
func testStory(ended bool) object {
	call := object{"id": "call_1", "status": "in_progress", "direction": "inbound", "from": "+1", "to": "+2", "created_at": "2026-01-01T00:00:00Z"}
	steps := []object{
		{"id": "evt_1", "at": "2026-01-01T00:00:00.001Z", "offset_ms": 1, "lane": "call", "ok": true, "text": "call.ringing"},
		{"id": "ask_1", "at": "2026-01-01T00:00:05.002Z", "offset_ms": 5002, "lane": "answer_url", "ok": false, "text": "POST https://a -> no answer\x1b[2J"},
	}
	if ended {
		call["ended_at"] = "2026-01-01T00:00:06Z"
		steps = append(steps, object{"id": "evt_2", "at": "2026-01-01T00:00:06.000Z", "offset_ms": 6000, "lane": "call", "ok": true, "text": "call.failed"})
	}
	return object{"call": call, "verdict": "failed: answer_url_failed.", "problems": []string{"https://a gave no actions."}, "steps": steps}
}

func TestTrace(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("GET /calls/call_1/trace", 200, testStory(true))
	require.Equal(t, strings.Join([]string{
		"call_1  inbound +1 -> +2  2026-01-01T00:00:00Z",
		"",
		"     0.001 s   call       call.ringing",
		"     5.002 s ! answer_url POST https://a -> no answer�[2J",
		"     6.000 s   call       call.failed",
		"",
		"failed: answer_url_failed.",
		"  ! https://a gave no actions.",
		"",
	}, "\n"), runs(t, 0, "calls", "trace", "call_1").out)
	require.Equal(t, "evt_1\nask_1\nevt_2\n", runs(t, 0, "calls", "trace", "call_1", "-o", "name").out)
	var told story
	require.NoError(t, json.Unmarshal([]byte(runs(t, 0, "calls", "trace", "call_1", "-o", "json").out), &told))
	require.Len(t, told.Steps, 3)
	runs(t, 1, "calls", "trace", "call_2")

	var looks atomic.Int64
	api.on("GET /calls/call_1/trace", func(*http.Request, []byte) (int, any) {
		if looks.Add(1) == 2 {
			return 503, object{"error": object{"code": "unavailable", "message": "stopping"}}
		}
		return 200, testStory(looks.Load() > 2)
	})
	followed := runs(t, 0, "calls", "trace", "call_1", "--follow", "--interval", "200ms")
	require.Equal(t, runs(t, 0, "calls", "trace", "call_1").out, followed.out, "each step once, the verdict at the end")
	require.Contains(t, followed.err, "waiting for the API")
}

// TestTail follows the journal from now on, across pages, and says where to go on.
func TestTail(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	event := func(id string) object {
		return object{"id": id, "type": "call.ringing", "created_at": "2026-01-01T00:00:00.000Z", "data": object{},
			"call": object{"id": "call_1", "from": "+1", "to": "+2", "status": "ringing"}}
	}
	page := func(cursor string, more bool, items ...any) object {
		answer := listOf(items...)
		answer["has_more"], answer["next_cursor"] = more, cursor
		return answer
	}
	api.on("GET /events", func(r *http.Request, _ []byte) (int, any) {
		switch r.URL.Query().Get("cursor") {
		case "now":
			return 200, page("c1", false)
		case "c1":
			return 200, page("c2", true, event("evt_1"))
		case "c2":
			return 200, page("c3", false, event("evt_2"))
		default:
			cancel()
			return 200, page("c3", false)
		}
	})
	got := run(ctx, "", "events", "tail", "--interval", "200ms", "-o", "name", "--type", "call.*")
	require.Zero(t, got.code, got.err)
	require.Equal(t, "evt_1\nevt_2\n", got.out)
	require.Equal(t, "go on with --from c3\n", got.err)
	require.Contains(t, api.requests()[0], "type=call.%2A")

	got = runs(t, 0, "events", "tail", "--from", "c2", "--once")
	require.Equal(t, "2026-01-01T00:00:00.000Z  call.ringing             call_1 +1 -> +2 ringing\n", got.out)
	api.says("GET /events", 400, object{"error": object{"code": "invalid_request", "message": "cursor must be a next_cursor"}})
	require.Contains(t, runs(t, 1, "events", "tail", "--from", "x").err, "cursor must be")
}

// TestHangupOfAnEmptyChoice: a flag whose value a script has lost would choose more calls than were meant.
func TestHangupOfAnEmptyChoice(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("GET /calls", 200, listOf(object{"id": "call_1"}))
	api.says("POST /calls/call_1/hangup", 202, object{"id": "call_1"})
	got := runs(t, 2, "calls", "hangup", "--node", "fs-1", "--customer", "", "--yes")
	require.Contains(t, got.err, "--customer is empty")
	require.Empty(t, api.requests())
}
