package models_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func callIDs(calls []models.Call) []string {
	ids := []string{}
	for i := range calls {
		ids = append(ids, calls[i].ID)
	}
	return ids
}

// TestFindCalls finds calls of all customers by each filter, and pages them.
func TestFindCalls(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		one, two := modelstest.Customer(t, s, 0), modelstest.Customer(t, s, 0)
		appOne, appTwo := modelstest.Application(t, s, one), modelstest.Application(t, s, two)
		node, trunk := modelstest.Node(t, s), modelstest.OutboundTrunk(t, s, two)
		live := &models.Call{CustomerID: one.ID, ApplicationID: appOne.ID, Direction: models.Inbound, Status: models.CallRinging, From: "+15550000001", To: "+15550000002", NodeID: &node.ID}
		require.NoError(t, s.CreateCall(ctx, live))
		clock.Advance(time.Minute)
		between := clock.Now()
		clock.Advance(time.Minute)
		ended := &models.Call{CustomerID: two.ID, ApplicationID: appTwo.ID, Direction: models.Outbound, Status: models.CallBusy, From: "+15550000003", To: "+15550000004", TrunkID: &trunk.ID}
		require.NoError(t, s.CreateCall(ctx, ended))
		both := []string{ended.ID, live.ID}
		filter := func(f models.CallFilter) models.OperatorCallFilter { return models.OperatorCallFilter{CallFilter: f} }
		for name, tt := range map[string]struct {
			filter models.OperatorCallFilter
			want   []string
		}{
			"all":            {models.OperatorCallFilter{}, both},
			"customer":       {models.OperatorCallFilter{CustomerID: one.ID}, both[1:]},
			"node":           {models.OperatorCallFilter{NodeID: node.ID}, both[1:]},
			"live":           {models.OperatorCallFilter{Live: true}, both[1:]},
			"ended":          {models.OperatorCallFilter{Ended: true}, both[:1]},
			"neither":        {models.OperatorCallFilter{Live: true, Ended: true}, []string{}},
			"status":         {filter(models.CallFilter{Status: models.CallBusy}), both[:1]},
			"direction":      {filter(models.CallFilter{Direction: models.Inbound}), both[1:]},
			"from":           {filter(models.CallFilter{From: "+15550000003"}), both[:1]},
			"to":             {filter(models.CallFilter{To: "+15550000002"}), both[1:]},
			"application":    {filter(models.CallFilter{ApplicationID: appTwo.ID}), both[:1]},
			"trunk":          {filter(models.CallFilter{TrunkID: trunk.ID}), both[:1]},
			"created after":  {filter(models.CallFilter{CreatedAfter: &between}), both[:1]},
			"created before": {filter(models.CallFilter{CreatedBefore: &between}), both[1:]},
			"live of two":    {models.OperatorCallFilter{CustomerID: two.ID, Live: true}, []string{}},
		} {
			found, next, err := s.FindCalls(ctx, tt.filter, models.Page{})
			require.NoError(t, err, name)
			require.Empty(t, next, name)
			require.Equal(t, tt.want, callIDs(found), name)
		}
		first, next, err := s.FindCalls(ctx, models.OperatorCallFilter{}, models.Page{Limit: 1})
		require.NoError(t, err)
		require.Equal(t, both[:1], callIDs(first))
		rest, next, err := s.FindCalls(ctx, models.OperatorCallFilter{}, models.Page{Limit: 1, Cursor: next})
		require.NoError(t, err)
		require.Empty(t, next)
		require.Equal(t, both[1:], callIDs(rest))
	})
}

