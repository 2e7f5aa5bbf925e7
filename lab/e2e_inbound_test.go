package lab_test

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// inbound is a customer with an inbound trunk at one of the carrier's addresses and a DID for an application.
func (s *system) did(t *testing.T, app *application, number string) {
	t.Helper()
	s.make(t, s.customer, "/v1/dids", object{"number_e164": number, "application_id": app.id})
	s.reaches(t, number)
}

// reaches waits until the node knows a number: its dialplan is reloaded a moment after the API has answered.
func (s *system) reaches(t *testing.T, number string) {
	t.Helper()
	require.Eventually(t, func() bool {
		reply, err := s.node.Probe(t).API(t.Context(), "xml_locate dialplan context name did_"+number[len(number)-3:])
		return err == nil && containsDigits(reply, number)
	}, 20*time.Second, 50*time.Millisecond, "the node never learned of %s", number)
}

// inboundTrunk lets the carrier's first address call the customer's numbers.
func (s *system) inboundTrunk(t *testing.T, addr string) {
	t.Helper()
	trunk := s.make(t, s.customer, "/v1/trunks", object{"name": "in " + addr, "inbound_ip": addr})
	require.Equal(t, "inbound", trunk["direction"])
}

func testInboundGather(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "gather", nil, func(q question) any {
		if q.kind() == "answer" {
			return []object{{"action": "gather", "num_digits": 4, "timeout": 10, "prompt": []object{
				{"action": "say", "text": "Please type your number, one digit after the other, and take all the time that you need."},
			}}}
		}
		return []object{{"action": "say", "text": "Goodbye."}, {"action": "hangup"}}
	})
	s.did(t, app, "+15557000001")
	leg, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230001", To: "+15557000001", NodeSIP: s.node.SIPAddr, App: lab.Types(2*time.Second, "4321")})
	require.NoError(t, err)
	call := app.first(soon(t), t, "call.answered").part("call")
	require.Equal(t, "inbound", call["direction"])
	require.Equal(t, "+15551230001", call["from"])
	require.Equal(t, "+15557000001", call["to"])
	end, events := app.ended(soon(t), t, s, call.text("id"))
	require.Equal(t, "call.completed", end.text("type"))
	require.Equal(t, "call.ringing", events[0].text("type"))
	require.Equal(t, "actions", end.part("call")["hangup_source"])
	asked := app.asked(call.text("id"))
	require.Len(t, asked, 2)
	require.Equal(t, "4321", asked[1].result().text("digits"))
	outcome, err := leg.Ended(soon(t))
	require.NoError(t, err)
	require.True(t, outcome.Answered)
	require.Equal(t, "recv_bye", outcome.HungUpBy)
	require.Equal(t, "NORMAL_CLEARING", outcome.Cause)
}

func testCallerHangsUp(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "mid-prompt", nil, func(question) any {
		return says("This is a long prompt, which goes on and on, and whose end nobody will ever hear, because the caller hangs up long before it has been spoken to its very end.")
	})
	s.did(t, app, "+15557000002")
	_, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230002", To: "+15557000002", NodeSIP: s.node.SIPAddr, App: lab.HangsUp(1500 * time.Millisecond)})
	require.NoError(t, err)
	call := app.first(soon(t), t, "call.answered").part("call")
	end, _ := app.ended(soon(t), t, s, call.text("id"))
	require.Equal(t, "call.completed", end.text("type"))
	require.Equal(t, "caller", end.part("call")["hangup_source"])
	require.Equal(t, "caller_hangup", end.part("call")["reason"])
	require.Len(t, app.asked(call.text("id")), 1)
}

// testRecordedMessage lets a caller leave a message that a key ends.
func testRecordedMessage(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "message", nil, func(q question) any {
		if q.kind() == "answer" {
			return []object{{"action": "record", "max_seconds": 20, "silence_seconds": 0, "result_url": "/answer"}}
		}
		return []object{{"action": "hangup"}}
	})
	s.did(t, app, "+15557000003")
	_, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230003", To: "+15557000003", NodeSIP: s.node.SIPAddr, App: lab.Types(5*time.Second, "#")})
	require.NoError(t, err)
	call := app.first(soon(t), t, "call.answered").part("call")
	app.ended(soon(t), t, s, call.text("id"))
	asked := app.asked(call.text("id"))
	require.Len(t, asked, 2)
	require.Equal(t, "key", asked[1].result().text("outcome"))
	length, _ := listen(t, s.recording(asked[1].result().text("recording_id")))
	// The caller's side sends nothing while it is silent; the silence is in the recording all the same.
	require.InDelta(t, 4, length, 2)
}

