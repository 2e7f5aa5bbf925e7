package api

import (
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestTrunkLifecycle(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		made := b.post("/v1/trunks", object{
			"name": "Carrier", "proxy": "sip.carrier.example:5060", "username": "user", "password": "canary-password", "realm": "carrier.example",
			"from_domain": "from.example", "is_active": true, "gateway_name": "carrier-a",
		}).is(201)
		require.Regexp(b.t, `^trunk_[0-9a-z]{26}$`, made.str("id"))
		require.Equal(b.t, "outbound", made.str("direction"))
		for _, field := range []string{"password", "realm", "from_domain", "registration_status"} {
			require.NotContains(b.t, made.json(), field)
		}
		require.Equal(b.t, 1, b.dialplan.count())
		path := "/v1/trunks/" + made.str("id")

		stored, err := b.store.Trunk(b.t.Context(), b.customer.ID, made.str("id"))
		require.NoError(b.t, err)
		require.Equal(b.t, "canary-password", string(stored.Password))
		require.Equal(b.t, "from.example", stored.FromDomain)
		require.True(b.t, stored.Register)

		listed := b.get("/v1/trunks").is(200)
		require.Equal(b.t, statusUnknown, listed.data()[0].(object)["registration_status"])
		b.reportGateway(stored.ID, "REGED")
		require.Equal(b.t, "REGED", b.get("/v1/trunks").is(200).data()[0].(object)["registration_status"])
		require.Equal(b.t, "REGED", b.get(path).is(200).str("registration_status"))

		changed := b.patch(path, object{"is_active": false, "password": nil, "register": false, "gateway_name": "carrier-b"}).is(200)
		require.Equal(b.t, false, changed.json()["is_active"])
		require.Equal(b.t, "carrier-b", changed.str("gateway_name"))
		require.Equal(b.t, "Carrier", changed.str("name"))
		require.Equal(b.t, 2, b.dialplan.count())
		stored, err = b.store.Trunk(b.t.Context(), b.customer.ID, made.str("id"))
		require.NoError(b.t, err)
		require.Empty(b.t, string(stored.Password))

		b.delete(path).is(204)
		require.Equal(b.t, 3, b.dialplan.count())
		b.get(path).refused(codeNotFound, "")
		b.patch(path, object{"name": "x"}).refused(codeNotFound, "")
		b.delete(path).refused(codeNotFound, "")
		require.Equal(b.t, 3, b.dialplan.count())
	})
}

func (b *bench) reportGateway(trunkID, state string) {
	b.t.Helper()
	ctx := b.t.Context()
	node := &models.Node{Name: "n", ESLAddr: "127.0.0.1:1", IsActive: true}
	require.NoError(b.t, b.store.CreateNode(ctx, node))
	require.NoError(b.t, b.store.SaveGatewayStatus(ctx, []models.GatewayStatus{{NodeID: node.ID, TrunkID: trunkID, State: state, Status: "UP"}}))
}

func TestInboundTrunk(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		made := b.post("/v1/trunks", object{"name": "PBX", "inbound_ip": "192.0.2.17/28", "application_id": app.ID}).is(201)
		require.Equal(b.t, "inbound", made.str("direction"))
		require.Equal(b.t, "192.0.2.16/28", made.str("inbound_ip"))
		require.Equal(b.t, made.str("id"), made.str("gateway_name"), "the default")
		require.NotContains(b.t, b.get("/v1/trunks/"+made.str("id")).is(200).json(), "registration_status")

		b.post("/v1/trunks", object{"name": "PBX", "inbound_ip": "192.0.2.17"}).refused(codeInboundIPExists, "inbound_ip")
		other := b.post("/v1/trunks", object{"name": "PBX 2", "inbound_ip": "192.0.2.32"}).is(201)
		b.patch("/v1/trunks/"+other.str("id"), object{"inbound_ip": "192.0.2.18"}).refused(codeInboundIPExists, "inbound_ip")
		b.patch("/v1/trunks/"+other.str("id"), object{"inbound_ip": "192.0.2.33", "application_id": app.ID}).is(200)
		b.patch("/v1/trunks/"+other.str("id"), object{"application_id": nil}).is(200)
		b.patch("/v1/trunks/"+other.str("id"), object{"application_id": "app_unknown"}).refused(codeNotFound, "application_id")
		b.patch("/v1/trunks/"+other.str("id"), object{"proxy": "sip.example"}).refused(codeInvalidRequest, "proxy")

		several := b.post("/v1/trunks", object{"name": "PBX 3", "inbound_ips": []string{"198.51.100.9/29", "2001:DB8::7"}}).is(201)
		require.Equal(b.t, []any{"198.51.100.8/29", "2001:db8::7"}, several.json()["inbound_ips"])
		require.Equal(b.t, "198.51.100.8/29", several.str("inbound_ip"))
		b.post("/v1/trunks", object{"name": "PBX 4", "inbound_ips": []string{"203.0.113.1", "198.51.100.15"}}).refused(codeInboundIPExists, "inbound_ip")
		b.patch("/v1/trunks/"+several.str("id"), object{"inbound_ips": nil}).refused(codeInvalidRequest, "inbound_ips")
		changed := b.patch("/v1/trunks/"+several.str("id"), object{"inbound_ip": "198.51.100.9"}).is(200)
		require.Equal(b.t, []any{"198.51.100.9"}, changed.json()["inbound_ips"])
		changed = b.patch("/v1/trunks/"+several.str("id"), object{"inbound_ips": []string{"203.0.113.1", "198.51.100.15"}}).is(200)
		require.Equal(b.t, []any{"203.0.113.1", "198.51.100.15"}, changed.json()["inbound_ips"])
		require.Equal(b.t, changed.json(), b.get("/v1/trunks/"+several.str("id")).is(200).json())
	})
}

