package calls

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// executed are the applications that the scene's switch ran, without the answer.
func (s *scene) executed() []string {
	var apps []string
	for _, line := range s.sw.log() {
		if app, ok := strings.CutPrefix(line, "execute "); ok && app != "answer" {
			apps = append(apps, app)
		}
	}
	return apps
}

func TestGatherAsksWithItsResult(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer",
			reply(`[{"action":"gather","id":"pin","max_digits":4,"valid_digits":"1234","tries":2,"prompt":[{"action":"say","text":"Your PIN, please!"}],"invalid_prompt":[{"action":"say","text":"Wrong."}]},{"action":"say","text":"never"}]`),
			reply(`[{"action":"hangup"}]`))
		typed := []string{"99", "1234"}
		s.sw.script("execute play_and_get_digits", func(c command) error {
			words := strings.Fields(c.args)
			variable := words[len(words)-3]
			s.sw.complete(c, "variable_"+variable, typed[0], "variable_read_terminator_used", "#")
			typed = typed[1:]
			return nil
		})
		s.callIn()
		call := s.end()
		require.Equal(t, ReasonCompleted, call.Reason)
		asks := s.requests()
		require.Len(t, asks, 2)
		require.Equal(t, "result", asks[1].Type)
		require.Equal(t, "/answer", asks[1].Path)
		require.Equal(t, map[string]any{
			"action": "gather", "id": "pin", "index": 0.0, "digits": "1234", "outcome": "digits", "terminator": "#", "tries": 2.0,
		}, asks[1].Result)
		apps := s.executed()
		require.Len(t, apps, 2)
		require.Equal(t, `play_and_get_digits 1 4 1 5000 # say:Your\\sPIN,\\splease\\! silence_stream://1 tandem_digits_ .* 3000`, apps[0])
		require.Contains(t, apps[1], "Wrong.")
		require.Contains(t, s.sw.log(), "setvar tts_engine=flite")
		require.Contains(t, s.sw.log(), "setvar playback_delimiter=!")
	})
}

func TestGatherOutcomes(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	for name, tt := range map[string]struct{ action, digits, key, outcome string }{
		"timeout":   {`{"action":"gather","result_url":"/result"}`, "", "", "timeout"},
		"too short": {`{"action":"gather","min_digits":3,"result_url":"result"}`, "12", "", "invalid"},
		"just #":    {`{"action":"gather","result_url":"result"}`, "", "#", "invalid"},
		"wrong key": {`{"action":"gather","valid_digits":"12","result_url":"result"}`, "13", "", "invalid"},
		"good":      {`{"action":"gather","num_digits":2,"result_url":"result"}`, "13", "", "digits"},
	} {
		s.answers("/answer", reply("["+tt.action+"]"))
		s.answers("/result", status(204))
		s.sw.script("execute play_and_get_digits", func(c command) error {
			words := strings.Fields(c.args)
			pairs := []string{"variable_" + words[len(words)-3], tt.digits}
			if tt.key != "" {
				pairs = append(pairs, "variable_read_terminator_used", tt.key)
			}
			s.sw.complete(c, pairs...)
			return nil
		})
		s.callIn()
		s.end()
		asks := s.requests()
		last := asks[len(asks)-1]
		require.Equal(t, "/result", last.Path, name)
		require.Equal(t, tt.outcome, last.Result["outcome"], name)
		require.Equal(t, tt.digits, last.Result["digits"], name)
	}
}

