package api

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/billing"
	"tandem/models"
	"tandem/models/modelstest"
)

// deck makes a rate deck.
func (b *bench) deck(currency string) *models.RateDeck {
	b.t.Helper()
	deck := &models.RateDeck{Name: fmt.Sprintf("deck %d", modelstest.Serial()), Currency: currency}
	require.NoError(b.t, b.store.CreateRateDeck(b.t.Context(), deck))
	return deck
}

// rates puts rates into a deck, which are outbound, in minutes and valid since 2026 where they do not say otherwise.
func (b *bench) rates(deck *models.RateDeck, rows ...models.DeckRate) []models.DeckRate {
	b.t.Helper()
	for i := range rows {
		row := &rows[i]
		if row.Direction == "" {
			row.Direction = models.Outbound
		}
		if row.ConnectOn == "" {
			row.ConnectOn = models.ConnectOnAnswer
		}
		row.IncrementSeconds = max(row.IncrementSeconds, 1)
		if row.ValidFrom.IsZero() {
			row.ValidFrom = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		}
	}
	_, err := b.store.PutRates(b.t.Context(), deck.ID, rows)
	require.NoError(b.t, err)
	return rows
}

func TestRateDecksOfOperators(t *testing.T) {
	t.Parallel()
	onBothAsOperator(t, func(b *bench) {
		first := b.post("/operator/v1/rate-decks", object{"name": " Wholesale ", "currency": "EUR", "is_default": true}).is(201)
		require.Equal(b.t, []any{"Wholesale", "EUR", true, "next"}, []any{first.json()["name"], first.json()["currency"], first.json()["is_default"], first.json()["unlisted"]})
		b.post("/operator/v1/rate-decks", object{"name": "Wholesale"}).refused(codeNameExists, "name")
		for field, body := range map[string]object{
			"name": {"name": " "}, "currency": {"name": "x", "currency": "eur"}, "unlisted": {"name": "x", "unlisted": "ask"},
		} {
			b.post("/operator/v1/rate-decks", body).refused(codeInvalidRequest, field)
		}
		second := b.post("/operator/v1/rate-decks", object{"name": "Retail", "currency": "EUR"}).is(201)
		path := "/operator/v1/rate-decks/" + second.str("id")
		b.patch(path, object{"name": "Wholesale"}).refused(codeNameExists, "name")
		b.patch(path, object{"name": ""}).refused(codeInvalidRequest, "name")
		changed := b.patch(path, object{"is_default": true, "unlisted": "refuse"}).is(200).json()
		require.Equal(b.t, []any{"Retail", true, "refuse"}, []any{changed["name"], changed["is_default"], changed["unlisted"]})
		require.Equal(b.t, false, b.get("/operator/v1/rate-decks/" + first.str("id")).is(200).json()["is_default"])
		require.Len(b.t, b.get("/operator/v1/rate-decks?name=Retail").is(200).data(), 1)
		require.Empty(b.t, b.get("/operator/v1/rate-decks?currency=USD").is(200).data())
		b.delete(path).refused(codeResourceInUse, "")

		id := b.customer.ID
		trunk := modelstest.OutboundTrunk(b.t, b.store, b.customer)
		foreign := b.deck("XXX")
		for _, whose := range []string{"/operator/v1/customers/" + id, "/operator/v1/trunks/" + trunk.ID} {
			own := b.deck(b.customer.Currency)
			b.patch(whose+"/rate-deck", object{}).refused(codeInvalidRequest, "rate_deck_id")
			b.patch(whose+"/rate-deck", object{"rate_deck_id": foreign.ID}).refused(codeInvalidRequest, "rate_deck_id")
			b.patch(whose+"/rate-deck", object{"rate_deck_id": "deck_absent"}).refused(codeNotFound, "rate_deck_id")
			require.Equal(b.t, own.ID, b.patch(whose+"/rate-deck", object{"rate_deck_id": own.ID}).is(200).str("rate_deck_id"))
			require.Equal(b.t, own.ID, b.get(whose).is(200).str("rate_deck_id"))
			list := b.get(whose[:strings.LastIndex(whose, "/")]).is(200).data()
			require.True(b.t, slices.ContainsFunc(list, func(item any) bool { return item.(object)["rate_deck_id"] == own.ID }), "%v", list)
			b.delete("/operator/v1/rate-decks/"+own.ID).refused(codeResourceInUse, "")
			detail := b.get("/operator/v1/rate-decks/" + own.ID).is(200).json()
			require.Equal(b.t, 1., detail["customers"].(float64)+detail["trunks"].(float64))
			require.Nil(b.t, b.patch(whose+"/rate-deck", object{"rate_deck_id": nil}).is(200).json()["rate_deck_id"])
			require.Nil(b.t, b.get(whose).is(200).json()["rate_deck_id"])
			b.delete("/operator/v1/rate-decks/" + own.ID).is(204)
			b.get("/operator/v1/rate-decks/"+own.ID).refused(codeNotFound, "")
		}
		b.patch("/operator/v1/customers/cust_absent/rate-deck", object{"rate_deck_id": nil}).refused(codeNotFound, "")
		b.patch("/operator/v1/trunks/trunk_absent/rate-deck", object{"rate_deck_id": nil}).refused(codeNotFound, "")
	})
}

