package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeAPI is an operator API that answers from a script and keeps what it was asked.
type fakeAPI struct {
	t      *testing.T
	server *httptest.Server

	mu      sync.Mutex
	answers map[string]func(r *http.Request, body []byte) (int, any)
	asked   []string
}

// object is a JSON object.
type object = map[string]any

func startAPI(t *testing.T) *fakeAPI {
	t.Helper()
	api := &fakeAPI{t: t, answers: map[string]func(*http.Request, []byte) (int, any){}}
	api.server = httptest.NewServer(api)
	t.Cleanup(api.server.Close)
	api.on("GET /me", func(*http.Request, []byte) (int, any) {
		return 200, object{"id": "oper_1", "name": "ana", "role": "admin"}
	})
	return api
}

// on answers a method and path below the operator API.
func (f *fakeAPI) on(route string, answer func(r *http.Request, body []byte) (int, any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[route] = answer
}

// says answers a route always alike.
func (f *fakeAPI) says(route string, status int, answer any) {
	f.on(route, func(*http.Request, []byte) (int, any) { return status, answer })
}

// requests are what was asked: method, path and query, and the body.
func (f *fakeAPI) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.asked...)
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, operatorPath)
	f.mu.Lock()
	line := r.Method + " " + path
	if r.URL.RawQuery != "" {
		line += "?" + r.URL.RawQuery
	}
	f.asked = append(f.asked, strings.TrimSpace(line+" "+string(body)))
	answer := f.answers[r.Method+" "+path]
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	status, value := 404, any(object{"error": object{"code": "not_found", "message": "there is no such endpoint"}})
	if r.Header.Get("Authorization") != "Bearer op_good" {
		status, value = 401, object{"error": object{"code": "unauthorized", "message": "the operator's token is not valid", "request_id": "req_1"}}
	} else if answer != nil {
		status, value = answer(r, body)
	}
	w.WriteHeader(status)
	if value != nil {
		_ = json.NewEncoder(w).Encode(value)
	}
}

// listOf is a list as the API answers one.
func listOf(items ...any) object {
	if items == nil {
		items = []any{}
	}
	return object{"data": items, "count": len(items), "has_more": false, "next_cursor": nil}
}

// result is what a run of the command line printed, and how it ended.
type result struct {
	code     int
	out, err string
}

// isolate keeps the test from the contexts and tokens of whoever runs it.
func isolate(t *testing.T) {
	t.Helper()
	t.Setenv(envContexts, filepath.Join(t.TempDir(), "config", "contexts.yaml"))
	t.Setenv(envOperatorToken, "")
	t.Setenv(envAPIURL, "")
}

// as makes the API the one that commands speak to.
func (f *fakeAPI) as(t *testing.T, token string) {
	t.Helper()
	isolate(t)
	t.Setenv(envOperatorToken, token)
	t.Setenv(envAPIURL, f.server.URL)
}

// run runs the command line with something on standard input.
func run(ctx context.Context, stdin string, arguments ...string) result {
	var out, problem bytes.Buffer
	root := newRoot()
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&problem)
	root.SetArgs(arguments)
	err := root.ExecuteContext(ctx)
	got := result{out: out.String(), err: problem.String()}
	if err != nil {
		got.code, got.err = exitCode(err), got.err+"tandem: "+err.Error()
	}
	return got
}

// runs runs the command line and requires an exit code.
func runs(t *testing.T, code int, arguments ...string) result {
	t.Helper()
	got := run(t.Context(), "", arguments...)
	require.Equal(t, code, got.code, "tandem %s: %s%s", strings.Join(arguments, " "), got.out, got.err)
	return got
}
