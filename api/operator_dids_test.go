package api

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/dialplan"
	"tandem/models"
	"tandem/models/modelstest"
)

// numbersBench is an operator's bench with the dialplan's own answers.
func numbersBench(t *testing.T, store *models.Store, providers ...string) *bench {
	t.Helper()
	cfg := dialplan.Config{Store: store}
	for _, provider := range providers {
		cfg.Providers = append(cfg.Providers, netip.MustParsePrefix(provider))
	}
	syncer, err := dialplan.NewSyncer(cfg)
	require.NoError(t, err)
	return operatorBench(newBench(t, store, Config{Numbers: syncer}), models.RoleOperator)
}

func onBothWithNumbers(t *testing.T, fn func(b *bench)) {
	t.Helper()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) { fn(numbersBench(t, store, "198.51.100.0/24")) })
}

// changes requires what became of many numbers.
func (r response) changes(created, updated, reassigned, unchanged, deleted int) {
	r.t.Helper()
	require.Equal(r.t, object{
		"created": float64(created), "updated": float64(updated), "reassigned": float64(reassigned), "unchanged": float64(unchanged), "deleted": float64(deleted),
	}, r.json())
}

func TestOperatorNumbers(t *testing.T) {
	t.Parallel()
	onBothWithNumbers(t, func(b *bench) {
		app, other := modelstest.Application(b.t, b.store, b.customer), modelstest.Customer(b.t, b.store, 0)
		foreign := modelstest.Application(b.t, b.store, other)
		number := func(number string) map[string]any {
			b.t.Helper()
			return b.get("/operator/v1/dids/by-number/" + url.PathEscape(number)).is(200).json()
		}
		add := func(numbers []string, more object) response {
			b.t.Helper()
			body := object{"numbers": numbers, "customer_id": b.customer.ID, "application_id": app.ID}
			for name, value := range more {
				body[name] = value
			}
			return b.post("/operator/v1/dids", body)
		}
		add([]string{"+4930123400-99", "+15550001000"}, nil).is(201).changes(101, 0, 0, 0, 0)
		require.Equal(b.t, 1, b.dialplan.count())
		require.Equal(b.t, b.customer.ID, number("+4930123457")["customer_id"])

		// All or none, and each mistake by its name.
		add([]string{"+4930123500", "+4930123450"}, nil).refused(codeNumberExists, "numbers")
		b.get("/operator/v1/dids/by-number/+4930123500").refused(codeNotFound, "")
		add([]string{"+4930123500", "+4930123500"}, nil).refused(codeNumberExists, "numbers")
		add(nil, nil).refused(codeInvalidRequest, "numbers")
		add([]string{"+4930123500", "4930"}, nil).refused(codeInvalidRequest, "numbers[1]")
		add([]string{"+4930100000-99999"}, nil).refused(codeInvalidRequest, "numbers")
		add([]string{"+4930123500"}, object{"application_id": foreign.ID}).refused(codeNotFound, "application_id")
		add([]string{"+4930123500"}, object{"customer_id": "cust_absent", "application_id": nil, "route_mode": "reject"}).refused(codeNotFound, "customer_id")
		add([]string{"+4930123500"}, object{"application_id": nil}).refused(codeInvalidRequest, "application_id")
		add([]string{"+4930123500"}, object{"status": "asleep"}).refused(codeInvalidRequest, "status")
		require.Equal(b.t, 1, b.dialplan.count())

		reassign := func(body object) response {
			b.t.Helper()
			return b.post("/operator/v1/dids/reassign", body)
		}
		was := number("+4930123400")["id"]
		reassign(object{"numbers": []string{"+4930123400-09"}, "status": "suspended"}).is(200).changes(0, 10, 0, 0, 0)
		require.Equal(b.t, []any{"suspended", was, app.ID}, []any{number("+4930123400")["status"], number("+4930123400")["id"], number("+4930123400")["application_id"]})
		reassign(object{"numbers": []string{"+4930123400-10"}, "status": "suspended"}).is(200).changes(0, 1, 0, 10, 0)
		reassign(object{"numbers": []string{"+4930123400-01"}, "customer_id": other.ID}).refused(codeInvalidRequest, "application_id")
		reassign(object{"numbers": []string{"+4930123400-01"}, "customer_id": other.ID, "application_id": app.ID}).refused(codeNotFound, "application_id")
		reassign(object{"numbers": []string{"+4930123400-01"}, "customer_id": other.ID, "application_id": foreign.ID}).is(200).changes(0, 0, 2, 0, 0)
		moved := number("+4930123400")
		require.Equal(b.t, []any{other.ID, foreign.ID, "suspended"}, []any{moved["customer_id"], moved["application_id"], moved["status"]})
		require.NotEqual(b.t, was, moved["id"])
		reassign(object{"numbers": []string{"+4930123400"}, "route_mode": "sip"}).refused(codeInvalidRequest, "sip_uri")
		reassign(object{"numbers": []string{"+4930123402", "+4930123599"}, "status": "active"}).refused(codeNotFound, "numbers")
		require.Equal(b.t, "suspended", number("+4930123402")["status"], "none of them")
		reassign(object{"numbers": []string{"+4930123402"}}).refused(codeInvalidRequest, "")
		require.Equal(b.t, 4, b.dialplan.count())

		b.post("/operator/v1/dids/release", object{"numbers": []string{"+4930123490-99", "+4930199999"}}).is(200).changes(0, 0, 0, 0, 10)
		b.get("/operator/v1/dids/by-number/+4930123495").refused(codeNotFound, "")

		var listed []string
		for path := "/operator/v1/dids?limit=7&prefix=%2B49&customer_id=" + b.customer.ID; ; {
			page := b.get(path).is(200)
			for _, item := range page.data() {
				listed = append(listed, item.(object)["number_e164"].(string))
			}
			next, more := page.json()["next_cursor"].(string)
			if !more {
				break
			}
			path = "/operator/v1/dids?limit=7&prefix=%2B49&customer_id=" + b.customer.ID + "&cursor=" + url.QueryEscape(next)
		}
		require.Len(b.t, listed, 88)
		require.IsIncreasing(b.t, listed)
		b.get("/operator/v1/dids?prefix=49").refused(codeInvalidRequest, "prefix")
		b.get("/operator/v1/dids?cursor=x").refused(codeInvalidRequest, "cursor")
		b.get("/operator/v1/dids?status=x").refused(codeInvalidRequest, "status")
		b.get("/operator/v1/dids/by-number/x").refused(codeNotFound, "")

		viewer := operatorBench(b, models.RoleViewer)
		viewer.get("/operator/v1/dids").is(200)
		viewer.post("/operator/v1/dids/release", object{"numbers": []string{"+4930123402"}}).refused(codeForbidden, "")
	})
}

