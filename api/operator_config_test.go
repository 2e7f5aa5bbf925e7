package api

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/dialplan"
	"tandem/models"
	"tandem/models/modelstest"
)

// Documents makes the counter of changes one that has documents, too.
func (c *countedChanges) Documents(_ context.Context, named []string) ([]string, map[string][]byte, []dialplan.Problem, error) {
	contents := map[string][]byte{}
	for _, path := range named {
		if path == "tandem/gateways/acme.xml" {
			contents[path] = []byte("<include/>\n")
		}
	}
	return []string{"tandem/dialplan/public.xml", "tandem/gateways/acme.xml"}, contents, []dialplan.Problem{{Kind: "trunk", ID: "trunk_1", Message: "proxy is no host"}}, nil
}

func TestOperatorConfig(t *testing.T) {
	t.Parallel()
	onBothAsOperator(t, func(b *bench) {
		all := b.get("/operator/v1/config").is(http.StatusOK).json()
		require.Equal(t, []any{"tandem/dialplan/public.xml", "tandem/gateways/acme.xml"}, all["paths"])
		require.Equal(t, []any{map[string]any{"kind": "trunk", "id": "trunk_1", "message": "proxy is no host"}}, all["problems"])
		document := b.get("/operator/v1/config/document?path=tandem/gateways/acme.xml").is(http.StatusOK).json()
		require.Equal(t, "<include/>\n", document["content"])
		b.get("/operator/v1/config/document?path=../../etc/passwd").refused(codeNotFound, "path")
		b.get("/operator/v1/config/document").refused(codeInvalidRequest, "path")
	})
}

func TestOperatorOrders(t *testing.T) {
	t.Parallel()
	onBothAsOperator(t, func(b *bench) {
		ctx := t.Context()
		node, other := modelstest.Node(b.t, b.store), modelstest.Node(b.t, b.store)
		path := "/operator/v1/nodes/" + node.Name + "/orders"
		for _, bad := range []object{{}, {"kind": "dance"}, {"kind": "diff", "prune": true}, {"kind": "apply", "why": "x"}} {
			b.post(path, bad).is(http.StatusBadRequest)
		}
		b.post("/operator/v1/nodes/nobody/orders", object{"kind": "diff"}).refused(codeNotFound, "")

		asked := b.post(path, object{"kind": "diff"}).is(http.StatusAccepted).json()
		require.Nil(b.t, asked["done_at"])
		open, err := b.store.OpenOrders(ctx)
		require.NoError(b.t, err)
		require.Len(b.t, open, 1)
		id := asked["id"].(string)
		require.NoError(b.t, b.store.FinishOrder(ctx, id, []byte(`{"changes":[{"op":"change","kind":"gateway","name":"acme","path":"tandem/gateways/acme.xml",
			"details":["password changed"],"effect":"killgw + rescan","live_calls":["call_1"]},{"op":"unload","kind":"gateway","name":"x","effect":"killgw"}],"unseen":7}`), ""))
		done := b.get(path + "/" + id).is(http.StatusOK).json()
		require.NotNil(b.t, done["done_at"])
		changes := done["changes"].([]any)
		require.Len(b.t, changes, 2)
		require.Equal(b.t, []any{"call_1"}, changes[0].(map[string]any)["live_calls"])
		require.Equal(b.t, []any{}, changes[1].(map[string]any)["details"])
		require.Contains(b.t, done["note"], "7 contexts")
		b.get("/operator/v1/nodes/"+other.Name+"/orders/"+id).refused(codeNotFound, "")
		b.get(path+"/order_none").refused(codeNotFound, "")

		id = b.post(path, object{"kind": "apply", "prune": true}).is(http.StatusAccepted).json()["id"].(string)
		require.NoError(b.t, b.store.FinishOrder(ctx, id, []byte(`{"Written":["a.xml"],"Killed":["x"]}`), "the switch is away"))
		done = b.get(path + "/" + id).is(http.StatusOK).json()
		require.Equal(b.t, []any{[]any{"a.xml"}, []any{}, []any{"x"}, "the switch is away"}, []any{done["written"], done["removed"], done["unloaded"], done["error"]})

		for _, kind := range []string{"strays", "reap"} {
			id = b.post(path, object{"kind": kind}).is(http.StatusAccepted).str("id")
			require.Equal(b.t, []any{}, b.get(path + "/" + id).is(http.StatusOK).json()["strays"])
			require.NoError(b.t, b.store.FinishOrder(ctx, id, []byte(`[{"kind":"gone","call_id":"call_1","channel_id":"a"},{"kind":"stale","call_id":"","channel_id":"b"}]`), ""))
			require.Equal(b.t, []any{
				object{"kind": "gone", "call_id": "call_1", "channel_id": "a"}, object{"kind": "stale", "call_id": nil, "channel_id": "b"},
			}, b.get(path + "/" + id).is(http.StatusOK).json()["strays"])
		}
		b.post(path, object{"kind": "reap", "prune": true}).refused(codeInvalidRequest, "prune")
		b.post(path, object{"kind": "exec"}).refused(codeInvalidRequest, "kind")

		_, err = b.store.RecordDrifts(ctx, node.ID, []string{models.DriftGatewayUnknown}, []models.Drift{{Kind: models.DriftGatewayUnknown, Name: "x"}}, nil)
		require.NoError(b.t, err)
		drifts := b.get("/operator/v1/nodes/" + node.Name + "/drifts").is(http.StatusOK).data()
		require.Len(b.t, drifts, 1)
		require.Equal(b.t, "gateway_unknown", drifts[0].(map[string]any)["kind"])
	})
}

