package esl

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// realStatus is what a FreeSWITCH 1.10.12 says.
const realStatus = "UP 0 years, 1 day, 2 hours, 3 minutes, 4 seconds, 5 milliseconds, 6 microseconds\n" +
	"FreeSWITCH (Version 1.10.12-release git a88d069 2024-08-02 21:02:27Z 64bit) is ready\n" +
	"1207 session(s) since startup\n" +
	"42 session(s) - peak 311, last 5min 57 \n" +
	"3 session(s) per Sec out of max 200, peak 88, last 5min 12 \n" +
	"2000 session(s) max\n" +
	"min idle cpu 5.00/91.33\n" +
	"Current Stack Size/Max 240K/8192K\n"

func TestStatusIsRead(t *testing.T) {
	t.Parallel()
	want := Status{
		Version: "1.10.12-release git a88d069 2024-08-02 21:02:27Z 64bit", Ready: true,
		Uptime:   26*time.Hour + 3*time.Minute + 4*time.Second + 5*time.Millisecond + 6*time.Microsecond,
		Sessions: 42, PeakSessions: 311, PeakSessionsFiveMinutes: 57, MaxSessions: 2000, SessionsSinceStart: 1207,
		Rate: 3, MaxRate: 200, PeakRate: 88, PeakRateFiveMinutes: 12, IdleCPU: 91.33, MinIdleCPU: 5,
	}
	got, err := parseStatus(realStatus)
	require.NoError(t, err)
	require.Equal(t, want, got)

	got, err = parseStatus(strings.Replace(strings.Replace(realStatus, "is ready", "is not ready", 1), "\n3 session(s) per", "\n-2 session(s) per", 1))
	require.NoError(t, err)
	want.Ready, want.Rate = false, 0
	require.Equal(t, want, got)

	for name, text := range map[string]string{
		"nothing":          "",
		"another answer":   "-ERR no reply\n",
		"a broken uptime":  strings.Replace(realStatus, "1 day", "one day", 1),
		"an endless one":   strings.Replace(realStatus, "0 years", "4000000000 years", 1),
		"a unit of no one": strings.Replace(realStatus, "2 hours", "2 fortnights", 1),
		"a line too few":   strings.Replace(realStatus, "2000 session(s) max\n", "", 1),
		"a great number":   strings.Replace(realStatus, "2000 session(s) max", "99999999999 session(s) max", 1),
		"cut off":          realStatus[:300],
	} {
		_, err := parseStatus(text)
		require.Error(t, err, name)
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add(realStatus)
	f.Add("UP 3 years\nFreeSWITCH (Version x) is not ready\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseStatus(text)
		if err != nil {
			require.Zero(t, s)
			return
		}
		require.GreaterOrEqual(t, min(s.Sessions, s.MaxSessions, s.Rate, s.MaxRate), 0)
		require.LessOrEqual(t, s.Uptime, longestUptime)
		require.GreaterOrEqual(t, s.Uptime, time.Duration(0))
	})
}

func TestClockAndDrainAsTheSwitchReadsThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		paused, draining := "false", ""
		var said []string
		f.intercept = func(c *fakeConn, m clientMessage) bool {
			line, ok := strings.CutPrefix(m.line, "api ")
			if !ok {
				return false
			}
			switch {
			case line == "strmicroepoch":
				c.api("1795214717281703")
			case line == "status":
				c.api(realStatus)
			case line == "fsctl pause_check inbound":
				c.api(paused)
			case line == "fsctl pause_check outbound":
				c.api("false")
			case line == "global_getvar tandem_draining":
				c.api(draining)
			case strings.HasPrefix(line, "fsctl "), strings.HasPrefix(line, "global_setvar tandem_draining"):
				said = append(said, line)
				c.api("+OK\n")
			default:
				return false
			}
			return true
		}
		n := startNode(t, f, h, nil)
		<-h.up
		clock, err := n.Clock(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.UnixMicro(1795214717281703).UTC(), clock)
		status, err := n.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, 42, status.Sessions)

		require.NoError(t, n.Undrain(t.Context()))
		require.Empty(t, said, "a pause of somebody else is not ended")
		require.NoError(t, n.Drain(t.Context()))
		require.Equal(t, []string{"global_setvar tandem_draining=true", "fsctl pause inbound"}, said)
		paused, said = "true", nil
		pause, err := n.Paused(t.Context())
		require.NoError(t, err)
		require.Equal(t, Pause{Inbound: true}, pause, "by hand")
		draining = "true"
		pause, err = n.Paused(t.Context())
		require.NoError(t, err)
		require.Equal(t, Pause{Inbound: true, Draining: true}, pause)
		require.NoError(t, n.Undrain(t.Context()))
		require.Equal(t, []string{"fsctl resume inbound", "global_setvar tandem_draining="}, said)
	})
}

// A clock that is no number is told of and not taken for 1970.
func TestClockThatIsNone(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"Sat Nov 21", "-ERR strmicroepoch Command not found!\n"} {
		synctest.Test(t, func(t *testing.T) {
			f, h := newFakeSwitch(), newRecorder()
			f.intercept = func(c *fakeConn, m clientMessage) bool {
				if m.line != "api strmicroepoch" {
					return false
				}
				c.api(reply)
				return true
			}
			n := startNode(t, f, h, nil)
			<-h.up
			_, err := n.Clock(t.Context())
			require.ErrorContains(t, err, strings.TrimSpace(reply), fmt.Sprint(err))
		})
	}
}
