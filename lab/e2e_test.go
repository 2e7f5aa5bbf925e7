package lab_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// The main job on a real FreeSWITCH: one installation, one carrier, and every way a call can go. The calls run at the same
// time, as they would.
func TestFreeSWITCHEndToEnd(t *testing.T) {
	t.Parallel()
	s := startSystem(t, lab.Options{})

	// First, since the calls need it.
	began := time.Now()
	s.outboundTrunk(t, s.customer, "acme", lab.CarrierPassword, "REGED")
	t.Logf("trunk registered %s after it was created", time.Since(began).Round(time.Millisecond))
	s.inboundTrunk(t, "127.0.0.1")

	t.Run("calls", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *system){
			"wrong password":                testWrongPassword,
			"outbound outcomes":             testOutboundOutcomes,
			"canceled while ringing":        testCanceledWhileRinging,
			"inbound gather":                testInboundGather,
			"caller hangs up mid-prompt":    testCallerHangsUp,
			"recorded call":                 testRecordedCall,
			"recorded message":              testRecordedMessage,
			"dial answered":                 testDialAnswered,
			"dial busy":                     testDialBusy,
			"played file":                   testPlayedFile,
			"rejected":                      testRejected,
			"uninvited":                     testUninvited,
			"hostile":                       testHostile,
			"early media":                   testEarlyMedia,
			"digits that the callee types":  testCalleeTypes,
			"ten actions in three rounds":   testTenActions,
			"answer_url dead":               testFallbackURL,
			"both URLs dead":                testFallbackActions,
			"nothing to fall back on":       testNoFallback,
			"one bad field":                 testOneBadField,
			"caller canceled while ringing": testCallerCanceledWhileRinging,
			"live control":                  testLiveControl,
			"queued, started, retried":      testQueuedStartedRetried,
			"conference":                    testConference,
			"queue":                         testQueue,
			"simulation":                    testSimulation,
			"operator":                      testOperator,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, s)
			})
		}
	})

	// Last and one after the other, since they take the controller or the switch away from every call.
	t.Run("controller killed", func(t *testing.T) { testControllerKilled(t, s) }) //nolint:paralleltest // see above
	t.Run("node killed", func(t *testing.T) { testNodeKilled(t, s) })             //nolint:paralleltest // see above
	for _, command := range [][]string{{"doctor"}, {"ledger", "verify"}} {
		out, err := s.command(t, command...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

// testWrongPassword makes a trunk that cannot register, corrects it, and takes it away.
func testWrongPassword(t *testing.T, s *system) {
	other := s.newCustomer(t, "wrong")
	trunk := s.outboundTrunk(t, other, "wrong-password", "not the password", "FAIL_WAIT")
	status, answer := s.ask(t, other, http.MethodPatch, "/v1/trunks/"+trunk.text("id"), object{"password": lab.CarrierPassword})
	require.Equal(t, http.StatusOK, status, answer)
	s.trunkBecomes(t, other, trunk.text("id"), "REGED")
	status, _ = s.ask(t, other, http.MethodDelete, "/v1/trunks/"+trunk.text("id"), nil)
	require.Equal(t, http.StatusNoContent, status)
	probe := s.node.Probe(t)
	require.Eventually(t, func() bool {
		reply, err := probe.API(t.Context(), "sofia xmlstatus gateway wrong-password")
		return err == nil && strings.Contains(reply, "Invalid Gateway")
	}, 20*time.Second, 50*time.Millisecond, "the gateway of a deleted trunk is still on the node")
}

// testOutboundOutcomes calls the carrier's numbers and compares how each call is told to have ended.
func testOutboundOutcomes(t *testing.T, s *system) {
	for name, tc := range map[string]struct {
		to      string
		more    object
		actions any
		// want is the end of the call.
		want object
		kind string
	}{
		"answered, we hang up": {
			to: "+15550200001", actions: []object{{"action": "say", "text": "Hello and goodbye."}, {"action": "hangup"}}, kind: "call.completed",
			want: object{"status": "completed", "reason": "completed", "hangup_source": "actions", "cause": "NORMAL_CLEARING", "sip_code": 200.0},
		},
		"answered, they hang up": {
			to: "+15550200701", actions: []object{{"action": "pause", "seconds": 30}}, kind: "call.completed",
			want: object{"status": "completed", "reason": "callee_hangup", "hangup_source": "callee", "cause": "NORMAL_CLEARING", "sip_code": 200.0},
		},
		"busy": {
			to: "+15550200486", kind: "call.failed",
			want: object{"status": "busy", "reason": "busy", "hangup_source": "callee", "cause": "USER_BUSY", "sip_code": 486.0},
		},
		"not found": {
			to: "+15550200404", kind: "call.failed",
			want: object{"status": "failed", "reason": "invalid_number", "hangup_source": "carrier", "cause": "UNALLOCATED_NUMBER", "sip_code": 404.0},
		},
		"declined": {
			to: "+15550200603", kind: "call.failed",
			want: object{"status": "rejected", "reason": "declined", "hangup_source": "callee", "cause": "CALL_REJECTED", "sip_code": 603.0},
		},
		"unavailable": {
			to: "+15550200503", kind: "call.failed",
			want: object{"status": "failed", "reason": "carrier_error", "hangup_source": "carrier", "cause": "NORMAL_TEMPORARY_FAILURE", "sip_code": 503.0},
		},
		"unanswered": {
			to: "+15550200180", more: object{"timeout": 5}, kind: "call.failed",
			want: object{"status": "no_answer", "reason": "no_answer"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := s.newApplication(t, s.customer, name, nil, func(question) any { return tc.actions })
			call := s.callFrom(t, app, tc.to, tc.more)
			end, events := app.ended(soon(t), t, s, call.text("id"))
			t.Logf("%v: %v", kinds(events), end.part("call"))
			require.Equal(t, tc.kind, end.text("type"))
			require.Equal(t, "call.created", events[0].text("type"))
			for field, want := range tc.want {
				require.Equal(t, want, end.part("call")[field], field)
			}
			require.Equal(t, end.part("call")["reason"], end.part("data")["reason"])
			if tc.kind == "call.failed" {
				require.Empty(t, app.asked(call.text("id")), "the answer_url of an outbound call is asked after the answer")
				require.Zero(t, end.part("call").number("cost_micros"))
			} else {
				require.Positive(t, end.part("call").number("cost_micros"))
				require.Contains(t, kinds(events), "call.answered")
			}
		})
	}
}

func testCanceledWhileRinging(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "canceled", nil, func(question) any { return says("never") })
	call := s.callFrom(t, app, "+15550300180", nil)
	app.until(soon(t), t, call.text("id"), "call.ringing")
	status, answer := s.ask(t, customer{key: app.key}, http.MethodPost, "/v1/calls/"+call.text("id")+"/cancel", nil)
	require.Equal(t, http.StatusAccepted, status, answer)
	end, events := app.ended(soon(t), t, s, call.text("id"))
	t.Logf("%v: %v", kinds(events), end.part("call"))
	require.Equal(t, "call.failed", end.text("type"))
	for field, want := range map[string]any{"status": "canceled", "reason": "canceled", "hangup_source": "api", "cause": "ORIGINATOR_CANCEL", "sip_code": 487.0} {
		require.Equal(t, want, end.part("call")[field], field)
	}
	require.Zero(t, end.part("call").number("cost_micros"))
}

// testRecordedCall records a whole call in which the other side sounds a tone: the file is there, and one hears the tone.
func testRecordedCall(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "recorded", nil, func(question) any {
		return []object{{"action": "pause", "seconds": 3}, {"action": "hangup"}}
	})
	call := s.callFrom(t, app, "+15550400702", object{"record": true})
	require.Equal(t, true, call["record"])
	end, events := app.ended(soon(t), t, s, call.text("id"))
	require.Equal(t, "call.completed", end.text("type"))
	require.Contains(t, kinds(events), "recording.available")
	for _, event := range events {
		if event.text("type") == "recording.available" {
			length, loudness := listen(t, s.recording(event.part("data").text("recording_id")))
			require.InDelta(t, 3, length, 1.5)
			require.Greater(t, loudness, 500.0)
		}
	}
}

