package api

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/dialplan"
	"tandem/models"
	"tandem/models/modelstest"
)

// Where the carrier is, what it is offered and how much of it, and that each is refused by its name where it is wrong.
func TestTrunkEndpointCodecsAndLimits(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		made := b.post("/v1/trunks", object{
			"name": "a", "proxy": "a.example", "transport": "tls", "port": 5071, "codecs": []string{"pcma", "OPUS", "amr-wb"}, "max_calls": 30, "max_calls_per_second": 5,
		}).is(201)
		shown := func(r response) []any {
			j := r.json()
			return []any{j["transport"], j["port"], j["codecs"], j["max_calls"], j["max_calls_per_second"]}
		}
		require.Equal(b.t, []any{"tls", 5071.0, []any{"PCMA", "OPUS", "AMR-WB"}, 30.0, 5.0}, shown(made))
		path := "/v1/trunks/" + made.str("id")
		require.Equal(b.t, shown(made), shown(b.get(path).is(200)))
		changed := b.patch(path, object{"transport": nil, "codecs": nil, "max_calls": nil}).is(200)
		require.Equal(b.t, []any{nil, 5071.0, nil, nil, 5.0}, shown(changed))
		b.patch(path, object{"proxy": "a.example:5060"}).refused(codeInvalidRequest, "port")
		b.patch(path, object{"proxy": "a.example:5060", "port": nil}).is(200)
		b.patch(path, object{"transport": "tcp"}).is(200)
		b.patch(path, object{"proxy": "a.example;transport=udp"}).refused(codeInvalidRequest, "transport")

		for field, bad := range map[string]object{
			"transport":            {"proxy": "b.example", "transport": "sctp"},
			"port":                 {"proxy": "b.example", "port": 65536},
			"codecs":               {"proxy": "b.example", "codecs": []string{}},
			"codecs[1]":            {"proxy": "b.example", "codecs": []string{"PCMA", "pcma"}},
			"codecs[0]":            {"proxy": "b.example", "codecs": []string{"PCMA]bridge"}},
			"max_calls":            {"proxy": "b.example", "max_calls": 0},
			"max_calls_per_second": {"proxy": "b.example", "max_calls_per_second": 10_001},
		} {
			bad["name"] = "b"
			b.post("/v1/trunks", bad).refused(codeInvalidRequest, field)
		}
		for _, field := range []string{"transport", "port", "codecs"} {
			value := map[string]any{"transport": "udp", "port": 5060, "codecs": []string{"PCMA"}}[field]
			b.post("/v1/trunks", object{"name": "in", "inbound_ip": "192.0.2.77", field: value}).refused(codeInvalidRequest, field)
		}
		inbound := b.post("/v1/trunks", object{"name": "in", "inbound_ip": "192.0.2.77", "max_calls": 2}).is(201)
		require.Equal(b.t, 2.0, inbound.json()["max_calls"])
	})
}

