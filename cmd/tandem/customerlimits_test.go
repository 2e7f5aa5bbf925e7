package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCustomerLimits(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	limits := object{"max_calls": 20, "max_calls_per_second": nil, "allowed_destinations": []string{}, "denied_destinations": []string{"+1900"}, "requests_per_minute": nil,
		"max_spend_per_day_micros": 12_500_000, "allowed_destination_types": []string{"premium", "satellite"}}
	api.says("GET /customers/cust_1/limits", 200, limits)
	shown := runs(t, 0, "customers", "limits", "cust_1").out
	require.Regexp(t, `(?m)^MAX CALLS +PER SECOND +PER DAY +SPEND/DAY +SECONDS +REQUESTS/MIN +ALLOWED +DENIED +TYPES$`, shown)
	require.Regexp(t, `(?m)^20 +none +none +12\.5 +default +default +none +\+1900 +premium satellite$`, shown)

	var sent object
	take := func(_ *http.Request, body []byte) (int, any) {
		sent = nil
		require.NoError(t, json.Unmarshal(body, &sent))
		return 200, object{"allowed_destinations": nil, "denied_destinations": []string{}, "requests_per_minute": 90, "max_calls": nil, "max_calls_per_second": 5, "id": "cust_2"}
	}
	api.on("PATCH /customers/cust_1/limits", take)
	shown = runs(t, 0, "customers", "limits", "cust_1", "--allow", "US,+44", "--deny", "none", "--max-calls", "none", "--max-calls-per-second", "5", "--requests-per-minute", "90").out
	require.Regexp(t, `(?m)^none +5 +none +none +default +90 +any +- +-$`, shown)
	require.Equal(t, object{
		"allowed_destinations": []any{"US", "+44"}, "denied_destinations": []any{}, "max_calls": nil, "max_calls_per_second": 5.0, "requests_per_minute": 90.0,
	}, sent)
	runs(t, 0, "customers", "limits", "cust_1", "--allow", "any")
	require.Equal(t, object{"allowed_destinations": nil}, sent)
	runs(t, 0, "customers", "limits", "cust_1", "--allow", "none")
	require.Equal(t, object{"allowed_destinations": []any{}}, sent)
	require.Contains(t, runs(t, 2, "customers", "limits", "cust_1", "--max-calls", "0").err, "--max-calls")
	runs(t, 0, "customers", "limits", "cust_1", "--max-calls-per-day", "1000", "--max-spend-per-day", "250.000001", "--max-call-seconds", "none", "--allow-types", "premium,shared_cost")
	require.Equal(t, object{
		"max_calls_per_day": 1000.0, "max_spend_per_day_micros": 250_000_001.0, "max_call_seconds": nil, "allowed_destination_types": []any{"premium", "shared_cost"},
	}, sent)
	runs(t, 0, "customers", "limits", "cust_1", "--max-spend-per-day", "none", "--allow-types", "none")
	require.Equal(t, object{"max_spend_per_day_micros": nil, "allowed_destination_types": []any{}}, sent)
	for _, wrong := range []string{"0", "-1", "1.0000001", "x", "", ".5", "99999999999999999999"} {
		require.Contains(t, runs(t, 2, "customers", "limits", "cust_1", "--max-spend-per-day="+wrong).err, "--max-spend-per-day")
	}

	api.on("POST /customers", take)
	runs(t, 0, "customers", "create", "Acme", "--allow", "DE", "--max-calls", "3")
	require.Equal(t, object{"name": "Acme", "balance": "0", "allowed_destinations": []any{"DE"}, "max_calls": 3.0}, sent)
}
