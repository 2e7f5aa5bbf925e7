package dialplan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hostile are values that mean something somewhere on the way from our file to the switch's memory.
var hostile = []string{
	"plain", "", " ", "  two  spaces  ", "O'Brien & Söhne <x>", `"quoted"`, "100%", "a;b,c|d",
	"${system(touch /tmp/x)}", "$${x}", "$$", "$", "$${${x}}", "$${", "&#36;", "&amp;", "&amp;#36;{x}", "&unknown;", "&",
	`<X-PRE-PROCESS cmd="exec" data="touch /tmp/x"/>`, "x-pre-process", "X-PRE-PROCESS", "<!--#exec touch /tmp/x-->", "<!--#", "-->", "<!--",
	"<include>", "</include>", "<?xml", "]]>", "<![CDATA[", `"/><param name="proxy" value="evil"/>`, "\u00a0", "日本語", "\U0001F4DE",
	`back\slash`, `\n\t\'`, "`id`", "{a=b}", "[a=b]", "%24%7Bx%7D", "--", "- -",
}

func TestPreprocessorModelDoesWhatItIsFor(t *testing.T) {
	t.Parallel()
	p := &preprocessor{globals: map[string]string{"x": "EXPANDED"}}
	out := p.run("<include>\n<a b=\"$${x}\"/>\n<X-PRE-PROCESS cmd=\"exec\" data=\"id\"/>\n<c/><!--#exec id--><d/>\n<?xml?>\n")
	require.Equal(t, "<a b=\"EXPANDED\"/>\n<c/><d/>\n", out)
	require.Len(t, p.ran, 2)
}

// survives checks that a value written by attribute reaches the switch as it is and does nothing on its way.
func survives(t *testing.T, value string) {
	t.Helper()
	escaped, err := attribute(value)
	if err != nil {
		return
	}
	root, p, err := load([]byte("<include>\n<param name=\"n\" value=\"" + escaped + "\"/>\n<after/>\n</include>\n"))
	require.NoError(t, err)
	require.Empty(t, p.ran)
	require.False(t, p.comment)
	require.Len(t, root.Children, 2)
	require.Equal(t, map[string]string{"name": "n", "value": value}, root.Children[0].Attrs)
}

func TestAttributeKeepsValues(t *testing.T) {
	t.Parallel()
	for _, value := range hostile {
		_, err := attribute(value)
		require.NoError(t, err, "%q", value)
		survives(t, value)
	}
}

func TestAttributeRefusesWhatCannotBeKept(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"a\nb", "a\r\nb", "a\tb", "\x00", "\x1b[0m", "\x7f", "\xff\xfe", "a\xc3", "\ufffe", "\uffff"} {
		_, err := attribute(value)
		require.Error(t, err, "%q", value)
	}
}

func FuzzAttribute(f *testing.F) {
	for _, value := range hostile {
		f.Add(value)
	}
	f.Fuzz(survives)
}

// FuzzGateway puts hostile text into every field of a trunk: either the trunk is refused, or the switch reads the very fields
// and nothing else.
func FuzzGateway(f *testing.F) {
	for _, value := range hostile {
		f.Add(value, "10.0.0.1", value, value, "", true)
		f.Add("gw", value, "user", "pass", value, false)
		f.Add("gw", "sip.example.com:5061;transport=tls", "user@example.com", value, "example.com", true)
	}
	f.Fuzz(func(t *testing.T, name, proxy, username, password, domain string, register bool) {
		trunk := outbound("trunk_1", "cust_a", name)
		trunk.Proxy, trunk.Username, trunk.Password, trunk.Realm, trunk.FromDomain, trunk.Register = proxy, username, secret(password), username, domain, register
		content, err := renderGateway(&trunk)
		if err != nil {
			require.NotContains(t, strings.ReplaceAll(err.Error(), "password", ""), "hunter2")
			return
		}
		root, p, err := load(content)
		require.NoError(t, err)
		require.Empty(t, p.ran)
		require.Len(t, root.Children, 1)
		gateway := root.Children[0]
		require.Equal(t, map[string]string{"name": name}, gateway.Attrs)
		params := map[string]string{}
		for _, param := range gateway.Children {
			require.Equal(t, "param", param.Name)
			require.NotContains(t, params, param.Attrs["name"])
			params[param.Attrs["name"]] = param.Attrs["value"]
		}
		require.Equal(t, password, params["password"])
		require.Equal(t, username, params["auth-username"])
		require.Regexp(t, `^[A-Za-z0-9%_.!~*'()+-]*$`, params["username"])
		require.Regexp(t, `^(\[[0-9a-f:.]+\]|[A-Za-z0-9.-]+)(:[0-9]+)?(;transport=(udp|tcp|tls))?$`, params["proxy"])
		require.NotContains(t, params["realm"], "<")
		require.Equal(t, entryContext, params["context"])
		require.Equal(t, "3", params["ping-max"])
	})
}