func testDialAnswered(t *testing.T, s *system) {
	result := s.dial(t, "+15557000004", "+15550800701")
	require.Equal(t, "answered", result["dial_status"])
	seconds, _ := result["seconds"].(float64)
	require.InDelta(t, 2, seconds, 1.5)
}

func testDialBusy(t *testing.T, s *system) {
	result := s.dial(t, "+15557000005", "+15550800486")
	require.Equal(t, "busy", result["dial_status"])
	require.Equal(t, 486.0, result["sip_code"])
}

// dial lets a caller in, connects it to a second leg and returns what the application was told of that leg. The call goes on after it.
func (s *system) dial(t *testing.T, number, to string) object {
	t.Helper()
	app := s.newApplication(t, s.customer, "dial "+to, nil, func(q question) any {
		if q.kind() == "answer" {
			return []object{{"action": "answer"}, {"action": "dial", "to": to, "result_url": "/answer"}}
		}
		return []object{{"action": "say", "text": "The other party is gone."}, {"action": "hangup"}}
	})
	s.did(t, app, number)
	leg, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230004", To: number, NodeSIP: s.node.SIPAddr})
	require.NoError(t, err)
	call := app.first(soon(t), t, "call.answered").part("call")
	end, _ := app.ended(soon(t), t, s, call.text("id"))
	require.Equal(t, "completed", end.part("call")["status"])
	require.Equal(t, "actions", end.part("call")["hangup_source"])
	outcome, err := leg.Ended(soon(t))
	require.NoError(t, err)
	require.True(t, outcome.Answered)
	asked := app.asked(call.text("id"))
	require.Len(t, asked, 2)
	return asked[1].result()
}

// testRejected refuses a call with the status that the application chose.
func testRejected(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "reject", nil, func(question) any { return []object{{"action": "reject", "reason": "busy"}} })
	s.did(t, app, "+15557000006")
	leg, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230006", To: "+15557000006", NodeSIP: s.node.SIPAddr})
	require.NoError(t, err)
	outcome, err := leg.Ended(soon(t))
	require.NoError(t, err)
	require.False(t, outcome.Answered)
	require.Equal(t, 486, outcome.SIPCode)
	call := app.first(soon(t), t, "call.failed").part("call")
	end, _ := app.ended(soon(t), t, s, call.text("id"))
	require.Equal(t, "actions", end.part("call")["hangup_source"])
}

// testUninvited calls in from an address that is nobody's, and from a known one to a number that is nobody's: refused by the switch
// itself, and the controller never sees either.
func testUninvited(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "uninvited", nil, func(question) any { return says("never") })
	s.did(t, app, "+15557000007")
	other := s.newCustomer(t, "neighbour")
	theirs := s.newApplication(t, other, "theirs", nil, func(question) any { return says("never") })
	s.make(t, other, "/v1/dids", object{"number_e164": "+15557000008", "application_id": theirs.id})
	s.reaches(t, "+15557000008")

	watch := s.node.Probe(t)
	require.NoError(t, watch.Subscribe(t.Context(), "CHANNEL_PARK", "CHANNEL_HANGUP_COMPLETE"))
	for name, tc := range map[string]struct {
		request lab.Request
		status  int
	}{
		"a stranger to a known number":            {lab.Request{To: "+15557000007", Local: "127.0.0.2"}, http.StatusForbidden},
		"a stranger to an unknown number":         {lab.Request{To: "+15557999999", Local: "127.0.0.3"}, http.StatusForbidden},
		"a known address to an unknown number":    {lab.Request{To: "+15557999999"}, http.StatusNotFound},
		"a known address to a neighbour's number": {lab.Request{To: "+15557000008"}, http.StatusNotFound},
		"a gateway's parameter":                   {lab.Request{To: "acme", Local: "127.0.0.2", URI: "sip:acme@" + s.node.SIPAddr + ";gw=acme"}, http.StatusForbidden},
		"a number with a twist":                   {lab.Request{To: "15557000007;x=1", Local: "127.0.0.3"}, http.StatusForbidden},
		"an extension of the dialplan":            {lab.Request{To: "park", Local: "127.0.0.3"}, http.StatusForbidden},
	} {
		r := tc.request
		r.NodeSIP, r.From = s.node.SIPAddr, "uninvited"
		status, err := lab.SendRequest(seconds(t, 20), r)
		require.NoError(t, err, name)
		require.Equal(t, tc.status, status, name)
		for {
			event, err := watch.Next(seconds(t, 20))
			require.NoError(t, err, name)
			if event.Event("Caller-Caller-ID-Number") != "uninvited" {
				continue // another test's call
			}
			require.Equal(t, "CHANNEL_HANGUP_COMPLETE", event.Event("Event-Name"), name)
			break
		}
	}
	status, list := s.ask(t, s.customer, http.MethodGet, "/v1/calls?application_id="+app.id, nil)
	require.Equal(t, http.StatusOK, status)
	require.Empty(t, list["data"])
	require.Empty(t, app.events)
	require.Empty(t, theirs.events)
}

