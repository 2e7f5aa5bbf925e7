package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
	"tandem/models/modelstest"
)

// How the load of TestFreeSWITCHTwoNodes is made.
const (
	fleetEvery = 125 * time.Millisecond // a call
	fleetTalk  = 4                      // seconds that each lasts
)

// fleet is an installation of two nodes and two controllers on one PostgreSQL, under load.
type fleet struct {
	*system
	second *system
	nodes  [2]*lab.Node
	names  [2]string
	probes [2]*lab.Probe
	app    *application

	mu     sync.Mutex
	placed []string // ids of the calls that were accepted
	failed []string // why others were not
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	lab.Require(t)
	f := &fleet{system: newSystem(t, modelstest.PostgresURL(t)), names: [2]string{"first", "second"}}
	f.env = append(f.env, "TANDEM_LOG_LEVEL=info")
	var started sync.WaitGroup
	started.Go(func() { f.carrier = lab.StartCarrier(t) })
	started.Go(func() { f.nodes[1] = lab.StartNode(t, lab.Options{}) })
	f.nodes[0] = lab.StartNode(t, lab.Options{})
	started.Wait()
	require.NotNil(t, f.carrier)
	require.NotNil(t, f.nodes[1])
	f.node = f.nodes[0]
	f.open(t, f.nodes[0].ESLAddr, f.nodes[0].PasswordFile, f.nodes[0].ConfDir)
	f.second = &system{carrier: f.carrier, binary: f.binary, addr: freeAddr(t), log: filepath.Join(t.TempDir(), "second.log"), customer: f.customer}
	f.second.env = append(slices.Clone(f.env), "TANDEM_HTTP_ADDR="+f.second.addr, "TANDEM_API_URL=http://"+f.second.addr)
	t.Cleanup(func() {
		f.second.stop(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log of the second:\n%s", f.second.story())
		}
	})
	f.second.start(t)
	f.run(t, "nodes", "add", f.names[1], "--esl-addr", f.nodes[1].ESLAddr, "--esl-password-file", f.nodes[1].PasswordFile, "--conf-dir", f.nodes[1].ConfDir)
	f.make(t, f.customer, "/v1/trunks", object{
		"name": "out", "gateway_name": "out", "proxy": f.carrier.SIPAddr, "username": lab.CarrierUsername, "password": lab.CarrierPassword, "register": false,
		"realm": lab.CarrierRealm, "from_domain": lab.CarrierRealm,
	})
	for i, node := range f.nodes {
		f.probes[i] = node.Probe(t)
		f.hasGateway(t, i)
		f.becomes(t, f.names[i], "up")
	}
	f.app = f.newApplication(t, f.customer, "talks", nil, func(question) any {
		return []object{{"action": "pause", "seconds": fleetTalk}, {"action": "hangup"}}
	})
	return f
}

// hasGateway waits until a node has the trunk.
func (f *fleet) hasGateway(t *testing.T, node int) {
	t.Helper()
	require.Eventually(t, func() bool {
		reply, err := f.probes[node].API(t.Context(), "sofia xmlstatus gateway out")
		return err == nil && strings.Contains(reply, "<state>NOREG</state>")
	}, 30*time.Second, 50*time.Millisecond, "%s never had the gateway", f.names[node])
}

// becomes waits until a node is in a state, as either controller says, and returns it.
func (f *fleet) becomes(t *testing.T, name, state string) object {
	t.Helper()
	var node object
	require.Eventually(t, func() bool {
		node = f.second.run(t, "nodes", "get", name)
		return node.text("state") == state
	}, 60*time.Second, 100*time.Millisecond, "%s never became %s", name, state)
	return node
}

// load places calls at either controller in turn until the returned function is called.
func (f *fleet) load(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var placing sync.WaitGroup
	placing.Go(func() {
		ticker := time.NewTicker(fleetEvery)
		defer ticker.Stop()
		for turn := 0; ; turn++ {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			at := f.system
			if turn%2 == 1 {
				at = f.second
			}
			placing.Go(func() { f.place(t, at) })
		}
	})
	return func() {
		cancel()
		placing.Wait()
	}
}