func TestSayAndPause(t *testing.T) {
	t.Parallel()
	still := time.Now().UTC()
	s := newScene(t, modelstest.Open(t), func(c *Config) { c.Now = func() time.Time { return still } })
	s.answers("/answer", reply(`[
		{"action":"say","text":"one","loop":2,"voice":"rms"},
		{"action":"say","text":"two","barge_in":true,"loop":3},
		{"action":"say","text":"three","loop":0},
		{"action":"say","text":"$5 {four} | 'five'"},
		{"action":"pause","seconds":1.5},
		{"action":"dtmf","digits":"12w#"},
		{"action":"set","variables":{"a":"b"}},
		{"action":"redirect","url":"/next"}]`))
	s.answers("/next", reply(`[]`))
	s.sw.script("execute speak", func(c command) error {
		pairs := []string{}
		if strings.HasSuffix(c.args, "two") {
			pairs = append(pairs, "variable_playback_terminator_used", "5")
		}
		s.sw.complete(c, pairs...)
		return nil
	})
	s.create()
	call := s.end()
	require.Equal(t, ReasonCompleted, call.Reason)
	require.Equal(t, []string{
		"speak flite|rms|one", "speak flite|rms|one", "speak flite|slt|two", "speak flite|slt|three", `speak flite|slt|$5 {four} | 'five'`,
		"playback silence_stream://1500", "send_dtmf 12w#@100",
	}, s.executed())
	require.Contains(t, s.sw.log(), "setvar playback_terminators=any")
	asks := s.requests()
	require.Equal(t, "b", asks[1].Variables["a"])
	require.Equal(t, "answer", asks[1].Type)
	require.Equal(t, map[string]string{"a": "b"}, call.Variables)
	for _, line := range s.sw.log() {
		require.NotContains(t, line, "execute set ")
		require.NotContains(t, line, "${")
	}
}

func TestPlayFetchesAndPlaysOurFile(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/tone.wav", func(w http.ResponseWriter, _ asked) { _, _ = w.Write(silentWAV()) })
	s.answers("/evil", reply("#!/bin/sh"))
	s.answers("/answer", reply(`[{"action":"play","url":["`+s.server.URL+`/tone.wav","`+s.server.URL+`/tone.wav"],"id":"p","result_url":"/result"},
		{"action":"play","url":"`+s.server.URL+`/evil"},{"action":"play","url":"`+s.server.URL+`/none"}]`))
	s.answers("/result", status(204))
	var played []byte
	s.sw.script("execute playback", func(c command) error {
		file, _, _ := strings.Cut(strings.TrimPrefix(c.args, "playback file_string://"), "!")
		var err error
		played, err = os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(s.node.ConfDir, "tandem", "media"), filepath.Dir(file))
		s.sw.complete(c, "Application-Response", "FILE PLAYED")
		return nil
	})
	s.create()
	call := s.end()
	require.Equal(t, silentWAV(), played)
	require.Equal(t, ReasonCompleted, call.Reason)
	require.Equal(t, []string{"call.created", "call.ringing", "call.answered", "call.error", "call.error", "call.completed"}, s.kinds(call.ID))
	data := s.data(call.ID, "call.error")
	require.Equal(t, []any{"action_failed", "play", "url", 1.0}, []any{data["code"], data["action"], data["field"], data["index"]})
	require.Contains(t, data["message"], "neither a WAV nor an MP3 file")
	require.NoError(t, s.manager.Stop(t.Context()))
	left, err := os.ReadDir(filepath.Join(s.node.ConfDir, "tandem", "media"))
	require.NoError(t, err)
	require.Empty(t, left, "files are removed with the last call that plays them")
}

func TestPlayEndsAfterMaxSeconds(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/tone.wav", func(w http.ResponseWriter, _ asked) { _, _ = w.Write(silentWAV()) })
	s.answers("/answer", reply(`[{"action":"play","url":"`+s.server.URL+`/tone.wav","loop":0,"max_seconds":1,"result_url":"/result"}]`))
	s.answers("/result", status(204))
	running := make(chan command, 1)
	s.sw.script("execute playback", func(c command) error { running <- c; return nil })
	s.sw.script("break", func(command) error { s.sw.complete(<-running, "Application-Response", "FILE PLAYED"); return nil })
	s.create()
	s.end()
	asks := s.requests()
	require.Equal(t, "max_seconds", asks[len(asks)-1].Result["outcome"])
}

