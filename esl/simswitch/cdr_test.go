package simswitch_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
)

// postbox takes CDRs, or answers with a status.
type postbox struct {
	*httptest.Server
	mu      sync.Mutex
	status  int
	records map[string]string // by uuid
	user    string
	onPost  func()
}

func newPostbox(t *testing.T, status int) *postbox {
	t.Helper()
	p := &postbox{status: status, records: map[string]string{}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		user, token, ok := r.BasicAuth()
		if err != nil || !ok || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		p.mu.Lock()
		p.records[r.URL.Query().Get("uuid")], p.user = string(body), user+":"+token
		status, told := p.status, p.onPost
		p.mu.Unlock()
		if told != nil {
			told()
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *postbox) record(uuid string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.records[uuid]
}

// paths are the places of a document and what stands there, without the variables.
func paths(prefix string, value any, into map[string]string) {
	switch value := value.(type) {
	case map[string]any:
		into[prefix] = "object"
		for name, inner := range value {
			if prefix != "/variables" {
				paths(prefix+"/"+name, inner, into)
			}
		}
	case []any:
		into[prefix] = "list"
		for _, inner := range value {
			paths(prefix+"/0", inner, into)
		}
	case string:
		into[prefix] = "text"
	default:
		into[prefix] = "something else"
	}
}

func document(t *testing.T, body string) (shape map[string]string, variables map[string]string) {
	t.Helper()
	var doc map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &doc))
	shape, variables = map[string]string{}, map[string]string{}
	paths("", doc, shape)
	for name, value := range doc["variables"].(map[string]any) {
		variables[name] = value.(string)
	}
	return shape, variables
}

// TestCDRIsLikeTheRealOne holds the record of a refused and of an answered call to what a FreeSWITCH 1.10.12 posted.
func TestCDRIsLikeTheRealOne(t *testing.T) {
	t.Parallel()
	genuine, err := os.ReadFile(filepath.Join("..", "..", "calls", "testdata", "cdr", "inbound-killed.json"))
	require.NoError(t, err)
	wantShape, wantVariables := document(t, string(genuine))

	post := newPostbox(t, http.StatusNoContent)
	s, c, uuid := parked(t, simswitch.Config{CDRs: &simswitch.CDRs{URLs: []string{post.URL}, Credentials: "fs-1:token:with:colons"}}, simswitch.IncomingCall{
		SIPHeaders: map[string]string{"X-Hostile": "\"},\"billsec\":\"9\" \xff\xfe\x01"},
	})
	// The hangup event waits for the post.
	heard := make(chan bool, 1)
	post.mu.Lock()
	post.onPost = func() {
		heard <- slices.ContainsFunc(c.of(uuid), func(e map[string]string) bool { return e["Event-Name"] == "CHANNEL_HANGUP_COMPLETE" })
	}
	post.mu.Unlock()
	require.Contains(t, c.api("uuid_kill "+uuid+" USER_BUSY"), "+OK")
	c.await("the end", named("CHANNEL_DESTROY", uuid))
	require.False(t, <-heard)
	r, err := s.Caller(uuid).Wait(within(t), ended)
	require.NoError(t, err)
	require.Equal(t, "USER_BUSY", r.Cause)

	body := post.record(uuid)
	require.Equal(t, "fs-1:token:with:colons", post.user)
	require.Contains(t, body, "\xff\xfe\\u0001", "as the switch sends them")
	shape, variables := document(t, body)
	for path, kind := range shape {
		require.Equal(t, wantShape[path], kind, "%s", path)
	}
	for path := range wantShape {
		if _, ok := shape[path]; !ok {
			require.True(t, strings.HasPrefix(path, "/app_log") || strings.HasPrefix(path, "/callflow/0/extension") ||
				slices.Contains([]string{"/channel_data/flags", "/channel_data/caps"}, path), "%s is not written", path)
		}
	}
	for name := range wantVariables {
		if strings.HasSuffix(name, "_uepoch") || strings.HasSuffix(name, "_epoch") || strings.HasSuffix(name, "sec") || strings.HasPrefix(name, "hangup") || name == "sip_hangup_disposition" {
			if name != "hold_accum_usec" && !strings.HasPrefix(name, "last_hold") && !strings.HasPrefix(name, "resurrect") {
				require.Contains(t, variables, name)
			}
		}
	}
	require.Equal(t, []string{"USER_BUSY", "17", "0", "0", "send_refuse"}, []string{
		variables["hangup_cause"], variables["hangup_cause_q850"], variables["billsec"], variables["answer_uepoch"], variables["sip_hangup_disposition"],
	})
}

// TestCDRGoesToDisk has nobody take the record, one server after the other, and none at all.
func TestCDRGoesToDisk(t *testing.T) {
	t.Parallel()
	full, open := newPostbox(t, http.StatusServiceUnavailable), newPostbox(t, http.StatusOK)
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	folder := t.TempDir()
	s, c, first := parked(t, simswitch.Config{CDRs: &simswitch.CDRs{URLs: []string{full.URL, dead.URL, open.URL}, Credentials: "a:b", Folder: folder}}, simswitch.IncomingCall{})
	end := func(uuid string) {
		c.api("uuid_kill " + uuid)
		c.await("the end", named("CHANNEL_DESTROY", uuid))
	}
	end(first)
	names := []string{first}
	for range 2 {
		uuid, err := s.CallIn(simswitch.IncomingCall{From: "+15559876", To: "3001"})
		require.NoError(t, err)
		c.await("park", named("CHANNEL_PARK", uuid))
		end(uuid)
		names = append(names, uuid)
	}
	for i, uuid := range names {
		written, err := os.ReadFile(filepath.Join(folder, uuid+".cdr.json"))
		if i == 2 {
			require.ErrorIs(t, err, os.ErrNotExist, "the third server took it")
			require.NotEmpty(t, open.record(uuid))
			continue
		}
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(string(written), "}\n"))
		_, variables := document(t, string(written))
		require.Equal(t, "NORMAL_CLEARING", variables["hangup_cause"])
	}
	require.NotEmpty(t, full.record(first))

	_, c, alone := parked(t, simswitch.Config{CDRs: &simswitch.CDRs{Folder: folder}}, simswitch.IncomingCall{})
	end(alone)
	require.FileExists(t, filepath.Join(folder, alone+".cdr.json"))
	_, c, silent := parked(t, simswitch.Config{}, simswitch.IncomingCall{})
	end(silent)
	require.NoFileExists(t, filepath.Join(folder, silent+".cdr.json"))
}

func TestCDRsAreChecked(t *testing.T) {
	t.Parallel()
	for want, cdrs := range map[string]simswitch.CDRs{
		"need a folder":            {URLs: []string{"http://127.0.0.1/"}},
		`cannot be posted to "x"`:  {URLs: []string{"x"}, Folder: "f"},
		"cannot be posted to \"h":  {URLs: []string{"http://127.0.0.1/?a=b"}, Folder: "f"},
		`cannot be posted to "\n"`: {URLs: []string{"\n"}, Folder: "f"},
	} {
		_, err := simswitch.New(simswitch.Config{Password: password, CDRs: &cdrs})
		require.ErrorContains(t, err, want)
	}
}