func TestWhatHappensToACall(t *testing.T) {
	t.Parallel()
	onBothWithNumbers(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		trunk := modelstest.InboundTrunk(b.t, b.store, b.customer, nil)
		modelstest.InboundTrunk(b.t, b.store, modelstest.Customer(b.t, b.store, 0), nil)
		did := modelstest.DID(b.t, b.store, b.customer, app)
		test := func(number string, query string) response {
			b.t.Helper()
			return b.get("/operator/v1/dids/by-number/" + url.PathEscape(number) + "/test" + query)
		}
		cases := func(r response) (all []string) {
			b.t.Helper()
			for _, c := range r.is(200).json()["cases"].([]any) {
				c := c.(object)
				result, without := c["result"].(object), c["without_controller"].(object)
				all = append(all, fmt.Sprint(c["from_ip"], " ", c["trunk_id"], " ", c["provider"], ": ", result["outcome"], " ", result["sip_status"], ", ", without["outcome"], " ", without["sip_status"]))
				require.NotEmpty(b.t, c["why"])
				require.NotEmpty(b.t, c["steps"])
			}
			return all
		}
		own := trunk.InboundIPs[0]
		answer := test(did.NumberE164, "")
		require.Equal(b.t, []string{
			"198.51.100.0 <nil> 198.51.100.0/24: application <nil>, refuse 503",
			own + " " + trunk.ID + " <nil>: application <nil>, refuse 503",
		}, cases(answer))
		require.Equal(b.t, did.ID, answer.json()["did"].(object)["id"])
		require.Equal(b.t, did.NumberE164, answer.json()["number"])

		require.Equal(b.t, []string{"192.0.2.1 <nil> <nil>: refuse 403, refuse 403"}, cases(test(did.NumberE164, "?from_ip=192.0.2.1")))
		require.Equal(b.t, []string{own + " " + trunk.ID + " <nil>: application <nil>, refuse 503"}, cases(test("00"+did.NumberE164[1:], "?from_ip="+own)))
		b.patchDID(did, func(d *models.DID) { d.Status = models.DIDSuspended })
		require.Equal(b.t, []string{own + " " + trunk.ID + " <nil>: refuse 480, refuse 480"}, cases(test(did.NumberE164, "?from_ip="+own)))
		nobody := test("alice", "")
		require.Equal(b.t, []string{"198.51.100.0 <nil> 198.51.100.0/24: refuse 404, refuse 404"}, cases(nobody))
		require.Nil(b.t, nobody.json()["number"])
		require.Nil(b.t, nobody.json()["did"])
		test(did.NumberE164, "?from_ip=localhost").refused(codeInvalidRequest, "from_ip")
		test("\x00", "").refused(codeInvalidRequest, "number")
	})
	b := operatorBench(newBench(t, modelstest.Open(t), Config{}), models.RoleViewer)
	b.server.numbers = nil
	b.get("/operator/v1/dids/by-number/+15550001000/test").refused(codeUnavailable, "")
}

