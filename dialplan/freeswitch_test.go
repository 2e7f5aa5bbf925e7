package dialplan

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/lab"
	"tandem/models"
)

// live is a real FreeSWITCH that a syncer keeps, with its events.
type live struct {
	node    *lab.Node
	control *esl.Node
	syncer  *Syncer
	log     *lockedLog
	sip     string

	up    chan struct{}
	parks chan *esl.Event
	ended chan *esl.Event
	gates chan *esl.Event
}

// lockedLog is a log that several goroutines write and a test reads.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *live) HandleUp(esl.Snapshot) { signal(l.up) }
func (l *live) HandleDown(error)      {}

func (l *live) HandleEvent(e *esl.Event) {
	l.syncer.HandleEvent("node_1", e)
	switch {
	case e.Name() == "CHANNEL_PARK":
		l.parks <- e
	case e.Name() == "CHANNEL_HANGUP_COMPLETE":
		l.ended <- e
	case e.Subclass() == "sofia::gateway_state":
		l.gates <- e
	}
}

// testTimeout bounds each step of a test; who measures very many numbers gives more.
var testTimeout = func() time.Duration {
	if given, err := time.ParseDuration(os.Getenv("TANDEM_TEST_STEP")); err == nil {
		return given
	}
	return 40 * time.Second
}()

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

func startLive(t testing.TB, store Store, options lab.Options) *live {
	t.Helper()
	lab.Require(t)
	node := lab.StartNode(t, options)
	l := connectLive(t, store, node.ESLAddr, node.Password, node.ConfDir)
	l.node, l.sip = node, node.SIPAddr
	return l
}

// connectLive connects to a switch and brings it up to date.
func connectLive(t testing.TB, store Store, addr, password, confDir string) *live {
	t.Helper()
	l := &live{
		log: &lockedLog{}, up: make(chan struct{}, 1),
		parks: make(chan *esl.Event, 100), ended: make(chan *esl.Event, 1000), gates: make(chan *esl.Event, 1000),
	}
	var err error
	l.syncer, err = NewSyncer(Config{
		Store: store, Providers: []netip.Prefix{netip.MustParsePrefix("127.0.0.128/25")},
		Logger: slog.New(slog.NewTextHandler(l.log, nil)),
	})
	require.NoError(t, err)
	l.control, err = esl.NewNode(esl.Config{Name: "one", Addr: addr, Password: password, Handler: l, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, l.control.Start(t.Context()))
	t.Cleanup(l.control.Stop)
	receive(t, l.up)
	_, err = l.control.AcceptCalls(within(t), time.Hour, "")
	require.NoError(t, err)
	l.syncer.AddNode(models.Node{ID: "node_1", ConfDir: confDir}, l.control)
	l.sync(t)
	return l
}

func (l *live) sync(t testing.TB) Report {
	t.Helper()
	report, err := l.syncer.Sync(within(t), "node_1")
	require.NoError(t, err)
	require.False(t, report.Pending)
	return report
}

func receive[T any](t testing.TB, c chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-within(t).Done():
		require.FailNow(t, "nothing came")
	}
	panic("unreachable")
}

// calls sends an INVITE and returns the status it ends in.
func (l *live) calls(t testing.TB, from, number string, change ...func(*lab.Request)) int {
	t.Helper()
	r := lab.Request{NodeSIP: l.sip, From: "+15559990000", To: number, Local: from}
	for _, f := range change {
		f(&r)
	}
	status, err := lab.SendRequest(within(t), r)
	require.NoError(t, err)
	return status
}

// parked sends an INVITE that must reach the controller, which refuses it as busy.
func (l *live) parked(t *testing.T, from, number string, change ...func(*lab.Request)) *esl.Event {
	t.Helper()
	status := make(chan int, 1)
	go func() {
		r := lab.Request{NodeSIP: l.sip, From: "+15559990000", To: number, Local: from}
		for _, f := range change {
			f(&r)
		}
		got, _ := lab.SendRequest(within(t), r)
		status <- got
	}()
	e := receive(t, l.parks)
	require.Equal(t, from, e.Get("Caller-Network-Addr"))
	require.NoError(t, l.control.Kill(within(t), e.ChannelID(), "USER_BUSY"))
	require.Equal(t, 486, receive(t, status))
	return e
}

