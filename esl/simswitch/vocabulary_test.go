package simswitch_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
)

// A recognizer understands what the script says, one text after the other; speech ends the prompt.
func TestSpeechInput(t *testing.T) {
	t.Parallel()
	s, c, uuid := parked(t, simswitch.Config{Speed: 20, Modules: append(simswitch.DefaultModules(), "mod_vosk", "mod_other")},
		simswitch.IncomingCall{Speech: []string{"yes & no", `<raw/>`}})
	c.execute(uuid, "1", "answer", "")
	listen := func(id, engine string) map[string]string {
		c.execute(uuid, id, "play_and_detect_speech", "silence_stream://60000 detect:"+engine+" default")
		return c.await("the end of "+id, completed(id))
	}
	require.JSONEq(t, `{"text":"yes & no"}`, listen("2", "vosk")["variable_detect_speech_result"])
	require.Equal(t, "<raw/>", listen("3", "vosk")["variable_detect_speech_result"])
	require.NoError(t, s.Caller(uuid).Say("a < b"))
	e := listen("4", "other")
	require.Contains(t, e["variable_detect_speech_result"], `<input mode="speech">a &lt; b</input>`)
	require.Equal(t, "DONE", e["Application-Response"])
	require.Equal(t, "ASR INIT ERROR", listen("5", "nobody")["Application-Response"])
	c.execute(uuid, "6", "play_and_detect_speech", "silence_stream://100")
	require.Equal(t, "USAGE ERROR", c.await("the end", completed("6"))["Application-Response"])
	c.execute(uuid, "7", "play_and_detect_speech", "silence_stream://100 detect:vosk default")
	e = c.await("the end of the silence", completed("7"))
	require.Equal(t, "DONE", e["Application-Response"])
	require.Empty(t, e["variable_detect_speech_result"])
	require.Error(t, s.Caller("nobody").Say("x"))
}

// Without its module an application is unknown, and so is a command.
func TestModulesThatAreNotThere(t *testing.T) {
	t.Parallel()
	s, c, uuid := parked(t, simswitch.Config{Modules: []string{"mod_dptools"}}, simswitch.IncomingCall{})
	require.Equal(t, "false", c.api("module_exists mod_conference"))
	require.Equal(t, "true", c.api("module_exists mod_dptools"))
	require.Contains(t, c.api("conference list"), "Command not found")
	require.Contains(t, c.api("uuid_audio_stream "+uuid+" stop"), "Command not found")
	c.execute(uuid, "1", "conference", "room@tandem")
	r, err := s.Caller(uuid).Wait(within(t), ended)
	require.NoError(t, err)
	require.Equal(t, "DESTINATION_OUT_OF_ORDER", r.Cause)
}

func TestAudioStream(t *testing.T) {
	t.Parallel()
	_, c, uuid := parked(t, simswitch.Config{Modules: append(simswitch.DefaultModules(), "mod_audio_stream")}, simswitch.IncomingCall{})
	stream := func(rest string) string { return c.api("uuid_audio_stream " + uuid + " " + rest) }
	require.Equal(t, "-ERR Operation Failed\n", stream("start wss://example.test/a mono 8000"), "no audio yet")
	c.execute(uuid, "1", "answer", "")
	c.await("the answer", completed("1"))
	require.Contains(t, stream("start http://example.test/a mono 8000"), "-USAGE")
	require.Equal(t, "+OK Success\n", stream("start wss://example.test/a mono 8000 {}"))
	c.await("the connection", func(e map[string]string) bool {
		return e["Event-Subclass"] == "mod_audio_stream::connect" && e["Unique-ID"] == uuid
	})
	require.Equal(t, "-ERR Operation Failed\n", stream("start wss://example.test/a mono 8000"))
	require.Equal(t, "+OK Success\n", stream("pause"))
	require.Equal(t, "+OK Success\n", stream("stop"))
	require.Equal(t, "-ERR Operation Failed\n", stream("stop"))
	require.Equal(t, "+OK Success\n", stream("start wss://example.test/a mono 8000"))
	c.api("uuid_kill " + uuid)
	c.await("the end", named("CHANNEL_DESTROY", uuid))
	disconnects := 0
	for _, e := range c.of(uuid) {
		if e["Event-Subclass"] == "mod_audio_stream::disconnect" {
			disconnects++
		}
	}
	require.Equal(t, 2, disconnects)
}