// recording is the file of a recording on the node.
func (s *system) recording(id string) string {
	return filepath.Join(s.node.ConfDir, "tandem", "recordings", id+".wav")
}

// testPlayedFile plays a file of the customer's, which Tandem fetches and the switch hears only from its own disk.
func testPlayedFile(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "played", map[string][]byte{"tone.wav": tone(2 * time.Second)}, nil)
	app.answer = func(question) any {
		return []object{{"action": "play", "url": app.url + "/files/tone.wav"}, {"action": "hangup"}}
	}
	call := s.callFrom(t, app, "+15550400001", object{"record": true})
	end, events := app.ended(soon(t), t, s, call.text("id"))
	require.Equal(t, "call.completed", end.text("type"))
	require.Equal(t, "completed", end.part("call")["reason"])
	require.NotContains(t, kinds(events), "call.error")
	for _, event := range events {
		if event.text("type") == "recording.available" {
			length, loudness := listen(t, s.recording(event.part("data").text("recording_id")))
			require.Greater(t, length, 1.5)
			require.Greater(t, loudness, 500.0)
		}
	}
	media, err := os.ReadDir(filepath.Join(s.node.ConfDir, "tandem", "media"))
	require.NoError(t, err)
	require.NotEmpty(t, media)
}

// testEarlyMedia calls a number that sounds a tone before it answers.
func testEarlyMedia(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "early", nil, func(question) any { return []object{{"action": "pause", "seconds": 30}} })
	call := s.callFrom(t, app, "+15550500183", nil)
	end, events := app.ended(soon(t), t, s, call.text("id"))
	require.Equal(t, "call.completed", end.text("type"))
	require.Equal(t, []string{"call.created", "call.ringing", "call.answered"}, kinds(events)[:3])
}

// testCalleeTypes calls a number that answers and types digits, which the application is asked about.
func testCalleeTypes(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "callee types", nil, func(q question) any {
		if q.kind() == "answer" {
			return []object{{"action": "gather", "max_digits": 6, "timeout": 10}}
		}
		return []object{{"action": "hangup"}}
	})
	call := s.callFrom(t, app, "+15550600700", nil)
	app.ended(soon(t), t, s, call.text("id"))
	asked := app.asked(call.text("id"))
	require.Len(t, asked, 2)
	require.Equal(t, "1234", asked[1].result().text("digits"))
	require.Equal(t, "#", asked[1].result().text("terminator"))
}
