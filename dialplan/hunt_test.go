package dialplan

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

// world is a model of the switch: the access list and the dialplan as the documents give them.
type world struct {
	users    map[netip.Prefix]*element
	contexts map[string]*element
	taken    string // the switch's tandem_accept
}

func newWorld(t *testing.T, files Files) world {
	t.Helper()
	w := world{users: map[netip.Prefix]*element{}, contexts: map[string]*element{}, taken: "true"}
	for path, content := range files {
		root, p, err := load(content)
		require.NoError(t, err, path)
		require.Empty(t, p.ran, path)
		for _, user := range root.all("user") {
			prefix := netip.MustParsePrefix(user.Attrs["cidr"])
			require.Nil(t, w.users[prefix], "one user per network")
			w.users[prefix] = user
		}
		for _, context := range root.all("context") {
			require.Nil(t, w.contexts[context.Attrs["name"]], "one context of a name")
			w.contexts[context.Attrs["name"]] = context
		}
	}
	return w
}

// token is the access list: the longest prefix wins (switch_utils.c, switch_network_list_validate_ip_port_token).
func (w world) token(address string) string {
	addr := netip.MustParseAddr(address).Unmap()
	best, token := -1, ""
	for prefix, user := range w.users {
		if prefix.Contains(addr) && prefix.Bits() > best {
			best, token = prefix.Bits(), user.Attrs["id"]+"@tandem"
		}
	}
	return token
}

// call hunts as mod_dialplan_xml does and returns the application that the call ends in; transfers are followed.
func (w world) call(t *testing.T, address, destination string) (application, data, at string) {
	t.Helper()
	token := w.token(address)
	context := entryContext
	for range 3 {
		require.NotNil(t, w.contexts[context], context)
		application, data = w.hunt(t, context, destination, token)
		if application != "transfer" {
			return application, data, destination
		}
		parts := strings.Fields(data)
		require.Len(t, parts, 3)
		require.Equal(t, "XML", parts[1])
		destination, context = parts[0], parts[2]
	}
	require.Fail(t, "transferred for ever")
	return "", "", ""
}

func (w world) hunt(t *testing.T, context, destination, token string) (application, data string) {
	t.Helper()
	for _, extension := range w.contexts[context].Children {
		require.Equal(t, "extension", extension.Name)
		var groups []string
		matched := true
		for i, condition := range extension.Children {
			field := condition.Attrs["field"]
			value, known := map[string]string{
				"": "", "destination_number": destination, "${acl_token}": token, "${tandem_accept}": w.taken, "${tandem_accept}.${acl_token}": w.taken + "." + token,
			}[field]
			require.True(t, known, field)
			groups = regexp.MustCompile(condition.Attrs["expression"]).FindStringSubmatch(value)
			if condition.Attrs["field"] != "" && groups == nil {
				matched = false
				break
			}
			require.Equal(t, i == len(extension.Children)-1, len(condition.Children) == 1, "one action, in the last condition")
		}
		if !matched {
			continue
		}
		conditions := extension.Children
		action := conditions[len(conditions)-1].Children[0]
		data := action.Attrs["data"]
		for i := len(groups) - 1; i > 0; i-- {
			data = strings.ReplaceAll(data, "$"+strconv.Itoa(i), groups[i])
		}
		return action.Attrs["application"], data
	}
	require.Fail(t, "the hunt found nothing", "%s in %s", destination, context)
	return "", ""
}