func (f *fleet) place(t *testing.T, at *system) {
	status, answer, err := at.try(t.Context(), customer{key: f.app.key}, http.MethodPost, "/v1/calls",
		object{"application_id": f.app.id, "from": "+15550100000", "to": "+15550200001"})
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || status != http.StatusCreated {
		f.failed = append(f.failed, fmt.Sprint(status, answer, err))
		return
	}
	f.placed = append(f.placed, answer.text("id"))
}

// sessions is how many legs a node has had since it was started.
func (f *fleet) sessions(t *testing.T, node int) int {
	t.Helper()
	reply, err := f.probes[node].API(t.Context(), "status")
	require.NoError(t, err)
	for line := range strings.Lines(reply) {
		if count, found := strings.CutSuffix(strings.TrimSpace(line), " session(s) since startup"); found {
			n, err := strconv.Atoi(count)
			require.NoError(t, err)
			return n
		}
	}
	require.Fail(t, "no sessions in the status", reply)
	return 0
}

// grows waits until a node has had more legs than that.
func (f *fleet) grows(t *testing.T, node, above int) {
	t.Helper()
	require.Eventually(t, func() bool { return f.sessions(t, node) > above }, 30*time.Second, 100*time.Millisecond, "%s gets no calls", f.names[node])
}

// answers is how a node answers a stranger's OPTIONS and INVITE.
func (f *fleet) answers(t *testing.T, node int) []int {
	t.Helper()
	var statuses []int
	for _, method := range []string{"OPTIONS", "INVITE"} {
		status, err := lab.SendRequest(seconds(t, 10), lab.Request{Method: method, NodeSIP: f.nodes[node].SIPAddr, To: "+15550100001"})
		require.NoError(t, err)
		statuses = append(statuses, status)
	}
	return statuses
}

// TestFreeSWITCHTwoNodes has two nodes under load. One is drained, restarted and resumed, and no call notices. Then the other is killed: its calls
// end as lost, once each, and all that come after go to the one that is left.
func TestFreeSWITCHTwoNodes(t *testing.T) { //nolint:paralleltest // it needs the machine for itself
	f := newFleet(t)
	stop := f.load(t)
	defer stop()
	f.grows(t, 0, 8)
	f.grows(t, 1, 8)
	require.Equal(t, []int{200, 403}, f.answers(t, 0))

	began := time.Now()
	drained := f.run(t, "nodes", "drain", "first", "--reason", "new kernel", "--wait")
	took := time.Since(began)
	require.Equal(t, []any{"drained", 0, "new kernel"}, []any{drained.text("state"), drained.number("calls"), drained.part("draining").text("reason")}, drained)
	require.Less(t, took, (fleetTalk+20)*time.Second)
	require.Equal(t, []int{503, 503}, f.answers(t, 0), "carriers are told to go elsewhere")
	before, others := f.sessions(t, 0), f.sessions(t, 1)
	f.grows(t, 1, others+15)
	require.Equal(t, before, f.sessions(t, 0), "not one call since")

	// It is for a restart that a node is drained. It comes back as it went.
	require.NoError(t, f.nodes[0].Restart(t.Context()))
	f.probes[0] = f.nodes[0].Probe(t)
	f.hasGateway(t, 0)
	require.Eventually(t, func() bool { return slices.Equal(f.answers(t, 0), []int{503, 503}) }, 30*time.Second, 100*time.Millisecond, "it forgot that it drains")
	require.Equal(t, "up", f.run(t, "nodes", "resume", "first").text("state"))
	require.Eventually(t, func() bool { return slices.Equal(f.answers(t, 0), []int{200, 403}) }, 30*time.Second, 100*time.Millisecond)
	f.grows(t, 0, f.sessions(t, 0)+8)
	f.mu.Lock()
	calm, failed := len(f.placed), slices.Clone(f.failed)
	f.mu.Unlock()
	require.Empty(t, failed)

	f.nodes[1].Kill()
	killed := time.Now()
	f.becomes(t, "second", "away")
	noticed := time.Since(killed)
	f.grows(t, 0, f.sessions(t, 0)+20)
	stop()
	f.mu.Lock()
	placed, failed := slices.Clone(f.placed), f.failed
	f.mu.Unlock()
	require.Empty(t, failed, "a node that dies is no reason to refuse calls")

	out, err := f.command(t, "doctor").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "node second")
	require.Contains(t, string(out), "is FreeSWITCH running")

	reasons := map[string]int{}
	for i, call := range placed {
		end, _ := f.app.ended(seconds(t, 90), t, f.system, call)
		reason := end.part("data").text("reason")
		reasons[reason]++
		if i < calm-fleetTalk*int(time.Second/fleetEvery)-10 {
			require.Equal(t, "completed", reason, "call %d of %d, long before the kill", i, len(placed))
		}
	}
	lost := time.Since(killed)
	require.Positive(t, reasons["completed"])
	require.Positive(t, reasons["node_lost"])
	require.Len(t, reasons, 2, reasons)
	require.LessOrEqual(t, reasons["node_lost"], (fleetTalk+4)*int(time.Second/fleetEvery), "only those that were on the node, or about to be")
	require.Zero(t, f.app.repeated.Load())
	output, err := f.command(t, "ledger", "verify").CombinedOutput()
	require.NoError(t, err, string(output))
	t.Logf("%d calls, one each %s, %d s each: drained in %s; kill noticed after %s, told of after %s at most; ends %v",
		len(placed), fleetEvery, fleetTalk, took.Round(100*time.Millisecond), noticed.Round(100*time.Millisecond), lost.Round(time.Second), reasons)
}