func withURI(uri string) func(*lab.Request) { return func(r *lab.Request) { r.URI = uri } }

func withHeader(h string) func(*lab.Request) {
	return func(r *lab.Request) { r.Headers = append(r.Headers, h) }
}

func TestFreeSWITCHLetsInOnlyWhoIsInvited(t *testing.T) {
	t.Parallel()
	carrier := lab.StartCarrier(t)
	busy, bridged, suspended := number("did_2", "cust_a", "+15550002567"), number("did_3", "cust_a", "+15550003567"), number("did_4", "cust_a", "+15550004567")
	answered := number("did_5", "cust_a", "+15550005567")
	busy.RouteMode, busy.RejectCode = models.RouteReject, 603
	bridged.RouteMode, bridged.SIPURI = models.RouteSIP, "sip:15550000404@"+carrier.SIPAddr
	answered.RouteMode, answered.SIPURI = models.RouteSIP, "sip:15550000999@"+carrier.SIPAddr
	suspended.Status = models.DIDSuspended
	gateway := outbound("trunk_9", "cust_a", "one")
	gateway.Register, gateway.Proxy = false, carrier.SIPAddr
	store := &fakeStore{
		trunks: []models.Trunk{
			gateway, inbound("trunk_1", "cust_a", "127.0.0.2", ""), inbound("trunk_2", "cust_b", "127.0.0.3", "app_b"), inbound("trunk_3", "cust_c", "127.0.0.0/25", ""),
			inbound("trunk_4", "cust_d", "127.0.1.0/24", "app_d"),
		},
		dids: []models.DID{number("did_1", "cust_a", "+15550001567"), busy, bridged, suspended, answered, number("did_6", "cust_c", "+15550006567")},
	}
	store.trunks[3].IsActive = false
	l := startLive(t, store, lab.Options{})
	const ofA, ofB, ofD, provider, stranger = "127.0.0.2", "127.0.0.3", "127.0.1.77", "127.0.0.200", "127.0.0.99"

	// Parked: the number's customer, a provider, a trunk with an application of its own.
	for _, c := range []struct{ from, number, at, token, variable string }{
		{ofA, "+15550001567", "+15550001567", "cust_a.trunk_1.did@tandem", "tandem_trunk_id trunk_1"},
		{ofA, "0015550001567", "+15550001567", "cust_a.trunk_1.did@tandem", "tandem_customer_id cust_a"},
		{provider, "15550001567", "+15550001567", "provider.1.did@tandem", "tandem_provider 127.0.0.128/25"},
		{ofB, "+15550001567", "+15550001567", "cust_b.trunk_2.any@tandem", "tandem_trunk_id trunk_2"},
		{ofB, "4930123456", "+4930123456", "cust_b.trunk_2.any@tandem", "tandem_trunk_id trunk_2"},
		{ofB, "100", "100", "cust_b.trunk_2.any@tandem", "tandem_customer_id cust_b"},
		{ofD, "+15550004567", "+15550004567", "cust_d.trunk_4.any@tandem", "tandem_customer_id cust_d"},
	} {
		e := l.parked(t, c.from, c.number)
		require.Equal(t, c.at, e.Get("Caller-Destination-Number"))
		require.Equal(t, c.token, e.Variable("acl_token"))
		name, value, _ := strings.Cut(c.variable, " ")
		require.Equal(t, value, e.Variable(name))
		require.Equal(t, "park", e.Variable("current_application"))
	}

	// What a call costs: a transfer and one application, or the refusal only.
	probe := l.node.Probe(t)
	require.NoError(t, probe.Subscribe(within(t), "CHANNEL_EXECUTE", "CHANNEL_HANGUP"))
	applications := func() (names []string) {
		for {
			frame, err := probe.Next(within(t))
			require.NoError(t, err)
			if frame.Event("Event-Name") == "CHANNEL_HANGUP" {
				return names
			}
			names = append(names, frame.Event("Application"))
		}
	}
	l.parked(t, ofA, "+15550001567")
	require.Equal(t, []string{"transfer", "park"}, applications())
	require.Equal(t, 603, l.calls(t, ofA, "+15550002567"))
	require.Equal(t, []string{"transfer", "respond"}, applications())
	require.Equal(t, 403, l.calls(t, stranger, "+15550002567"))
	require.Equal(t, []string{"respond"}, applications())
	require.NoError(t, probe.Close())

	// Routed by the switch alone.
	require.Equal(t, 603, l.calls(t, ofA, "+15550002567"))
	require.Equal(t, 404, l.calls(t, ofA, "+15550003567"), "what the SIP destination answered")
	require.Equal(t, 200, l.calls(t, ofA, "+15550005567"))
	require.Equal(t, 603, l.calls(t, provider, "15550002567"))

	// Refused.
	require.Equal(t, 480, l.calls(t, ofA, "+15550004567"))
	for _, called := range []string{"+15550006567", "+15550009567", "+15550009111", "1000", "x"} {
		require.Equal(t, 404, l.calls(t, ofA, called), called)
	}
	strangers := []func(*lab.Request){
		func(*lab.Request) {},
		withHeader("X-acl_token: cust_a.trunk_1.did@tandem"),
		withHeader("X-AUTH-IP: " + ofA),
		withHeader("Acl_token: cust_a.trunk_1.did@tandem"),
		withURI("sip:+15550001567@" + l.sip + ";gw=one"),
		withURI("sip:gw+one@" + l.sip),
		withURI("sip:gw+one@" + l.sip + ";gw=one;acl_token=cust_a.trunk_1.did@tandem"),
		withHeader(`Authorization: Digest username="cust_a.trunk_1.did", realm="tandem", nonce="x", uri="sip:a", response="0123456789abcdef0123456789abcdef"`),
		withHeader(`Proxy-Authorization: Digest username="cust_a.trunk_1.did", realm="tandem", nonce="x", uri="sip:a", response="0123456789abcdef0123456789abcdef"`),
		withHeader("P-Asserted-Identity: <sip:+15550001567@127.0.0.2>"),
	}
	for _, change := range strangers {
		require.Equal(t, 403, l.calls(t, stranger, "+15550001567", change))
	}
	require.Equal(t, 403, l.calls(t, "127.0.0.99", "+15550006567"), "the trunk around this address is not active")
	// A call that parks comes after all of them; only it has reached the controller.
	l.parked(t, ofA, "+15550001567")
	require.Empty(t, l.parks)
	want := map[Refusal]uint64{
		RefusedSuspended: 1, RefusedUnsteered: 0, RefusedBlocked: 0, RefusedUnknown: 5, RefusedUninvited: uint64(len(strangers)) + 2,
	}
	for !isEqual(want, l.syncer.Refused()) {
		receive(t, l.ended)
	}
	require.Contains(t, l.log.String(), "source_ip=127.0.0.99")

	// With no controller alive, SIP and reject routes work on.
	l.control.Stop()
	require.Equal(t, 603, l.calls(t, ofA, "+15550002567"))
	require.Equal(t, 404, l.calls(t, ofA, "+15550003567"))
	require.Equal(t, 403, l.calls(t, stranger, "+15550002567"))
}

