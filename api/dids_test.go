package api

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models/modelstest"
)

func TestDIDLifecycle(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		made := b.post("/v1/dids", object{"number_e164": "+31201234567", "application_id": app.ID, "provider": "Acme"}).is(201)
		require.Regexp(b.t, `^did_[0-9a-z]{26}$`, made.str("id"))
		require.Equal(b.t, "active", made.str("status"))
		require.Equal(b.t, "webhook", made.str("route_mode"))
		require.Equal(b.t, 1, b.dialplan.count())
		path := "/v1/dids/" + made.str("id")

		for _, spelling := range []string{"+31201234567", "%2B31201234567", "%2b31201234567"} {
			require.Equal(b.t, made.body, b.get("/v1/dids/by-number/"+spelling).is(200).body, spelling)
		}
		require.Equal(b.t, made.body, b.get(path).is(200).body)
		require.Equal(b.t, made.str("id"), b.get("/v1/dids").is(200).data()[0].(object)["id"])
		for _, number := range []string{"+31201234568", "31201234567", "%00", "%ff", "x"} {
			b.get("/v1/dids/by-number/"+number).refused(codeNotFound, "")
		}

		changed := b.patch(path, object{"route_mode": "sip", "sip_uri": "sip:desk@pbx.example.com:5062;transport=tcp"}).is(200)
		require.Equal(b.t, "sip:desk@pbx.example.com:5062;transport=tcp", changed.str("sip_uri"))
		changed = b.patch(path, object{"route_mode": "reject", "application_id": nil}).is(200)
		require.Equal(b.t, float64(603), changed.json()["reject_code"])
		require.Nil(b.t, changed.json()["application_id"])
		require.NotContains(b.t, changed.json(), "sip_uri")
		b.patch(path, object{"route_mode": "webhook"}).refused(codeInvalidRequest, "application_id")
		require.Equal(b.t, "suspended", b.patch(path, object{"status": "suspended"}).is(200).str("status"))
		require.Equal(b.t, 4, b.dialplan.count())

		b.delete(path).is(204)
		require.Equal(b.t, 5, b.dialplan.count())
		b.get(path).refused(codeNotFound, "")
		b.delete(path).refused(codeNotFound, "")
		b.post("/v1/dids", object{"number_e164": "+31201234567", "route_mode": "reject", "reject_code": 486}).is(201)
	})
}

func TestDIDNumberIsUnique(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		body := object{"number_e164": "+31201234567", "route_mode": "reject"}
		b.post("/v1/dids", body).is(201)
		b.post("/v1/dids", body).refused(codeNumberExists, "number_e164")
		foreign := b.newKey(modelstest.Customer(b.t, b.store, 0))
		b.do(exchange{method: "POST", path: "/v1/dids", key: &foreign, body: body}).refused(codeNumberExists, "number_e164")
		require.Equal(b.t, 1, b.dialplan.count())
	})
}

func TestDIDRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	with := func(field string, value any) object {
		body := object{"number_e164": "+31201234567", "route_mode": "reject"}
		body[field] = value
		return body
	}
	sip := func(uri string) object {
		return object{"number_e164": "+31201234567", "route_mode": "sip", "sip_uri": uri}
	}
	notSIP := "sip_uri must be a SIP URI such as sip:desk@pbx.example.com"
	for name, test := range map[string]struct {
		body           object
		field, message string
	}{
		"no number":      {object{"route_mode": "reject"}, "number_e164", "number_e164 is required"},
		"no plus":        {with("number_e164", "31201234567"), "number_e164", "number_e164 must be an E.164 number such as +31201234567"},
		"no application": {object{"number_e164": "+31201234567"}, "application_id", "application_id is required with route_mode webhook"},
		"status":         {with("status", "off"), "status", "status must be one of active, suspended"},
		"route_mode":     {with("route_mode", "fax"), "route_mode", "route_mode must be one of webhook, sip, reject"},
		"reject_code":    {with("reject_code", 302), "reject_code", "reject_code must be between 400 and 699"},
		"reject 404.5":   {with("reject_code", 404.5), "reject_code", "reject_code must be an integer"},
		"reject text":    {with("reject_code", "486"), "reject_code", "reject_code must be an integer"},
		"no uri":         {object{"number_e164": "+31201234567", "route_mode": "sip"}, "sip_uri", "sip_uri is required with route_mode sip"},
		"uri no scheme":  {sip("desk@pbx.example.com"), "sip_uri", notSIP},
		"uri expands":    {sip("sip:${system(touch /tmp/x)}@pbx.example.com"), "sip_uri", notSIP},
		"uri options":    {sip("{sip_secure=1}sip:a@b.example"), "sip_uri", notSIP},
		"uri comma":      {sip("sip:a@b.example,sofia/external/c"), "sip_uri", notSIP},
		"uri break":      {sip("sip:a@b.example\r\nX: y"), "sip_uri", notSIP},
		"uri params":     {sip("sip:a@b.example;maddr=10.0.0.1"), "sip_uri", notSIP},
		"provider break": {with("provider", "a\nb"), "provider", "provider must not contain control characters"},
	} {
		got := b.post("/v1/dids", test.body).refused(codeInvalidRequest, test.field)
		require.Equal(t, test.message, got.message(), name)
	}
	b.post("/v1/dids", object{"number_e164": "+31201234567", "application_id": "app_unknown"}).refused(codeNotFound, "application_id")
	require.Empty(t, b.get("/v1/dids").data())
	require.Zero(t, b.dialplan.count())
}
