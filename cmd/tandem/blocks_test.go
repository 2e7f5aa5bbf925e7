package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStrangersCommand(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("GET /strangers", 200, listOf(
		object{"source": "198.51.100.7", "uninvited": 31, "unknown_number": 0, "last_seen_at": "2026-05-04T03:02:01Z", "number": "****3456", "user_agent": "bad\x1b[2J", "block": object{"live": true}},
		object{"source": "203.0.113.9", "uninvited": 0, "unknown_number": 2, "known_as": "trunk_1", "last_seen_at": "2026-05-04T03:02:00Z", "number": "****3457"},
	))
	out := runs(t, 0, "strangers", "ls", "--sort", "count", "--unknown", "--node", "fs-1", "-o", "wide").out
	require.Contains(t, out, "198.51.100.7")
	require.Contains(t, out, "for good")
	require.Contains(t, out, "trunk_1")
	require.NotContains(t, out, "\x1b")
	require.Equal(t, "GET /strangers?known=false&limit=50&node=fs-1&sort=count", last(api))
	require.Equal(t, "198.51.100.7\n203.0.113.9\n", runs(t, 0, "strangers", "list", "-o", "name").out)
	runs(t, 2, "strangers", "ls", "--known", "--unknown")
	runs(t, 2, "strangers", "ls", "--seen", "-1h")
}

func last(api *fakeAPI) string {
	all := api.requests()
	return all[len(all)-1]
}

func TestBlocksCommand(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	block := object{"id": "block_1", "address": "198.51.100.7", "origin": "automatic", "reason": "20 uninvited calls", "live": true, "created_at": "2026-05-04T03:02:01Z", "expires_at": "2026-05-04T04:02:01Z"}
	network := object{"id": "block_2", "address": "198.51.100.0/24", "origin": "operator", "created_by": "ana", "reason": "fraud", "live": true, "created_at": "2026-05-04T03:02:01Z"}
	api.says("GET /blocks", 200, listOf(block, network))
	out := runs(t, 0, "blocks", "list").out
	require.Contains(t, out, "until 2026-05-04T04:02:01Z")
	require.Contains(t, out, "for good")
	require.Equal(t, "GET /blocks?limit=50&state=live", last(api))

	api.says("POST /blocks", 201, network)
	runs(t, 2, "blocks", "add", "198.51.100.7")
	require.Contains(t, runs(t, 0, "blocks", "add", "198.51.100.7", "--reason", "fraud", "--note", "n").out, "block_2")
	require.Equal(t, `POST /blocks {"address":"198.51.100.7","note":"n","reason":"fraud"}`, last(api))
	runs(t, 2, "blocks", "add", "198.51.100.0/24", "--reason", "fraud") // a network asks first
	runs(t, 0, "blocks", "add", "198.51.100.0/24", "--reason", "fraud", "--yes", "--for", "1h")
	require.Contains(t, last(api), `"expires_at":"20`)
	api.says("POST /blocks", 409, object{"error": object{"code": "address_protected", "message": "198.51.100.7 belongs to trunk trunk_1 and is never blocked"}})
	require.Contains(t, runs(t, 1, "blocks", "add", "198.51.100.7", "--reason", "fraud").err, "trunk_1")

	api.says("DELETE /blocks/block_1", 204, nil)
	api.says("DELETE /blocks/block_2", 204, nil)
	runs(t, 2, "blocks", "rm", "198.51.100.7")
	runs(t, 0, "blocks", "rm", "198.51.100.7", "--yes")
	require.Equal(t, "DELETE /blocks/block_1", last(api))
	runs(t, 0, "blocks", "remove", "198.51.100.9/24", "--yes")
	require.Equal(t, "DELETE /blocks/block_2", last(api))
	runs(t, 0, "blocks", "rm", "block_1", "--yes")
	require.Contains(t, runs(t, 1, "blocks", "rm", "198.51.100.8", "--yes").err, "there is no block of 198.51.100.8")

	exception := object{"id": "never_1", "address": "203.0.113.0/28", "note": "carrier", "created_by": "ana", "lifted": []any{block}}
	api.says("POST /block-exceptions", 201, exception)
	api.says("GET /block-exceptions", 200, listOf(exception))
	api.says("DELETE /block-exceptions/never_1", 204, nil)
	allowed := runs(t, 0, "blocks", "allow", "203.0.113.0/28", "--note", "carrier")
	require.Contains(t, allowed.err, "block of 198.51.100.7 lifted")
	require.Contains(t, allowed.out, "never_1")
	require.Contains(t, runs(t, 0, "blocks", "allowed").out, "203.0.113.0/28")
	runs(t, 0, "blocks", "disallow", "203.0.113.0/28", "--yes")
	require.Equal(t, "DELETE /block-exceptions/never_1", last(api))
}