func TestTrunkRouting(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		routes := func(r response) object {
			shown := object{}
			for _, field := range routingFields {
				if value, ok := r.json()[field]; ok {
					shown[field] = value
				}
			}
			return shown
		}
		plain := b.post("/v1/trunks", object{"name": "a", "proxy": "a.example"}).is(201)
		require.Equal(b.t, object{"priority": 10.0, "weight": 1.0, "caller_id_policy": "any"}, routes(plain))
		given := object{
			"priority": 0.0, "weight": 40.0, "allowed_prefixes": []any{"+49", "+1202"}, "strip_prefix": "+", "add_prefix": "00",
			"caller_id_policy": "fixed", "caller_id": "+15550100001",
		}
		body := object{"name": "b", "proxy": "b.example"}
		maps.Copy(body, given)
		made := b.post("/v1/trunks", body).is(201)
		require.Equal(b.t, given, routes(made))
		path := "/v1/trunks/" + made.str("id")
		require.Equal(b.t, given, routes(b.get(path).is(200)))
		b.patch(path, object{"caller_id": nil}).refused(codeInvalidRequest, "caller_id")
		changed := b.patch(path, object{"allowed_prefixes": nil, "strip_prefix": "", "add_prefix": "", "caller_id_policy": "own_dids", "caller_id": nil, "priority": 100}).is(200)
		require.Equal(b.t, object{"priority": 100.0, "weight": 40.0, "caller_id_policy": "own_dids"}, routes(changed))
		require.Equal(b.t, changed.json(), b.get(path).is(200).json())
		inbound := b.post("/v1/trunks", object{"name": "c", "inbound_ip": "192.0.2.1"}).is(201)
		require.Empty(b.t, routes(inbound))
		b.patch("/v1/trunks/"+inbound.str("id"), object{"priority": 1}).refused(codeInvalidRequest, "priority")
	})
}

func TestGatewayNameIsUnique(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		b.post("/v1/trunks", object{"name": "a", "proxy": "a.example", "gateway_name": "gw"}).is(201)
		b.post("/v1/trunks", object{"name": "b", "proxy": "b.example", "gateway_name": "gw"}).refused(codeGatewayNameExists, "gateway_name")
		// Among all customers: the nodes are shared.
		foreign := b.newKey(modelstest.Customer(b.t, b.store, 0))
		b.do(exchange{method: "POST", path: "/v1/trunks", key: &foreign, body: object{"name": "b", "proxy": "b.example", "gateway_name": "gw"}}).
			refused(codeGatewayNameExists, "gateway_name")
		second := b.post("/v1/trunks", object{"name": "b", "proxy": "b.example"}).is(201)
		b.patch("/v1/trunks/"+second.str("id"), object{"gateway_name": "gw"}).refused(codeGatewayNameExists, "gateway_name")
		require.Equal(b.t, 2, b.dialplan.count())
	})
}

func TestTrunkRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	with := func(field string, value any) object {
		body := object{"name": "a", "proxy": "sip.example"}
		body[field] = value
		return body
	}
	for name, test := range map[string]struct {
		body           object
		field, message string
	}{
		"no name":            {object{"proxy": "sip.example"}, "name", "name is required"},
		"neither":            {object{"name": "a"}, "proxy", "proxy is required (or inbound_ip, for an inbound trunk)"},
		"both":               {with("inbound_ip", "192.0.2.1"), "inbound_ip", "inbound_ip and proxy cannot both be given: a trunk is either inbound or outbound"},
		"proxy with scheme":  {object{"name": "a", "proxy": "sip:sip.example"}, "proxy", "proxy must be a host name or IP address, with an optional port and ;transport=udp, tcp or tls"},
		"proxy with params":  {object{"name": "a", "proxy": "sip.example;maddr=10.0.0.1"}, "proxy", "proxy must be a host name or IP address, with an optional port and ;transport=udp, tcp or tls"},
		"proxy expands":      {object{"name": "a", "proxy": "${system(touch /tmp/x)}"}, "proxy", "proxy must be a host name or IP address, with an optional port and ;transport=udp, tcp or tls"},
		"proxy port":         {object{"name": "a", "proxy": "sip.example:0"}, "proxy", "proxy must be a host name or IP address, with an optional port and ;transport=udp, tcp or tls"},
		"gateway slash":      {with("gateway_name", "../x"), "gateway_name", "gateway_name may contain only letters, digits, dots, underscores and dashes"},
		"gateway all":        {with("gateway_name", "_ALL_"), "gateway_name", "gateway_name must not be _all_"},
		"gateway empty":      {with("gateway_name", ""), "gateway_name", "gateway_name must not be empty"},
		"gateway long":       {with("gateway_name", strings.Repeat("g", 65)), "gateway_name", "gateway_name must be at most 64 characters long"},
		"gateway newline":    {with("gateway_name", "gw\n"), "gateway_name", "gateway_name may contain only letters, digits, dots, underscores and dashes"},
		"username colon":     {with("username", "a:b"), "username", "username must not contain :"},
		"username blank":     {with("username", "a b"), "username", "username must not contain blanks"},
		"username quote":     {with("username", `a"b`), "username", `username must not contain "`},
		"username break":     {with("username", "a\r\nb"), "username", "username may contain only printable ASCII characters"},
		"password break":     {with("password", "a\nb"), "password", "password may contain only printable ASCII characters"},
		"password alone":     {with("password", "x"), "username", "username is required with a password"},
		"register alone":     {with("register", true), "username", "username is required to register"},
		"realm quote":        {with("realm", `a"b`), "realm", `realm must not contain "`},
		"from_domain":        {with("from_domain", "a b"), "from_domain", "from_domain must be a host name or IP address, with an optional port"},
		"is_active a string": {with("is_active", "yes"), "is_active", "is_active must be a boolean"},
		"application":        {with("application_id", "app_1"), "application_id", "application_id is a field of inbound trunks; this trunk is outbound"},
		"inbound with user":  {object{"name": "a", "inbound_ip": "192.0.2.1", "username": "u"}, "username", "username is a field of outbound trunks; this trunk is inbound"},
		"high priority":      {with("priority", 101), "priority", "priority must be between 0 and 100"},
		"no weight":          {with("weight", 0), "weight", "weight must be between 1 and 100"},
		"no prefixes":        {with("allowed_prefixes", []string{}), "allowed_prefixes", "allowed_prefixes must hold 1 to 1000 prefixes, or be null"},
		"bad prefix":         {with("allowed_prefixes", []string{"+49", "0049"}), "allowed_prefixes[1]", "allowed_prefixes[1] must be the beginning of an E.164 number such as +49"},
		"strips a word":      {with("strip_prefix", "a"), "strip_prefix", "strip_prefix must be a plus and at most 14 digits"},
		"adds an expansion":  {with("add_prefix", "${x}"), "add_prefix", "add_prefix must be at most 16 digits, with a plus before them or none"},
		"unknown policy":     {with("caller_id_policy", "none"), "caller_id_policy", "caller_id_policy must be one of any, own_dids, fixed"},
		"fixed to nothing":   {with("caller_id_policy", "fixed"), "caller_id", "caller_id is required with caller_id_policy fixed"},
		"bad caller id":      {with("caller_id", "anna"), "caller_id", "caller_id must be an E.164 number such as +31201234567"},
		"inbound with prio":  {object{"name": "a", "inbound_ip": "192.0.2.1", "weight": 2}, "weight", "weight is a field of outbound trunks; this trunk is inbound"},
		"both addresses":     {object{"name": "a", "inbound_ip": "192.0.2.1", "inbound_ips": []string{"192.0.2.1"}}, "inbound_ips", "inbound_ip and inbound_ips cannot both be given: inbound_ips holds all of them"},
		"no addresses":       {object{"name": "a", "inbound_ips": []string{}}, "inbound_ips", "inbound_ips must hold 1 to 64 addresses"},
		"many addresses":     {object{"name": "a", "inbound_ips": make([]string, 65)}, "inbound_ips", "inbound_ips must hold 1 to 64 addresses"},
		"one bad address":    {object{"name": "a", "inbound_ips": []string{"192.0.2.1", "x"}}, "inbound_ips[1]", "inbound_ips[1] must be an IP address or a network such as 192.0.2.0/28"},
		"overlap of its own": {object{"name": "a", "inbound_ips": []string{"192.0.2.1", "198.51.100.1", "192.0.2.0/24"}}, "inbound_ips[2]", "inbound_ips[2] overlaps inbound_ips[0]"},
		"proxy and list":     {with("inbound_ips", []string{"192.0.2.1"}), "inbound_ips", "inbound_ips and proxy cannot both be given: a trunk is either inbound or outbound"},
		"bad address":        {object{"name": "a", "inbound_ip": "pbx.example"}, "inbound_ip", "inbound_ip must be an IP address or a network such as 192.0.2.0/28"},
		"wide network":       {object{"name": "a", "inbound_ip": "0.0.0.0/0"}, "inbound_ip", "inbound_ip must not be wider than /16"},
		"wide IPv6 network":  {object{"name": "a", "inbound_ip": "2001::/16"}, "inbound_ip", "inbound_ip must not be wider than /32"},
		"unspecified":        {object{"name": "a", "inbound_ip": "::"}, "inbound_ip", "inbound_ip must be an address that calls can come from"},
	} {
		got := b.post("/v1/trunks", test.body).refused(codeInvalidRequest, test.field)
		require.Equal(t, test.message, got.message(), name)
	}
	b.post("/v1/trunks", object{"name": "a", "inbound_ip": "192.0.2.1", "application_id": "app_unknown"}).refused(codeNotFound, "application_id")
	b.post("/v1/trunks", object{"name": "a", "inbound_ip": "192.0.2.1", "application_id": "\x00"}).refused(codeNotFound, "application_id")
	require.Empty(t, b.get("/v1/trunks").data())
	require.Zero(t, b.dialplan.count())
	for _, proxy := range []string{"sip.example", "192.0.2.1", "[2001:db8::1]:5061", "127.0.0.1:5090", "sip.example;transport=tls"} {
		b.post("/v1/trunks", object{"name": "a", "proxy": proxy}).is(201)
	}
}