// A call can be transferred seventy times, unless its variable allows more.
func TestTransfersAreCounted(t *testing.T) {
	t.Parallel()
	_, c, uuid := parked(t, simswitch.Config{}, simswitch.IncomingCall{})
	require.Equal(t, "+OK\n", c.api("uuid_setvar "+uuid+" max_session_transfers 3"))
	require.Equal(t, "+OK\n", c.api("uuid_transfer "+uuid+" park inline"))
	require.Equal(t, "+OK\n", c.api("uuid_transfer "+uuid+" park inline"))
	require.Equal(t, "-ERR\n", c.api("uuid_transfer "+uuid+" park inline"))
	e := c.await("the end", named("CHANNEL_HANGUP_COMPLETE", uuid))
	require.Equal(t, "EXCHANGE_ROUTING_ERROR", e["Hangup-Cause"])
}

// What a test lets the far end say while something listens counts as well.
func TestListensToWhatIsSaidMeanwhile(t *testing.T) {
	t.Parallel()
	s, c, uuid := parked(t, simswitch.Config{Speed: 10}, simswitch.IncomingCall{Says: []float64{10, 1}})
	c.execute(uuid, "1", "answer", "")
	c.execute(uuid, "2", "wait_for_silence", "200 20 10 60000")
	e := c.await("the silence", completed("2"))
	require.Equal(t, "false", e["variable_wait_for_silence_timeout"])
	require.InDelta(t, 49, number(t, e["variable_wait_for_silence_listenhits"]), 2)
	c.execute(uuid, "3", "wait_for_silence", "200 20 10 0")
	c.await("the start", func(e map[string]string) bool {
		return e["Event-Name"] == "CHANNEL_EXECUTE" && e["Application-UUID"] == "3"
	})
	require.NoError(t, s.Caller(uuid).Speak(2*time.Second))
	e = c.await("the silence after that", completed("3"))
	require.InDelta(t, 99, number(t, e["variable_wait_for_silence_listenhits"]), 2)
	require.Error(t, s.Caller("nobody").Speak(time.Second))
}

