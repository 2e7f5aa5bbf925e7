package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"tandem/calls"
	"tandem/esl"
	"tandem/models"
)

// Codes of models.NodeProblem.
const (
	problemWalls         = "no_walls"
	problemESLPassword   = "default_esl_password"
	problemSIPPassword   = "default_sip_password"
	problemModule        = "missing_module"
	problemRefusedCDRs   = "refused_cdrs"
	problemVersion       = "old_version"
	problemClock         = "clock_skew"
	problemFull          = "full"
	problemNearlyFull    = "nearly_full"
	problemBusy          = "busy"
	problemNotReady      = "not_ready"
	problemPaused        = "paused_by_hand"
	problemSessionLimits = "low_limits"
)

// Bounds of what is a problem.
const (
	// skewWarning is what the leases of webhooks bear, see docs/operating.md; beyond skewError the times of calls are no use.
	skewWarning, skewError = time.Second, 10 * time.Second
	// nearlyFull is the share of sessions, in percent, from which an operator should add a node.
	nearlyFull = 85
	// busyCPU is the idle CPU, in percent, below which sound suffers.
	busyCPU = 10.0
	// leastSessions and leastRate are FreeSWITCH's own defaults, which are those of a switch that nobody has sized (switch_core_session.c,
	// switch_core_session_init; switch_core.c, switch_core_init).
	leastSessions, leastRate = 1000, 30
)

// defaultPassword is the one that FreeSWITCH's example configuration has for the Event Socket and defaultSIPPassword that of its SIP users, which
// scanners try first.
const (
	defaultPassword    = "ClueCon"
	defaultSIPPassword = "1234"
)

// commander is what is asked of a node's switch.
type commander interface {
	GlobalVariable(ctx context.Context, name string) (string, error)
	HasModule(ctx context.Context, name string) (bool, error)
	API(ctx context.Context, line string) (string, error)
}

// measured is the part of a node's connection that tells of its load.
type measured interface {
	commander
	Status(ctx context.Context) (esl.Status, error)
	Clock(ctx context.Context) (time.Time, error)
	Paused(ctx context.Context) (esl.Pause, error)
}

var _ measured = (*esl.Node)(nil)

// module is one that calls may need of a node.
type module struct {
	name string
	// vital is one without which no call works; of the others, loss says what does not.
	vital bool
	loss  string
}

// modulesFor are the modules that a node needs under a configuration.
func modulesFor(cfg *Config) []module {
	wanted := []module{
		{"mod_sofia", true, "no SIP"},
		{"mod_dptools", true, "no application runs"},
		{"mod_dialplan_xml", true, "no call comes in"},
		{"mod_sndfile", true, "nothing is played or recorded"},
		{"mod_tone_stream", true, "no beep and no ringing is heard"},
		{"mod_json_cdr", true, "calls that end while no controller listens are billed by guess"},
		{"mod_conference", false, "the action conference is refused"},
		{"mod_avmd", false, "machine_detection does not hear beeps"},
	}
	if cfg.VoiceEngine == "flite" || cfg.VoiceEngine == calls.EngineHTTP {
		wanted = append(wanted, module{"mod_flite", false, "the action say is refused, or has nothing to fall back on"})
	}
	if cfg.Recognizer.Module != "" {
		wanted = append(wanted, module{cfg.Recognizer.Module, false, "gathers that listen are refused"})
	}
	if len(cfg.StreamHosts) > 0 {
		wanted = append(wanted, module{"mod_audio_stream", false, "the action stream is refused"})
	}
	return wanted
}

// remoteModules are what a node needs beside that fetches its configuration and sends its recordings itself.
var remoteModules = []module{
	{"mod_http_cache", true, "the node cannot fetch its configuration, nor send recordings"},
	{"mod_loopback", true, "the node cannot put files that it has fetched into place"},
	{"mod_xml_curl", true, "the node does not ask for what has just changed"},
}

func problem(severity, code, fix, message string, args ...any) models.NodeProblem {
	return models.NodeProblem{Code: code, Severity: severity, Message: fmt.Sprintf(message, args...), Fix: fix}
}

// inspection is what is found out about a node that changes with its configuration alone.
type inspection struct {
	missing  []string
	problems []models.NodeProblem
}