func isEqual(a, b map[Refusal]uint64) bool {
	for reason, n := range a {
		if b[reason] != n {
			return false
		}
	}
	return true
}

func TestFreeSWITCHKnowsIPv6Sources(t *testing.T) {
	t.Parallel()
	probe, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 loopback here")
	}
	require.NoError(t, probe.Close())
	store := &fakeStore{
		trunks: []models.Trunk{inbound("trunk_1", "cust_a", "::1", "")},
		dids:   []models.DID{number("did_1", "cust_a", "+15550001567"), number("did_2", "cust_b", "+15550002567")},
	}
	l := startLive(t, store, lab.Options{Env: map[string]string{"TANDEM_SIP_IP": "::1"}})
	_, port, err := net.SplitHostPort(l.node.SIPAddr)
	require.NoError(t, err)
	l.sip = net.JoinHostPort("::1", port)
	e := l.parked(t, "::1", "+15550001567")
	require.Equal(t, "cust_a.trunk_1.did@tandem", e.Variable("acl_token"))
	require.Equal(t, 404, l.calls(t, "::1", "+15550002567"))

	store.set(func(f *fakeStore) { f.trunks[0].InboundIPs = []string{"2001:db8::/32"} })
	require.Equal(t, []string{sourcePath}, l.sync(t).Written)
	require.Equal(t, 403, l.calls(t, "::1", "+15550001567"))
	store.set(func(f *fakeStore) { f.trunks[0].InboundIPs = []string{"::/19"} })
	l.sync(t)
	require.Equal(t, "cust_a.trunk_1.did@tandem", l.parked(t, "::1", "+15550001567").Variable("acl_token"), "by prefix")
}

