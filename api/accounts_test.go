package api

import (
	"encoding/csv"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// settled is a call of an application that has ended, with the lines of its bill.
func (b *bench) settled(app *models.Application, edit func(call *models.Call), lines ...models.Charge) *models.Call {
	b.t.Helper()
	call := &models.Call{CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallInProgress, From: "+31201234567", To: "+31207654321"}
	if edit != nil {
		edit(call)
	}
	ctx := b.t.Context()
	require.NoError(b.t, b.store.InTx(ctx, func(tx *models.Store) error {
		if err := tx.CreateCall(ctx, call); err != nil {
			return err
		}
		rows := append([]models.Charge{}, lines...)
		call.CostMicros = 0
		for i := range rows {
			rows[i].CallID, rows[i].CustomerID = call.ID, call.CustomerID
			if rows[i].LegID == "" {
				rows[i].LegID, rows[i].Kind, rows[i].Target = call.ID, models.ChargeCall, call.To
			}
			call.CostMicros += rows[i].AmountMicros
		}
		if _, err := tx.SettleHold(ctx, call.CustomerID, call.ID, 0, call.CostMicros); err != nil {
			return err
		}
		if err := tx.AddCharges(ctx, rows); err != nil {
			return err
		}
		return tx.UpdateCall(ctx, call, "cost_micros")
	}))
	return call
}

// minute is a rate of so many millionths a minute, in whole minutes.
func minute(micros int64, destination string) models.Rate {
	return models.Rate{PerMinuteMicros: micros, IncrementSeconds: 60, Destination: destination}
}

// TestAccount sets what an operator sets and shows it to both sides.
func TestAccount(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		c := newBench(t, store, Config{Currency: "EUR"})
		b := operatorBench(c, models.RoleAdmin)
		made := b.post("/operator/v1/customers", object{"name": "Acme", "balance": "10", "credit_limit": "5", "low_balance": "2.5"}).is(201)
		require.Equal(t, []string{"active", "EUR", "10.00", "5.00", "15.00", "2.50"},
			[]string{made.str("status"), made.str("currency"), made.str("balance"), made.str("credit_limit"), made.str("available"), made.str("low_balance")})
		path := "/operator/v1/customers/" + made.str("id")
		require.NoError(t, store.Hold(t.Context(), made.str("id"), 12_000_000))
		b.patch(path, object{"credit_limit": "1.999999"}).refused(codeInvalidRequest, "credit_limit")
		require.Equal(t, "5.00", b.get(path).is(200).str("credit_limit"))
		changed := b.patch(path, object{"credit_limit": "2", "status": "suspended", "low_balance": nil, "name": "Acme Ltd"}).is(200)
		require.Equal(t, []string{"suspended", "2.00", "0.00", "Acme Ltd"}, []string{changed.str("status"), changed.str("credit_limit"), changed.str("available"), changed.str("name")})
		require.Nil(t, changed.json()["low_balance"])
		require.Equal(t, "active", b.patch(path, object{"status": "active"}).is(200).str("status"))
		b.patch(path, object{"currency": "USD"}).refused(codeInvalidRequest, "currency")
		for field, bad := range map[string]any{"status": "gone", "credit_limit": "-1", "low_balance": "-0.01", "name": " "} {
			b.patch(path, object{field: bad}).refused(codeInvalidRequest, field)
		}
		b.patch(path, object{"credit_limit": "1000000000.000001"}).refused(codeInvalidRequest, "credit_limit")
		b.patch("/operator/v1/customers/cust_none", object{"name": "x"}).refused(codeNotFound, "")

		adjustments := path + "/adjustments"
		b.post(adjustments, object{"amount": "-0.000001", "key": "a", "note": "too much"}).refused(codeInsufficientBalance, "amount")
		up := object{"amount": "1.5", "key": "b", "note": "sorry"}
		for range 2 {
			got := b.post(adjustments, up).is(201)
			require.Equal(t, []string{"adjust", "1.50", "11.50", "sorry", "ana"}, []string{got.str("kind"), got.str("amount"), got.str("balance"), got.str("note"), got.str("actor")})
		}
		require.Equal(t, "-1.50", b.post(adjustments, object{"amount": "-1.5", "key": "c", "note": "taken back"}).is(201).str("amount"))
		b.post(adjustments, object{"amount": "2", "key": "b", "note": "sorry"}).refused(codeIdempotencyConflict, "key")
		b.post(adjustments, object{"amount": "2", "key": "d"}).refused(codeInvalidRequest, "note")
		b.post(adjustments, object{"amount": "2", "key": "d", "note": " "}).refused(codeInvalidRequest, "note")
		b.post(adjustments, object{"amount": "0", "key": "d", "note": "n"}).refused(codeInvalidRequest, "amount")
		trail := b.trail(models.AuditFilter{ObjectID: made.str("id"), Action: "adjustCustomer"})
		require.Len(t, trail, 3, "the refused ones left no trace")
		viewer := operatorBench(c, models.RoleOperator)
		viewer.post(adjustments, up).refused(codeForbidden, "")
		viewer.patch(path, object{"status": "suspended"}).refused(codeForbidden, "")

		customer, err := store.Customer(t.Context(), made.str("id"))
		require.NoError(t, err)
		c.key = c.newKey(customer)
		me := c.get("/v1/me").is(200)
		require.Equal(t, []string{"active", "10.000000", "12.000000", "2.000000", "0.000000"},
			[]string{me.str("status"), me.str("balance"), me.str("held"), me.str("credit_limit"), me.str("available")})
		require.Nil(t, me.json()["low_balance"])
		ledger := c.get("/v1/ledger").is(200)
		require.NotContains(t, string(ledger.body), `"ana`, "who did it is the operator's business")
		require.Len(t, ledger.data(), 3)
		require.Empty(t, b.get("/operator/v1/ledger/verify").is(200).json()["violations"].([]any)[1:], "but for what is held for no call")
	})
}

