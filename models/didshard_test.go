package models_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"

	"tandem/models"
	"tandem/models/modelstest"
)

// shardsOf reads numbers shard by shard.
func shardsOf(t *testing.T, s *models.Store, shards ...string) map[string][]models.DID {
	t.Helper()
	found := map[string][]models.DID{}
	require.NoError(t, s.DIDsOfShards(t.Context(), shards, func(shard string, dids []models.DID) error {
		require.NotContains(t, found, shard)
		found[shard] = dids
		return nil
	}))
	return found
}

func TestDIDShards(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		app := modelstest.Application(t, s, customer)
		add := func(number string) *models.DID {
			t.Helper()
			clock.Advance(time.Second)
			did := &models.DID{CustomerID: customer.ID, NumberE164: number, Provider: "p", ApplicationID: &app.ID, RejectCode: 486}
			require.NoError(t, s.CreateDID(ctx, did))
			return did
		}
		first, second, third := add("+15550002567"), add("+15550001567"), add("+15550001000")
		revisions, err := s.DIDShards(ctx)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"567": 2, "000": 1}, revisions)
		require.Equal(t, map[string][]models.DID{"567": {*second, *first}, "000": {*third}, "111": nil}, shardsOf(t, s, "567", "111", "000"))

		sums, err := s.DIDSums(ctx)
		require.NoError(t, err)
		want := map[string]models.DIDSum{}
		for shard, dids := range shardsOf(t, s, "567", "000") {
			var sum models.DIDSum
			for _, did := range dids {
				sum.Add(did.UpdatedAt)
			}
			want[shard] = sum
		}
		require.Equal(t, want, sums)

		// A transaction that is undone changes no revision, one that changes several numbers counts once for each shard.
		require.ErrorIs(t, s.InTx(ctx, func(tx *models.Store) error {
			require.NoError(t, tx.DeleteDID(ctx, customer.ID, third.ID))
			return errRefused
		}), errRefused)
		require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
			first.Status, second.Status = models.DIDSuspended, models.DIDSuspended
			if err := tx.UpdateDID(ctx, first); err != nil {
				return err
			}
			return tx.UpdateDID(ctx, second)
		}))
		require.NoError(t, s.DeleteDID(ctx, customer.ID, first.ID))
		require.ErrorIs(t, s.DeleteDID(ctx, customer.ID, first.ID), models.ErrNotFound)
		revisions, err = s.DIDShards(ctx)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"567": 4, "000": 1}, revisions)
		require.Equal(t, map[string][]models.DID{"567": {*second}}, shardsOf(t, s, "567"))
		changed, err := s.DIDSums(ctx)
		require.NoError(t, err)
		require.NotEqual(t, sums["567"], changed["567"])
		require.Equal(t, sums["000"], changed["000"])

		refused := s.DIDsOfShards(ctx, []string{"567"}, func(string, []models.DID) error { return errRefused })
		require.ErrorIs(t, refused, errRefused)
	})
}

// TestDIDShardsOfManyWriters: transactions that change numbers of the same shards, each in an order of its own, do not stand in each other's way,
// and none is missed.
func TestDIDShardsOfManyWriters(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		customer := modelstest.Customer(t, s, 0)
		const writers, numbers = 8, 10
		group, ctx := errgroup.WithContext(t.Context())
		for w := range writers {
			store := []*models.Store{s, other}[w%2]
			group.Go(func() error {
				return store.InTx(ctx, func(tx *models.Store) error {
					for n := range numbers {
						shard := n
						if w%3 == 0 {
							shard = numbers - 1 - n
						}
						did := &models.DID{CustomerID: customer.ID, NumberE164: fmt.Sprintf("+1555%04d%03d", w, shard)}
						if err := tx.CreateDID(ctx, did); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
		require.NoError(t, group.Wait())
		revisions, err := s.DIDShards(t.Context())
		require.NoError(t, err)
		require.Len(t, revisions, numbers)
		for shard, revision := range revisions {
			require.EqualValues(t, writers, revision, shard)
		}
	})
}

// TestMigrateDIDShards: numbers that were there before have shards.
func TestMigrateDIDShards(t *testing.T) {
	t.Parallel()
	first(t, func(t *testing.T, s *models.Store) {
		for range 2 {
			require.NoError(t, s.Migrate(t.Context()))
			revisions, err := s.DIDShards(t.Context())
			require.NoError(t, err)
			require.Equal(t, map[string]int64{"001": 1}, revisions)
			found := shardsOf(t, s, "001")["001"]
			require.Len(t, found, 1)
			require.Equal(t, "did_1", found[0].ID)
			require.NoError(t, models.MigrateTo(t.Context(), s, 14))
		}
	})
}

// TestDIDsOfAShardAreFoundByIndex: reading one shard of many numbers does not pass over the others.
func TestDIDsOfAShardAreFoundByIndex(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		query := "SELECT id FROM dids WHERE deleted_at IS NULL AND substr(number_e164, length(number_e164) - 2) IN ('567') ORDER BY substr(number_e164, length(number_e164) - 2), number_e164"
		if s.Dialect() == models.DialectSQLite {
			var plan []map[string]any
			require.NoError(t, models.Reader(s).Raw("EXPLAIN QUERY PLAN "+query).Scan(&plan).Error)
			require.Contains(t, fmt.Sprint(plan), "USING INDEX dids_shard")
			return
		}
		require.NoError(t, models.Reader(s).Transaction(func(db *gorm.DB) error {
			if err := db.Exec("SET LOCAL enable_seqscan = off").Error; err != nil {
				return err
			}
			var plan []string
			if err := db.Raw("EXPLAIN " + query).Scan(&plan).Error; err != nil {
				return err
			}
			require.Contains(t, fmt.Sprint(plan), "dids_shard")
			return nil
		}))
	})
}
