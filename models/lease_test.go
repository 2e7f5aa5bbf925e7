package models_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func leasesOf(claimed []models.ClaimedStream) []models.Lease {
	leases := make([]models.Lease, len(claimed))
	for i := range claimed {
		leases[i] = claimed[i].Lease()
	}
	return leases
}

func TestExtendLeases(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		extend := func(leases ...models.Lease) (extended, lost []models.Lease) {
			t.Helper()
			extended, lost, err := s.ExtendLeases(t.Context(), leases, lease)
			require.NoError(t, err)
			return extended, lost
		}
		extended, lost := extend()
		require.Empty(t, extended)
		require.Empty(t, lost)

		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		for range 3 {
			callWithEvents(t, s, app, 1)
		}
		claimed := claim(t, s)
		require.Len(t, claimed, 3)
		mine := leasesOf(claimed)

		// Each turn comes before the lease is over; together they outlast it.
		for range 4 {
			clock.Advance(lease / 2)
			extended, lost = extend(mine...)
			require.ElementsMatch(t, mine, extended)
			require.Empty(t, lost)
			require.Empty(t, claim(t, s))
		}
		due, ok, err := s.NextDue(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, clock.Now().Add(lease), due)

		// One that was given back is lost, whoever has it now or nobody.
		finish(t, s, outcome(claimed[0], models.ResultReleased))
		extended, lost = extend(mine...)
		require.ElementsMatch(t, mine[1:], extended)
		require.Equal(t, mine[:1], lost)
		again := claim(t, s)
		require.Len(t, again, 1)
		extended, lost = extend(mine[0])
		require.Empty(t, extended)
		require.Equal(t, mine[:1], lost)
		finish(t, s, outcome(again[0], models.ResultDelivered))

		// One that ran out is extended as long as nobody has taken it.
		clock.Advance(2 * lease)
		extended, lost = extend(mine[1])
		require.Equal(t, mine[1:2], extended)
		require.Empty(t, lost)
		taken := claim(t, s)
		require.Len(t, taken, 1)
		require.Equal(t, claimed[2].SubjectID, taken[0].SubjectID)
		extended, lost = extend(mine[1:]...)
		require.Equal(t, mine[1:2], extended)
		require.Equal(t, mine[2:], lost)

		// What was extended still counts, once.
		finish(t, s, outcome(claimed[1], models.ResultDelivered), outcome(claimed[2], models.ResultDelivered))
		for i, want := range []string{models.DeliveryDelivered, models.DeliveryPending} {
			deliveries, err := s.Deliveries(t.Context(), claimed[i+1].SubjectID)
			require.NoError(t, err)
			require.Equal(t, want, deliveries[0].State)
		}
	})
}

// TestExtendLeasesPassesOverALockedRow has another transaction hold one stream, as an event that is being appended does: the
// others are extended at once, and it is not taken for lost. PostgreSQL only: SQLite has no row locks.
func TestExtendLeasesPassesOverALockedRow(t *testing.T) {
	t.Parallel()
	s := modelstest.OpenPostgres(t)
	app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
	callWithEvents(t, s, app, 1)
	callWithEvents(t, s, app, 1)
	claimed := claim(t, s)
	mine := leasesOf(claimed)
	require.Len(t, mine, 2)
	require.NoError(t, s.InTx(t.Context(), func(tx *models.Store) error {
		if err := tx.AppendEvent(t.Context(), &models.Event{CallID: mine[0].SubjectID, Type: "call.tested"}, body); err != nil {
			return err
		}
		extended, lost, err := s.ExtendLeases(t.Context(), mine, time.Minute)
		require.Equal(t, mine[1:], extended)
		require.Empty(t, lost)
		return err
	}))
	extended, lost, err := s.ExtendLeases(t.Context(), mine, time.Minute)
	require.NoError(t, err)
	require.ElementsMatch(t, mine, extended)
	require.Empty(t, lost)
}
