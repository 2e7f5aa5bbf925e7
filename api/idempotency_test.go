package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func (b *bench) postOnce(key, path string, body any) response {
	b.t.Helper()
	return b.do(exchange{method: "POST", path: path, body: body, header: map[string]string{headerIdempotencyKey: key}})
}

// TestIdempotentReplay repeats every POST of the table under one key: the second time nothing happens and the answer is the
// first one's to the byte.
func TestIdempotentReplay(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		seen := 0
		for _, route := range b.server.routes() {
			if !route.idempotent() {
				continue
			}
			seen++
			path, body := b.sample(route, b.customer)
			first := b.postOnce("key-"+route.id, path, body).is(route.status)
			require.Empty(b.t, first.header.Get(headerReplayed))
			before := b.snapshot()
			second := b.postOnce("key-"+route.id, path, body).is(route.status)
			require.Equal(b.t, "true", second.header.Get(headerReplayed), route.id)
			require.Equal(b.t, string(first.body), string(second.body), route.id)
			require.Equal(b.t, before, b.snapshot(), "%s: a replay changed something", route.id)

			b.postOnce("key-"+route.id, "/v1/applications", object{"name": "other", "answer_url": "https://other.example/"}).
				refused(codeIdempotencyConflict, headerIdempotencyKey)
		}
		require.Equal(b.t, 20, seen)
	})
}

func TestIdempotencyKeyRules(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		body := object{"name": "a", "answer_url": "https://a.example/"}
		for _, key := range []string{"a b", strings.Repeat("k", 256), "k\u00e9"} {
			b.postOnce(key, "/v1/applications", body).refused(codeInvalidRequest, headerIdempotencyKey)
		}
		// Failures are not stored: the same key serves the corrected request.
		b.postOnce("k", "/v1/applications", object{"name": "a"}).refused(codeInvalidRequest, "answer_url")
		first := b.postOnce("k", "/v1/applications", body).is(201)
		// The body is compared by what it says.
		again := b.postOnce("k", "/v1/applications", `{ "answer_url": "https://a.example/", "name":"a" }`).is(201)
		require.Equal(b.t, first.body, again.body)
		b.postOnce("k", "/v1/applications", object{"name": "b", "answer_url": "https://a.example/"}).refused(codeIdempotencyConflict, headerIdempotencyKey)
		require.Len(b.t, b.get("/v1/applications").data(), 1)

		// Another customer's key of the same name is another key.
		foreign := b.newKey(modelstest.Customer(b.t, b.store, 0))
		other := b.do(exchange{method: "POST", path: "/v1/applications", key: &foreign, body: body, header: map[string]string{headerIdempotencyKey: "k"}}).is(201)
		require.NotEqual(b.t, first.str("id"), other.str("id"))

		// What is too old is forgotten.
		_, err := b.store.PruneIdempotent(b.t.Context(), b.store.Now().Add(time.Minute))
		require.NoError(b.t, err)
		require.NotEqual(b.t, first.str("id"), b.postOnce("k", "/v1/applications", body).is(201).str("id"))
	})
}

func TestIdempotencyKeyExpires(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, store *models.Store, clock *modelstest.Clock) {
		b := newBench(t, store, Config{})
		body := object{"name": "a", "answer_url": "https://a.example/"}
		first := b.postOnce("k", "/v1/applications", body).is(201)
		clock.Advance(IdempotencyWindow - time.Minute)
		require.Equal(t, first.body, b.postOnce("k", "/v1/applications", body).is(201).body)
		clock.Advance(2 * time.Minute)
		require.NotEqual(t, first.str("id"), b.postOnce("k", "/v1/applications", body).is(201).str("id"))
	})
}

