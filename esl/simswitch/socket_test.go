package simswitch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
)

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := simswitch.New(simswitch.Config{})
	require.ErrorContains(t, err, "password is empty")
	_, err = simswitch.New(simswitch.Config{Password: "x", Speed: -1})
	require.ErrorContains(t, err, "negative")
}

func TestCommandsNeedAuthentication(t *testing.T) {
	t.Parallel()
	s := start(t, simswitch.Config{})
	c := dial(t, s.Addr())
	require.Equal(t, "auth/request", c.reply().kind())
	require.Equal(t, "-ERR command not found", c.command("api status"))
	require.Equal(t, "+OK accepted", c.command("auth "+password))
	require.Contains(t, c.api("status"), "is ready")
}

func TestExit(t *testing.T) {
	t.Parallel()
	s := start(t, simswitch.Config{})
	c := login(t, s.Addr(), password)
	require.Equal(t, "+OK bye", c.command("exit"))
	require.Equal(t, "text/disconnect-notice", c.reply().kind())
	<-c.closed
}

func TestEventCommands(t *testing.T) {
	t.Parallel()
	s := start(t, simswitch.Config{})
	c := login(t, s.Addr(), password)
	for _, test := range []struct{ command, reply string }{
		{"noevents", "-ERR not listening for events"},
		{"event json", "-ERR no keywords supplied"},
		{"event json NOT_AN_EVENT", "-ERR no keywords supplied"},
		{"event plain CHANNEL_PARK", "+OK event listener enabled plain"},
		{"event json CHANNEL_PARK CUSTOM sofia::gateway_state", "+OK event listener enabled json"},
		{"nixevent CHANNEL_PARK", "+OK events nixed"},
		{"nixevent", "-ERR no keywords supplied"},
		{"noevents", "+OK no longer listening for events"},
		{"filter", "-ERR command not found"},
		{"filter Unique-ID", "-ERR invalid syntax"},
		{"filter Unique-ID x", "+OK filter added. [Unique-ID]=[x]"},
		{"filter add Unique-ID y", "+OK filter added. [Unique-ID]=[y]"},
		{"filter delete Unique-ID x", "+OK filter deleted. [Unique-ID][x]"},
		{"filter delete all", "+OK filter deleted. [all][]"},
		{"nosuchcommand", "-ERR command not found"},
		{"linger", "-ERR not controlling a session"},
		{"sendmsg nobody\ncall-command: hangup", "-ERR invalid session id [nobody]"},
	} {
		require.Equal(t, test.reply, c.command(test.command), test.command)
	}
}

// heard runs a call that is parked, answered by the controller and hung up, and returns what a listener with these filters
// heard of it.
func heard(t *testing.T, filters ...string) []string {
	t.Helper()
	s := start(t, simswitch.Config{ConfDir: layOut(t, captureFiles())})
	listener := login(t, s.Addr(), password)
	for _, f := range filters {
		require.Contains(t, listener.command("filter "+f), "+OK")
	}
	require.Equal(t, "+OK event listener enabled json", listener.command("event json ALL"))
	control := login(t, s.Addr(), password)
	require.Equal(t, "+OK event listener enabled plain", control.command("event plain CHANNEL_PARK CHANNEL_DESTROY CHANNEL_EXECUTE_COMPLETE"))
	uuid, err := s.CallIn(simswitch.IncomingCall{From: "+15559876", To: "3001"})
	require.NoError(t, err)
	control.await("park", named("CHANNEL_PARK", uuid))
	control.execute(uuid, "tandem-1", "answer", "")
	control.await("answer", completed("tandem-1"))
	require.Equal(t, "+OK\n", control.api("uuid_kill "+uuid))
	control.await("the end", named("CHANNEL_DESTROY", uuid))
	// Whatever the listener is to hear was queued before this reply.
	require.Contains(t, listener.api("version"), "1.10.12")
	var names []string
	for _, e := range listener.of(uuid) {
		names = append(names, strings.TrimSpace(e["Event-Name"]+" "+e["Application"]))
	}
	return names
}

func TestFiltersAreAlternatives(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"CHANNEL_PARK", "CHANNEL_EXECUTE answer", "CHANNEL_EXECUTE_COMPLETE answer", "CHANNEL_HANGUP_COMPLETE"},
		heard(t, "Application-UUID /^tandem-/", "Event-Name CHANNEL_PARK", "event-name channel_hangup_complete"))
}

