package simswitch_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
)

// parked is a call that waits for its controller.
func parked(t *testing.T, cfg simswitch.Config, call simswitch.IncomingCall) (*simswitch.Switch, *client, string) {
	t.Helper()
	cfg.ConfDir = layOut(t, captureFiles())
	s := start(t, cfg)
	c := login(t, s.Addr(), password)
	require.Contains(t, c.command("event json ALL"), "+OK")
	call.From, call.To = "+15559876", "3001"
	uuid, err := s.CallIn(call)
	require.NoError(t, err)
	c.await("park", named("CHANNEL_PARK", uuid))
	return s, c, uuid
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func ended(r simswitch.Result) bool { return r.Ended }

func TestUnknownApplication(t *testing.T) {
	t.Parallel()
	s, c, uuid := parked(t, simswitch.Config{}, simswitch.IncomingCall{})
	c.execute(uuid, "tandem-1", "nosuchapp", "x")
	r, err := s.Caller(uuid).Wait(within(t), ended)
	require.NoError(t, err)
	require.Equal(t, "DESTINATION_OUT_OF_ORDER", r.Cause)
	require.Equal(t, 502, r.SIPStatus)
	c.await("the end", named("CHANNEL_DESTROY", uuid))
	for _, e := range c.of(uuid) {
		require.NotEqual(t, "tandem-1", e["Application-UUID"], "an unknown application has neither start nor end")
	}
}

// Without event-lock a second application runs inside the first.
func TestUnlockedApplicationsNest(t *testing.T) {
	t.Parallel()
	_, c, uuid := parked(t, simswitch.Config{}, simswitch.IncomingCall{})
	run := func(id, app, arg string) {
		c.send("sendmsg " + uuid + "\ncall-command: execute\nexecute-app-name: " + app + "\nexecute-app-arg: " + arg + "\nevent-uuid: " + id + "\n\n")
		require.Equal(t, "+OK", c.reply().head["Reply-Text"])
	}
	run("outer", "playback", "silence_stream://-1")
	c.await("outer", named("PLAYBACK_START", uuid))
	run("inner", "log", "x")
	c.await("inner", completed("inner"))
	require.Equal(t, "+OK\n", c.api("uuid_break "+uuid))
	c.await("outer", completed("outer"))
}

func TestCallerScript(t *testing.T) {
	t.Parallel()
	s, c, uuid := parked(t, simswitch.Config{Speed: 20}, simswitch.IncomingCall{
		Digits: "42", DigitsAfter: time.Second, HangupAfter: 8 * time.Second})
	c.execute(uuid, "tandem-1", "answer", "")
	first := c.await("4", func(e map[string]string) bool { return e["DTMF-Digit"] == "4" })
	second := c.await("2", func(e map[string]string) bool { return e["DTMF-Digit"] == "2" })
	require.Less(t, first["Event-Date-Timestamp"], second["Event-Date-Timestamp"])
	c.execute(uuid, "tandem-2", "send_dtmf", "99#@100")
	r, err := s.Caller(uuid).Wait(within(t), ended)
	require.NoError(t, err)
	require.True(t, r.Answered)
	require.Equal(t, "NORMAL_CLEARING", r.Cause)
	require.Equal(t, "caller", r.HungUpBy)
	require.Equal(t, 200, r.SIPStatus)
	require.Equal(t, "99#", r.Heard)
	require.GreaterOrEqual(t, r.BillSeconds, 8.0)
	e := c.await("the end", named("CHANNEL_HANGUP_COMPLETE", uuid))
	require.Equal(t, "recv_bye", e["variable_sip_hangup_disposition"])
	require.Equal(t, "42", e["variable_digits_dialed"])
}

// A caller with digits and no time for them waits until it is asked, whatever is said before.
func TestCallerTypesWhenAsked(t *testing.T) {
	t.Parallel()
	_, c, uuid := parked(t, simswitch.Config{Speed: 5}, simswitch.IncomingCall{Digits: "12#"})
	c.execute(uuid, "tandem-1", "answer", "")
	c.execute(uuid, "tandem-2", "playback", "silence_stream://2000")
	c.execute(uuid, "tandem-3", "play_and_get_digits", `1 8 1 20000 # silence_stream://20000 silence_stream://1 gathered \d+ 20000`)
	e := c.await("the gather", completed("tandem-3"))
	require.Equal(t, "12", e["variable_gathered"])
	require.Equal(t, "#", e["variable_read_terminator_used"])
}

func TestCallerGivesUp(t *testing.T) {
	t.Parallel()
	s, _, uuid := parked(t, simswitch.Config{Speed: 10}, simswitch.IncomingCall{CancelAfter: 5 * time.Second})
	r, err := s.Caller(uuid).Wait(within(t), ended)
	require.NoError(t, err)
	require.Equal(t, "ORIGINATOR_CANCEL", r.Cause)
	require.Equal(t, 487, r.SIPStatus)
	require.False(t, r.Answered)
}

// A call's length follows the switch's clock, and so does what is billed.
func TestCapEndsTheCallAndTheBill(t *testing.T) {
	t.Parallel()
	s, c, _ := parked(t, simswitch.Config{Speed: 30}, simswitch.IncomingCall{})
	awaitGateway(t, c, "acme-out", "REGED")
	const id = "00000000-0000-4000-8000-00000000cafe"
	c.send("bgapi originate {origination_uuid=" + id + `,execute_on_answer='sched_hangup\s+30\sALLOTTED_TIMEOUT'}sofia/gateway/acme-out/+15550800 &park()` + "\n\n")
	require.Contains(t, c.reply().head["Reply-Text"], "+OK")
	e := c.await("the end", named("CHANNEL_HANGUP_COMPLETE", id))
	require.Equal(t, "ALLOTTED_TIMEOUT", e["Hangup-Cause"])
	require.Equal(t, "16", e["variable_hangup_cause_q850"])
	bill, err := strconv.Atoi(e["variable_billmsec"])
	require.NoError(t, err)
	require.InDelta(t, 30000, bill, 3000)
	answered, err := strconv.ParseInt(e["variable_answer_uepoch"], 10, 64)
	require.NoError(t, err)
	over, err := strconv.ParseInt(e["variable_end_uepoch"], 10, 64)
	require.NoError(t, err)
	require.Equal(t, strconv.FormatInt(over/1e6-answered/1e6, 10), e["variable_billsec"])
	require.Equal(t, strconv.FormatInt(over-answered, 10), e["variable_billusec"])
	require.NotNil(t, s)
}

func TestScheduledHangupTakenBack(t *testing.T) {
	t.Parallel()
	_, c, uuid := parked(t, simswitch.Config{}, simswitch.IncomingCall{})
	require.Equal(t, "+OK\n", c.api("sched_hangup +3600 "+uuid+" ALLOTTED_TIMEOUT"))
	require.Equal(t, "+OK Deleted: 1\n", c.api("sched_del "+uuid))
	require.Equal(t, "+OK Deleted: 0\n", c.api("sched_del "+uuid))
	require.Equal(t, "+OK\n", c.api("sched_hangup +0 "+uuid+" USER_BUSY"))
	require.Equal(t, "USER_BUSY", c.await("the end", named("CHANNEL_HANGUP", uuid))["Hangup-Cause"])
}

// A scheduled command runs when its time has come, unless it, or its group, is taken back.
func TestScheduledCommand(t *testing.T) {
	t.Parallel()
	_, c, _ := parked(t, simswitch.Config{Speed: 20}, simswitch.IncomingCall{})
	later := func(after, group string) string {
		t.Helper()
		reply := c.api("sched_api " + after + " " + group + " global_setvar tandem_accept=false")
		id, ok := strings.CutPrefix(reply, "+OK Added: ")
		require.True(t, ok, reply)
		return strings.TrimSpace(id)
	}
	for _, bad := range []string{"", "+1", "+1 group", "@5 group status"} {
		require.Contains(t, c.api("sched_api "+bad), "-ERR Invalid syntax", bad)
	}
	require.Equal(t, "+OK", strings.TrimSpace(c.api("global_setvar tandem_accept=true")))
	require.Equal(t, "+OK Deleted: 1\n", c.api("sched_del "+later("+3600", "one")))
	later("+3600", "one")
	later("+3600", "one")
	require.Equal(t, "+OK Deleted: 2\n", c.api("sched_del one"))
	require.Equal(t, "true", c.api("global_getvar tandem_accept"))
	later("+1", "one")
	require.Eventually(t, func() bool { return c.api("global_getvar tandem_accept") == "false" }, patience, 5*time.Millisecond)
}

func TestRecordingIsAPlayableFile(t *testing.T) {
	t.Parallel()
	_, c, uuid := parked(t, simswitch.Config{Speed: 10}, simswitch.IncomingCall{TalkFor: 2 * time.Second})
	path := filepath.Join(t.TempDir(), "new", "message.wav")
	c.execute(uuid, "tandem-1", "answer", "")
	c.execute(uuid, "tandem-2", "record", path+" 60 200 3")
	e := c.await("the recording", named("RECORD_STOP", uuid))
	require.Equal(t, path, e["Record-File-Path"])
	ms, err := strconv.Atoi(e["variable_record_ms"])
	require.NoError(t, err)
	require.InDelta(t, 5000, ms, 1000, "two seconds of talk and three of silence")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.InDelta(t, 44+ms*16, info.Size(), 16)
	c.execute(uuid, "tandem-3", "playback", path)
	played := c.await("the playback", completed("tandem-3"))
	require.Equal(t, "FILE PLAYED", played["Application-Response"])
	require.InDelta(t, ms, atoi(t, played["variable_playback_ms"]), 60)
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

// Customer text must not become a command: nothing is expanded, because the switch inherits app_disable_expand_variables.
func TestApplicationDataIsNotExpanded(t *testing.T) {
	t.Parallel()
	_, c, uuid := parked(t, simswitch.Config{}, simswitch.IncomingCall{})
	c.execute(uuid, "tandem-1", "log", "${uuid} ${system(touch /tmp/x)}")
	e := c.await("log", completed("tandem-1"))
	require.Equal(t, "${uuid} ${system(touch /tmp/x)}", e["Application-Data"])
}

// set expands once more regardless, as on the real switch; commands never run.
func TestSetExpandsVariablesOnly(t *testing.T) {
	t.Parallel()
	_, c, uuid := parked(t, simswitch.Config{}, simswitch.IncomingCall{})
	c.execute(uuid, "tandem-1", "set", "copy=${uuid}-${system(id)}")
	c.await("set", completed("tandem-1"))
	require.Equal(t, uuid+"-", c.api("uuid_getvar "+uuid+" copy"))
}

func TestShowChannels(t *testing.T) {
	t.Parallel()
	s, c, uuid := parked(t, simswitch.Config{}, simswitch.IncomingCall{})
	var shown struct {
		RowCount int                 `json:"row_count"`
		Rows     []map[string]string `json:"rows"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.api("show channels as json")), &shown))
	require.Equal(t, 1, shown.RowCount)
	require.Equal(t, uuid, shown.Rows[0]["uuid"])
	require.Equal(t, "park", shown.Rows[0]["application"])
	require.Equal(t, "\n1 total.\n", c.api("show calls count"))
	require.Equal(t, "+OK\n", c.api("uuid_kill "+uuid))
	_, err := s.Caller(uuid).Wait(within(t), ended)
	require.NoError(t, err)
	require.Equal(t, "{\"row_count\": 0}\n", c.api("show channels as json"))
	require.Equal(t, "\n0 total.\n", c.api("show calls count"))
}

func TestSimCall(t *testing.T) {
	t.Parallel()
	_, c, _ := parked(t, simswitch.Config{}, simswitch.IncomingCall{})
	reply := c.api(`sim_call {"from":"+15551111","to":"3002","source_ip":"127.0.0.7","sip_headers":{"X-Note":"hello"}}`)
	uuid, found := strings.CutPrefix(strings.TrimSpace(reply), "+OK ")
	require.True(t, found, reply)
	e := c.await("park", named("CHANNEL_PARK", uuid))
	require.Equal(t, "3002", e["Caller-Destination-Number"])
	require.Equal(t, "127.0.0.7", e["variable_sip_network_ip"])
	require.Equal(t, "127.0.0.7", e["Caller-Network-Addr"])
	require.Equal(t, "hello", e["variable_sip_h_X-Note"])
	require.Equal(t, "+OK\n", c.api("uuid_kill "+uuid+" USER_BUSY"))
	c.await("the end", func(e map[string]string) bool { return e["Unique-ID"] == uuid && e["Channel-State"] == "CS_DESTROY" })
	require.Eventually(t, func() bool { return strings.Contains(c.api("sim_result "+uuid), `"ended":true`) }, patience, time.Millisecond)
	require.Contains(t, c.api("sim_result "+uuid), `"sip_status":486`)
	for _, wrong := range []string{"", "{", `{"from":"1"}`, `{"from":"1","to":"2 3"}`, `{"from":"1","to":"2","source_ip":"x"}`,
		`{"from":"1","to":"2","digits":"a"}`, `{"nonsense":1}`} {
		require.Contains(t, c.api("sim_call "+wrong), "-ERR ", wrong)
	}
	require.Contains(t, c.api("sim_result nobody"), "-ERR ")
	require.Error(t, newCaller(c, t).Hangup())
}

func newCaller(_ *client, t *testing.T) *simswitch.Caller {
	t.Helper()
	s, err := simswitch.New(simswitch.Config{Password: "x"})
	require.NoError(t, err)
	return s.Caller("nobody")
}

// Close ends every call, tells every client and waits for all of it; goleak sees to the rest.
func TestShutdown(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"Close", "fsctl"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s, c, uuid := parked(t, simswitch.Config{}, simswitch.IncomingCall{})
			c.execute(uuid, "tandem-1", "playback", "silence_stream://-1")
			c.await("playback", named("PLAYBACK_START", uuid))
			if how == "Close" {
				require.NoError(t, s.Close())
				require.NoError(t, s.Close())
			} else {
				c.send("api fsctl shutdown now\n\n")
			}
			e := c.await("the end", named("CHANNEL_HANGUP", uuid))
			require.Equal(t, "SYSTEM_SHUTDOWN", e["Hangup-Cause"])
			c.await("shutdown", named("SHUTDOWN", ""))
			<-c.closed
			<-s.Closed()
			_, err := s.CallIn(simswitch.IncomingCall{From: "1", To: "2"})
			require.Error(t, err)
		})
	}
}

func TestPausedSwitchTakesNoCalls(t *testing.T) {
	t.Parallel()
	s, c, uuid := parked(t, simswitch.Config{}, simswitch.IncomingCall{})
	require.Equal(t, "+OK\n", c.api("fsctl pause"))
	_, err := s.CallIn(simswitch.IncomingCall{From: "1", To: "2"})
	require.ErrorContains(t, err, "503")
	require.Contains(t, c.api("status"), "is not ready")
	require.Contains(t, c.api("uuid_exists "+uuid), "true")
	require.Equal(t, "+OK\n", c.api("fsctl resume outbound"))
	require.Contains(t, c.api("status"), "is ready")
	require.Equal(t, []string{"true", "false", "false"}, []string{c.api("fsctl pause_check inbound"), c.api("fsctl pause_check outbound"), c.api("fsctl pause_check")})
	_, err = s.CallIn(simswitch.IncomingCall{From: "1", To: "2"})
	require.ErrorContains(t, err, "503")
	require.Equal(t, "+OK\n", c.api("fsctl resume inbound"))
	_, err = s.CallIn(simswitch.IncomingCall{From: "1", To: "2"})
	require.NoError(t, err)
}

func TestSwitchAtItsLimits(t *testing.T) {
	t.Parallel()
	s, c, _ := parked(t, simswitch.Config{MaxSessions: 2}, simswitch.IncomingCall{})
	require.Contains(t, c.api("originate {origination_uuid=out}sofia/external/sip:700@127.0.0.1 &park()"), "+OK out")
	_, err := s.CallIn(simswitch.IncomingCall{From: "1", To: "2"})
	require.ErrorContains(t, err, "503 Maximum Calls In Progress")
	require.Equal(t, "-ERR DESTINATION_OUT_OF_ORDER\n", c.api("originate sofia/external/sip:700@127.0.0.1 &park()"))
	require.Contains(t, c.api("status"), "2 session(s) - peak 2")
	require.Contains(t, c.api("status"), "\n2 session(s) max\n")

	// The clock stands still in a switch that is a million times as slow, and so does its second.
	slow, _, _ := parked(t, simswitch.Config{SessionsPerSecond: 3, Speed: 1e-6}, simswitch.IncomingCall{})
	_, err = slow.CallIn(simswitch.IncomingCall{From: "1", To: "2"})
	require.NoError(t, err)
	_, err = slow.CallIn(simswitch.IncomingCall{From: "1", To: "2"})
	require.ErrorContains(t, err, "503 Maximum Calls In Progress", "the third of a second is one too many")
}
