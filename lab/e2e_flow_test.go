package lab_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// testTenActions walks a caller through ten actions that the application gives in three rounds.
func testTenActions(t *testing.T, s *system) {
	rounds := [][]object{
		{
			{"action": "answer"},
			{"action": "set", "variables": object{"tier": "gold"}},
			{"action": "say", "text": "Welcome."},
			{"action": "gather", "id": "menu", "num_digits": 2, "timeout": 10, "result_url": "/answer", "prompt": []object{{"action": "say", "text": "Please type two digits."}}},
			{"action": "say", "text": "Never heard: the result replaces the list."},
		},
		{
			{"action": "notify", "payload": object{"step": "two"}},
			{"action": "play", "tone": "beep"},
			{"action": "record_call"},
			{"action": "pause", "seconds": 0.5},
			{"action": "dtmf", "digits": "5"},
			{"action": "dial", "id": "agent", "to": "+15550810701", "result_url": "/answer"},
		},
		{
			{"action": "record_call", "op": "stop"},
			{"action": "say", "text": "Goodbye."},
			{"action": "hangup"},
		},
	}
	app := s.newApplication(t, s.customer, "ten actions", nil, func(q question) any {
		switch q.result().text("id") {
		case "":
			return rounds[0]
		case "menu":
			return object{"actions": rounds[1], "variables": object{"round": "two"}}
		default:
			return rounds[2]
		}
	})
	s.change(t, app, object{"events": []string{"*"}})
	s.did(t, app, "+15557000020")
	// A digit that it receives would end the sleep of lab.Types, and with it the call.
	leg, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230020", To: "+15557000020", NodeSIP: s.node.SIPAddr, App: "'sleep:3000,send_dtmf:42@200,park' inline"})
	require.NoError(t, err)
	call := app.first(soon(t), t, "call.answered").part("call").text("id")
	end, events := app.ended(soon(t), t, s, call)
	outcome, err := leg.Ended(soon(t))
	require.NoError(t, err)
	t.Logf("%v: %v", kinds(events), end.part("call"))
	require.Equal(t, lab.Outcome{Answered: true, Cause: "NORMAL_CLEARING", HungUpBy: "recv_bye"}, outcome)
	require.Equal(t, "completed", end.part("call").text("reason"))

	asked := app.asked(call)
	require.Len(t, asked, 3)
	require.Equal(t, "42", asked[1].result().text("digits"))
	require.Equal(t, "gold", asked[1].part("variables").text("tier"))
	require.Equal(t, "answered", asked[2].result().text("dial_status"))
	require.Equal(t, []any{"gold", "two"}, []any{asked[2].part("variables")["tier"], asked[2].part("variables")["round"]})
	require.Equal(t, "two", end.part("variables").text("round"))

	var done []string
	for _, event := range events {
		if event.text("type") == "call.action_completed" {
			done = append(done, event.part("data").text("action"))
		}
	}
	require.Equal(t, []string{
		"answer", "set", "say", "gather", "notify", "play", "record_call", "pause", "dtmf", "dial", "record_call", "say",
	}, done, "a hangup is told by the call's end")
	for _, kind := range []string{"call.ringing", "call.answered", "call.dtmf", "call.notify", "recording.started", "leg.ringing", "leg.answered", "leg.ended", "recording.available"} {
		require.Contains(t, kinds(events), kind)
	}
	require.Equal(t, "call.completed", events[len(events)-1].text("type"))

	status, list := s.ask(t, customer{key: app.key}, http.MethodGet, "/v1/calls/"+call+"/events?limit=200", nil)
	require.Equal(t, http.StatusOK, status)
	var journal []string
	for _, item := range list["data"].([]any) {
		journal = append(journal, object(item.(map[string]any)).text("id"))
	}
	delivered := make([]string, 0, len(events))
	for _, event := range events {
		delivered = append(delivered, event.text("id"))
	}
	require.Equal(t, journal, delivered, "all that is in the journal was delivered, in that order")
	legs := s.list(t, app, "/v1/calls/"+call+"/legs")
	require.Len(t, legs, 1)
	require.Equal(t, []any{"dial", "+15550810701", "ended", "answered"}, []any{legs[0]["kind"], legs[0]["to"], legs[0]["status"], legs[0]["dial_status"]})
	recordings := s.list(t, app, "/v1/calls/"+call+"/recordings")
	require.Len(t, recordings, 1)
	require.Equal(t, []any{"available", 2.0}, []any{recordings[0]["status"], recordings[0]["channels"]})
	length, _ := listen(t, s.recording(recordings[0].text("id")))
	require.InDelta(t, recordings[0]["seconds"], length, 0.5)
	require.Greater(t, length, 2.0, "the dialled party stayed for two seconds")
}

// list asks for a list and returns its items.
func (s *system) list(t *testing.T, a *application, path string) []object {
	t.Helper()
	status, answer := s.ask(t, customer{key: a.key}, http.MethodGet, path, nil)
	require.Equal(t, http.StatusOK, status, answer)
	items, ok := answer["data"].([]any)
	require.True(t, ok, answer)
	list := make([]object, 0, len(items))
	for _, item := range items {
		list = append(list, item.(map[string]any))
	}
	return list
}