func TestRatesOfOperators(t *testing.T) {
	t.Parallel()
	onBothAsOperator(t, func(b *bench) {
		deck := b.deck("EUR")
		path := "/operator/v1/rate-decks/" + deck.ID + "/rates"
		set := func(change object) response {
			body := object{"prefix": "+3120", "per_minute": "0.0125", "valid_from": "2026-01-01"}
			for name, value := range change {
				if body[name] = value; value == nil {
					delete(body, name)
				}
			}
			return b.post(path, body)
		}
		for field, values := range map[string][]any{
			"prefix":      {nil, "", "0031", "31x", "+", strings.Repeat("1", 16), "-1"},
			"per_minute":  {nil, "", "-1", "0,01", "0.0000001", "1000001", "free"},
			"connect":     {"-0.1", "x"},
			"connect_on":  {"always"},
			"direction":   {"both"},
			"billing":     {"60", "60/", "60/0", "-1/1", "a/b", "3601/1"},
			"minimum":     {-1, 3601},
			"increment":   {0, 3601},
			"destination": {strings.Repeat("x", 101), "a\nb"},
			"valid_from":  {"yesterday", "2026-13-01", "1969-12-31"},
			"valid_to":    {"2026-01-01", "2025-01-01", "never"},
		} {
			for _, value := range values {
				set(object{field: value}).refused(codeInvalidRequest, field)
			}
		}
		set(object{"billing": "60/1", "minimum": 30}).refused(codeInvalidRequest, "billing")
		b.post("/operator/v1/rate-decks/deck_absent/rates", object{"prefix": "1", "per_minute": "0"}).refused(codeNotFound, "")

		made := set(object{"billing": " 30 / 6", "connect": "0.05", "connect_on": "attempt", "destination": " Amsterdam "}).is(201).json()
		require.Equal(b.t, []any{"3120", "0.0125", 12500., "0.05", "attempt", 30., 6., "Amsterdam", "outbound", "2026-01-01T00:00:00Z", nil}, []any{
			made["prefix"], made["per_minute"], made["per_minute_micros"], made["connect"], made["connect_on"], made["minimum"], made["increment"], made["destination"],
			made["direction"], made["valid_from"], made["valid_to"],
		})
		later := set(object{"per_minute": "0.02", "valid_from": "2026-02-01T12:00:00.9+01:00", "valid_to": "2027-01-01"}).is(201)
		require.Equal(b.t, "2026-02-01T11:00:00Z", later.str("valid_from"))
		every := set(object{"prefix": "*", "direction": "inbound", "valid_from": nil}).is(201).json()
		require.Equal(b.t, []any{"*", 0., 60.}, []any{every["prefix"], every["minimum"], every["increment"]})
		rates := b.get(path + "?direction=outbound").is(200).data()
		require.Len(b.t, rates, 2)
		require.Equal(b.t, "2026-02-01T11:00:00Z", rates[0].(object)["valid_to"], "the later one has ended it")
		for query, count := range map[string]int{
			"": 3, "?prefix=31": 2, "?prefix=%2B312": 2, "?prefix=+32": 0, "?number=%2B31201234567": 3, "?number=%2B49301234567": 1, "?number=%2B31201234567&on=2026-01-15": 1, "?limit=2": 2,
		} {
			require.Len(b.t, b.get(path+query).is(200).data(), count, query)
		}
		b.get(path+"?on=x").refused(codeInvalidRequest, "on")
		b.get(path+"?cursor=x").refused(codeInvalidRequest, "cursor")
		b.get("/operator/v1/rate-decks/deck_absent/rates").refused(codeNotFound, "")

		rate := "/operator/v1/rates/" + later.str("id")
		require.Equal(b.t, "2026-06-01T00:00:00Z", b.patch(rate, object{"valid_to": "2026-06-01"}).is(200).str("valid_to"))
		b.patch(rate, object{"valid_to": "2026-01-01"}).refused(codeInvalidRequest, "valid_to")
		b.patch(rate, object{}).refused(codeInvalidRequest, "valid_to")
		require.Nil(b.t, b.patch(rate, object{"valid_to": nil}).is(200).json()["valid_to"])
		b.delete(rate).is(204)
		b.delete(rate).refused(codeNotFound, "")
		b.patch(rate, object{"valid_to": nil}).refused(codeNotFound, "")
		gone := b.get("/operator/v1/audit?action=deleteRate").is(200).data()
		require.Equal(b.t, object{"deck_id": deck.ID, "direction": "outbound", "prefix": later.str("prefix"), "per_minute": later.str("per_minute")},
			gone[len(gone)-1].(object)["detail"])
	})
}

