package api

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
	"tandem/webhooks"
)

// operatorBench is a bench that asks as an operator, and checks every exchange against the operators' document.
func operatorBench(b *bench, role string) *bench {
	b.t.Helper()
	o := *b
	o.doc = strictDocument(b.t, operatorsStrict)
	token, err := b.store.CreateOperator(b.t.Context(), &models.Operator{Name: "ana", Role: role})
	require.NoError(b.t, err)
	o.key = token
	return &o
}

// onBothAsOperator runs a test on both databases as an admin.
func onBothAsOperator(t *testing.T, fn func(b *bench)) {
	t.Helper()
	onBoth(t, func(b *bench) { fn(operatorBench(b, models.RoleAdmin)) })
}

// operatorSample returns a path and a body with which a route of operators succeeds.
func (b *bench) operatorSample(route route) (string, any) {
	b.t.Helper()
	ctx := b.t.Context()
	path, id := route.path, ""
	app := modelstest.Application(b.t, b.store, b.customer)
	switch {
	case strings.HasPrefix(path, "/operator/v1/operators/:id"):
		operator := &models.Operator{Name: "sample", Role: models.RoleViewer}
		_, err := b.store.CreateOperator(ctx, operator)
		require.NoError(b.t, err)
		id = operator.ID
	case strings.HasPrefix(path, "/operator/v1/customers/:id"):
		id = b.customer.ID
		key := &models.APIKey{CustomerID: id, Name: "sample"}
		_, err := b.store.CreateAPIKey(ctx, key, "")
		require.NoError(b.t, err)
		path = strings.ReplaceAll(path, ":kid", key.ID)
	case strings.HasPrefix(path, "/operator/v1/nodes/:name"):
		node := &models.Node{Name: fmt.Sprintf("node-%d", modelstest.Serial()), ESLAddr: "127.0.0.1:1", IsActive: true}
		require.NoError(b.t, b.store.CreateNode(ctx, node))
		path = strings.ReplaceAll(path, ":name", node.Name)
		order := &models.NodeOrder{NodeID: node.ID, Kind: models.OrderDiff}
		require.NoError(b.t, b.store.AskNode(ctx, order))
		path = strings.ReplaceAll(path, ":order", order.ID)
	case path == "/operator/v1/config/document":
		path += "?path=tandem/gateways/acme.xml"
	case strings.HasPrefix(path, "/operator/v1/calls/:id"):
		id = b.callOf(app, models.CallDialing).ID
	case strings.HasPrefix(path, "/operator/v1/trunks/:id"):
		id = modelstest.OutboundTrunk(b.t, b.store, b.customer).ID
	case strings.HasPrefix(path, "/operator/v1/webhook-deliveries/:id"):
		id = b.emit(modelstest.Call(b.t, b.store, app), webhooks.KindNotify).ID
		b.deliverAll(models.ResultDead, models.Attempt{Status: 500})
	case strings.HasPrefix(path, "/operator/v1/dids/by-number/:number"):
		path = strings.ReplaceAll(path, ":number", modelstest.DID(b.t, b.store, b.customer, app).NumberE164)
	case strings.HasPrefix(path, "/operator/v1/rate-decks/:id"):
		id = b.deck(b.customer.Currency).ID
	case strings.HasPrefix(path, "/operator/v1/rates/:id"):
		id = b.rates(b.deck(b.customer.Currency), models.DeckRate{Prefix: "31"})[0].ID
	case path == "/operator/v1/rates/test":
		path += "?number=%2B31201234567"
	case strings.HasPrefix(path, "/operator/v1/rate-imports/:id"):
		job := &models.RateImport{DeckID: b.deck("EUR").ID, Mode: models.ImportMerge, Import: models.Import{
			Columns: []string{"prefix", "per_minute"}, Defaults: map[string]string{}, TotalRecords: 1,
		}}
		require.NoError(b.t, b.store.CreateRateImport(ctx, job))
		id = job.ID
	case strings.HasPrefix(path, "/operator/v1/did-imports/:id"):
		job := &models.DIDImport{OnConflict: models.DIDSkip, Import: models.Import{
			Columns: []string{"number_e164"}, Defaults: map[string]string{"customer_id": b.customer.ID, "application_id": app.ID}, TotalRecords: 1,
		}}
		require.NoError(b.t, b.store.CreateDIDImport(ctx, job))
		id = job.ID
	}
	if strings.HasPrefix(path, "/operator/v1/blocks/:id") {
		block := &models.Block{Address: fmt.Sprintf("198.18.%d.%d", modelstest.Serial()/250%250, modelstest.Serial()%250), Reason: "sample"}
		require.NoError(b.t, b.store.CreateBlock(ctx, block, nil))
		id = block.ID
	}
	if strings.HasPrefix(path, "/operator/v1/block-exceptions/:id") {
		exception := &models.BlockException{Address: fmt.Sprintf("2001:db8:%x::/64", modelstest.Serial())}
		_, err := b.store.CreateBlockException(ctx, exception)
		require.NoError(b.t, err)
		id = exception.ID
	}
	path = strings.NewReplacer(":id", id, ":month", b.store.Now().Format(monthForm)).Replace(path)
	number := fmt.Sprintf("+1556%07d", modelstest.Serial())
	body, ok := map[string]any{
		"createOperator":          object{"name": "sample", "role": "viewer"},
		"createCustomer":          object{"name": "sample", "balance": "12.5"},
		"creditCustomer":          object{"amount": "1", "key": models.NewID("payment-")},
		"adjustCustomer":          object{"amount": "-0.5", "key": models.NewID("ticket-"), "note": "sample"},
		"updateCustomer":          object{"status": "suspended", "low_balance": "2"},
		"updateCustomerLimits":    object{"max_calls": 7, "allowed_destinations": []string{"US"}},
		"createCustomerKey":       object{"name": "sample"},
		"rotateCustomerKey":       object{"grace_seconds": 60},
		"rotateOperator":          object{"grace_seconds": 0},
		"createNode":              object{"name": fmt.Sprintf("new-%d", modelstest.Serial()), "esl_addr": "127.0.0.1:8021", "esl_password": "pw-of-the-node", "conf_dir": b.t.TempDir()},
		"rotateCDRToken":          object{},
		"updateNode":              object{"weight": 7},
		"drainNode":               object{"reason": "sample"},
		"execOnNode":              object{"command": "status"},
		"orderNode":               object{"kind": "apply", "prune": true},
		"hangupCall":              object{},
		"testCustomerTrunk":       object{},
		"createCustomerTrunk":     object{"customer_id": b.customer.ID, "name": "sample", "proxy": "sip.example.com"},
		"switchTrunk":             object{"is_active": false},
		"redeliverCustomerEvent":  object{},
		"redeliverCustomerEvents": object{"application_id": app.ID},
		"createDIDs":              object{"numbers": []string{number}, "customer_id": b.customer.ID, "application_id": app.ID},
		"reassignDIDs":            object{"numbers": []string{modelstest.DID(b.t, b.store, b.customer, app).NumberE164}, "status": "suspended"},
		"releaseDIDs":             object{"numbers": []string{number}},
		"createDIDImport":         object{"columns": []string{"number_e164"}, "total_records": 1, "customer_id": b.customer.ID},
		"importDIDs":              object{"record": 0, "records": []object{{"line": 2, "values": []string{number}}}},
		"cancelDIDImport":         object{},
		"createRateDeck":          object{"name": models.NewID("deck ")},
		"updateRateDeck":          object{"unlisted": "refuse"},
		"setRate":                 object{"prefix": "31", "per_minute": "0.01"},
		"endRate":                 object{"valid_to": "2999-01-01"},
		"setCustomerDeck":         object{"rate_deck_id": b.deck(b.customer.Currency).ID},
		"setTrunkDeck":            object{"rate_deck_id": nil},
		"createRateImport":        object{"deck_id": b.deck("EUR").ID, "columns": []string{"prefix", "per_minute"}, "total_records": 1},
		"importRates":             object{"record": 0, "records": []object{{"line": 2, "values": []string{"31", "0.01"}}}},
		"cancelRateImport":        object{},
		"createBlock":             object{"address": fmt.Sprintf("2001:db9:%x::/64", modelstest.Serial()), "reason": "sample"},
		"createBlockException":    object{"address": fmt.Sprintf("2001:dba:%x::/64", modelstest.Serial())},
	}[route.id]
	require.Equal(b.t, route.request != nil, ok, "%s needs a sample of its body here, or none", route.id)
	require.NotContains(b.t, path, ":", "%s needs a sample of its path here", route.id)
	return path, body
}