// testFallbackURL lets an answer_url fail: the fallback_url says what the call does, and the customer is told.
func testFallbackURL(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "fallback url", nil, func(q question) any {
		if q.path == "/answer" {
			return failure(http.StatusServiceUnavailable)
		}
		return []object{{"action": "say", "text": "We are sorry."}, {"action": "hangup"}}
	})
	s.change(t, app, object{"fallback_url": app.url + "/fallback"})
	s.did(t, app, "+15557000021")
	leg, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230021", To: "+15557000021", NodeSIP: s.node.SIPAddr})
	require.NoError(t, err)
	call := app.first(soon(t), t, "call.answered").part("call").text("id")
	end, events := app.ended(soon(t), t, s, call)
	outcome, err := leg.Ended(soon(t))
	require.NoError(t, err)
	require.True(t, outcome.Answered)
	require.Equal(t, []any{"completed", "actions"}, []any{end.part("call")["reason"], end.part("call")["hangup_source"]})
	told := oneError(t, events)
	for name, want := range (object{"code": "answer_url_failed", "url": app.url + "/answer", "status": 503.0, "attempts": 2.0, "next": "fallback_url"}) {
		require.Equal(t, want, told[name], name)
	}
	asked := app.asked(call)
	require.Len(t, asked, 3)
	require.Equal(t, []string{"/answer", "/answer", "/fallback"}, []string{asked[0].path, asked[1].path, asked[2].path})
	require.Equal(t, asked[0].text("request_id"), asked[2].text("request_id"), "one request, told at three places")
}

// testFallbackActions lets both URLs fail, one of them by not being there: the stored actions run.
func testFallbackActions(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "fallback actions", nil, func(question) any { return failure(http.StatusInternalServerError) })
	s.change(t, app, object{
		"fallback_url":     "http://" + freeAddr(t) + "/nobody",
		"fallback_actions": []object{{"action": "say", "text": "We are sorry. Please call again later."}, {"action": "pause", "seconds": 0.2}},
	})
	s.did(t, app, "+15557000022")
	leg, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230022", To: "+15557000022", NodeSIP: s.node.SIPAddr})
	require.NoError(t, err)
	call := app.first(soon(t), t, "call.answered").part("call").text("id")
	end, events := app.ended(soon(t), t, s, call)
	outcome, err := leg.Ended(soon(t))
	require.NoError(t, err)
	require.True(t, outcome.Answered, "the caller hears the fallback")
	require.Equal(t, "completed", end.part("call")["status"])
	var next []any
	for _, event := range events {
		if event.text("type") == "call.error" {
			next = append(next, event.part("data")["next"])
		}
	}
	require.Equal(t, []any{"fallback_url", "fallback_actions"}, next)
	require.Positive(t, end.part("call").number("billed_seconds"))
}

// testNoFallback lets the only URL fail: a caller who was not answered is refused.
func testNoFallback(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "no fallback", nil, func(question) any { return failure(http.StatusBadGateway) })
	s.did(t, app, "+15557000023")
	s.refused(t, app, "+15557000023", object{"code": "answer_url_failed", "status": 502.0, "attempts": 2.0, "next": "end"})
}

// testOneBadField answers with a list whose third action has one bad field: nothing of it runs.
func testOneBadField(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "one bad field", nil, func(question) any {
		return []object{
			{"action": "answer"}, {"action": "say", "text": "Never heard."},
			{"action": "gather", "id": "menu", "prompt": []object{{"action": "say", "text": "Two"}, {"action": "play", "url": "ftp://files.example/a.wav"}}},
			{"action": "hangup"},
		}
	})
	s.did(t, app, "+15557000024")
	s.refused(t, app, "+15557000024", object{
		"code": "invalid_actions", "status": 200.0, "index": 2.0, "action": "play", "field": "url", "path": "actions[2].gather.prompt[1].play.url", "next": "end",
	})
}

// refused calls a number whose application fails and sees the caller refused with 503, nothing run, and the customer told why.
func (s *system) refused(t *testing.T, app *application, number string, told object) {
	t.Helper()
	s.change(t, app, object{"events": []string{"*"}})
	leg, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230023", To: number, NodeSIP: s.node.SIPAddr})
	require.NoError(t, err)
	outcome, err := leg.Ended(soon(t))
	require.NoError(t, err)
	require.False(t, outcome.Answered)
	require.Equal(t, http.StatusServiceUnavailable, outcome.SIPCode)
	call := app.first(soon(t), t, "call.failed").part("call").text("id")
	end, events := app.ended(soon(t), t, s, call)
	require.Equal(t, []string{"call.ringing", "call.error", "call.failed"}, kinds(events))
	require.Equal(t, "answer_url_failed", end.part("call")["reason"])
	require.Zero(t, end.part("call").number("cost_micros"))
	failed := oneError(t, events)
	for name, want := range told {
		require.Equal(t, want, failed[name], name)
	}
}

// testCallerCanceledWhileRinging ends an inbound call whose application has not answered yet.
func testCallerCanceledWhileRinging(t *testing.T, s *system) {
	release := make(chan struct{})
	app := s.newApplication(t, s.customer, "caller canceled", nil, func(question) any {
		<-release
		return says("too late")
	})
	defer close(release)
	s.did(t, app, "+15557000025")
	leg, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230025", To: "+15557000025", NodeSIP: s.node.SIPAddr})
	require.NoError(t, err)
	call := app.first(soon(t), t, "call.ringing").part("call").text("id")
	status, answer := s.ask(t, customer{key: app.key}, http.MethodPost, "/v1/calls/"+call+"/cancel", nil)
	require.Equal(t, http.StatusAccepted, status, answer)
	outcome, err := leg.Ended(soon(t))
	require.NoError(t, err)
	require.False(t, outcome.Answered)
	require.GreaterOrEqual(t, outcome.SIPCode, 400)
	end, events := app.ended(soon(t), t, s, call)
	require.Equal(t, []string{"call.ringing", "call.failed"}, kinds(events))
	require.Equal(t, []any{"canceled", "api"}, []any{end.part("call")["status"], end.part("call")["hangup_source"]})
}
