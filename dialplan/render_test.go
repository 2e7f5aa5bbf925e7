package dialplan

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func secret(s string) models.Secret { return models.Secret(s) }

func outbound(id, customer, gateway string) models.Trunk {
	return models.Trunk{
		ID: id, CustomerID: customer, Name: "Out", Direction: models.Outbound, GatewayName: gateway, Proxy: "sip.example.com",
		Username: "acme", Password: "hunter2", Register: true, IsActive: true,
	}
}

func inbound(id, customer, address string, application string) models.Trunk {
	trunk := models.Trunk{ID: id, CustomerID: customer, Name: "In", Direction: models.Inbound, InboundIPs: []string{address}, IsActive: true}
	if application != "" {
		trunk.ApplicationID = &application
	}
	return trunk
}

func number(id, customer, e164 string) models.DID {
	app := "app_1"
	return models.DID{
		ID: id, CustomerID: customer, NumberE164: e164, ApplicationID: &app, Status: models.DIDActive, RouteMode: models.RouteWebhook,
	}
}

// example has one of everything.
func example() Input {
	registering := outbound("trunk_01", "cust_a", "carrier.one-1")
	registering.Realm, registering.FromDomain = "carrier.test", "carrier.test"
	registering.Password = `pa"ss'<&>$${x} ${system(id)} - <!--#exec`
	secure := outbound("trunk_02", "cust_b", "plain_2")
	secure.Register, secure.Username, secure.Password, secure.Proxy = false, "", "", "sips:[2001:db8::5]:5061"
	hidden := outbound("trunk_03", "cust_b", ".hidden")
	hidden.Username = "user@example.com"
	inactive := outbound("trunk_04", "cust_b", "inactive")
	inactive.IsActive = false

	own := inbound("trunk_10", "cust_a", "203.0.113.0/28", "")
	own.InboundIPs = append(own.InboundIPs, "192.0.2.77", "2001:db8:7::/64")
	open := inbound("trunk_11", "cust_b", "2001:db8:1::/48", "app_b")
	off := inbound("trunk_12", "cust_c", "203.0.113.99", "")
	off.IsActive = false

	sip := number("did_2", "cust_a", "+15550002567")
	sip.RouteMode, sip.SIPURI = models.RouteSIP, "sip:alice@pbx.example.com:5061;transport=tcp"
	busy := number("did_3", "cust_b", "+15550003567")
	busy.RouteMode, busy.RejectCode = models.RouteReject, 486
	declined := number("did_4", "cust_b", "+4930123456")
	declined.RouteMode = models.RouteReject
	suspended := number("did_5", "cust_a", "+4930123499")
	suspended.Status = models.DIDSuspended
	return Input{
		Trunks: []models.Trunk{own, open, off, registering, secure, hidden, inactive},
		DIDs:   []models.DID{number("did_1", "cust_a", "+15550001567"), sip, busy, declined, suspended},
		Providers: []netip.Prefix{
			netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:ffff::/48"), netip.MustParsePrefix("::ffff:192.0.2.1/128"),
		},
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	rendering, err := Render(example())
	require.NoError(t, err)
	require.Empty(t, rendering.Problems)
	require.Equal(t, map[string]string{"carrier.one-1": "trunk_01", "plain_2": "trunk_02", ".hidden": "trunk_03"}, rendering.Gateways)

	root := filepath.Join("testdata", "golden")
	if *update {
		require.NoError(t, os.RemoveAll(root))
		for path, content := range rendering.Files {
			file := filepath.Join(root, filepath.FromSlash(path))
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, content, 0o644))
		}
	}
	var golden []string
	require.NoError(t, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(root, path)
			golden = append(golden, filepath.ToSlash(name))
		}
		return err
	}))
	require.ElementsMatch(t, golden, slices.Collect(maps.Keys(rendering.Files)))
	for path, content := range rendering.Files {
		want, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
		require.NoError(t, err)
		require.Equal(t, string(want), string(content), path)
	}
}

