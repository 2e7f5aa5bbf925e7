package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
	"tandem/webhooks"
)

// deliverAll has every event that is due end in a result.
func (b *bench) deliverAll(result string, attempt models.Attempt) {
	b.t.Helper()
	for {
		claimed, err := b.store.ClaimStreams(b.t.Context(), "w", time.Minute, 100, 100, 100)
		require.NoError(b.t, err)
		if len(claimed) == 0 {
			return
		}
		var outcomes []models.Outcome
		for i := range claimed {
			c := &claimed[i]
			attempt.Number = c.Attempts + 1
			outcomes = append(outcomes, models.Outcome{
				SubjectID: c.SubjectID, EndpointID: c.EndpointID, LeaseToken: c.LeaseToken, EventID: c.Event.ID, Result: result,
				Attempt: attempt, RetryAt: b.store.Now().Add(time.Hour),
			})
		}
		require.NoError(b.t, b.store.FinishDeliveries(b.t.Context(), outcomes))
	}
}

func (r response) strings(field string) []string {
	r.t.Helper()
	var values []string
	for _, item := range r.data() {
		value, ok := item.(map[string]any)[field].(string)
		require.True(r.t, ok, "no string %s in %s", field, r.body)
		values = append(values, value)
	}
	return values
}

func TestDeliveries(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app, other := modelstest.Application(b.t, b.store, b.customer), modelstest.Application(b.t, b.store, b.customer)
		call := modelstest.Call(b.t, b.store, app)
		failed := models.Attempt{StartedAt: time.Date(2026, 1, 31, 12, 0, 0, 5e6, time.UTC), LatencyMS: 12.5, Status: 500, Error: "status: the endpoint answered 500", Response: "no"}
		dead := []*models.Event{b.emit(call, webhooks.KindNotify), b.emit(call, webhooks.KindLegEnded)}
		b.deliverAll(models.ResultDead, failed)
		taken := b.emit(modelstest.Call(b.t, b.store, other), webhooks.KindNotify)
		b.deliverAll(models.ResultDelivered, models.Attempt{Status: 204})
		retried := b.emit(call, webhooks.KindNotify)
		b.deliverAll(models.ResultRetry, models.Attempt{Error: "timeout"})
		behind := b.emit(call, webhooks.KindNotify)
		b.emit(call, webhooks.KindDTMF)

		all := []string{behind.ID, retried.ID, taken.ID, dead[1].ID, dead[0].ID}
		require.Equal(b.t, all, b.get("/v1/webhook-deliveries").is(200).ids())
		first := b.get("/v1/webhook-deliveries?limit=3").is(200)
		require.Equal(b.t, all[:3], first.ids())
		require.Equal(b.t, true, first.json()["has_more"])
		rest := b.get("/v1/webhook-deliveries?cursor=" + first.str("next_cursor")).is(200)
		require.Equal(b.t, all[3:], rest.ids())
		require.Nil(b.t, rest.json()["next_cursor"])
		for query, want := range map[string][]string{
			"state=dead":                         all[3:],
			"state=pending":                      all[:2],
			"state=delivered":                    all[2:3],
			"state=skipped":                      {},
			"application_id=" + other.ID:         all[2:3],
			"call_id=" + call.ID + "&type=leg.*": all[3:4],
			"state=dead&type=call.notify":        all[4:],
			"created_after=2100-01-01T00:00:00Z": {},
		} {
			require.Equal(b.t, want, b.get("/v1/webhook-deliveries?"+query).is(200).ids(), query)
		}
		for query, field := range map[string]string{"state=lost": "state", "type=x": "type", "cursor=x": "cursor", "limit=0": "limit", "call_id=%22": "call_id"} {
			b.get("/v1/webhook-deliveries?"+query).refused(codeInvalidRequest, field)
		}

		got := b.get("/v1/webhook-deliveries/" + dead[0].ID).is(200).json()
		require.Equal(b.t, []any{dead[0].ID, "call.notify", app.ID, call.ID, call.ID, 1.0, "dead", false, 1.0, 500.0, nil, nil},
			[]any{got["id"], got["type"], got["application_id"], got["subject_id"], got["call_id"], got["sequence"], got["state"], got["redelivered"],
				got["attempt_count"], got["last_status"], got["next_attempt_at"], got["delivered_at"]})
		require.NotNil(b.t, got["given_up_at"])
		require.Equal(b.t, []any{map[string]any{"number": 1.0, "started_at": "2026-01-31T12:00:00.005Z", "latency_ms": 12.5, "status": 500.0,
			"error": failed.Error, "response": "no"}}, got["attempts"])
		require.Equal(b.t, dead[0].ID, got["event"].(map[string]any)["id"])
		got = b.get("/v1/webhook-deliveries/" + retried.ID).is(200).json()
		require.Equal(b.t, []any{"pending", nil}, []any{got["state"], got["last_status"]})
		require.NotNil(b.t, got["next_attempt_at"])
		require.Nil(b.t, got["attempts"].([]any)[0].(map[string]any)["status"])
		require.Nil(b.t, b.get("/v1/webhook-deliveries/" + behind.ID).json()["next_attempt_at"])

		key := b.newKey(modelstest.Customer(b.t, b.store, 0))
		b.do(exchange{method: "GET", path: "/v1/webhook-deliveries/" + dead[0].ID, key: &key}).refused(codeNotFound, "")
		b.do(exchange{method: "POST", path: "/v1/webhook-deliveries/" + dead[0].ID + "/redeliver", key: &key}).refused(codeNotFound, "")
		b.do(exchange{method: "POST", path: "/v1/webhook-deliveries/redeliver", body: object{"application_id": app.ID}, key: &key}).refused(codeNotFound, "application_id")
		require.Empty(b.t, b.do(exchange{method: "GET", path: "/v1/webhook-deliveries", key: &key}).ids())
		b.get("/v1/webhook-deliveries/evt_none").refused(codeNotFound, "")
	})
}

