package models_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func networks(t *testing.T, list []netip.Prefix, err error) []string {
	t.Helper()
	require.NoError(t, err)
	text := []string{}
	for _, p := range list {
		text = append(text, p.String())
	}
	return text
}

func TestBlocks(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		revisions := map[string]bool{}
		changed := func() {
			t.Helper()
			revision, err := s.BlockRevision(ctx)
			require.NoError(t, err)
			require.False(t, revisions[revision], "the revision did not change")
			revisions[revision] = true
		}
		block := func(address string, expires time.Duration) *models.Block {
			t.Helper()
			clock.Advance(time.Second)
			row := &models.Block{Address: address, Reason: "scanner", Note: "seen twice", CreatedBy: "ana"}
			if expires > 0 {
				at := s.Now().Add(expires)
				row.ExpiresAt = &at
			}
			require.NoError(t, s.CreateBlock(ctx, row, nil))
			return row
		}
		listed := func(filter models.BlockFilter) []string {
			t.Helper()
			rows, _, err := s.ListBlocks(ctx, filter, models.Page{})
			require.NoError(t, err)
			found := []string{}
			for _, row := range rows {
				found = append(found, row.Address)
			}
			return found
		}
		changed()
		one := block("198.51.100.7", time.Hour)
		changed()
		wide := block("198.51.100.1/24", 0)
		require.Equal(t, "198.51.100.0/24", wide.Address)
		six := block("2001:db8::1/48", 0)
		changed()
		err := s.CreateBlock(ctx, &models.Block{Address: "::ffff:198.51.100.7"}, nil)
		require.ErrorIs(t, err, models.ErrBlockExists)
		require.Error(t, s.CreateBlock(ctx, &models.Block{Address: "scanner.example"}, nil))
		require.Equal(t, []string{six.Address, wide.Address, one.Address}, listed(models.BlockFilter{}))
		require.Equal(t, []string{wide.Address, one.Address}, listed(models.BlockFilter{Overlap: netip.MustParsePrefix("198.51.100.0/29")}))
		require.Empty(t, listed(models.BlockFilter{Origin: models.BlockAutomatic}))

		of := func(address string) string {
			found, err := s.BlockOf(ctx, netip.MustParseAddr(address))
			if err != nil {
				require.ErrorIs(t, err, models.ErrNotFound)
				return ""
			}
			return found.ID
		}
		require.Equal(t, []string{one.ID, wide.ID, six.ID, "", ""},
			[]string{of("198.51.100.7"), of("198.51.100.8"), of("2001:db8::5"), of("198.51.101.7"), of("2001:db9::5")})

		list, err := s.BlockedNetworks(ctx)
		require.Equal(t, []string{"198.51.100.0/24", "2001:db8::/48"}, networks(t, list, err), "what lies in another is left out")

		// An exception is left out of what is wider, and lifts what lies in it.
		lifted, err := s.CreateBlockException(ctx, &models.BlockException{Address: "198.51.100.6/31", CreatedBy: "ben"})
		require.NoError(t, err)
		require.Len(t, lifted, 1)
		require.Equal(t, []string{one.ID, "ben"}, []string{lifted[0].ID, lifted[0].EndedBy})
		changed()
		list, err = s.BlockedNetworks(ctx)
		require.Equal(t, []string{
			"198.51.100.0/30", "198.51.100.4/31", "198.51.100.8/29", "198.51.100.16/28", "198.51.100.32/27", "198.51.100.64/26", "198.51.100.128/25", "2001:db8::/48",
		}, networks(t, list, err))
		_, err = s.CreateBlockException(ctx, &models.BlockException{Address: "198.51.100.6/31"})
		require.ErrorIs(t, err, models.ErrBlockExists)
		exceptions, _, err := s.ListBlockExceptions(ctx, netip.MustParsePrefix("198.51.100.7/32"), models.Page{})
		require.NoError(t, err)
		require.Len(t, exceptions, 1)
		gone, err := s.DeleteBlockException(ctx, exceptions[0].ID)
		require.NoError(t, err)
		require.Equal(t, "198.51.100.6/31", gone.Address)
		_, err = s.DeleteBlockException(ctx, exceptions[0].ID)
		require.ErrorIs(t, err, models.ErrNotFound)
		changed()

		// One that expires makes room for another, and the revision tells.
		short := block("192.0.2.1", time.Minute)
		changed()
		counts, err := s.BlockCounts(ctx)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{models.BlockAutomatic: 0, models.BlockOperator: 3}, counts)
		clock.Advance(time.Minute)
		again, err := s.BlockRevision(ctx)
		require.NoError(t, err)
		require.Empty(t, of("192.0.2.1"))
		require.Equal(t, []string{short.Address, one.Address}, listed(models.BlockFilter{Over: true}))
		require.False(t, short.Live(s.Now()))
		block("192.0.2.1", time.Minute)
		after, err := s.BlockRevision(ctx)
		require.NoError(t, err)
		require.NotEqual(t, again, after)
		require.Len(t, listed(models.BlockFilter{All: true}), 5)
	})
}