// testControllerKilled kills the controller in the middle of a call. The call goes on without it, and numbers that need no controller are
// routed; the next controller goes on with the call's list, to its one terminal event, and what the switch was busy with is paid.
func testControllerKilled(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "killed", nil, func(question) any {
		return []object{{"action": "pause", "seconds": 30}, {"action": "notify", "payload": object{"still": "here"}}, {"action": "hangup"}}
	})
	call := s.callFrom(t, app, "+15550900001", nil)
	app.until(soon(t), t, call.text("id"), "call.answered")
	s.make(t, s.customer, "/v1/dids", object{"number_e164": "+15557000010", "route_mode": "reject", "reject_code": 480})
	s.make(t, s.customer, "/v1/dids", object{"number_e164": "+15557000011", "route_mode": "sip", "sip_uri": "sip:+15550900701@" + s.carrier.SIPAddr})
	s.reaches(t, "+15557000010")
	s.reaches(t, "+15557000011")

	s.stop(syscall.SIGKILL)
	for to, want := range map[string]lab.Outcome{
		"+15557000010": {Cause: "NO_USER_RESPONSE", SIPCode: 480},
		"+15557000011": {Answered: true, Cause: "NORMAL_CLEARING", HungUpBy: "recv_bye"},
	} {
		leg, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230010", To: to, NodeSIP: s.node.SIPAddr})
		require.NoError(t, err)
		outcome, err := leg.Ended(soon(t))
		require.NoError(t, err)
		if outcome.Answered {
			outcome.SIPCode = 0
		} else {
			outcome.HungUpBy = ""
		}
		require.Equal(t, want, outcome, "number %s while no controller lives", to)
	}
	s.start(t)
	// A webhook that was under way when its worker died is repeated when the worker's claim has run out, after 45 s.
	end, events := app.ended(seconds(t, 120), t, s, call.text("id"))
	t.Logf("%v: %v", kinds(events), end.part("call"))
	require.Equal(t, "call.completed", end.text("type"))
	require.Equal(t, "completed", end.part("call")["reason"])
	require.Equal(t, "actions", end.part("call")["hangup_source"])
	require.Contains(t, kinds(events), "call.notify", "the list goes on behind the pause")
	require.Positive(t, end.part("call").number("billed_seconds"))
	require.Positive(t, end.part("call").number("cost_micros"))
}

// testNodeKilled kills the switch in the middle of a call and starts it again. The call is told to have ended as soon as the switch is
// known to be another one, and the node takes calls again, with its trunks registered, without anybody's help.
func testNodeKilled(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "node killed", nil, func(question) any {
		return []object{{"action": "pause", "seconds": 60}, {"action": "hangup"}}
	})
	call := s.callFrom(t, app, "+15550900002", nil)
	app.until(soon(t), t, call.text("id"), "call.answered")
	s.node.Kill()
	require.NoError(t, s.node.Restart(t.Context()))
	end, _ := app.ended(soon(t), t, s, call.text("id"))
	require.Equal(t, "call.completed", end.text("type"))
	require.Equal(t, "node_lost", end.part("call")["reason"])
	require.Equal(t, "platform", end.part("call")["hangup_source"])

	// The API may still tell the state from before; the switch itself knows when it has registered again.
	probe := s.node.Probe(t)
	require.Eventually(t, func() bool {
		reply, err := probe.API(t.Context(), "sofia xmlstatus gateway acme")
		return err == nil && containsTag(reply, "state", "REGED")
	}, 45*time.Second, 100*time.Millisecond, "the trunk never registered again")
	again := s.callFrom(t, app, "+15550900701", nil)
	end, _ = app.ended(soon(t), t, s, again.text("id"))
	require.Equal(t, "callee_hangup", end.part("call")["reason"])
}
