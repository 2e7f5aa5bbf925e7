package lab_test

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// printed is what a running command prints, line by line.
type printed struct {
	mu    sync.Mutex
	lines []string
}

func (p *printed) add(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
}

// find returns the lines that match.
func (p *printed) find(pattern string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := regexp.MustCompile(pattern)
	var found []string
	for _, line := range p.lines {
		if wanted.MatchString(line) {
			found = append(found, line)
		}
	}
	return found
}

// `tandem dev` on a switch that is already running: its example application calls out over a real carrier and takes a call of it.
func TestFreeSWITCHDev(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	carrier := lab.StartCarrier(t)
	node := lab.StartNode(t, lab.Options{})
	s := &system{node: node, carrier: carrier, addr: freeAddr(t)}
	who := customer{key: "tandem_" + strings.Repeat("k", 43)}

	cmd := exec.Command(tandem(t), "dev", "--data-dir", t.TempDir(),
		"--esl-addr", node.ESLAddr, "--esl-password-file", node.PasswordFile, "--conf-dir", node.ConfDir)
	cmd.Env = append(os.Environ(), "TANDEM_HTTP_ADDR="+s.addr, "TANDEM_DEV_API_KEY="+who.key)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var said printed
	read := make(chan struct{})
	go func() {
		defer close(read)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			said.add(scanner.Text())
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		guard := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer guard.Stop()
		<-read
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(strings.Join(said.find(""), "\n"))
		}
	})
	require.Eventually(t, func() bool { return len(said.find("^Tandem is ready")) == 1 }, 30*time.Second, 50*time.Millisecond)
	require.Len(t, said.find("FreeSWITCH, Event Socket on "+node.ESLAddr), 1)

	// The trunk of the first start leads nowhere; here it leads to the carrier.
	_, trunks := s.ask(t, who, http.MethodGet, "/v1/trunks", nil)
	trunk := object(trunks["data"].([]any)[0].(map[string]any))
	status, answer := s.ask(t, who, http.MethodPatch, "/v1/trunks/"+trunk.text("id"), object{"proxy": carrier.SIPAddr})
	require.Equal(t, http.StatusOK, status, answer)
	probe := node.Probe(t)
	require.Eventually(t, func() bool {
		reply, err := probe.API(t.Context(), "sofia xmlstatus gateway "+trunk.text("gateway_name"))
		return err == nil && strings.Contains(reply, carrier.SIPAddr)
	}, 20*time.Second, 50*time.Millisecond, "the node never learned of the other proxy")

	// The carrier's number that ends in 700 types 1 2 3 4 #, as the simulated one does.
	_, applications := s.ask(t, who, http.MethodGet, "/v1/applications", nil)
	application := object(applications["data"].([]any)[0].(map[string]any)).text("id")
	placed := s.make(t, who, "/v1/calls", object{"application_id": application, "from": "+12025550100", "to": "+12025550700"})
	said.completes(t, placed.text("id"))

	_, dids := s.ask(t, who, http.MethodGet, "/v1/dids", nil)
	number := object(dids["data"].([]any)[0].(map[string]any)).text("number_e164")
	s.reaches(t, number)
	leg, err := carrier.Call(t.Context(), lab.Caller{From: "+12025550123", To: number, NodeSIP: node.SIPAddr, App: lab.Types(3*time.Second, "4321#")})
	require.NoError(t, err)
	outcome, err := leg.Ended(soon(t))
	require.NoError(t, err)
	require.True(t, outcome.Answered)
	require.Equal(t, "recv_bye", outcome.HungUpBy)
	_, list := s.ask(t, who, http.MethodGet, "/v1/calls?direction=inbound", nil)
	said.completes(t, object(list["data"].([]any)[0].(map[string]any)).text("id"))
	require.Empty(t, said.find("SIGNATURE BAD"))
}

// completes waits until the webhooks of a call have ended well.
func (p *printed) completes(t *testing.T, call string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return len(p.find(`webhook +\d+ +call\.completed +`+call+` +completed +signature ok +reason=completed`)) == 1
	}, 60*time.Second, 50*time.Millisecond, "%s was never told to be completed", call)
}