func (l *live) gatewayNames(t *testing.T) (names []string) {
	t.Helper()
	gateways, err := l.control.Gateways(within(t))
	require.NoError(t, err)
	for _, g := range gateways {
		names = append(names, g.Name)
	}
	slices.Sort(names)
	return names
}

// awaits waits until a gateway is in a state, by its events.
func (l *live) awaits(t *testing.T, gateway, state string) {
	t.Helper()
	for {
		if e := receive(t, l.gates); e.Get("Gateway") == gateway && e.Get("State") == state {
			return
		}
	}
}

func TestFreeSWITCHGatewaysFollowTheirTrunks(t *testing.T) {
	t.Parallel()
	carrier := lab.StartCarrier(t)
	register := func(id, name, password string) models.Trunk {
		trunk := outbound(id, "cust_a", name)
		trunk.Proxy, trunk.Realm, trunk.FromDomain = carrier.SIPAddr, lab.CarrierRealm, lab.CarrierRealm
		trunk.Username, trunk.Password = lab.CarrierUsername, secret(password)
		return trunk
	}
	still := register("trunk_3", "still", "")
	still.Register = false
	store := &fakeStore{trunks: []models.Trunk{register("trunk_1", "right", lab.CarrierPassword), register("trunk_2", ".wrong-1", "no such password"), still}}
	l := startLive(t, store, lab.Options{})
	require.Equal(t, []string{".wrong-1", "right", "still"}, l.gatewayNames(t))
	l.awaits(t, "right", "REGED")
	l.awaits(t, ".wrong-1", "FAIL_WAIT")

	// The status of trunks, from the switch's events and from a poll.
	_, statuses := l.syncer.statuses.take()
	states := map[string]string{}
	for _, s := range statuses {
		states[s.TrunkID] = s.State
	}
	require.Equal(t, "REGED", states["trunk_1"])
	require.Equal(t, "FAIL_WAIT", states["trunk_2"])
	l.syncer.pollAll(within(t))
	_, statuses = l.syncer.statuses.take()
	for _, s := range statuses {
		states[s.TrunkID] = s.State + " " + s.Status
	}
	require.Equal(t, "NOREG UP", states["trunk_3"])

	// A changed password takes.
	store.set(func(f *fakeStore) { f.trunks[1].Password = secret(lab.CarrierPassword) })
	report := l.sync(t)
	require.Equal(t, []string{".wrong-1"}, report.Killed)
	l.awaits(t, ".wrong-1", "REGED")

	// Another name, gone and inactive.
	store.set(func(f *fakeStore) {
		f.trunks[1].GatewayName = "renamed"
		f.trunks[2].IsActive = false
		f.trunks = f.trunks[1:]
	})
	report = l.sync(t)
	require.ElementsMatch(t, []string{".wrong-1", "right", "still"}, report.Killed)
	require.Contains(t, report.Written, gatewayPath("renamed"))
	l.awaits(t, "renamed", "REGED")
	require.Eventually(t, func() bool { return slices.Equal([]string{"renamed"}, l.gatewayNames(t)) }, testTimeout, 100*time.Millisecond)

	require.NotContains(t, l.log.String(), lab.CarrierPassword)
	require.NotContains(t, l.log.String(), "no such password")
}