func TestTrunkStatusAndHistory(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		ctx := b.t.Context()
		trunk := modelstest.OutboundTrunk(b.t, b.store, b.customer)
		trunk.Register = true
		require.NoError(b.t, b.store.UpdateTrunk(ctx, trunk))
		path := "/v1/trunks/" + trunk.ID
		status := b.get(path + "/status").is(200)
		require.Equal(b.t, []any{statusUnknown, statusUnknown, []any{}}, []any{status.str("registration_status"), status.str("ping_status"), status.json()["nodes"]})
		require.Equal(b.t, statusUnknown, b.get(path).is(200).str("ping_status"))

		one, two := modelstest.Node(b.t, b.store), modelstest.Node(b.t, b.store)
		at := b.store.Now().Add(-time.Minute)
		report := func(node *models.Node, state, ping string, registered bool) {
			b.t.Helper()
			at = at.Add(time.Second)
			require.NoError(b.t, b.store.RecordGateways(ctx, []models.GatewayReport{{
				GatewayStatus: models.GatewayStatus{NodeID: node.ID, TrunkID: trunk.ID, State: state, Status: ping, PingMS: 12.5, UpdatedAt: at}, Registered: &registered,
			}}, func(context.Context, *models.Store, models.RegistrationChange) error { return nil }))
		}
		report(one, "REGED", "UP", true)
		report(two, "REGED", "UP", true)
		report(two, "FAIL_WAIT", "DOWN", false)
		require.NoError(b.t, b.store.DropGatewayStatuses(ctx, one.ID, b.store.Now()))
		status = b.get(path + "/status").is(200)
		require.Equal(b.t, []any{"FAIL_WAIT", "DOWN"}, []any{status.str("registration_status"), status.str("ping_status")})
		require.Equal(b.t, object{"last_hour": 2.0, "last_day": 2.0}, status.json()["flaps"])
		nodes := map[any]object{}
		for _, node := range status.json()["nodes"].([]any) {
			nodes[node.(object)["node_id"]] = node.(object)
		}
		require.Len(b.t, nodes, 2)
		away, failing := nodes[one.ID], nodes[two.ID]
		require.Equal(b.t, []any{statusUnknown, statusUnknown, nil, true}, []any{away["registration_status"], away["ping_status"], away["reported_at"], away["registered"]})
		require.Equal(b.t, []any{"FAIL_WAIT", "DOWN", 12.5, stamp(at), false, stamp(at)},
			[]any{failing["registration_status"], failing["ping_status"], failing["ping_ms"], failing["reported_at"], failing["registered"], failing["registered_since"]})
		require.Equal(b.t, "DOWN", b.get(path).is(200).str("ping_status"))

		history := b.get(path + "/history?limit=2").is(200)
		require.Equal(b.t, true, history.json()["has_more"])
		require.Len(b.t, history.data(), 2)
		first := history.data()[0].(object)
		require.Equal(b.t, []any{two.ID, false, true}, []any{first["node_id"], first["up"], first["flap"]})

		b.get("/v1/trunks/trunk_none/status").refused(codeNotFound, "")
		b.get("/v1/trunks/trunk_none/history").refused(codeNotFound, "")
		b.post("/v1/trunks/trunk_none/test", nil).refused(codeNotFound, "")
	})
}

func TestTrunkTest(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		trunk := modelstest.OutboundTrunk(b.t, b.store, b.customer)
		path := "/v1/trunks/" + trunk.ID + "/test"
		report := b.post(path, nil).is(200)
		require.Equal(b.t, []any{trunk.ID, "warning", 1500.0}, []any{report.str("trunk_id"), report.str("outcome"), report.json()["duration_ms"]})
		steps := report.json()["steps"].([]any)
		require.Equal(b.t, object{
			"step": "dns", "outcome": "ok", "summary": "The proxy is there.", "evidence": []any{"A carrier.example: 192.0.2.1"}, "duration_ms": 0.0,
		}, steps[0])
		require.Equal(b.t, []any{}, steps[1].(object)["evidence"])
		b.post(path, object{"to": "+4930123456", "from": "+15550100001", "timeout": 20}).is(200)
		require.Equal(b.t, []dialplan.TrunkTest{{}, {To: "+4930123456", From: "+15550100001", Ring: 20 * time.Second}}, b.dialplan.tested)
		for field, bad := range map[string]object{
			"to": {"to": "030 123"}, "from": {"from": "x"}, "timeout": {"timeout": 4}, "number": {"number": "+4930123456"},
		} {
			b.post(path, bad).refused(codeInvalidRequest, field)
		}
		b.dialplan.busy = true
		b.post(path, nil).refused(codeRateLimited, "")
		inbound := modelstest.InboundTrunk(b.t, b.store, b.customer, nil)
		b.post("/v1/trunks/"+inbound.ID+"/test", nil).refused(codeInvalidRequest, "id")
		other := modelstest.OutboundTrunk(b.t, b.store, modelstest.Customer(b.t, b.store, 0))
		b.post("/v1/trunks/"+other.ID+"/test", nil).refused(codeNotFound, "")
	})
}