func (b *bench) patchDID(did *models.DID, change func(*models.DID)) {
	b.t.Helper()
	change(did)
	require.NoError(b.t, b.store.UpdateDID(b.t.Context(), did))
}

// records makes records of lines from 2 on.
func records(lines ...[]string) []object {
	all := []object{}
	for i, values := range lines {
		all = append(all, object{"line": i + 2, "values": values})
	}
	return all
}

func TestImportOfNumbers(t *testing.T) {
	t.Parallel()
	onBothWithNumbers(t, func(b *bench) {
		app, other := modelstest.Application(b.t, b.store, b.customer), modelstest.Customer(b.t, b.store, 0)
		taken := &models.DID{CustomerID: other.ID, NumberE164: "+15550001005"}
		require.NoError(b.t, b.store.CreateDID(b.t.Context(), taken))
		body := object{
			"columns": []string{"number_e164", "route_mode", "sip_uri", "line"}, "total_records": 9, "file_name": "numbers.csv", "file_sha256": strings.Repeat("a", 64),
			"customer_id": b.customer.ID, "application_id": app.ID, "reject_code": 486,
		}
		begin := func(change object) response {
			b.t.Helper()
			changed := object{}
			for name, value := range body {
				changed[name] = value
			}
			for name, value := range change {
				changed[name] = value
				if value == nil {
					delete(changed, name)
				}
			}
			return b.post("/operator/v1/did-imports", changed)
		}
		for field, change := range map[string]object{
			"columns":       {"columns": []string{"route_mode"}},
			"total_records": {"total_records": -1},
			"customer_id":   {"customer_id": nil},
			"file_sha256":   {"file_sha256": "A"},
			"on_conflict":   {"on_conflict": "ask"},
			"status":        {"status": "asleep"},
			"sip_uri":       {"sip_uri": "mailto:x"},
			"reject_code":   {"reject_code": 200},
		} {
			begin(change).refused(codeInvalidRequest, field)
		}
		begin(object{"columns": []string{"number_e164", "number_e164"}}).refused(codeInvalidRequest, "columns")
		begin(object{"columns": []string{"number_e164", "colour"}}).refused(codeInvalidRequest, "columns")
		begin(object{"total_records": nil}).refused(codeInvalidRequest, "total_records")
		begin(object{"customer_id": "cust_absent"}).refused(codeNotFound, "customer_id")
		begin(object{"application_id": "app_absent"}).refused(codeNotFound, "application_id")

		job := begin(nil).is(201)
		require.Equal(b.t, []any{"open", float64(0), "skip"}, []any{job.json()["state"], job.json()["next_record"], job.json()["on_conflict"]})
		path := "/operator/v1/did-imports/" + job.str("id")
		send := func(record int, lines ...[]string) response {
			b.t.Helper()
			return b.post(path+"/records", object{"record": record, "records": records(lines...)})
		}
		first := [][]string{
			{"+15550001000", "", "", "2"},
			{"+15550001001-03", "reject", "", "3"},
			{"+15550001004", "sip", "", "4"},                     // no SIP URI
			{"+15550001005", "", "", "5"},                        // another customer's
			{"15550001006", "", "", "6"},                         // no plus
			{"+15550001000", "sip", "sip:a@pbx.example.com", ""}, // a duplicate
			{"+15550001007", "sip"},                              // a value too few
			{"+15550001\u0000008", "", "", ""},                   // hostile
		}
		send(0).refused(codeInvalidRequest, "records")
		b.post(path+"/records", object{"record": 0, "records": []object{{"line": 2, "colour": "red"}}}).refused(codeInvalidRequest, "records")
		b.post(path+"/records", object{"records": records(first...)}).refused(codeInvalidRequest, "record")
		send(1, first...).refused(codeImportPlace, "record")
		require.Zero(b.t, b.dialplan.count())
		done := send(0, first...).is(200).json()
		require.Equal(b.t, []any{"open", 8., 4., 0., 1., 5.}, []any{done["state"], done["next_record"], done["created"], done["updated"], done["duplicates"], done["rejected"]})
		send(0, first...).refused(codeImportPlace, "record")
		require.Zero(b.t, b.dialplan.count(), "the nodes are told at the end")
		finished := send(8, []string{"+15550001009", "sip", "sip:desk@pbx.example.com", ""}).is(200)
		require.Equal(b.t, "finished", finished.str("state"))
		require.Equal(b.t, 1, b.dialplan.count())
		send(9, first[0]).refused(codeImportPlace, "record")
		b.post(path+"/cancel", object{}).refused(codeImportPlace, "")
		require.Equal(b.t, finished.body, b.get(path).is(200).body)

		rejected := b.get(path + "/rejects?limit=2").is(200)
		require.Len(b.t, rejected.data(), 2)
		told := rejected.data()
		told = append(told, b.get(path+"/rejects?cursor="+rejected.str("next_cursor")).is(200).data()...)
		var why []string
		for _, item := range told {
			item := item.(object)
			why = append(why, fmt.Sprint(item["line"], " ", item["field"], ": ", item["message"], ": ", item["record"]))
		}
		require.Equal(b.t, []string{
			"4 sip_uri: sip_uri is required with route_mode sip: +15550001004,sip,,4",
			"5 number_e164: number_e164 is another customer's: +15550001005,,,5",
			"6 number_e164: number_e164 must be an E.164 number such as +31201234567, or a range such as +4930123400-+4930123499: 15550001006,,,6",
			"8 : the record has 2 values for 4 columns: +15550001007,sip",
			"9 number_e164: number_e164 must be an E.164 number such as +31201234567, or a range such as +4930123400-+4930123499: +15550001008,,,",
		}, why)
		for number, want := range map[string][]any{
			"+15550001000": {b.customer.ID, "webhook", app.ID, nil, nil},
			"+15550001002": {b.customer.ID, "reject", app.ID, nil, 486.},
			"+15550001005": {other.ID, "webhook", nil, nil, nil},
			"+15550001009": {b.customer.ID, "sip", app.ID, "sip:desk@pbx.example.com", nil},
		} {
			did := b.get("/operator/v1/dids/by-number/" + url.PathEscape(number)).is(200).json()
			require.Equal(b.t, want, []any{did["customer_id"], did["route_mode"], did["application_id"], did["sip_uri"], did["reject_code"]}, number)
		}

		// Of large ranges only what fits into one transaction is taken.
		job = begin(object{"columns": []string{"number_e164"}, "total_records": 3, "file_name": nil, "file_sha256": nil}).is(201)
		path = "/operator/v1/did-imports/" + job.str("id")
		wide := [][]string{{"+15551000000-4999"}, {"+15551005000-9999"}, {"+15551010000"}}
		done = send(0, wide...).is(200).json()
		require.Equal(b.t, []any{2., 10000.}, []any{done["next_record"], done["created"]})
		done = send(2, wide[2]).is(200).json()
		require.Equal(b.t, []any{"finished", 10001.}, []any{done["state"], done["created"]})

		canceled := begin(nil).is(201)
		require.Equal(b.t, "canceled", b.post("/operator/v1/did-imports/"+canceled.str("id")+"/cancel", object{}).is(200).str("state"))
		require.Len(b.t, b.get("/operator/v1/did-imports").is(200).data(), 3)
		require.Len(b.t, b.get("/operator/v1/did-imports?state=canceled&file_sha256="+strings.Repeat("a", 64)).is(200).data(), 1)
		b.get("/operator/v1/did-imports?state=x").refused(codeInvalidRequest, "state")
		b.get(path+"/rejects?cursor=x").refused(codeInvalidRequest, "cursor")
		for _, absent := range []string{"/operator/v1/did-imports/imp_x", "/operator/v1/did-imports/imp_x/rejects"} {
			b.get(absent).refused(codeNotFound, "")
		}
		b.post("/operator/v1/did-imports/imp_x/cancel", object{}).refused(codeNotFound, "")
		b.post("/operator/v1/did-imports/imp_x/records", object{"record": 0, "records": records(first...)}).refused(codeNotFound, "")
	})
}