func TestBeepOfAScript(t *testing.T) {
	t.Parallel()
	dir := layOut(t, captureFiles())
	s := start(t, simswitch.Config{ConfDir: dir, Speed: 10})
	c := login(t, s.Addr(), password)
	require.Contains(t, c.command("event json ALL"), "+OK")
	awaitGateway(t, c, "acme-out", "REGED")
	reply := c.api("originate {originate_timeout=60}sofia/gateway/acme-out/+15550723 &park()")
	uuid := strings.TrimSpace(strings.TrimPrefix(reply, "+OK "))
	c.execute(uuid, "1", "avmd_start", "")
	c.await("the start", completed("1"))
	require.NoError(t, s.Caller(uuid).Beep(time.Second))
	e := c.await("the beep", func(e map[string]string) bool { return e["Event-Subclass"] == "avmd::beep" })
	require.Equal(t, uuid, e["Unique-ID"])
	require.Equal(t, "DETECTED", e["Beep-Status"])
	c.execute(uuid, "2", "send_dtmf", "12w3@100")
	c.await("the digits", completed("2"))
	r, err := s.Caller(uuid).Result()
	require.NoError(t, err)
	require.Equal(t, "123", r.Heard)
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

// A recording with a channel for each side has two, and a pause is not in it.
func TestRecordingWithTwoChannelsAndAPause(t *testing.T) {
	t.Parallel()
	_, c, uuid := parked(t, simswitch.Config{Speed: 10}, simswitch.IncomingCall{})
	path := filepath.Join(t.TempDir(), "dual.wav")
	c.execute(uuid, "1", "answer", "")
	c.await("the answer", completed("1"))
	c.api("uuid_setvar " + uuid + " RECORD_STEREO true")
	require.Equal(t, "+OK Success\n", c.api("uuid_record "+uuid+" start "+path))
	require.Equal(t, "+OK Success\n", c.api("uuid_record "+uuid+" pause "+path))
	c.execute(uuid, "2", "playback", "silence_stream://20000")
	c.await("the pause", completed("2"))
	require.Equal(t, "+OK Success\n", c.api("uuid_record "+uuid+" resume "+path))
	c.execute(uuid, "3", "playback", "silence_stream://3000")
	c.await("the rest", completed("3"))
	require.Equal(t, "+OK Success\n", c.api("uuid_record "+uuid+" stop "+path))
	e := c.await("its end", named("RECORD_STOP", uuid))
	seconds := number(t, e["variable_record_seconds"])
	require.GreaterOrEqual(t, seconds, 3)
	require.Less(t, seconds, 15)
	b, err := os.ReadFile(path) // #nosec G304 -- a file of this test.
	require.NoError(t, err)
	require.Equal(t, uint16(2), binary.LittleEndian.Uint16(b[22:]))
	require.Equal(t, uint16(4), binary.LittleEndian.Uint16(b[32:]))
	require.Equal(t, len(b)-44, int(binary.LittleEndian.Uint32(b[40:])))
}

// Calls that are bridged, taken back, put into rooms and hung up at any moment all end, each once, and a park follows each bridge.
func TestJoinsAtAnyMoment(t *testing.T) {
	t.Parallel()
	dir := layOut(t, captureFiles())
	s := start(t, simswitch.Config{ConfDir: dir})
	c := login(t, s.Addr(), password)
	require.Contains(t, c.command("event json CHANNEL_PARK CHANNEL_HANGUP_COMPLETE CHANNEL_BRIDGE CHANNEL_UNBRIDGE"), "+OK")
	const pairs = 40
	var calls []string
	for i := range 2 * pairs {
		uuid, err := s.CallIn(simswitch.IncomingCall{From: "+15559876", To: "3" + strconv.Itoa(1000+i)})
		require.NoError(t, err)
		calls = append(calls, uuid)
		c.await("the park", named("CHANNEL_PARK", uuid))
		c.execute(uuid, "answer-"+uuid, "answer", "")
		c.api("uuid_setvar " + uuid + " park_after_bridge true")
	}
	var working sync.WaitGroup
	for i := range pairs {
		a, b := calls[2*i], calls[2*i+1]
		working.Go(func() {
			d := login(t, s.Addr(), password)
			switch i % 5 {
			case 0:
				d.api("uuid_bridge " + a + " " + b)
				d.api("uuid_kill " + b)
			case 1:
				d.api("uuid_bridge " + a + " " + b)
				d.api("uuid_transfer " + a + " park inline")
				d.api("uuid_bridge " + b + " " + a)
			case 2:
				d.api("uuid_bridge " + a + " " + b)
				_ = s.Caller(a).Hangup()
			case 3:
				d.execute(a, "room-"+a, "conference", "room"+strconv.Itoa(i)+"@tandem+flags{endconf}")
				d.execute(b, "room-"+b, "conference", "room"+strconv.Itoa(i)+"@tandem")
				d.api("uuid_bridge " + a + " " + b)
			case 4:
				d.api("uuid_bridge " + a + " " + b)
				d.api("uuid_bridge " + a + " " + b)
				d.api("uuid_transfer " + b + " park inline")
			}
			d.api("uuid_kill " + a)
			d.api("uuid_kill " + b)
		})
	}
	working.Wait()
	for _, uuid := range calls {
		c.await("the end", named("CHANNEL_HANGUP_COMPLETE", uuid))
	}
	ends := map[string]int{}
	for _, e := range c.eventsLocked(false) {
		if e["Event-Name"] == "CHANNEL_HANGUP_COMPLETE" {
			ends[e["Unique-ID"]]++
		}
	}
	for _, uuid := range calls {
		require.Equal(t, 1, ends[uuid])
	}
	require.Eventually(t, func() bool { return c.api("conference list") == "+OK No active conferences.\n" }, patience, time.Millisecond)
}

// Every number of the carrier that the documentation names does something of its own.
func TestFarEndsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "simulated-switch.md"))
	require.NoError(t, err)
	for _, suffix := range []string{"486, 404, 603, 503", "180", "183", "700", "701", "702", "711 to 719", "720", "721", "722", "723", "730 to 739"} {
		require.True(t, slices.ContainsFunc(strings.Split(string(page), "\n"), func(line string) bool {
			return strings.HasPrefix(line, "| "+suffix+" |")
		}), suffix)
	}
}