// send sends the sample of a route.
func (b *bench) send(route route) response {
	b.t.Helper()
	path, body := b.operatorSample(route)
	return b.do(exchange{method: route.method, path: path, body: body})
}

// TestOperatorRouteParity compares what fiber serves with what the document and docs/operator-api.md say.
func TestOperatorRouteParity(t *testing.T) {
	t.Parallel()
	b := operatorBench(newBench(t, modelstest.Open(t), Config{}), models.RoleAdmin)
	b.servesWhatIsDocumented("/operator/v1/")
	text, err := os.ReadFile("../docs/operator-api.md")
	require.NoError(t, err)
	for _, route := range b.server.operatorRoutes() {
		row := fmt.Sprintf("| `%s %s` | %s |", route.method, route.path, route.role)
		if route.public {
			row = fmt.Sprintf("| `%s %s` | none |", route.method, route.path)
		}
		require.Contains(t, string(text), row)
		require.True(t, route.public || slices.Contains(models.Roles, route.role), "%s has no role", route.id)
		if route.method == http.MethodGet && !route.public {
			require.Equal(t, models.RoleViewer, route.role, route.id)
		}
	}
}

// TestEveryOperatorRouteServesAnAdmin walks the table with the samples.
func TestEveryOperatorRouteServesAnAdmin(t *testing.T) {
	t.Parallel()
	onBothAsOperator(t, func(b *bench) {
		for _, route := range b.server.operatorRoutes() {
			b.send(route).is(route.status)
		}
	})
}

