package lab_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
	"tandem/lab"
	"tandem/models/modelstest"
)

// together is how many calls are up at the same moment.
const together = 500

// loadNumber is the number that they call, and loadProbe the caller whose calls only find out whether the node knows it yet.
const (
	loadNumber = "+15557000500"
	loadProbe  = "+15551239999"
)

// TestSimulatedLoad has 500 simultaneous calls on the simulated switch, each through a gather and a dial.
func TestSimulatedLoad(t *testing.T) {
	t.Parallel()
	modelstest.RunURL(t, "", func(t *testing.T, location string) {
		s := loaded(t, location)
		confDir := t.TempDir()
		password := filepath.Join(t.TempDir(), "password")
		require.NoError(t, os.WriteFile(password, []byte("secret\n"), 0o600))
		sim, err := simswitch.New(simswitch.Config{Password: "secret", ConfDir: confDir})
		require.NoError(t, err)
		require.NoError(t, sim.Start())
		t.Cleanup(func() { require.NoError(t, sim.Close()) })
		s.open(t, sim.Addr(), password, confDir)
		l := newLoad(t, s, "127.0.0.1:5090")
		require.Eventually(t, func() bool {
			_, err := sim.CallIn(simswitch.IncomingCall{From: loadProbe, To: loadNumber})
			return err == nil && l.probed.Load()
		}, 20*time.Second, 50*time.Millisecond, "the node never learned of the number")
		for range together {
			_, err := sim.CallIn(simswitch.IncomingCall{From: "+15551230000", To: loadNumber, Digits: "12"})
			require.NoError(t, err)
		}
		l.check(t)
	})
}

// TestFreeSWITCHLoad is the same on a real switch, with callers and callees of SIPp.
func TestFreeSWITCHLoad(t *testing.T) { //nolint:paralleltest // it needs the machine for itself
	lab.Require(t)
	folder := sipp(t)
	modelstest.RunURL(t, "", func(t *testing.T, location string) {
		s := loaded(t, location)
		s.env = append(s.env, moneyPrices...)
		env, tokenFile := s.posting(t)
		// Above the ports that the kernel gives to clients.
		env["TANDEM_RTP_START_PORT"], env["TANDEM_RTP_END_PORT"], env["TANDEM_SESSIONS_PER_SECOND"] = "61000", "65534", "200"
		s.node = lab.StartNode(t, lab.Options{Env: env})
		s.open(t, s.node.ESLAddr, s.node.PasswordFile, s.node.ConfDir)
		s.run(t, "nodes", "cdr-token", "first", "--cdr-token-file", tokenFile, "--yes")
		callee := freeUDP(t)
		start(t, folder, "callee.xml", callee)
		l := newLoad(t, s, callee)
		s.reaches(t, loadNumber)
		caller := start(t, folder, "caller.xml", freeUDP(t), s.node.SIPAddr, "-s", loadNumber, "-r", "50", "-m", strconv.Itoa(together), "-l", strconv.Itoa(together))
		select {
		case err := <-caller:
			require.NoError(t, err, "SIPp saw a call fail")
		case <-time.After(4 * time.Minute):
			require.Fail(t, "SIPp still waits for calls to end")
		}
		l.check(t)
		l.checkBills(t, s.store(t, location))
	})
}

// sipp returns a folder with the scenarios and the digits that SIPp brings; it skips the test where there is no SIPp.
func sipp(t *testing.T) string {
	t.Helper()
	const digits = "/usr/share/sip-tester"
	if _, err := exec.LookPath("sipp"); err != nil {
		t.Skip("no SIPp here: it is in the Debian package sip-tester")
	}
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, os.DirFS("sipp")))
	for _, name := range []string{"dtmf_2833_1.pcap", "dtmf_2833_2.pcap"} {
		data, err := os.ReadFile(filepath.Join(digits, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), data, 0o600))
	}
	return folder
}

// start runs SIPp until the end of the test and returns a channel that tells how it ended.
func start(t *testing.T, folder, scenario, addr string, args ...string) <-chan error {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	_, media, err := net.SplitHostPort(freeUDP(t))
	require.NoError(t, err)
	cmd := exec.Command("sipp", append([]string{"-sf", scenario, "-i", host, "-p", port, "-mi", host, "-mp", media, "-aa", "-nostdin", "-timeout", "200s"}, args...)...)
	cmd.Dir = folder
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	var wait sync.WaitGroup
	wait.Go(func() { ended <- cmd.Wait() })
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		wait.Wait()
		if t.Failed() {
			t.Logf("the end of what SIPp said, %s:\n%s", scenario, said.String()[max(0, said.Len()-2000):])
		}
	})
	return ended
}

func freeUDP(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	return conn.LocalAddr().String()
}

// load is an application whose calls wait for each other between the gather and the dial.
type load struct {
	*system
	app     *application
	probed  atomic.Bool
	arrived atomic.Int64
}

// loaded is a system that keeps its node on a machine that is busy, and does not write down each step of each call.
func loaded(t *testing.T, location string) *system {
	t.Helper()
	s := newSystem(t, location)
	s.env = append(s.env, "TANDEM_NODE_LEASE=30s", "TANDEM_LOG_LEVEL=info")
	return s
}

func newLoad(t *testing.T, s *system, carrier string) *load {
	t.Helper()
	l := &load{system: s}
	s.run(t, "customers", "credit", s.customer.id, "100000", "--key", "load")
	s.make(t, s.customer, "/v1/trunks", object{"name": "out", "gateway_name": "out", "proxy": carrier})
	s.inboundTrunk(t, "127.0.0.1")
	l.app = s.newApplication(t, s.customer, "load", nil, l.answer)
	s.change(t, l.app, object{"events": []string{"*"}})
	s.make(t, s.customer, "/v1/dids", object{"number_e164": loadNumber, "application_id": l.app.id})
	return l
}

