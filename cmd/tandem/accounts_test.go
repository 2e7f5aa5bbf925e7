package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCustomersAccount(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	customer := object{
		"id": "cust_1", "name": "Acme", "status": "suspended", "currency": "EUR", "balance": "-2.00", "held": "0.60", "credit_limit": "10.00", "available": "7.40",
		"low_balance": "3.00", "rate_deck_id": "deck_1", "live_calls": 2,
	}
	api.says("GET /customers/cust_1", 200, customer)
	var sent object
	take := func(status int) func(*http.Request, []byte) (int, any) {
		return func(_ *http.Request, body []byte) (int, any) {
			sent = nil
			require.NoError(t, json.Unmarshal(body, &sent))
			return status, customer
		}
	}
	api.on("PATCH /customers/cust_1", take(200))
	api.on("POST /customers", take(201))
	api.on("POST /customers/cust_1/adjustments", take(201))
	for command, want := range map[string]object{
		"suspend cust_1": {"status": "suspended"},
		"resume cust_1":  {"status": "active"},
		"update cust_1 --credit-limit 10 --low-balance 3 --name Acme": {"credit_limit": "10", "low_balance": "3", "name": "Acme"},
		"update cust_1 --low-balance none":                            {"low_balance": nil},
		"create Acme --credit-limit 10":                               {"name": "Acme", "balance": "0", "credit_limit": "10"},
		"adjust --key k --note sorry -- cust_1 -3.20":                 {"amount": "-3.20", "key": "k", "note": "sorry"},
		"adjust cust_1 3.20 --key k --note sorry":                     {"amount": "3.20", "key": "k", "note": "sorry"},
	} {
		runs(t, 0, append([]string{"customers"}, strings.Fields(command)...)...)
		require.Equal(t, want, sent, command)
	}
	lines := strings.Split(runs(t, 0, "customers", "show", "cust_1").out, "\n")
	require.Regexp(t, `^ID +NAME +STATUS +BALANCE +HELD +CREDIT +AVAILABLE +LOW AT +CURRENCY +RATE DECK +LIVE CALLS$`, lines[0])
	require.Regexp(t, `^cust_1 +Acme +suspended +-2.00 +0.60 +10.00 +7.40 +3.00 +EUR +deck_1 +2$`, lines[1])
	runs(t, 2, "customers", "update", "cust_1")
	runs(t, 2, "customers", "adjust", "cust_1", "3", "--key", "k")
}

func TestLedgerUsageStatements(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	entry := object{"id": "led_1", "kind": "adjust", "amount": "-1.00", "balance": "9.00", "note": "sorry", "actor": "ana", "created_at": "2026-01-02T00:00:00Z"}
	api.says("GET /customers/cust_1/ledger", 200, listOf(entry))
	require.Contains(t, runs(t, 0, "ledger", "list", "--customer", "cust_1", "--kind", "adjust", "--call", "call_1", "--from", "2026-01-01", "--to", "2026-02-01").out, "ana")
	require.Contains(t, api.requests()[len(api.requests())-1],
		"GET /customers/cust_1/ledger?call_id=call_1&created_after=2026-01-01T00%3A00%3A00Z&created_before=2026-01-31T23%3A59%3A59.999999Z&kind=adjust&limit=50")
	runs(t, 0, "ledger", "export", "--customer", "cust_1")
	require.Contains(t, api.requests()[len(api.requests())-1], "GET /customers/cust_1/ledger?format=csv")
	require.Contains(t, runs(t, 2, "ledger", "list", "--customer", "cust_1", "--from", "yesterday").err, "--from")
	runs(t, 2, "ledger", "list")
	require.Contains(t, runs(t, 1, "ledger", "export", "--customer", "cust_2").err, "not_found")

	group := object{"key": "trunk_1", "name": "Carrier", "calls": 4, "answered": 3, "seconds": 61, "billed_seconds": 180, "cost": "0.030000", "asr": 0.75, "acd": 20.3333}
	api.says("GET /customers/cust_1/usage", 200, object{"data": []object{group}, "currency": "EUR", "from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z", "total": group})
	got := runs(t, 0, "usage", "--customer", "cust_1", "--by", "trunk", "--from", "2026-01-01", "--to", "2026-02-01T00:00:00Z")
	require.Regexp(t, `(?m)^TRUNK +NAME +CALLS +ANSWERED +SECONDS +BILLED S +COST +ASR +ACD$`, got.out)
	require.Regexp(t, `(?m)^trunk_1 +Carrier +4 +3 +61 +180 +0.030000 +0.75 +20.3333$`, got.out)
	require.Contains(t, got.err, "0.030000 EUR")
	require.Contains(t, api.requests()[len(api.requests())-1], "from=2026-01-01T00%3A00%3A00Z&group_by=trunk&to=2026-02-01T00%3A00%3A00Z")
	runs(t, 0, "usage", "--customer", "cust_1", "--csv")
	require.Contains(t, api.requests()[len(api.requests())-1], "format=csv&group_by=day")
	require.Contains(t, runs(t, 0, "usage", "--customer", "cust_1", "-o", "json").out, `"total"`)

	month := object{"month": "2026-01", "currency": "EUR", "opening": "1.00", "topups": "2.00", "adjustments": "0.00", "calls": "-1.50", "closing": "1.50", "final": true}
	api.says("GET /customers/cust_1/statements", 200, listOf(month))
	api.says("GET /customers/cust_1/statements/2026-01", 200, month)
	for _, arguments := range [][]string{{}, {"2026-01"}} {
		require.Regexp(t, `(?m)^2026-01 +1.00 +2.00 +0.00 +-1.50 +1.50 +EUR +true$`, runs(t, 0, append([]string{"statements", "--customer", "cust_1"}, arguments...)...).out)
	}
	runs(t, 0, "statements", "--customer", "cust_1", "2026-01", "--csv")
	require.Contains(t, api.requests()[len(api.requests())-1], "GET /customers/cust_1/statements/2026-01?format=csv")
}
