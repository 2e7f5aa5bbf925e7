package api

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestTrunksAreTakenOutOfUse(t *testing.T) {
	t.Parallel()
	onBothAsOperator(t, func(b *bench) {
		trunk := modelstest.OutboundTrunk(b.t, b.store, b.customer)
		path := "/operator/v1/trunks/" + trunk.ID
		before := b.dialplan.count()
		off := b.patch(path, object{"is_active": false}).is(200)
		require.Equal(b.t, false, off.json()["is_active"])
		require.Greater(b.t, b.dialplan.count(), before, "the nodes are told")
		stored, err := b.store.TrunkByID(b.t.Context(), trunk.ID)
		require.NoError(b.t, err)
		want := *trunk
		want.IsActive, want.UpdatedAt = false, stored.UpdatedAt
		require.Equal(b.t, &want, stored, "nothing else has changed")
		require.Equal(b.t, true, b.patch(path, object{"is_active": true}).is(200).json()["is_active"])

		b.patch(path, object{}).refused(codeInvalidRequest, "is_active")
		b.patch(path, object{"is_active": true, "proxy": "sip.example.com"}).refused(codeInvalidRequest, "proxy")
		b.patch("/operator/v1/trunks/trunk_unknown", object{"is_active": true}).refused(codeNotFound, "")
		require.NoError(b.t, b.store.DeleteTrunk(b.t.Context(), b.customer.ID, trunk.ID))
		b.patch(path, object{"is_active": true}).refused(codeNotFound, "")
	})
}

func TestTrunksAreCreatedForCustomers(t *testing.T) {
	t.Parallel()
	onBothAsOperator(t, func(b *bench) {
		const path = "/operator/v1/trunks"
		other := modelstest.Customer(b.t, b.store, 0)
		before := b.dialplan.count()
		made := b.post(path, object{
			"customer_id": other.ID, "name": "Carrier", "proxy": "sip.example.com", "username": "u", "password": "pw-of-the-trunk", "realm": "r.example.com",
			"priority": 3, "codecs": []string{"PCMA"}, "max_calls": 7,
		}).is(201)
		require.Greater(b.t, b.dialplan.count(), before, "the nodes are told")
		require.NotContains(b.t, string(made.body), "pw-of-the-trunk")
		require.Equal(b.t, []any{other.ID, "outbound", float64(3), float64(7), true, made.str("id")},
			pick(made.json(), "customer_id", "direction", "priority", "max_calls", "register", "gateway_name"))
		stored, err := b.store.Trunk(b.t.Context(), other.ID, made.str("id"))
		require.NoError(b.t, err)
		require.Equal(b.t, models.Secret("pw-of-the-trunk"), stored.Password)
		require.Equal(b.t, made.str("name"), b.get(path+"/"+made.str("id")).is(200).str("name"))

		trail := b.trail(models.AuditFilter{Action: "createCustomerTrunk"})
		require.Len(b.t, trail, 1)
		require.Equal(b.t, []string{other.ID, made.str("id"), models.ActorOperator}, []string{trail[0].CustomerID, trail[0].ObjectID, trail[0].ActorKind})
		require.NotContains(b.t, string(trail[0].Detail), "pw-of-the-trunk")

		app := modelstest.Application(b.t, b.store, other)
		inbound := object{"customer_id": other.ID, "name": "In", "inbound_ips": []string{b.freshAddress()}, "application_id": app.ID}
		require.Equal(b.t, app.ID, b.post(path, inbound).is(201).str("application_id"))
		b.post(path, inbound).refused(codeInboundIPExists, "")
		inbound["customer_id"], inbound["inbound_ips"] = b.customer.ID, []string{b.freshAddress()}
		require.Contains(b.t, b.post(path, inbound).refused(codeNotFound, "application_id").message(), "of the customer")

		b.post(path, object{"name": "x", "proxy": "sip.example.com"}).refused(codeInvalidRequest, "customer_id")
		b.post(path, object{"customer_id": "no id", "name": "x", "proxy": "sip.example.com"}).refused(codeInvalidRequest, "customer_id")
		b.post(path, object{"customer_id": "cust_none", "name": "x", "proxy": "sip.example.com"}).refused(codeNotFound, "customer_id")
		b.post(path, object{"customer_id": other.ID, "proxy": "sip.example.com"}).refused(codeInvalidRequest, "name")
		b.post(path, object{"customer_id": other.ID, "name": "x"}).refused(codeInvalidRequest, "proxy")
		b.post(path, object{"customer_id": other.ID, "name": "x", "proxy": "a.example.com", "gateway_name": made.str("gateway_name")}).refused(codeGatewayNameExists, "gateway_name")
		b.post(path, object{"customer_id": other.ID, "name": "x", "proxy": "a.example.com", "colour": "red"}).refused(codeInvalidRequest, "colour")
		require.Len(b.t, b.trail(models.AuditFilter{Action: "createCustomerTrunk"}), 2, "what was refused left no trace")
	})
}