// TestRatesTest asks what calls cost, on the way through the decks.
func TestRatesTest(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		b := newBench(t, store, Config{Currency: "USD", FlatRate: func(direction, _ string) models.Rate {
			if direction == models.Inbound {
				return models.Rate{IncrementSeconds: 60}
			}
			return models.Rate{PerMinuteMicros: 90_000, IncrementSeconds: 60}
		}})
		customers := *b
		b = operatorBench(b, models.RoleAdmin)
		trunk := modelstest.OutboundTrunk(t, store, b.customer)
		ofTrunk, own, common := b.deck(b.customer.Currency), b.deck(b.customer.Currency), b.deck(b.customer.Currency)
		b.rates(ofTrunk, models.DeckRate{Prefix: "3120", PerMinuteMicros: 1_000})
		b.rates(own, models.DeckRate{Prefix: "31", Destination: "Netherlands", PerMinuteMicros: 12_500, ConnectMicros: 50_000, ConnectOn: models.ConnectOnAttempt, MinimumSeconds: 60},
			models.DeckRate{Prefix: "sip", PerMinuteMicros: 0})
		b.rates(common, models.DeckRate{Prefix: "44", PerMinuteMicros: 30_000})
		b.patch("/operator/v1/rate-decks/"+common.ID, object{"is_default": true}).is(200)
		b.patch("/operator/v1/trunks/"+trunk.ID+"/rate-deck", object{"rate_deck_id": ofTrunk.ID}).is(200)
		b.patch("/operator/v1/customers/"+b.customer.ID+"/rate-deck", object{"rate_deck_id": own.ID}).is(200)

		test := func(query string) (walk string, answer object) {
			t.Helper()
			answer = b.get("/operator/v1/rates/test?" + query).is(200).json()
			for _, step := range answer["steps"].([]any) {
				step := step.(object)
				require.NotEmpty(t, step["why"])
				require.Equal(t, step["rate"] != nil, step["answer"] == "rate")
				walk += fmt.Sprint(step["of"], " ", step["answer"], ", ")
			}
			return walk + answer["outcome"].(string), answer
		}
		ours := "&customer=" + b.customer.ID
		for query, want := range map[string]string{
			"number=%2B31201234567&trunk=" + trunk.ID:                    "trunk rate, rate",
			"number=%2B31101234567&trunk=" + trunk.ID:                    "trunk next, customer rate, rate",
			"number=%2B31201234567" + ours:                               "customer rate, rate",
			"number=+31201234567" + ours + "&on=2025-12-31":              "customer next, default next, configuration",
			"number=%2B44201234567" + ours:                               "customer next, default rate, rate",
			"number=%2B44201234567":                                      "default rate, rate",
			"number=%2B44201234567&direction=inbound" + ours:             "customer next, default next, configuration",
			"number=sip:desk@pbx.example.com" + ours:                     "customer rate, rate",
			"number=sip" + ours + "&trunk=" + trunk.ID:                   "trunk next, customer rate, rate",
			"number=%2B49301234567" + ours + "&on=2026-05-01T12:00:00Z":  "customer next, default next, configuration",
			"number=%2B49301234567&direction=outbound&trunk=" + trunk.ID: "trunk next, customer next, default next, configuration",
		} {
			walk, _ := test(query)
			require.Equal(t, want, walk, query)
		}
		_, answer := test("number=%2B31101234567" + ours)
		require.Equal(t, []any{b.customer.ID, nil, b.customer.Currency, "0.05"}, []any{answer["customer_id"], answer["trunk_id"], answer["currency"], answer["unanswered"]})
		// By hand: 12,500 a minute in seconds, at least 60 of them, and 50,000 for the connection.
		var costs []string
		for _, cost := range answer["costs"].([]any) {
			cost := cost.(object)
			costs = append(costs, fmt.Sprint(cost["seconds"], " ", cost["billed_seconds"], " ", cost["cost"]))
		}
		require.Equal(t, []string{"1 60 0.0625", "30 60 0.0625", "60 60 0.0625", "61 61 0.062709", "120 120 0.075", "3600 3600 0.80"}, costs)
		_, answer = test("number=%2B49301234567" + ours)
		require.Equal(t, []any{"0.09", "*"}, []any{answer["price"].(object)["per_minute"], answer["price"].(object)["prefix"]})

		b.patch("/operator/v1/rate-decks/"+own.ID, object{"unlisted": "refuse"}).is(200)
		walk, answer := test("number=%2B44201234567" + ours)
		require.Equal(t, "customer refuse, refused", walk)
		require.Equal(t, []any{nil, []any{}}, []any{answer["price"], answer["costs"]})
		for field, query := range map[string]string{"number": "number=31", "direction": "number=%2B31201234567&direction=x", "on": "number=%2B31201234567&on=x", "customer": "number=sip&customer=/"} {
			b.get("/operator/v1/rates/test?"+query).refused(codeInvalidRequest, field)
		}
		b.get("/operator/v1/rates/test").refused(codeInvalidRequest, "number")
		b.get("/operator/v1/rates/test?number=sip&customer=cust_absent").refused(codeNotFound, "customer")
		b.get("/operator/v1/rates/test?number=sip&trunk=trunk_absent").refused(codeNotFound, "trunk")
		rival := modelstest.Customer(t, store, 0)
		b.get("/operator/v1/rates/test?number=sip&trunk="+trunk.ID+"&customer="+rival.ID).refused(codeNotFound, "trunk")

		// A customer sees the price, and nothing of decks.
		got := customers.get("/v1/rates?number=%2B31101234567").is(200)
		require.Equal(t, []any{false, "0.0125", "Netherlands"}, []any{got.json()["refused"], got.json()["rate"].(object)["per_minute"], got.json()["rate"].(object)["destination"]})
		require.NotContains(t, string(got.body), "deck")
		require.Equal(t, "0.001", customers.get("/v1/rates?number=%2B31201234567&trunk_id=" + trunk.ID).is(200).json()["rate"].(object)["per_minute"])
		require.Equal(t, true, customers.get("/v1/rates?number=%2B44201234567").is(200).json()["refused"])
		customers.get("/v1/rates").refused(codeInvalidRequest, "number")
		customers.get("/v1/rates?number=sip&trunk_id=trunk_absent").refused(codeNotFound, "trunk_id")
		key := b.newKey(rival)
		customers.do(exchange{method: "GET", path: "/v1/rates?number=sip&trunk_id=" + trunk.ID, key: &key}).refused(codeNotFound, "trunk_id")
		foreign := customers.do(exchange{method: "GET", path: "/v1/rates?number=%2B31101234567", key: &key}).is(200).json()
		require.Equal(t, "0.09", foreign["rate"].(object)["per_minute"], "not the price of another customer")
	})
}

