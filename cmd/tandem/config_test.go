package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfigDiffAndApply(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("GET /nodes", 200, listOf(object{"name": "fs-1"}))
	looks := 0
	var answer object
	api.on("POST /nodes/fs-1/orders", func(*http.Request, []byte) (int, any) {
		looks = 0
		return 202, object{"id": "order_1", "node": "fs-1", "done_at": nil}
	})
	api.on("GET /nodes/fs-1/orders/order_1", func(*http.Request, []byte) (int, any) {
		if looks++; looks < 2 {
			return 200, object{"id": "order_1", "node": "fs-1", "done_at": nil}
		}
		return 200, answer
	})
	done := func(more object) {
		answer = object{"id": "order_1", "node": "fs-1", "done_at": "2026-01-01T00:00:00Z", "error": nil, "changes": []any{}, "written": []any{}, "removed": []any{}, "unloaded": []any{}}
		for name, value := range more {
			answer[name] = value
		}
	}

	done(nil)
	got := run(t.Context(), "", "config", "diff")
	require.Equal(t, 0, got.code, got.err)
	require.Equal(t, "fs-1\n  as it should be\n", got.out)

	done(object{"note": "7 contexts of the switch were not looked at", "changes": []any{
		object{"op": "change", "kind": "gateway", "name": "beta", "details": []any{"password changed"}, "effect": "killgw + rescan", "live_calls": []any{"call_1", "call_2"}},
		object{"op": "unload", "kind": "gateway", "name": "hand\x1b[2Jmade", "details": []any{}, "effect": "killgw", "live_calls": []any{}},
	}})
	got = run(t.Context(), "", "config", "diff", "fs-1")
	require.Equal(t, 1, got.code)
	require.Equal(t, "fs-1\n  ~ gateway beta  password changed  → killgw + rescan (2 live calls: call_1 call_2)\n"+
		"  ? gateway hand\ufffd[2Jmade  → killgw\n  7 contexts of the switch were not looked at\n", got.out)

	done(object{"error": "the switch is away"})
	got = run(t.Context(), "", "config", "diff")
	require.Equal(t, exitDiffFailed, got.code)
	require.Contains(t, got.err, "the switch is away")
	got = run(t.Context(), "", "config", "diff", "fs-2")
	require.Equal(t, exitDiffFailed, got.code)
	answer = object{"id": "order_1", "node": "fs-1", "done_at": nil}
	got = run(t.Context(), "", "config", "diff", "--wait", "300ms")
	require.Equal(t, exitDiffFailed, got.code)
	require.Contains(t, got.err, "no controller")

	done(object{"written": []any{"a", "b"}, "unloaded": []any{"x"}})
	got = run(t.Context(), "", "config", "apply", "--prune", "--yes")
	require.Equal(t, 0, got.code, got.err)
	require.Contains(t, got.out, "applied")
	require.Contains(t, api.requests(), `POST /nodes/fs-1/orders {"kind":"apply","prune":true}`)
	before := len(api.requests())
	got = run(t.Context(), "", "config", "apply")
	require.Equal(t, 2, got.code, "nobody can be asked")
	for _, asked := range api.requests()[before:] {
		require.NotContains(t, asked, "apply")
	}
	done(object{"error": "disk is full"})
	got = run(t.Context(), "", "config", "apply", "--yes")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.out, "disk is full")
}

// TestConfigOfANodeThatNobodyHolds: what the others have answered is shown all the same, above all what was done to them.
func TestConfigOfANodeThatNobodyHolds(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("GET /nodes", 200, listOf(object{"name": "fs-1"}, object{"name": "fs-2"}))
	for name, at := range map[string]any{"fs-1": nil, "fs-2": "2026-01-01T00:00:00Z"} {
		answer := object{"id": "order_1", "node": name, "done_at": at, "error": nil, "changes": []any{}, "written": []any{"a.xml"}, "removed": []any{}, "unloaded": []any{}}
		api.says("POST /nodes/"+name+"/orders", 202, answer)
		api.says("GET /nodes/"+name+"/orders/order_1", 200, answer)
	}
	got := run(t.Context(), "", "config", "diff", "--wait", "300ms")
	require.Equal(t, exitDiffFailed, got.code)
	require.Contains(t, got.out, "fs-2\n  as it should be\n")
	require.Contains(t, got.out, "no controller has carried it out")
	got = run(t.Context(), "", "config", "apply", "--yes", "--wait", "300ms")
	require.Equal(t, 1, got.code)
	require.Regexp(t, `fs-2 +1 +0 +0 +applied`, got.out)
	require.Regexp(t, `fs-1 +1 +0 +0 +no controller`, got.out)
	got = run(t.Context(), "", "config", "apply", "--yes", "--wait", "300ms", "-o", "json")
	require.Equal(t, 1, got.code)
	var items []orderItem
	require.NoError(t, json.Unmarshal([]byte(got.out), &items))
	require.Equal(t, []string{"fs-1", "fs-2"}, []string{items[0].Node, items[1].Node})
}

func TestConfigRender(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("GET /config", 200, object{"paths": []any{"tandem/dialplan/public.xml"}, "problems": []any{object{"kind": "trunk", "id": "trunk_1", "message": "proxy is no host"}}})
	api.says("GET /config/document", 200, object{"path": "tandem/dialplan/public.xml", "content": "<include/>\n"})
	got := run(t.Context(), "", "config", "render")
	require.Equal(t, 0, got.code, got.err)
	require.Contains(t, got.out, "tandem/dialplan/public.xml")
	require.Contains(t, got.err, "proxy is no host")
	got = run(t.Context(), "", "config", "render", "tandem/dialplan/public.xml")
	require.Equal(t, "<include/>\n", got.out)
	api.says("GET /nodes/fs-1/drifts", 200, listOf(object{"id": "drift_1", "kind": "file_edited", "name": "a.xml", "found_at": "2026-01-01T00:00:00Z", "ended_at": nil}))
	got = run(t.Context(), "", "config", "drift", "fs-1")
	require.Equal(t, 0, got.code, got.err)
	require.Contains(t, got.out, "file_edited")
}
