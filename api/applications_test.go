package api

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
	"tandem/webhooks"
)

func TestApplicationLifecycle(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		made := b.post("/v1/applications", object{
			"name": "Front desk", "answer_url": "https://example.com/answer", "webhook_url": "https://example.com/events", "webhook_secret": "s3cret",
		}).is(201)
		id, key := made.str("id"), made.str("api_key")
		require.Regexp(b.t, `^app_[0-9a-z]{26}$`, id)
		require.Equal(b.t, b.customer.ID, made.str("customer_id"))
		require.Regexp(b.t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`, made.str("created_at"))
		require.NotContains(b.t, string(made.body), "s3cret")
		require.Equal(b.t, "no-store", made.header.Get("Cache-Control"))

		listed := b.get("/v1/applications").is(200)
		require.Equal(b.t, float64(1), listed.json()["count"])
		require.Equal(b.t, false, listed.json()["has_more"])
		require.Equal(b.t, id, listed.data()[0].(object)["id"])
		require.NotContains(b.t, string(listed.body), "api_key")

		// The application's own key speaks for its customer.
		me := b.do(exchange{method: "GET", path: "/v1/me", key: &key}).is(200)
		require.Equal(b.t, b.customer.ID, me.str("id"))
		require.Equal(b.t, id, me.str("application_id"))
		require.Equal(b.t, "10.000000", me.str("balance"))
		require.Equal(b.t, float64(10_000_000), me.json()["available_micros"])

		changed := b.patch("/v1/applications/"+id, object{"name": "Night desk", "webhook_url": nil}).is(200)
		require.Equal(b.t, "Night desk", changed.str("name"))
		require.Empty(b.t, changed.str("webhook_url"))
		require.Equal(b.t, "https://example.com/answer", changed.str("answer_url"))
		require.Equal(b.t, "Night desk", b.get("/v1/applications/"+id).is(200).str("name"))

		stored, err := b.store.Application(b.t.Context(), b.customer.ID, id)
		require.NoError(b.t, err)
		require.Equal(b.t, "s3cret", string(stored.WebhookSecret))

		b.delete("/v1/applications/" + id).is(204)
		b.get("/v1/applications/"+id).refused(codeNotFound, "")
		b.delete("/v1/applications/"+id).refused(codeNotFound, "")
		b.do(exchange{method: "GET", path: "/v1/me", key: &key}).refused(codeUnauthorized, "")
	})
}

func TestApplicationRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	long := strings.Repeat("x", 101)
	for name, test := range map[string]struct {
		body           any
		field, message string
	}{
		"no name":         {object{"answer_url": "https://a.example/"}, "name", "name is required"},
		"blank name":      {object{"name": "  ", "answer_url": "https://a.example/"}, "name", "name is required"},
		"long name":       {object{"name": long, "answer_url": "https://a.example/"}, "name", "name must be at most 100 characters long"},
		"control in name": {object{"name": "a\x00b", "answer_url": "https://a.example/"}, "name", "name must not contain control characters"},
		"name a number":   {object{"name": 7, "answer_url": "https://a.example/"}, "name", "name must be a string"},
		"null name":       {object{"name": nil, "answer_url": "https://a.example/"}, "name", "name must not be null"},
		"no answer_url":   {object{"name": "a"}, "answer_url", "answer_url is required"},
		"not a URL":       {object{"name": "a", "answer_url": "not a url"}, "answer_url", "answer_url must be a valid http or https URL"},
		"relative":        {object{"name": "a", "answer_url": "/answer"}, "answer_url", "answer_url must be a valid http or https URL"},
		"ftp":             {object{"name": "a", "answer_url": "ftp://a.example/"}, "answer_url", "answer_url must be a valid http or https URL"},
		"no host":         {object{"name": "a", "answer_url": "https:///answer"}, "answer_url", "answer_url must be a valid http or https URL"},
		"bad port":        {object{"name": "a", "answer_url": "https://a.example:70000/"}, "answer_url", "answer_url must be a valid http or https URL"},
		"line break":      {object{"name": "a", "answer_url": "https://a.example/\nX: y"}, "answer_url", "answer_url must be a valid http or https URL"},
		"user in URL":     {object{"name": "a", "answer_url": "https://u:p@a.example/"}, "answer_url", "answer_url must not contain a user name or password"},
		"webhook_url":     {object{"name": "a", "answer_url": "https://a.example/", "webhook_url": "x"}, "webhook_url", "webhook_url must be a valid http or https URL"},
		"empty secret":    {object{"name": "a", "answer_url": "https://a.example/", "webhook_secret": ""}, "webhook_secret", "webhook_secret must not be empty"},
		"unknown field":   {object{"name": "a", "answer_url": "https://a.example/", "anwser_url": "x"}, "anwser_url", "anwser_url is not a field of this request"},
		"other case":      {object{"Name": "a", "answer_url": "https://a.example/"}, "Name", "Name is not a field of this request"},
		"twice":           {`{"name":"a","name":"b","answer_url":"https://a.example/"}`, "name", "name is given twice"},
	} {
		got := b.post("/v1/applications", test.body).refused(codeInvalidRequest, test.field)
		require.Equal(t, test.message, got.message(), name)
	}
	require.Empty(t, b.get("/v1/applications").data())
	got := b.post("/v1/applications", object{"name": "a", "answer_url": "https://a.example/"}).is(201)
	b.patch("/v1/applications/"+got.str("id"), object{"name": " "}).refused(codeInvalidRequest, "name")
	b.patch("/v1/applications/"+got.str("id"), object{"webhook_secret": "x"}).refused(codeInvalidRequest, "webhook_secret")
}

func TestApplicationKeys(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := b.post("/v1/applications", object{"name": "a", "answer_url": "https://a.example/"}).is(201).str("id")
		made := b.post("/v1/applications/"+app+"/api-keys", object{"name": "staging"}).is(201)
		key := made.str("api_key")
		require.True(b.t, strings.HasPrefix(key, made.str("prefix")))
		b.do(exchange{method: "GET", path: "/v1/me", key: &key}).is(200)

		listed := b.get("/v1/applications/" + app + "/api-keys").is(200)
		require.Len(b.t, listed.data(), 2)
		require.NotContains(b.t, string(listed.body), key)

		b.delete("/v1/applications/" + app + "/api-keys/" + made.str("id")).is(204)
		b.do(exchange{method: "GET", path: "/v1/me", key: &key}).refused(codeUnauthorized, "")
		b.delete("/v1/applications/"+app+"/api-keys/key_unknown").refused(codeNotFound, "")

		// A key is found only below its own application, and nothing in its place matches any.
		other := b.post("/v1/applications", object{"name": "b", "answer_url": "https://a.example/"}).is(201)
		kid := b.get("/v1/applications/" + app + "/api-keys").data()[0].(object)["id"].(string)
		for _, wrong := range []string{other.str("id"), "%20", "%00", "%ff", "-"} {
			b.delete("/v1/applications/"+wrong+"/api-keys/"+kid).refused(codeNotFound, "")
		}
		b.post("/v1/applications/app_unknown/api-keys", object{}).refused(codeNotFound, "")
		b.get("/v1/applications/app_unknown/api-keys").refused(codeNotFound, "")
	})
}

func TestRotateSecret(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		ctx := b.t.Context()
		app := b.post("/v1/applications", object{"name": "a", "answer_url": "https://a.example/", "webhook_secret": "first"}).is(201).str("id")
		path := "/v1/applications/" + app + "/rotate-secret"

		got := b.post(path, nil).is(200)
		require.Regexp(b.t, `^whsec_`, got.str("webhook_secret"))
		stored, err := b.store.Application(ctx, b.customer.ID, app)
		require.NoError(b.t, err)
		require.Equal(b.t, got.str("webhook_secret"), string(stored.WebhookSecret))
		require.Equal(b.t, "first", string(stored.PreviousSecret))
		require.WithinDuration(b.t, b.store.Now().Add(24*time.Hour), *stored.PreviousSecretUntil, time.Minute)

		got = b.post(path, object{"webhook_secret": "of-my-own"}).is(200)
		require.NotContains(b.t, string(got.body), "of-my-own")
		stored, err = b.store.Application(ctx, b.customer.ID, app)
		require.NoError(b.t, err)
		require.Equal(b.t, "of-my-own", string(stored.WebhookSecret))

		b.post(path, object{"webhook_secret": ""}).refused(codeInvalidRequest, "webhook_secret")
		b.post("/v1/applications/app_unknown/rotate-secret", nil).refused(codeNotFound, "")
	})
}

func TestApplicationInUse(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		did := b.post("/v1/dids", object{"number_e164": "+31201234567", "application_id": app.ID}).is(201)
		b.delete("/v1/applications/"+app.ID).refused(codeResourceInUse, "")
		b.delete("/v1/dids/" + did.str("id")).is(204)
		b.delete("/v1/applications/" + app.ID).is(204)
	})
}

// TestNamingTheWebhookURLEnablesIt: an endpoint that was disabled is tried again once its owner says where to send.
func TestNamingTheWebhookURLEnablesIt(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		ctx := b.t.Context()
		app := modelstest.Application(b.t, b.store, b.customer)
		call := modelstest.Call(b.t, b.store, app)
		_, err := webhooks.Emit(ctx, b.store, call, webhooks.KindCreated, nil)
		require.NoError(b.t, err)
		claimed, err := b.store.ClaimStreams(ctx, "worker", time.Minute, 1, 1, 1)
		require.NoError(b.t, err)
		require.Len(b.t, claimed, 1)
		require.NoError(b.t, b.store.FinishDeliveries(ctx, []models.Outcome{{
			SubjectID: call.ID, EndpointID: app.ID, LeaseToken: claimed[0].LeaseToken, EventID: claimed[0].Event.ID,
			Result: models.ResultRetry, RetryAt: b.store.Now().Add(time.Hour), DisableReason: webhooks.DisabledGone,
			Attempt: models.Attempt{Number: 1, Status: 410},
		}}))
		state, err := b.store.EndpointState(ctx, app.ID)
		require.NoError(b.t, err)
		require.NotNil(b.t, state.DisabledAt)

		b.patch("/v1/applications/"+app.ID, object{"name": "other"}).is(200)
		state, err = b.store.EndpointState(ctx, app.ID)
		require.NoError(b.t, err)
		require.NotNil(b.t, state.DisabledAt, "another field changes nothing")

		b.patch("/v1/applications/"+app.ID, object{"webhook_url": app.WebhookURL}).is(200)
		state, err = b.store.EndpointState(ctx, app.ID)
		require.NoError(b.t, err)
		require.Nil(b.t, state.DisabledAt)
		claimed, err = b.store.ClaimStreams(ctx, "worker", time.Minute, 1, 1, 1)
		require.NoError(b.t, err)
		require.Len(b.t, claimed, 1, "what waited is due again")
	})
}