func TestWhoMayCallWhat(t *testing.T) {
	t.Parallel()
	in := example()
	in.Trunks = append(in.Trunks,
		inbound("trunk_20", "cust_b", "203.0.113.40", ""),             // beside the customer's other trunk, which has an application
		inbound("trunk_21", "cust_z", "198.51.0.0/16", "app_z"),       // around a provider's network
		inbound("trunk_22", "cust_z", "::ffff:203.0.113.50", "app_z"), // IPv4 in IPv6's clothes
	)
	rendering, err := Render(in)
	require.NoError(t, err)
	w := newWorld(t, rendering.Files)
	const (
		ofA, ofB, ofBAny, ofZAny, provider, provider6, stranger = "203.0.113.7", "203.0.113.40", "2001:db8:1::9", "198.51.1.1", "198.51.100.200", "2001:db8:ffff::1", "203.0.113.99"
	)
	cases := []struct{ from, number, application, data, at string }{
		{ofA, "+15550001567", "park", "", "+15550001567"},
		{ofA, "15550001567", "park", "", "+15550001567"},
		{ofA, "0015550001567", "park", "", "+15550001567"},
		{ofA, "+15550002567", "bridge", "sofia/external/sip:alice@pbx.example.com:5061;transport=tcp", "+15550002567"},
		{ofA, "+15550003567", "respond", refuseUnknown, "+15550003567"}, // another customer's
		{ofA, "+15550004567", "respond", refuseUnknown, "+15550004567"}, // nobody's, in a shard that exists
		{ofA, "+15550004111", "respond", refuseUnknown, "+15550004111"}, // nobody's, in one that does not
		{ofA, "+4930123499", "respond", refuseSuspended, "+4930123499"},
		{ofA, "1001", "respond", refuseUnknown, "1001"},
		{ofA, "alice", "respond", refuseUnknown, "alice"},
		{ofA, "", "respond", refuseUnknown, ""},
		{ofB, "+15550003567", "respond", "486", "+15550003567"},
		{ofB, "+4930123456", "respond", "603", "+4930123456"},
		{ofB, "+15550001567", "respond", refuseUnknown, "+15550001567"},
		{ofBAny, "+15550003567", "respond", "486", "+15550003567"}, // its own number keeps its route
		{ofBAny, "+15550001567", "park", "", "+15550001567"},       // for its own application, not for the number's owner
		{ofBAny, "+15550004567", "park", "", "+15550004567"},
		{ofBAny, "+15550004111", "park", "", "+15550004111"},
		{ofBAny, "4930999999", "park", "", "+4930999999"},
		{ofBAny, "100", "park", "", "100"},
		{ofBAny, "030123456", "park", "", "030123456"},
		{ofBAny, "0015550003567", "respond", "486", "+15550003567"},
		{ofBAny, "+100", "respond", refuseUnknown, "+100"},
		{ofBAny, "*97", "respond", refuseUnknown, "*97"},
		{ofBAny, "100x", "respond", refuseUnknown, "100x"},
		{ofB, "100", "respond", refuseUnknown, "100"},
		{provider, "100", "respond", refuseUnknown, "100"},
		{ofZAny, "+15550001567", "park", "", "+15550001567"},
		{"203.0.113.50", "+15550001567", "park", "", "+15550001567"},
		{"::ffff:203.0.113.50", "+15550001567", "park", "", "+15550001567"},
		{provider, "+15550001567", "park", "", "+15550001567"},
		{provider, "+15550003567", "respond", "486", "+15550003567"},
		{provider, "+15550004111", "respond", refuseUnknown, "+15550004111"},
		{provider6, "+15550002567", "bridge", "sofia/external/sip:alice@pbx.example.com:5061;transport=tcp", "+15550002567"},
		{"192.0.2.1", "+15550001567", "park", "", "+15550001567"},
		{stranger, "+15550001567", "respond", refuseUninvited, "+15550001567"},
		{stranger, "+15550004111", "respond", refuseUninvited, "+15550004111"},
		{"2001:db8:2::1", "alice", "respond", refuseUninvited, "alice"},
	}
	for _, c := range cases {
		application, data, at := w.call(t, c.from, c.number)
		require.Equal(t, []string{c.application, c.data, c.at}, []string{application, data, at}, "%s calls %s", c.from, c.number)
	}
	// While nobody takes calls, nothing is parked; what needs no controller is as always. Whether a number exists cannot be said
	// then: an application of the trunk's might know it.
	for _, w.taken = range []string{"", "false"} {
		for _, c := range cases {
			application, data, _ := w.call(t, c.from, c.number)
			switch {
			case c.application == "park":
				require.Equal(t, []string{"respond", refuseUnsteered}, []string{application, data}, "%s calls %s", c.from, c.number)
			case c.data == refuseUnknown:
				require.Equal(t, "respond", application)
				require.Contains(t, []string{refuseUnknown, refuseUnsteered}, data, "%s calls %s", c.from, c.number)
			default:
				require.Equal(t, []string{c.application, c.data}, []string{application, data}, "%s calls %s", c.from, c.number)
			}
		}
	}
	require.Equal(t, "provider.2.did@tandem", w.token(provider), "a provider wins over a trunk around it")
}

// TestNoContextHoldsEveryone checks what makes reloads cheap: no list of siblings grows with trunks or numbers alone.
func TestNoContextHoldsEveryone(t *testing.T) {
	t.Parallel()
	in := Input{DIDs: manyDIDs(5000)}
	for i := range 5000 {
		in.Trunks = append(in.Trunks, inbound(fmt.Sprintf("trunk_%d", i), fmt.Sprintf("cust_%04d", i), fmt.Sprintf("10.%d.%d.1", i/250, i%250), ""))
	}
	rendering, err := Render(in)
	require.NoError(t, err)
	require.Empty(t, rendering.Problems)
	w := newWorld(t, rendering.Files)
	require.Len(t, w.users, 5000)
	require.Len(t, w.contexts, 1000+2)
	for name, context := range w.contexts {
		require.LessOrEqual(t, len(context.Children), 5+3, name)
	}
	root, _, err := load(rendering.Files[sourcePath])
	require.NoError(t, err)
	for _, users := range root.all("users") {
		require.Less(t, len(users.Children), 300)
	}
	for _, did := range in.DIDs[:100] {
		application, _, _ := w.call(t, fmt.Sprintf("10.%d.%d.1", indexOf(did)/250, indexOf(did)%250), did.NumberE164)
		require.Equal(t, "park", application)
	}
}

func indexOf(did models.DID) int {
	i, _ := strconv.Atoi(strings.TrimPrefix(did.CustomerID, "cust_"))
	return i
}

func TestEndingsMatchExactlyTheirShards(t *testing.T) {
	t.Parallel()
	for _, shards := range [][]string{{"000"}, {"001", "002", "019", "999"}, {"120", "121", "122"}} {
		expression := regexp.MustCompile("^(?:" + endings(shards) + ")$")
		for n := range 1000 {
			shard := fmt.Sprintf("%03d", n)
			require.Equal(t, strings.Contains(strings.Join(shards, " "), shard), expression.MatchString(shard), shard)
		}
	}
}
