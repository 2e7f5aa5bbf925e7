package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// trail is the audit trail, newest first.
func (b *bench) trail(filter models.AuditFilter) []models.AuditEntry {
	b.t.Helper()
	entries, _, err := b.store.ListAudit(b.t.Context(), filter, models.Page{Limit: models.MaxPageLimit})
	require.NoError(b.t, err)
	return entries
}

// TestEveryChangeIsAudited walks both tables: each change leaves one entry that says who made it, and nothing else leaves any.
func TestEveryChangeIsAudited(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		o := operatorBench(b, models.RoleAdmin)
		me := o.get("/operator/v1/me").str("id")
		for _, route := range o.server.operatorRoutes() {
			before := len(o.trail(models.AuditFilter{}))
			o.send(route).is(route.status)
			entries := o.trail(models.AuditFilter{})
			if route.method == http.MethodGet {
				require.Len(b.t, entries, before, route.id)
				continue
			}
			require.Len(b.t, entries, before+1, route.id)
			require.Equal(b.t, route.id, entries[0].Action)
			require.Equal(b.t, []string{models.ActorOperator, me, "ana"}, []string{entries[0].ActorKind, entries[0].ActorID, entries[0].ActorName}, route.id)
			require.NotEmpty(b.t, entries[0].ObjectID, route.id)
			require.NotEmpty(b.t, entries[0].RequestID, route.id)
		}
		for _, route := range b.server.routes() {
			path, body := b.sample(route, b.customer)
			before := len(b.trail(models.AuditFilter{}))
			b.do(exchange{method: route.method, path: path, body: body}).is(route.status)
			entries := b.trail(models.AuditFilter{})
			if !route.audited() {
				require.Len(b.t, entries, before, route.id)
				continue
			}
			require.Len(b.t, entries, before+1, route.id)
			require.Equal(b.t, []string{route.id, models.ActorKey, b.customer.ID}, []string{entries[0].Action, entries[0].ActorKind, entries[0].CustomerID})
			require.NotEmpty(b.t, entries[0].ObjectID, route.id)
		}
	})
}

// TestAuditSaysWhatAndHidesSecrets follows a trunk: what was asked for is there, its password nowhere.
func TestAuditSaysWhatAndHidesSecrets(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		const password = "s3cret-of-the-carrier"
		made := b.post("/v1/trunks", object{"name": "Carrier", "proxy": "sip.example", "username": "u", "password": password}).is(201)
		b.patch("/v1/trunks/"+made.str("id"), object{"password": password + "2", "is_active": "no"}).refused(codeInvalidRequest, "is_active")
		b.patch("/v1/trunks/"+made.str("id"), object{"password": password + "2", "is_active": false}).is(200)
		b.delete("/v1/trunks/" + made.str("id")).is(204)

		entries := b.trail(models.AuditFilter{ObjectID: made.str("id")})
		require.Len(b.t, entries, 3, "what was refused changed nothing")
		require.Equal(b.t, []string{"deleteTrunk", "updateTrunk", "createTrunk"}, []string{entries[0].Action, entries[1].Action, entries[2].Action})
		require.Nil(b.t, entries[0].Detail)
		require.JSONEq(b.t, `{"password": "(hidden)", "is_active": false}`, string(entries[1].Detail))
		require.JSONEq(b.t, `{"name": "Carrier", "proxy": "sip.example", "username": "u", "password": "(hidden)"}`, string(entries[2].Detail))

		o := operatorBench(b, models.RoleViewer)
		shown := o.get("/operator/v1/audit?object_id=" + made.str("id")).is(200)
		require.Len(b.t, shown.data(), 3)
		require.NotContains(b.t, string(shown.body), password)
		for query, want := range map[string]int{
			"customer_id=" + b.customer.ID:   3,
			"customer_id=cust_other":         0,
			"action=updateTrunk":             1,
			"actor_kind=api_key":             3,
			"actor_kind=operator":            0,
			"actor_id=" + entries[0].ActorID: 3,
			"created_after=" + time.Now().UTC().Add(time.Hour).Format(time.RFC3339): 0,
		} {
			require.Len(b.t, o.get("/operator/v1/audit?"+query).is(200).data(), want, query)
		}
		o.get("/operator/v1/audit?actor_kind=robot").refused(codeInvalidRequest, "actor_kind")
		o.get("/operator/v1/audit?created_after=yesterday").refused(codeInvalidRequest, "created_after")
		page := o.get("/operator/v1/audit?limit=2").is(200)
		require.Equal(b.t, true, page.json()["has_more"])
		rest := o.get("/operator/v1/audit?limit=2&cursor=" + page.str("next_cursor")).is(200)
		require.Len(b.t, rest.data(), 1)
	})
}

// TestAuditIsRepeatedNowhere: a request that is repeated with its Idempotency-Key, one that fails and one that changes nothing leave no
// entry of their own.
func TestAuditIsRepeatedNowhere(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		again := exchange{method: "POST", path: "/v1/trunks", body: object{"name": "once", "proxy": "sip.example"}, header: map[string]string{headerIdempotencyKey: "k"}}
		b.do(again).is(201)
		b.do(again).is(201)
		require.Len(b.t, b.trail(models.AuditFilter{Action: "createTrunk"}), 1)
		again.body = object{"name": "other", "proxy": "sip.example"}
		b.do(again).refused(codeIdempotencyConflict, "")
		b.post("/v1/trunks", object{"name": "once", "proxy": "sip.example", "gateway_name": "bad name"}).refused(codeInvalidRequest, "")
		b.delete("/v1/trunks/trunk_unknown").refused(codeNotFound, "")
		require.Len(b.t, b.trail(models.AuditFilter{}), 1)

		o := operatorBench(b, models.RoleOperator)
		app := modelstest.Application(b.t, b.store, b.customer)
		ended := b.callOf(app, models.CallBusy)
		o.post("/operator/v1/calls/"+ended.ID+"/hangup", nil).refused(codeCallNotActive, "")
		require.Len(b.t, b.trail(models.AuditFilter{}), 1, "nothing was ended")
		live := b.callOf(app, models.CallDialing)
		o.post("/operator/v1/calls/"+live.ID+"/hangup", nil).is(202)
		entries := b.trail(models.AuditFilter{ObjectID: live.ID})
		require.Len(b.t, entries, 1)
		require.Equal(b.t, b.customer.ID, entries[0].CustomerID)
	})
}

// TestAuditDetail holds the detail to its limits.
func TestAuditDetail(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxAuditValue)
	name, answer, secret := long, "https://a.example", "whsec_x"
	r := &request{body: &applicationCreate{Name: &name, AnswerURL: &answer, WebhookSecret: &secret}, given: fieldSet{"name": true, "answer_url": true, "webhook_secret": true}}
	row := route{path: "/v1/applications", request: applicationCreate{}}
	require.JSONEq(t, `{"name": "(258 bytes)", "answer_url": "https://a.example", "webhook_secret": "(hidden)"}`, string(auditDetail(row, r)))
	for _, field := range []string{"password", "esl_password", "webhook_secret", "cdr_token", "Token", "api_key"} {
		require.Equal(t, auditHidden, auditValue(field, json.RawMessage(`"x"`)), field)
	}
	two := &request{params: map[string]string{"id": "app_1", "kid": "key_1"}}
	require.JSONEq(t, `{"id": "app_1", "kid": "key_1"}`, string(auditDetail(route{path: "/v1/applications/:id/api-keys/:kid"}, two)))
	require.Nil(t, auditDetail(route{path: "/v1/trunks/:id"}, &request{params: map[string]string{"id": "trunk_1"}}))
}
