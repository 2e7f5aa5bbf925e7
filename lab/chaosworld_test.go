package lab_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
	"tandem/models/modelstest"
)

// chaosWorld is an installation whose parts are processes of their own: a PostgreSQL, two controllers, a simulated switch, the link
// between them. The customer's server is in the test.
type chaosWorld struct {
	plan   chaosPlan
	folder string
	binary string
	env    []string

	cluster     *modelstest.Separate
	database    *sql.DB
	controllers [2]*controllerPart
	telephone   *part // the switch
	link        *lab.Link
	eslAddr     string
	password    string
	confDir     string
	cdrToken    string // the file

	customer     customer
	applications []chaosApplication
	sink         *sink
	load         *chaosLoad
	watch        *watcher
	fence        fenceJudge
	audit        *auditor

	mu    sync.Mutex
	story *os.File // what was done, as it was
	havoc []wreck  // what was done
	// undialled counts the calls whose command to dial was lost with its link or its controller.
	undialled int
	// unknown counts the new calls that were refused for the database did not say that it had stored them.
	unknown int
	// generations are the moments at which the switch was killed.
	generations []time.Time
	targets     map[string]*sync.Mutex
}

// chaosApplication is one of the customer's applications and the number that reaches it.
type chaosApplication struct {
	id, key, number string
	// all says that it wants every kind of event.
	all bool
}

// part is a process that is started again when it ends by itself, as a supervisor of an operator's would.
type part struct {
	name, log string
	command   func() *exec.Cmd

	mu     sync.Mutex
	wanted bool
	cmd    *exec.Cmd
	done   chan struct{} // closed when nobody keeps it running any more
	wake   chan struct{} // closed to end the wait for a restart
	ended  []string      // how it ended although it was wanted
}

// controllerPart is a controller and its address.
type controllerPart struct {
	*part
	addr string
	// read is how far its log was read for what waits in its memory.
	read  int64
	waits bool
}

// up keeps the process running.
func (p *part) up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted {
		return
	}
	p.wanted, p.done, p.wake = true, make(chan struct{}), make(chan struct{})
	go p.keep(p.done, p.wake)
}

func (p *part) keep(done, wake chan struct{}) {
	defer close(done)
	for {
		log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return
		}
		p.mu.Lock()
		if !p.wanted {
			p.mu.Unlock()
			_ = log.Close()
			return
		}
		cmd := p.command()
		cmd.Stdout, cmd.Stderr = log, log
		err = cmd.Start()
		p.cmd = cmd
		p.mu.Unlock()
		if err == nil {
			err = cmd.Wait()
		}
		_ = log.Close()
		p.mu.Lock()
		p.cmd = nil
		wanted := p.wanted
		if wanted {
			p.ended = append(p.ended, fmt.Sprintf("%s ended by itself: %v", p.name, err))
		}
		p.mu.Unlock()
		if !wanted {
			return
		}
		select {
		case <-wake:
			return
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// down ends the process by a signal and waits until it is gone; one that takes too long is killed and that is noted.
func (p *part) down(signal os.Signal, patience time.Duration) {
	p.mu.Lock()
	if !p.wanted {
		p.mu.Unlock()
		return
	}
	p.wanted = false
	close(p.wake)
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(signal)
	}
	done := p.done
	p.mu.Unlock()
	select {
	case <-done:
		return
	case <-time.After(patience):
	}
	p.mu.Lock()
	p.ended = append(p.ended, fmt.Sprintf("%s had to be killed %s after %v", p.name, patience, signal))
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
	}
	p.mu.Unlock()
	<-done
}

// troubles are how it ended although it was wanted, and how it did not end although it was not.
func (p *part) troubles() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ended)
}

// pid is 0 while it does not run.
func (p *part) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.cmd.Process == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

func (p *part) signal(signal os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(signal)
	}
}

// nodeToken proves the CDRs of the switch.
const nodeToken = "a-token-of-the-chaos-tests"

// chaosPatience is how long what is asked of the world in order may take on a machine that is busy.
const chaosPatience = 60 * time.Second