// answer gathers two digits, lets every call wait until all have theirs, and dials.
func (l *load) answer(q question) any {
	if q.call().text("from") == loadProbe {
		l.probed.Store(true)
		return []object{{"action": "reject"}}
	}
	if q.kind() == "answer" && q.path == "/answer" {
		return []object{{"action": "gather", "id": "digits", "num_digits": 2, "timeout": 60, "result_url": "/answer"}}
	}
	switch q.result().text("id") {
	case "digits":
		l.arrived.Add(1)
	case "party":
		return []object{{"action": "hangup"}}
	}
	if l.arrived.Load() < together {
		return []object{{"action": "pause", "seconds": 2}, {"action": "redirect", "url": "/fallback"}}
	}
	return []object{{"action": "dial", "id": "party", "to": "+15550810701", "result_url": "/answer"}}
}

// check waits for the end of all calls and holds what was told of them to what happened.
func (l *load) check(t *testing.T) {
	t.Helper()
	began := time.Now()
	ctx := seconds(t, 240)
	for {
		ended, changed := l.app.count(func(event object) bool { return terminal(event) && event.part("call").text("from") != loadProbe })
		if ended >= together {
			break
		}
		wait(ctx, t, changed, fmt.Sprintf("only %d calls have ended; %d had their digits", ended, l.arrived.Load()))
	}
	t.Logf("the end of all %d calls was told within %s of asking", together, time.Since(began).Round(time.Millisecond))

	// All that the journal has, page by page, must have arrived, in that order, once.
	var up, down []string
	total := 0
	for _, call := range l.calls(t) {
		id := call.text("id")
		require.Equal(t, []any{"completed", "completed", "actions"}, []any{call["status"], call["reason"], call["hangup_source"]}, id)
		up, down = append(up, call.text("answered_at")), append(down, call.text("ended_at"))
		events, _ := l.app.of(id)
		total += len(events)
		l.checkEvents(t, id, events)
		l.checkQuestions(t, id)
	}
	require.Len(t, up, together)
	require.Less(t, slices.Max(up), slices.Min(down), "all were up at the same time")
	require.Zero(t, l.app.repeated.Load(), "a webhook came twice although each was taken")
	t.Logf("%d webhooks, all in order, none lost, none twice", total)
	status, me := l.ask(t, l.customer, http.MethodGet, "/v1/me", nil)
	require.Equal(t, http.StatusOK, status)
	require.Zero(t, me.part("balance").number("reserved_micros"), me)
	out, err := l.command(t, "ledger", "verify").CombinedOutput()
	require.NoError(t, err, string(out))
}

func (l *load) checkEvents(t *testing.T, id string, events []object) {
	t.Helper()
	var main, legs, done []string
	for i, event := range events {
		require.Equal(t, i+1, event.number("sequence"), "%s: %v", id, kinds(events))
		switch kind := event.text("type"); {
		case kind == "call.dtmf":
		case kind == "call.action_completed":
			if verb := event.part("data").text("action"); verb == "gather" || verb == "dial" {
				done = append(done, verb)
			}
		case strings.HasPrefix(kind, "leg."):
			legs = append(legs, kind)
		default:
			main = append(main, kind)
		}
	}
	require.Equal(t, []string{"call.ringing", "call.answered", "call.completed"}, main, id)
	// A 180 is not repeated (RFC 3261, section 17.2.1): of five hundred at once, UDP may lose one.
	if l.node == nil || len(legs) > 2 {
		require.Equal(t, []string{"leg.ringing", "leg.answered", "leg.ended"}, legs, id)
	} else {
		require.Equal(t, []string{"leg.answered", "leg.ended"}, legs, id)
	}
	require.Equal(t, []string{"gather", "dial"}, done, id)

	var journal []string
	status, list := l.ask(t, l.customer, http.MethodGet, "/v1/calls/"+id+"/events?limit=200", nil)
	require.Equal(t, http.StatusOK, status)
	require.Nil(t, list["next_cursor"])
	raw, err := json.Marshal(list["data"])
	require.NoError(t, err)
	var kept []object
	require.NoError(t, json.Unmarshal(raw, &kept))
	for _, event := range kept {
		journal = append(journal, event.text("id"))
	}
	var told []string
	for _, event := range events {
		told = append(told, event.text("id"))
	}
	require.Equal(t, journal, told, id)
}

func (l *load) checkQuestions(t *testing.T, id string) {
	t.Helper()
	var said []string
	for _, q := range l.app.asked(id) {
		switch {
		case q.kind() == "result":
			said = append(said, fmt.Sprintf("%s %v%v", q.result().text("id"), q.result().text("digits"), q.result().text("dial_status")))
		case q.path == "/answer":
			said = append(said, "answer")
		}
	}
	require.Equal(t, []string{"answer", "digits 12", "party answered"}, said, id)
}

// calls returns all calls of the application but the probe's.
func (l *load) calls(t *testing.T) []object {
	t.Helper()
	var all []object
	for cursor := ""; ; {
		status, page := l.ask(t, l.customer, http.MethodGet, "/v1/calls?limit=200&application_id="+l.app.id+"&cursor="+cursor, nil)
		require.Equal(t, http.StatusOK, status, page)
		for _, item := range page["data"].([]any) {
			if call := object(item.(map[string]any)); call.text("from") != loadProbe {
				all = append(all, call)
			}
		}
		if cursor = page.text("next_cursor"); cursor == "" {
			return all
		}
	}
}
