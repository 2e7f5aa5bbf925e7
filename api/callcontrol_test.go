package api

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/calls"
	"tandem/models"
	"tandem/models/modelstest"
	"tandem/webhooks"
)

// callOf stores a call of an application of the bench's customer.
func (b *bench) callOf(app *models.Application, status string) *models.Call {
	b.t.Helper()
	call := &models.Call{CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: models.Outbound, Status: status, From: "+31201234567", To: "+31207654321"}
	require.NoError(b.t, b.store.CreateCall(b.t.Context(), call))
	return call
}

// TestDirectCall: a list is checked whole, what is accepted reaches the manager once per key, and a dead call is refused.
func TestDirectCall(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		call := b.callOf(app, models.CallInProgress)
		path := "/v1/calls/" + call.ID + "/actions"
		hangup := []object{{"action": "hangup"}}
		for name, test := range map[string]struct {
			body           any
			field, message string
			place          any
		}{
			"nothing":         {object{}, "actions", "actions is required", nil},
			"null":            {object{"actions": nil}, "actions", "actions must not be null", nil},
			"no list":         {object{"actions": object{"action": "hangup"}}, "actions", "actions: must be a list of actions, was an object", "actions"},
			"empty":           {object{"actions": []any{}}, "actions", "actions must hold at least one action", nil},
			"mode":            {object{"actions": hangup, "mode": "insert"}, "mode", "mode must be one of replace, append", nil},
			"unknown member":  {object{"actions": hangup, "at": 1}, "at", "at is not a field of this request", nil},
			"unknown action":  {object{"actions": []object{{"action": "hangup"}, {"action": "hang"}}}, "actions", `was "hang"`, "actions[1].action"},
			"nested, in path": {object{"actions": []object{{"action": "gather", "prompt": []object{{"action": "say", "text": ""}}}}}, "actions", `actions[0].gather.prompt[0].say.text: must not be empty, was ""`, "actions[0].gather.prompt[0].say.text"},
		} {
			got := b.post(path, test.body).refused(codeInvalidRequest, test.field)
			require.Contains(b.t, got.message(), test.message, name)
			require.Equal(b.t, test.place, got.json()["error"].(map[string]any)["path"], name)
		}
		require.Empty(b.t, b.calls.sent())

		body := object{"actions": []object{{"action": "say", "text": "One moment"}, {"action": "hangup"}}}
		first := b.postOnce("k", path, body).is(202)
		require.Equal(b.t, call.ID, first.str("id"))
		require.Equal(b.t, string(first.body), string(b.postOnce("k", path, body).is(202).body))
		body["mode"] = "append"
		b.postOnce("k", path, body).refused(codeIdempotencyConflict, headerIdempotencyKey)
		b.post(path, body).is(202)
		require.Equal(b.t, []string{"replace 2 " + call.ID, "append 2 " + call.ID}, b.calls.sent())

		b.calls.failWith(&calls.RequestError{Field: "actions", Message: "must leave at most 500 actions waiting on the call"})
		b.post(path, body).refused(codeInvalidRequest, "actions")
		b.calls.failWith(calls.ErrNoNode)
		b.post(path, body).refused(codeNoNodeAvailable, "")
		b.calls.failWith(calls.ErrCallNotStarted)
		require.Equal(b.t, "the call has not been started yet", b.post(path, body).refused(codeCallNotActive, "").message())
		b.calls.failWith(nil)
		ended := b.callOf(app, models.CallCompleted)
		b.post("/v1/calls/"+ended.ID+"/actions", body).refused(codeCallNotActive, "")
		b.post("/v1/calls/call_unknown/actions", body).refused(codeNotFound, "")
	})
}

// TestStartAndRetry: what the manager says becomes the codes of the contract, and a call that waits has not been dialled.
func TestStartAndRetry(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		body := b.callBody()
		body["start"], body["machine_detection"] = false, object{"on_machine": "hangup"}
		waiting := b.post("/v1/calls", body).is(201)
		require.Equal(b.t, models.CallQueued, waiting.str("status"))
		path := "/v1/calls/" + waiting.str("id")
		b.post(path+"/start", nil).is(202)
		b.post(path+"/start", object{}).is(202)
		b.post(path+"/start", object{"now": true}).refused(codeInvalidRequest, "now")
		b.post(path+"/retry", nil).refused(codeCallActive, "")
		for fail, code := range map[error]string{
			calls.ErrCallNotQueued: codeCallNotQueued, calls.ErrCallNotActive: codeCallNotActive, calls.ErrNoActiveTrunk: codeNoActiveTrunk,
			calls.ErrNoNode: codeNoNodeAvailable, models.ErrInsufficientBalance: codeInsufficientBalance, models.ErrNotFound: codeNotFound,
		} {
			b.calls.failWith(fmt.Errorf("start: %w", fail))
			b.post(path+"/start", nil).refused(code, "")
		}
		b.calls.failWith(nil)
		require.Equal(b.t, []string{"start " + waiting.str("id"), "start " + waiting.str("id")}, b.calls.sent())

		old := b.callOf(modelstest.Application(b.t, b.store, b.customer), models.CallBusy)
		again := b.postOnce("again", "/v1/calls/"+old.ID+"/retry", nil).is(201)
		require.Equal(b.t, old.ID, again.json()["retry_of"])
		require.Equal(b.t, old.To, again.str("to"))
		require.NotEqual(b.t, old.ID, again.str("id"))
		require.Equal(b.t, again.str("id"), b.postOnce("again", "/v1/calls/"+old.ID+"/retry", nil).is(201).str("id"), "the same key calls once")
		b.calls.failWith(&calls.RequestError{Field: "id", Message: "must be of an outbound call"})
		b.post("/v1/calls/"+old.ID+"/retry", nil).refused(codeInvalidRequest, "id")
		b.post("/v1/calls/call_unknown/retry", nil).refused(codeNotFound, "")
	})
}

