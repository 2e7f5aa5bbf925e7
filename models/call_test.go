package models_test

import (
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestCallRoundTrip(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 1_000)
		app := modelstest.Application(t, s, customer)
		trunk, did := modelstest.OutboundTrunk(t, s, customer), modelstest.DID(t, s, customer, app)
		node := &models.Node{Name: "node", Password: "secret"}
		require.NoError(t, s.CreateNode(ctx, node))
		at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_999, time.FixedZone("", 3600))
		call := &models.Call{
			CustomerID: customer.ID, ApplicationID: app.ID, TrunkID: &trunk.ID, DIDID: &did.ID, NodeID: &node.ID,
			Direction: models.Outbound, Status: models.CallDialing, From: "+15550000001", To: "+15550000002", Record: true,
			Metadata: map[string]string{"order": "1 \" ' ü ${x}"}, Variables: map[string]string{"name": "Ada"}, ChannelID: "channel-1",
			Reason: "completed", HangupSource: "caller", Cause: "NORMAL_CLEARING", Q850: 16, SIPCode: 200,
			PricePerMinuteMicros: 1 << 40, HoldMicros: 0, GrantedSeconds: 60, TimeoutSeconds: 30, BilledSeconds: 12, CostMicros: 0,
			Cursor:    models.Cursor{List: json.RawMessage(`[{"action":"say"}]`), Index: 3, EventUUID: "tandem-1", Begun: true, Request: 2},
			RingingAt: &at, AnsweredAt: &at, EndedAt: &at,
		}
		require.NoError(t, s.CreateCall(ctx, call))
		require.Equal(t, time.Date(2026, 1, 2, 2, 4, 5, 678_901_000, time.UTC), *call.RingingAt)
		for name, find := range map[string]func() (*models.Call, error){
			"Call":          func() (*models.Call, error) { return s.Call(ctx, customer.ID, call.ID) },
			"CallByID":      func() (*models.Call, error) { return s.CallByID(ctx, call.ID) },
			"CallByChannel": func() (*models.Call, error) { return s.CallByChannel(ctx, "channel-1") },
		} {
			found, err := find()
			require.NoError(t, err, name)
			require.Equal(t, call, found, name)
		}
		again := &models.Call{CustomerID: customer.ID, ApplicationID: app.ID, Direction: models.Inbound, Status: models.CallRinging, ChannelID: "channel-1"}
		require.ErrorIs(t, s.CreateCall(ctx, again), models.ErrChannelExists)
		for range 2 {
			bare := modelstest.Call(t, s, app)
			found, err := s.CallByID(ctx, bare.ID)
			require.NoError(t, err)
			require.Empty(t, found.Metadata)
			require.Nil(t, found.EndedAt)
		}
		_, err := s.CallByChannel(ctx, "")
		require.ErrorIs(t, err, models.ErrNotFound, "no channel is not a channel")
	})
}

// TestTransition has 16 controllers end one call at once: one does it, the others are stale, and a late copy changes nothing.
func TestTransition(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		call := modelstest.Call(t, s, app)
		appendEvent(t, s, call, "call.created")
		var won, stale atomic.Int64
		var group errgroup.Group
		for i := range 16 {
			group.Go(func() error {
				mine := *call
				mine.Status, mine.Q850 = models.CallBusy, i
				err := []*models.Store{s, other}[i%2].TransitionCall(ctx, &mine, []string{models.CallDialing, models.CallRinging})
				if errors.Is(err, models.ErrStale) {
					stale.Add(1)
					return nil
				}
				won.Add(1)
				return err
			})
		}
		require.NoError(t, group.Wait())
		require.Equal(t, []int64{1, 15}, []int64{won.Load(), stale.Load()})
		found, err := s.CallByID(ctx, call.ID)
		require.NoError(t, err)
		require.Equal(t, models.CallBusy, found.Status)
		require.Equal(t, int64(1), found.LastSequence, "the copy of before the event did not reset it")
		require.False(t, found.Live())

		call.Status = models.CallInProgress
		require.ErrorIs(t, s.TransitionCall(ctx, call, []string{models.CallDialing}), models.ErrStale)
		missing := &models.Call{ID: "call_none", Status: models.CallBusy}
		require.ErrorIs(t, s.TransitionCall(ctx, missing, []string{models.CallDialing}), models.ErrStale)
		call.Status = "lost"
		require.Error(t, s.TransitionCall(ctx, call, []string{models.CallBusy}), "not a status")
	})
}

