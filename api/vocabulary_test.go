package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/models/modelstest"
	"tandem/simulator"
)

// TestActionSchema: the vocabulary is public and is what the actions package publishes.
func TestActionSchema(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	none := ""
	got := b.do(exchange{method: "GET", path: "/v1/actions/schema.json", key: &none}).is(200)
	require.JSONEq(t, string(actions.Schema()), string(got.body))
	require.Equal(t, "https://json-schema.org/draft/2020-12/schema", got.str("$schema"))
}

// TestValidateActions: what an answer_url may say comes back with its defaults; what it may not, with the place, what was there
// and what is allowed.
func TestValidateActions(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	for name, test := range map[string]struct {
		body any
		want string
	}{
		"the example of the docs": {
			[]object{{"action": "answer"}, {"action": "gather", "max_digits": 500}},
			`{"index":1,"action":"gather","field":"max_digits","path":"actions[1].gather.max_digits","message":"must be between 1 and 128, was 500","allowed":"a whole number between 1 and 128","got":"500"}`,
		},
		"nested": {
			object{"actions": []object{{"action": "gather", "prompt": []object{{"action": "say", "text": ""}}}}},
			`{"index":0,"action":"say","field":"text","path":"actions[0].gather.prompt[0].say.text","message":"must not be empty, was \"\"","allowed":"a string of at most 3000 characters","got":"\"\""}`,
		},
	} {
		got := b.post("/v1/actions/validate", test.body).is(200)
		require.Equal(t, false, got.json()["valid"], name)
		raw, err := json.Marshal(got.json()["error"])
		require.NoError(t, err)
		require.JSONEq(t, test.want, string(raw), name)
	}
	for name, body := range map[string]string{"not JSON": `[{`, "a number": `5`, "too many": "[" + strings.Repeat(`{"action":"answer"},`, 100) + `{"action":"answer"}]`} {
		got := b.do(exchange{method: "POST", path: "/v1/actions/validate", body: body, lenient: true}).is(200).json()
		require.Equal(t, false, got["valid"], name)
		require.Equal(t, -1.0, got["error"].(map[string]any)["index"], name)
	}
	got := b.post("/v1/actions/validate", object{"actions": []object{{"verb": "talk", "text": "Hi"}}, "variables": object{"a": "b"}}).is(200).json()
	require.Equal(t, true, got["valid"])
	require.Equal(t, map[string]any{"a": "b"}, got["variables"])
	require.Equal(t, []any{"say", "Hi", 1.0}, pick(got["actions"].([]any)[0], "action", "text", "loop"))
	require.Empty(t, b.calls.sent())
}

// TestSimulate puts the real simulator behind the API: it asks the application's own server, and no call is stored.
func TestSimulate(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		asked := make(chan map[string]any, 4)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var question map[string]any
			err := json.NewDecoder(r.Body).Decode(&question)
			if err != nil || question["type"] == "result" {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			asked <- question
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`[{"action":"gather","num_digits":1},{"action":"hangup"}]`))
		}))
		b.t.Cleanup(server.Close)
		genuine, err := simulator.New(simulator.Config{Client: server.Client()})
		require.NoError(b.t, err)
		b.server.simulator = genuine
		app := b.post("/v1/applications", object{"name": "a", "answer_url": server.URL}).is(201).str("id")
		path := "/v1/applications/" + app + "/simulate"
		report := b.post(path, object{"input": []object{{"digits": "7"}}, "expect": object{"actions": []string{"gather", "hangup"}}}).is(200).json()
		require.Equal(b.t, true, report["ok"], report)
		require.NotEmpty(b.t, report["path"])
		require.Equal(b.t, true, (<-asked)["simulated"])
		require.Empty(b.t, b.get("/v1/calls").data(), "a simulation is no call")
		require.Equal(b.t, false, b.post(path, object{"expect": object{"actions": []string{"say"}}}).is(200).json()["ok"])

		for name, test := range map[string]struct {
			body  any
			field string
		}{
			"unknown":    {object{"inputs": []any{}}, "inputs"},
			"digits":     {object{"input": []object{{"digits": "x"}}}, "input[0].digits"},
			"two things": {object{"input": []object{{"digits": "1", "hangup": true}}}, "input[0]"},
		} {
			got := b.do(exchange{method: "POST", path: path, body: test.body}).refused(codeInvalidRequest, test.field)
			require.NotEmpty(b.t, got.message(), name)
		}
		b.post("/v1/applications/app_unknown/simulate", nil).refused(codeNotFound, "")

		b.server.simulator = b.simulator
		b.simulator.err = simulator.ErrBusy
		busy := b.post(path, nil).refused(codeRateLimited, "")
		require.Equal(b.t, "1", busy.header.Get("Retry-After"))
	})
}