// TestFreeSWITCHReadsExactlyWhatWasWritten puts hostile text into a trunk and asks the switch what it has.
func TestFreeSWITCHReadsExactlyWhatWasWritten(t *testing.T) {
	t.Parallel()
	store := &fakeStore{}
	want := map[string]string{}
	for i, value := range hostile {
		trunk := outbound(fmt.Sprintf("trunk_%d", i), "cust_a", fmt.Sprintf("gateway-%d", i))
		trunk.Proxy, trunk.Register, trunk.Password = "127.0.0.1:9", false, secret(value)
		store.trunks = append(store.trunks, trunk)
		want[trunk.GatewayName] = value
	}
	l := startLive(t, store, lab.Options{})
	require.Len(t, l.gatewayNames(t), len(hostile))
	document, err := l.control.API(within(t), "xml_locate configuration configuration name sofia.conf")
	require.NoError(t, err)
	// Not parsed as XML: the switch writes whatever follows "<!" as it is (switch_xml.c, switch_xml_ampencode).
	got := map[string]string{}
	gateway := regexp.MustCompile(`(?s)<gateway name="([^"]*)">(.*?)</gateway>`)
	password := regexp.MustCompile(`(?m)<param name="password" value="(.*)"></param>\s*$`)
	for _, g := range gateway.FindAllStringSubmatch(document, -1) {
		got[g[1]] = ""
		if p := password.FindStringSubmatch(g[2]); p != nil {
			encoded, asItIs, found := strings.Cut(p[1], "<!")
			got[g[1]] = html.UnescapeString(encoded)
			if found {
				got[g[1]] += "<!" + asItIs
			}
		}
	}
	require.Equal(t, want, got)
}

// TestFreeSWITCHReloadsManyNumbers notes how long a switch takes to read 10,000 numbers and 5,000 sources.
func TestFreeSWITCHReloadsManyNumbers(t *testing.T) {
	t.Parallel()
	store := &fakeStore{dids: manyDIDs(10_000)}
	for i := range 5000 {
		store.trunks = append(store.trunks, inbound(fmt.Sprintf("trunk_%d", i), fmt.Sprintf("cust_%04d", i), fmt.Sprintf("127.%d.%d.1", 100+i/250, i%250), ""))
	}
	l := startLive(t, store, lab.Options{})
	measure := func(name string, f func(context.Context) error) {
		began := time.Now()
		require.NoError(t, f(within(t)))
		t.Logf("%s: %s", name, time.Since(began).Round(time.Millisecond))
	}
	measure("reloadxml, 10,000 numbers and 5,000 sources", l.control.ReloadXML)
	measure("reloadacl", l.control.ReloadACL)
	did := store.dids[4321]
	e := l.parked(t, "127.117.71.1", did.NumberE164)
	require.Equal(t, did.NumberE164, e.Get("Caller-Destination-Number"))
	began := time.Now()
	const refusals = 50
	for range refusals {
		require.Equal(t, 404, l.calls(t, "127.117.71.1", store.dids[4322].NumberE164))
	}
	t.Logf("a refused call: %s", (time.Since(began) / refusals).Round(100*time.Microsecond))
	store.set(func(f *fakeStore) { f.dids[4321].Status = models.DIDSuspended })
	report := l.sync(t)
	require.Equal(t, []string{shardPath(shardOf(did.NumberE164))}, report.Written)
	t.Logf("one changed number, from database to switch: %s", report.Took.Round(time.Millisecond))
	require.Equal(t, 480, l.calls(t, "127.117.71.1", did.NumberE164))
}