func TestUpdateCallColumns(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		call := modelstest.Call(t, s, modelstest.Application(t, s, modelstest.Customer(t, s, 0)))
		changed := *call
		changed.Cursor, changed.Reason = models.Cursor{Index: 4}, "not written"
		require.NoError(t, s.UpdateCall(ctx, &changed, "cursor"))
		found, err := s.CallByID(ctx, call.ID)
		require.NoError(t, err)
		require.Equal(t, 4, found.Cursor.Index)
		require.Empty(t, found.Reason)
		for _, column := range []string{"status", "settled_at", "hold_micros", "last_sequence", "customer_id", "id", "no; DROP TABLE calls"} {
			require.Error(t, s.UpdateCall(ctx, &changed, column), column)
		}
		require.Error(t, s.UpdateCall(ctx, &changed))
		changed.ID = "call_none"
		require.ErrorIs(t, s.UpdateCall(ctx, &changed, "cursor"), models.ErrNotFound)
	})
}

func TestListCallsFilter(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		app, other := modelstest.Application(t, s, customer), modelstest.Application(t, s, customer)
		trunk := modelstest.OutboundTrunk(t, s, customer)
		node := &models.Node{Name: "node"}
		require.NoError(t, s.CreateNode(ctx, node))
		start := clock.Now()
		create := func(call models.Call) string {
			clock.Advance(time.Second)
			call.CustomerID = customer.ID
			require.NoError(t, s.CreateCall(ctx, &call))
			return call.ID
		}
		a := create(models.Call{ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallDialing, From: "+1111111", To: "+2222222", TrunkID: &trunk.ID, NodeID: &node.ID})
		b := create(models.Call{ApplicationID: app.ID, Direction: models.Inbound, Status: models.CallCompleted, From: "+3333333", To: "+1111111", NodeID: &node.ID})
		c := create(models.Call{ApplicationID: other.ID, Direction: models.Inbound, Status: models.CallRinging, From: "+3333333", To: "+2222222"})
		second, third := start.Add(2*time.Second), start.Add(3*time.Second)
		for _, test := range []struct {
			filter models.CallFilter
			want   []string
		}{
			{models.CallFilter{}, []string{c, b, a}},
			{models.CallFilter{Status: models.CallRinging}, []string{c}},
			{models.CallFilter{Direction: models.Inbound}, []string{c, b}},
			{models.CallFilter{From: "+3333333", To: "+1111111"}, []string{b}},
			{models.CallFilter{ApplicationID: app.ID}, []string{b, a}},
			{models.CallFilter{TrunkID: trunk.ID}, []string{a}},
			{models.CallFilter{CreatedAfter: &second}, []string{c, b}},
			{models.CallFilter{CreatedBefore: &second}, []string{b, a}},
			{models.CallFilter{CreatedAfter: &second, CreatedBefore: &third, Direction: models.Outbound}, nil},
		} {
			rows, _, err := s.ListCalls(ctx, customer.ID, test.filter, models.Page{})
			require.NoError(t, err)
			var got []string
			for _, row := range rows {
				got = append(got, row.ID)
			}
			require.Equal(t, test.want, got, "%+v", test.filter)
		}
		live, err := s.LiveCalls(ctx, node.ID)
		require.NoError(t, err)
		require.Len(t, live, 1)
		require.Equal(t, a, live[0].ID)
		live, err = s.LiveCalls(ctx, "")
		require.NoError(t, err)
		require.Len(t, live, 2)
		require.Equal(t, []string{a, c}, []string{live[0].ID, live[1].ID}, "oldest first")
	})
}

func TestRecordings(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		call := modelstest.Call(t, s, modelstest.Application(t, s, modelstest.Customer(t, s, 0)))
		recording := &models.Recording{CallID: call.ID, CustomerID: call.CustomerID, Path: "a.wav", Format: "wav", Status: models.RecordingRunning}
		require.NoError(t, s.SaveRecording(ctx, recording))
		ended := s.Now()
		recording.Status, recording.Seconds, recording.EndedAt = models.RecordingAvailable, 12.5, &ended
		require.NoError(t, s.SaveRecording(ctx, recording))
		found, err := s.RecordingsOfCall(ctx, call.CustomerID, call.ID)
		require.NoError(t, err)
		require.Equal(t, []models.Recording{*recording}, found)
	})
}
