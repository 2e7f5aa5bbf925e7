package simswitch_test

import (
	"encoding/xml"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
)

// TestGatewayLosesItsRegistration: the carrier refuses for a while, and then takes the gateway again by itself.
func TestGatewayLosesItsRegistration(t *testing.T) {
	t.Parallel()
	s := start(t, simswitch.Config{ConfDir: layOut(t, captureFiles()), Speed: 10})
	c := login(t, s.Addr(), password)
	require.Contains(t, c.command("event json CUSTOM sofia::gateway_state"), "+OK")
	awaitGateway(t, c, "acme-out", "REGED")
	awaitGateway(t, c, "acme-bad", "FAIL_WAIT")

	require.Equal(t, "+OK\n", c.api("sim_unregister acme-out 20"))
	failed := c.await("the refusal", func(e map[string]string) bool {
		return e["Gateway"] == "acme-out" && e["State"] == "FAILED" && e["Status"] == "503" && e["Ping-Status"] == "DOWN"
	})
	awaitGateway(t, c, "acme-out", "FAIL_WAIT")
	var status struct {
		Retry string `xml:"retry"`
	}
	require.NoError(t, xml.Unmarshal([]byte(strings.SplitN(c.api("sofia xmlstatus gateway acme-out"), "\n", 2)[1]), &status))
	rest, err := time.ParseDuration(status.Retry)
	require.NoError(t, err)
	require.LessOrEqual(t, rest, 20*time.Second, "the gateway tries again when the loss is over, not after retry-seconds")
	require.Contains(t, c.api("sim_unregister acme-out 20"), "is not registered now: its state is FAIL_WAIT")
	sequence := func(e map[string]string) int {
		n, err := strconv.Atoi(e["Event-Sequence"])
		require.NoError(t, err)
		return n
	}
	last := sequence(failed)
	for _, state := range []string{"FAIL_WAIT", "UNREGED", "TRYING", "REGISTER", "REGED"} {
		last = sequence(c.await(state, func(e map[string]string) bool {
			return e["Gateway"] == "acme-out" && e["State"] == state && sequence(e) > last
		}))
	}
	require.Contains(t, c.api("sofia xmlstatus gateway acme-out"), "<status>UP</status>")

	for arg, said := range map[string]string{
		"nobody 5": "there is no such gateway", "acme-noreg 5": "does not register", "acme-bad 5": "is not registered now",
		"acme-out": "the seconds must be from 1 to 3600", "acme-out 0.5": "the seconds must be", "acme-out NaN": "the seconds must be", "acme-out 3601": "the seconds must be",
		"": "the seconds must be",
	} {
		reply := c.api("sim_unregister " + arg)
		require.True(t, strings.HasPrefix(reply, "-ERR sim_unregister") && strings.Contains(reply, said), "%q: %s", arg, reply)
	}
}