func TestRenderDoesNotDependOnOrder(t *testing.T) {
	t.Parallel()
	in := example()
	first, err := Render(in)
	require.NoError(t, err)
	for range 20 {
		rand.Shuffle(len(in.Trunks), func(i, j int) { in.Trunks[i], in.Trunks[j] = in.Trunks[j], in.Trunks[i] })
		rand.Shuffle(len(in.DIDs), func(i, j int) { in.DIDs[i], in.DIDs[j] = in.DIDs[j], in.DIDs[i] })
		rand.Shuffle(len(in.Providers), func(i, j int) { in.Providers[i], in.Providers[j] = in.Providers[j], in.Providers[i] })
		again, err := Render(in)
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
}

func TestProblemsConcernTheirRowOnly(t *testing.T) {
	t.Parallel()
	good, err := Render(example())
	require.NoError(t, err)
	in := example()
	for i, name := range []string{"_all_", "_ALL_", "a/b", "", "a b", "../../etc"} {
		in.Trunks = append(in.Trunks, outbound(fmt.Sprintf("trunk_8%d", i), "cust_z", name))
	}
	in.Trunks = append(in.Trunks, outbound("trunk_90", "cust_z", "plain_2"))
	for i, address := range []string{"0.0.0.0/0", "10.0.0.0/7", "::/0", "nonsense", "", "198.51.100.7", "198.51.100.0/24", "203.0.113.0/28"} {
		in.Trunks = append(in.Trunks, inbound(fmt.Sprintf("trunk_7%d", i), "cust_z", address, "app_z"))
	}
	in.Trunks = append(in.Trunks, inbound("trunk_91", "cust.any@tandem", "192.0.2.77", ""), inbound("trunk_92", "provider", "192.0.2.78", ""))
	wrong := number("did_90", "cust_a", "+15550009567")
	wrong.RouteMode, wrong.SIPURI = models.RouteSIP, "sip:a@h,b"
	code := number("did_91", "cust_a", "+15550008567")
	code.RouteMode, code.RejectCode = models.RouteReject, 200
	in.DIDs = append(in.DIDs, wrong, code, number("did_92", "cust_a", "15551234567"), number("did_93", "x|.*", "+15550007567"))

	rendering, err := Render(in)
	require.NoError(t, err)
	require.Len(t, rendering.Problems, 6+1+8+2+4)
	require.Equal(t, good.Gateways, rendering.Gateways)
	for path, content := range good.Files {
		if path == shardPath("567") {
			continue
		}
		require.Equal(t, string(content), string(rendering.Files[path]), path)
	}
	require.Len(t, rendering.Files, len(good.Files))
	shard := string(rendering.Files[shardPath("567")])
	require.Equal(t, 2, bytes.Count([]byte(shard), []byte(refuseSuspended)), "numbers with a wrong route refuse")
	require.NotContains(t, shard, "did_93")
	for _, p := range rendering.Problems {
		require.NotContains(t, p.Message, "hunter2")
	}
}

func TestRenderRefusesInvalidProvider(t *testing.T) {
	t.Parallel()
	_, err := Render(Input{Providers: []netip.Prefix{{}}})
	require.Error(t, err)
	_, err = Render(Input{Profile: "a b"})
	require.Error(t, err)
}

func TestCredentialsThatWouldBeSyntaxAreRefused(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*models.Trunk){
		func(t *models.Trunk) { t.Username = "a:b" },
		func(t *models.Trunk) { t.Username = "</username>" },
		func(t *models.Trunk) { t.Realm = `a"b` },
		func(t *models.Trunk) { t.Realm = "</realm><state>REGED</state>" },
		func(t *models.Trunk) { t.Password = "a\nb" },
		func(t *models.Trunk) { t.Password = "" },
		func(t *models.Trunk) { t.Username = "" },
		func(t *models.Trunk) { t.FromDomain = "a>b" },
		func(t *models.Trunk) { t.Proxy = "" },
		func(t *models.Trunk) { t.Proxy = "host/path" },
		func(t *models.Trunk) { t.Proxy = "user@host" },
	} {
		trunk := outbound("trunk_1", "cust_a", "gw")
		change(&trunk)
		_, err := renderGateway(&trunk)
		require.Error(t, err, "%+v", trunk)
	}
}

func manyDIDs(n int) []models.DID {
	dids := make([]models.DID, n)
	for i := range dids {
		dids[i] = number(fmt.Sprintf("did_%08d", i), fmt.Sprintf("cust_%04d", i%5000), fmt.Sprintf("+1%010d", 2000000000+i))
	}
	return dids
}

func TestOneChangedNumberTouchesOneShard(t *testing.T) {
	t.Parallel()
	in := Input{DIDs: manyDIDs(100_000)}
	before, err := Render(in)
	require.NoError(t, err)
	require.Len(t, before.Files, 1000+2)
	in.DIDs[31_415].RouteMode = models.RouteReject
	after, err := Render(in)
	require.NoError(t, err)
	var changed []string
	for path, content := range after.Files {
		if !bytes.Equal(content, before.Files[path]) {
			changed = append(changed, path)
		}
	}
	require.Equal(t, []string{shardPath("415")}, changed)
}

func BenchmarkRender100000Numbers(b *testing.B) {
	in := Input{DIDs: manyDIDs(100_000)}
	for b.Loop() {
		if _, err := Render(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompare100000Numbers(b *testing.B) {
	rendering, err := Render(Input{DIDs: manyDIDs(100_000)})
	require.NoError(b, err)
	f := folder{b.TempDir()}
	s, err := f.stage(b.Context(), rendering, slices.Collect(maps.Keys(rendering.Files)))
	require.NoError(b, err)
	require.NoError(b, f.commit(s, nil))
	for b.Loop() {
		held, err := f.read()
		if d := differ(held, rendering.digests); err != nil || !d.empty() {
			b.Fatal(d, err)
		}
	}
}