func TestImportOfRates(t *testing.T) {
	t.Parallel()
	onBothAsOperator(t, func(b *bench) {
		deck := b.deck("EUR")
		begin := func(change object) response {
			b.t.Helper()
			body := object{
				"deck_id": deck.ID, "columns": []string{"prefix", "per_minute", "billing", "minimum", "valid_from", "valid_to", "line"}, "total_records": 10,
				"file_name": "rates.csv", "file_sha256": strings.Repeat("a", 64), "billing": "60/1", "valid_from": "2026-02-01",
			}
			for name, value := range change {
				if body[name] = value; value == nil {
					delete(body, name)
				}
			}
			return b.post("/operator/v1/rate-imports", body)
		}
		for field, change := range map[string]object{
			"deck_id": {"deck_id": nil}, "columns": {"columns": []string{"per_minute"}}, "total_records": {"total_records": nil}, "mode": {"mode": "guess"},
			"direction": {"direction": "both"}, "connect_on": {"connect_on": "x"}, "billing": {"billing": "60"}, "valid_from": {"valid_from": "soon"}, "file_sha256": {"file_sha256": "x"},
		} {
			begin(change).refused(codeInvalidRequest, field)
		}
		begin(object{"columns": []string{"prefix"}}).refused(codeInvalidRequest, "columns")
		begin(object{"columns": []string{"prefix", "per_minute", "number_e164"}}).refused(codeInvalidRequest, "columns")
		begin(object{"mode": "replace"}).refused(codeInvalidRequest, "mode")
		begin(object{"deck_id": "deck_absent"}).refused(codeNotFound, "deck_id")

		job := begin(nil).is(201)
		require.Equal(b.t, []any{"open", "merge", "2026-02-01T00:00:00Z"}, []any{job.json()["state"], job.json()["mode"], job.json()["starts_at"]})
		path := "/operator/v1/rate-imports/" + job.str("id")
		first := [][]string{
			{"+31", "0.01", "", "", "", "", "2"},
			{"*", "0.5", "1/1", "", "", "", ""},
			{"32", "0,02", "", "", "", "", ""},
			{"", "0.02", "", "", "", "", ""},
			{"33", "0.02", "", "30", "", "", ""}, // wins over the import's
			{"34", "0.02", "60/60", "30", "", "", ""},
			{"35", "0.02", "", "x", "", "", ""},
			{"36", "0.02", "", "", "2026-03-01", "2026-02-01", ""},
			{"37", "0.02"},
		}
		send := func(record int, lines ...[]string) response {
			b.t.Helper()
			return b.post(path+"/records", object{"record": record, "records": records(lines...)})
		}
		send(1, first...).refused(codeImportPlace, "record")
		send(0).refused(codeInvalidRequest, "records")
		done := send(0, first...).is(200).json()
		require.Equal(b.t, []any{"open", 9., 3., 0., 0., 6.}, []any{done["state"], done["next_record"], done["created"], done["updated"], done["unchanged"], done["rejected"]})
		send(0, first...).refused(codeImportPlace, "record")
		done = send(9, []string{"31", "0.010", "60/1", "", "", "", ""}).is(200).json()
		require.Equal(b.t, []any{"finished", 1.}, []any{done["state"], done["unchanged"]})
		b.post(path+"/cancel", object{}).refused(codeImportPlace, "")
		var why []string
		for _, item := range b.get(path + "/rejects").is(200).data() {
			item := item.(object)
			why = append(why, fmt.Sprint(item["line"], " ", item["field"], ": ", item["message"], ": ", item["record"]))
		}
		const prefixRule = "prefix must be the first digits of E.164 numbers, such as 3120 or +3120, at most 15; * for every number, or sip"
		require.NotContains(b.t, why, prefixRule)
		require.Equal(b.t, []string{
			`4 per_minute: per_minute must be an amount such as 0.0125, between 0 and 1000000, with at most six decimals: 32,"0,02",,,,,`,
			"5 prefix: prefix is required: ,0.02,,,,,",
			"7 billing: billing says minimum and increment: give it, or these: 34,0.02,60/60,30,,,",
			"8 minimum: minimum must be an integer: 35,0.02,,x,,,",
			"9 valid_to: valid_to must be after valid_from, 2026-03-01T00:00:00Z: 36,0.02,,,2026-03-01,2026-02-01,",
			"10 : the record has 2 values for 7 columns: 37,0.02",
		}, why)
		var stored []string
		for _, item := range b.get("/operator/v1/rate-decks/" + deck.ID + "/rates").is(200).data() {
			item := item.(object)
			stored = append(stored, fmt.Sprint(item["prefix"], " ", item["per_minute"], " ", item["minimum"], "/", item["increment"], " ", item["valid_from"]))
		}
		require.Equal(b.t, []string{"* 0.50 1/1 2026-02-01T00:00:00Z", "31 0.01 60/1 2026-02-01T00:00:00Z", "33 0.02 30/60 2026-02-01T00:00:00Z"}, stored)

		replacing := begin(object{"mode": "replace", "columns": []string{"prefix", "per_minute"}, "total_records": 1, "valid_from": "2026-03-01"}).is(201)
		path = "/operator/v1/rate-imports/" + replacing.str("id")
		done = send(0, []string{"31", "0.02"}).is(200).json()
		require.Equal(b.t, []any{"finished", 1., 2.}, []any{done["state"], done["updated"], done["ended"]})
		canceled := begin(nil).is(201)
		require.Equal(b.t, "canceled", b.post("/operator/v1/rate-imports/"+canceled.str("id")+"/cancel", object{}).is(200).str("state"))
		require.Len(b.t, b.get("/operator/v1/rate-imports?deck_id="+deck.ID+"&file_sha256="+strings.Repeat("a", 64)).is(200).data(), 3)
		require.Len(b.t, b.get("/operator/v1/rate-imports?state=canceled").is(200).data(), 1)
		b.get("/operator/v1/rate-imports?deck_id=/").refused(codeInvalidRequest, "deck_id")
		b.get("/operator/v1/rate-imports?state=x").refused(codeInvalidRequest, "state")
		for _, absent := range []string{"/operator/v1/rate-imports/imp_x", "/operator/v1/rate-imports/imp_x/rejects"} {
			b.get(absent).refused(codeNotFound, "")
		}
		b.post("/operator/v1/rate-imports/imp_x/cancel", object{}).refused(codeNotFound, "")
		b.post("/operator/v1/rate-imports/imp_x/records", object{"record": 0, "records": records(first...)}).refused(codeNotFound, "")
	})
}