func TestListsPage(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		var want []string
		for range 5 {
			want = append([]string{b.post("/v1/trunks", object{"name": "a", "proxy": "sip.example"}).is(201).str("id")}, want...)
		}
		var got []string
		path := "/v1/trunks?limit=2"
		for {
			page := b.get(path).is(200)
			require.Equal(b.t, float64(len(page.data())), page.json()["count"])
			for _, item := range page.data() {
				got = append(got, item.(object)["id"].(string))
			}
			cursor, more := page.json()["next_cursor"].(string)
			require.Equal(b.t, page.json()["has_more"], more)
			if !more {
				break
			}
			path = "/v1/trunks?limit=2&cursor=" + cursor
		}
		require.Equal(b.t, want, got, "newest first, each once")

		for _, limit := range []string{"0", "201", "x", "-1", "", "1e2"} {
			b.get("/v1/trunks?limit="+limit).refused(codeInvalidRequest, "limit")
		}
		b.get("/v1/trunks?limit=200").is(200)
		for _, cursor := range []string{"x", "!!!", "MSAA", "MSD_", "MTIz"} {
			b.get("/v1/trunks?cursor="+cursor).refused(codeInvalidRequest, "cursor")
		}
		b.get("/v1/trunks?limit=1&limit=2").refused(codeInvalidRequest, "limit")
		b.get("/v1/trunks?statsu=1").refused(codeInvalidRequest, "statsu")
	})
}

// TestConcurrentChangesAllCount changes different fields of one object at once: a change writes what it names, and never
// brings back an old value of the rest.
func TestConcurrentChangesAllCount(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		for _, test := range []struct {
			path   string
			make   object
			change []object
		}{
			{"/v1/trunks", object{"name": "a", "proxy": "a.example"}, []object{{"name": "b"}, {"proxy": "b.example"}, {"username": "u"}, {"is_active": false}}},
			{"/v1/dids", object{"number_e164": "+31201234567", "application_id": app.ID}, []object{{"provider": "b"}, {"status": "suspended"}}},
			{"/v1/applications", object{"name": "a", "answer_url": "https://a.example/"},
				[]object{{"name": "b"}, {"answer_url": "https://b.example/"}, {"webhook_url": "https://c.example/"}, {"fallback_url": "https://d.example/"}}},
		} {
			path := test.path + "/" + b.post(test.path, test.make).is(201).str("id")
			var wg sync.WaitGroup
			for _, change := range test.change {
				wg.Go(func() { b.patch(path, change).is(200) })
			}
			wg.Wait()
			got := b.get(path).json()
			for _, change := range test.change {
				for field, value := range change {
					require.Equal(b.t, value, got[field], "%s %s", path, field)
				}
			}
		}
	})
}