// TestFindCallsPlan: live calls are found by an index that holds no others, all calls along the newest.
func TestFindCallsPlan(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		if s.Dialect() != models.DialectSQLite {
			t.Skip("PostgreSQL plans by what is in the tables")
		}
		last, _, err := s.FindCalls(t.Context(), models.OperatorCallFilter{}, models.Page{})
		require.NoError(t, err)
		require.Empty(t, last)
		for _, filter := range []models.OperatorCallFilter{{Live: true}, {Live: true, CustomerID: "cust_1"}, {Live: true, NodeID: "node_1"}} {
			plan, err := models.ExplainFindCalls(t.Context(), s, filter, models.Page{})
			require.NoError(t, err)
			require.Contains(t, plan, "calls_live_", "%+v", filter)
		}
		for index, filter := range map[string]models.OperatorCallFilter{"calls_newest": {}, "calls_page": {CustomerID: "cust_1"}} {
			plan, err := models.ExplainFindCalls(t.Context(), s, filter, models.Page{})
			require.NoError(t, err)
			require.Contains(t, plan, index, "%+v", filter)
			require.NotContains(t, plan, "TEMP B-TREE", "%+v", filter)
		}
	})
}

// TestAnswerRequests stores requests, also twice, late, and not at all with what is undone; they go with the legs of old calls.
func TestAnswerRequests(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 1_000)
		call := modelstest.Call(t, s, modelstest.Application(t, s, customer))
		requests := []models.AnswerRequest{
			{CallID: call.ID, CustomerID: customer.ID, RequestID: "req_1", Kind: "answer", URL: "https://a.example/", Attempt: 1, StartedAt: clock.Now(), LatencyMS: 5000.5, Error: "no answer in time"},
			{CallID: call.ID, CustomerID: customer.ID, RequestID: "req_1", Kind: "answer", URL: "https://a.example/", Attempt: 2, StartedAt: clock.Now().Add(time.Second), LatencyMS: 12, Status: 200, Actions: []string{"say", "hangup"}},
		}
		require.NoError(t, s.SaveAnswerRequests(ctx, nil))
		require.NoError(t, s.SaveAnswerRequests(ctx, requests))
		require.NoError(t, s.SaveAnswerRequests(ctx, requests), "a second time changes nothing")
		found, err := s.AnswerRequestsOfCall(ctx, customer.ID, call.ID)
		require.NoError(t, err)
		require.Len(t, found, 2)
		require.Empty(t, found[0].Actions)
		found[0].Actions = nil
		require.Equal(t, requests, found)
		foreign, err := s.AnswerRequestsOfCall(ctx, modelstest.Customer(t, s, 0).ID, call.ID)
		require.NoError(t, err)
		require.Empty(t, foreign)

		late := []models.AnswerRequest{{CallID: call.ID, CustomerID: customer.ID, RequestID: "req_2", Kind: "result", URL: "https://a.example/r", Attempt: 1, StartedAt: clock.Now().Add(time.Minute)}}
		deferred, err := s.Defer(ctx, models.NewID(models.PrefixEvent), func(tx *models.Store) error { return tx.SaveAnswerRequests(ctx, late) })
		require.NoError(t, err)
		for range 2 { // nobody knows whether the first was committed
			require.NoError(t, s.InTx(ctx, func(tx *models.Store) error { return deferred.Write(ctx, tx) }))
		}
		found, err = s.AnswerRequestsOfCall(ctx, customer.ID, call.ID)
		require.NoError(t, err)
		require.Len(t, found, 3)

		orphan := []models.AnswerRequest{{CallID: "call_none", CustomerID: customer.ID, RequestID: "req_3", Kind: "result", StartedAt: clock.Now()}}
		require.ErrorIs(t, s.SaveAnswerRequests(ctx, orphan), models.ErrNotFound)

		endCall(t, s, call)
		clock.Advance(48 * time.Hour)
		require.Equal(t, models.Pruned{Calls: 1}, prune(t, s, models.Retention{Calls: 24 * time.Hour}))
		found, err = s.AnswerRequestsOfCall(ctx, customer.ID, call.ID)
		require.NoError(t, err)
		require.Empty(t, found)
	})
}

