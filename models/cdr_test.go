package models_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

// cdrCall stores a call on a channel of a node.
func cdrCall(t *testing.T, s *models.Store, app *models.Application, node *models.Node, channel, status string, billed int) *models.Call {
	t.Helper()
	call := &models.Call{
		CustomerID: app.CustomerID, ApplicationID: app.ID, NodeID: &node.ID, Direction: models.Outbound, Status: models.CallDialing, ChannelID: channel,
		From: "+15550000001", To: "+15550000002",
	}
	require.NoError(t, s.CreateCall(t.Context(), call))
	if status == models.CallDialing {
		return call
	}
	call.Status, call.BilledSeconds = status, billed
	require.NoError(t, s.TransitionCall(t.Context(), call, []string{models.CallDialing}))
	_, err := s.SettleHold(t.Context(), call.CustomerID, call.ID, 0, 0)
	require.NoError(t, err)
	return call
}

func cdr(node *models.Node, channel string, billed int) models.CDR {
	answered := time.UnixMicro(2_000_000).UTC()
	return models.CDR{
		NodeID: node.ID, ChannelID: channel, Direction: models.Outbound, Cause: "NORMAL_CLEARING", Q850: 16, SIPCode: 200, Disposition: "recv_bye",
		BilledSeconds: billed, RecordedMS: 1500, StartedAt: time.UnixMicro(1_000_000).UTC(), AnsweredAt: &answered, EndedAt: time.UnixMicro(9_000_000).UTC(),
	}
}

func cdrNode(t *testing.T, s *models.Store, name string) *models.Node {
	t.Helper()
	node := &models.Node{Name: name, Password: "secret"}
	require.NoError(t, s.CreateNode(t.Context(), node))
	return node
}

// TestCDRIsStoredOnce has one report come sixteen times, by two controllers: the first one stands.
func TestCDRIsStoredOnce(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		node, second := cdrNode(t, s, "one"), cdrNode(t, s, "two")
		var group errgroup.Group
		for i := range 16 {
			group.Go(func() error {
				return []*models.Store{s, other}[i%2].SaveCDRs(ctx, []models.CDR{cdr(node, "a", 7), cdr(node, fmt.Sprint("b", i), i)})
			})
		}
		require.NoError(t, group.Wait())
		require.NoError(t, s.SaveCDRs(ctx, []models.CDR{cdr(node, "a", 99), cdr(second, "a", 3)}))
		require.NoError(t, s.SaveCDRs(ctx, nil))
		found, err := s.CDR(ctx, node.ID, "a")
		require.NoError(t, err)
		want := cdr(node, "a", 7)
		want.ReceivedAt = found.ReceivedAt
		require.Equal(t, want, *found)
		require.WithinDuration(t, s.Now(), found.ReceivedAt, time.Minute)
		of, err := s.CDR(ctx, second.ID, "a")
		require.NoError(t, err)
		require.Equal(t, 3, of.BilledSeconds, "another node's word on a channel of that name is its own")
		_, err = s.CDR(ctx, second.ID, "b1")
		require.ErrorIs(t, err, models.ErrNotFound)

		names := []string{"a", "nobody"}
		for i := range 600 {
			names = append(names, fmt.Sprint("b", i))
		}
		all, err := s.CDRs(ctx, node.ID, names)
		require.NoError(t, err)
		require.Len(t, all, 17)
		require.Equal(t, 15, all["b15"].BilledSeconds)
		require.NoError(t, other.DeleteNode(ctx, second.ID), "a node that reported can be removed")
	})
}

func TestUnheardCDRs(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		node, second := cdrNode(t, s, "one"), cdrNode(t, s, "two")
		live := cdrCall(t, s, app, node, "live", models.CallDialing, 0)
		cdrCall(t, s, app, node, "ended", models.CallBusy, 0)
		cdrCall(t, s, app, second, "elsewhere", models.CallDialing, 0)
		for channel, status := range map[string]string{"leg": models.LegAnswered, "over": models.LegEnded} {
			require.NoError(t, s.SaveLeg(ctx, &models.Leg{CallID: live.ID, CustomerID: live.CustomerID, ChannelID: channel, Kind: models.LegDial, Status: status}))
		}
		unheard := func(before time.Time) (channels []string) {
			rows, err := s.UnheardCDRs(ctx, node.ID, before)
			require.NoError(t, err)
			for _, row := range rows {
				require.NotZero(t, row.StartedAt)
				channels = append(channels, row.ChannelID)
			}
			return channels
		}
		for _, channel := range []string{"live", "ended", "elsewhere", "leg", "over", "stranger"} {
			require.NoError(t, s.SaveCDRs(ctx, []models.CDR{cdr(node, channel, 1)}))
		}
		require.Empty(t, unheard(clock.Now()), "stored in this moment")
		clock.Advance(time.Second)
		require.Equal(t, []string{"leg", "live"}, unheard(clock.Now()))
	})
}

