package models_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestRegistrations(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		trunk, still := modelstest.OutboundTrunk(t, s, customer), modelstest.OutboundTrunk(t, s, customer)
		trunk.Register = true
		require.NoError(t, s.UpdateTrunk(ctx, trunk))
		one, two := modelstest.Node(t, s), modelstest.Node(t, s)
		var told []string
		tell := func(_ context.Context, _ *models.Store, change models.RegistrationChange) error {
			told = append(told, fmt.Sprintf("%s %v %s", change.Trunk.Name, change.Registered, change.Status.State))
			return nil
		}
		report := func(node *models.Node, of *models.Trunk, state string, registered *bool) []models.GatewayReport {
			clock.Advance(time.Second)
			return []models.GatewayReport{{
				GatewayStatus: models.GatewayStatus{NodeID: node.ID, TrunkID: of.ID, State: state, Status: "UP", UpdatedAt: s.Now()}, Registered: registered,
			}}
		}
		yes, no := true, false
		expect := func(reports []models.GatewayReport, want ...string) {
			t.Helper()
			told = nil
			require.NoError(t, s.RecordGateways(ctx, reports, tell))
			require.Equal(t, want, told)
		}
		expect(report(one, trunk, "FAIL_WAIT", &no)) // it never was
		expect(report(one, trunk, "TRYING", nil))
		registered := report(one, trunk, "REGED", &yes)
		expect(registered, trunk.Name+" true REGED")
		expect(registered)
		expect(report(one, trunk, "REGED", &yes))
		expect(report(one, trunk, "UNREGED", nil))
		expect(report(two, trunk, "REGED", &yes), trunk.Name+" true REGED") // each node's own
		stale := report(one, trunk, "REGED", &yes)
		expect(report(one, trunk, "FAILED", &no)) // it may be back in a moment
		expect(report(one, trunk, "FAIL_WAIT", &no))
		expect(stale) // said before it failed, written after
		tellDue := func(want ...string) {
			t.Helper()
			told = nil
			require.NoError(t, s.TellRegistrations(ctx, []string{one.ID, two.ID}, s.Now(), tell))
			require.Equal(t, want, told)
		}
		tellDue()
		clock.Advance(models.RegistrationEnds)
		tellDue(trunk.Name + " false FAILED")
		tellDue()
		statuses, err := s.GatewayStatuses(ctx, []string{trunk.ID})
		require.NoError(t, err)
		require.Equal(t, two.ID, statuses[trunk.ID].NodeID)
		expect(report(one, still, "REGED", &yes)) // it does not register
		expect(report(one, &models.Trunk{ID: "trunk_none"}, "REGED", &yes))
		expect(nil)

		// What cannot be told has not happened.
		again := report(one, trunk, "REGED", &yes)
		require.ErrorIs(t, s.RecordGateways(ctx, again, func(context.Context, *models.Store, models.RegistrationChange) error { return errRefused }), errRefused)
		expect(again, trunk.Name+" true REGED")

		// Statuses are forgotten with the node's connection, what was told is not.
		require.NoError(t, s.DropGatewayStatuses(ctx, one.ID, s.Now()))
		expect(report(one, trunk, "REGED", &yes))

		// A trunk that registers no more has none, and one that is not active either.
		trunk.Register = false
		require.NoError(t, s.UpdateTrunk(ctx, trunk))
		expect(report(one, trunk, "NOREG", &no), trunk.Name+" false NOREG")
		require.NoError(t, s.EndRegistrations(ctx, two.ID, s.Now(), tell))
		trunk.IsActive = false
		require.NoError(t, s.UpdateTrunk(ctx, trunk))
		for _, want := range [][]string{{trunk.Name + " false DOWN"}, nil} {
			told = nil
			clock.Advance(time.Second)
			require.NoError(t, s.EndRegistrations(ctx, two.ID, s.Now(), tell))
			require.Equal(t, want, told)
		}
		require.NoError(t, s.EndRegistrations(ctx, one.ID, s.Now(), tell))
		statuses, err = s.GatewayStatuses(ctx, []string{trunk.ID})
		require.NoError(t, err)
		require.Empty(t, statuses)
		expect(report(two, trunk, "FAILED", &no))
		require.NoError(t, s.DeleteTrunk(ctx, customer.ID, trunk.ID))
		expect(report(two, trunk, "REGED", &yes))
	})
}

// TestRegistrationIsToldOnce has several processes report the same changes at once.
func TestRegistrationIsToldOnce(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		app, node := modelstest.Application(t, s, customer), modelstest.Node(t, s)
		trunks := make([]*models.Trunk, 8)
		for i := range trunks {
			trunks[i] = modelstest.OutboundTrunk(t, s, customer)
			trunks[i].Register = true
			require.NoError(t, s.UpdateTrunk(ctx, trunks[i]))
		}
		tell := func(ctx context.Context, tx *models.Store, change models.RegistrationChange) error {
			return tx.AppendSubjectEvent(ctx, &models.Event{
				CustomerID: customer.ID, ApplicationID: app.ID, SubjectID: change.Trunk.ID, Type: fmt.Sprintf("trunk.%v", change.Registered),
			}, false, body)
		}
		at := s.Now()
		for round := range 4 {
			at := at.Add(time.Duration(round) * 2 * models.FlapWindow)
			var group errgroup.Group
			for process := range 6 {
				group.Go(func() error {
					reports := make([]models.GatewayReport, len(trunks))
					for i := range trunks {
						registered := round%2 == 0
						reports[(i+process)%len(trunks)] = models.GatewayReport{
							GatewayStatus: models.GatewayStatus{NodeID: node.ID, TrunkID: trunks[i].ID, State: "X", UpdatedAt: at},
							Registered:    &registered,
						}
					}
					store := []*models.Store{s, other}[process%2]
					if err := store.RecordGateways(ctx, reports, tell); err != nil {
						return err
					}
					return store.TellRegistrations(ctx, []string{node.ID}, at.Add(models.RegistrationEnds), tell)
				})
			}
			require.NoError(t, group.Wait())
		}
		for _, trunk := range trunks {
			deliveries, err := s.Deliveries(ctx, trunk.ID)
			require.NoError(t, err)
			require.Len(t, deliveries, 4)
		}
	})
}

