package models_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

var blockRules = models.BlockRules{After: 10, Window: time.Minute, For: time.Hour, Longest: 3 * time.Hour}

// refused is a report of uninvited calls that have just been.
func refused(s *models.Store, source string, uninvited int64) models.StrangerReport {
	now := s.Now()
	return models.StrangerReport{Source: source, Uninvited: uninvited, FirstAt: now.Add(-time.Second), LastAt: now, Number: "+4930****", UserAgent: "friendly-scanner"}
}

func report(t *testing.T, s *models.Store, node string, rules models.BlockRules, reports ...models.StrangerReport) []models.Block {
	t.Helper()
	blocks, left, err := s.RecordStrangers(t.Context(), node, reports, rules)
	require.NoError(t, err)
	require.Empty(t, left)
	return blocks
}

func strangers(t *testing.T, s *models.Store, filter models.StrangerFilter) []models.StrangerSum {
	t.Helper()
	rows, next, err := s.ListStrangers(t.Context(), filter, models.Page{Limit: 1000})
	require.NoError(t, err)
	require.Empty(t, next)
	return rows
}

func TestStrangerSource(t *testing.T) {
	t.Parallel()
	for address, source := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8:1:2:3::4": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
	} {
		require.Equal(t, source, models.StrangerSource(netip.MustParseAddr(address)))
	}
}

// Several controllers report the same sources of the same and of other nodes at the same time: nothing is lost or counted twice.
func TestStrangersAreSummedExactly(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		const rounds, sources = 10, 230
		var all sync.WaitGroup
		for i, store := range []*models.Store{s, other, s, other} {
			all.Go(func() {
				for range rounds {
					var reports []models.StrangerReport
					for n := range sources {
						reports = append(reports, refused(store, fmt.Sprintf("198.51.100.%d", n), 3))
					}
					known := refused(store, "203.0.113.9", 0)
					known.UnknownNumber, known.KnownAs = 2, "trunk_1"
					_, _, err := store.RecordStrangers(t.Context(), fmt.Sprintf("node_%d", i%3), append(reports, known), models.BlockRules{})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		rows := strangers(t, s, models.StrangerFilter{})
		require.Len(t, rows, sources+1)
		for _, row := range rows {
			require.Len(t, row.Nodes, 3)
			if row.Source == "203.0.113.9" {
				require.Equal(t, []any{int64(0), int64(4 * rounds * 2), "trunk_1"}, []any{row.Uninvited, row.UnknownNumber, row.KnownAs})
				continue
			}
			require.Equal(t, []any{int64(4 * rounds * 3), int64(0), "", "friendly-scanner", "+4930****"},
				[]any{row.Uninvited, row.UnknownNumber, row.KnownAs, row.UserAgent, row.Number}, row.Source)
			require.True(t, row.FirstSeenAt.Before(row.LastSeenAt))
		}
	})
}

func TestListStrangers(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		var want []string
		for n := range 7 {
			source := fmt.Sprintf("198.51.100.%d", n)
			report(t, s, "node_1", models.BlockRules{}, refused(s, source, int64(n%3+1)))
			want = append([]string{source}, want...)
			clock.Advance(time.Minute)
		}
		known := refused(s, "203.0.113.9", 0)
		known.UnknownNumber, known.KnownAs = 1, "provider"
		report(t, s, "node_2", models.BlockRules{}, known)
		want = append([]string{"203.0.113.9"}, want...)
		pages := func(filter models.StrangerFilter, limit int) (sources []string, counts []int64) {
			for cursor := ""; ; {
				rows, next, err := s.ListStrangers(t.Context(), filter, models.Page{Limit: limit, Cursor: cursor})
				require.NoError(t, err)
				for _, row := range rows {
					sources, counts = append(sources, row.Source), append(counts, row.Uninvited+row.UnknownNumber)
				}
				if cursor = next; next == "" {
					return sources, counts
				}
			}
		}
		sources, _ := pages(models.StrangerFilter{}, 3)
		require.Equal(t, want, sources, "latest first")
		sources, counts := pages(models.StrangerFilter{Order: models.StrangersByCount}, 3)
		require.ElementsMatch(t, want, sources)
		require.Equal(t, []int64{3, 3, 2, 2, 1, 1, 1, 1}, counts)
		yes, no := true, false
		sources, _ = pages(models.StrangerFilter{Known: &yes}, 3)
		require.Equal(t, []string{"203.0.113.9"}, sources)
		sources, _ = pages(models.StrangerFilter{Known: &no}, 3)
		require.Equal(t, want[1:], sources)
		sources, _ = pages(models.StrangerFilter{NodeID: "node_2"}, 3)
		require.Equal(t, []string{"203.0.113.9"}, sources)
		sources, _ = pages(models.StrangerFilter{Source: netip.MustParseAddr("198.51.100.3")}, 3)
		require.Equal(t, []string{"198.51.100.3"}, sources)
		after := s.Now().Add(-2 * time.Minute)
		sources, _ = pages(models.StrangerFilter{SeenAfter: &after}, 3)
		require.Equal(t, want[:3], sources)
		_, _, err := s.ListStrangers(t.Context(), models.StrangerFilter{}, models.Page{Cursor: "x"})
		require.ErrorIs(t, err, models.ErrBadCursor)
	})
}

