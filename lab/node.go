package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Options says how a node differs from what freeswitch-conf makes by default.
type Options struct {
	// Env sets or, with an empty value, still sets variables of freeswitch-conf/README.md, after the ones the lab chooses.
	Env map[string]string
	// LogLevel is what the switch logs: "notice" by default, "debug" to see everything.
	LogLevel string
	// Edit changes the copy of the configuration before the first start.
	Edit func(confDir string) error
	// Locked starts the node with no Event Socket password at all, in which case nobody can log in.
	Locked bool
}

// Node is a real FreeSWITCH configured by freeswitch-conf, as an operator's would be.
type Node struct {
	// ESLAddr is the address of the Event Socket.
	ESLAddr string
	// Password opens the Event Socket; PasswordFile holds the same text.
	Password, PasswordFile string
	// ConfDir is the configuration directory: Tandem writes below ConfDir/tandem.
	ConfDir string
	// SIPAddr is where the node hears SIP over UDP.
	SIPAddr string

	process *process
}

// StartNode starts a node and stops it at the end of the test. It skips the test where there is no FreeSWITCH, and prints the
// end of the switch's log when the test fails.
func StartNode(t testing.TB, options Options) *Node {
	t.Helper()
	binary := Require(t)
	base := t.TempDir()
	ports, err := reserve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ports.release)
	source, err := nodeConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{
		ESLAddr:      net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.esl())),
		SIPAddr:      net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.sip())),
		Password:     password(),
		PasswordFile: filepath.Join(base, "esl-password"),
		ConfDir:      filepath.Join(base, "conf"),
	}
	if options.Locked {
		n.Password = ""
	}
	level := options.LogLevel
	if level == "" {
		level = "notice"
	}
	env := map[string]string{
		"TANDEM_ESL_PORT":         strconv.Itoa(ports.esl()),
		"TANDEM_SIP_PORT":         strconv.Itoa(ports.sip()),
		"TANDEM_RTP_START_PORT":   strconv.Itoa(ports.rtpStart()),
		"TANDEM_RTP_END_PORT":     strconv.Itoa(ports.rtpEnd()),
		"TANDEM_SWITCH_LOG_LEVEL": level,
	}
	if !options.Locked {
		env["TANDEM_ESL_PASSWORD"] = n.Password
	}
	for name, value := range options.Env {
		env[name] = value
	}
	n.process = &process{binary: binary, base: base, eslAddr: n.ESLAddr, password: n.Password, env: environment(env)}
	if err := os.CopyFS(n.ConfDir, os.DirFS(source)); err != nil {
		t.Fatalf("copy freeswitch-conf: %v", err)
	}
	if err := os.WriteFile(n.PasswordFile, []byte(n.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if options.Edit != nil {
		if err := options.Edit(n.ConfDir); err != nil {
			t.Fatalf("edit the configuration: %v", err)
		}
	}
	run(t, "node", n.process, n.process.stop)
	return n
}

// LogText returns what the switch logged so far.
func (n *Node) LogText() string { return n.process.logText() }

// ProcessID is that of the switch as it runs now, 0 where it does not.
func (n *Node) ProcessID() int {
	n.process.mu.Lock()
	defer n.process.mu.Unlock()
	if n.process.cmd == nil {
		return 0
	}
	return n.process.cmd.Process.Pid
}

// Kill ends the switch as a crash would.
func (n *Node) Kill() { n.process.kill() }

// Stop ends the switch in an orderly way.
func (n *Node) Stop() { n.process.stop() }

// Restart starts the switch again with the same addresses, password and directories, killing it first if it still runs.
func (n *Node) Restart(ctx context.Context) error {
	n.process.kill()
	return n.process.start(ctx)
}

// Probe opens an Event Socket connection to the node that is closed at the end of the test.
func (n *Node) Probe(t testing.TB) *Probe {
	t.Helper()
	return open(t, n.ESLAddr, n.Password)
}

// run starts a switch for the length of a test, after which end takes it away.
func run(t testing.TB, name string, p *process, end func()) {
	t.Helper()
	t.Cleanup(func() {
		// Before the end, which fills the log with what every module says when it is unloaded.
		log := p.logText()
		end()
		if t.Failed() {
			t.Logf("log of the %s:\n%s", name, telling(log))
		}
	})
	if err := p.start(t.Context()); err != nil {
		t.Fatalf("start the %s: %v", name, err)
	}
}

func open(t testing.TB, addr, password string) *Probe {
	t.Helper()
	probe, err := DialESL(t.Context(), addr, password)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = probe.Close() })
	return probe
}

func environment(settings map[string]string) []string {
	list := make([]string, 0, len(settings))
	for name, value := range settings {
		list = append(list, fmt.Sprintf("%s=%s", name, value))
	}
	return list
}

func password() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random)
	return hex.EncodeToString(random)
}

// telling leaves out of a log what every start says, unless it is a complaint, and the oldest lines of a long one.
func telling(log string) string {
	boot, rest, found := strings.Cut(log, bootedMark)
	if !found {
		return log
	}
	var lines []string
	for line := range strings.SplitSeq(boot, "\n") {
		if strings.Contains(line, "[WARNING]") || strings.Contains(line, "[ERR]") || strings.Contains(line, "[CRIT]") {
			lines = append(lines, line)
		}
	}
	for line := range strings.SplitSeq(rest, "\n") {
		if !strings.Contains(line, " to list ") && !strings.Contains(line, "Created ip list") && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, ".=") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-300):], "\n")
}