func TestRedeliver(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		call := modelstest.Call(b.t, b.store, app)
		var dead []*models.Event
		for range 5 {
			dead = append(dead, b.emit(call, webhooks.KindNotify))
		}
		b.deliverAll(models.ResultDead, models.Attempt{Status: 500})
		one := "/v1/webhook-deliveries/" + dead[0].ID + "/redeliver"
		all := "/v1/webhook-deliveries/redeliver"

		// Asked twice under one key it is sent once; asked under none, it is on its way already.
		for range 2 {
			got := b.do(exchange{method: "POST", path: one, header: map[string]string{headerIdempotencyKey: "again"}}).is(http.StatusAccepted).json()
			require.Equal(b.t, []any{dead[0].ID, "pending", true, 1.0}, []any{got["id"], got["state"], got["redelivered"], got["sequence"]})
		}
		b.do(exchange{method: "POST", path: one}).refused(codeDeliveryPending, "")
		b.deliverAll(models.ResultDelivered, models.Attempt{Status: 200})
		got := b.get("/v1/webhook-deliveries/" + dead[0].ID).is(200).json()
		require.Equal(b.t, []any{"delivered", 2.0, 2}, []any{got["state"], got["attempt_count"], len(got["attempts"].([]any))})

		answer := b.post(all, object{"application_id": app.ID, "limit": 3, "type": "call.*", "call_id": call.ID, "created_after": "2020-01-01T00:00:00Z"})
		require.Equal(b.t, object{"count": 3.0, "has_more": true}, answer.is(http.StatusAccepted).json())
		answer = b.post(all, object{"application_id": app.ID, "state": "dead", "created_before": "2020-01-01T00:00:00Z"})
		require.Equal(b.t, object{"count": 0.0, "has_more": false}, answer.is(http.StatusAccepted).json())
		for range 2 {
			answer = b.do(exchange{method: "POST", path: all, body: object{"application_id": app.ID}, header: map[string]string{headerIdempotencyKey: "all"}})
			require.Equal(b.t, object{"count": 1.0, "has_more": false}, answer.is(http.StatusAccepted).json())
		}
		b.deliverAll(models.ResultDelivered, models.Attempt{Status: 200})
		require.Equal(b.t, []string{"delivered", "delivered", "delivered", "delivered", "delivered"}, b.get("/v1/webhook-deliveries").strings("state"))

		for _, tc := range []struct {
			body  object
			field string
		}{
			{object{}, "application_id"},
			{object{"application_id": app.ID, "state": "pending"}, "state"},
			{object{"application_id": app.ID, "limit": 0}, "limit"},
			{object{"application_id": app.ID, "limit": maxRedeliveries + 1}, "limit"},
			{object{"application_id": app.ID, "created_after": "yesterday"}, "created_after"},
			{object{"application_id": app.ID, "type": "call.nothing"}, "type"},
		} {
			b.post(all, tc.body).refused(codeInvalidRequest, tc.field)
		}
		b.post(all, object{"application_id": "app_none"}).refused(codeNotFound, "application_id")

		// An endpoint that is disabled, and one that is none.
		b.emit(call, webhooks.KindNotify)
		claimed, err := b.store.ClaimStreams(b.t.Context(), "w", time.Minute, 1, 1, 1)
		require.NoError(b.t, err)
		require.NoError(b.t, b.store.FinishDeliveries(b.t.Context(), []models.Outcome{{
			SubjectID: call.ID, EndpointID: app.ID, LeaseToken: claimed[0].LeaseToken, EventID: claimed[0].Event.ID, Result: models.ResultDead,
			Attempt: models.Attempt{Status: 410}, DisableReason: webhooks.DisabledGone,
		}}))
		b.do(exchange{method: "POST", path: one}).refused(codeEndpointDisabled, "")
		b.post(all, object{"application_id": app.ID}).refused(codeEndpointDisabled, "")
		b.patch("/v1/applications/"+app.ID, object{"webhook_url": nil}).is(200)
		b.do(exchange{method: "POST", path: one}).refused(codeNoWebhookURL, "")
		b.post(all, object{"application_id": app.ID}).refused(codeNoWebhookURL, "")
		b.patch("/v1/applications/"+app.ID, object{"webhook_url": "https://example.com/events"}).is(200)
		b.post(all, object{"application_id": app.ID}).is(http.StatusAccepted)
	})
}