// FuzzRateRecord makes a rate of any record: what is accepted can be stored, costs something that can be told, and is accepted again as it is exported.
func FuzzRateRecord(f *testing.F) {
	f.Add("+3120", "outbound", "Netherlands", "0.0125", "0.01", "answer", "60/1", "", "", "2026-01-01", "")
	f.Add("*", "inbound", "", "0", "", "attempt", "", "30", "6", "2026-01-01T12:00:00+01:00", "2027-01-01")
	f.Add("sip", "", "=cmd()\x00", "1000000", "999999.999999", "", "0/3600", "", "", "1970-01-01", "9999-12-31T23:59:59Z")
	f.Add("0031", "both", "\n", "-1", "1e3", "never", "1", "x", "0", "soon", "2026-02-30")
	f.Fuzz(func(t *testing.T, prefix, direction, destination, perMinute, connect, connectOn, notation, minimum, increment, from, to string) {
		job := &models.RateImport{StartsAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Import: models.Import{Columns: rateColumns, Defaults: map[string]string{"billing": "60/1"}}}
		record := importRecord{Line: 2, Values: []string{prefix, direction, destination, perMinute, connect, connectOn, notation, minimum, increment, from, to}}
		rows, rejects := readRates(job, []importRecord{record})
		require.Equal(t, 1, len(rows)+len(rejects))
		for _, reject := range rejects {
			require.NotEmpty(t, reject.Message)
			require.NotContains(t, reject.Record, "\x00")
		}
		for _, row := range rows {
			require.Contains(t, []string{models.Outbound, models.Inbound}, row.Direction)
			require.Contains(t, []string{models.ConnectOnAnswer, models.ConnectOnAttempt}, row.ConnectOn)
			require.True(t, row.PerMinuteMicros >= 0 && row.PerMinuteMicros <= maxRateMicros && row.ConnectMicros >= 0 && row.ConnectMicros <= maxRateMicros)
			require.True(t, row.MinimumSeconds >= 0 && row.IncrementSeconds >= 1)
			require.True(t, row.ValidTo == nil || row.ValidTo.After(row.ValidFrom))
			require.NotContains(t, row.Destination, "\x00")
			shown := toDeckRate(&row)
			end := ""
			if shown.ValidTo != nil {
				end = *shown.ValidTo
			}
			again, refused := readRates(job, []importRecord{{Line: 2, Values: []string{
				shown.Prefix, shown.Direction, shown.Destination, shown.PerMinute, shown.Connect, shown.ConnectOn, "", fmt.Sprint(shown.Minimum), fmt.Sprint(shown.Increment), shown.ValidFrom, end,
			}}})
			require.Empty(t, refused)
			require.Equal(t, rows, again)
			cost := row.Rate()
			require.GreaterOrEqual(t, cost.Cost(true, 3600), int64(0))
			_, err := billing.ParseAmount(shown.PerMinute)
			require.NoError(t, err)
		}
		_, err := csv.NewReader(strings.NewReader(record.csv())).ReadAll()
		require.NoError(t, err)
	})
}
