package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/calls"
	"tandem/models"
	"tandem/models/modelstest"
)

// TestCustomerLimits: an operator sets them, the customer sees them, and the trail says who set what.
func TestCustomerLimits(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		b := newBench(t, store, Config{NewCustomer: models.CustomerLimits{CallLimits: models.CallLimits{MaxCalls: 20, MaxCallsPerSecond: 5, Destinations: models.Destinations{AllowedDestinations: []string{}}}}})
		o := operatorBench(b, models.RoleAdmin)
		path := "/operator/v1/customers/" + b.customer.ID + "/limits"
		none := object{
			"max_calls": nil, "max_calls_per_second": nil, "max_calls_per_day": nil, "max_spend_per_day_micros": nil, "max_call_seconds": nil, "requests_per_minute": nil,
			"allowed_destinations": nil, "denied_destinations": []any{}, "allowed_destination_types": []any{},
		}
		require.Equal(t, none, o.get(path).is(200).json(), "who was there before has none")

		set := o.patch(path, object{"max_calls": 7, "allowed_destinations": []string{"us", "+44", "SIP:PBX.example.com"}, "denied_destinations": []string{"+1900"},
			"max_calls_per_day": 1000, "max_spend_per_day_micros": 5_000_000_000, "max_call_seconds": 600, "allowed_destination_types": []string{"premium", "shared_cost"}}).is(200).json()
		want := map[string]any{
			"max_calls_per_day": 1000.0, "max_spend_per_day_micros": 5e9, "max_call_seconds": 600.0, "allowed_destination_types": []any{"premium", "shared_cost"},
			"max_calls": 7.0, "max_calls_per_second": nil, "allowed_destinations": []any{"US", "+44", "sip:pbx.example.com"}, "denied_destinations": []any{"+1900"},
			"requests_per_minute": nil,
		}
		require.Equal(t, want, set)
		require.Equal(t, want, b.get("/v1/me").is(200).json()["limits"])
		require.Equal(t, want, o.get("/operator/v1/customers/" + b.customer.ID).is(200).json()["limits"])
		entries := b.trail(models.AuditFilter{ObjectID: b.customer.ID})
		require.Len(t, entries, 1)
		require.Equal(t, "updateCustomerLimits", entries[0].Action)
		require.Contains(t, string(entries[0].Detail), `"SIP:PBX.example.com"`)

		// What is not named stays; null takes a limit away, and an empty list everything.
		set = o.patch(path, object{"max_calls": nil, "max_calls_per_second": 3, "allowed_destinations": []string{}}).is(200).json()
		require.Equal(t, []any{nil, 3.0, []any{}, []any{"+1900"}}, []any{set["max_calls"], set["max_calls_per_second"], set["allowed_destinations"], set["denied_destinations"]})
		require.Nil(t, o.patch(path, object{"allowed_destinations": nil}).is(200).json()["allowed_destinations"])

		for field, value := range map[string]any{
			"max_calls": 0, "max_calls_per_second": 10_001, "requests_per_minute": 9, "allowed_destinations[1]": []string{"US", "USA"}, "denied_destinations[0]": []string{"809"},
			"max_calls_per_day": 0, "max_spend_per_day_micros": -1, "max_call_seconds": 86_401, "allowed_destination_types[0]": []string{"mobile"},
			"allowed_destination_types[1]": []string{"premium", "premium"}, "denied_destinations": strings.Split(strings.Repeat("+44,", 501), ",")[:501],
		} {
			name, _, _ := strings.Cut(field, "[")
			o.patch(path, object{name: value}).refused(codeInvalidRequest, field)
		}
		o.patch("/operator/v1/customers/cust_none/limits", object{"max_calls": 1}).refused(codeNotFound, "")
		o.get("/operator/v1/customers/cust_none/limits").refused(codeNotFound, "")

		made := o.post("/operator/v1/customers", object{"name": "New"}).is(201).json()["limits"].(map[string]any)
		require.Equal(t, []any{20.0, 5.0, []any{}}, []any{made["max_calls"], made["max_calls_per_second"], made["allowed_destinations"]})
		made = o.post("/operator/v1/customers", object{"name": "New", "max_calls": nil, "allowed_destinations": []string{"DE"}}).is(201).json()["limits"].(map[string]any)
		require.Equal(t, []any{nil, 5.0, []any{"DE"}}, []any{made["max_calls"], made["max_calls_per_second"], made["allowed_destinations"]})
	})
}

