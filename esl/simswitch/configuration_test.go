package simswitch_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
)

// rendered is what Tandem's dialplan package writes for trunks and numbers of two customers: its own golden files.
var rendered = filepath.Join("..", "..", "dialplan", "testdata", "golden")

func TestReadsWhatTandemWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(rendered)))
	s := start(t, simswitch.Config{ConfDir: dir})
	c := login(t, s.Addr(), password)
	require.Contains(t, c.command("event json CHANNEL_PARK"), "+OK")
	c.api("global_setvar tandem_accept=true") // somebody steers the node
	for name, test := range map[string]struct {
		call   simswitch.IncomingCall
		status int
	}{
		"uninvited":                   {simswitch.IncomingCall{To: "+15550001567", SourceIP: "127.0.0.1"}, 403},
		"number nobody has":           {simswitch.IncomingCall{To: "+15559999111", SourceIP: "192.0.2.1"}, 404},
		"another customer's number":   {simswitch.IncomingCall{To: "+15550003567", SourceIP: "203.0.113.1"}, 404},
		"a number that rejects":       {simswitch.IncomingCall{To: "+15550003567", SourceIP: "192.0.2.1"}, 486},
		"not even a number":           {simswitch.IncomingCall{To: "alice", SourceIP: "192.0.2.1"}, 404},
		"a neighbour of the provider": {simswitch.IncomingCall{To: "+15550001567", SourceIP: "192.0.2.2"}, 403},
	} {
		test.call.From = "+15559876"
		uuid, err := s.CallIn(test.call)
		require.NoError(t, err, name)
		r, err := s.Caller(uuid).Wait(within(t), ended)
		require.NoError(t, err, name)
		require.Equal(t, test.status, r.SIPStatus, name)
		require.False(t, r.Answered, name)
	}
	for name, call := range map[string]simswitch.IncomingCall{
		"the provider to any customer's number": {To: "+15550001567", SourceIP: "192.0.2.1"},
		"without the plus":                      {To: "15550001567", SourceIP: "198.51.100.9"},
		"a trunk to its customer's number":      {To: "+15550001567", SourceIP: "203.0.113.7"},
		"a trunk with its own application":      {To: "+442071234567", SourceIP: "2001:db8:1::5"},
	} {
		call.From = "+15559876"
		uuid, err := s.CallIn(call)
		require.NoError(t, err, name)
		e := c.await(name, named("CHANNEL_PARK", uuid))
		require.NotEmpty(t, e["variable_acl_token"], name)
		require.Equal(t, call.SourceIP, e["variable_sip_network_ip"], name)
		require.Equal(t, "+"+strings.TrimPrefix(call.To, "+"), e["Caller-Destination-Number"], name)
	}
}

func TestWrongFilesAreRefused(t *testing.T) {
	t.Parallel()
	context := func(inside string) map[string]string {
		return map[string]string{"tandem/dialplan/x.xml": "<include>\n<context name=\"public\">\n" + inside + "\n</context>\n</include>\n"}
	}
	extension := func(inside string) map[string]string {
		return context(`<extension name="x">` + inside + `</extension>`)
	}
	gateway := func(inside string) map[string]string {
		return map[string]string{"tandem/gateways/x.xml": "<include>\n<gateway name=\"x\">\n" + inside + "\n</gateway>\n</include>\n"}
	}
	for name, files := range map[string]map[string]string{
		"not XML":                          {"tandem/dialplan/x.xml": "park everything"},
		"not closed":                       {"tandem/dialplan/x.xml": "<include><context name=\"public\">"},
		"closed wrongly":                   {"tandem/dialplan/x.xml": "<context name=\"public\"></contexts>"},
		"unknown element":                  context("<extrension name=\"x\"/>"),
		"no name":                          {"tandem/dialplan/x.xml": "<context></context>"},
		"the same context twice":           {"tandem/dialplan/x.xml": "<context name=\"a\"></context><context name=\"a\"></context>"},
		"extension without condition":      extension(""),
		"unknown attribute":                extension(`<condition feild="destination_number" expression="1"><action application="park"/></condition>`),
		"unknown field":                    extension(`<condition field="destination" expression="1"><action application="park"/></condition>`),
		"expression that does not compile": extension(`<condition field="destination_number" expression="^(1"><action application="park"/></condition>`),
		"unknown application":              extension(`<condition><action application="prak"/></condition>`),
		"inline application that cannot":   extension(`<condition><action application="park" inline="true"/></condition>`),
		"unknown break":                    extension(`<condition break="sometimes"><action application="park"/></condition>`),
		"preprocessor command":             context(`<X-PRE-PROCESS cmd="exec" data="id"/>`),
		"preprocessor comment":             context(`<!--#exec id-->`),
		"global variable":                  extension(`<condition><action application="log" data="$${x}"/></condition>`),
		"line that is dropped":             {"tandem/dialplan/x.xml": "<?xml version=\"1.0\"?><context name=\"public\"></context>\n"},
		"gateway name FreeSWITCH ignores":  {"tandem/gateways/x.xml": "<gateway name=\"a b\"/>"},
		"unknown gateway parameter":        gateway(`<param name="proxi" value="x"/>`),
		"gateway parameter twice":          gateway(`<param name="register" value="false"/><param name="register" value="false"/>`),
		"gateway without password":         gateway(`<param name="username" value="x"/><param name="register" value="true"/>`),
		"gateway twice":                    {"tandem/gateways/x.xml": gatewayFile("a", "x", "true"), "tandem/gateways/y.xml": gatewayFile("a", "x", "true")},
		"address that is none":             {"tandem/directory/x.xml": `<domain name="tandem"><user id="a" cidr="127.0.0.1"/></domain>`},
		"domain nobody reads":              {"tandem/directory/x.xml": `<domain name="tendem"><user id="a" cidr="127.0.0.1/32"/></domain>`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := simswitch.New(simswitch.Config{Password: password, ConfDir: layOut(t, files)})
			require.NoError(t, err)
			err = s.Start()
			if err == nil {
				require.NoError(t, s.Close())
			}
			var wrong *simswitch.ConfigError
			require.ErrorAs(t, err, &wrong)
			require.Contains(t, wrong.File, "tandem/")
			require.Positive(t, wrong.Line)
		})
	}
}