// TestListEvents pages through the journal of a call: all events, wanted or not, in order and as their webhooks carry them.
func TestListEvents(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		call := b.callOf(app, models.CallInProgress)
		var want []string
		for _, kind := range []string{webhooks.KindCreated, webhooks.KindRinging, webhooks.KindDTMF, webhooks.KindAnswered, webhooks.KindNotify} {
			event, err := webhooks.Emit(b.t.Context(), b.store, call, kind, nil)
			require.NoError(b.t, err)
			want = append(want, kind+" "+event.ID)
		}
		path := "/v1/calls/" + call.ID + "/events"
		var got []string
		var told []any
		pages := 0
		for cursor := ""; ; pages++ {
			page := b.get(path + "?limit=2&cursor=" + cursor).is(200)
			for _, item := range page.data() {
				event := item.(map[string]any)
				got = append(got, event["type"].(string)+" "+event["id"].(string))
				told = append(told, event["sequence"])
				require.Equal(b.t, call.ID, event["call"].(map[string]any)["id"])
			}
			require.Equal(b.t, len(page.data()), int(page.json()["count"].(float64)))
			next, more := page.json()["next_cursor"].(string)
			require.Equal(b.t, more, page.json()["has_more"])
			if !more {
				break
			}
			cursor = next
		}
		require.Equal(b.t, want, got)
		require.Equal(b.t, []any{1.0, 2.0, nil, 3.0, 4.0}, told, "call.dtmf is kept and not told")
		require.Equal(b.t, 2, pages)
		for _, cursor := range []string{"x", "-1", "1.5", "99999999999999999999"} {
			b.get(path+"?cursor="+cursor).refused(codeInvalidRequest, "cursor")
		}
		b.get(path+"?limit=201").refused(codeInvalidRequest, "limit")
		b.get(path+"?kind=call.created").refused(codeInvalidRequest, "kind")
		b.get("/v1/calls/call_unknown/events").refused(codeNotFound, "")
	})
}

// TestListLegsAndRecordings shows the other parties and the recordings of a call, with null where something is not known yet.
func TestListLegsAndRecordings(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		ctx := b.t.Context()
		app := modelstest.Application(b.t, b.store, b.customer)
		call := b.callOf(app, models.CallInProgress)
		now := b.store.Now().Truncate(time.Second)
		trunk := modelstest.OutboundTrunk(b.t, b.store, b.customer)
		ended := &models.Leg{
			CallID: call.ID, CustomerID: b.customer.ID, ChannelID: "channel-1", Kind: "dial", To: "+31201111111", TrunkID: &trunk.ID, Status: "ended",
			DialStatus: "busy", Reason: "busy", Cause: "USER_BUSY", Q850: 17, SIPCode: 486, EndedAt: &now,
		}
		ringing := &models.Leg{CallID: call.ID, CustomerID: b.customer.ID, ChannelID: "channel-2", Kind: "transfer", To: "sip:a@b.example", Status: "ringing", RingingAt: &now}
		for _, leg := range []*models.Leg{ended, ringing} {
			require.NoError(b.t, b.store.SaveLeg(ctx, leg))
		}
		got := b.get("/v1/calls/" + call.ID + "/legs").is(200).data()
		require.Len(b.t, got, 2)
		first, second := got[0].(map[string]any), got[1].(map[string]any)
		for field, want := range (object{
			"id": ended.ID, "call_id": call.ID, "kind": "dial", "to": "+31201111111", "trunk_id": trunk.ID, "status": "ended", "dial_status": "busy",
			"reason": "busy", "cause": "USER_BUSY", "q850": 17.0, "sip_code": 486.0, "answered_by": nil, "ringing_at": nil, "ended_at": stamp(now),
		}) {
			require.Equal(b.t, want, first[field], field)
		}
		for field, want := range (object{"kind": "transfer", "status": "ringing", "trunk_id": nil, "dial_status": nil, "sip_code": nil, "ended_at": nil, "ringing_at": stamp(now)}) {
			require.Equal(b.t, want, second[field], field)
		}

		recording := &models.Recording{CallID: call.ID, CustomerID: b.customer.ID, Status: models.RecordingAvailable, Format: "wav", Path: "/never/shown.wav", Channels: 2, Seconds: 3.5, EndedAt: &now}
		require.NoError(b.t, b.store.SaveRecording(ctx, recording))
		rows := b.get("/v1/calls/" + call.ID + "/recordings").is(200)
		require.NotContains(b.t, string(rows.body), "never", "where a file is on a node is nobody's business")
		require.Equal(b.t, []any{recording.ID, "available", "wav", 2.0, 3.5}, pick(rows.data()[0], "id", "status", "format", "channels", "seconds"))
		for _, what := range []string{"legs", "recordings"} {
			b.get("/v1/calls/call_unknown/"+what).refused(codeNotFound, "")
			require.Empty(b.t, b.get("/v1/calls/"+b.callOf(app, models.CallDialing).ID+"/"+what).is(200).data())
		}
	})
}