func TestRecordAction(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", reply(`[{"action":"record","max_seconds":30,"finish_on_key":"#*","result_url":"/result"}]`))
		s.answers("/result", status(204))
		s.sw.script("execute record", func(c command) error {
			writeWAV(t, strings.Fields(c.args)[1])
			s.sw.complete(c, "variable_playback_terminator_used", "*", "variable_record_ms", "900")
			return nil
		})
		s.create()
		call := s.end()
		require.Equal(t, []string{"call.created", "call.ringing", "call.answered", "recording.started", "recording.available", "call.completed"}, s.kinds(call.ID))
		rows, err := store.RecordingsOfCall(t.Context(), s.customer.ID, call.ID)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, []any{models.RecordingAvailable, 1.0, "wav"}, []any{rows[0].Status, rows[0].Seconds, rows[0].Format})
		require.Equal(t, filepath.Join(s.node.ConfDir, "tandem", "recordings", rows[0].ID+".wav"), rows[0].Path)
		require.Equal(t, []string{"playback tone_stream://%(500,0,640)", "record " + rows[0].Path + " 30 200 5"}, s.executed())
		require.Contains(t, s.sw.log(), "setvar playback_terminators=#*")
		asks := s.requests()
		require.Equal(t, map[string]any{"action": "record", "index": 0.0, "recording_id": rows[0].ID, "seconds": 1.0, "outcome": "key", "key": "*"}, asks[1].Result)
	})
}