// TestDestinationsBesideCalls: what else has a node dial for a customer keeps to where the customer may call.
func TestDestinationsBesideCalls(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		b := newBench(t, store, Config{})
		b.customer.Limits.AllowedDestinations = []string{"DE", "sip:pbx.example.com"}
		require.NoError(t, store.SetLimits(t.Context(), b.customer))
		did := func(uri string) object {
			return object{"number_e164": fmt.Sprintf("+1557%07d", modelstest.Serial()), "route_mode": "sip", "sip_uri": uri}
		}
		b.post("/v1/dids", did("sip:desk@elsewhere.example.com")).refused(codeDestination, "sip_uri")
		b.post("/v1/dids", did("sip:+18095550100@elsewhere.example.com")).refused(codeDestination, "sip_uri")
		made := b.post("/v1/dids", did("sip:desk@pbx.example.com")).is(201)
		b.patch("/v1/dids/"+made.str("id"), object{"sip_uri": "sip:desk@elsewhere.example.com"}).refused(codeDestination, "sip_uri")

		// What is there goes on, and can be changed otherwise.
		b.customer.Limits.AllowedDestinations = []string{}
		require.NoError(t, store.SetLimits(t.Context(), b.customer))
		b.patch("/v1/dids/"+made.str("id"), object{"provider": "other"}).is(200)
		b.patch("/v1/dids/"+made.str("id"), object{"route_mode": "sip"}).refused(codeDestination, "sip_uri")

		trunk := modelstest.OutboundTrunk(t, store, b.customer)
		refused := b.post("/v1/trunks/"+trunk.ID+"/test", object{"to": "+18095550100"}).refused(codeDestination, "to")
		require.Contains(t, refused.message(), "not among the allowed destinations")
	})
}

func TestLimitErrors(t *testing.T) {
	t.Parallel()
	denied := asError(fmt.Errorf("place: %w", &calls.DestinationError{Why: "denied by +1900"}))
	require.Equal(t, []any{codeDestination, "to", http.StatusForbidden, 0}, []any{denied.Code, denied.Field, denied.Status(), denied.RetryAfter})
	require.Contains(t, denied.Message, "denied by +1900")
	require.Contains(t, asError(&calls.DestinationError{Subject: models.SubjectApplication, Why: "denied by +1900"}).Message, "the application")
	for _, c := range []struct {
		subject, limit string
		lasts          time.Duration
		code           string
		status, retry  int
		says           string
	}{
		{models.SubjectCustomer, models.LimitCalls, 0, codeConcurrency, http.StatusTooManyRequests, 1, "your account"},
		{models.SubjectApplication, models.LimitCalls, 0, codeConcurrency, http.StatusTooManyRequests, 1, "the application"},
		{models.SubjectTrunk, models.LimitCalls, 0, codeConcurrency, http.StatusTooManyRequests, 1, "the trunk obj_1"},
		{models.SubjectCustomer, models.LimitRate, time.Second, codeRateLimited, http.StatusTooManyRequests, 1, "your account"},
		{models.SubjectApplication, models.LimitCallsPerDay, 89*time.Second + 1, codeDailyLimit, http.StatusTooManyRequests, 90, "midnight UTC"},
		{models.SubjectTrunk, models.LimitSpendPerDay, 0, codeSpendLimit, http.StatusForbidden, 0, "the trunk obj_1"},
	} {
		full := asError(fmt.Errorf("%w: %w", calls.ErrTrunksFull, &models.LimitError{Subject: c.subject, ID: "obj_1", Limit: c.limit, RetryAfter: c.lasts}))
		require.Equal(t, []any{c.code, c.limit, c.status, c.retry}, []any{full.Code, full.Field, full.Status(), full.RetryAfter})
		require.Contains(t, full.Message, c.says)
		require.Contains(t, full.Message, c.limit)
		if c.subject == models.SubjectCustomer {
			require.NotContains(t, full.Message, "obj_1")
		}
	}
}

// TestRefusedDestinationsAreTold: the story of a call says which party was not called, and why.
func TestRefusedDestinationsAreTold(t *testing.T) {
	t.Parallel()
	story := stories()["answered"]
	story.Events = append(story.Events, storyEvent(90, 5, "call.error", map[string]any{
		"code": calls.ReasonDestination, "action": "dial", "field": "to[1]", "message": (&calls.DestinationError{Why: "denied by +1809"}).Error(), "index": 1,
	}))
	told := false
	for _, step := range tell(story) {
		if strings.Contains(step.Text, "denied by +1809") {
			require.Contains(t, step.Text, calls.ReasonDestination)
			require.False(t, step.OK)
			told = true
		}
	}
	require.True(t, told)
	require.Contains(t, strings.Join(problems(story, story.Call.CreatedAt), "\n"), "denied by +1809")
}