// pick returns some members of a JSON object.
func pick(item any, names ...string) []any {
	var values []any
	for _, name := range names {
		values = append(values, item.(map[string]any)[name])
	}
	return values
}

// TestApplicationLists: lists are checked whole when they are stored, come back with their defaults, and null removes them.
func TestApplicationLists(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		base := func(more object) object {
			body := object{"name": "a", "answer_url": "https://a.example/"}
			for name, value := range more {
				body[name] = value
			}
			return body
		}
		say := object{"action": "say", "text": "Sorry"}
		for name, test := range map[string]struct {
			body        object
			field, path string
		}{
			"fallback empty":    {object{"fallback_actions": []any{}}, "fallback_actions", ""},
			"fallback field":    {object{"fallback_actions": []object{say, {"action": "say"}}}, "fallback_actions", "fallback_actions[1].say.text"},
			"wait too long":     {object{"wait_actions": repeat(say, 21)}, "wait_actions", "wait_actions"},
			"wait with gather":  {object{"wait_actions": []object{{"action": "gather"}}}, "wait_actions", "wait_actions[0].gather"},
			"wait with a loop":  {object{"wait_actions": []object{{"action": "say", "text": "a", "loop": 0}}}, "wait_actions", "wait_actions[0].say.loop"},
			"fallback a string": {object{"fallback_actions": "say"}, "fallback_actions", "fallback_actions"},
			"kind unknown":      {object{"events": []string{"call.created", "call.creeted"}}, "events", ""},
			"events a string":   {object{"events": "*"}, "events", ""},
		} {
			got := b.post("/v1/applications", base(test.body)).refused(codeInvalidRequest, test.field)
			path, _ := got.json()["error"].(map[string]any)["path"].(string)
			require.Equal(b.t, test.path, path, name)
		}
		require.Empty(b.t, b.get("/v1/applications").data())

		app := b.post("/v1/applications", base(nil)).is(201)
		require.Equal(b.t, []any{nil, nil, nil}, pick(app.json(), "fallback_actions", "wait_actions", "events"))
		path := "/v1/applications/" + app.str("id")
		got := b.patch(path, object{"fallback_actions": []object{say}, "wait_actions": []object{{"action": "pause"}}, "events": []string{"call.*", "leg.ended"}}).is(200)
		require.Equal(b.t, "Sorry", got.json()["fallback_actions"].([]any)[0].(map[string]any)["text"])
		require.Equal(b.t, []any{"call.*", "leg.ended"}, got.json()["events"])
		require.Equal(b.t, string(got.body), string(b.get(path).is(200).body))
		b.patch(path, object{"name": "b"}).is(200)
		require.Equal(b.t, []any{"call.*", "leg.ended"}, b.get(path).json()["events"], "what a PATCH does not name stays")
		require.Equal(b.t, []any{}, b.patch(path, object{"events": []string{}}).is(200).json()["events"], "no events at all, which is not the default")
		got = b.patch(path, object{"fallback_actions": nil, "wait_actions": nil, "events": nil}).is(200)
		require.Equal(b.t, []any{nil, nil, nil}, pick(got.json(), "fallback_actions", "wait_actions", "events"))
	})
}

func repeat(item any, n int) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = item
	}
	return list
}

// TestTestWebhook queues a webhook.test, whatever kinds the application wants.
func TestTestWebhook(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		b.patch("/v1/applications/"+app.ID, object{"events": []string{}}).is(200)
		id := b.post("/v1/applications/"+app.ID+"/test-webhook", nil).is(202).str("event_id")
		claimed, err := b.store.ClaimStreams(b.t.Context(), "worker", time.Minute, 10, 10, 10)
		require.NoError(b.t, err)
		require.Len(b.t, claimed, 1)
		require.Equal(b.t, []string{id, webhooks.KindTest}, []string{claimed[0].Event.ID, claimed[0].Event.Type})
		b.patch("/v1/applications/"+app.ID, object{"webhook_url": nil}).is(200)
		b.post("/v1/applications/"+app.ID+"/test-webhook", nil).refused(codeNoWebhookURL, "webhook_url")
		b.post("/v1/applications/app_unknown/test-webhook", nil).refused(codeNotFound, "")
	})
}