// TestTrunkHealth: a registration that fails for a moment is told to nobody, one that comes and goes is told again when it has lasted, and all of it
// is remembered.
func TestTrunkHealth(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer, node := modelstest.Customer(t, s, 0), modelstest.Node(t, s)
		trunk := modelstest.OutboundTrunk(t, s, customer)
		trunk.Register = true
		require.NoError(t, s.UpdateTrunk(ctx, trunk))
		var told []string
		tell := func(_ context.Context, _ *models.Store, change models.RegistrationChange) error {
			told = append(told, fmt.Sprintf("%v %s", change.Registered, change.Status.State))
			return nil
		}
		yes, no := true, false
		after := func(pass time.Duration, state, ping string, registered *bool) {
			t.Helper()
			clock.Advance(pass)
			require.NoError(t, s.RecordGateways(ctx, []models.GatewayReport{{
				GatewayStatus: models.GatewayStatus{NodeID: node.ID, TrunkID: trunk.ID, State: state, Status: ping, UpdatedAt: s.Now()}, Registered: registered,
			}}, tell))
			require.NoError(t, s.TellRegistrations(ctx, []string{node.ID}, s.Now(), tell))
		}
		expect := func(want ...string) {
			t.Helper()
			require.Equal(t, want, told)
			told = nil
		}
		after(0, "REGED", "UP", &yes)
		expect("true REGED")
		// Twice it is away for half a minute.
		for range 2 {
			after(time.Second, "FAILED", "UP", &no)
			after(30*time.Second, "TRYING", "UP", nil)
			after(time.Second, "REGED", "UP", &yes)
		}
		after(models.RegistrationEnds, "REGED", "UP", &yes)
		expect()
		// Then for long. It is back for a moment, for a while, and for good.
		after(time.Second, "FAILED", "UP", &no)
		after(models.RegistrationEnds-time.Second, "FAIL_WAIT", "DOWN", &no)
		expect()
		after(time.Second, "FAIL_WAIT", "DOWN", &no)
		expect("false FAIL_WAIT")
		after(time.Second, "REGED", "UP", &yes)
		after(models.FlapStable-time.Second, "REGED", "UP", &yes)
		expect()
		after(0, "FAILED", "UP", &no)
		after(time.Second, "REGED", "UP", &yes)
		after(models.FlapStable-time.Second, "REGED", "UP", &yes)
		expect()
		after(time.Second, "REGED", "UP", &yes)
		expect("true REGED")
		after(models.FlapWindow, "REGED", "UP", &yes)
		// One that is quiet is told at once again.
		after(time.Second, "FAILED", "UP", &no)
		after(models.RegistrationEnds, "FAIL_WAIT", "UP", &no)
		expect("false FAIL_WAIT")
		after(time.Second, "REGED", "UP", &yes)
		expect("true REGED")

		flaps, err := s.TrunkFlaps(ctx, []string{trunk.ID, "trunk_none"}, s.Now().Add(-time.Hour))
		require.NoError(t, err)
		require.Equal(t, map[string]int{trunk.ID: 6}, flaps, "five registrations and a ping")
		healths, err := s.TrunkHealths(ctx, trunk.ID)
		require.NoError(t, err)
		require.Len(t, healths, 1)
		require.Equal(t, []any{node.ID, "REGED", true, "UP"}, []any{healths[0].NodeID, healths[0].State, *healths[0].Registered, healths[0].Ping})
		require.Nil(t, healths[0].DueAt)
		require.Equal(t, s.Now(), *healths[0].RegisteredAt)
		changes, next, err := s.TrunkChanges(ctx, trunk.ID, models.Page{Limit: 3})
		require.NoError(t, err)
		require.NotEmpty(t, next)
		var said []string
		for _, change := range changes {
			said = append(said, fmt.Sprintf("%s %v %v %s", change.Kind, change.Up, change.Flap, change.State))
		}
		require.Equal(t, []string{"registration true false REGED", "registration false true FAILED", "registration true false REGED"}, said)

		// A node that is away takes nothing with it, a trunk that is deleted everything.
		require.NoError(t, s.DropGatewayStatuses(ctx, node.ID, s.Now()))
		after(time.Second, "REGED", "UP", &yes)
		expect()
		pruned, err := s.Prune(ctx, models.Retention{}, func(time.Duration) error { return nil })
		require.NoError(t, err)
		require.Zero(t, pruned.TrunkChanges)
		clock.Advance(models.TrunkChangesKept)
		pruned, err = s.Prune(ctx, models.Retention{}, func(time.Duration) error { return nil })
		require.NoError(t, err)
		require.EqualValues(t, 14, pruned.TrunkChanges)
		require.NoError(t, s.DeleteTrunk(ctx, customer.ID, trunk.ID))
		healths, err = s.TrunkHealths(ctx, trunk.ID)
		require.NoError(t, err)
		require.Empty(t, healths)
	})
}