// TestIdempotentTwins sends the same request many times at once: one is carried out, all get its answer.
func TestIdempotentTwins(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		for _, twin := range []struct {
			path string
			body object
		}{
			{"/v1/calls", b.callBody()},
			// Here the twins collide in the trunk's own unique name before they do in the key.
			{"/v1/trunks", object{"name": "a", "proxy": "sip.example", "gateway_name": "gw"}},
		} {
			const twins = 12
			answers := make([]response, twins)
			var wg sync.WaitGroup
			for i := range twins {
				wg.Go(func() { answers[i] = b.postOnce("twin"+twin.path, twin.path, twin.body) })
			}
			wg.Wait()
			fresh := 0
			for _, answer := range answers {
				answer.is(201)
				require.Equal(b.t, string(answers[0].body), string(answer.body))
				if answer.header.Get(headerReplayed) == "" {
					fresh++
				}
			}
			require.Equal(b.t, 1, fresh, twin.path)
			require.Len(b.t, b.get(twin.path).data(), 1)
		}
		require.Equal(b.t, 1, b.calls.count(), "one call is dialled")
	})
}

// TestStoredAnswersAreSealed looks for the keys, passwords and secrets of a busy API in every byte of its database and log.
func TestStoredAnswersAreSealed(t *testing.T) {
	t.Parallel()
	location := modelstest.SQLiteURL(t)
	store, err := models.Open(t.Context(), models.Config{URL: location, Key: modelstest.Key})
	require.NoError(t, err)
	b := newBench(t, store, Config{})

	app := b.postOnce("a", "/v1/applications", object{"name": "a", "answer_url": "https://a.example/", "webhook_secret": "canary-webhook-secret"}).is(201)
	key := b.postOnce("b", "/v1/applications/"+app.str("id")+"/api-keys", nil).is(201)
	rotated := b.postOnce("c", "/v1/applications/"+app.str("id")+"/rotate-secret", nil).is(200)
	trunk := object{"name": "a", "proxy": "sip.example", "username": "u", "password": "canary-password", "gateway_name": "gw"}
	b.postOnce("d", "/v1/trunks", trunk).is(201)
	b.post("/v1/trunks", trunk).refused(codeGatewayNameExists, "")
	b.post("/v1/trunks", object{"name": "a", "password": "canary-password"}).refused(codeInvalidRequest, "")
	b.patch("/v1/applications/"+app.str("id"), object{"webhook_secret": "canary-webhook-secret"}).refused(codeInvalidRequest, "")
	b.get("/v1/me?token=canary-query").refused(codeInvalidRequest, "")
	wrong := "canary-wrong-key"
	b.do(exchange{method: "GET", path: "/v1/me", key: &wrong}).refused(codeUnauthorized, "")
	for _, path := range []string{"/v1/applications", "/v1/trunks", "/v1/applications/" + app.str("id"), "/v1/applications/" + app.str("id") + "/api-keys"} {
		body := string(b.get(path).is(200).body)
		require.NotContains(t, body, "canary")
		require.NotContains(t, body, app.str("api_key"))
	}

	require.NoError(t, store.Close())
	files, err := filepath.Glob(strings.TrimPrefix(location, "sqlite:") + "*")
	require.NoError(t, err)
	everything := b.logs.String()
	require.Contains(t, everything, "request served")
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		everything += string(content)
	}
	encoded, err := json.Marshal(trunk)
	require.NoError(t, err)
	hash, err := hashBody(encoded)
	require.NoError(t, err)
	for name, secret := range map[string]string{
		"a hash to guess the password by": hash, "the bench's key": b.key, "the application's key": app.str("api_key"), "another key": key.str("api_key"),
		"the rotated secret": rotated.str("webhook_secret"), "a canary": "canary",
	} {
		require.NotContains(t, everything, secret, name)
	}
}

// TestIdempotencyNeedsAuthentication: without a key nobody gets a stored answer.
func TestIdempotencyNeedsAuthentication(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	body := object{"name": "a", "answer_url": "https://a.example/"}
	b.postOnce("k", "/v1/applications", body).is(201)
	request := httptest.NewRequest(http.MethodPost, "/v1/applications", strings.NewReader(`{"name":"a","answer_url":"https://a.example/"}`))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(headerIdempotencyKey, "k")
	answer, err := b.server.App().Test(request, -1)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusUnauthorized, answer.StatusCode)
}