// TestOperatorExec: a command for a switch, and what it said, are for admins only, and the command is in the audit trail.
func TestOperatorExec(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		admin, operator := operatorBench(b, models.RoleAdmin), operatorBench(b, models.RoleOperator)
		node := modelstest.Node(b.t, b.store)
		path := "/operator/v1/nodes/" + node.Name
		for _, bad := range []object{{}, {"command": " "}, {"command": "status\nshutdown"}, {"command": "a\x00b"}, {"command": strings.Repeat("x", maxSwitchCommand+1)}} {
			admin.post(path+"/exec", bad).refused(codeInvalidRequest, "command")
		}
		operator.post(path+"/exec", object{"command": "status"}).refused(codeForbidden, "")
		id := admin.post(path+"/exec", object{"command": " sofia status "}).is(http.StatusAccepted).str("id")
		open, err := b.store.OpenOrders(b.t.Context())
		require.NoError(b.t, err)
		require.Equal(b.t, "sofia status", open[0].Command)
		require.NoError(b.t, b.store.FinishOrder(b.t.Context(), id, []byte(`{"Text":"a secret","Truncated":true}`), ""))
		done := admin.get(path + "/orders/" + id).is(http.StatusOK).json()
		require.Equal(b.t, []any{"exec", "a secret", true}, []any{done["kind"], done["reply"], done["truncated"]})
		operator.get(path+"/orders/"+id).refused(codeNotFound, "")
		entries := b.trail(models.AuditFilter{Action: "execOnNode"})
		require.Len(b.t, entries, 1)
		require.Contains(b.t, string(entries[0].Detail), "sofia status")
	})
}

func TestNodeDeliveryIsChecked(t *testing.T) {
	t.Parallel()
	b := operatorBench(newBench(t, modelstest.Open(t), Config{}), models.RoleAdmin)
	node := func(name, delivery, folder string) object {
		return object{"name": name, "esl_addr": "127.0.0.1:8021", "esl_password": "pw", "conf_dir": folder, "delivery": delivery}
	}
	made := b.post("/operator/v1/nodes", node("remote", "xml_curl", "/etc/freeswitch/")).is(http.StatusCreated).json()
	require.Equal(t, []any{"xml_curl", "/etc/freeswitch"}, []any{made["delivery"], made["conf_dir"]}, "a folder that nobody here sees")
	for _, bad := range []object{
		node("bad", "pigeon", "/etc/freeswitch"), node("bad", "xml_curl", "etc"), node("bad", "xml_curl", "/etc/my conf"), node("bad", "xml_curl", "/a|b"), node("bad", "xml_curl", "/"),
		node("bad", "files", "/etc/no/such/folder/here"),
	} {
		b.post("/operator/v1/nodes", bad).is(http.StatusBadRequest)
	}
	local := node("local", "files", t.TempDir())
	delete(local, "delivery")
	require.Equal(t, "files", b.post("/operator/v1/nodes", local).is(http.StatusCreated).json()["delivery"])

	// The folder of a remote node stays a path of its own, and nothing that would be syntax in a command to its switch.
	changed := b.patch("/operator/v1/nodes/remote", object{"conf_dir": "/srv/freeswitch/"}).is(http.StatusOK).json()
	require.Equal(t, "/srv/freeswitch", changed["conf_dir"], "a folder that nobody here sees")
	here := filepath.Join(t.TempDir(), "my conf|b")
	require.NoError(t, os.Mkdir(here, 0o700))
	b.patch("/operator/v1/nodes/remote", object{"conf_dir": here}).refused(codeInvalidRequest, "conf_dir")
	b.patch("/operator/v1/nodes/remote", object{"conf_dir": "srv"}).refused(codeInvalidRequest, "conf_dir")
}
