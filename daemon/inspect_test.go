package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/calls"
	"tandem/esl"
	"tandem/models"
)

// patient is a switch that says what it is told to.
type patient struct {
	variables map[string]string
	expansion string
	missing   []string
	failing   string // the question that it does not answer
	status    esl.Status
	pause     esl.Pause
	ahead     time.Duration
	noClock   error
}

var errSilent = errors.New("no answer")

func (p *patient) fail(question string) error {
	if p.failing == question {
		return errSilent
	}
	return nil
}

func (p *patient) GlobalVariable(_ context.Context, name string) (string, error) {
	return p.variables[name], p.fail(name)
}

func (p *patient) API(_ context.Context, line string) (string, error) {
	return p.expansion, p.fail(line)
}

func (p *patient) HasModule(_ context.Context, name string) (bool, error) {
	return !slices.Contains(p.missing, name), p.fail(name)
}

func (p *patient) Status(context.Context) (esl.Status, error) { return p.status, p.fail("status") }
func (p *patient) Paused(context.Context) (esl.Pause, error)  { return p.pause, p.fail("paused") }

func (p *patient) Clock(context.Context) (time.Time, error) {
	return time.Now().Add(p.ahead), errors.Join(p.noClock, p.fail("clock"))
}

// healthy is a switch with which nothing is wrong.
func healthy() *patient {
	return &patient{
		variables: map[string]string{"app_disable_expand_variables": "true"}, expansion: "+OK api_expansion is off \n",
		status: esl.Status{Version: "1.10.12-release git a88d069", Ready: true, Uptime: time.Hour, Sessions: 40, MaxSessions: 2000, MaxRate: 200, IdleCPU: 80},
	}
}

// Each thing that may be wrong with a node is named, with how bad it is and how to mend it; with a healthy one nothing is.
func TestNodeProblems(t *testing.T) {
	t.Parallel()
	cfg := &Config{VoiceEngine: "flite", Recognizer: calls.Recognizer{Module: "mod_vosk"}, StreamHosts: []string{"ears.example"}}
	examine := func(t *testing.T, p *patient, row *models.Node, draining bool) *models.NodeHealth {
		t.Helper()
		return examined(t, cfg, p, row, draining)
	}
	node, _ := folderOf(t, nil)
	node.ESLAddr, node.Password = "10.0.0.5:8021", "a password"
	health := examine(t, healthy(), &node, false)
	require.Empty(t, health.Problems)
	require.Equal(t, []any{node.ID, int64(3600), 40, 2000, 200, 80.0, time.UnixMicro(7).UTC()},
		[]any{health.NodeID, health.UptimeSeconds, health.Sessions, health.MaxSessions, health.MaxRate, health.IdleCPU, *health.HeartbeatAt})
	require.InDelta(t, 0, health.ClockSkew.Duration().Seconds(), 0.5)

	for name, tc := range map[string]struct {
		change   func(*patient, *models.Node)
		draining bool
		want     string // severity and code; empty for no problem
		message  string
	}{
		"expansion of variables": {change: func(p *patient, _ *models.Node) { p.variables = nil }, want: "error no_walls", message: "app_disable_expand_variables is not true"},
		"expansion of commands":  {change: func(p *patient, _ *models.Node) { p.expansion = "+OK api_expansion is on" }, want: "error no_walls", message: "api-expansion is on"},
		"default ESL password":   {change: func(_ *patient, n *models.Node) { n.Password = "ClueCon" }, want: "error default_esl_password", message: "anybody who reaches 10.0.0.5:8021"},
		"by name":                {change: func(_ *patient, n *models.Node) { n.Password, n.ESLAddr = "ClueCon", "fs-1:8021" }, want: "error default_esl_password", message: "fs-1:8021"},
		"on loopback": {change: func(_ *patient, n *models.Node) { n.Password, n.ESLAddr = "ClueCon", "127.0.0.1:8021" }, want: "warning default_esl_password",
			message: "every user of the machine"},
		"default SIP password":           {change: func(p *patient, _ *models.Node) { p.variables["default_password"] = "1234" }, want: "error default_sip_password", message: "1234"},
		"a vital module":                 {change: func(p *patient, _ *models.Node) { p.missing = []string{"mod_json_cdr"} }, want: "error missing_module", message: "billed by guess"},
		"a voice":                        {change: func(p *patient, _ *models.Node) { p.missing = []string{"mod_flite"} }, want: "warning missing_module", message: "mod_flite is not loaded"},
		"a recognizer":                   {change: func(p *patient, _ *models.Node) { p.missing = []string{"mod_vosk"} }, want: "warning missing_module", message: "gathers that listen"},
		"a stream":                       {change: func(p *patient, _ *models.Node) { p.missing = []string{"mod_audio_stream"} }, want: "warning missing_module", message: "stream"},
		"shutting down":                  {change: func(p *patient, _ *models.Node) { p.status.Ready = false }, want: "error not_ready", message: "takes no sessions"},
		"paused by hand":                 {change: func(p *patient, _ *models.Node) { p.pause.Inbound = true }, want: "error paused_by_hand", message: "calls in are refused"},
		"paused outbound":                {change: func(p *patient, _ *models.Node) { p.pause = esl.Pause{Outbound: true} }, want: "error paused_by_hand", message: "calls out are refused"},
		"drained":                        {change: func(p *patient, _ *models.Node) { p.pause = esl.Pause{Inbound: true, Draining: true} }, draining: true},
		"about to be resumed":            {change: func(p *patient, _ *models.Node) { p.pause = esl.Pause{Inbound: true, Draining: true} }},
		"paused by hand while it drains": {change: func(p *patient, _ *models.Node) { p.pause = esl.Pause{Inbound: true} }, draining: true},
		"full":                           {change: func(p *patient, _ *models.Node) { p.status.Sessions = 2000 }, want: "error full", message: "2000 of 2000 sessions"},
		"nearly full":                    {change: func(p *patient, _ *models.Node) { p.status.Sessions = 1700 }, want: "warning nearly_full", message: "1700 of 2000 sessions"},
		"busy":                           {change: func(p *patient, _ *models.Node) { p.status.IdleCPU = 9.9 }, want: "warning busy", message: "10 % idle"},
		"too busy":                       {change: func(p *patient, _ *models.Node) { p.status.IdleCPU, p.status.MinIdleCPU = 14, 15 }, want: "error busy", message: "refuses calls below 15 %"},
		"ahead":                          {change: func(p *patient, _ *models.Node) { p.ahead = 3 * time.Second }, want: "warning clock_skew", message: "ahead of the controller's"},
		"behind":                         {change: func(p *patient, _ *models.Node) { p.ahead = -time.Minute }, want: "error clock_skew", message: "behind the controller's"},
		"no clock": {change: func(p *patient, _ *models.Node) {
			p.noClock = &esl.CommandError{Reply: "-ERR strmicroepoch Command not found!"}
		}},
		"old":          {change: func(p *patient, _ *models.Node) { p.status.Version = "1.10.10-release" }, want: "warning old_version", message: "FreeSWITCH 1.10.10 can be stopped"},
		"very old":     {change: func(p *patient, _ *models.Node) { p.status.Version = "1.8.7 git" }, want: "warning old_version", message: "FreeSWITCH 1.8.7"},
		"new":          {change: func(p *patient, _ *models.Node) { p.status.Version = "1.11.0-dev" }},
		"of one's own": {change: func(p *patient, _ *models.Node) { p.status.Version = "acme-build-7" }},
		"never sized":  {change: func(p *patient, _ *models.Node) { p.status.MaxSessions, p.status.MaxRate = 1000, 30 }, want: "warning low_limits", message: "at most 1000 sessions and 30 a second"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, row := healthy(), node
			tc.change(p, &row)
			health := examine(t, p, &row, tc.draining)
			if tc.want == "" {
				require.Empty(t, health.Problems)
				return
			}
			require.Len(t, health.Problems, 1)
			found := health.Problems[0]
			require.Equal(t, tc.want, found.Severity+" "+found.Code)
			require.Contains(t, found.Message, tc.message)
			require.NotEmpty(t, found.Fix)
			require.NotContains(t, found.Message+found.Fix, "a password")
			if strings.HasSuffix(tc.want, problemModule) {
				require.Equal(t, p.missing, health.MissingModules)
			}
		})
	}
}

