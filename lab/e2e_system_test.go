package lab_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// system is a whole installation: a node, a carrier, `tandem serve`, and a customer with applications that live in this test.
type system struct {
	node    *lab.Node
	carrier *lab.Carrier

	binary string
	env    []string
	addr   string
	log    string

	mu    sync.Mutex
	serve *exec.Cmd

	customer customer
}

// customer is an account and its key.
type customer struct {
	id, key string
}

// object is a JSON object of the API.
type object map[string]any

func (o object) text(name string) string {
	s, _ := o[name].(string)
	return s
}

func (o object) number(name string) int {
	f, _ := o[name].(float64)
	return int(f)
}

// startSystem sets an installation up as an operator would: by the commands of tandem.
func startSystem(t *testing.T, options lab.Options) *system {
	t.Helper()
	lab.Require(t)
	s := newSystem(t, "sqlite:"+filepath.Join(t.TempDir(), "tandem.db"))
	var started sync.WaitGroup
	started.Go(func() { s.carrier = lab.StartCarrier(t) })
	s.node = lab.StartNode(t, options)
	started.Wait()
	require.NotNil(t, s.carrier)
	s.open(t, s.node.ESLAddr, s.node.PasswordFile, s.node.ConfDir)
	return s
}

// newSystem prepares `tandem serve` on a database.
func newSystem(t *testing.T, database string) *system {
	t.Helper()
	dir := t.TempDir()
	s := &system{binary: tandem(t), addr: freeAddr(t), log: filepath.Join(dir, "tandem.log")}
	s.env = append(os.Environ(),
		"TANDEM_DATABASE_URL="+database,
		"TANDEM_SECRET_KEY_FILE="+filepath.Join(dir, "secret.key"),
		"TANDEM_HTTP_ADDR="+s.addr,
		"TANDEM_API_RATE=0",
		"TANDEM_ALLOW_NETWORKS=127.0.0.0/8",
		"TANDEM_ALLOW_PORTS=any",
		"TANDEM_LOG_LEVEL=debug",
		"TANDEM_NODE_LEASE=3s",
		"TANDEM_API_URL=http://"+s.addr,
		"TANDEM_CONTEXTS="+filepath.Join(dir, "contexts.yaml"),
	)
	return s
}

// open starts the server and adds the node and a customer.
func (s *system) open(t *testing.T, eslAddr, passwordFile, confDir string) {
	t.Helper()
	t.Cleanup(func() {
		s.stop(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log of tandem, without the requests it served, its end:\n%s", s.story())
		}
	})
	s.start(t)
	s.env = append(s.env, "TANDEM_OPERATOR_TOKEN="+s.run(t, "operators", "create", "lab", "--role", "admin", "--database").text("token"))
	s.run(t, "nodes", "add", "first", "--esl-addr", eslAddr, "--esl-password-file", passwordFile, "--conf-dir", confDir)
	s.customer = s.newCustomer(t, "acme")
}

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tandem-e2e-")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "tandem")
	out, err := exec.Command("go", "build", "-o", binary, "tandem/cmd/tandem").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	built = dir
	return binary, nil
})

// built is the folder of the binary, for TestMain to remove.
var built string

func tandem(t *testing.T) string {
	t.Helper()
	binary, err := build()
	require.NoError(t, err)
	return binary
}

func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

// start starts `tandem serve` and waits until it answers.
func (s *system) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	cmd := exec.Command(s.binary, "serve")
	cmd.Env, cmd.Stdout, cmd.Stderr = s.env, log, log
	require.NoError(t, cmd.Start())
	s.mu.Lock()
	s.serve = cmd
	s.mu.Unlock()
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + s.addr + "/v1/openapi.json")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, 30*time.Second, 50*time.Millisecond, "tandem serve never answered")
}

// story is the end of tandem's log, but for the requests it served.
func (s *system) story() string {
	log, _ := os.ReadFile(s.log)
	var lines []string
	for line := range strings.SplitSeq(string(log), "\n") {
		if !strings.Contains(line, `msg="request served"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-200):], "\n")
}

// stop ends `tandem serve` by a signal and waits until it is gone.
func (s *system) stop(signal os.Signal) {
	s.mu.Lock()
	cmd := s.serve
	s.serve = nil
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(signal)
	guard := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	_ = cmd.Wait()
}

// command is a command of tandem on this installation.
func (s *system) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.binary, args...)
	cmd.Env = s.env
	return cmd
}

// run runs a command of tandem and returns the object it prints.
func (s *system) run(t *testing.T, args ...string) object {
	t.Helper()
	cmd := s.command(t, append(args, "-o", "json")...)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	require.NoError(t, cmd.Run(), "tandem %s: %s", strings.Join(args, " "), problem.String())
	var printed object
	require.NoError(t, json.Unmarshal(out.Bytes(), &printed), out.String())
	return printed
}

func (s *system) newCustomer(t *testing.T, name string) customer {
	t.Helper()
	return s.newPayer(t, name, "100")
}

// newPayer makes a customer with a balance.
func (s *system) newPayer(t *testing.T, name, balance string) customer {
	t.Helper()
	id := s.run(t, "customers", "create", name, "--balance", balance, "--allow", "any", "--max-calls", "none", "--max-calls-per-second", "none").text("id")
	require.NotEmpty(t, id)
	key := s.run(t, "keys", "create", id).text("api_key")
	require.NotEmpty(t, key)
	return customer{id: id, key: key}
}

// ask sends a request of the API and returns the status and the answer.
func (s *system) ask(t *testing.T, who customer, method, path string, body any) (int, object) {
	t.Helper()
	status, answer, err := s.try(t.Context(), who, method, path, body)
	require.NoError(t, err)
	return status, answer
}

func (s *system) try(ctx context.Context, who customer, method, path string, body any) (int, object, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+path, content)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+who.key)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var answer object
	if response.StatusCode != http.StatusNoContent {
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			return 0, nil, err
		}
	}
	return response.StatusCode, answer, nil
}

// make creates an object and returns it.
func (s *system) make(t *testing.T, who customer, path string, body any) object {
	t.Helper()
	status, answer := s.ask(t, who, http.MethodPost, path, body)
	require.Equal(t, http.StatusCreated, status, "POST %s: %v", path, answer)
	return answer
}

// outboundTrunk makes a trunk to the carrier and waits until its gateway is in a state.
func (s *system) outboundTrunk(t *testing.T, who customer, name, password, state string) object {
	t.Helper()
	trunk := s.make(t, who, "/v1/trunks", object{
		"name": name, "gateway_name": name, "proxy": s.carrier.SIPAddr, "username": lab.CarrierUsername, "password": password,
		"realm": lab.CarrierRealm, "from_domain": lab.CarrierRealm,
	})
	require.Equal(t, "outbound", trunk["direction"])
	s.trunkBecomes(t, who, trunk.text("id"), state)
	return trunk
}

func (s *system) trunkBecomes(t *testing.T, who customer, id, state string) {
	t.Helper()
	var last object
	require.Eventually(t, func() bool {
		_, list, err := s.try(t.Context(), who, http.MethodGet, "/v1/trunks", nil)
		if err != nil {
			return false
		}
		items, _ := list["data"].([]any)
		for _, item := range items {
			if trunk := object(item.(map[string]any)); trunk.text("id") == id {
				last = trunk
				return trunk.text("registration_status") == state
			}
		}
		return false
	}, 45*time.Second, 100*time.Millisecond, "the trunk never became %s", state)
	require.NotContains(t, last, "password")
}