// TestStoryOf reads all that is known of a call, and nothing of another one.
func TestStoryOf(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 1_000_000)
		app, node := modelstest.Application(t, s, customer), modelstest.Node(t, s)
		call := &models.Call{CustomerID: customer.ID, ApplicationID: app.ID, Direction: models.Inbound, Status: models.CallRinging, ChannelID: "channel-1", NodeID: &node.ID}
		require.NoError(t, s.CreateCall(ctx, call))
		other := modelstest.Call(t, s, app)
		for _, one := range []*models.Call{call, other} {
			appendEvent(t, s, one, "call.notify")
			require.NoError(t, s.SaveAnswerRequests(ctx, []models.AnswerRequest{{CallID: one.ID, CustomerID: customer.ID, RequestID: "req", Kind: "answer", StartedAt: s.Now()}}))
			require.NoError(t, s.SaveLeg(ctx, &models.Leg{CallID: one.ID, CustomerID: customer.ID, ChannelID: "leg-of-" + one.ID, Kind: models.LegDial, Status: models.LegEnded}))
			entry := pending("hangupCall")
			entry.Entry.ObjectID = one.ID
			require.NoError(t, s.Audit(models.WithAudit(ctx, entry)))
		}
		deliver(t, s, func(claimed models.ClaimedStream) models.Outcome { return outcome(claimed, models.ResultDead) })
		now := s.Now()
		require.NoError(t, s.SaveCDRs(ctx, []models.CDR{
			{NodeID: node.ID, Direction: models.Inbound, ChannelID: "channel-1", StartedAt: now, EndedAt: now}, {NodeID: node.ID, Direction: models.Inbound, ChannelID: "leg-of-" + call.ID, StartedAt: now, EndedAt: now},
			{NodeID: node.ID, Direction: models.Inbound, ChannelID: "leg-of-" + other.ID, StartedAt: now, EndedAt: now},
		}))
		_, err := s.SettleHold(ctx, customer.ID, call.ID, 0, 7)
		require.NoError(t, err)

		story, err := s.StoryOf(ctx, call.ID)
		require.NoError(t, err)
		require.Equal(t, call.ID, story.Call.ID)
		require.Equal(t, []int{1, 1, 1, 1, 1, 1, 2, 1}, []int{
			len(story.Events), len(story.Requests), len(story.Legs), len(story.Deliveries), len(story.Attempts), len(story.Ledger), len(story.CDRs), len(story.Commands),
		})
		require.Nil(t, story.Difference)
		_, err = s.StoryOf(ctx, "call_none")
		require.ErrorIs(t, err, models.ErrNotFound)
	})
}

// TestAnyCustomer finds what is anybody's, and only where that is asked for.
func TestAnyCustomer(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		var events []*models.Event
		var customers []*models.Customer
		for range 2 {
			customer := modelstest.Customer(t, s, 0)
			modelstest.OutboundTrunk(t, s, customer)
			events = append(events, appendEvent(t, s, modelstest.Call(t, s, modelstest.Application(t, s, customer)), "call.notify"))
			customers = append(customers, customer)
		}
		deliver(t, s, func(claimed models.ClaimedStream) models.Outcome { return outcome(claimed, models.ResultDead) })
		for owner, want := range map[string]int{models.AnyCustomer: 2, customers[0].ID: 1, "": 0, "%": 0} {
			page, err := s.Journal(ctx, owner, models.EventFilter{}, models.Page{})
			require.NoError(t, err)
			require.Len(t, page.Events, want, "%q", owner)
			for _, state := range []string{"", models.DeliveryDead} {
				deliveries, _, err := s.ListDeliveries(ctx, owner, models.DeliveryFilter{State: state}, models.Page{})
				require.NoError(t, err)
				require.Len(t, deliveries, want, "%q", owner)
			}
			trunks, _, err := s.FindTrunks(ctx, owner, models.TrunkFilter{}, models.Page{})
			require.NoError(t, err)
			require.Len(t, trunks, want, "%q", owner)
		}
		found, err := s.EventByID(ctx, models.AnyCustomer, events[1].ID)
		require.NoError(t, err)
		require.Equal(t, customers[1].ID, found.CustomerID)
		_, err = s.EventByID(ctx, customers[0].ID, events[1].ID)
		require.ErrorIs(t, err, models.ErrNotFound)
		active := false
		for _, none := range []models.TrunkFilter{{Direction: models.Inbound}, {GatewayName: "none"}, {Active: &active}} {
			trunks, _, err := s.FindTrunks(ctx, models.AnyCustomer, none, models.Page{})
			require.NoError(t, err)
			require.Empty(t, trunks)
		}
	})
}