// examined is what is found out about a switch.
func examined(t *testing.T, cfg *Config, p *patient, row *models.Node, draining bool) *models.NodeHealth {
	t.Helper()
	v := &vital{}
	v.beat(time.UnixMicro(7))
	health, _, err := (&pulse{now: time.Now, modules: modulesFor(cfg)}).examine(t.Context(), p, row, v, "core", draining)
	require.NoError(t, err)
	return health
}

// Files that are no CDRs are told of, after what is worse.
func TestRefusedCDRsAreAProblem(t *testing.T) {
	t.Parallel()
	node, folder := folderOf(t, nil)
	require.NoError(t, os.Mkdir(filepath.Join(folder, refusedCDRs), 0o755))
	require.Empty(t, examined(t, &Config{}, healthy(), &node, false).Problems)
	require.NoError(t, os.WriteFile(filepath.Join(folder, refusedCDRs, "a.cdr.json"), nil, 0o600))
	p := healthy()
	p.missing = []string{"mod_sofia"}
	problems := examined(t, &Config{}, p, &node, false).Problems
	require.Len(t, problems, 2)
	require.Equal(t, []string{problemModule, problemRefusedCDRs}, []string{problems[0].Code, problems[1].Code}, "the worst first")
	require.Contains(t, problems[1].Message, "1 files in ")
}

// A node that leaves one question open has no health: half a picture would place calls by what is not known.
func TestNodeThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for _, question := range []string{"status", "paused", "clock", "app_disable_expand_variables", "default_password", "fsctl api_expansion", "mod_sofia"} {
		p := healthy()
		p.failing = question
		_, _, err := (&pulse{now: time.Now, modules: modulesFor(&Config{})}).examine(t.Context(), p, &models.Node{}, &vital{}, "core", false)
		require.ErrorIs(t, err, errSilent, question)
	}
}

// The configuration of a node is looked over once a minute, and anew when the switch was restarted; its load each time.
func TestInspectionIsKept(t *testing.T) {
	t.Parallel()
	p, v := healthy(), &vital{}
	examine := func(core string) []models.NodeProblem {
		health, _, err := (&pulse{now: time.Now, modules: modulesFor(&Config{})}).examine(t.Context(), p, &models.Node{}, v, core, false)
		require.NoError(t, err)
		return health.Problems
	}
	require.Empty(t, examine("core-1"))
	p.missing, p.status.IdleCPU = []string{"mod_sofia"}, 1
	found := examine("core-1")
	require.Len(t, found, 1)
	require.Equal(t, problemBusy, found[0].Code)
	require.Len(t, examine("core-2"), 2)
	p.missing = nil
	require.Len(t, examine("core-2"), 2)
	v.inspected = v.inspected.Add(-inspectEvery)
	require.Len(t, examine("core-2"), 1)
}
