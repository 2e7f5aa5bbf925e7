package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/calls"
	"tandem/models"
	"tandem/models/modelstest"
	"tandem/webhooks"
)

func (b *bench) callBody() object {
	app := modelstest.Application(b.t, b.store, b.customer)
	return object{"application_id": app.ID, "from": "+31201234567", "to": "+31207654321"}
}

func TestCallLifecycle(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		body := b.callBody()
		body["record"], body["timeout"] = true, 30
		body["metadata"] = object{"order": "1234", "note": "line\nbreak"}
		made := b.post("/v1/calls", body).is(201)
		require.Regexp(b.t, `^call_[0-9a-z]{26}$`, made.str("id"))
		require.Equal(b.t, "dialing", made.str("status"))
		require.Equal(b.t, "outbound", made.str("direction"))
		require.Equal(b.t, "+31201234567", made.str("from"))
		require.Equal(b.t, true, made.json()["record"])
		require.Equal(b.t, object{"order": "1234", "note": "line\nbreak"}, made.json()["metadata"])
		require.Equal(b.t, object{}, made.json()["variables"])
		path := "/v1/calls/" + made.str("id")
		require.Equal(b.t, made.body, b.get(path).is(200).body)

		canceled := b.post(path+"/cancel", nil).is(202)
		require.Equal(b.t, "canceled", canceled.str("status"))
		b.post(path+"/cancel", object{}).refused(codeCallNotActive, "")
		b.post("/v1/calls/call_unknown/cancel", nil).refused(codeNotFound, "")
		b.get("/v1/calls/call_unknown").refused(codeNotFound, "")
	})
}

func TestCallRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	base := b.callBody()
	with := func(field string, value any) object {
		body := object{}
		for name, value := range base {
			body[name] = value
		}
		if body[field] = value; value == nil {
			delete(body, field)
		}
		return body
	}
	many := object{}
	for i := range 51 {
		many[fmt.Sprint(i)] = "x"
	}
	for name, test := range map[string]struct {
		body           any
		field, message string
	}{
		"no application":   {with("application_id", nil), "application_id", "application_id is required"},
		"no from":          {with("from", nil), "from", "from is required"},
		"no to":            {with("to", nil), "to", "to is required"},
		"empty to":         {with("to", ""), "to", "to is required"},
		"from not E.164":   {with("from", "0201234567"), "from", "from must be an E.164 number such as +31201234567"},
		"to with letters":  {with("to", "+3120CALLME"), "to", "to must be an E.164 number such as +31201234567"},
		"to too long":      {with("to", "+1234567890123456"), "to", "to must be an E.164 number such as +31201234567"},
		"to expands":       {with("to", "${system(touch /tmp/x)}"), "to", "to must be an E.164 number such as +31201234567"},
		"to with a break":  {with("to", "+31207654321\n"), "to", "to must be an E.164 number such as +31201234567"},
		"record a string":  {with("record", "yes"), "record", "record must be a boolean"},
		"timeout short":    {with("timeout", 4), "timeout", "timeout must be between 5 and 600"},
		"timeout huge":     {with("timeout", 1e12), "timeout", "timeout must be an integer"},
		"metadata number":  {with("metadata", object{"n": 1}), "metadata.n", "metadata.n must be a string"},
		"metadata null":    {with("metadata", object{"n": nil}), "metadata.n", "metadata.n must be a string"},
		"metadata list":    {with("metadata", []string{"a"}), "metadata", "metadata must be an object"},
		"metadata many":    {with("metadata", many), "metadata", "metadata must have at most 50 entries"},
		"metadata long":    {with("metadata", object{"n": strings.Repeat("x", 1025)}), "metadata.n", "metadata.n must be at most 1024 bytes long"},
		"metadata NUL":     {with("metadata", object{"n": "\x00"}), "metadata.n", "metadata.n must not contain control characters"},
		"metadata no name": {with("metadata", object{"": "x"}), `metadata.""`, `metadata."": a name must have 1 to 64 characters and no control characters`},
		"metadata twice":   {`{"metadata":{"a":"1","a":"2"}}`, "metadata.a", "metadata.a is given twice"},
		"start a string":   {with("start", "no"), "start", "start must be a boolean"},
		"detection a word": {with("machine_detection", "yes"), "machine_detection", "machine_detection: must be true, false or an object of settings, was \"yes\""},
		"detection field":  {with("machine_detection", object{"mode": "guess"}), "machine_detection", `machine_detection.mode: must be one of detect, message_end, was "guess"`},
	} {
		got := b.post("/v1/calls", test.body).refused(codeInvalidRequest, test.field)
		require.Equal(t, test.message, got.message(), name)
	}
	b.post("/v1/calls", with("application_id", "app_unknown")).refused(codeNotFound, "application_id")
	foreign := modelstest.Application(t, b.store, modelstest.Customer(t, b.store, 0))
	b.post("/v1/calls", with("application_id", foreign.ID)).refused(codeNotFound, "application_id")
	require.Empty(t, b.get("/v1/calls").data(), "nothing is stored")
	require.Zero(t, b.calls.count(), "nothing is dialled")

	for _, test := range []struct {
		fail  error
		code  string
		field string
	}{
		{fmt.Errorf("reserve: %w", models.ErrInsufficientBalance), codeInsufficientBalance, ""},
		{calls.ErrNoActiveTrunk, codeNoActiveTrunk, ""},
		{calls.ErrNoNode, codeNoNodeAvailable, ""},
		{calls.ErrStopping, codeUnavailable, ""},
		{&calls.RequestError{Field: "to", Message: "is premium rate"}, codeInvalidRequest, "to"},
		{models.ErrNotFound, codeNotFound, "application_id"},
		{errors.New("canary-detail"), codeInternalError, ""},
		{context.DeadlineExceeded, codeUnavailable, ""},
	} {
		b.calls.failWith(test.fail)
		got := b.post("/v1/calls", base).refused(test.code, test.field)
		require.NotContains(t, string(got.body), "canary-detail", "causes are for the log")
		require.NotContains(t, got.message(), "reserve")
	}
	require.Contains(t, b.logs.String(), "canary-detail")
}

