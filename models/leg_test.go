package models_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestLegs(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		call, trunk := modelstest.Call(t, s, modelstest.Application(t, s, customer)), modelstest.OutboundTrunk(t, s, customer)
		first := &models.Leg{
			CallID: call.ID, CustomerID: customer.ID, ChannelID: "chan", Kind: models.LegDial, To: "+15550000009", TrunkID: &trunk.ID, Status: models.LegDialing,
		}
		require.NoError(t, s.SaveLeg(ctx, first))
		require.Regexp(t, "^leg_", first.ID)
		clock.Advance(time.Second)
		second := &models.Leg{CallID: call.ID, CustomerID: customer.ID, Kind: models.LegQueue, To: "call_x", Status: models.LegAnswered}
		require.NoError(t, s.SaveLeg(ctx, second))

		at := s.Now()
		first.Status, first.DialStatus, first.Reason, first.Cause, first.Q850, first.SIPCode = models.LegEnded, "answered", "callee_hangup", "NORMAL_CLEARING", 16, 200
		first.AnsweredBy, first.RingingAt, first.AnsweredAt, first.EndedAt, first.Seconds = "human", &at, &at, &at, 1.5
		want := *first
		first.To, first.Kind, first.CallID = "elsewhere", models.LegTransfer, call.ID
		require.NoError(t, s.SaveLeg(ctx, first))
		legs, err := s.LegsOfCall(ctx, customer.ID, call.ID)
		require.NoError(t, err)
		require.Equal(t, []models.Leg{want, *second}, legs, "what a leg is for does not change")

		foreign := modelstest.Customer(t, s, 0)
		legs, err = s.LegsOfCall(ctx, foreign.ID, call.ID)
		require.NoError(t, err)
		require.Empty(t, legs)
		require.ErrorIs(t, s.SaveLeg(ctx, &models.Leg{CallID: call.ID, CustomerID: foreign.ID, Kind: models.LegDial, Status: models.LegDialing}), models.ErrNotFound)
		require.Error(t, s.SaveLeg(ctx, &models.Leg{CallID: call.ID, CustomerID: customer.ID, Kind: "other", Status: models.LegDialing}))
	})
}

// TestStartCall starts queued calls once, with what they hold, whoever else starts or ends them.
func TestStartCall(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 100)
		app, trunk, node := modelstest.Application(t, s, customer), modelstest.OutboundTrunk(t, s, customer), modelstest.Node(t, s)
		queued := func() *models.Call {
			call := &models.Call{CustomerID: customer.ID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallQueued}
			require.NoError(t, s.CreateCall(ctx, call))
			return call
		}
		start := func(store *models.Store, call models.Call, channel string) error {
			return store.InTx(ctx, func(tx *models.Store) error {
				if err := tx.Hold(ctx, customer.ID, 30); err != nil {
					return err
				}
				call.Status, call.TrunkID, call.NodeID, call.ChannelID = models.CallDialing, &trunk.ID, &node.ID, channel
				call.PricePerMinuteMicros, call.HoldMicros, call.GrantedSeconds = 60, 30, 30
				return tx.StartCall(ctx, &call)
			})
		}
		one := queued()
		results := make([]error, 8)
		var group errgroup.Group
		for i := range results {
			group.Go(func() error {
				results[i] = start([]*models.Store{s, other}[i%2], *one, "chan-1")
				return nil
			})
		}
		require.NoError(t, group.Wait())
		won := 0
		for _, err := range results {
			if err == nil {
				won++
				continue
			}
			// More than three holds at once do not fit the balance.
			require.True(t, errors.Is(err, models.ErrStale) || errors.Is(err, models.ErrInsufficientBalance), "%v", err)
		}
		require.Equal(t, 1, won)
		stored, err := s.Call(ctx, customer.ID, one.ID)
		require.NoError(t, err)
		require.Equal(t, []any{models.CallDialing, &trunk.ID, &node.ID, "chan-1", int64(60), int64(30), 30},
			[]any{stored.Status, stored.TrunkID, stored.NodeID, stored.ChannelID, stored.PricePerMinuteMicros, stored.HoldMicros, stored.GrantedSeconds})
		account, err := s.Customer(ctx, customer.ID)
		require.NoError(t, err)
		require.Equal(t, int64(30), account.HeldMicros, "what lost was undone")
		require.ErrorIs(t, start(s, *one, "chan-2"), models.ErrStale)
		require.ErrorIs(t, start(s, *queued(), "chan-1"), models.ErrChannelExists)

		// One that was canceled holds nothing, and is settled with nothing.
		canceled := queued()
		ended := *canceled
		ended.Status = models.CallCanceled
		require.NoError(t, s.TransitionCall(ctx, &ended, []string{models.CallQueued}))
		_, err = s.SettleHold(ctx, customer.ID, canceled.ID, 0, 0)
		require.NoError(t, err)
		require.ErrorIs(t, start(s, *canceled, "chan-3"), models.ErrStale)
		foreign := *queued()
		foreign.CustomerID = modelstest.Customer(t, s, 100).ID
		require.ErrorIs(t, s.StartCall(ctx, &foreign), models.ErrStale)
		gone := queued()
		unused := modelstest.OutboundTrunk(t, s, customer)
		require.NoError(t, s.DeleteTrunk(ctx, customer.ID, unused.ID))
		gone.Status, gone.TrunkID = models.CallDialing, &unused.ID
		require.ErrorIs(t, s.StartCall(ctx, gone), models.ErrNotFound)
	})
}

