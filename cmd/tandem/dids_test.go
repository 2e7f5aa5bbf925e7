package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// importServer takes imports as the operator API does, and fails in the ways that networks and servers do.
type importServer struct {
	*httptest.Server
	mu      sync.Mutex
	job     *didImport
	numbers []string
	rejects []importReject
	parts   int
	// lose makes the answers of these parts, counted from 1, get lost after they were taken; refuse makes them 503 before; most is how
	// many records of a part are taken.
	lose, refuse map[int]bool
	most         int
	stopAt       int // 500 from this part on
	taken        func(part int)
}

func newImportServer(t *testing.T) *importServer {
	t.Helper()
	s := &importServer{lose: map[int]bool{}, refuse: map[int]bool{}, most: 1 << 30}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /operator/v1/did-imports", s.list)
	mux.HandleFunc("POST /operator/v1/did-imports", s.create)
	mux.HandleFunc("GET /operator/v1/did-imports/{id}", func(w http.ResponseWriter, _ *http.Request) { s.answer(w) })
	mux.HandleFunc("POST /operator/v1/did-imports/{id}/records", s.take)
	mux.HandleFunc("GET /operator/v1/did-imports/{id}/rejects", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(map[string]any{"data": s.rejects, "count": len(s.rejects), "has_more": false})
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *importServer) answer(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = json.NewEncoder(w).Encode(s.job)
}

func (s *importServer) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := []*didImport{}
	if s.job != nil && s.job.State == "open" && s.job.FileSHA256 == r.URL.Query().Get("file_sha256") {
		open = append(open, s.job)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"data": open, "count": len(open), "has_more": false})
}

func (s *importServer) create(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Columns    []string `json:"columns"`
		Total      int64    `json:"total_records"`
		FileSHA256 string   `json:"file_sha256"`
		OnConflict string   `json:"on_conflict"`
		Customer   string   `json:"customer_id"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	s.mu.Lock()
	s.job = &didImport{OnConflict: body.OnConflict, importJob: importJob{
		ID: "imp_1", State: "open", Columns: body.Columns, Total: body.Total, FileSHA256: body.FileSHA256, Defaults: map[string]string{"customer_id": body.Customer},
	}}
	s.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	s.answer(w)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"error": {"code": %q, "message": "refused by the test"}}`, code)
}

