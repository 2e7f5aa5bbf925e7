package api

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
	"tandem/webhooks"
)

var updateStories = flag.Bool("update-stories", false, "rewrite the golden files of stories")

// moment is a time of a story: so many seconds after the call began.
func moment(seconds float64) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

func at(seconds float64) *time.Time {
	then := moment(seconds)
	return &then
}

// storyEvent is an event of a story.
func storyEvent(sequence int64, seconds float64, kind string, data map[string]any) models.Event {
	body, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		panic(err)
	}
	return models.Event{ID: fmt.Sprintf("evt_%d", sequence), Type: kind, Sequence: sequence, CreatedAt: moment(seconds), Body: body}
}

// stories are calls of which all is known.
func stories() map[string]*models.CallStory {
	node, trunk := "node_1", "trunk_1"
	debit := "call_1"
	none, some := int64(0), int64(702)
	answered := &models.CallStory{
		Call: models.Call{
			ID: "call_1", CustomerID: "cust_1", Direction: models.Inbound, Status: models.CallCompleted, From: "+15550000001", To: "+15550000002", NodeID: &node, ChannelID: "chan-a",
			Reason: "caller_hangup", HangupSource: "caller", Cause: "NORMAL_CLEARING", Q850: 16, SIPCode: 200, PricePerMinuteMicros: 5000, HoldMicros: 300_000, GrantedSeconds: 3600,
			BilledSeconds: 14, CostMicros: 5000, CreatedAt: moment(0), RingingAt: at(0), AnsweredAt: at(0.4), EndedAt: at(14.2), SettledAt: at(14.3),
		},
		Events: []models.Event{
			storyEvent(1, 0, "call.ringing", map[string]any{"call": object{"id": "call_1"}}),
			storyEvent(2, 0.4, "call.answered", map[string]any{}),
			storyEvent(3, 3.5, "call.action_completed", map[string]any{"index": 0, "action": "gather", "result": object{"digits": "2", "outcome": "digits"}}),
			storyEvent(4, 4, "leg.ringing", map[string]any{"leg_id": "leg_1", "to": "+15550000003"}),
			storyEvent(5, 5, "call.error", map[string]any{"code": "action_failed", "message": "the carrier \x1b refused", "index": 1}),
			storyEvent(6, 14.2, "call.completed", map[string]any{"reason": "caller_hangup", "cost_micros": 5000, "sip_code": 200}),
		},
		Requests: []models.AnswerRequest{
			{ID: "ask_1", RequestID: "req_1", Kind: "answer", URL: "https://a.example/", Attempt: 1, StartedAt: moment(0.01), LatencyMS: 250.4, Status: 503, Error: "only 2xx is an answer"},
			{ID: "ask_2", RequestID: "req_1", Kind: "answer", URL: "https://a.example/", Attempt: 2, StartedAt: moment(0.27), LatencyMS: 90, Status: 200, Actions: []string{"gather", "dial"}},
			{ID: "ask_3", RequestID: "req_2", Kind: "result", URL: "https://a.example/menu", Attempt: 1, StartedAt: moment(3.5), LatencyMS: 20, Status: 204},
			{ID: "ask_4", RequestID: "req_3", Kind: "result", URL: "https://a.example/over", Attempt: 1, StartedAt: moment(14), LatencyMS: 200, Error: models.RequestGivenUp},
		},
		Legs: []models.Leg{
			{ID: "leg_1", ChannelID: "chan-b", Kind: models.LegDial, To: "+15550000003", TrunkID: &trunk, SIPCode: 486, CreatedAt: moment(3.6), RingingAt: at(4), EndedAt: at(5)},
			{ID: "leg_2", ChannelID: "chan-c", Kind: models.LegQueue, To: "call_9", CreatedAt: moment(6)},
		},
		Deliveries: []models.Delivery{
			{EventID: "evt_1", State: models.DeliveryDelivered, Attempts: 2}, {EventID: "evt_6", State: models.DeliveryDead, Attempts: 12, GivenUpAt: at(90)},
			{EventID: "evt_2", State: models.DeliverySkipped, GivenUpAt: at(1)},
		},
		Attempts: []models.Attempt{
			{ID: "att_1", EventID: "evt_1", Number: 1, StartedAt: moment(0.05), LatencyMS: 30, Status: 500, Error: "status: 500"},
			{ID: "att_2", EventID: "evt_1", Number: 2, StartedAt: moment(5.05), LatencyMS: 11, Status: 200},
		},
		Ledger: []models.LedgerEntry{{ID: "led_1", Kind: models.LedgerCall, AmountMicros: -5000, BalanceMicros: 995_000, CallID: &debit, CreatedAt: moment(14.3)}},
		CDRs: []models.CDR{
			{ChannelID: "chan-a", Cause: "NORMAL_CLEARING", Q850: 16, SIPCode: 200, Disposition: "recv_bye", BilledSeconds: 14, StartedAt: moment(-0.02), AnsweredAt: at(0.41), EndedAt: moment(14.19),
				SIPCallID: "a84b4c76@pc33.example.com", Peer: "192.0.2.7:5060", Codec: "PCMA", PacketsIn: &none, PacketsOut: &some},
			{ChannelID: "chan-b", Cause: "USER_BUSY", Q850: 17, SIPCode: 486, Disposition: "recv_refuse", StartedAt: moment(3.61), EndedAt: moment(4.99)},
		},
		Commands:   []models.AuditEntry{{ID: "aud_1", Action: "hangupCall", ActorName: "ana", CreatedAt: moment(14)}},
		Difference: &models.BillingDifference{CallID: "call_1", BilledSeconds: 14, CDRSeconds: 16, FoundAt: moment(60)},
	}
	live := &models.CallStory{
		Call: models.Call{
			ID: "call_2", Direction: models.Outbound, Status: models.CallInProgress, From: "+15550000001", To: "+15550000002", NodeID: &node, ChannelID: "chan-d",
			CreatedAt: moment(0), RingingAt: at(1), AnsweredAt: at(4),
		},
		Events:     []models.Event{storyEvent(1, 0, "call.created", nil), storyEvent(2, 1, "call.ringing", nil), storyEvent(3, 4, "call.answered", nil)},
		Deliveries: []models.Delivery{{EventID: "evt_1", State: models.DeliveryPending, Attempts: 1}},
	}
	refused := &models.CallStory{
		Call: models.Call{
			ID: "call_3", Direction: models.Inbound, Status: models.CallFailed, From: "anonymous", To: "+15550000002", NodeID: &node, ChannelID: "chan-e",
			Reason: "answer_url_failed", HangupSource: "platform", Cause: "NORMAL_TEMPORARY_FAILURE", SIPCode: 503, CreatedAt: moment(0), RingingAt: at(0), EndedAt: at(5),
		},
		Events: []models.Event{
			storyEvent(1, 0, "call.ringing", nil),
			storyEvent(2, 5, "call.error", map[string]any{"code": "answer_url_failed", "message": "no answer in time", "url": "https://a.example/"}),
			storyEvent(3, 5, "call.failed", map[string]any{"reason": "answer_url_failed"}),
		},
		Requests: []models.AnswerRequest{{ID: "ask_1", Kind: "answer", URL: "https://a.example/", Attempt: 1, StartedAt: moment(0), LatencyMS: 5000, Error: "no answer in time"}},
	}
	return map[string]*models.CallStory{"answered": answered, "live": live, "refused": refused}
}

