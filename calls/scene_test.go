package calls

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/billing"
	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
	"tandem/webhooks"
)

func TestMain(m *testing.M) { modelstest.Main(m) }

const (
	startBalance  = 1_000_000_000
	outboundPrice = 60_000
	inboundPrice  = 30_000
	testSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// patience is how long tests wait for what must come: only one that fails, or a machine that is short of time, waits that long.
const patience = time.Minute

// asked is one request that the application got.
type asked struct {
	Path       string
	Type       string            `json:"type"`
	RequestID  string            `json:"request_id"`
	Attempt    int               `json:"attempt"`
	Call       map[string]any    `json:"call"`
	Variables  map[string]any    `json:"variables"`
	Result     map[string]any    `json:"result"`
	SIPHeaders map[string]string `json:"sip_headers"`
}

// scene is a manager with one fake node and one customer whose application answers from a script.
type scene struct {
	t        testing.TB
	store    *models.Store
	manager  *Manager
	sw       *fakeSwitch
	node     models.Node
	customer *models.Customer
	app      *models.Application
	trunk    *models.Trunk
	did      *models.DID
	source   string // an address from which the DID may be called
	server   *httptest.Server
	ended    chan models.Call

	mu      sync.Mutex
	replies map[string][]func(w http.ResponseWriter, q asked) // by path; the last one stays
	asks    []asked
	askedc  chan asked
}

// reply is a script that answers with JSON.
func reply(body string) func(http.ResponseWriter, asked) {
	return func(w http.ResponseWriter, _ asked) { _, _ = io.WriteString(w, body) }
}

// status is a script that answers with a status.
func status(code int) func(http.ResponseWriter, asked) {
	return func(w http.ResponseWriter, _ asked) { w.WriteHeader(code) }
}

// newScene is a scene on a scripted switch.
func newScene(t *testing.T, store *models.Store, edit ...func(*Config)) *scene {
	t.Helper()
	s := newStage(t, store)
	s.start(edit...)
	return s
}

// newStage is a scene whose manager is yet to be started.
func newStage(t testing.TB, store *models.Store) *scene {
	t.Helper()
	s := &scene{
		t: t, store: store, sw: newFakeSwitch(t), ended: make(chan models.Call, 4096), replies: map[string][]func(http.ResponseWriter, asked){},
		askedc: make(chan asked, 4096),
	}
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.server.Close)
	ctx := t.Context()
	s.customer = modelstest.Customer(t, store, startBalance)
	s.app = &models.Application{
		CustomerID: s.customer.ID, Name: "scene", AnswerURL: s.server.URL + "/answer", WebhookURL: s.server.URL + "/hook", WebhookSecret: testSecret,
	}
	require.NoError(t, store.CreateApplication(ctx, s.app))
	s.trunk = modelstest.OutboundTrunk(t, store, s.customer)
	s.did = modelstest.DID(t, store, s.customer, s.app)
	inbound := modelstest.InboundTrunk(t, store, s.customer, s.app)
	s.source = inbound.InboundIPs[0]
	s.node = models.Node{Name: "node", ESLAddr: "127.0.0.1:8021", Password: "secret", ConfDir: t.TempDir(), IsActive: true}
	require.NoError(t, store.CreateNode(ctx, &s.node))
	return s
}

// start starts a manager on the scripted switch.
func (s *scene) start(edit ...func(*Config)) {
	s.t.Helper()
	s.newManager(append([]func(*Config){func(c *Config) { c.HangupGrace = 50 * time.Millisecond }}, edit...)...)
	s.sw.handler = s.manager.AddNode(s.node, s.sw)
	s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core"})
}

// newManager gives the scene a manager, which is stopped at the end of the test.
func (s *scene) newManager(edit ...func(*Config)) {
	s.t.Helper()
	rater, err := billing.New(billing.Config{OutboundPerMinuteMicros: outboundPrice, InboundPerMinuteMicros: inboundPrice})
	require.NoError(s.t, err)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	cfg := Config{
		Store: s.store, Rater: rater, Client: client, RingAfter: time.Hour, CDRWait: -1, WatchEvery: time.Hour,
		Logger: slog.New(slog.NewTextHandler(s.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		OnEnd:  func(call models.Call) { s.ended <- call },
	}
	for _, fn := range edit {
		fn(&cfg)
	}
	m, err := NewManager(cfg)
	require.NoError(s.t, err)
	require.NoError(s.t, m.Start(s.t.Context()))
	s.manager = m
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = m.Stop(ctx)
		client.CloseIdleConnections()
	})
}

func (s *scene) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	q := asked{Path: r.URL.Path}
	if r.Method == http.MethodPost {
		if webhooks.Verify(testSecret, r.Header, body, time.Now()) != nil || json.Unmarshal(body, &q) != nil {
			w.WriteHeader(http.StatusTeapot) // an unsigned or broken request fails the test's expectations
			return
		}
	}
	s.checkAsked(q)
	s.mu.Lock()
	s.asks = append(s.asks, q)
	fns := s.replies[r.URL.Path]
	if len(fns) == 0 {
		s.mu.Unlock()
		w.WriteHeader(http.StatusNotFound)
		return
	}
	fn := fns[0]
	if len(fns) > 1 {
		s.replies[r.URL.Path] = fns[1:]
	}
	s.mu.Unlock()
	s.askedc <- q
	fn(w, q)
}

// answers scripts a path: one reply after the other, the last for ever.
func (s *scene) answers(path string, fns ...func(http.ResponseWriter, asked)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies[path] = fns
}

func (s *scene) requests() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]asked(nil), s.asks...)
}

// callIn lets a call in to the scene's DID.
func (s *scene) callIn() string { return s.sw.callIn("+15559876543", s.did.NumberE164, s.source) }

