package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

func TestKeysAreRotated(t *testing.T) {
	t.Parallel()
	onBoth(t, func(customers *bench) {
		b := operatorBench(customers, models.RoleAdmin)
		path := "/operator/v1/customers/" + b.customer.ID + "/api-keys"
		first := b.post(path, object{"name": "server"}).is(201)
		works := func(key string) int {
			return customers.do(exchange{method: "GET", path: "/v1/calls", key: &key}).status
		}
		old := first.str("api_key")

		second := b.do(exchange{method: "POST", path: path + "/" + first.str("id") + "/rotate"}).is(201)
		fresh := second.str("api_key")
		require.NotEqual(b.t, old, fresh)
		require.Equal(b.t, []string{"server", first.str("id")}, []string{second.str("name"), second.str("previous_id")})
		until, err := time.Parse(time.RFC3339, second.str("previous_valid_until"))
		require.NoError(b.t, err)
		require.WithinDuration(b.t, b.store.Now().Add(24*time.Hour), until, time.Minute, "a day by default")
		require.Equal(b.t, []int{200, 200}, []int{works(old), works(fresh)})
		require.Contains(b.t, string(b.get(path).is(200).body), `"expires_at":"`+second.str("previous_valid_until")+`"`)

		third := b.post(path+"/"+second.str("id")+"/rotate", object{"grace_seconds": 0}).is(201)
		require.Equal(b.t, []int{200, 401, 200}, []int{works(old), works(fresh), works(third.str("api_key"))})
		b.post(path+"/"+second.str("id")+"/rotate", object{}).refused(codeKeyNotActive, "")
		b.post(path+"/key_unknown/rotate", object{}).refused(codeNotFound, "")
		for _, grace := range []any{-1, maxGraceSeconds + 1, "1h"} {
			b.post(path+"/"+third.str("id")+"/rotate", object{"grace_seconds": grace}).refused(codeInvalidRequest, "grace_seconds")
		}

		entries, _, err := b.store.ListAudit(b.t.Context(), models.AuditFilter{Action: "rotateCustomerKey"}, models.Page{Limit: 10})
		require.NoError(b.t, err)
		require.Len(b.t, entries, 2, "what was refused is not in it")
		require.Equal(b.t, []string{b.customer.ID, second.str("id")}, []string{entries[0].CustomerID, entries[0].ObjectID})
		require.JSONEq(b.t, `{"id": "`+b.customer.ID+`", "kid": "`+second.str("id")+`", "grace_seconds": 0, "new_id": "`+third.str("id")+`"}`, string(entries[0].Detail))
	})
}

func TestOperatorsAreRotated(t *testing.T) {
	t.Parallel()
	onBothAsOperator(t, func(b *bench) {
		end := b.store.Now().Add(time.Hour).Format(time.RFC3339)
		made := b.post("/operator/v1/operators", object{"name": "ben", "role": "operator", "expires_at": end}).is(201)
		path := "/operator/v1/operators/" + made.str("id") + "/rotate"
		me := func(token string) response {
			return b.do(exchange{method: "GET", path: "/operator/v1/me", key: &token})
		}

		b.post(path, object{}).refused(codeInvalidRequest, "expires_at")
		later := b.store.Now().Add(100 * time.Hour).Format(time.RFC3339)
		second := b.post(path, object{"expires_at": later}).is(201)
		require.Equal(b.t, []string{"ben", "operator", later, end}, []string{second.str("name"), second.str("role"), second.str("expires_at"), second.str("previous_valid_until")})
		me(made.str("token")).is(200)
		require.Equal(b.t, second.str("id"), me(second.str("token")).is(200).str("id"))

		third := b.post("/operator/v1/operators/"+second.str("id")+"/rotate", object{"expires_at": later, "grace_seconds": 0}).is(201)
		me(second.str("token")).refused(codeUnauthorized, "")
		me(third.str("token")).is(200)
		b.post("/operator/v1/operators/"+second.str("id")+"/rotate", object{"expires_at": later}).refused(codeKeyNotActive, "")
		b.post("/operator/v1/operators/oper_unknown/rotate", object{}).refused(codeNotFound, "")
	})
}
