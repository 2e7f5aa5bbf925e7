package api

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestOperatorMoney creates a customer, pays in once per key, and refuses what is no amount.
func TestOperatorMoney(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		b := operatorBench(newBench(t, store, Config{Currency: "EUR"}), models.RoleAdmin)
		made := b.post("/operator/v1/customers", object{"name": "Acme", "balance": "12.5"}).is(201)
		require.Equal(t, []string{"12.50", "0.00", "12.50", "EUR"}, []string{made.str("balance"), made.str("held"), made.str("available"), made.str("currency")})
		credits := "/operator/v1/customers/" + made.str("id") + "/credits"
		for range 2 {
			paid := b.post(credits, object{"amount": "0.000001", "key": "invoice-1", "note": "thanks"}).is(201)
			require.Equal(t, []string{"0.000001", "12.500001"}, []string{paid.str("amount"), paid.str("balance")})
		}
		var told []string
		for _, entry := range b.get("/operator/v1/audit?action=creditCustomer").is(200).data() {
			told = append(told, fmt.Sprint(entry.(object)["detail"].(object)["ledger_entry"]))
		}
		require.NotContains(t, told, fmt.Sprint(nil))
		require.Len(t, slices.Compact(told), 1, "the audit trail says that it was one payment")
		b.post(credits, object{"amount": "2", "key": "invoice-1"}).refused(codeIdempotencyConflict, "key")
		require.Equal(t, "12.500001", b.get("/operator/v1/customers/"+made.str("id")).is(200).str("balance"))
		require.Len(t, b.get("/operator/v1/customers/"+made.str("id")+"/ledger").is(200).data(), 2)
		require.Len(t, b.trail(models.AuditFilter{ObjectID: made.str("id")}), 3, "the refused one left no trace")
		for _, amount := range []string{"0", "-1", "1.0000001", "1e3", "x", ""} {
			b.post(credits, object{"amount": amount, "key": "k"}).refused(codeInvalidRequest, "amount")
		}
		b.post(credits, object{"amount": "1"}).refused(codeInvalidRequest, "key")
		b.post("/operator/v1/customers/cust_none/credits", object{"amount": "1", "key": "k"}).refused(codeNotFound, "")
		b.post("/operator/v1/customers", object{"name": "x", "balance": "-1"}).refused(codeInvalidRequest, "balance")
		b.post("/operator/v1/customers", object{"name": "x", "currency": "euro"}).refused(codeInvalidRequest, "currency")
		b.post("/operator/v1/customers", object{"name": " "}).refused(codeInvalidRequest, "name")
		require.Equal(t, true, b.get("/operator/v1/ledger/verify").is(200).json()["holds"])
		require.Empty(t, b.get("/operator/v1/ledger/differences").is(200).data())

		key := b.post("/operator/v1/customers/"+made.str("id")+"/api-keys", object{"name": "k"}).is(201)
		_, err := store.AuthenticateKey(t.Context(), key.str("api_key"))
		require.NoError(t, err)
		b.delete("/operator/v1/customers/"+b.customer.ID+"/api-keys/"+key.str("id")).refused(codeNotFound, "")
		b.delete("/operator/v1/customers/" + made.str("id") + "/api-keys/" + key.str("id")).is(204)
		_, err = store.AuthenticateKey(t.Context(), key.str("api_key"))
		require.ErrorIs(t, err, models.ErrNotFound)
		app := modelstest.Application(t, store, b.customer)
		b.post("/operator/v1/customers/"+made.str("id")+"/api-keys", object{"name": "k", "application_id": app.ID}).refused(codeNotFound, "")
	})
}

// TestOperatorTrunks lists the trunks of all customers, and shows what each node says of one.
func TestOperatorTrunks(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		o := operatorBench(b, models.RoleViewer)
		trunk := modelstest.OutboundTrunk(b.t, b.store, b.customer)
		other := modelstest.OutboundTrunk(b.t, b.store, modelstest.Customer(b.t, b.store, 0))
		one, two := modelstest.Node(b.t, b.store), modelstest.Node(b.t, b.store)
		require.NoError(b.t, b.store.SaveGatewayStatus(b.t.Context(), []models.GatewayStatus{
			{NodeID: one.ID, TrunkID: trunk.ID, State: "REGED", Status: "UP", PingMS: 4.5}, {NodeID: two.ID, TrunkID: trunk.ID, State: "FAIL_WAIT", Status: "DOWN"},
		}))
		require.Equal(b.t, []string{other.ID, trunk.ID}, o.get("/operator/v1/trunks").is(200).ids())
		require.Equal(b.t, []string{trunk.ID}, o.get("/operator/v1/trunks?customer_id="+b.customer.ID+"&active=true&direction=outbound&gateway_name="+trunk.GatewayName).is(200).ids())
		require.Empty(b.t, o.get("/operator/v1/trunks?active=false").is(200).data())
		shown := o.get("/operator/v1/trunks/" + trunk.ID).is(200)
		require.Equal(b.t, "REGED", shown.str("registration_status"))
		states := map[string]any{}
		for _, gateway := range shown.json()["gateways"].([]any) {
			states[gateway.(object)["node"].(string)] = gateway.(object)["state"]
		}
		require.Equal(b.t, map[string]any{one.Name: "REGED", two.Name: "FAIL_WAIT"}, states)
		require.NoError(b.t, b.store.DeleteTrunk(b.t.Context(), b.customer.ID, trunk.ID))
		o.get("/operator/v1/trunks/"+trunk.ID).refused(codeNotFound, "")
		o.get("/operator/v1/trunks?active=perhaps").refused(codeInvalidRequest, "active")
		o.get("/operator/v1/trunks?gateway_name=a+b").refused(codeInvalidRequest, "gateway_name")
	})
}