// inspect looks a node's configuration over. The error says that it could not be asked.
func inspect(ctx context.Context, conn commander, row *models.Node, wanted []module) (inspection, error) {
	var found inspection
	missing, err := missingWalls(ctx, conn)
	if err != nil {
		return found, err
	}
	if len(missing) > 0 {
		found.add(problem(models.SeverityError, problemWalls, "use freeswitch-conf, or set both as it does, and restart the node",
			"it would run commands out of customers' text, and is not steered: %s", strings.Join(missing, " and ")))
	}
	if p, bad := eslPassword(row); bad {
		found.add(p)
	}
	sip, err := conn.GlobalVariable(ctx, "default_password")
	if err != nil {
		return found, fmt.Errorf("read default_password: %w", err)
	}
	if strings.TrimSpace(sip) == defaultSIPPassword {
		found.add(problem(models.SeverityError, problemSIPPassword, "use freeswitch-conf, which has no SIP users, or set another default_password in vars.xml",
			"the SIP users of FreeSWITCH's example configuration have the password %s", defaultSIPPassword))
	}
	if row.Remote() {
		wanted = slices.Concat(wanted, remoteModules)
	}
	for _, m := range wanted {
		loaded, err := conn.HasModule(ctx, m.name)
		if err != nil {
			return found, fmt.Errorf("ask for %s: %w", m.name, err)
		}
		if loaded {
			continue
		}
		severity := models.SeverityWarning
		if m.vital {
			severity = models.SeverityError
		}
		found.missing = append(found.missing, m.name)
		found.add(problem(severity, problemModule, "install "+m.name+" and load it in modules.conf.xml, as freeswitch-conf does", "%s is not loaded: %s", m.name, m.loss))
	}
	if row.Remote() {
		return found, nil // its disk is not ours to look at
	}
	folder := filepath.Join(cdrFolder(row.ConfDir), refusedCDRs)
	if refused, err := os.ReadDir(folder); err == nil && len(refused) > 0 {
		found.add(problem(models.SeverityWarning, problemRefusedCDRs, "look at them and delete them; the log of tandem says what is wrong with each",
			"%d files in %s are no CDRs", len(refused), folder))
	}
	return found, nil
}

func (i *inspection) add(p models.NodeProblem) { i.problems = append(i.problems, p) }

// missingWalls names the settings without which FreeSWITCH runs commands out of a customer's text (DESIGN §4):
// switch_core_session.c expands application arguments unless app_disable_expand_variables is set, and switch_channel.c
// runs ${api(…)} unless api-expansion is off (mod_commands.c, fsctl api_expansion, tells).
func missingWalls(ctx context.Context, node commander) (missing []string, err error) {
	disabled, err := node.GlobalVariable(ctx, "app_disable_expand_variables")
	if err != nil {
		return nil, fmt.Errorf("read app_disable_expand_variables: %w", err)
	}
	expansion, err := node.API(ctx, "fsctl api_expansion")
	if err != nil {
		return nil, fmt.Errorf("read api_expansion: %w", err)
	}
	if strings.TrimSpace(disabled) != "true" {
		missing = append(missing, "the global variable app_disable_expand_variables is not true")
	}
	if !strings.Contains(expansion, "is off") {
		missing = append(missing, "api-expansion is on in switch.conf")
	}
	return missing, nil
}

// checkWalls is an error for a node that lacks one.
func checkWalls(ctx context.Context, node commander) error {
	missing, err := missingWalls(ctx, node)
	if err == nil && len(missing) > 0 {
		err = errors.New(strings.Join(missing, " and "))
	}
	return err
}

// eslPassword says whether a node has FreeSWITCH's well-known password, which matters most on an address that others can reach.
func eslPassword(row *models.Node) (models.NodeProblem, bool) {
	if row.Password != defaultPassword {
		return models.NodeProblem{}, false
	}
	severity, reach := models.SeverityError, "anybody who reaches "+row.ESLAddr+" owns the node"
	if addr, err := netip.ParseAddrPort(row.ESLAddr); err == nil && addr.Addr().IsLoopback() {
		severity, reach = models.SeverityWarning, "every user of the machine owns the node"
	}
	return problem(severity, problemESLPassword, "set another password in event_socket.conf.xml, restart the node, then: tandem nodes set "+row.Name+" --esl-password-file FILE",
		"its Event Socket has FreeSWITCH's default password: %s", reach), true
}

// oldest is the first version without a known way to stop a switch from outside (CVE-2023-51443, mended in 1.10.11).
var oldest = [3]int{1, 10, 11}

var versionNumbers = regexp.MustCompile(`^(\d{1,4})\.(\d{1,4})\.(\d{1,4})`)