// newChaosWorld starts everything and waits until a call can come in.
func newChaosWorld(t *testing.T, plan chaosPlan) *chaosWorld {
	t.Helper()
	w := &chaosWorld{plan: plan, binary: chaosBinary(t, plan), cluster: modelstest.StartSeparate(t), folder: chaosFolder(t, plan), targets: map[string]*sync.Mutex{}}
	database, err := sql.Open("pgx", w.cluster.URL())
	require.NoError(t, err)
	database.SetMaxOpenConns(4)
	w.database = database
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	w.confDir, w.password, w.eslAddr = filepath.Join(w.folder, "conf"), "secret", freeAddr(t)
	passwordFile := filepath.Join(w.folder, "password")
	require.NoError(t, os.WriteFile(passwordFile, []byte(w.password+"\n"), 0o600))
	w.env = append(os.Environ(),
		"TANDEM_DATABASE_URL="+w.cluster.URL(), "TANDEM_SECRET_KEY_FILE="+filepath.Join(w.folder, "secret.key"),
		"TANDEM_ALLOW_NETWORKS=127.0.0.0/8", "TANDEM_ALLOW_PORTS=any", "TANDEM_PROVIDERS=127.0.0.0/8", "TANDEM_API_RATE=0",
		"TANDEM_NODE_LEASE="+plan.lease.String(),
		// A millionth is lost nowhere when a second costs a whole number of them.
		fmt.Sprintf("TANDEM_OUTBOUND_PRICE=%g", outboundPrice), fmt.Sprintf("TANDEM_INBOUND_PRICE=%g", inboundPrice), "TANDEM_BILLING_INCREMENT=1",
	)
	w.story, err = os.Create(filepath.Join(w.folder, "havoc.log"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.story.Close()) })
	w.link, err = lab.NewLink(t.Context(), w.eslAddr)
	require.NoError(t, err)
	w.link.Tap(w.fence.hear)
	w.cdrToken = filepath.Join(w.folder, "cdr-token")
	require.NoError(t, os.WriteFile(w.cdrToken, []byte(nodeToken+"\n"), 0o600))
	w.telephone = &part{name: "switch", log: filepath.Join(w.folder, "switch.log"), command: func() *exec.Cmd {
		cmd := w.run("simswitch", "--esl-addr", w.eslAddr, "--esl-password-file", passwordFile, "--conf-dir", w.confDir)
		cmd.Env = append(cmd.Env, "TANDEM_CDR_URL=http://"+w.controllers[0].addr+"/internal/cdr", "TANDEM_CDR_URL_2=http://"+w.controllers[1].addr+"/internal/cdr",
			"TANDEM_CDR_CREDENTIALS=first:"+nodeToken)
		return cmd
	}}
	for i := range w.controllers {
		name := fmt.Sprintf("controller-%d", i+1)
		addr := freeAddr(t)
		w.controllers[i] = &controllerPart{addr: addr, part: &part{name: name, log: filepath.Join(w.folder, name+".log"), command: func() *exec.Cmd {
			cmd := w.run("serve")
			cmd.Env = append(cmd.Env, "TANDEM_HTTP_ADDR="+addr, "GOTRACEBACK=all")
			return cmd
		}}}
	}
	t.Cleanup(w.close)
	w.sink = newSink(t, w)
	w.env = append(w.env, "TANDEM_API_URL=http://"+w.controllers[0].addr, "TANDEM_CONTEXTS="+filepath.Join(w.folder, "contexts.yaml"))
	// It migrates the database.
	w.env = append(w.env, "TANDEM_OPERATOR_TOKEN="+w.operate(t, "operators", "create", "chaos", "--role", "admin", "--database").text("token"))
	w.telephone.up()
	w.controllers[0].up()
	w.answers(t, w.controllers[0])
	w.controllers[1].up()
	w.answers(t, w.controllers[1])
	w.furnish(t, passwordFile)
	w.watch = startWatcher(t, w)
	w.fence.whenTaken(w.watch.taken)
	return w
}

// chaosBinary is tandem as the plan wants it.
func chaosBinary(t *testing.T, plan chaosPlan) string {
	t.Helper()
	if !plan.race {
		return tandem(t)
	}
	binary := filepath.Join(t.TempDir(), "tandem")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-race", "-o", binary, "tandem/cmd/tandem").CombinedOutput()
	require.NoError(t, err, string(out))
	return binary
}

// run is a command of tandem in the world, which dies with the test.
func (w *chaosWorld) run(args ...string) *exec.Cmd {
	cmd := exec.Command(w.binary, args...)
	cmd.Env = append([]string(nil), w.env...)
	cmd.SysProcAttr = lab.DieWithParent()
	return cmd
}

func (w *chaosWorld) close() {
	for _, c := range w.controllers {
		c.signal(syscall.SIGCONT)
		c.down(syscall.SIGKILL, chaosPatience)
	}
	w.telephone.down(syscall.SIGKILL, chaosPatience)
	w.link.Close()
}

