package dialplan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

func document1(t *testing.T, in Input, path string) []byte {
	t.Helper()
	rendering, err := Render(in)
	require.NoError(t, err)
	require.Contains(t, rendering.Files, path)
	return rendering.Files[path]
}

func TestDescribeSaysWhatDiffersAndNoSecret(t *testing.T) {
	t.Parallel()
	trunk := outbound("trunk_1", "cust_a", "one")
	trunk.Password = "hunter-two-and-a-half"
	before := document1(t, Input{Trunks: []models.Trunk{trunk}}, gatewayPath("one"))
	trunk.Password, trunk.Proxy, trunk.Realm = "another secret", "sip2.example:5070", ""
	after := document1(t, Input{Trunks: []models.Trunk{trunk}}, gatewayPath("one"))
	lines := describe(before, after)
	require.Contains(t, lines, "password changed")
	require.Contains(t, lines, `proxy changed from "sip.example.com" to "sip2.example:5070"`)
	for _, line := range lines {
		require.NotContains(t, line, "hunter")
		require.NotContains(t, line, "another")
	}

	one, two := number("did_1", "cust_a", "+15550001567"), number("did_2", "cust_a", "+15550002567")
	before = document1(t, Input{DIDs: []models.DID{one, two}}, shardPath("567"))
	one.RouteMode, one.RejectCode = models.RouteReject, 486
	three := number("did_3", "cust_a", "+15550003567")
	after = document1(t, Input{DIDs: []models.DID{one, three}}, shardPath("567"))
	require.Equal(t, []string{"number did_567 did_1 changed", "number did_567 did_2 removed", "number did_567 did_3 added"}, describe(before, after))

	before = document1(t, Input{Trunks: []models.Trunk{inbound("trunk_1", "cust_a", "192.0.2.1", "")}}, sourcePath)
	after = document1(t, Input{Trunks: []models.Trunk{inbound("trunk_1", "cust_a", "192.0.2.1", ""), inbound("trunk_2", "cust_b", "192.0.2.2", "app_b")}}, sourcePath)
	require.Equal(t, []string{"source cust_b.trunk_2.any added"}, describe(before, after))

	require.Nil(t, describe(nil, after))
	require.Nil(t, describe(after, nil))
	require.Nil(t, describe(after, after))
	require.Equal(t, []string{"is no document of ours any more"}, describe([]byte("<include"), after))
	require.Equal(t, []string{"differs in what is between its parts"}, describe(after, append([]byte("<!-- mine -->\n"), after...)))
}

func TestSameXML(t *testing.T) {
	t.Parallel()
	const text = `<include>
<context name="did_567">
  <extension name="did_1">
    <condition field="destination_number" expression="^[+]15550001567$"/>
    <action application="respond" data="403 &#60;a&#45;b&#62;"/>
  </extension>
</context>
</include>`
	for _, same := range []string{
		text,
		`<context name="did_567"><extension name="did_1"><condition expression="^[+]15550001567$" field="destination_number"></condition><action data="403 &lt;a-b&gt;" application="respond"/></extension></context>`,
	} {
		require.True(t, sameXML([]byte(text), []byte(same)), same)
	}
	for _, other := range []string{
		"", "<context", `<context name="did_567"/>`,
		`<context name="did_567"><extension name="did_1"><condition expression="^[+]15550001567$" field="destination_number"/><action application="respond" data="403"/></extension></context>`,
		text + text,
	} {
		require.False(t, sameXML([]byte(text), []byte(other)), other)
	}
	require.Equal(t, `<context name="b"><x/></context>`, string(contextOf([]byte("<include>\n<context name=\"a\"></context>\n<context name=\"b\"><x/></context>\n</include>"), "b")))
	require.Nil(t, contextOf([]byte("<include></include>"), "b"))
	require.Nil(t, contextOf([]byte("<include><context name=\"b\">"), "b"))
}

func FuzzDescribe(f *testing.F) {
	f.Add([]byte("<include>\n<gateway name=\"a\">\n<param name=\"password\" value=\"s3cr3t-value\"/>\n</gateway>\n</include>\n"), []byte("<include></include>"))
	f.Add([]byte("<context name='public'><extension name=\"a\"></extension></context>"), []byte(""))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		describe(before, after)
		require.Equal(t, sameXML(before, after), sameXML(after, before))
		contextOf(before, "public")
	})
}
