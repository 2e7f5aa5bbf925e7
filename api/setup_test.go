package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tandem/dialplan"
	"tandem/models"
	"tandem/models/modelstest"
	"tandem/simulator"
)

func TestMain(m *testing.M) {
	// fasthttp lets two of its goroutines sleep on: its date ticker for ever, a stopped server's worker cleaner for ten seconds.
	modelstest.Main(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// bench is an API over a real database with a scripted call manager, one customer with a key, and the document that every
// exchange is checked against.
type bench struct {
	t         *testing.T
	store     *models.Store
	server    *Server
	calls     *fakeCalls
	simulator *fakeSimulator
	dialplan  *countedChanges
	logs      *lockedBuffer
	doc       *openapi3.T
	customer  *models.Customer
	key       string
	fresh     int
}

// onBoth runs a test on both databases.
func onBoth(t *testing.T, fn func(b *bench)) {
	t.Helper()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) { fn(newBench(t, store, Config{})) })
}

// newBench returns a bench on one database; the zero Config is the rule.
func newBench(t *testing.T, store *models.Store, cfg Config) *bench {
	t.Helper()
	b := &bench{t: t, store: store, calls: &fakeCalls{store: store}, simulator: &fakeSimulator{}, dialplan: &countedChanges{}, logs: &lockedBuffer{}}
	cfg.Store, cfg.Calls, cfg.Simulator, cfg.Dialplan = store, b.calls, b.simulator, b.dialplan
	if cfg.Numbers == nil {
		syncer, err := dialplan.NewSyncer(dialplan.Config{Store: store})
		require.NoError(t, err)
		cfg.Numbers = syncer
	}
	cfg.Logger = slog.New(slog.NewJSONHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	server, err := New(cfg)
	require.NoError(t, err)
	b.server = server
	b.doc = strictDocument(t, customersStrict)
	b.customer = modelstest.Customer(t, store, 10_000_000)
	b.key = b.newKey(b.customer)
	return b
}

func (b *bench) newKey(customer *models.Customer) string {
	b.t.Helper()
	secret, err := b.store.CreateAPIKey(b.t.Context(), &models.APIKey{CustomerID: customer.ID, Name: "test"}, "")
	require.NoError(b.t, err)
	return secret
}

// The served documents as strictDocument has them, each loaded once.
var (
	customersStrict = sync.OnceValues(func() (*openapi3.T, error) { return closeDocument(customersDocument()) })
	operatorsStrict = sync.OnceValues(func() (*openapi3.T, error) { return closeDocument(operatorsDocument()) })
)

// strictDocument is the served document with its objects closed, so that a response member which the document does not know fails the test.
func strictDocument(t *testing.T, load func() (*openapi3.T, error)) *openapi3.T {
	t.Helper()
	doc, err := load()
	require.NoError(t, err)
	require.True(t, doc.IsOpenAPI31OrLater())
	return doc
}

// closeDocument loads a document, checks it and closes its objects.
func closeDocument(encoded []byte, err error) (*openapi3.T, error) {
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(encoded)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, err
	}
	for _, ref := range doc.Components.Schemas {
		if len(ref.Value.Properties) > 0 {
			ref.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: openapi3.Ptr(false)}
		}
	}
	return doc, nil
}

// response is an answer, read.
type response struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

// json returns the body as an object.
func (r response) json() map[string]any {
	r.t.Helper()
	var value map[string]any
	require.NoError(r.t, json.Unmarshal(r.body, &value), "%s", r.body)
	return value
}

func (r response) str(field string) string {
	r.t.Helper()
	value, ok := r.json()[field].(string)
	require.True(r.t, ok, "no string %s in %s", field, r.body)
	return value
}

func (r response) data() []any {
	r.t.Helper()
	value, ok := r.json()["data"].([]any)
	require.True(r.t, ok, "no data in %s", r.body)
	return value
}

// refused requires an error of the given code, and of the given field where one is given.
func (r response) refused(code, field string) response {
	r.t.Helper()
	detail, ok := r.json()["error"].(map[string]any)
	require.True(r.t, ok, "no error in %s", r.body)
	require.Equal(r.t, code, detail["code"], "%s", r.body)
	require.Equal(r.t, errorStatus[code], r.status, "%s", r.body)
	if field != "" {
		require.Equal(r.t, field, detail["field"], "%s", r.body)
	}
	return r
}

func (r response) message() string {
	r.t.Helper()
	message, _ := r.json()["error"].(map[string]any)["message"].(string)
	require.NotEmpty(r.t, message)
	return message
}

func (r response) is(status int) response {
	r.t.Helper()
	require.Equal(r.t, status, r.status, "%s", r.body)
	return r
}

// exchange is a request to make; the zero values make a GET with the bench's key.
type exchange struct {
	method, path string
	// body is sent as it is where it is a string, otherwise as JSON.
	body   any
	key    *string
	header map[string]string
	// lenient allows what succeeds although the document does not promise it.
	lenient bool
}

