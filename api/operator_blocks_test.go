package api

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// An operator sees who called, blocks and lifts, and keeps addresses from being blocked; the audit trail says who did.
func TestBlocks(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		b := numbersBench(t, store, "203.0.113.0/24")
		changes := &countedChanges{}
		b.server.dialplan = changes
		until := b.store.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05Z")
		made := b.post("/operator/v1/blocks", object{"address": "198.51.100.7", "reason": "toll fraud", "note": "ticket 7", "expires_at": until}).is(201).json()
		require.Equal(t, []any{"198.51.100.7", "operator", "toll fraud", "ticket 7", "ana", true, until, nil, nil},
			pick(made, "address", "origin", "reason", "note", "created_by", "live", "expires_at", "ended_at", "ended_by"))
		wide := b.post("/operator/v1/blocks", object{"address": "198.51.100.1/24", "reason": "network of nobody"}).is(201).json()
		require.Equal(t, []any{"198.51.100.0/24", nil}, pick(wide, "address", "expires_at"))
		six := b.post("/operator/v1/blocks", object{"address": "2001:db8::/32", "reason": "x"}).is(201).json()
		require.Equal(t, 3, changes.count())
		require.Equal(t, []any{six, wide, made}, b.get("/operator/v1/blocks").is(200).data())
		require.Equal(t, []any{wide}, b.get("/operator/v1/blocks?address=198.51.100.128/25").is(200).data())
		require.Empty(t, b.get("/operator/v1/blocks?origin=automatic").is(200).data())
		require.Equal(t, []any{[]any{"198.51.100.0/24"}, []any{"2001:db8::/32"}}, pick(b.get("/operator/v1/blocked-networks").is(200).json(), "ipv4", "ipv6"))

		customer := modelstest.Customer(t, store, 0)
		trunk := modelstest.InboundTrunk(t, store, customer, modelstest.Application(t, store, customer))
		b.post("/operator/v1/blocks", object{"address": trunk.InboundIPs[0], "reason": "x"}).refused(codeAddressProtected, "address")
		require.Contains(t, b.post("/operator/v1/blocks", object{"address": trunk.InboundIPs[0], "reason": "x"}).message(), trunk.ID)
		require.Contains(t, b.post("/operator/v1/blocks", object{"address": "203.0.113.9", "reason": "x"}).refused(codeAddressProtected, "address").message(), "provider")
		b.post("/operator/v1/blocks", object{"address": "198.51.100.7", "reason": "x"}).refused(codeBlockExists, "address")
		for field, body := range map[string]object{
			"address":    {"address": "scanner.example", "reason": "x"},
			"reason":     {"address": "192.0.2.1"},
			"note":       {"address": "192.0.2.1", "reason": "x", "note": "a\nb"},
			"expires_at": {"address": "192.0.2.1", "reason": "x", "expires_at": "2020-01-01T00:00:00Z"},
		} {
			b.post("/operator/v1/blocks", body).refused(codeInvalidRequest, field)
		}
		for _, wide := range []string{"0.0.0.0/0", "10.0.0.0/7", "2000::/18", "::/0"} {
			b.post("/operator/v1/blocks", object{"address": wide, "reason": "x"}).refused(codeInvalidRequest, "address")
			b.post("/operator/v1/block-exceptions", object{"address": wide}).refused(codeInvalidRequest, "address")
		}
		require.Equal(t, 3, changes.count(), "what is refused changes nothing")

		never := b.post("/operator/v1/block-exceptions", object{"address": "198.51.100.4/30", "note": "the new carrier"}).is(201).json()
		require.Equal(t, []any{"198.51.100.4/30", "the new carrier", "ana"}, pick(never, "address", "note", "created_by"))
		lifted := never["lifted"].([]any)
		require.Len(t, lifted, 1)
		require.Equal(t, []any{made["id"], false, "ana"}, pick(lifted[0], "id", "live", "ended_by"))
		require.Contains(t, b.post("/operator/v1/blocks", object{"address": "198.51.100.7", "reason": "x"}).refused(codeAddressProtected, "address").message(), never["id"])
		b.post("/operator/v1/block-exceptions", object{"address": "198.51.100.4/30"}).refused(codeBlockExists, "address")
		require.Len(t, b.get("/operator/v1/block-exceptions?address=198.51.100.5").is(200).data(), 1)
		require.Len(t, b.get("/operator/v1/blocked-networks").is(200).json()["ipv4"], 6)
		b.delete(fmt.Sprintf("/operator/v1/block-exceptions/%s", never["id"])).is(204)
		b.delete(fmt.Sprintf("/operator/v1/block-exceptions/%s", never["id"])).refused(codeNotFound, "")
		b.delete(fmt.Sprintf("/operator/v1/blocks/%s", wide["id"])).is(204)
		b.delete(fmt.Sprintf("/operator/v1/blocks/%s", wide["id"])).refused(codeNotFound, "")
		require.Equal(t, 6, changes.count())
		require.Len(t, b.get("/operator/v1/blocks?state=ended").is(200).data(), 2)
		require.Len(t, b.get("/operator/v1/blocks?state=all").is(200).data(), 3)

		var said []string
		for _, entry := range b.get("/operator/v1/audit").is(200).data() {
			said = append([]string{entry.(object)["action"].(string)}, said...)
		}
		require.Equal(t, []string{"createBlock", "createBlock", "createBlock", "createBlockException", "deleteBlockException", "liftBlock"}, said)
		require.Len(t, b.get(fmt.Sprintf("/operator/v1/audit?object_id=%s", wide["id"])).is(200).data(), 2)
	})
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		b := numbersBench(t, store)
		node := modelstest.Node(t, store)
		at := store.Now()
		_, _, err := store.RecordStrangers(t.Context(), node.ID, []models.StrangerReport{
			{Source: "198.51.100.7", Uninvited: 30, FirstAt: at.Add(-time.Minute), LastAt: at.Add(-time.Second), Number: "****3456", UserAgent: "scanner"},
			{Source: "203.0.113.9", UnknownNumber: 2, FirstAt: at, LastAt: at, Number: "****3457", KnownAs: "trunk_1"},
		}, models.BlockRules{After: 30, Window: time.Minute, For: time.Hour, Longest: time.Hour})
		require.NoError(t, err)
		_, _, err = store.RecordStrangers(t.Context(), "node_gone", []models.StrangerReport{{Source: "198.51.100.7", Uninvited: 1, FirstAt: at.Add(-time.Hour), LastAt: at.Add(-time.Hour)}}, models.BlockRules{})
		require.NoError(t, err)
		all := b.get("/operator/v1/strangers").is(200).data()
		require.Len(t, all, 2)
		require.Equal(t, []any{"203.0.113.9", 0.0, 2.0, "trunk_1", nil, nil}, pick(all[0], "source", "uninvited", "unknown_number", "known_as", "user_agent", "block"))
		require.Equal(t, []any{"198.51.100.7", 31.0, 0.0, nil, "scanner", "****3456", stamp(at.Add(-time.Hour))},
			pick(all[1], "source", "uninvited", "unknown_number", "known_as", "user_agent", "number", "first_seen_at"))
		require.Equal(t, []any{"automatic", "198.51.100.7", nil, true}, pick(all[1].(object)["block"], "origin", "address", "created_by", "live"))
		nodes := all[1].(object)["nodes"].([]any)
		require.Equal(t, []any{"node_gone", node.Name}, []any{nodes[0].(object)["node"], nodes[1].(object)["node"]})

		first := b.get("/operator/v1/strangers?sort=count&limit=1").is(200)
		require.Equal(t, all[1], first.data()[0])
		require.Equal(t, []any{all[0]}, b.get("/operator/v1/strangers?sort=count&limit=1&cursor="+first.str("next_cursor")).is(200).data())
		require.Len(t, b.get("/operator/v1/strangers?known=true").is(200).data(), 1)
		require.Len(t, b.get("/operator/v1/strangers?source=198.51.100.7").is(200).data(), 1)
		require.Len(t, b.get("/operator/v1/strangers?node="+node.Name).is(200).data(), 2)
		require.Len(t, b.get("/operator/v1/strangers?seen_after="+at.Add(-500*time.Millisecond).UTC().Format(time.RFC3339Nano)).is(200).data(), 1)
		for _, field := range []string{"sort", "source", "node", "known", "seen_after", "cursor"} {
			b.get("/operator/v1/strangers?"+field+"=x").refused(codeInvalidRequest, field)
		}

		// The test of a number says that the address is blocked.
		told := b.get("/operator/v1/dids/by-number/+15550001567/test?from_ip=198.51.100.7").is(200).json()["cases"].([]any)[0].(object)
		require.Equal(t, []any{"refuse", 403.0, "Forbidden"}, pick(told["result"], "outcome", "sip_status", "phrase"))
		require.Equal(t, []any{"198.51.100.7", "automatic"}, pick(told["block"], "address", "origin"))
		require.Contains(t, told["why"].([]any)[1], "is blocked")
		require.Nil(t, b.get("/operator/v1/dids/by-number/+15550001567/test?from_ip=198.51.100.8").is(200).json()["cases"].([]any)[0].(object)["block"])
	})
}