// create places a call.
func (s *scene) create(edit ...func(*CreateRequest)) *models.Call {
	s.t.Helper()
	req := CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002", Metadata: map[string]string{"order": "7"}}
	for _, fn := range edit {
		fn(&req)
	}
	call, err := s.manager.Create(s.t.Context(), req)
	require.NoError(s.t, err)
	return call
}

// end waits for the next call to end and checks what holds of every ended call.
func (s *scene) end() models.Call {
	s.t.Helper()
	select {
	case ended := <-s.ended:
		call, err := s.store.CallByID(s.t.Context(), ended.ID)
		require.NoError(s.t, err)
		s.checkEnded(call)
		return *call
	case <-time.After(patience):
		require.Failf(s.t, "no call ended", "commands: %q", s.sw.log())
		return models.Call{}
	}
}

// checkAsked holds the results that the application is told to what is documented of them.
func (s *scene) checkAsked(q asked) {
	results := []any{q.Variables["last_result"]}
	if q.Type == askResult {
		results = append(results, q.Result)
	}
	for _, result := range results {
		if result, ok := result.(map[string]any); ok {
			verb, _ := result["action"].(string)
			if err := actions.CheckResult(verb, result); err != nil {
				s.t.Errorf("%s was told %v: %v", q.Path, result, err)
			}
		}
	}
}

// checkEvents holds the events of a call to the catalogue, and the results that they tell to what is documented of them.
func (s *scene) checkEvents(call *models.Call) {
	s.t.Helper()
	events, err := s.store.CallEvents(s.t.Context(), call.CustomerID, call.ID)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, events)
	for _, ev := range events {
		var body struct {
			Data map[string]any `json:"data"`
		}
		require.NoError(s.t, json.Unmarshal(ev.Body, &body))
		require.NoError(s.t, webhooks.CheckData(ev.Type, body.Data))
		if result, ok := body.Data["result"].(map[string]any); ok && ev.Type == "call.action_completed" {
			require.NoError(s.t, actions.CheckResult(body.Data["action"].(string), result), "%v", result)
		}
	}
}

func (s *scene) checkEnded(call *models.Call) {
	s.t.Helper()
	s.checkEvents(call)
	require.False(s.t, call.Live(), "status %s", call.Status)
	require.NotNil(s.t, call.EndedAt)
	require.NotNil(s.t, call.SettledAt)
	require.NotEmpty(s.t, call.Reason)
	require.NotEmpty(s.t, call.HangupSource)
	terminal := 0
	kinds := s.kinds(call.ID)
	for i, kind := range kinds {
		if kind == "call.completed" || kind == "call.failed" {
			terminal++
			require.Equal(s.t, len(kinds)-1, i, "the terminal event is the last: %v", kinds)
		}
	}
	require.Equal(s.t, 1, terminal, "%v", kinds)
	wrong, err := s.store.VerifyLedger(s.t.Context())
	require.NoError(s.t, err)
	require.Empty(s.t, wrong)
}

// kinds are the types of a call's events, in order, without the quiet ones: keys that were typed, actions that are done.
func (s *scene) kinds(callID string) []string {
	s.t.Helper()
	return slices.DeleteFunc(s.allKinds(callID), func(kind string) bool { return slices.Contains(models.QuietKinds, kind) })
}

// allKinds are the types of all events of a call, in order.
func (s *scene) allKinds(callID string) []string {
	s.t.Helper()
	events, err := s.store.CallEvents(s.t.Context(), s.customer.ID, callID)
	require.NoError(s.t, err)
	kinds := make([]string, len(events))
	for i, ev := range events {
		require.EqualValues(s.t, i+1, ev.Sequence)
		kinds[i] = ev.Type
	}
	return kinds
}

// data is the data of a call's first event of a kind.
func (s *scene) data(callID, kind string) map[string]any {
	s.t.Helper()
	all := s.dataOf(callID, kind)
	require.NotEmpty(s.t, all, "no %s among %v", kind, s.allKinds(callID))
	return all[0]
}

// dataOf is the data of all of a call's events of a kind, in order.
func (s *scene) dataOf(callID, kind string) []map[string]any {
	s.t.Helper()
	events, err := s.store.CallEvents(s.t.Context(), s.customer.ID, callID)
	require.NoError(s.t, err)
	var all []map[string]any
	for _, ev := range events {
		if ev.Type != kind {
			continue
		}
		var body struct {
			Data map[string]any `json:"data"`
		}
		require.NoError(s.t, json.Unmarshal(ev.Body, &body))
		all = append(all, body.Data)
	}
	return all
}

// noLegs stops the manager, so that every session is done, and checks that it has forgotten every leg.
func (s *scene) noLegs() {
	s.t.Helper()
	require.NoError(s.t, s.manager.Stop(s.t.Context()))
	require.Empty(s.t, s.manager.byLeg)
}

// noCalls checks that the customer has no call and no hold.
func (s *scene) noCalls() {
	s.t.Helper()
	calls, _, err := s.store.ListCalls(s.t.Context(), s.customer.ID, models.CallFilter{}, models.Page{})
	require.NoError(s.t, err)
	require.Empty(s.t, calls)
	customer, err := s.store.Customer(s.t.Context(), s.customer.ID)
	require.NoError(s.t, err)
	require.Zero(s.t, customer.HeldMicros)
}

// writeWAV writes a second of silence, 8 kHz, 16 bit.
func writeWAV(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, silentWAV(), 0o600))
}

func silentWAV() []byte {
	const size = 16000
	head := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data\x80\x3e\x00\x00")
	return append(head, make([]byte, size)...)
}

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}
