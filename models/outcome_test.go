package models_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestFinishTogether stores one batch with every sort of outcome and looks at each.
func TestFinishTogether(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		good, mixed, failing, idle := modelstest.Application(t, s, customer), modelstest.Application(t, s, customer),
			modelstest.Application(t, s, customer), modelstest.Application(t, s, customer)
		for _, app := range []*models.Application{good, mixed, failing, idle} {
			require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
				for range 3 {
					call := modelstest.Call(t, tx, app)
					for range 2 {
						if err := tx.AppendEvent(ctx, &models.Event{CallID: call.ID, Type: "call.tested"}, body); err != nil {
							return err
						}
					}
				}
				return nil
			}))
		}
		of := map[string][]models.ClaimedStream{}
		for _, c := range claim(t, s) {
			of[c.EndpointID] = append(of[c.EndpointID], c)
		}
		require.Len(t, of[good.ID], 3)
		require.Len(t, of[failing.ID], 3)
		require.NoError(t, models.Write(ctx, s, "UPDATE webhook_endpoints SET consecutive_failures = 3, failing_since = 1 WHERE application_id = ?", failing.ID))

		// The third of the good endpoint and the second of the failing one are another worker's by now.
		stale := outcome(of[good.ID][2], models.ResultDelivered)
		stale.LeaseToken--
		lost := outcome(of[failing.ID][1], models.ResultDelivered)
		lost.LeaseToken++
		created := outcome(of[good.ID][0], models.ResultDelivered)
		created.Attempt.Status, created.Attempt.Response = 201, "thanks\x00"
		retry := func(c models.ClaimedStream) models.Outcome {
			o := outcome(c, models.ResultRetry)
			o.RetryAt, o.Attempt.Status, o.Attempt.Error = clock.Now().Add(time.Hour), 500, "status"
			return o
		}
		waiting := retry(of[failing.ID][2])
		finish(t, s, waiting)
		skipped := outcome(of[idle.ID][0], models.ResultSkipped)
		skipped.Attempt = models.Attempt{}
		clock.Advance(time.Second)
		finish(t, s,
			created, outcome(of[good.ID][1], models.ResultDelivered), outcome(of[good.ID][1], models.ResultDelivered), stale,
			outcome(of[mixed.ID][0], models.ResultDelivered), retry(of[mixed.ID][1]), outcome(of[mixed.ID][2], models.ResultDead),
			outcome(of[failing.ID][0], models.ResultDelivered), lost,
			skipped, outcome(of[idle.ID][1], models.ResultReleased),
		)

		type state struct {
			state            string
			attempts, status int
			at               bool
			recorded         int
		}
		head := func(c models.ClaimedStream) state {
			t.Helper()
			rows, err := s.Deliveries(ctx, c.SubjectID)
			require.NoError(t, err)
			require.Len(t, rows, 2)
			require.Equal(t, models.DeliveryPending, rows[1].State, "no other event is touched")
			attempts, err := s.Attempts(ctx, rows[0].EventID)
			require.NoError(t, err)
			at := rows[0].DeliveredAt != nil
			if at {
				require.Equal(t, clock.Now(), *rows[0].DeliveredAt)
			}
			return state{rows[0].State, rows[0].Attempts, rows[0].LastStatus, at, len(attempts)}
		}
		for name, tc := range map[string]struct {
			claimed models.ClaimedStream
			want    state
		}{
			"created":         {of[good.ID][0], state{models.DeliveryDelivered, 1, 201, true, 1}},
			"twice":           {of[good.ID][1], state{models.DeliveryDelivered, 1, 200, true, 2}},
			"stale":           {of[good.ID][2], state{models.DeliveryPending, 0, 0, false, 1}},
			"mixed delivered": {of[mixed.ID][0], state{models.DeliveryDelivered, 1, 200, true, 1}},
			"mixed retry":     {of[mixed.ID][1], state{models.DeliveryPending, 1, 500, false, 1}},
			"mixed dead":      {of[mixed.ID][2], state{models.DeliveryDead, 1, 200, false, 1}},
			"recovered":       {of[failing.ID][0], state{models.DeliveryDelivered, 1, 200, true, 1}},
			"lost":            {of[failing.ID][1], state{models.DeliveryPending, 0, 0, false, 1}},
			"waiting":         {of[failing.ID][2], state{models.DeliveryPending, 1, 500, false, 1}},
			"skipped":         {of[idle.ID][0], state{models.DeliverySkipped, 0, 0, false, 0}},
			"released":        {of[idle.ID][1], state{models.DeliveryPending, 0, 0, false, 0}},
			"under way":       {of[idle.ID][2], state{models.DeliveryPending, 0, 0, false, 0}},
		} {
			require.Equal(t, tc.want, head(tc.claimed), name)
		}
		kept, err := s.Attempts(ctx, of[good.ID][0].Event.ID)
		require.NoError(t, err)
		require.Equal(t, "thanks", kept[0].Response)
		require.Equal(t, clock.Now(), kept[0].StartedAt)

		health, err := s.EndpointState(ctx, failing.ID)
		require.NoError(t, err)
		now := clock.Now()
		require.Equal(t, models.Endpoint{ApplicationID: failing.ID, PulledAt: &now}, *health)
		health, err = s.EndpointState(ctx, mixed.ID)
		require.NoError(t, err)
		require.Positive(t, health.ConsecutiveFailures)

		// Due are the second events of what moved on, what was given back, and what waited for the failing endpoint.
		due := map[string]int64{}
		for _, c := range claim(t, s) {
			due[c.SubjectID] = c.Event.Sequence
		}
		require.Equal(t, map[string]int64{
			of[good.ID][0].SubjectID: 2, of[good.ID][1].SubjectID: 2, of[mixed.ID][0].SubjectID: 2, of[mixed.ID][2].SubjectID: 2,
			of[failing.ID][0].SubjectID: 2, of[failing.ID][2].SubjectID: 1, of[idle.ID][0].SubjectID: 2, of[idle.ID][1].SubjectID: 1,
		}, due)
	})
}