func TestBlocksExport(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("GET /blocked-networks", 200, object{"ipv4": []string{"198.51.100.7/32", "203.0.113.0/24"}, "ipv6": []string{"2001:db8::/64"}})
	require.Equal(t, "198.51.100.7/32\n203.0.113.0/24\n2001:db8::/64\n", runs(t, 0, "blocks", "export").out)
	require.Equal(t, `add table inet tandem
add set inet tandem tandem4 { type ipv4_addr; flags interval; }
flush set inet tandem tandem4
add element inet tandem tandem4 { 198.51.100.7/32, 203.0.113.0/24 }
add set inet tandem tandem6 { type ipv6_addr; flags interval; }
flush set inet tandem tandem6
add element inet tandem tandem6 { 2001:db8::/64 }
`, runs(t, 0, "blocks", "export", "--format", "nft").out)
	require.Equal(t, `create sip4 hash:net family inet maxelem 262144 -exist
create sip4_new hash:net family inet maxelem 262144 -exist
flush sip4_new
add sip4_new 198.51.100.7/32
add sip4_new 203.0.113.0/24
swap sip4 sip4_new
destroy sip4_new
create sip6 hash:net family inet6 maxelem 262144 -exist
create sip6_new hash:net family inet6 maxelem 262144 -exist
flush sip6_new
add sip6_new 2001:db8::/64
swap sip6 sip6_new
destroy sip6_new
`, runs(t, 0, "blocks", "export", "--format", "ipset", "--name", "sip").out)
	api.says("GET /blocked-networks", 200, object{"ipv4": []string{}, "ipv6": []string{}})
	require.NotContains(t, runs(t, 0, "blocks", "export", "--format", "nft").out, "add element")
	runs(t, 2, "blocks", "export", "--format", "pf")
	runs(t, 2, "blocks", "export", "--name", "a;b")
	// What a firewall gets is a network, whoever answers.
	for _, hostile := range []string{"198.51.100.7/32 }; flush ruleset", "0.0.0.0/0", "2001:db8::/64", "198.51.100.7", "198.51.100.7/032"} {
		api.on("GET /blocked-networks", func(*http.Request, []byte) (int, any) {
			return 200, object{"ipv4": []string{hostile}, "ipv6": []string{}}
		})
		failed := runs(t, 1, "blocks", "export", "--format", "nft")
		require.Empty(t, failed.out)
		require.Contains(t, failed.err, "no network to block")
	}
}

func FuzzExport(f *testing.F) {
	f.Add("198.51.100.7/32", "2001:db8::/64")
	f.Add("1.2.3.4/8", "::ffff:1.2.3.4/128")
	f.Fuzz(func(t *testing.T, four, six string) {
		n := &networks{IPv4: []string{four}, IPv6: []string{six}}
		for _, form := range exportForms {
			var out strings.Builder
			if n.export(&out, form, "tandem") != nil {
				require.Empty(t, out.String())
				continue
			}
			require.Empty(t, strings.Trim(four, "0123456789./"))
			require.Empty(t, strings.Trim(six, "0123456789abcdef:./"))
			require.Contains(t, out.String(), four)
		}
	})
}