func TestFilterExcludes(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"CHANNEL_PARK", "CHANNEL_UNPARK"}, heard(t, "Event-Name /PARK$/", "Event-Name -CHANNEL_ANSWER"))
}

func TestNixevent(t *testing.T) {
	t.Parallel()
	s := start(t, simswitch.Config{ConfDir: layOut(t, captureFiles())})
	c := login(t, s.Addr(), password)
	require.Contains(t, c.command("event json ALL"), "+OK")
	require.Equal(t, "+OK events nixed", c.command("nixevent CHANNEL_CREATE CHANNEL_EXECUTE CHANNEL_STATE CHANNEL_CALLSTATE"))
	uuid, err := s.CallIn(simswitch.IncomingCall{From: "+15559876", To: "3001"})
	require.NoError(t, err)
	c.await("park", named("CHANNEL_PARK", uuid))
	require.Equal(t, []string{"CHANNEL_PARK"}, c.names(uuid))
}

// A blank line in an argument is the end of a command when it stands in a header, and nothing at all in a body.
func TestArgumentInTheBody(t *testing.T) {
	t.Parallel()
	s := start(t, simswitch.Config{ConfDir: layOut(t, captureFiles())})
	c := login(t, s.Addr(), password)
	require.Contains(t, c.command("event json CHANNEL_PARK CHANNEL_EXECUTE"), "+OK")
	uuid, err := s.CallIn(simswitch.IncomingCall{From: "+15559876", To: "3001"})
	require.NoError(t, err)
	c.await("park", named("CHANNEL_PARK", uuid))
	text := "log text\n\napi global_setvar pwned=yes\n\n"
	c.execute(uuid, "tandem-1", "log", text)
	e := c.await("log", func(e map[string]string) bool { return e["Application-UUID"] == "tandem-1" })
	require.Equal(t, text, e["Application-Data"])
	require.Empty(t, strings.TrimPrefix(c.api("global_getvar pwned"), "-ERR no reply\n"))
}

// FreeSWITCH disconnects whoever queues 257 messages on a busy channel (mod_event_socket.c: the failed push is the return
// value of parse_command).
func TestMessageQueueIsLimited(t *testing.T) {
	t.Parallel()
	s := start(t, simswitch.Config{ConfDir: layOut(t, captureFiles())})
	c := login(t, s.Addr(), password)
	require.Contains(t, c.command("event json CHANNEL_PARK PLAYBACK_START"), "+OK")
	uuid, err := s.CallIn(simswitch.IncomingCall{From: "+15559876", To: "3001"})
	require.NoError(t, err)
	c.await("park", named("CHANNEL_PARK", uuid))
	c.execute(uuid, "tandem-busy", "playback", "silence_stream://-1")
	c.await("playback", named("PLAYBACK_START", uuid))
	for range 256 {
		c.execute(uuid, "tandem-queued", "log", "x")
	}
	require.Equal(t, "-ERR memory error", c.command("sendmsg "+uuid+"\ncall-command: execute\nexecute-app-name: log"))
	require.Equal(t, "text/disconnect-notice", c.reply().kind())
	<-c.closed
	require.Contains(t, login(t, s.Addr(), password).api("uuid_exists "+uuid), "true")
}

func TestBackgroundJob(t *testing.T) {
	t.Parallel()
	s := start(t, simswitch.Config{})
	c := login(t, s.Addr(), password)
	require.Contains(t, c.command("event plain BACKGROUND_JOB"), "+OK")
	require.Equal(t, "+OK Job-UUID: my-job", c.command("bgapi nosuchapi with args\nJob-UUID: my-job"))
	e := c.await("the job", named("BACKGROUND_JOB", ""))
	require.Equal(t, "my-job", e["Job-UUID"])
	require.Equal(t, "nosuchapi", e["Job-Command"])
	require.Equal(t, "with args", e["Job-Command-Arg"])
	require.Equal(t, "-ERR nosuchapi Command not found!\n", e["_body"])
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	s := start(t, simswitch.Config{Speed: 1000})
	c := login(t, s.Addr(), password)
	require.Contains(t, c.command("event json HEARTBEAT"), "+OK")
	e := c.await("a heartbeat", named("HEARTBEAT", ""))
	require.Equal(t, "System Ready", e["Event-Info"])
	require.Equal(t, s.CoreUUID(), e["Core-UUID"])
	require.Equal(t, "0", e["Session-Count"])
}