// TestLedgerFilters narrows a ledger and walks it in pages.
func TestLedgerFilters(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		call := b.settled(app, nil, models.Charge{Rate: minute(10_000, ""), Answered: true, BilledSeconds: 61, AmountMicros: 20_000})
		b.settled(app, nil, models.Charge{Rate: minute(10_000, "")})
		_, err := b.store.Credit(b.t.Context(), b.customer.ID, "k", models.LedgerAdjust, -5, "n")
		require.NoError(b.t, err)
		kinds := func(query string) string {
			b.t.Helper()
			var all []string
			for _, item := range b.get("/v1/ledger" + query).is(200).data() {
				all = append(all, item.(object)["kind"].(string))
			}
			return strings.Join(all, " ")
		}
		require.Equal(b.t, "adjust call topup", kinds(""), "newest first, and nothing for what cost nothing")
		for _, kind := range []string{"topup", "call", "adjust"} {
			require.Equal(b.t, kind, kinds("?kind="+kind))
		}
		require.Equal(b.t, "call", kinds("?call_id="+call.ID))
		require.Empty(b.t, kinds("?call_id=call_none"))
		stored, err := b.store.Call(b.t.Context(), b.customer.ID, call.ID)
		require.NoError(b.t, err)
		at := stored.SettledAt.Format(time.RFC3339Nano)
		require.Equal(b.t, "adjust call", kinds("?created_after="+at))
		require.Equal(b.t, "call topup", kinds("?created_before="+at))
		first := b.get("/v1/ledger?limit=2").is(200)
		require.Equal(b.t, "topup", kinds("?limit=2&cursor="+first.str("next_cursor")))
		for query, field := range map[string]string{
			"kind=x": "kind", "call_id=a+b": "call_id", "created_after=x": "created_after", "format=xml": "format", "cursor=x": "cursor",
			"format=csv&limit=2": "limit", "format=csv&cursor=x": "cursor",
		} {
			b.get("/v1/ledger?"+query).refused(codeInvalidRequest, field)
		}
	})
}