func TestEndedChannels(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		node, second := cdrNode(t, s, "one"), cdrNode(t, s, "two")
		live := cdrCall(t, s, app, node, "live", models.CallDialing, 0)
		ended := cdrCall(t, s, app, node, "ended", models.CallBusy, 0)
		cdrCall(t, s, app, second, "elsewhere", models.CallBusy, 0)
		for channel, leg := range map[string]models.Leg{
			"leg of the ended":      {CallID: ended.ID, Status: models.LegAnswered},
			"leg of the live":       {CallID: live.ID, Status: models.LegAnswered},
			"ended leg of the live": {CallID: live.ID, Status: models.LegEnded},
			"live":                  {CallID: ended.ID, Status: models.LegEnded}, // a call that was taken out of a queue
		} {
			leg.CustomerID, leg.ChannelID, leg.Kind = live.CustomerID, channel, models.LegDial
			require.NoError(t, s.SaveLeg(ctx, &leg))
		}
		channels := []string{"live", "ended", "elsewhere", "leg of the ended", "leg of the live", "ended leg of the live", "nobody's"}
		for len(channels) < 1100 {
			channels = append(channels, fmt.Sprint("more ", len(channels)))
		}
		found, err := s.EndedChannels(ctx, node.ID, channels)
		require.NoError(t, err)
		require.Equal(t, []string{"ended", "ended leg of the live", "leg of the ended"}, found)
	})
}

func TestCheckCDRs(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		node, second := cdrNode(t, s, "one"), cdrNode(t, s, "two")
		cdrCall(t, s, app, node, "same", models.CallCompleted, 7)
		differs := cdrCall(t, s, app, node, "differs", models.CallCompleted, 7)
		live := cdrCall(t, s, app, node, "live", models.CallDialing, 0)
		cdrCall(t, s, app, second, "forged", models.CallCompleted, 7)
		require.NoError(t, s.SaveCDRs(ctx, []models.CDR{
			cdr(node, "same", 7), cdr(node, "differs", 12), cdr(node, "live", 5), cdr(node, "leg", 3), cdr(node, "forged", 3600),
		}))
		found, more, err := s.CheckCDRs(ctx, clock.Now(), 10)
		require.NoError(t, err)
		require.Empty(t, found, "too young")
		require.False(t, more)
		clock.Advance(time.Second)
		var all []models.BillingDifference
		for more = true; more; {
			found, more, err = s.CheckCDRs(ctx, clock.Now(), 1)
			require.NoError(t, err)
			all = append(all, found...)
		}
		want := []models.BillingDifference{{
			CallID: differs.ID, NodeID: node.ID, ChannelID: "differs", BilledSeconds: 7, CDRSeconds: 12, FoundAt: clock.Now().UTC(),
		}}
		require.Equal(t, want, all)
		stored, err := s.BillingDifferences(ctx)
		require.NoError(t, err)
		require.Equal(t, want, stored)

		// The one whose call lived is checked when it has ended.
		clock.Advance(time.Second)
		live.Status = models.CallCompleted
		require.NoError(t, s.TransitionCall(ctx, live, []string{models.CallDialing}))
		_, err = s.SettleHold(ctx, live.CustomerID, live.ID, 0, 0)
		require.NoError(t, err)
		found, _, err = s.CheckCDRs(ctx, clock.Now(), 10)
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, []any{live.ID, 0, 5}, []any{found[0].CallID, found[0].BilledSeconds, found[0].CDRSeconds})
		require.NoError(t, models.Write(ctx, s, "UPDATE cdrs SET checked_at = NULL"))
		_, _, err = s.CheckCDRs(ctx, clock.Now(), 10)
		require.NoError(t, err, "a difference that is known is told once more, and stored once")
		stored, err = s.BillingDifferences(ctx)
		require.NoError(t, err)
		require.Len(t, stored, 2)
	})
}

func TestNodeToken(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		node, second := cdrNode(t, s, "one"), cdrNode(t, s, "two")
		for _, token := range []string{"", "x"} {
			_, err := s.AuthenticateNode(ctx, node.Name, token)
			require.ErrorIs(t, err, models.ErrNotFound, "no token was given")
		}
		first, next := models.NewCDRToken(), models.NewCDRToken()
		require.NotEqual(t, first, next)
		require.NoError(t, s.SetCDRToken(ctx, node.ID, first))
		id, err := s.AuthenticateNode(ctx, node.Name, first)
		require.NoError(t, err)
		require.Equal(t, node.ID, id)
		for _, wrong := range [][2]string{{second.Name, first}, {"nobody", first}, {node.Name, first + " "}, {node.Name, ""}} {
			_, err := s.AuthenticateNode(ctx, wrong[0], wrong[1])
			require.ErrorIs(t, err, models.ErrNotFound, wrong)
		}
		require.NoError(t, s.SetCDRToken(ctx, node.ID, next))
		_, err = s.AuthenticateNode(ctx, node.Name, first)
		require.ErrorIs(t, err, models.ErrNotFound, "replaced")
		require.NoError(t, s.SetCDRToken(ctx, node.ID, ""))
		_, err = s.AuthenticateNode(ctx, node.Name, "")
		require.ErrorIs(t, err, models.ErrNotFound)
		require.ErrorIs(t, s.SetCDRToken(ctx, "node_none", first), models.ErrNotFound)
	})
}
