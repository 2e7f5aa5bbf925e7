package dialplan

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
	"tandem/models"
	"tandem/nodeport"
)

// TestFreeSWITCHWithItsOwnDisk: a node that we share no disk with fetches its files, asks for its routes, and goes on with what it has while we are
// away, killed, hung or never there since its start.
func TestFreeSWITCHWithItsOwnDisk(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	carrier := lab.StartCarrier(t)
	busy, gone, bridged := number("did_1", "cust_a", "+15550001567"), number("did_2", "cust_a", "+15550002567"), number("did_3", "cust_a", "+15550003568")
	busy.RouteMode, busy.RejectCode = models.RouteReject, 486
	gone.RouteMode, gone.RejectCode = models.RouteReject, 410
	bridged.RouteMode, bridged.SIPURI = models.RouteSIP, "sip:15550000404@"+carrier.SIPAddr
	registering, plain := outbound("trunk_1", "cust_a", "one"), outbound("trunk_2", "cust_a", "two")
	registering.Register, registering.Proxy = false, carrier.SIPAddr
	plain.Register, plain.Proxy, plain.Password = false, carrier.SIPAddr, secret(hostile[7])
	store := &fakeStore{
		trunks: []models.Trunk{registering, plain, inbound("trunk_3", "cust_a", "127.0.0.2", "")},
		dids:   []models.DID{busy, gone, bridged},
	}
	live := &numbers{dids: []models.DID{busy, gone, bridged}}
	routes, err := NewAnswers(live, "")
	require.NoError(t, err)
	files := &swap{}
	p := openPort(t, nodeport.Config{Nodes: &nodeTokens{}, Files: files, Routes: routes})
	files.Exchange, err = NewExchange("http://" + p.addr)
	require.NoError(t, err)
	node := lab.StartNode(t, lab.Options{Env: map[string]string{
		"TANDEM_DELIVERY": "xml_curl", "TANDEM_XML_URL": "http://" + p.addr + "/internal/xml", "TANDEM_CDR_CREDENTIALS": "one:a-token-of-the-node",
	}})
	l := dialRemote(t, store, node.ESLAddr, node.Password, node.ConfDir, files.Exchange)
	l.node, l.sip = node, node.SIPAddr
	const invited, stranger = "127.0.0.2", "127.0.0.99"

	began := time.Now()
	report := l.sync(t)
	t.Logf("%d files fetched by the node in %s", len(report.Written), time.Since(began))
	require.Len(t, report.Written, 6)
	rendering, err := Render(Input{Trunks: store.trunks, DIDs: store.dids})
	require.NoError(t, err)
	holds(t, node.ConfDir, rendering)
	require.ElementsMatch(t, []string{"one", "two"}, l.gatewayNames(t))
	require.False(t, l.sync(t).Changed())

	// Asked for at each hunt: the two of a call.
	require.Equal(t, 486, l.calls(t, invited, "+15550001567"))
	require.Equal(t, 410, l.calls(t, invited, "0015550002567"))
	require.Equal(t, 404, l.calls(t, invited, "+15550003568"), "what the SIP destination answered")
	require.Equal(t, 6, live.questions())
	require.Equal(t, 403, l.calls(t, stranger, "+15550001567"))
	require.Equal(t, 404, l.calls(t, invited, "+15550009567"))

	// A change counts at once, with nothing reloaded; the files follow.
	moved := busy
	moved.RejectCode = 603
	live.set(moved, gone, bridged)
	require.Equal(t, 603, l.calls(t, invited, "+15550001567"))
	live.set(moved)
	require.Equal(t, 404, l.calls(t, invited, "+15550002567"), "gone, although its file still has it")

	// We are away: connection refused. The node's own files, as they were.
	control, password := l.control, node.Password
	control.Stop()
	p.close(t)
	began = time.Now()
	require.Equal(t, 486, l.calls(t, invited, "+15550001567"))
	t.Logf("a call with nobody there: answered in %s", time.Since(began))
	require.Equal(t, 410, l.calls(t, invited, "+15550002567"))
	require.Equal(t, 404, l.calls(t, invited, "+15550003568"))
	require.Equal(t, 403, l.calls(t, stranger, "+15550001567"))

	// We hang: whoever answers the port says nothing. A hunt waits for a second.
	hung, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", p.addr)
	require.NoError(t, err)
	began = time.Now()
	require.Equal(t, 486, l.calls(t, invited, "+15550001567"))
	require.Less(t, time.Since(began), 5*time.Second)
	t.Logf("a call with a controller that hangs: answered in %s", time.Since(began))
	require.NoError(t, hung.Close())

	// The switch is started again, and we have not been there since.
	require.NoError(t, node.Restart(within(t)))
	require.Equal(t, 486, l.calls(t, invited, "+15550001567"))
	require.Equal(t, 404, l.calls(t, invited, "+15550003568"))
	probe := node.Probe(t)
	loaded, err := probe.API(within(t), "sofia xmlstatus gateway")
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(loaded, "<gateway>"))
	require.NoError(t, probe.Close())

	// We are back: what changed meanwhile is fetched, gateways are unloaded and loaded.
	p.open(t)
	store.dids = store.dids[1:]
	store.trunks[1].Password = "changed"
	store.trunks = append(store.trunks[1:], outbound("trunk_4", "cust_a", "four"))
	l = dialRemote(t, store, node.ESLAddr, password, node.ConfDir, files.Exchange)
	l.node, l.sip = node, node.SIPAddr
	live.set(store.dids...)
	report = l.sync(t)
	require.ElementsMatch(t, []string{"one", "two"}, report.Killed)
	require.Eventually(t, func() bool { // an unloaded gateway stays in the list until it has unregistered
		names := l.gatewayNames(t)
		slices.Sort(names)
		return slices.Equal([]string{"four", "two"}, names)
	}, testTimeout, 50*time.Millisecond)
	require.Equal(t, 404, l.calls(t, invited, "+15550001567"))
	require.Equal(t, 410, l.calls(t, invited, "+15550002567"))
	rendering, err = Render(Input{Trunks: store.trunks, DIDs: store.dids})
	require.NoError(t, err)
	holds(t, node.ConfDir, rendering)
}

// TestFreeSWITCHRefusesStrangeTokens: a node whose token is not known gets nothing, and says so.
func TestFreeSWITCHRefusesStrangeTokens(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	tokens := &nodeTokens{}
	files := &swap{}
	p := openPort(t, nodeport.Config{Nodes: tokens, Files: files, Status: func(error) int { return http.StatusNotFound }})
	var err error
	files.Exchange, err = NewExchange("http://" + p.addr)
	require.NoError(t, err)
	node := lab.StartNode(t, lab.Options{Env: map[string]string{
		"TANDEM_DELIVERY": "xml_curl", "TANDEM_XML_URL": "http://" + p.addr + "/internal/xml", "TANDEM_CDR_CREDENTIALS": "one:another-token",
	}})
	l := dialRemote(t, &fakeStore{dids: []models.DID{number("did_1", "cust_a", "+15550001567")}}, node.ESLAddr, node.Password, node.ConfDir, files.Exchange)
	_, err = l.syncer.Sync(within(t), "node_1")
	require.ErrorContains(t, err, "could not transfer")
	require.NotContains(t, err.Error(), "token")
}
