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
		expect(report(one, trunk, "FAILED", &no), trunk.Name+" false FAILED")
		expect(report(one, trunk, "FAIL_WAIT", &no))
		expect(stale) // said before it failed, written after
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
			var group errgroup.Group
			for process := range 6 {
				group.Go(func() error {
					reports := make([]models.GatewayReport, len(trunks))
					for i := range trunks {
						registered := round%2 == 0
						reports[(i+process)%len(trunks)] = models.GatewayReport{
							GatewayStatus: models.GatewayStatus{NodeID: node.ID, TrunkID: trunks[i].ID, State: "X", UpdatedAt: at.Add(time.Duration(round) * time.Second)},
							Registered:    &registered,
						}
					}
					return []*models.Store{s, other}[process%2].RecordGateways(ctx, reports, tell)
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