// FuzzImportRecord makes a number of any record: what is accepted is what a customer's own request could have made.
func FuzzImportRecord(f *testing.F) {
	f.Add("+15550001000-09", "cust_a", "app_1", "p", "active", "webhook", "", "")
	f.Add(" +15550001000", "", "", "", "", "sip", "sip:a@b", "6xx")
	f.Add("=cmd()", "\x00", "'", "\n", "suspended", "reject", "sip:${x}@y", "603")
	f.Fuzz(func(t *testing.T, number, customer, application, provider, status, mode, uri, code string) {
		job := &models.DIDImport{Import: models.Import{Columns: didImportColumns, Defaults: map[string]string{"customer_id": "cust_default", "reject_code": "404"}}}
		record := &importRecord{Line: 2, Values: []string{number, customer, application, provider, status, mode, uri, code}}
		part := readDIDs(job, []importRecord{*record})
		require.EqualValues(t, 1, part.records)
		require.NotEqual(t, len(part.rows) == 0, len(part.rejects) == 0)
		for _, reject := range part.rejects {
			require.NotEmpty(t, reject.Message)
			require.NotContains(t, reject.Record, "\x00")
		}
		for _, row := range part.rows {
			require.True(t, models.IsE164(row.NumberE164))
			require.True(t, isID(row.CustomerID))
			require.Contains(t, []string{models.DIDActive, models.DIDSuspended}, row.Status)
			require.Contains(t, []string{models.RouteWebhook, models.RouteSIP, models.RouteReject}, row.RouteMode)
			require.True(t, row.RouteMode != models.RouteSIP || isSIPURI(row.SIPURI))
			require.True(t, row.RouteMode != models.RouteWebhook || row.ApplicationID != nil && isID(*row.ApplicationID))
			require.True(t, row.RejectCode >= minRejectCode && row.RejectCode <= maxRejectCode)
			require.Equal(t, strings.TrimSpace(provider), row.Provider)
		}
	})
}