// answers waits until a controller serves requests.
func (w *chaosWorld) answers(t *testing.T, c *controllerPart) {
	t.Helper()
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + c.addr + "/v1/openapi.json")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, chaosPatience, 50*time.Millisecond, "%s never answered", c.name)
}

// operate runs an operator's command and returns the object that it prints.
func (w *chaosWorld) operate(t *testing.T, args ...string) object {
	t.Helper()
	cmd := w.run(append(args, "-o", "json")...)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	require.NoError(t, cmd.Run(), "tandem %s: %s", strings.Join(args, " "), problem.String())
	var printed object
	require.NoError(t, json.Unmarshal(out.Bytes(), &printed), out.String())
	return printed
}

// furnish adds the node, a customer, its applications, numbers and trunk.
func (w *chaosWorld) furnish(t *testing.T, passwordFile string) {
	t.Helper()
	w.operate(t, "nodes", "add", "first", "--esl-addr", w.link.Addr(), "--esl-password-file", passwordFile, "--conf-dir", w.confDir, "--cdr-token-file", w.cdrToken)
	w.customer.id = w.operate(t, "customers", "create", "chaos", "--balance", "100000000", "--allow", "any", "--max-calls", "none", "--max-calls-per-second", "none").text("id")
	w.customer.key = w.operate(t, "keys", "create", w.customer.id).text("api_key")
	w.create(t, "/v1/trunks", object{"name": "out", "gateway_name": "out", "proxy": "127.0.0.1:5090"})
	for i, events := range [][]string{{"*"}, nil} {
		app := chaosApplication{number: fmt.Sprintf("+1555700070%d", i), all: events != nil}
		fields := object{
			"name": fmt.Sprintf("app %d", i), "answer_url": w.sink.url + "/answer", "webhook_url": w.sink.url + "/hook", "webhook_secret": w.sink.secretText(),
			"fallback_actions": fallbackList(w.plan.pace),
		}
		if events != nil {
			fields["events"] = events
		}
		made := w.create(t, "/v1/applications", fields)
		app.id, app.key = made.text("id"), made.text("api_key")
		w.create(t, "/v1/dids", object{"number_e164": app.number, "application_id": app.id})
		w.applications = append(w.applications, app)
	}
	probe, err := lab.DialESL(t.Context(), w.eslAddr, w.password)
	require.NoError(t, err)
	defer func() { _ = probe.Close() }()
	// The caller whose calls only find out whether the node knows the numbers yet.
	for _, app := range w.applications {
		require.Eventually(t, func() bool {
			_, err := probe.API(t.Context(), fmt.Sprintf(`sim_call {"from":%q,"to":%q,"source_ip":"127.0.0.1"}`, loadProbe, app.number))
			return err == nil && w.sink.probed(app.number)
		}, chaosPatience, 100*time.Millisecond, "the node never learned of %s", app.number)
	}
}

// create makes an object through the first controller.
func (w *chaosWorld) create(t *testing.T, path string, body any) object {
	t.Helper()
	status, answer, err := w.ask(t.Context(), w.controllers[0], w.customer.key, http.MethodPost, path, body, "")
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "POST %s: %v", path, answer)
	return answer
}

var chaosClient = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 5 * time.Second}}

// ask sends a request of the API to a controller.
func (w *chaosWorld) ask(ctx context.Context, c *controllerPart, key, method, path string, body any, idempotency string) (int, object, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+c.addr+path, content)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if idempotency != "" {
		request.Header.Set("Idempotency-Key", idempotency)
	}
	response, err := chaosClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var answer object
	if response.StatusCode != http.StatusNoContent {
		err = json.NewDecoder(response.Body).Decode(&answer)
	}
	return response.StatusCode, answer, err
}

// either is one of the controllers, by chance.
func (w *chaosWorld) either() *controllerPart { return w.controllers[rand.IntN(len(w.controllers))] }

// holder is the controller that has the node's lease, nil when nobody has or the database does not say.
func (w *chaosWorld) holder(ctx context.Context) *controllerPart {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var owner string
	if err := w.database.QueryRowContext(ctx, "SELECT lease_owner FROM nodes").Scan(&owner); err != nil {
		return nil
	}
	for _, c := range w.controllers {
		if pid := c.pid(); pid != 0 && strings.Contains(owner, fmt.Sprintf("/%d/", pid)) {
			return c
		}
	}
	return nil
}
