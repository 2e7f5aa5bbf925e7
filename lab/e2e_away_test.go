package lab_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
	"tandem/models"
)

// TestFreeSWITCHWithTheControllerAway: a node with a disk of its own and 100,000 numbers (TANDEM_NUMBERS) routes calls to the first and the last of
// them with its controller there, gone, and behind a port that swallows everything, also after the switch was started again. It measures how long an
// INVITE takes to its final answer in each case (TANDEM_CALLS each), and what a changed number costs (TANDEM_CHANGES of them).
func TestFreeSWITCHWithTheControllerAway(t *testing.T) { //nolint:paralleltest // it needs the machine for itself
	lab.Require(t)
	count, calls := chosen(t, "TANDEM_NUMBERS", 100_000), chosen(t, "TANDEM_CALLS", 20)
	s := newSystem(t, "sqlite:"+filepath.Join(t.TempDir(), "tandem.db"))
	port := freeAddr(t)
	s.env = append(s.env, "TANDEM_NODE_ADDR="+port, "TANDEM_NODE_URL=http://"+port, "TANDEM_RECORDINGS_DIR="+t.TempDir())
	token := models.NewCDRToken()
	tokenFile := filepath.Join(t.TempDir(), "cdr-token")
	require.NoError(t, os.WriteFile(tokenFile, []byte(token+"\n"), 0o600))
	s.node = lab.StartNode(t, lab.Options{Env: map[string]string{
		"TANDEM_DELIVERY": "xml_curl", "TANDEM_XML_URL": "http://" + port + "/internal/xml", "TANDEM_CDR_CREDENTIALS": "first:" + token,
	}})
	t.Cleanup(func() {
		s.stop(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log of tandem, without the requests it served, its end:\n%s", s.story())
		}
	})
	s.start(t)
	s.env = append(s.env, "TANDEM_OPERATOR_TOKEN="+s.run(t, "operators", "create", "lab", "--role", "admin", "--database").text("token"))
	s.run(t, "nodes", "add", "first", "--esl-addr", s.node.ESLAddr, "--esl-password-file", s.node.PasswordFile, "--conf-dir", s.node.ConfDir,
		"--delivery", "xml_curl", "--cdr-token-file", tokenFile)
	s.customer = s.newCustomer(t, "acme")
	s.inboundTrunk(t, "127.0.0.7")

	number := func(i int) string { return fmt.Sprintf("+1%010d", 2_000_000_000+i) }
	call := func(i int) (status int, took time.Duration) {
		t.Helper()
		began := time.Now()
		status, err := lab.SendRequest(t.Context(), lab.Request{NodeSIP: s.node.SIPAddr, From: "+15559990000", To: number(i), Local: "127.0.0.7"})
		require.NoError(t, err)
		return status, time.Since(began)
	}
	onDisk := func(i int, treatment string) bool {
		text := number(i)
		content, err := os.ReadFile(filepath.Join(s.node.ConfDir, "tandem", "dialplan", "did_"+text[len(text)-3:]+".xml"))
		_, of, found := strings.Cut(string(content), strings.TrimPrefix(text, "+"))
		of, _, _ = strings.Cut(of, "</extension>")
		return err == nil && found && strings.Contains(of, treatment)
	}
	var file strings.Builder
	file.WriteString("number_e164,route_mode,reject_code\n")
	for i := range count {
		fmt.Fprintf(&file, "%s,reject,486\n", number(i))
	}
	path := filepath.Join(t.TempDir(), "numbers.csv")
	require.NoError(t, os.WriteFile(path, []byte(file.String()), 0o600))
	began := time.Now()
	command, said := s.importing(t, path)
	require.NoError(t, command.Wait(), said)
	imported := time.Since(began)
	require.Eventually(t, func() bool {
		first, _ := call(0)
		last, _ := call(count - 1)
		return first == 486 && last == 486
	}, time.Minute, 20*time.Millisecond)
	t.Logf("%d numbers imported in %s; the first and the last can be called %s after the import began", count, imported.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	require.Eventually(t, func() bool {
		return s.command(t, "config", "diff", "first").Run() == nil
	}, 5*time.Minute, time.Second, "the node never had all files")
	t.Logf("the node has them on its own disk %s after the import began", time.Since(began).Round(time.Millisecond))

	routed := func(how string) {
		t.Helper()
		var times []time.Duration
		for n := range calls {
			status, took := call([]int{0, count - 1}[n%2])
			require.Equal(t, 486, status, how)
			times = append(times, took)
		}
		slices.Sort(times)
		t.Logf("%s: %d calls to the first and the last number answered, p50 %s, longest %s", how, calls, times[calls/2].Round(time.Millisecond), times[calls-1].Round(time.Millisecond))
	}
	routed("controller there")
	status, _ := call(count)
	require.Equal(t, 404, status, "a number that is nobody's")
	s.changes(t, count, number, call, onDisk)

	s.stop(syscall.SIGKILL)
	routed("controller killed, its port refused")
	require.NoError(t, s.node.Restart(t.Context()))
	routed("the same, the switch started again")

	swallow(t, port)
	routed("the port swallows everything")
	require.NoError(t, s.node.Restart(t.Context()))
	routed("the same, the switch started again")
}

// changes suspends numbers, one after the other, and measures until a call meets the change and until the node has it on its disk.
func (s *system) changes(t *testing.T, count int, number func(int) string, call func(int) (int, time.Duration), onDisk func(int, string) bool) {
	t.Helper()
	var met, kept []time.Duration
	n := chosen(t, "TANDEM_CHANGES", 10)
	for range n {
		i := 1 + rand.IntN(count-2)
		began := time.Now()
		status, answer := s.ask(t, customer{key: s.operatorToken()}, http.MethodPost, "/operator/v1/dids/reassign", object{"numbers": []string{number(i)}, "status": "suspended"})
		require.Equal(t, http.StatusOK, status, answer)
		for status != 480 {
			require.Less(t, time.Since(began), time.Minute)
			status, _ = call(i)
		}
		met = append(met, time.Since(began))
		require.Eventually(t, func() bool { return onDisk(i, "480") }, time.Minute, 5*time.Millisecond)
		kept = append(kept, time.Since(began))
	}
	slices.Sort(met)
	slices.Sort(kept)
	t.Logf("%d changes: a call meets one after p50 %s, longest %s; the node's disk has it after p50 %s, longest %s", n, met[n/2].Round(time.Millisecond),
		met[n-1].Round(time.Millisecond), kept[n/2].Round(time.Millisecond), kept[n-1].Round(time.Millisecond))
}

// swallow makes an address one at which nobody answers: Linux leaves SYNs unanswered while as many connections as the backlog wait to be accepted.
func swallow(t *testing.T, addr string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	raw, err := listener.(*net.TCPListener).SyscallConn()
	require.NoError(t, err)
	var narrowed error
	require.NoError(t, raw.Control(func(fd uintptr) { narrowed = syscall.Listen(int(fd), 0) }))
	require.NoError(t, narrowed)
	for range 16 {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", addr)
		if failed := net.Error(nil); errors.As(err, &failed) && failed.Timeout() {
			return
		}
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	require.Fail(t, "the backlog is never full")
}
