package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestListsArePaged reads as many as were asked for, and says when there are more.
func TestListsArePaged(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	const total = 450
	api.on("GET /customers", func(r *http.Request, _ []byte) (int, any) {
		var from, size int
		_, _ = fmt.Sscan(r.URL.Query().Get("limit"), &size)
		_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &from)
		items := []any{}
		for i := from; i < min(from+size, total); i++ {
			items = append(items, object{"id": fmt.Sprintf("cust_%d", i)})
		}
		page := listOf(items...)
		if next := from + size; next < total {
			page["has_more"], page["next_cursor"] = true, fmt.Sprint(next)
		}
		return 200, page
	})
	count := func(arguments ...string) (int, string) {
		got := runs(t, 0, append([]string{"customers", "ls", "-o", "name"}, arguments...)...)
		return strings.Count(got.out, "\n"), got.err
	}
	n, said := count()
	require.Equal(t, 50, n)
	require.Contains(t, said, "there are more than 50")
	n, _ = count("--limit", "250")
	require.Equal(t, 250, n)
	n, said = count("--all")
	require.Equal(t, total, n)
	require.Empty(t, said)
	n, said = count("--limit", "450")
	require.Equal(t, total, n)
	require.Empty(t, said, "there are no more")
}

// TestWatch follows a list whose items come, change and go, while the server is away for a moment, and is ended by its context.
func TestWatch(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	call := func(id, status string) object {
		return object{"id": id, "status": status, "from": "+1", "to": "+2", "created_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:09Z"}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var looks atomic.Int64
	api.on("GET /calls", func(r *http.Request, _ []byte) (int, any) {
		if r.URL.Query().Get("state") != "live" {
			return 400, nil
		}
		switch looks.Add(1) {
		case 1:
			return 200, listOf(call("call_2", "ringing"), call("call_1", "in_progress"))
		case 2:
			return 503, object{"error": object{"code": "unavailable", "message": "stopping"}}
		case 3:
			return 200, listOf(call("call_2", "in_progress"), call("call_1", "in_progress"))
		case 4:
			return 200, listOf(call("call_2", "in_progress"))
		default:
			cancel()
			return 200, listOf(call("call_2", "in_progress"))
		}
	})
	got := run(ctx, "", "calls", "watch", "--interval", "200ms", "-o", "json")
	require.Zero(t, got.code, got.err)
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	require.Len(t, lines, 3, got.out)
	for i, want := range []string{`"id":"call_1"`, `"id":"call_2"`, `"status":"in_progress"`} {
		require.Contains(t, lines[i], want)
	}
	require.Equal(t, "waiting for the API: unavailable: stopping\nthe API is back\n", got.err)

	looks.Store(0)
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	got = run(ctx, "", "calls", "ls", "--live", "--watch", "--interval", "200ms")
	require.Zero(t, got.code, got.err)
	require.Equal(t, 1, strings.Count(got.out, "STATUS"), "the header comes once")
	require.NotContains(t, got.out, clearScreen, "this is no terminal")
}

// TestRedraw shows on a terminal what fits.
func TestRedraw(t *testing.T) {
	t.Parallel()
	items := make([]json.RawMessage, 10)
	for i := range items {
		items[i] = json.RawMessage(fmt.Sprintf(`{"id": "call_%d"}`, i))
	}
	for height, want := range map[int]int{24: 10, 14: 10, 13: 9, 5: 1, 0: 1} {
		var out bytes.Buffer
		require.NoError(t, redraw(&out, &options{output: outputTable}, time.Second, callView, items, height))
		require.True(t, strings.HasPrefix(out.String(), clearScreen+"every 1s, "), out.String())
		require.Equal(t, want, strings.Count(out.String(), "call_"), height)
		require.LessOrEqual(t, strings.Count(out.String(), "\n"), max(height, 5), height)
		require.Equal(t, want < 10, strings.Contains(out.String(), fmt.Sprintf("and %d more", 10-want)), height)
	}
}

// TestWatchEndsWithRefusals: what will not pass ends a watch.
func TestWatchEndsWithRefusals(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("GET /calls", 403, object{"error": object{"code": "forbidden", "message": "no"}})
	require.Contains(t, runs(t, 1, "calls", "watch").err, "forbidden")
}

func TestAnswered(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{"y\n": nil, "YES\r\n": nil, " yes": nil, "": errDeclined, "\n": errDeclined, "n\n": errDeclined, "yess\n": errDeclined, "no yes\n": errDeclined} {
		require.Equal(t, want, answered(t.Context(), strings.NewReader(text)), "%q", text)
	}
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, answered(ctx, reader), errDeclined, "whoever is asked may go away")
	require.NoError(t, writer.CloseWithError(errors.New("gone")))
}

// TestProgress tells as text and as JSON, now and then and at the end.
func TestProgress(t *testing.T) {
	t.Parallel()
	cmd := newRoot()
	var out bytes.Buffer
	cmd.SetErr(&out)
	now := time.Unix(0, 0)
	begin := func(form string, total int64) *progress {
		out.Reset()
		p := (&options{progress: form}).newProgress(cmd, "importing", total)
		p.now = func() time.Time { return now }
		p.begun, p.told = now, now
		return p
	}
	p := begin(progressAuto, 200)
	p.at(10)
	require.Empty(t, out.String())
	now = now.Add(progressEvery)
	p.at(100)
	require.Equal(t, "importing: 100/200, 50 %, 20/s\n", out.String())
	p.at(200)
	p.finish()
	require.Equal(t, "importing: 100/200, 50 %, 20/s\nimporting: 200/200, 100 %, 40/s\n", out.String())

	p = begin(progressJSON, 0)
	now = now.Add(2 * time.Second)
	p.at(30)
	p.finish()
	require.JSONEq(t, `{"progress": "importing", "done": 30, "per_second": 15, "seconds": 2, "ended": true}`, out.String())

	p = begin(progressNone, 0)
	now = now.Add(time.Hour)
	p.at(1)
	p.finish()
	require.Empty(t, out.String())
}
