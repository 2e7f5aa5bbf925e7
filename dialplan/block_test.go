package dialplan

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

func blocked(addresses ...string) (blocks []models.Block) {
	for _, address := range addresses {
		blocks = append(blocks, models.Block{
			ID: "block_" + address, Address: address, Origin: models.BlockAutomatic, Reason: "20 uninvited calls within 5m0s",
			ExpiresAt: &time.Time{},
		})
	}
	return blocks
}

func TestRenderBlocks(t *testing.T) {
	t.Parallel()
	rendering, err := Render(Input{Blocked: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/32"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/64")}})
	require.NoError(t, err)
	golden := filepath.Join("testdata", "blocks.xml")
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(rendering.Files[blockPath]))
	loaded, err := readFiles(rendering.Files)
	require.NoError(t, err)
	for address, refused := range map[string]bool{
		"198.51.100.7": true, "198.51.100.8": false, "203.0.113.200": true, "::ffff:203.0.113.200": true, "2001:db8::99": true, "2001:db8:1::": false,
	} {
		require.Equal(t, refused, loaded.blocks(netip.MustParseAddr(address)), address)
		require.Empty(t, loaded.token(netip.MustParseAddr(address)))
	}
	require.Equal(t, Change{Kind: "blocks", Name: "blocked addresses", Path: blockPath}, changeOf(blockPath))
	require.Equal(t, "reloadacl", effectOf(&Change{Kind: "blocks", Op: OpChange}))
	other, err := Render(Input{Blocked: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/32")}})
	require.NoError(t, err)
	require.Equal(t, []string{"source 2001:db8::/64 removed", "source 203.0.113.0/24 removed"}, describe(rendering.Files[blockPath], other.Files[blockPath]))
	none, err := Render(Input{})
	require.NoError(t, err)
	require.NotContains(t, none.Files, blockPath)
	for _, wrong := range []netip.Prefix{{}, netip.MustParsePrefix("198.51.100.7/24"), netip.MustParsePrefix("::ffff:1.2.3.4/128")} {
		_, err = Render(Input{Blocked: []netip.Prefix{wrong}})
		require.Error(t, err)
	}
}

// A block by whichever process is on the switch within seconds, and off it when it is over; changes that come together cost one reload.
func TestBlocksAreFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		s, control := started(t, store, nil)
		control.heard()
		file := filepath.Join(s.current()[0].folder.(folder).root, filepath.FromSlash(blockPath))
		require.NoFileExists(t, file)
		for _, address := range []string{"198.51.100.7", "198.51.100.8", "198.51.100.9"} {
			store.set(func(f *fakeStore) { f.blocks = append(f.blocks, blocked(address)...) })
			s.Changed()
		}
		<-time.After(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"reloadacl"}, control.heard())
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, 3, strings.Count(string(content), "<user "))

		reads := store.blockReads
		store.set(func(f *fakeStore) { f.blocks = nil }) // by another process, or by the clock
		<-time.After(guardEvery + time.Second)
		synctest.Wait()
		require.Equal(t, []string{"reloadacl"}, control.heard())
		require.NoFileExists(t, file)
		require.Equal(t, reads+1, store.blockReads)
		<-time.After(20 * time.Second)
		synctest.Wait()
		require.Empty(t, control.heard())
		require.Equal(t, reads+1, store.blockReads, "nothing has changed")
		s.Stop()
	})
}

func TestExplainBlocked(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	store := &fakeStore{
		trunks: []models.Trunk{inbound("trunk_1", "cust_a", "198.51.100.1", "")}, dids: []models.DID{number("did_1", "cust_a", "+15550001567")},
		blocks: []models.Block{
			{ID: "block_1", Address: "198.51.100.0/24", Origin: models.BlockOperator, CreatedBy: "ana", Reason: "fraud"},
			{ID: "block_2", Address: "203.0.113.7", Origin: models.BlockAutomatic, Reason: "20 uninvited calls within 5m0s", ExpiresAt: &until},
		},
	}
	s, err := NewSyncer(Config{Store: store})
	require.NoError(t, err)
	x, err := s.Explain(t.Context(), "+15550001567", netip.MustParseAddr("198.51.100.9"))
	require.NoError(t, err)
	require.Equal(t, []string{
		"198.51.100.9 is no address of an inbound trunk or of a provider",
		"198.51.100.9 is blocked (block_1 of 198.51.100.0/24, by operator ana: fraud), until somebody lifts it",
		"the call is refused with SIP status 403 Forbidden, before the dialplan is asked",
		"the switch decides that by itself, also while no controller takes calls",
	}, x.Why)
	require.Equal(t, "block_1", x.Blocked.ID)
	require.Equal(t, refuseBlocked, x.Outcome)
	require.Empty(t, x.Steps)
	x, err = s.Explain(t.Context(), "+15550001567", netip.MustParseAddr("203.0.113.7"))
	require.NoError(t, err)
	require.Equal(t, "203.0.113.7 is blocked (block_2 of 203.0.113.7, automatically: 20 uninvited calls within 5m0s), until 2026-05-04 03:02:01Z", x.Why[1])
	x, err = s.Explain(t.Context(), "+15550001567", netip.MustParseAddr("198.51.100.1"))
	require.NoError(t, err)
	require.Nil(t, x.Blocked, "who is known is asked for first")
	require.Equal(t, OutcomeApplication, x.Outcome.Kind)
}