// TestCallControlColumns stores and reads what calls, recordings and applications have besides.
func TestCallControlColumns(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		app := &models.Application{
			CustomerID: customer.ID, Name: "a", FallbackActions: json.RawMessage(`[{"action": "say", "text": "<&>"}]`), EventKinds: []string{"call.*"},
		}
		require.NoError(t, s.CreateApplication(ctx, app))
		found, err := s.Application(ctx, customer.ID, app.ID)
		require.NoError(t, err)
		require.Equal(t, app.FallbackActions, found.FallbackActions, "byte for byte")
		require.Nil(t, found.WaitActions)
		require.Equal(t, []string{"call.*"}, found.EventKinds)
		found.FallbackActions, found.WaitActions, found.EventKinds = nil, json.RawMessage(`[]`), []string{}
		require.NoError(t, s.UpdateApplication(ctx, found))
		found, err = s.Application(ctx, customer.ID, app.ID)
		require.NoError(t, err)
		require.Nil(t, found.FallbackActions)
		require.Equal(t, `[]`, string(found.WaitActions))
		require.Equal(t, []string{}, found.EventKinds, "nothing is not the default")
		found.WaitActions = json.RawMessage("{")
		require.ErrorContains(t, s.UpdateApplication(ctx, found), "WaitActions is not JSON")

		old := modelstest.Call(t, s, app)
		call := &models.Call{
			CustomerID: customer.ID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallInProgress, RetryOf: &old.ID,
			MachineDetection: json.RawMessage(`{"async":false}`),
		}
		require.NoError(t, s.CreateCall(ctx, call))
		call.AnsweredBy = "machine"
		require.NoError(t, s.UpdateCall(ctx, call, "answered_by"))
		stored, err := s.Call(ctx, customer.ID, call.ID)
		require.NoError(t, err)
		require.Equal(t, call, stored)
		call.AnsweredBy = "human"
		require.NoError(t, s.TransitionCall(ctx, call, []string{models.CallInProgress}))
		stored, err = s.Call(ctx, customer.ID, call.ID)
		require.NoError(t, err)
		require.Equal(t, call, stored)
		other := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		require.ErrorIs(t, s.CreateCall(ctx, &models.Call{
			CustomerID: other.CustomerID, ApplicationID: other.ID, Direction: models.Outbound, Status: models.CallDialing, RetryOf: &old.ID,
		}), models.ErrNotFound, "another customer's call")

		recording := &models.Recording{CallID: call.ID, CustomerID: customer.ID, Format: "mp3", Status: models.RecordingPaused, Channels: 2}
		require.NoError(t, s.SaveRecording(ctx, recording))
		mono := &models.Recording{CallID: call.ID, CustomerID: customer.ID, Format: "wav", Status: models.RecordingRunning}
		require.NoError(t, s.SaveRecording(ctx, mono))
		recordings, err := s.RecordingsOfCall(ctx, customer.ID, call.ID)
		require.NoError(t, err)
		require.Equal(t, []models.Recording{*recording, *mono}, recordings)
		require.Equal(t, 1, mono.Channels)
	})
}
