package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rateOf is a rate as the API answers one.
func rateOf(prefix, perMinute string) object {
	return object{
		"id": "rate_" + prefix, "direction": "outbound", "prefix": prefix, "destination": "There, " + prefix, "per_minute": perMinute, "connect": "0.05", "connect_on": "attempt",
		"minimum": 60, "increment": 1, "valid_from": "2026-01-01T00:00:00Z", "valid_to": nil,
	}
}

// ratesAPI is an operator API with one deck.
func ratesAPI(t *testing.T) *fakeAPI {
	t.Helper()
	api := startAPI(t)
	api.as(t, "op_good")
	deck := object{"id": "deck_1", "name": "Retail EUR", "currency": "EUR", "is_default": true, "unlisted": "next", "rates": 7, "customers": 2, "trunks": 1}
	api.on("GET /rate-decks", func(r *http.Request, _ []byte) (int, any) {
		if name := r.URL.Query().Get("name"); name != "" && name != "Retail EUR" {
			return 200, listOf()
		}
		return 200, listOf(deck)
	})
	for _, route := range []string{"GET /rate-decks/deck_1", "PATCH /rate-decks/deck_1", "POST /rate-decks"} {
		api.says(route, 200, deck)
	}
	for _, route := range []string{"DELETE /rate-decks/deck_1", "DELETE /rates/rate_31"} {
		api.says(route, 204, nil)
	}
	api.says("POST /rate-decks/deck_1/rates", 201, rateOf("31", "0.0125"))
	api.says("PATCH /rates/rate_31", 200, rateOf("31", "0.0125"))
	api.says("PATCH /customers/cust_1/rate-deck", 200, object{"id": "cust_1", "rate_deck_id": "deck_1"})
	api.says("PATCH /trunks/trunk_1/rate-deck", 200, object{"id": "trunk_1", "rate_deck_id": nil})
	api.on("GET /rate-decks/deck_1/rates", func(r *http.Request, _ []byte) (int, any) {
		if r.URL.Query().Get("cursor") == "" {
			return 200, object{"data": []object{rateOf("31", "0.0125")}, "count": 1, "has_more": true, "next_cursor": "more"}
		}
		return 200, listOf(rateOf("sip", "0.00"))
	})
	return api
}

// TestRateCommands: what each command asks of the API, and what it prints.
func TestRateCommands(t *testing.T) { //nolint:paralleltest // t.Setenv
	for _, tc := range []struct {
		arguments []string
		asked     string
		printed   string
	}{
		{[]string{"decks", "ls", "--currency", "EUR"}, "GET /rate-decks?currency=EUR&limit=50", "Retail EUR"},
		{[]string{"decks", "get", "Retail EUR"}, "GET /rate-decks/deck_1", "CUSTOMERS"},
		{[]string{"decks", "create", "New", "--currency", "EUR", "--default", "--unlisted", "refuse"}, `POST /rate-decks {"currency":"EUR","is_default":true,"name":"New","unlisted":"refuse"}`, "deck_1"},
		{[]string{"decks", "update", "deck_1", "--default=false", "--name", "Old"}, `PATCH /rate-decks/deck_1 {"is_default":false,"name":"Old"}`, "deck_1"},
		{[]string{"decks", "delete", "Retail EUR", "--yes"}, "DELETE /rate-decks/deck_1", ""},
		{[]string{"list", "Retail EUR", "--limit", "1", "--number", "+31201234567", "--on", "2026-02-01"}, "GET /rate-decks/deck_1/rates?limit=1&number=%2B31201234567&on=2026-02-01", "60/1"},
		{
			[]string{"set", "Retail EUR", "+31", "--per-minute", "0.0125", "--billing", "60/1", "--connect", "0.05", "--connect-on", "attempt", "--valid-from", "2026-01-01"},
			`POST /rate-decks/deck_1/rates {"billing":"60/1","connect":"0.05","connect_on":"attempt","per_minute":"0.0125","prefix":"+31","valid_from":"2026-01-01"}`, "There, 31",
		},
		{[]string{"end", "rate_31", "--at", "none"}, `PATCH /rates/rate_31 {"valid_to":null}`, "There, 31"},
		{[]string{"end", "rate_31", "--at", "2026-03-01"}, `PATCH /rates/rate_31 {"valid_to":"2026-03-01"}`, "There, 31"},
		{[]string{"delete", "rate_31", "--yes"}, "DELETE /rates/rate_31", ""},
		{[]string{"assign", "Retail EUR", "--customer", "cust_1"}, `PATCH /customers/cust_1/rate-deck {"rate_deck_id":"deck_1"}`, "deck_1"},
		{[]string{"assign", "--none", "--trunk", "trunk_1"}, `PATCH /trunks/trunk_1/rate-deck {"rate_deck_id":null}`, "trunk_1"},
	} {
		api := ratesAPI(t)
		got := runs(t, 0, append([]string{"rates"}, tc.arguments...)...)
		asked := api.requests()
		require.Equal(t, tc.asked, asked[len(asked)-1], "%v", tc.arguments)
		require.Contains(t, got.out, tc.printed, "%v", tc.arguments)
	}
	api := ratesAPI(t)
	for command, said := range map[string]string{
		"rates decks update deck_1":                          "a flag is needed",
		"rates decks rm deck_1":                              "This needs --yes",
		"rates rm rate_31":                                   "This needs --yes",
		"rates set deck_1 31":                                `required flag(s) "per-minute" not set`,
		"rates end rate_31":                                  `required flag(s) "at" not set`,
		"rates assign deck_1":                                "at least one of the flags in the group [customer trunk] is required",
		"rates assign --customer cust_1":                     "name a deck, or give --none",
		"rates assign deck_1 --none --customer cust_1":       "name a deck, or give --none",
		"rates assign deck_1 --customer cust_1 --trunk t_1 ": "none of the others can be",
		"rates import x.csv":                                 `required flag(s) "deck" not set`,
		"rates list deck_1 --limit 0":                        "--limit",
	} {
		got := run(t.Context(), "", strings.Fields(command)...)
		require.Equal(t, 2, got.code, "%s: %s", command, got.err)
		require.Contains(t, got.err, said, command)
	}
	for _, asked := range api.requests() {
		require.True(t, strings.HasPrefix(asked, "GET "), asked)
	}
	require.Contains(t, runs(t, 1, "rates", "ls", "Wholesale").err, `there is no rate deck "Wholesale"`)
	require.Contains(t, runs(t, 0, "__complete", "rates", "ls", "").out, "Retail EUR")
	require.Contains(t, runs(t, 0, "__complete", "rates", "import", "x.csv", "--deck", "").out, "Retail EUR")
}