// A scanner with forged addresses fills no disk: those that were seen last stay.
func TestStrangersAreBounded(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		models.KeepStrangers(s, 250)
		for n := range 4 {
			var reports []models.StrangerReport
			for i := range 100 {
				reports = append(reports, refused(s, fmt.Sprintf("198.51.%d.%d", n, i), 1))
			}
			report(t, s, "node_1", models.BlockRules{}, reports...)
			clock.Advance(time.Second)
		}
		rows := strangers(t, s, models.StrangerFilter{})
		require.Len(t, rows, 250)
		for i, row := range rows {
			require.Contains(t, row.Source, fmt.Sprintf("198.51.%d.", 3-i/100))
		}
	})
}

func TestAutomaticBlocks(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		const scanner = "198.51.100.7"
		require.Empty(t, report(t, s, "node_1", blockRules, refused(s, scanner, 9)))
		known := refused(s, scanner, 0)
		known.UnknownNumber = 50
		require.Empty(t, report(t, s, "node_1", blockRules, known), "numbers that are dialled wrong block nobody")
		clock.Advance(time.Minute)
		require.Empty(t, report(t, s, "node_1", blockRules, refused(s, scanner, 9)), "another window")
		require.Empty(t, report(t, s, "node_2", models.BlockRules{Window: time.Minute}, refused(s, scanner, 500), refused(s, "198.51.100.8", 500)), "turned off")
		clock.Advance(time.Minute)
		require.Empty(t, report(t, s, "node_1", blockRules, refused(s, scanner, 5)))
		made := report(t, s, "node_2", blockRules, refused(s, scanner, 5), refused(s, "2001:db8::/64", 10))
		require.Len(t, made, 2, "nodes count together")
		require.Equal(t, []any{scanner, models.BlockAutomatic, "10 uninvited calls within 1m0s", int64(0), s.Now().Add(time.Hour)},
			[]any{made[0].Address, made[0].Origin, made[0].Reason, made[0].Relapse, *made[0].ExpiresAt})
		require.Equal(t, "2001:db8::/64", made[1].Address)
		require.Empty(t, report(t, s, "node_1", blockRules, refused(s, scanner, 50)), "it is blocked")
		row := strangers(t, s, models.StrangerFilter{Source: netip.MustParseAddr(scanner)})[0]
		require.Equal(t, made[0].ID, row.Block.ID)

		// Each relapse lasts twice as long, up to the longest; what an operator lifts counts for nothing.
		for relapse, lasts := range []time.Duration{time.Hour, 2 * time.Hour, 3 * time.Hour, 3 * time.Hour}[1:] {
			clock.Advance(3 * time.Hour)
			made = report(t, s, "node_1", blockRules, refused(s, scanner, 10))
			require.Len(t, made, 1)
			require.Equal(t, int64(relapse+1), made[0].Relapse)
			require.Equal(t, s.Now().Add(lasts), *made[0].ExpiresAt)
		}
		lifted, err := s.LiftBlock(t.Context(), made[0].ID, "ana")
		require.NoError(t, err)
		require.Equal(t, []any{"ana", s.Now()}, []any{lifted.EndedBy, *lifted.EndedAt})
		_, err = s.LiftBlock(t.Context(), made[0].ID, "ana")
		require.ErrorIs(t, err, models.ErrNotFound)
		require.Empty(t, report(t, s, "node_1", blockRules, refused(s, scanner, 50)), "these were before it was lifted")
		clock.Advance(2 * time.Second)
		require.Empty(t, report(t, s, "node_1", blockRules, refused(s, scanner, 9)), "it begins anew")
		made = report(t, s, "node_1", blockRules, refused(s, scanner, 1))
		require.Equal(t, int64(3), made[0].Relapse)
		clock.Advance(models.RelapseMemory + time.Hour)
		made = report(t, s, "node_1", blockRules, refused(s, scanner, 10))
		require.Equal(t, int64(0), made[0].Relapse, "long ago")

		// Strangers and blocks that are over go with their time.
		clock.Advance(models.RelapseMemory + 2*time.Hour)
		gone, err := s.Prune(t.Context(), models.Retention{Strangers: 24 * time.Hour}, func(time.Duration) error { return nil })
		require.NoError(t, err)
		require.Equal(t, []int64{4, 7}, []int64{gone.Strangers, gone.Blocks})
		require.Empty(t, strangers(t, s, models.StrangerFilter{}))
		over, _, err := s.ListBlocks(t.Context(), models.BlockFilter{All: true}, models.Page{})
		require.NoError(t, err)
		require.Empty(t, over)
	})
}

