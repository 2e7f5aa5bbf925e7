package api

import (
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