// TestRatesTestCommand: the decks that were asked, the price, and what calls cost.
func TestRatesTestCommand(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := ratesAPI(t)
	answer := object{
		"number": "+31201234567", "direction": "outbound", "on": "2026-02-01T00:00:00Z", "currency": "EUR", "customer_id": "cust_1", "trunk_id": nil, "outcome": "rate",
		"steps": []object{
			{"deck_id": "deck_2", "deck": "Carrier\x1b[2J", "of": "trunk", "answer": "next", "rate": nil, "why": "it has no rate for the number"},
			{"deck_id": "deck_1", "deck": "Retail EUR", "of": "customer", "answer": "rate", "rate": rateOf("31", "0.0125"), "why": "its longest prefix"},
		},
		"price": rateOf("31", "0.0125"), "unanswered": "0.05", "costs": []object{{"seconds": 61, "billed_seconds": 61, "cost": "0.062709", "cost_micros": 62709}},
	}
	api.on("GET /rates/test", func(*http.Request, []byte) (int, any) { return 200, answer })
	got := runs(t, 0, "rates", "test", "+31201234567", "--customer", "cust_1", "--trunk", "trunk_1", "--direction", "outbound", "--on", "2026-02-01")
	require.Equal(t, "GET /rates/test?customer=cust_1&direction=outbound&number=%2B31201234567&on=2026-02-01&trunk=trunk_1", api.requests()[0])
	var lines []string
	for line := range strings.Lines(got.out) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	require.Equal(t, []string{
		"ASKED OF SAYS PREFIX DESTINATION PER MINUTE CONNECT BILLING",
		"Carrier\ufffd[2J trunk next - - - - -",
		"Retail EUR customer rate 31 There, 31 0.0125 0.05 60/1",
		"",
		"the deck Retail EUR decides: its longest prefix",
		"outbound +31201234567 on 2026-02-01T00:00:00Z, in EUR; an attempt that nobody answers: 0.05",
		"",
		"SECONDS BILLED COST",
		"61 61 0.062709",
	}, lines)
	var shown object
	require.NoError(t, json.Unmarshal([]byte(runs(t, 0, "rates", "test", "+31201234567", "-o", "json").out), &shown))
	require.Equal(t, "rate", shown["outcome"])
	require.Equal(t, "Carrier\ufffd[2J\nRetail EUR\n", runs(t, 0, "rates", "test", "+31201234567", "-o", "name").out)

	answer["outcome"], answer["steps"] = "configuration", []object{}
	require.Regexp(t, `the configuration +everybody +rate +31`, runs(t, 0, "rates", "test", "+31201234567").out)
	answer["outcome"], answer["price"], answer["costs"] = "refused", nil, []object{}
	answer["steps"] = []object{{"deck": "Retail EUR", "of": "customer", "answer": "refuse", "rate": nil, "why": "it has such calls refused"}}
	refused := runs(t, 0, "rates", "test", "+31201234567").out
	require.Contains(t, refused, "outbound +31201234567 on 2026-02-01T00:00:00Z: refused")
	require.NotContains(t, refused, "SECONDS")
}