// outdated says whether a version is older than oldest. One that is no numbers is somebody's own build, and theirs to judge.
func outdated(version string) bool {
	found := versionNumbers.FindStringSubmatch(version)
	if found == nil {
		return false
	}
	for i, least := range oldest {
		number, err := strconv.Atoi(found[i+1])
		if err != nil || number != least {
			return err == nil && number < least
		}
	}
	return false
}

// judge names what is wrong with a node that answers, by what it has just said. draining says that it is to take no calls.
func judge(status *esl.Status, pause esl.Pause, skew time.Duration, draining bool) []models.NodeProblem {
	var found []models.NodeProblem
	add := func(severity, code, fix, message string, args ...any) {
		found = append(found, problem(severity, code, fix, message, args...))
	}
	if !status.Ready {
		add(models.SeverityError, problemNotReady, "wait for it to be started again, or: fs_cli -x 'fsctl resume'", "it takes no sessions: it shuts down, or is paused by hand")
	}
	if pause.Outbound || pause.Inbound && !pause.Draining && !draining {
		add(models.SeverityError, problemPaused, "fs_cli -x 'fsctl resume'", "somebody has paused it by hand: calls %s are refused", pausedWays(pause))
	}
	switch load := float64(status.Sessions) / float64(max(status.MaxSessions, 1)) * 100; {
	case status.Sessions >= status.MaxSessions:
		add(models.SeverityError, problemFull, "add a node, or raise TANDEM_MAX_SESSIONS and restart this one", "%d of %d sessions: it refuses calls", status.Sessions, status.MaxSessions)
	case load >= nearlyFull:
		add(models.SeverityWarning, problemNearlyFull, "add a node, or raise TANDEM_MAX_SESSIONS and restart this one", "%d of %d sessions", status.Sessions, status.MaxSessions)
	}
	switch {
	case status.MinIdleCPU > 0 && status.IdleCPU < status.MinIdleCPU:
		add(models.SeverityError, problemBusy, "add a node, or find what else keeps the machine busy", "its CPU is %.0f %% idle, and it refuses calls below %.0f %%", status.IdleCPU, status.MinIdleCPU)
	case status.IdleCPU < busyCPU:
		add(models.SeverityWarning, problemBusy, "add a node, or find what else keeps the machine busy", "its CPU is %.0f %% idle: sound suffers", status.IdleCPU)
	}
	if ahead := skew.Abs(); ahead > skewWarning {
		severity := models.SeverityWarning
		if ahead > skewError {
			severity = models.SeverityError
		}
		add(severity, problemClock, "keep both machines on NTP; FreeSWITCH follows its machine with: fs_cli -x 'fsctl sync_clock_when_idle'",
			"its clock is %s %s the controller's", ahead.Round(time.Millisecond), aheadOrBehind(skew))
	}
	if outdated(status.Version) {
		add(models.SeverityWarning, problemVersion, "install FreeSWITCH 1.10.11 or later", "FreeSWITCH %s can be stopped by strangers (CVE-2023-51443)", shortVersion(status.Version))
	}
	if status.MaxSessions <= leastSessions && status.MaxRate <= leastRate {
		add(models.SeverityWarning, problemSessionLimits, "set TANDEM_MAX_SESSIONS and TANDEM_SESSIONS_PER_SECOND to what the machine can do, and restart the node",
			"it takes at most %d sessions and %d a second, no more than FreeSWITCH that nobody has sized", status.MaxSessions, status.MaxRate)
	}
	return found
}

func pausedWays(pause esl.Pause) string {
	switch {
	case pause.Inbound && pause.Outbound:
		return "in and out"
	case pause.Inbound:
		return "in"
	default:
		return "out"
	}
}

func aheadOrBehind(skew time.Duration) string {
	if skew < 0 {
		return "behind"
	}
	return "ahead of"
}

// shortVersion is the number of a version.
func shortVersion(version string) string {
	number, _, _ := strings.Cut(version, "-")
	number, _, _ = strings.Cut(number, " ")
	return number
}

// worstFirst puts errors before warnings, and leaves what is alike in its order.
func worstFirst(problems []models.NodeProblem) []models.NodeProblem {
	var errs, others []models.NodeProblem
	for _, p := range problems {
		if p.Severity == models.SeverityError {
			errs = append(errs, p)
		} else {
			others = append(others, p)
		}
	}
	return append(errs, others...)
}