// TestRoles walks the table with each role: what a role does not cover is refused, and changes nothing.
func TestRoles(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	for _, role := range models.Roles {
		o := operatorBench(b, role)
		for _, route := range b.server.operatorRoutes() {
			if route.public || models.RoleCovers(role, route.role) {
				o.send(route).is(route.status)
				continue
			}
			path, body := o.operatorSample(route)
			before := b.snapshot()
			refused := o.do(exchange{method: route.method, path: path, body: body}).refused(codeForbidden, "")
			require.Contains(t, refused.message(), role)
			require.Equal(t, before, b.snapshot(), route.id)
		}
	}
	for _, pair := range [][2]string{{"", models.RoleViewer}, {models.RoleAdmin, ""}, {"root", models.RoleViewer}, {models.RoleAdmin, "root"}} {
		require.False(t, models.RoleCovers(pair[0], pair[1]), "%v", pair)
	}
}

// TestTokensAndKeysStayApart: a customer's key opens no route of operators, a token none of customers, and what is wrong, revoked or
// expired opens nothing.
func TestTokensAndKeysStayApart(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	o := operatorBench(b, models.RoleAdmin)
	revoked := &models.Operator{Name: "gone", Role: models.RoleAdmin}
	gone, err := b.store.CreateOperator(t.Context(), revoked)
	require.NoError(t, err)
	o.delete("/operator/v1/operators/" + revoked.ID).is(204)
	soon := b.store.Now().Add(-time.Second)
	expired, err := b.store.CreateOperator(t.Context(), &models.Operator{Name: "late", Role: models.RoleAdmin, ExpiresAt: &soon})
	require.NoError(t, err)
	for _, route := range b.server.operatorRoutes() {
		if route.public {
			continue
		}
		path, body := o.operatorSample(route)
		for _, token := range []string{"", b.key, gone, expired, o.key + "x", "op_"} {
			got := o.do(exchange{method: route.method, path: path, body: body, key: &token}).refused(codeUnauthorized, "")
			require.Equal(t, "Bearer", got.header.Get("WWW-Authenticate"))
		}
	}
	for _, route := range b.server.routes() {
		if !route.public {
			path, body := b.sample(route, b.customer)
			b.do(exchange{method: route.method, path: path, body: body, key: &o.key}).refused(codeUnauthorized, "")
		}
	}
}

func TestOperatorTokens(t *testing.T) {
	t.Parallel()
	onBothAsOperator(t, func(b *bench) {
		until := b.store.Now().Add(time.Hour).Format(time.RFC3339)
		made := b.post("/operator/v1/operators", object{"name": "ben", "role": "operator", "expires_at": until}).is(201)
		require.Regexp(b.t, `^oper_[0-9a-z]{26}$`, made.str("id"))
		require.Regexp(b.t, `^op_[A-Za-z0-9_-]{43}$`, made.str("token"))
		require.True(b.t, strings.HasPrefix(made.str("token"), made.str("prefix")))
		token := made.str("token")
		me := b.do(exchange{method: "GET", path: "/operator/v1/me", key: &token}).is(200)
		require.Equal(b.t, made.str("id"), me.str("id"))
		require.Equal(b.t, "operator", me.str("role"))
		require.NotEmpty(b.t, me.str("last_used_at"))
		require.NotContains(b.t, string(b.get("/operator/v1/operators").is(200).body), token, "nobody sees it again")

		b.delete("/operator/v1/operators/" + made.str("id")).is(204)
		b.delete("/operator/v1/operators/" + made.str("id")).is(204)
		b.do(exchange{method: "GET", path: "/operator/v1/me", key: &token}).refused(codeUnauthorized, "")
		b.delete("/operator/v1/operators/oper_unknown").refused(codeNotFound, "")

		for field, body := range map[string]object{
			"name":       {"role": "viewer"},
			"role":       {"name": "x", "role": "root"},
			"expires_at": {"name": "x", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z"},
		} {
			b.post("/operator/v1/operators", body).refused(codeInvalidRequest, field)
		}
		b.post("/operator/v1/operators", object{"name": "x"}).refused(codeInvalidRequest, "role")
	})
}