// TestRatesImport sends a file, goes on with the import that was begun with the same flags, and keeps what is rejected.
func TestRatesImport(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := ratesAPI(t)
	job := object{"id": "imp_1", "state": "open", "deck_id": "deck_1", "mode": "replace", "total_records": 2, "next_record": 0, "rejected": 0}
	open := listOf()
	api.on("GET /rate-imports", func(*http.Request, []byte) (int, any) { return 200, open })
	api.on("GET /rate-imports/imp_1", func(*http.Request, []byte) (int, any) { return 200, job })
	api.on("POST /rate-imports", func(_ *http.Request, body []byte) (int, any) {
		var begun object
		require.NoError(t, json.Unmarshal(body, &begun))
		job["columns"], job["file_sha256"], job["defaults"] = begun["columns"], begun["file_sha256"], object{"billing": begun["billing"]}
		return 201, job
	})
	var sent []any
	api.on("POST /rate-imports/imp_1/records", func(_ *http.Request, body []byte) (int, any) {
		var part struct{ Records []any }
		require.NoError(t, json.Unmarshal(body, &part))
		sent = append(sent, part.Records...)
		job["state"], job["next_record"], job["rejected"], job["created"] = "finished", 2, 1, 1
		return 200, job
	})
	api.says("GET /rate-imports/imp_1/rejects", 200, listOf(object{"line": 3, "record": "32,x", "field": "per_minute", "message": "no amount"}))
	path := filepath.Join(t.TempDir(), "rates.csv")
	require.NoError(t, os.WriteFile(path, []byte("prefix,per_minute\n31,0.01\n32,x\n"), 0o600))
	command := []string{"rates", "import", path, "--deck", "Retail EUR", "--replace", "--billing", "60/1"}
	got := runs(t, 1, command...)
	require.Contains(t, got.err, "1 were rejected: "+rejectsPath(path)+" says why; so nothing that the file does not name has ended")
	require.Contains(t, got.out, "2/2")
	require.Equal(t, []any{object{"line": 2., "values": []any{"31", "0.01"}}, object{"line": 3., "values": []any{"32", "x"}}}, sent)
	rejects, err := os.ReadFile(rejectsPath(path))
	require.NoError(t, err)
	require.Equal(t, "prefix,per_minute,line,field,error\n32,x,3,per_minute,no amount\n", string(rejects))
	var begun string
	for _, asked := range api.requests() {
		if strings.HasPrefix(asked, "POST /rate-imports {") {
			begun = asked
		}
	}
	require.Contains(t, begun, `"deck_id":"deck_1"`)
	require.Contains(t, begun, `"mode":"replace"`)
	require.Contains(t, begun, `"file_name":"rates.csv"`)

	job["state"], open = "open", listOf(job)
	job["next_record"] = 1
	sent = nil
	require.Contains(t, runs(t, 1, command...).err, "going on with import imp_1 at record 1 of 2")
	require.Equal(t, []any{object{"line": 3., "values": []any{"32", "x"}}}, sent)
	for name, other := range map[string][]string{
		"merged": {"--deck", "Retail EUR", "--billing", "60/1"}, "another deck": {"--deck", "deck_2", "--replace", "--billing", "60/1"}, "another notation": {"--deck", "Retail EUR", "--replace"},
	} {
		job["state"], job["next_record"] = "open", 0
		got := run(t.Context(), "", append([]string{"rates", "import", path}, other...)...)
		require.Equal(t, 1, got.code, name)
		require.NotContains(t, got.err, "going on", name)
	}
}

// TestRatesExport: what is exported has the columns of an import, every page of it.
func TestRatesExport(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := ratesAPI(t)
	want := "direction,prefix,destination,per_minute,connect,connect_on,minimum,increment,valid_from,valid_to\n" +
		"outbound,31,\"There, 31\",0.0125,0.05,attempt,60,1,2026-01-01T00:00:00Z,\noutbound,sip,\"There, sip\",0.00,0.05,attempt,60,1,2026-01-01T00:00:00Z,\n"
	require.Equal(t, want, runs(t, 0, "rates", "export", "Retail EUR", "--progress", "none").out)
	path := filepath.Join(t.TempDir(), "out.csv")
	require.Empty(t, runs(t, 0, "rates", "export", "Retail EUR", "--file", path, "--direction", "outbound").out)
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(written))
	require.Contains(t, strings.Join(api.requests(), "\n"), "GET /rate-decks/deck_1/rates?cursor=more&direction=outbound&limit=200")
	runs(t, 1, "rates", "export", "Retail EUR", "--file", path)
	api.on("GET /rate-decks/deck_1/rates", func(*http.Request, []byte) (int, any) { return 200, listOf() })
	require.Equal(t, fmt.Sprintln(strings.TrimSpace(strings.SplitN(want, "\n", 2)[0])), runs(t, 0, "rates", "export", "deck_1", "--progress", "none").out, "an empty deck has its columns")
}
