package simulator

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tandem/egress"
	"tandem/models"
	"tandem/webhooks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// theatre is a simulator and an application that answers by path.
type theatre struct {
	t         testing.TB
	simulator *Simulator
	app       models.Application

	mu      sync.Mutex
	replies map[string][]string
	bodies  []map[string]any
}

func newTheatre(t testing.TB, edit ...func(*Config)) *theatre {
	t.Helper()
	h := &theatre{t: t, replies: map[string][]string{}}
	server := httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(server.Close)
	client := egress.NewClient(egress.Config{AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowAnyPort: true})
	t.Cleanup(client.CloseIdleConnections)
	cfg := Config{Client: client}
	for _, fn := range edit {
		fn(&cfg)
	}
	var err error
	h.simulator, err = New(cfg)
	require.NoError(t, err)
	h.app = models.Application{
		ID: "app_test", CustomerID: "cust_test", Name: "test", AnswerURL: server.URL + "/answer", WebhookURL: server.URL + "/hook", WebhookSecret: testSecret,
	}
	return h
}

func (h *theatre) serve(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var body map[string]any
	if webhooks.Verify(testSecret, r.Header, raw, time.Now()) != nil || json.Unmarshal(raw, &body) != nil {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bodies = append(h.bodies, body)
	list := h.replies[r.URL.Path]
	if len(list) == 0 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if len(list) > 1 {
		h.replies[r.URL.Path] = list[1:]
	}
	_, _ = io.WriteString(w, list[0])
}

func (h *theatre) run(script string) *Report {
	h.t.Helper()
	parsed, err := ParseScript([]byte(script))
	require.NoError(h.t, err)
	report, err := h.simulator.Run(h.t.Context(), h.app, parsed)
	require.NoError(h.t, err)
	return report
}

// idOfGather names the variable that a gather's digits come in, which is another each time.
var idOfGather = regexp.MustCompile(`tandem_digits_[0-9a-f]+ `)

// commands are what the switch would have got.
func commands(report *Report) []string {
	var list []string
	for _, step := range report.Path {
		if step.Kind == StepCommand {
			list = append(list, idOfGather.ReplaceAllString(step.Command, "tandem_digits_ID "))
		}
	}
	return list
}

func TestMenu(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	h.replies["/answer"] = []string{`{"actions":[{"action":"gather","id":"menu","num_digits":1,"result_url":"/picked","prompt":[{"action":"say","text":"Press one."}]}],"variables":{"lang":"en"}}`}
	h.replies["/picked"] = []string{`[{"action":"set","variables":{"picked":"1"}},{"action":"say","text":"Goodbye"},{"action":"hangup"}]`}
	report := h.run(`{"from":"+14155550100","sip_headers":{"X-Queue":"gold"},"input":[{"digits":"1"}],
		"expect":{"status":"completed","reason":"completed","actions":["gather","set","say","hangup"],"variables":{"picked":"1","lang":"en"}}}`)
	require.Empty(t, report.Problems)
	require.True(t, report.OK)
	require.Equal(t, []string{
		"api uuid_setvar playback_terminators none",
		"api uuid_setvar tts_voice slt", "api uuid_setvar tts_engine flite", "api uuid_setvar playback_delimiter !",
		"api sched_hangup +3600 ALLOTTED_TIMEOUT", "sendmsg execute answer",
		`sendmsg execute play_and_get_digits 1 1 1 5000 # say:Press\\sone. silence_stream://1 tandem_digits_ID .* 3000`,
		"sendmsg execute speak flite|slt|Goodbye", "api uuid_kill NORMAL_CLEARING",
	}, commands(report))
	require.Len(t, h.bodies, 2)
	require.Equal(t, true, h.bodies[0]["simulated"])
	require.Equal(t, map[string]any{"X-Queue": "gold"}, h.bodies[0]["sip_headers"])
	require.Equal(t, "app_test", h.bodies[0]["call"].(map[string]any)["application_id"])
	require.Equal(t, "1", h.bodies[1]["result"].(map[string]any)["digits"])
	kinds := map[string]int{}
	for i, step := range report.Path {
		kinds[step.Kind]++
		if i > 0 {
			require.GreaterOrEqual(t, step.AtMS, report.Path[i-1].AtMS)
		}
	}
	require.Equal(t, []int{2, 4, 1}, []int{kinds[StepRequest], kinds[StepAction], kinds[StepInput]})
}

func TestOutcomesOfADial(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	for outcome, status := range map[string]string{
		"answered": "answered", "busy": "busy", "no_answer": "no_answer", "declined": "failed", "invalid_number": "failed", "failed": "failed",
	} {
		h.replies["/answer"] = []string{`[{"action":"dial","to":"+14155550123","result_url":"/dialled"}]`}
		h.replies["/dialled"] = []string{`[]`}
		h.mu.Lock()
		h.bodies = nil
		h.mu.Unlock()
		report := h.run(`{"input":[{"dial":{"outcome":"` + outcome + `","seconds":12}}]}`)
		require.True(t, report.OK, "%s: %v", outcome, report.Problems)
		require.Equal(t, status, h.bodies[1]["result"].(map[string]any)["dial_status"], outcome)
		if outcome == "answered" {
			require.InDelta(t, 12, h.bodies[1]["result"].(map[string]any)["seconds"], 0.5)
		}
	}
	report := h.run(`{"input":[{"dial":{"outcome":"answered","ended_by":"caller"}}],"expect":{"reason":"caller_hangup"}}`)
	require.True(t, report.OK, report.Problems)
}

func TestErrorsAreProblems(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	h.replies["/answer"] = []string{`[{"action":"answer"},{"action":"say","txt":"Hi"}]`}
	report := h.run(``)
	require.False(t, report.OK)
	require.Equal(t, []string{"failed", "answer_url_failed"}, []string{report.Call.Status, report.Call.Reason})
	require.Len(t, report.Problems, 1)
	require.Contains(t, report.Problems[0], "invalid_actions: actions[1].say")
	require.True(t, h.run(`{"expect":{"errors":1}}`).OK)
}

func TestUnusedInputAndWrongExpectations(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	h.replies["/answer"] = []string{`[{"action":"say","text":"Hi"}]`}
	report := h.run(`{"input":[{"digits":"1"}],"expect":{"status":"failed","reason":"busy","actions":["play"],"variables":{"a":"b"},"errors":2}}`)
	require.Equal(t, []int{0}, report.UnusedInput)
	require.Equal(t, []string{
		"input[0] was not used", `status is "completed", expected "failed"`, `reason is "completed", expected "busy"`, `variable a is "", expected "b"`,
		`the actions are ["say"], expected ["play"]`, `there are 0 errors, expected 2: []`,
	}, report.Problems)
}

func TestHangups(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	h.replies["/answer"] = []string{`[{"action":"say","id":"intro","text":"Hi"},{"action":"gather"},{"action":"record"}]`}
	for script, ran := range map[string][]string{
		`{"input":[{"at":"intro","hangup":true}]}`:                                           {"say"},
		`{"input":[{"hangup":true}]}`:                                                        {"say", "gather"},
		`{"input":[{"at":"gather","silence":true},{"at":"record","hangup":true}]}`:           {"say", "gather"},
		`{"input":[{"at":"say","hangup":true}],"direction":"outbound","metadata":{"k":"v"}}`: {"say"},
	} {
		h.mu.Lock()
		h.bodies = nil
		h.mu.Unlock()
		report := h.run(script)
		var verbs []string
		for _, step := range report.Path {
			if step.Kind == StepAction {
				verbs = append(verbs, step.Action)
			}
		}
		require.Equal(t, ran, verbs[:len(ran)], script)
	}
}

func TestRecordings(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	h.replies["/answer"] = []string{`[{"action":"record","id":"tape","max_seconds":20,"result_url":"/taped"}]`}
	h.replies["/taped"] = []string{`[]`}
	for how, want := range map[string][]any{
		`{"seconds":7}`:                        {"silence", 7.0},
		`{"seconds":7,"ended_by":"key"}`:       {"key", 7.0},
		`{"seconds":7,"ended_by":"max"}`:       {"max", 20.0},
		`{"seconds":2.5,"ended_by":"silence"}`: {"silence", 2.5},
	} {
		h.mu.Lock()
		h.bodies = nil
		h.mu.Unlock()
		report := h.run(`{"input":[{"record":` + how + `}]}`)
		require.True(t, report.OK, "%s: %v", how, report.Problems)
		result := h.bodies[1]["result"].(map[string]any)
		require.Equal(t, want[0], result["outcome"], how)
		require.InDelta(t, want[1], result["seconds"], 0.3, how)
	}
}

func TestEndlessFlowsAreStopped(t *testing.T) {
	t.Parallel()
	h := newTheatre(t, func(c *Config) { c.Timeout = 2 * time.Minute })
	h.replies["/answer"] = []string{`[{"action":"say","text":"Round","loop":0}]`}
	report := h.run(``)
	require.False(t, report.OK)
	require.Equal(t, []string{"the call did not end within 2000 steps"}, report.Problems)
	require.LessOrEqual(t, len(report.Path), maxSteps+10, "the steps and the few events between them")
}

func TestTheCapOfTheSwitch(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	h.replies["/answer"] = []string{`[{"action":"pause","seconds":300},{"action":"redirect","url":"/answer"}]`}
	report := h.run(`{"expect":{"status":"completed","reason":"time_limit"}}`)
	require.True(t, report.OK, "%v", report.Problems)
	require.InDelta(t, 3600, report.Call.Seconds, 301)
	report = h.run(`{}`)
	require.Equal(t, "time_limit", report.Call.Reason)
}

func TestNothingIsLeftBehindAndNothingIsDelivered(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	h := newTheatre(t)
	h.replies["/answer"] = []string{`[{"action":"record"}]`}
	h.run(``)
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Empty(t, left)
	require.Len(t, h.bodies, 1, "the webhook_url is not called")
}

func TestTooManyAtATime(t *testing.T) {
	t.Parallel()
	h := newTheatre(t, func(c *Config) { c.Parallel = 1 })
	release := make(chan struct{})
	entered := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		_, _ = io.WriteString(w, `[]`)
	}))
	t.Cleanup(slow.Close)
	app := h.app
	app.AnswerURL = slow.URL
	done := make(chan error, 1)
	go func() {
		_, err := h.simulator.Run(t.Context(), app, &Script{Direction: "inbound", From: "+15550100001", To: "+15550100002"})
		done <- err
	}()
	<-entered
	_, err := h.simulator.Run(t.Context(), h.app, &Script{})
	require.ErrorIs(t, err, ErrBusy)
	close(release)
	require.NoError(t, <-done)
}