// TestOperatorNodes adds a node with a token of its own and one that is made, and removes what carries no call.
func TestOperatorNodes(t *testing.T) {
	t.Parallel()
	onBothAsOperator(t, func(b *bench) {
		dir := b.t.TempDir()
		node := func(name string) object {
			return object{"name": name, "esl_addr": "127.0.0.1:8021", "esl_password": "pw", "conf_dir": dir}
		}
		made := b.post("/operator/v1/nodes", node("made")).is(201)
		id, err := b.store.AuthenticateNode(b.t.Context(), "made", made.str("cdr_token"))
		require.NoError(b.t, err)
		require.Equal(b.t, made.str("id"), id)
		given := node("given")
		given["cdr_token"] = "my.own-token_0123"
		require.Nil(b.t, b.post("/operator/v1/nodes", given).is(201).json()["cdr_token"], "who gave it knows it")
		_, err = b.store.AuthenticateNode(b.t.Context(), "given", "my.own-token_0123")
		require.NoError(b.t, err)
		b.post("/operator/v1/nodes", node("made")).refused(codeNameExists, "name")

		renewed := b.post("/operator/v1/nodes/given/cdr-token", nil).is(200).str("cdr_token")
		_, err = b.store.AuthenticateNode(b.t.Context(), "given", renewed)
		require.NoError(b.t, err)
		_, err = b.store.AuthenticateNode(b.t.Context(), "given", "my.own-token_0123")
		require.ErrorIs(b.t, err, models.ErrNotFound)
		for _, bad := range []string{"", "short", "has a space in the middle", "a:colon-in-the-middle"} {
			b.post("/operator/v1/nodes/given/cdr-token", object{"cdr_token": bad}).refused(codeInvalidRequest, "cdr_token")
		}
		for field, value := range map[string]string{"name": "-x", "esl_addr": "8021", "esl_password": "", "conf_dir": "relative"} {
			wrong := node("wrong")
			wrong[field] = value
			b.post("/operator/v1/nodes", wrong).refused(codeInvalidRequest, field)
		}
		missing := node("wrong")
		missing["conf_dir"] = dir + "/none"
		b.post("/operator/v1/nodes", missing).refused(codeInvalidRequest, "conf_dir")

		_, ok, err := b.store.AcquireNode(b.t.Context(), id, "controller", 60_000_000_000, 0)
		require.NoError(b.t, err)
		require.True(b.t, ok)
		shown := b.get("/operator/v1/nodes/made").is(200)
		require.Equal(b.t, "controller", shown.str("held_by"))
		require.Equal(b.t, false, shown.json()["connected"])
		require.NotContains(b.t, string(b.get("/operator/v1/nodes").is(200).body), `"pw"`)

		app := modelstest.Application(b.t, b.store, b.customer)
		call := &models.Call{CustomerID: b.customer.ID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallInProgress, From: "+1", To: "+2", NodeID: &id}
		require.NoError(b.t, b.store.CreateCall(b.t.Context(), call))
		refused := b.delete("/operator/v1/nodes/made").refused(codeResourceInUse, "")
		require.Contains(b.t, refused.message(), call.ID)
		there, err := b.store.NodeByName(b.t.Context(), "given")
		require.NoError(b.t, err)
		b.calls.failWith(models.ErrUnreachable)
		b.delete("/operator/v1/nodes/given").refused(codeUnavailable, "")
		b.calls.failWith(nil)
		b.delete("/operator/v1/nodes/given").is(204)
		require.Equal(b.t, []string{there.ID, there.ID}, b.calls.removed[len(b.calls.removed)-2:], "its recordings end in the transaction, or it stays")
		b.delete("/operator/v1/nodes/given").refused(codeNotFound, "")
	})
}

// TestAvailable: what is available is exact, also where more was settled than there was.
func TestAvailable(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		balance, held int64
		want          string
	}{{10_000_000, 600_000, "9.40"}, {1, 0, "0.000001"}, {0, 0, "0.00"}, {-500_000, 0, "-0.50"}} {
		shown := toCustomer(&models.Customer{BalanceMicros: row.balance, HeldMicros: row.held})
		require.Equal(t, row.want, shown.Available)
		require.Equal(t, row.balance-row.held, shown.AvailableMicros)
	}
}