// TestFreeSWITCHNodeLimits asks more of a node than it takes: the rate and the number of its sessions are kept before the switch refuses anything, and
// what is wrong with the node is named.
func TestFreeSWITCHNodeLimits(t *testing.T) { //nolint:paralleltest // it needs the machine for itself
	const sessions, perSecond, wanted = 40, 6, 30
	s := startSystem(t, lab.Options{
		Env: map[string]string{"TANDEM_MAX_SESSIONS": strconv.Itoa(sessions), "TANDEM_SESSIONS_PER_SECOND": strconv.Itoa(perSecond)},
		Edit: func(confDir string) error {
			return errors.Join(
				replaceIn(filepath.Join(confDir, "autoload_configs", "modules.conf.xml"), `<load module="mod_avmd"/>`, ""),
				replaceIn(filepath.Join(confDir, "vars.xml"), "<include>", "<include>\n  <X-PRE-PROCESS cmd=\"set\" data=\"default_password=1234\"/>"),
			)
		},
	})
	s.make(t, s.customer, "/v1/trunks", object{
		"name": "out", "gateway_name": "out", "proxy": s.carrier.SIPAddr, "username": lab.CarrierUsername, "password": lab.CarrierPassword, "register": false,
		"realm": lab.CarrierRealm, "from_domain": lab.CarrierRealm,
	})
	probe := s.node.Probe(t)
	require.Eventually(t, func() bool {
		reply, err := probe.API(t.Context(), "sofia xmlstatus gateway out")
		return err == nil && strings.Contains(reply, "<state>NOREG</state>")
	}, 30*time.Second, 50*time.Millisecond)
	var ended atomic.Bool
	app := s.newApplication(t, s.customer, "stays", nil, func(question) any {
		if ended.Load() {
			return []object{{"action": "hangup"}}
		}
		return []object{{"action": "pause", "seconds": 120}, {"action": "hangup"}}
	})

	out, err := s.command(t, "doctor").CombinedOutput()
	require.Error(t, err, "the default password of SIP users is no warning")
	require.Regexp(t, `(?m)^FAIL +node first +.*have the password 1234 +use freeswitch-conf`, string(out))
	require.Regexp(t, `(?m)^warn +node first +mod_avmd is not loaded: machine_detection does not hear beeps +install mod_avmd`, string(out))
	var node object
	require.Eventually(t, func() bool {
		node = s.run(t, "nodes", "get", "first")
		return node.part("health") != nil
	}, 30*time.Second, 100*time.Millisecond)
	require.Equal(t, []any{sessions, perSecond}, []any{node.part("health").number("max_sessions"), node.part("health").number("max_sessions_per_second")})

	// The first call is there to let the controller learn the limits; then all at once, again and again.
	first := s.callFrom(t, app, "+15550200001", nil).text("id")
	app.until(soon(t), t, first, "call.answered")
	<-time.After(2 * time.Second) // what a node says of itself is read each second
	calls := []string{first}
	refused := map[string]int{}
	began := time.Now()
	for len(calls) < wanted {
		require.Less(t, time.Since(began), time.Minute)
		status, answer, err := s.try(t.Context(), customer{key: app.key}, http.MethodPost, "/v1/calls", object{"application_id": app.id, "from": "+15550100000", "to": "+15550200001"})
		require.NoError(t, err)
		if status == http.StatusCreated {
			calls = append(calls, answer.text("id"))
			continue
		}
		refused[answer.part("error").text("code")]++
		require.Equal(t, http.StatusServiceUnavailable, status, answer)
	}
	paced := time.Since(began)
	for _, call := range calls {
		app.until(soon(t), t, call, "call.answered")
	}
	require.Positive(t, refused["overloaded"], "a queue of more than two seconds is refused")
	require.Len(t, refused, 1, refused)
	require.Greater(t, paced, time.Duration(wanted-1)*time.Second/(perSecond-1)-4*time.Second)

	// Two of the forty are kept for parties: 38 calls live, and one more is refused before the switch would.
	require.Eventually(t, func() bool {
		status, answer, err := s.try(t.Context(), customer{key: app.key}, http.MethodPost, "/v1/calls", object{"application_id": app.id, "from": "+15550100000", "to": "+15550200001"})
		require.NoError(t, err)
		if status == http.StatusCreated {
			calls = append(calls, answer.text("id"))
		}
		return len(calls) == sessions-2
	}, time.Minute, 100*time.Millisecond)
	require.Eventually(t, func() bool {
		return s.run(t, "nodes", "get", "first").part("health").number("sessions") == sessions-2
	}, 30*time.Second, 200*time.Millisecond)
	status, answer, err := s.try(t.Context(), customer{key: app.key}, http.MethodPost, "/v1/calls", object{"application_id": app.id, "from": "+15550100000", "to": "+15550200001"})
	require.NoError(t, err)
	require.Equal(t, []any{http.StatusServiceUnavailable, "overloaded"}, []any{status, answer.part("error").text("code")})
	log := s.node.LogText()
	require.NotContains(t, log, "Throttle Error")
	require.NotContains(t, log, "Over Session")

	ended.Store(true)
	reply, err := probe.API(t.Context(), "hupall")
	require.NoError(t, err, reply)
	for _, call := range calls {
		end, _ := app.ended(soon(t), t, s, call)
		require.Equal(t, "call.completed", end.text("type"), "the switch refused none")
	}
	t.Logf("%d calls at once to a node that takes %d a second: accepted within %s, %d refused as overloaded, none by the switch; full at %d of %d sessions",
		wanted, perSecond-1, paced.Round(100*time.Millisecond), refused["overloaded"], sessions-2, sessions)
}

// replaceIn replaces a text of a file, which must have it.
func replaceIn(file, text, by string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !strings.Contains(string(raw), text) {
		return fmt.Errorf("%s has no %s", file, text)
	}
	return os.WriteFile(file, []byte(strings.Replace(string(raw), text, by, 1)), 0o600)
}
