package lab_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// printed is what a command of tandem prints.
func (s *system) printed(t *testing.T, args ...string) string {
	t.Helper()
	cmd := s.command(t, args...)
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	require.NoError(t, err, "tandem %s: %s", strings.Join(args, " "), problem.String())
	return string(out)
}

// testOperator finds a live call by the command line, ends it there, and is told its story: the real switch's Call-ID, who ended it, and
// how much sound came.
func testOperator(t *testing.T, s *system) {
	app := s.newApplication(t, s.customer, "operator", nil, func(q question) any {
		if q.kind() == "answer" {
			return []object{{"action": "gather", "num_digits": 2, "timeout": 30}}
		}
		return []object{{"action": "pause", "seconds": 60}}
	})
	s.did(t, app, "+15557000990")
	leg, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230990", To: "+15557000990", NodeSIP: s.node.SIPAddr, App: lab.Types(time.Second, "42")})
	require.NoError(t, err)
	id := app.first(soon(t), t, "call.answered").part("call").text("id")
	require.Eventually(t, func() bool { return len(app.asked(id)) == 2 }, 20*time.Second, 50*time.Millisecond, "the digits never came")
	require.Equal(t, id+"\n", s.printed(t, "calls", "ls", "--live", "--from", "+15551230990", "-o", "name"))
	require.Equal(t, id+"\n", s.printed(t, "calls", "hangup", "--to", "+15557000990", "--yes", "-o", "name"))
	end, _ := app.ended(soon(t), t, s, id)
	require.Equal(t, "api", end.part("data").text("hangup_source"))
	outcome, err := leg.Ended(soon(t))
	require.NoError(t, err)
	require.Equal(t, "recv_bye", outcome.HungUpBy)

	var told string
	require.Eventually(t, func() bool {
		told = s.printed(t, "calls", "trace", id)
		return strings.Contains(told, "packets of sound received") // the CDR comes a moment later
	}, 20*time.Second, 100*time.Millisecond)
	t.Log(told)
	at := 0
	for _, step := range []string{
		"<- INVITE +15551230990, peer 127.0.0.1:", ", Call-ID ", "call.ringing inbound, +15551230990 -> +15557000990", "(answer, attempt 1) -> 200", ": gather",
		"(result, attempt 1) -> 200", ": pause", "hangupCall by lab", "call.completed", "completed: api_hangup, ended by the api",
	} {
		place := strings.Index(told[at:], step)
		require.GreaterOrEqual(t, place, 0, "%q is not there, or not in its place", step)
		at += place
	}
	for _, step := range []string{"-> 200 OK", "-> BYE", "ended: NORMAL_CLEARING"} { // by the switch's clock, which may be some milliseconds off ours
		require.Contains(t, told, step)
	}
	require.Contains(t, told, `"digits":"42"`)
	require.Contains(t, s.printed(t, "audit", "ls", "--object", id), "hangupCall")
	require.Equal(t, "first\n", s.printed(t, "nodes", "ls", "-o", "name"))
	require.Contains(t, s.printed(t, "nodes", "exec", "first", "status"), "session(s) since startup")
	require.Error(t, s.command(t, "nodes", "exec", "first", "no_such_command", "--yes").Run())

	// A channel of a call that has ended is found and hung up on request.
	var ended struct {
		ChannelID string `json:"channel_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(s.printed(t, "calls", "get", id, "-o", "json")), &ended))
	s.printed(t, "nodes", "exec", "first", "--yes", "bgapi originate {origination_uuid="+ended.ChannelID+"}sofia/external/+15550900003@"+s.carrier.SIPAddr+" &sleep(60000)")
	require.Eventually(t, func() bool {
		return s.printed(t, "nodes", "exec", "first", "uuid_exists", ended.ChannelID) == "true\n"
	}, 20*time.Second, 100*time.Millisecond)
	row := []string{ended.ChannelID, id, "stale", "first"}
	require.Equal(t, row, strings.Fields(strings.Split(s.printed(t, "calls", "reap", "--dry-run"), "\n")[1])[:4])
	require.Equal(t, "true\n", s.printed(t, "nodes", "exec", "first", "uuid_exists", ended.ChannelID))
	require.Equal(t, row, strings.Fields(strings.Split(s.printed(t, "calls", "reap", "--yes"), "\n")[1])[:4])
	require.Eventually(t, func() bool {
		return s.printed(t, "nodes", "exec", "first", "uuid_exists", ended.ChannelID) == "false\n"
	}, 20*time.Second, 100*time.Millisecond)
	require.Contains(t, s.printed(t, "audit", "ls", "--object", "first"), "orderNode")
}