// Whoever is known is never blocked by itself: the source of a call can be forged.
func TestKnownAddressesAreNotBlocked(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		app := modelstest.Application(t, s, customer)
		in := modelstest.InboundTrunk(t, s, customer, app)
		out := modelstest.OutboundTrunk(t, s, customer)
		out.Proxy = "203.0.113.50:5060"
		require.NoError(t, s.UpdateTrunk(ctx, out))
		require.NoError(t, s.CreateNode(ctx, &models.Node{Name: "one", ESLAddr: "[2001:db8:7::1]:8021"}))
		require.NoError(t, s.CreateNode(ctx, &models.Node{Name: "two", ESLAddr: "fs.example.com:8021"}))
		exception := &models.BlockException{Address: "203.0.113.96/28", Note: "the lab", CreatedBy: "ana"}
		_, err := s.CreateBlockException(ctx, exception)
		require.NoError(t, err)
		rules := blockRules
		rules.Providers = []netip.Prefix{netip.MustParsePrefix("203.0.113.16/28")}
		inbound := in.InboundIPs[0]
		for _, c := range []struct{ address, kind, name string }{
			{inbound, models.ProtectedTrunk, in.ID},
			{"203.0.113.50", models.ProtectedTrunk, out.ID},
			{"203.0.113.17", models.ProtectedProvider, "203.0.113.16/28"},
			{"2001:db8:7::/64", models.ProtectedNode, "one"},
			{"203.0.113.97", models.ProtectedException, exception.ID},
		} {
			require.Empty(t, report(t, s, "node_1", rules, refused(s, c.address, 100)), c.address)
			err := s.CreateBlock(ctx, &models.Block{Address: c.address, Reason: "by mistake"}, rules.Providers)
			var protected *models.ProtectedError
			require.ErrorAs(t, err, &protected, c.address)
			require.Equal(t, []string{c.kind, c.name}, []string{protected.Kind, protected.Name})
			require.Contains(t, err.Error(), protected.Address)
		}
		require.Error(t, s.CreateBlock(ctx, &models.Block{Address: "203.0.113.0/24"}, rules.Providers), "a network around them neither")
		require.Len(t, report(t, s, "node_1", rules, refused(s, "203.0.113.200", 100)), 1)
	})
}

// Two controllers that report the same scanner at once make one block of it, however their transactions meet with each other and with an operator's.
func TestOneBlockOfAScanner(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		var all sync.WaitGroup
		for i, store := range []*models.Store{s, other} {
			all.Go(func() {
				for range 15 {
					if _, _, err := store.RecordStrangers(t.Context(), fmt.Sprintf("node_%d", i), []models.StrangerReport{
						refused(store, "198.51.100.7", 10), refused(store, "198.51.100.8", 10),
					}, blockRules); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Go(func() {
			for range 10 {
				live, _, err := s.ListBlocks(t.Context(), models.BlockFilter{}, models.Page{})
				if err != nil {
					t.Error(err)
				}
				for i := range live {
					if _, err := other.LiftBlock(t.Context(), live[i].ID, "ana"); err != nil {
						t.Error(err)
					}
				}
			}
		})
		all.Wait()
		report(t, s, "node_2", blockRules, refused(s, "198.51.100.7", 10), refused(s, "198.51.100.8", 10))
		live, _, err := s.ListBlocks(t.Context(), models.BlockFilter{}, models.Page{})
		require.NoError(t, err)
		require.LessOrEqual(t, len(live), 2)
		for _, sum := range strangers(t, s, models.StrangerFilter{}) {
			require.Equal(t, int64(310), sum.Uninvited)
		}
	})
}