// refusedCall is the end of a call that the dialplan refused.
func refusedCall(from, number, answer, token string) fakeEvent {
	return fakeEvent{
		"Event-Name": "CHANNEL_HANGUP_COMPLETE", "Call-Direction": "inbound", "Caller-Direction": "inbound", "Hangup-Cause": "CALL_REJECTED",
		"variable_current_application": "respond", "variable_current_application_data": answer,
		"Caller-Network-Addr": from, "Caller-Destination-Number": number, "variable_acl_token": token, "variable_sip_user_agent": "friendly\x1b-scanner",
	}
}

func TestStrangersAreCountedBySource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		s, err := NewSyncer(Config{
			Logger: slog.New(slog.DiscardHandler),
			Store:  store, Blocks: models.BlockRules{After: 20, Window: time.Minute}, Providers: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		})
		require.NoError(t, err)
		s.Start(t.Context())
		for range 30 {
			s.handle("node_1", refusedCall("198.51.100.7", "+4930123456", refuseUninvited, ""))
			s.handle("node_2", refusedCall("2001:db8::1", "100", refuseUninvited, ""))
			s.handle("node_2", refusedCall("2001:db8::2", "100", refuseUninvited, ""))
		}
		s.handle("node_1", refusedCall("192.0.2.9", "+4930123457", refuseUnknown, "provider.1.did@tandem"))
		s.handle("node_1", refusedCall("203.0.113.9", "+4930123457", refuseUnknown, "cust_a.trunk_1.2.did@tandem"))
		for _, other := range []fakeEvent{
			refusedCall("203.0.113.9", "+4930123457", refuseUnsteered, "cust_a.trunk_1.did@tandem"),
			refusedCall("203.0.113.9", "+4930123457", refuseSuspended, "cust_a.trunk_1.did@tandem"),
			refusedCall("203.0.113.9", "+4930123457", "486", "cust_a.trunk_1.did@tandem"),
			refusedCall("nowhere", "1", refuseUninvited, ""),
			{"Event-Name": "CHANNEL_HANGUP_COMPLETE", "Call-Direction": "inbound", "Hangup-Cause": "CALL_REJECTED"},
			{"Event-Name": "CHANNEL_HANGUP_COMPLETE", "Call-Direction": "outbound", "Hangup-Cause": "CALL_REJECTED"},
			{"Event-Name": "CHANNEL_HANGUP_COMPLETE", "Call-Direction": "inbound", "Caller-Direction": "inbound", "Hangup-Cause": "CALL_REJECTED"},
		} {
			s.handle("node_1", other)
		}
		store.set(func(f *fakeStore) { f.err = errStore })
		<-time.After(guardEvery)
		synctest.Wait()
		require.Empty(t, store.strangers)
		s.handle("node_1", refusedCall("198.51.100.7", "+4930123999", refuseUninvited, ""))
		store.set(func(f *fakeStore) { f.err = nil })
		<-time.After(guardEvery)
		synctest.Wait()
		slices.SortFunc(store.strangers, func(a, b nodeReport) int { return strings.Compare(a.Source, b.Source) })
		type row struct {
			node, source        string
			uninvited, unknown  int64
			number, agent, whom string
		}
		var rows []row
		for _, r := range store.strangers {
			rows = append(rows, row{r.node, r.Source, r.Uninvited, r.UnknownNumber, r.Number, r.UserAgent, r.KnownAs})
		}
		require.Equal(t, []row{
			{"node_1", "192.0.2.9", 0, 1, models.MaskedNumber("+4930123457"), "friendly?-scanner", "provider"},
			{"node_1", "198.51.100.7", 31, 0, models.MaskedNumber("+4930123999"), "friendly?-scanner", ""},
			{"node_2", "2001:db8::/64", 60, 0, models.MaskedNumber("100"), "friendly?-scanner", ""},
			{"node_1", "203.0.113.9", 0, 1, models.MaskedNumber("+4930123457"), "friendly?-scanner", "trunk_1"},
		}, rows)
		require.True(t, store.strangers[1].FirstAt.Before(store.strangers[1].LastAt))
		require.Equal(t, models.BlockRules{After: 20, Window: time.Minute, Providers: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, store.rules)
		require.Equal(t, map[Refusal]uint64{RefusedUninvited: 92, RefusedUnknown: 2, RefusedUnsteered: 1, RefusedSuspended: 1, RefusedBlocked: 1}, s.Refused())

		s.handle("node_1", refusedCall("198.51.100.7", "+4930123999", refuseUninvited, ""))
		s.Stop()
		require.Len(t, store.strangers, 5, "what waits is written at the end")
	})
}

// Forged sources cost bounded memory.
func TestStrangersInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	b := newStrangerBook()
	addr := netip.MustParseAddr("10.0.0.0")
	for range mostSources + 100 {
		for range 2 {
			b.note("node_1", RefusedUninvited, refusedCall(addr.String(), strings.Repeat("1", 500), refuseUninvited, ""), time.Now())
		}
		addr = addr.Next()
	}
	waiting, unattributed := b.take()
	require.Len(t, waiting["node_1"], mostSources)
	require.Equal(t, uint64(200), unattributed)
	for _, r := range waiting["node_1"] {
		require.Equal(t, int64(2), r.Uninvited)
		require.LessOrEqual(t, len(r.Number), longestLogged)
	}
	waiting, unattributed = b.take()
	require.Empty(t, waiting)
	require.Zero(t, unattributed)
}
