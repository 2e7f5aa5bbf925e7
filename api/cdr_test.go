package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/calls"
	"tandem/models"
	"tandem/models/modelstest"
)

// reporter posts CDRs to a served bench, as a node does.
type reporter struct {
	t     *testing.T
	store *models.Store
	base  string
	node  *models.Node
	token string
}

func newReporter(t *testing.T, store *models.Store) *reporter {
	t.Helper()
	b := newBench(t, store, Config{})
	r := &reporter{t: t, store: store, base: "http://" + b.listen(), node: &models.Node{Name: "fs-1", Password: "secret"}, token: models.NewCDRToken()}
	require.NoError(t, store.CreateNode(t.Context(), r.node))
	require.NoError(t, store.SetCDRToken(t.Context(), r.node.ID, r.token))
	return r
}

// post reports a channel; edit changes the request.
func (r *reporter) post(channel string, body []byte, edit func(*http.Request)) (int, string, http.Header) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.base+CDRPath+"?uuid="+channel, bytes.NewReader(body))
	require.NoError(r.t, err)
	request.SetBasicAuth(r.node.Name, r.token)
	request.Header.Set("Content-Type", "application/json")
	if edit != nil {
		edit(request)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(r.t, err)
	defer func() { _ = response.Body.Close() }()
	var answer bytes.Buffer
	_, err = answer.ReadFrom(response.Body)
	require.NoError(r.t, err)
	return response.StatusCode, answer.String(), response.Header
}

func capturedCDR(t *testing.T, name string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("..", "calls", "testdata", "cdr", name+".json"))
	require.NoError(t, err)
	return body
}

func TestCDRIsTaken(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		r := newReporter(t, store)
		for _, name := range []string{"hostile-variables", "refused", "bridged-caller", "bridged-callee", "inbound-killed"} {
			for range 2 { // a post whose answer was lost is sent again, or found in the folder
				status, answer, _ := r.post(name, capturedCDR(t, name), nil)
				require.Equal(t, http.StatusNoContent, status, answer)
			}
		}
		cdr, err := store.CDR(t.Context(), r.node.ID, "bridged-callee")
		require.NoError(t, err)
		require.Equal(t, []any{2, "recv_bye", 200}, []any{cdr.BilledSeconds, cdr.Disposition, cdr.SIPCode})

		// A long-lived channel has variables beyond what the customers' API takes.
		long := bytes.Replace(capturedCDR(t, "refused"), []byte(`"variables":{`), []byte(`"variables":{"x":"`+strings.Repeat("x", 1<<20)+`",`), 1)
		status, answer, _ := r.post("long", long, nil)
		require.Equal(t, http.StatusNoContent, status, answer)
		_, err = store.CDR(t.Context(), r.node.ID, "long")
		require.NoError(t, err)
	})
}

func TestCDRIsRefused(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	r := newReporter(t, store)
	good := capturedCDR(t, "refused")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(good)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	second := &models.Node{Name: "fs-2", Password: "secret"}
	require.NoError(t, store.CreateNode(t.Context(), second))
	for name, tc := range map[string]struct {
		channel string
		body    []byte
		edit    func(*http.Request)
		status  int
		says    string
	}{
		"nobody":            {status: 401, says: "CDR token", edit: func(r *http.Request) { r.Header.Del("Authorization") }},
		"a customer's key":  {status: 401, says: "CDR token", edit: func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }},
		"not base64":        {status: 401, says: "CDR token", edit: func(r *http.Request) { r.Header.Set("Authorization", "Basic !") }},
		"no colon":          {status: 401, says: "CDR token", edit: func(r *http.Request) { r.Header.Set("Authorization", "Basic YQ==") }},
		"a wrong token":     {status: 401, says: "CDR token", edit: func(req *http.Request) { req.SetBasicAuth(r.node.Name, r.token+"x") }},
		"a node without":    {status: 401, says: "CDR token", edit: func(req *http.Request) { req.SetBasicAuth(second.Name, "") }},
		"another's token":   {status: 401, says: "CDR token", edit: func(req *http.Request) { req.SetBasicAuth(second.Name, r.token) }},
		"no channel":        {status: 400, says: "names no channel", edit: func(req *http.Request) { req.URL.RawQuery = "" }},
		"a path":            {channel: "..%2F..%2Fetc", status: 400, says: "names no channel"},
		"nothing":           {body: []byte{}, status: 400, says: "bad CDR"},
		"no JSON":           {body: []byte("cdr=1"), status: 400, says: "bad CDR"},
		"another's JSON":    {body: []byte(`{"variables":{}}`), status: 400, says: "start_uepoch"},
		"packed":            {body: packed.Bytes(), status: 400, says: "bad CDR", edit: func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }},
		"the wrong method":  {status: 405, says: "method_not_allowed", edit: func(r *http.Request) { r.Method = http.MethodPut }},
		"longer than known": {body: make([]byte, calls.CDRLimit+1), status: 413, says: "payload_too_large"},
		"long, from nobody": {body: make([]byte, 100<<10), status: 413, says: "payload_too_large", edit: func(r *http.Request) { r.Header.Del("Authorization") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			channel, body := tc.channel, tc.body
			if channel == "" {
				channel = "11111111-2222-3333-4444-555555555555"
			}
			if body == nil {
				body = good
			}
			status, answer, header := r.post(channel, body, tc.edit)
			require.Equal(t, tc.status, status, answer)
			require.Contains(t, answer, tc.says)
			if status == http.StatusUnauthorized {
				require.Contains(t, header.Get("WWW-Authenticate"), "Basic")
			}
		})
	}
	t.Cleanup(func() {
		_, err := store.CDR(context.WithoutCancel(t.Context()), r.node.ID, "11111111-2222-3333-4444-555555555555")
		require.ErrorIs(t, err, models.ErrNotFound, "nothing that was refused is stored")
	})
}

// TestCDRWhileTheDatabaseIsAway has the node keep its CDR: it writes to its disk what is not answered with 2xx.
func TestCDRWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	r := newReporter(t, store)
	require.NoError(t, store.Close())
	status, answer, _ := r.post("a", capturedCDR(t, "refused"), nil)
	require.GreaterOrEqual(t, status, 500, answer)
	require.Less(t, status, 600)
}