// TestLedgerCSV exports more than a page, and holds the cells of a spreadsheet to their letter.
func TestLedgerCSV(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		ctx := b.t.Context()
		require.NoError(b.t, b.store.InTx(ctx, func(tx *models.Store) error {
			for i := range models.MaxPageLimit + 10 {
				if _, err := tx.Credit(ctx, b.customer.ID, fmt.Sprint(i), models.LedgerTopup, 1, ""); err != nil {
					return err
				}
			}
			return nil
		}))
		for i, note := range []string{`=HYPERLINK("http://x","y")`, "+1", "-1", "@SUM(A1)", "\tx", "＝1", "a,\"b\"\nc", "plain", "x;=1;;+2; y"} {
			_, err := b.store.Credit(ctx, b.customer.ID, fmt.Sprint("note", i), models.LedgerAdjust, -1, note)
			require.NoError(b.t, err)
		}
		got := b.get("/v1/ledger?format=csv").is(200)
		require.Equal(b.t, "text/csv; charset=utf-8; header=present", got.header.Get("Content-Type"))
		require.Equal(b.t, `attachment; filename="ledger-`+b.customer.ID+`.csv"`, got.header.Get("Content-Disposition"))
		require.Equal(b.t, "no-store", got.header.Get("Cache-Control"))
		require.True(b.t, strings.HasPrefix(string(got.body), "id,created_at,kind,amount,balance,currency,call_id,note\r\n"))
		rows, err := csv.NewReader(strings.NewReader(string(got.body))).ReadAll()
		require.NoError(b.t, err)
		require.Len(b.t, rows, 1+9+models.MaxPageLimit+10+1)
		notes, balance := []string{}, int64(10_000_000+models.MaxPageLimit+10-9)
		for _, row := range rows[1:] {
			require.Equal(b.t, amount(balance), row[4], "each balance is the one before it and the entry's own amount")
			change := int64(1)
			if row[2] == models.LedgerAdjust {
				notes, change = append(notes, row[7]), -1
				require.Equal(b.t, "-0.000001", row[3], "a number is a number")
			}
			balance -= change
		}
		require.Equal(b.t, []string{"x;'=1;;'+2; y", "plain", "a,\"b\"\nc", "'＝1", "'\tx", "'@SUM(A1)", "'-1", "'+1", `'=HYPERLINK("http://x","y")`}, notes)
		only := string(b.get("/v1/ledger?format=csv&kind=call").is(200).body)
		require.Equal(b.t, "id,created_at,kind,amount,balance,currency,call_id,note\r\n", only)
		operator := operatorBench(b, models.RoleViewer).get("/operator/v1/customers/" + b.customer.ID + "/ledger?format=csv&kind=adjust").is(200)
		require.Equal(b.t, 11, strings.Count(string(operator.body), "\r\n"), "a line for each, the names, and a break within a note")
		require.Contains(b.t, string(operator.body), ",key,actor\r\n")
	})
}