// A trunk that gets its address after somebody blocked it is dropped by no firewall.
func TestDroppableNetworks(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		require.NoError(t, s.CreateBlock(ctx, &models.Block{Address: "198.51.100.0/30", CreatedBy: "ana"}, nil))
		customer := modelstest.Customer(t, s, 0)
		trunk := &models.Trunk{
			CustomerID: customer.ID, Name: "late", Direction: models.Inbound, GatewayName: fmt.Sprintf("late-%d", modelstest.Serial()),
			InboundIPs: []string{"198.51.100.1"}, IsActive: true,
		}
		require.NoError(t, s.CreateTrunk(ctx, trunk))
		list, err := s.BlockedNetworks(ctx)
		require.Equal(t, []string{"198.51.100.0/30"}, networks(t, list, err), "on the nodes, who is known comes first")
		list, err = s.DroppableNetworks(ctx, []netip.Prefix{netip.MustParsePrefix("198.51.100.3/32")})
		require.Equal(t, []string{"198.51.100.0/32", "198.51.100.2/32"}, networks(t, list, err))
	})
}

// The nodes compare each stranger with all blocks, so there are only so many.
func TestBlocksAreBounded(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		for from := 0; from < models.MaxBlocks; from += 500 {
			var rows []string
			for n := from; n < from+500; n++ {
				rows = append(rows, fmt.Sprintf("('block_%d', '10.0.%d.%d', '4', '4', 'operator', '', '', '', 0, 1, NULL, NULL, '')", n, n/250, n%250))
			}
			require.NoError(t, models.Write(ctx, s, "INSERT INTO blocks VALUES "+strings.Join(rows, ", ")))
		}
		require.ErrorIs(t, s.CreateBlock(ctx, &models.Block{Address: "192.0.2.1", CreatedBy: "ana"}, nil), models.ErrTooManyBlocks)
		require.Empty(t, report(t, s, "node_1", blockRules, refused(s, "192.0.2.1", 100)), "nor by itself; it is counted all the same")
		require.Len(t, strangers(t, s, models.StrangerFilter{}), 1)
		_, err := s.LiftBlock(ctx, "block_7", "ana")
		require.NoError(t, err)
		require.Len(t, report(t, s, "node_1", blockRules, refused(s, "192.0.2.1", 1)), 1)
	})
}

func FuzzHostPrefix(f *testing.F) {
	for _, text := range []string{"203.0.113.50", "203.0.113.50:5060", "[2001:db8::1]:8021", "[2001:db8::1]", "2001:db8::1", "sip.example.com:5060", "203.0.113.0/24", "1.2.3.4;transport=tcp", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		prefix, ok := models.HostPrefix(text)
		require.Equal(t, ok, prefix.IsValid())
		if ok {
			require.Equal(t, prefix.Masked(), prefix)
			require.Empty(t, prefix.Addr().Zone())
			require.False(t, prefix.Addr().Is4In6())
		}
	})
}