// TestCallIsTheSameEverywhere holds the API's call object to that of events and answer_url requests.
func TestCallIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	now, id := time.Now(), "x_1"
	for _, call := range []models.Call{
		{ID: "call_1", Status: models.CallDialing, CreatedAt: now, UpdatedAt: now},
		{
			ID: "call_1", CustomerID: "cust_1", ApplicationID: "app_1", TrunkID: &id, DIDID: &id, Direction: models.Inbound, Status: models.CallCompleted,
			From: "+1", To: "+2", Record: true, Metadata: map[string]string{"a": "b"}, Variables: map[string]string{"c": "d"}, Reason: "completed",
			HangupSource: "caller", Cause: "NORMAL_CLEARING", Q850: 16, SIPCode: 200, PricePerMinuteMicros: 1, BilledSeconds: 2, CostMicros: 3,
			TimeoutSeconds: 60, CreatedAt: now, UpdatedAt: now, RingingAt: &now, AnsweredAt: &now, EndedAt: &now,
		},
	} {
		ours := asObject(t, toCall(&call))
		require.Contains(t, ours, "variables")
		delete(ours, "variables")
		require.Equal(t, asObject(t, webhooks.CallObject(&call)), ours)
	}
}

func asObject(t *testing.T, value any) object {
	t.Helper()
	encoded, err := json.Marshal(value)
	require.NoError(t, err)
	var decoded object
	require.NoError(t, json.Unmarshal(encoded, &decoded))
	return decoded
}

func TestCallFilters(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		body := b.callBody()
		first := b.post("/v1/calls", body).is(201).str("id")
		body["to"] = "+31200000000"
		second := b.post("/v1/calls", body).is(201).str("id")
		b.post("/v1/calls/"+first+"/cancel", nil).is(202)
		app := body["application_id"].(string)
		now := b.store.Now()
		for query, want := range map[string][]string{
			"":                                  {second, first},
			"?status=canceled":                  {first},
			"?status=dialing&direction=inbound": {},
			"?direction=outbound":               {second, first},
			"?to=+31200000000":                  {second},
			"?to=%2B31200000000":                {second},
			"?from=%2B31201234567":              {second, first},
			"?application_id=" + app:            {second, first},
			"?application_id=app_unknown":       {},
			"?trunk_id=trunk_unknown":           {},
			"?created_after=" + url.QueryEscape(now.Add(-time.Hour).Format(time.RFC3339)):  {second, first},
			"?created_before=" + url.QueryEscape(now.Add(-time.Hour).Format(time.RFC3339)): {},
			"?limit=1": {second},
		} {
			got := b.get("/v1/calls" + query).is(200)
			ids := []string{}
			for _, item := range got.data() {
				ids = append(ids, item.(object)["id"].(string))
			}
			require.Equal(b.t, want, ids, query)
		}
		// A plus sign that is not escaped still counts.
		unescaped := "/v1/calls?created_after=" + now.Add(time.Hour).In(time.FixedZone("", 7200)).Format(time.RFC3339)
		require.Empty(b.t, b.do(exchange{method: "GET", path: unescaped, lenient: true}).is(200).data())
		for query, field := range map[string]string{
			"?status=over": "status", "?direction=up": "direction", "?created_after=yesterday": "created_after",
			"?created_before=1": "created_before", "?application_id=%00": "application_id", "?trunk_id=a%20b": "trunk_id",
			"?from=%00": "from", "?to=%ff": "to", "?cursor=%ff": "cursor",
		} {
			b.get("/v1/calls"+query).refused(codeInvalidRequest, field)
		}
	})
}