func (s *importServer) take(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Record  int64       `json:"record"`
		Records []csvRecord `json:"records"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	s.mu.Lock()
	s.parts++
	part := s.parts
	if s.taken != nil {
		s.taken(part)
	}
	switch {
	case s.stopAt > 0 && part >= s.stopAt:
		s.mu.Unlock()
		refuse(w, http.StatusInternalServerError, "internal_error")
		return
	case s.refuse[part]:
		s.mu.Unlock()
		refuse(w, http.StatusServiceUnavailable, "unavailable")
		return
	case body.Record != s.job.Next || s.job.State != "open" || s.job.Next+int64(len(body.Records)) > s.job.Total:
		s.mu.Unlock()
		refuse(w, http.StatusConflict, "import_place")
		return
	}
	for _, record := range body.Records[:min(len(body.Records), s.most)] {
		s.job.Next++
		if number := record.Values[0]; strings.HasPrefix(number, "+") {
			s.numbers = append(s.numbers, number)
			s.job.Created++
			continue
		}
		s.job.Rejected++
		s.rejects = append(s.rejects, importReject{Line: int64(record.Line), Record: strings.Join(record.Values, ","), Field: "number_e164", Message: "no number"})
	}
	if s.job.Next == s.job.Total {
		s.job.State = "finished"
	}
	s.mu.Unlock()
	if s.lose[part] {
		panic(http.ErrAbortHandler)
	}
	s.answer(w)
}

// runAt runs the command line against a server.
func runAt(ctx context.Context, t *testing.T, url string, arguments ...string) (code int, out, said string) {
	t.Helper()
	isolate(t)
	t.Setenv(envAPIURL, url)
	t.Setenv(envOperatorToken, "op_test")
	var stdout, stderr bytes.Buffer
	root := newRoot()
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(arguments)
	if err := root.ExecuteContext(ctx); err != nil {
		return exitCode(err), stdout.String(), stderr.String() + err.Error()
	}
	return 0, stdout.String(), stderr.String()
}

func writeCSV(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "numbers.csv")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// manyRecords is a file of many numbers, and the numbers.
func manyRecords(count int) (content string, numbers []string) {
	var file strings.Builder
	file.WriteString("\ufeffNumber_E164, provider\n")
	for i := range count {
		number := "+1" + strconv.Itoa(2_000_000_000+i)
		numbers = append(numbers, number)
		fmt.Fprintf(&file, "%s,\"a, \"\"quoted\"\"\nprovider\"\n", number)
	}
	return file.String(), numbers
}

// TestImportGoesThroughTrouble: however answers get lost, servers refuse for a while and take less than they were given, every record
// arrives once.
func TestImportGoesThroughTrouble(t *testing.T) { //nolint:paralleltest // t.Setenv
	content, numbers := manyRecords(4321)
	s := newImportServer(t)
	s.lose[2], s.lose[5], s.refuse[3], s.most = true, true, true, 300
	code, out, said := runAt(t.Context(), t, s.URL, "dids", "import", writeCSV(t, content), "--customer", "cust_1", "-o", "json", "--progress", "json")
	require.Zero(t, code, said)
	require.Equal(t, numbers, s.numbers)
	require.Equal(t, []string{"number_e164", "provider"}, s.job.Columns)
	var job didImport
	require.NoError(t, json.Unmarshal([]byte(out), &job), out)
	require.EqualValues(t, 4321, job.Created)
	require.Contains(t, said, `"progress":"importing"`)
	require.NotContains(t, out, "progress")
}

// TestImportGoesOn: a command that failed is run again and goes on where it was; other flags, another file or --new begin anew.
func TestImportGoesOn(t *testing.T) { //nolint:paralleltest // t.Setenv
	content, numbers := manyRecords(3000)
	path := writeCSV(t, content)
	s := newImportServer(t)
	s.stopAt, s.most = 4, 500
	code, out, said := runAt(t.Context(), t, s.URL, "dids", "import", path, "--customer", "cust_1")
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Contains(t, said, "import imp_1 stands at record 1500 of 3000; the same command goes on there")
	s.stopAt = 0
	code, _, said = runAt(t.Context(), t, s.URL, "dids", "import", path, "--customer", "cust_1")
	require.Zero(t, code, said)
	require.Contains(t, said, "going on with import imp_1 at record 1500 of 3000")
	require.Equal(t, numbers, s.numbers)

	for name, arguments := range map[string][]string{
		"another customer": {"--customer", "cust_2"}, "another conflict": {"--customer", "cust_1", "--on-conflict", "update"}, "anew": {"--customer", "cust_1", "--new"},
	} {
		s.numbers, s.job.State, s.job.Next = nil, "open", 1500
		code, _, said = runAt(t.Context(), t, s.URL, append([]string{"dids", "import", path}, arguments...)...)
		require.Zero(t, code, said)
		require.NotContains(t, said, "going on", name)
		require.Len(t, s.numbers, 3000, name)
	}

	// Stopped by whoever runs it.
	s.job, s.parts = nil, 0
	for part := range 1000 {
		s.refuse[part] = true
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.taken = func(part int) {
		if part == 2 {
			cancel()
		}
	}
	code, _, said = runAt(ctx, t, s.URL, "dids", "import", path, "--customer", "cust_1")
	require.Equal(t, 1, code)
	require.Contains(t, said, "stands at record 0")
}

// TestImportOfAFileThatGrows: records that the import does not have are refused again and again; the command ends all the same.
func TestImportOfAFileThatGrows(t *testing.T) { //nolint:paralleltest // t.Setenv
	content, _ := manyRecords(1500)
	path := writeCSV(t, content)
	s := newImportServer(t)
	s.taken = func(part int) {
		if part > 1 {
			return
		}
		more, _ := manyRecords(1510)
		_ = os.WriteFile(path, []byte(more), 0o600) // what does not grow is imported, which the test takes amiss
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	code, _, said := runAt(ctx, t, s.URL, "dids", "import", path, "--customer", "cust_1")
	require.NoError(t, ctx.Err(), "it ends by itself")
	require.Equal(t, 1, code)
	require.Contains(t, said, "has it changed?")
}

// TestRejectsCanBeImportedAgain: the file of rejects has the records as they were, with why, and is itself a file of numbers.
func TestRejectsCanBeImportedAgain(t *testing.T) { //nolint:paralleltest // t.Setenv
	path := writeCSV(t, "provider;number_e164\nA;+15550001000\nB;15550001001\n\"C;c\";15550001002\n")
	s := newImportServer(t)
	code, out, said := runAt(t.Context(), t, s.URL, "dids", "import", path, "--customer", "cust_1", "--delimiter", ";")
	require.Equal(t, 1, code)
	require.Contains(t, out, "imp_1")
	require.Contains(t, said, "3 were rejected: "+rejectsPath(path)+" says why") // the server of this test looks at the first column
	rejects, err := os.ReadFile(rejectsPath(path))
	require.NoError(t, err)
	require.Equal(t, "provider,number_e164,line,field,error\nA,+15550001000,2,number_e164,no number\nB,15550001001,3,number_e164,no number\nC;c,15550001002,4,number_e164,no number\n", string(rejects))
	file, err := openCSV(rejectsPath(path), ',')
	require.NoError(t, err)
	defer file.close()
	require.EqualValues(t, 3, file.records)
	require.NoError(t, writeRejects(path, file.columns, []importReject{{Line: 9, Record: "A,+15550001000,2,number_e164,no number", Message: "again"}}))
	again, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "provider,number_e164,line,field,error\nA,+15550001000,9,,again\n", string(again))
}

func TestImportRefusesFiles(t *testing.T) { //nolint:paralleltest // t.Setenv
	s := newImportServer(t)
	for name, tc := range map[string]struct {
		content string
		flags   []string
		code    int
		said    string
	}{
		"empty":     {"", nil, 1, "its first line must name the columns"},
		"no CSV":    {"number_e164\n\"+1555\n", nil, 1, "is not CSV"},
		"no UTF-8":  {"number_e164\n+1555\xff\n", nil, 1, "line 2 is not UTF-8"},
		"too long":  {"number_e164\n" + strings.Repeat("1", 60_000) + "\n", nil, 1, "line 2 is longer"},
		"delimiter": {"number_e164\n", []string{"--delimiter", "ab"}, 2, "--delimiter must be one character"},
	} {
		code, _, said := runAt(t.Context(), t, s.URL, append([]string{"dids", "import", writeCSV(t, tc.content), "--customer", "cust_1"}, tc.flags...)...)
		require.Equal(t, tc.code, code, name)
		require.Contains(t, said, tc.said, name)
		require.Nil(t, s.job, "nothing was begun")
	}
	code, _, said := runAt(t.Context(), t, s.URL, "dids", "import", filepath.Join(t.TempDir(), "absent.csv"))
	require.Equal(t, 1, code)
	require.Contains(t, said, "absent.csv")
}

// TestDIDCommands runs the other commands against scripted answers.
func TestDIDCommands(t *testing.T) { //nolint:paralleltest // t.Setenv
	var asked []string
	mux := http.NewServeMux()
	page := func(w http.ResponseWriter, r *http.Request) {
		next := `null`
		data := `{"id":"did_2","customer_id":"cust_1","number_e164":"+15550002000","status":"suspended","route_mode":"sip","sip_uri":"sip:a@b","provider":"P, Q","application_id":null}`
		if r.URL.Query().Get("cursor") == "" {
			next, data = `"+15550001000"`, `{"id":"did_1","customer_id":"cust_1","number_e164":"+15550001000","status":"active","route_mode":"reject","reject_code":486,"application_id":"app_1","provider":""}`
		}
		asked = append(asked, r.URL.RawQuery)
		_, _ = fmt.Fprintf(w, `{"data":[%s],"count":1,"has_more":%t,"next_cursor":%s}`, data, next != "null", next)
	}
	mux.HandleFunc("GET /operator/v1/dids", page)
	change := func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		asked = append(asked, r.URL.Path+" "+body.String())
		_, _ = w.Write([]byte(`{"created":1,"updated":2,"reassigned":3,"unchanged":4,"deleted":5}`))
	}
	for _, path := range []string{"", "/reassign", "/release"} {
		mux.HandleFunc("POST /operator/v1/dids"+path, change)
	}
	mux.HandleFunc("GET /operator/v1/dids/by-number/{number}/test", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("number") == "alice" {
			_, _ = w.Write([]byte(`{"dialed":"alice","number":null,"did":null,"cases":[]}`))
			return
		}
		_, _ = fmt.Fprintf(w, `{"dialed":%q,"cases":[{"from_ip":%q,"trunk_id":"trunk_1","provider":null,"result":{"outcome":"bridge","target":"sip:a@b"},
			"without_controller":{"outcome":"refuse","sip_status":503,"phrase":"Not Taking Calls"},"steps":[],"why":["because","\u001b[31mhostile"]}]}`,
			r.PathValue("number"), r.URL.Query().Get("from_ip"))
	})
	server := httptest.NewServer(mux)
	defer server.Close()

	code, out, said := runAt(t.Context(), t, server.URL, "dids", "export", "--prefix", "+1555")
	require.Zero(t, code, said)
	require.Equal(t, "number_e164,customer_id,application_id,provider,status,route_mode,sip_uri,reject_code\n"+
		"+15550001000,cust_1,app_1,,active,reject,,486\n+15550002000,cust_1,,\"P, Q\",suspended,sip,sip:a@b,\n", out)
	require.Equal(t, []string{"limit=200&prefix=%2B1555", "cursor=%2B15550001000&limit=200&prefix=%2B1555"}, asked)
	file := filepath.Join(t.TempDir(), "out.csv")
	code, out, said = runAt(t.Context(), t, server.URL, "dids", "export", "--file", file)
	require.Zero(t, code, said)
	require.Empty(t, out)
	exported, err := openCSV(file, ',')
	require.NoError(t, err)
	require.EqualValues(t, 2, exported.records)
	exported.close()
	code, _, _ = runAt(t.Context(), t, server.URL, "dids", "export", "--file", file)
	require.Equal(t, 1, code, "it exists")

	for _, tc := range []struct {
		arguments string
		code      int
		asked     string
	}{
		{"add +1555000-99 --customer cust_1 --application app_1", 0, `/operator/v1/dids {"application_id":"app_1","customer_id":"cust_1","numbers":["+1555000-99"]}`},
		{"add +15550001000", 2, ""},
		{"suspend +15550001000 +15550001001", 0, `/operator/v1/dids/reassign {"numbers":["+15550001000","+15550001001"],"status":"suspended"}`},
		{"activate +15550001000", 0, `/operator/v1/dids/reassign {"numbers":["+15550001000"],"status":"active"}`},
		{"reassign +15550001000 --route-mode reject --reject-code 404", 0, `/operator/v1/dids/reassign {"numbers":["+15550001000"],"reject_code":404,"route_mode":"reject"}`},
		{"reassign +15550001000", 2, ""},
		{"reassign +15550001000 --customer cust_2", 2, ""}, // nobody to be asked
		{"reassign +15550001000 --customer cust_2 --yes", 0, `/operator/v1/dids/reassign {"customer_id":"cust_2","numbers":["+15550001000"]}`},
		{"rm +15550001000", 2, ""},
		{"rm +15550001000 --yes", 0, `/operator/v1/dids/release {"numbers":["+15550001000"]}`},
	} {
		asked = nil
		code, out, said := runAt(t.Context(), t, server.URL, append([]string{"dids"}, strings.Fields(tc.arguments)...)...)
		require.Equal(t, tc.code, code, "%s: %s", tc.arguments, said)
		if tc.asked == "" {
			require.Empty(t, asked, tc.arguments)
			continue
		}
		require.Equal(t, []string{tc.asked}, asked)
		require.Regexp(t, `(?s)CREATED .*1 +2 +3 +4 +5`, out)
	}

	code, out, said = runAt(t.Context(), t, server.URL, "dids", "test", "+15550001000", "--from-ip", "192.0.2.1")
	require.Zero(t, code, said)
	require.Regexp(t, `192\.0\.2\.1 +trunk_1 +bridge sip:a@b +refuse 503 Not Taking Calls`, out)
	require.Contains(t, out, "from 192.0.2.1:\n  because\n")
	require.NotContains(t, out, "\x1b")
	code, out, said = runAt(t.Context(), t, server.URL, "dids", "test", "alice")
	require.Zero(t, code, said)
	require.Empty(t, out)
	require.Contains(t, said, "nobody can call the number")
}

// FuzzDIDFile reads any file: it never panics, and hands out every record once, however it is cut into parts.
func FuzzDIDFile(f *testing.F) {
	f.Add("number_e164\n+15550001000\n", byte(1))
	f.Add("a,b\n\"x\ny\",\"\"\"\"\n,\n\n1,2,3\n", byte(3))
	f.Fuzz(func(t *testing.T, content string, taken byte) {
		file, err := openCSV(writeCSV(t, content), ',')
		if err != nil {
			return
		}
		defer file.close()
		left, err := file.parts(0)
		require.NoError(t, err)
		next := int64(0)
		for next < file.records {
			require.NoError(t, left.goTo(next))
			part, err := left.part()
			require.NoError(t, err)
			require.NotEmpty(t, part)
			next += min(int64(len(part)), int64(taken)+1)
		}
		require.NoError(t, left.goTo(next))
		part, err := left.part()
		require.NoError(t, err)
		require.Empty(t, part)
	})
}