// TestUsageAndStatements holds the sums of a few calls, worked by hand, in every grouping and form.
func TestUsageAndStatements(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, store *models.Store, clock *modelstest.Clock) {
		b := newBench(t, store, Config{})
		clock.Advance(time.Date(clock.Now().Year()+1, 2, 1, 12, 0, 0, 0, time.UTC).Sub(clock.Now()))
		year := clock.Now().Year()
		app := modelstest.Application(t, store, b.customer)
		trunk := modelstest.OutboundTrunk(t, store, b.customer)
		over := func(call *models.Call) { call.TrunkID = &trunk.ID }
		call := b.settled(app, over,
			models.Charge{TrunkID: &trunk.ID, Rate: minute(10_000, "=Netherlands"), Answered: true, BilledSeconds: 61, AmountMicros: 20_000},
			models.Charge{LegID: "leg_1", Kind: models.LegDial, Target: "sip:a@example.com", Rate: minute(30_000, ""), Answered: true, BilledSeconds: 30, AmountMicros: 30_000},
			models.Charge{LegID: models.ChargeWaived, Kind: models.ChargeWaived, AmountMicros: -5_000},
		)
		clock.Advance(24 * time.Hour)
		b.settled(app, func(call *models.Call) { over(call); call.Direction = models.Inbound }, models.Charge{TrunkID: &trunk.ID, Rate: minute(10_000, "=Netherlands")})
		clock.Advance(time.Hour)

		span := fmt.Sprintf("from=%d-02-01T00:00:00Z&to=%d-03-01T00:00:00Z", year, year)
		lines := func(group string) string {
			t.Helper()
			return string(b.get("/v1/usage?" + span + "&format=csv&group_by=" + group).is(200).body)
		}
		const columns = ",name,calls,answered,seconds,billed_seconds,cost,currency,asr,acd\r\n"
		day := fmt.Sprintf("%d-02-0", year)
		require.Equal(t, "day"+columns+day+"1,,1,1,61,120,0.045000,USD,1,61\r\n"+day+"2,,1,0,0,0,0.000000,USD,0,\r\n", lines("day"))
		require.Equal(t, "application"+columns+app.ID+","+app.Name+",2,1,61,120,0.045000,USD,0.5,61\r\n", lines("application"))
		require.Equal(t, "direction"+columns+"inbound,,1,0,0,0,0.000000,USD,0,\r\noutbound,,1,1,61,120,0.045000,USD,1,61\r\n", lines("direction"))
		require.Equal(t, "trunk"+columns+",,1,1,30,60,0.025000,USD,1,30\r\n"+trunk.ID+","+trunk.Name+",2,1,61,120,0.020000,USD,0.5,61\r\n", lines("trunk"))
		require.Equal(t, "destination"+columns+",,1,1,30,60,0.025000,USD,1,30\r\n'=Netherlands,,2,1,61,120,0.020000,USD,0.5,61\r\n", lines("destination"))
		usage := b.get("/v1/usage").is(200)
		require.Equal(t, []any{"day", fmt.Sprintf("%d-02-01T00:00:00Z", year), "0.045000", float64(2), 0.5},
			[]any{usage.str("group_by"), usage.str("from"), usage.json()["total"].(object)["cost"], usage.json()["total"].(object)["calls"], usage.json()["total"].(object)["asr"]})
		settled := fmt.Sprintf("%d-02-01T12:00:00Z", year)
		days := fmt.Sprintf("from=%d-02-01&to=%d-03-01", year, year)
		require.Equal(t, b.get("/v1/usage?"+span).is(200).json(), b.get("/v1/usage?"+days).is(200).json(), "a day is its first moment")
		require.Len(t, b.get("/v1/usage?from="+settled+"&to="+fmt.Sprintf("%d-02-01T12:00:01Z", year)).is(200).data(), 1, "from is meant")
		require.Empty(t, b.get("/v1/usage?from="+fmt.Sprintf("%d-02-01T00:00:00Z", year)+"&to="+settled).is(200).data(), "to is not")
		for query, field := range map[string]string{
			"from=2026-01-02T00:00:00Z&to=2026-01-02T00:00:00Z": "from", "from=2025-01-01T00:00:00Z&to=2026-01-02T00:00:01Z": "from", "group_by=hour": "group_by", "from=1": "from", "from=2026-02-30": "from",
			"to=1": "to", "format=xml": "format",
		} {
			b.get("/v1/usage?"+query).refused(codeInvalidRequest, field)
		}

		bill := b.get("/v1/calls/" + call.ID + "/charges").is(200).data()
		require.Len(t, bill, 3)
		own := bill[0].(object)
		require.Equal(t, []any{call.ID, "call", float64(61), float64(120), "0.020000", "0.01", float64(60)},
			[]any{own["leg_id"], own["kind"], own["seconds"], own["billed_seconds"], own["amount"], own["rate"].(object)["per_minute"], own["rate"].(object)["increment_seconds"]})
		require.Equal(t, []any{"leg_1", "waived"}, []any{bill[1].(object)["leg_id"], bill[2].(object)["leg_id"]})
		require.Empty(t, b.get("/v1/calls/"+modelstest.Call(t, store, app).ID+"/charges").is(200).data())

		month := fmt.Sprintf("%d-02", year)
		statement := b.get("/v1/statements/" + month).is(200)
		require.Equal(t, []any{"10.000000", "0.000000", "0.000000", "-0.045000", "9.955000", false},
			[]any{statement.str("opening"), statement.str("topups"), statement.str("adjustments"), statement.str("calls"), statement.str("closing"), statement.json()["final"]})
		require.Equal(t, "month,currency,opening,topups,adjustments,calls,closing,entries,final\r\n"+month+",USD,10.000000,0.000000,0.000000,-0.045000,9.955000,1,false\r\n",
			string(b.get("/v1/statements/"+month+"?format=csv").is(200).body))
		all := b.get("/v1/statements").is(200).data()
		require.Equal(t, month, all[0].(object)["month"])
		require.Equal(t, []any{"0.000000", "10.000000"}, []any{all[len(all)-1].(object)["opening"], all[len(all)-1].(object)["closing"]})
		require.Equal(t, len(all)+1, strings.Count(string(b.get("/v1/statements?format=csv").is(200).body), "\r\n"))
		for _, none := range []string{fmt.Sprintf("%d-03", year), "2020-01", "2026-13", "x"} {
			b.get("/v1/statements/"+none).refused(codeNotFound, "")
		}
		o := operatorBench(b, models.RoleViewer)
		account := "/operator/v1/customers/" + b.customer.ID
		require.Equal(t, usage.json()["total"], o.get(account + "/usage").is(200).json()["total"])
		require.Equal(t, statement.json(), o.get(account+"/statements/"+month).is(200).json())
		require.Len(t, o.get(account+"/statements").is(200).data(), len(all))
		require.Len(t, o.get("/operator/v1/calls/"+call.ID+"/charges").is(200).data(), 3)
		for _, path := range []string{"/usage", "/statements", "/statements/" + month, "/ledger"} {
			o.get("/operator/v1/customers/cust_none"+path).refused(codeNotFound, "")
		}
	})
}