// reloadxml with a wrong file says so and changes nothing; the list of addresses changes with reloadacl only.
func TestReload(t *testing.T) {
	t.Parallel()
	dir := layOut(t, map[string]string{"tandem/dialplan/public.xml": parkEverything})
	s := start(t, simswitch.Config{ConfDir: dir})
	c := login(t, s.Addr(), password)
	require.Contains(t, c.command("event json CHANNEL_PARK"), "+OK")
	token := func() string {
		uuid, err := s.CallIn(simswitch.IncomingCall{From: "1", To: "2"})
		require.NoError(t, err)
		return c.await("park", named("CHANNEL_PARK", uuid))["variable_acl_token"]
	}
	require.Empty(t, token())

	write(t, dir, "tandem/dialplan/wrong.xml", "<context")
	require.Contains(t, c.api("reloadxml"), "+OK [tandem/dialplan/wrong.xml:1: ")
	require.Contains(t, c.api("reloadacl"), "-ERR [tandem/dialplan/wrong.xml:1: ")
	require.Empty(t, token())
	require.NoError(t, os.Remove(filepath.Join(dir, "tandem", "dialplan", "wrong.xml")))

	write(t, dir, "tandem/directory/sources.xml", `<domain name="tandem"><user id="a.b.did" cidr="127.0.0.0/8"/><user id="c.d.any" cidr="127.0.0.1/32"/></domain>`)
	require.Equal(t, "+OK [Success]\n", c.api("reloadxml"))
	require.Empty(t, token())
	require.Equal(t, "+OK acl reloaded\n", c.api("reloadacl"))
	require.Equal(t, "c.d.any@tandem", token(), "the longest prefix wins")
}

func TestGateways(t *testing.T) {
	t.Parallel()
	dir := layOut(t, captureFiles())
	s := start(t, simswitch.Config{ConfDir: dir, Speed: 5})
	c := login(t, s.Addr(), password)
	require.Contains(t, c.command("event json CUSTOM sofia::gateway_state sofia::gateway_add sofia::gateway_delete"), "+OK")
	awaitGateway(t, c, "acme-out", "REGED")
	awaitGateway(t, c, "acme-bad", "FAIL_WAIT")
	awaitGateway(t, c, "acme-noreg", "NOREG")
	all := c.api("sofia xmlstatus gateway")
	require.Equal(t, 3, strings.Count(all, "<gateway>"))
	require.Equal(t, 2, strings.Count(all, "<status>UP</status>"))

	// A rescan does not replace a gateway that is loaded.
	write(t, dir, "tandem/gateways/acme-bad.xml", gatewayFile("acme-bad", "right", "true"))
	require.Equal(t, "Reload XML [Success]\n+OK scan complete\n", c.api("sofia profile external rescan"))
	e := c.await("another refusal", func(e map[string]string) bool { return e["Gateway"] == "acme-bad" && e["State"] == "FAILED" })
	require.Equal(t, "403", e["Status"])
	require.Equal(t, "DOWN", e["Ping-Status"])

	// killgw and a rescan do.
	require.Equal(t, "+OK gateway marked for deletion.\n", c.api("sofia profile external killgw acme-bad"))
	require.Equal(t, "Invalid Gateway!\n", c.api("sofia xmlstatus gateway acme-bad"))
	require.Equal(t, "-ERR no such gateway.\n", c.api("sofia profile external killgw acme-bad"))
	require.Contains(t, c.api("sofia profile external rescan"), "+OK scan complete")
	awaitGateway(t, c, "acme-bad", "REGED")
	c.await("its end", func(e map[string]string) bool {
		return e["Event-Subclass"] == "sofia::gateway_delete" && e["Gateway"] == "acme-bad"
	})
	c.await("its return", func(e map[string]string) bool {
		return e["Event-Subclass"] == "sofia::gateway_state" && e["Gateway"] == "acme-bad" && e["State"] == "REGED" && e["Ping-Status"] == "UP"
	})

	// A wrong file leaves everything as it is.
	write(t, dir, "tandem/gateways/wrong.xml", "<gateway")
	require.Contains(t, c.api("sofia profile external rescan"), "Reload XML [tandem/gateways/wrong.xml:1: ")
	require.Equal(t, 3, strings.Count(c.api("sofia xmlstatus gateway"), "<gateway>"))
}