func TestRecordTheWholeCall(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"pause"}]`))
	s.sw.script("record_start", func(c command) error { writeWAV(t, strings.Fields(c.args)[0]); return nil })
	s.create(func(r *CreateRequest) { r.Record = true })
	call := s.end()
	require.Equal(t, []string{"call.created", "call.ringing", "call.answered", "recording.started", "recording.available", "call.completed"}, s.kinds(call.ID))

	// A switch that will not record.
	s.sw.script("record_start", func(command) error {
		return &esl.CommandError{Command: "uuid_record", Reply: "-ERR Cannot record session!"}
	})
	s.create(func(r *CreateRequest) { r.Record = true })
	call = s.end()
	require.Equal(t, []string{"call.created", "call.ringing", "call.answered", "recording.started", "recording.failed", "call.completed"}, s.kinds(call.ID))
	require.Equal(t, ReasonCompleted, call.Reason, "the call goes on")

	// A caller who hangs up while a message is recorded, and a file that the switch never wrote.
	s.answers("/answer", reply(`[{"action":"record","beep":false}]`))
	s.sw.script("execute record", func(command) error { return nil })
	s.create()
	c := s.sw.await("execute record")
	s.sw.hangup(c.channel, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
	call = s.end()
	require.Equal(t, []string{"call.created", "call.ringing", "call.answered", "recording.started", "recording.failed", "call.completed"}, s.kinds(call.ID))
	require.Equal(t, ReasonCalleeHangup, call.Reason)
}

func TestDial(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", reply(`[{"action":"dial","to":{"number":"+15550109999","send_digits":"1w2"},"timeout":20,"max_seconds":90,"result_url":"/result"}]`))
		s.answers("/result", reply(`[{"action":"hangup"}]`))
		s.sw.script("execute bridge", func(c command) error {
			leg := legOf(c.args)
			s.sw.mu.Lock()
			s.sw.channels[leg] = &fakeChannel{direction: "outbound"}
			s.sw.mu.Unlock()
			s.sw.answer(leg)
			s.sw.answer(c.channel)
			s.sw.event("CHANNEL_BRIDGE", c.channel, "Other-Leg-Unique-ID", leg)
			s.sw.hangup(leg, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye",
				"Event-Date-Timestamp", microseconds(time.Now().Add(12*time.Second)))
			s.sw.complete(c, "variable_originate_disposition", "SUCCESS", "variable_last_bridge_hangup_cause", "NORMAL_CLEARING")
			return nil
		})
		s.callIn()
		call := s.end()
		require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason})
		result := s.requests()[1].Result
		require.Equal(t, []any{"answered", "callee_hangup", 200.0}, []any{result["dial_status"], result["reason"], result["sip_code"]})
		require.InDelta(t, 12, result["seconds"], 1)
		bridge := s.executed()[0]
		require.Contains(t, bridge, "sofia/gateway/"+s.trunk.GatewayName+"/+15550109999")
		require.Contains(t, bridge, "leg_timeout=20")
		require.Contains(t, bridge, "origination_caller_id_number=+15559876543")
		log := s.sw.log()
		require.NotContains(t, log, "execute answer", "the other party's answer answers the caller")
		for _, want := range []string{
			"setvar hangup_after_bridge=false", "setvar continue_on_fail=true", "sched_hangup 20m0s ALLOTTED_TIMEOUT",
			"sched_hangup 1m30s ALLOTTED_TIMEOUT", "execute send_dtmf 1w2",
		} {
			require.Contains(t, log, want)
		}
	})
}

func TestDialThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"dial","to":"sip:bob@example.org","result_url":"/result"},{"action":"say","text":"sorry"}]`))
	s.answers("/result", status(204))
	s.sw.script("execute bridge", func(c command) error {
		s.sw.complete(c, "variable_originate_disposition", "USER_BUSY", "variable_last_bridge_hangup_cause", "USER_BUSY",
			"variable_last_bridge_proto_specific_hangup_cause", "sip:486", "variable_sip_invite_failure_status", "486")
		return nil
	})
	s.callIn()
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonCompleted, 200}, []any{call.Status, call.Reason, call.SIPCode})
	result := s.requests()[1].Result
	require.Equal(t, []any{"busy", "busy", 486.0, 0.0}, []any{result["dial_status"], result["reason"], result["sip_code"], result["seconds"]})
	require.Contains(t, s.executed()[0], "sofia/external/sip:bob@example.org")
	require.Equal(t, "speak flite|slt|sorry", s.executed()[1], "the list goes on, and answers the caller")

	// A trunk that is not the customer's.
	other := modelstest.Customer(t, s.store, 0)
	theirs := modelstest.OutboundTrunk(t, s.store, other)
	s.answers("/answer", reply(`[{"action":"dial","to":{"number":"+15550109999","trunk_id":"`+theirs.ID+`"},"result_url":"/result"}]`))
	s.callIn()
	s.end()
	asks := s.requests()
	result = asks[len(asks)-1].Result
	require.Equal(t, []any{"failed", "no_active_trunk"}, []any{result["dial_status"], result["reason"]})
}