// do sends a request and checks request and response against the document. A request that succeeds must be one that the
// document allows, and every response must be one that it foretells.
func (b *bench) do(x exchange) response {
	b.t.Helper()
	var raw []byte
	switch body := x.body.(type) {
	case nil:
	case string:
		raw = []byte(body)
	default:
		var err error
		raw, err = json.Marshal(body)
		require.NoError(b.t, err)
	}
	request := httptest.NewRequest(x.method, x.path, bytes.NewReader(raw))
	if raw != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	key := b.key
	if x.key != nil {
		key = *x.key
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	for name, value := range x.header {
		request.Header.Set(name, value)
	}
	answer, err := b.server.App().Test(request, -1)
	require.NoError(b.t, err)
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	require.NoError(b.t, err)
	got := response{t: b.t, status: answer.StatusCode, header: answer.Header, body: body}
	require.NotEmpty(b.t, got.header.Get(headerRequestID))
	b.validate(request, raw, got, x.lenient)
	return got
}

func (b *bench) validate(request *http.Request, raw []byte, got response, lenient bool) {
	b.t.Helper()
	input := b.documented(request, raw)
	if input == nil {
		// No such operation: nothing but a refusal may come, and in the contract's shape.
		require.GreaterOrEqual(b.t, got.status, 400)
		require.NoError(b.t, b.doc.Components.Schemas["Error"].Value.VisitJSON(got.json(), openapi3.EnableJSONSchema2020()))
		return
	}
	if got.status < 300 && !lenient {
		require.NoError(b.t, openapi3filter.ValidateRequest(b.t.Context(), input), "the document refuses a request that succeeded: %s", raw)
	}
	err := openapi3filter.ValidateResponse(b.t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: got.status, Header: got.header,
		Body:    io.NopCloser(bytes.NewReader(got.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
	require.NoError(b.t, err, "%d %s", got.status, got.body)
}

// documented finds the operation of a request in the document, nil when there is none.
func (b *bench) documented(request *http.Request, raw []byte) *openapi3filter.RequestValidationInput {
	b.t.Helper()
	path := request.URL.EscapedPath()
	for template, item := range b.doc.Paths.Map() {
		op := item.GetOperation(request.Method)
		if op == nil || strings.Count(template, "/") != strings.Count(path, "/") {
			continue
		}
		names := regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(template, -1)
		pattern := regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(template), `([^/]+)`)
		values := regexp.MustCompile("^" + pattern + "$").FindStringSubmatch(path)
		if values == nil {
			continue
		}
		params := map[string]string{}
		for i, name := range names {
			params[name[1]] = values[i+1]
		}
		copied := request.Clone(b.t.Context())
		copied.Body = io.NopCloser(bytes.NewReader(raw))
		copied.ContentLength = int64(len(raw))
		return &openapi3filter.RequestValidationInput{
			Request: copied, PathParams: params,
			Route:   &routers.Route{Spec: b.doc, Server: b.doc.Servers[0], Path: template, PathItem: item, Method: request.Method, Operation: op},
			Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
		}
	}
	return nil
}

func (b *bench) get(path string) response {
	b.t.Helper()
	return b.do(exchange{method: "GET", path: path})
}

func (b *bench) post(path string, body any) response {
	b.t.Helper()
	return b.do(exchange{method: "POST", path: path, body: body})
}

func (b *bench) patch(path string, body any) response {
	b.t.Helper()
	return b.do(exchange{method: "PATCH", path: path, body: body})
}

func (b *bench) delete(path string) response {
	b.t.Helper()
	return b.do(exchange{method: "DELETE", path: path})
}

// object is a JSON object in a test's request.
type object = map[string]any

// fakeSimulator reports what it was asked to run.
type fakeSimulator struct{ err error }

func (f *fakeSimulator) Run(ctx context.Context, app models.Application, script *simulator.Script) (*simulator.Report, error) {
	if _, bounded := ctx.Deadline(); bounded {
		return nil, errors.New("a simulation takes the time of the application, not that of a request")
	}
	if f.err != nil {
		return nil, f.err
	}
	return &simulator.Report{OK: true, Problems: []string{}, UnusedInput: []int{}, Path: []simulator.Step{{Kind: "event", Event: app.ID + " " + script.From}}}, nil
}

type countedChanges struct {
	mu     sync.Mutex
	n      int
	busy   bool
	tested []dialplan.TrunkTest
}

func (c *countedChanges) TestTrunk(_ context.Context, trunk *models.Trunk, test dialplan.TrunkTest) (*dialplan.TrunkReport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tested = append(c.tested, test)
	if c.busy {
		return nil, dialplan.ErrTestBusy
	}
	return &dialplan.TrunkReport{TrunkID: trunk.ID, Outcome: dialplan.StepWarning, Took: 1500 * time.Millisecond, Steps: []dialplan.TrunkStep{
		{Name: dialplan.StepDNS, Outcome: dialplan.StepOK, Summary: "The proxy is there.", Evidence: []string{"A carrier.example: 192.0.2.1"}},
		{Name: dialplan.StepOptions, Outcome: dialplan.StepWarning, Summary: "It answers some.", Advice: "Ask it."},
		{Name: dialplan.StepInvite, Outcome: dialplan.StepSkipped, Summary: "No number was named to call."},
	}}, nil
}

func (c *countedChanges) Changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *countedChanges) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// lockedBuffer collects a log.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