// TestStories holds the telling of calls to golden files.
func TestStories(t *testing.T) {
	t.Parallel()
	for name, story := range stories() {
		var told strings.Builder
		for _, step := range tell(story) {
			fmt.Fprintf(&told, "%8d %-10s %-5t %-14s %s\n", step.Offset, step.Lane, step.OK, step.ID, step.Text)
		}
		fmt.Fprintf(&told, "\n%s\n", verdict(story, map[string]string{"node_1": "fs-1"}, moment(100)))
		for _, problem := range problems(story, moment(100)) {
			fmt.Fprintf(&told, "! %s\n", problem)
		}
		file := filepath.Join("testdata", "stories", name+".golden")
		if *updateStories {
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(told.String()), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), told.String(), name)
	}
}

// TestTrace tells a call out of the database, of whichever customer, and tells nobody else.
func TestTrace(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		call := b.callOf(app, models.CallDialing)
		b.emit(call, webhooks.KindNotify)
		b.deliverAll(models.ResultDead, models.Attempt{Status: 500, Error: "status: 500"})
		require.NoError(b.t, b.store.SaveAnswerRequests(b.t.Context(), []models.AnswerRequest{{
			CallID: call.ID, CustomerID: b.customer.ID, RequestID: "req_1", Kind: "answer", URL: "https://a.example/", Attempt: 1, StartedAt: b.store.Now(), Status: 200, Actions: []string{"say"},
		}}))
		o := operatorBench(b, models.RoleOperator)
		o.post("/operator/v1/calls/"+call.ID+"/hangup", object{}).is(202)
		var told storyObject
		require.NoError(b.t, json.Unmarshal(o.get("/operator/v1/calls/"+call.ID+"/trace").is(200).body, &told))
		seen := map[string]bool{}
		for _, step := range told.Steps {
			seen[step.Lane] = true
		}
		require.Equal(b.t, map[string]bool{laneAction: true, laneAnswer: true, laneWebhook: true, laneOperator: true}, seen)
		require.Contains(b.t, told.Verdict, "canceled")
		require.Equal(b.t, []string{"1 webhooks were given up; redeliver them once the receiver works."}, told.Problems)
		o.get("/operator/v1/calls/call_none/trace").refused(codeNotFound, "")
		b.do(exchange{method: "GET", path: "/operator/v1/calls/" + call.ID + "/trace"}).refused(codeUnauthorized, "")
	})
}

// TestFindCalls narrows the calls of all customers, and names nodes.
func TestFindCalls(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		o := operatorBench(b, models.RoleViewer)
		node := modelstest.Node(b.t, b.store)
		app := modelstest.Application(b.t, b.store, b.customer)
		call := &models.Call{CustomerID: b.customer.ID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallInProgress, From: "+1", To: "+2", NodeID: &node.ID, ChannelID: "c"}
		require.NoError(b.t, b.store.CreateCall(b.t.Context(), call))
		ended := b.callOf(modelstest.Application(b.t, b.store, modelstest.Customer(b.t, b.store, 0)), models.CallBusy)
		require.Equal(b.t, []string{ended.ID, call.ID}, o.get("/operator/v1/calls").is(200).ids())
		require.Equal(b.t, []string{call.ID}, o.get("/operator/v1/calls?state=live&node="+node.Name).is(200).ids())
		require.Equal(b.t, []string{ended.ID}, o.get("/operator/v1/calls?state=ended").is(200).ids())
		require.Equal(b.t, []string{ended.ID}, o.get("/operator/v1/calls?customer_id="+ended.CustomerID).is(200).ids())
		require.Equal(b.t, node.Name, o.get("/operator/v1/calls/"+call.ID).is(200).str("node_name"))
		o.get("/operator/v1/calls?state=dead").refused(codeInvalidRequest, "state")
		o.get("/operator/v1/calls?node=nowhere").refused(codeNotFound, "")
		o.get("/operator/v1/calls?customer_id=*").refused(codeInvalidRequest, "customer_id")
		o.get("/operator/v1/events?customer_id=*").refused(codeInvalidRequest, "customer_id")
	})
}