func TestCallerHangsUpWhileDialing(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"dial","to":"+15550109999"}]`))
	s.sw.script("execute bridge", func(c command) error {
		s.sw.mu.Lock()
		s.sw.channels[legOf(c.args)] = &fakeChannel{direction: "outbound"}
		s.sw.mu.Unlock()
		return nil
	})
	channel := s.callIn()
	bridge := s.sw.await("execute bridge")
	s.sw.hangup(channel, "ORIGINATOR_CANCEL", "variable_sip_hangup_disposition", "recv_cancel")
	call := s.end()
	require.Equal(t, StatusCanceled, call.Status)
	kill := s.sw.await("kill")
	require.Equal(t, legOf(bridge.args), kill.channel, "the other phone stops ringing")
	s.noLegs()
}

func TestNotifyHangupAndReject(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	for name, tt := range map[string]struct {
		list           string
		status, reason string
		sip            int
		last           string
	}{
		"reject":          {`[{"action":"notify","payload":{"n":[1]},"id":"x"},{"action":"reject"}]`, StatusRejected, "declined", 603, "kill CALL_REJECTED"},
		"reject busy":     {`[{"action":"reject","reason":"busy"}]`, StatusRejected, "busy", 486, "kill USER_BUSY"},
		"reject 404":      {`[{"action":"reject","reason":"not_found"}]`, StatusRejected, "not_found", 404, "kill UNALLOCATED_NUMBER"},
		"reject 480":      {`[{"action":"reject","reason":"unavailable"}]`, StatusRejected, "unavailable", 480, "kill NO_ANSWER"},
		"reject 433":      {`[{"action":"reject","sip_code":433}]`, StatusRejected, "declined", 433, "execute respond 433"},
		"hangup":          {`[{"action":"hangup"}]`, StatusRejected, "declined", 603, "kill CALL_REJECTED"},
		"answered":        {`[{"action":"answer"},{"action":"reject"}]`, StatusCompleted, "declined", 200, "kill NORMAL_CLEARING"},
		"answered, ended": {`[{"action":"answer"},{"action":"hangup","reason":"completed"}]`, StatusCompleted, "completed", 200, "kill NORMAL_CLEARING"},
	} {
		s.answers("/answer", reply(tt.list))
		s.callIn()
		call := s.end()
		require.Equal(t, []any{tt.status, tt.reason, SourceActions, tt.sip}, []any{call.Status, call.Reason, call.HangupSource, call.SIPCode}, name)
		log := s.sw.log()
		require.Equal(t, tt.last, log[len(log)-1], name)
		if name == "reject" {
			data := s.data(call.ID, "call.notify")
			require.Equal(t, map[string]any{"n": []any{1.0}}, data["payload"])
			require.Equal(t, "x", data["id"])
		}
	}
}

func TestHangupAfterSeconds(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"hangup","after_seconds":5},{"action":"say","text":"last words"}]`))
	s.sw.script("execute speak", func(command) error { return nil })
	s.create()
	c := s.sw.await("execute speak")
	require.Contains(t, s.sw.log(), "sched_api "+c.channel+".later 5s NORMAL_CLEARING")
	s.sw.hangup(c.channel, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "send_bye")
	call := s.end()
	require.Equal(t, []any{ReasonCompleted, SourceActions}, []any{call.Reason, call.HangupSource})
}

func TestCursorIsStoredBeforeTheCommand(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", reply(`[{"action":"answer"},{"action":"say","text":"hello"}]`))
		var stored models.Cursor
		var id string
		s.sw.script("execute speak", func(c command) error {
			call, err := store.CallByChannel(t.Context(), c.channel)
			require.NoError(t, err)
			stored, id = call.Cursor, c.id
			s.sw.complete(c)
			return nil
		})
		s.callIn()
		s.end()
		require.Equal(t, id, stored.EventUUID)
		require.Equal(t, 1, stored.Index)
		require.True(t, stored.Begun)
		require.Equal(t, 1, stored.Request)
		require.JSONEq(t, `[{"action":"answer"},{"action":"say","text":"hello","language":"en-US","loop":1}]`, string(stored.List))
	})
}

func TestOnlyOneApplicationAtATime(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"say","text":"one"},{"action":"say","text":"two"}]`))
	s.sw.script("execute speak", func(c command) error {
		if strings.HasSuffix(c.args, "two") {
			s.sw.complete(c)
		}
		return nil
	})
	s.create()
	first := s.sw.await("execute speak")
	// Completions of others, even of the same channel, mean nothing.
	s.sw.event("CHANNEL_EXECUTE_COMPLETE", first.channel, "Application", "speak", "Application-UUID", "tandem-someone-else")
	s.sw.event("CHANNEL_EXECUTE_COMPLETE", first.channel, "Application", "speak")
	require.Len(t, s.executed(), 1)
	s.sw.complete(first)
	s.end()
	require.Len(t, s.executed(), 2)
}

// legOf finds the UUID that a dial string gives to the other leg.
func legOf(args string) string {
	_, rest, _ := strings.Cut(args, "origination_uuid=")
	return rest[:36]
}

func microseconds(at time.Time) string { return strconv.FormatInt(at.UnixMicro(), 10) }
