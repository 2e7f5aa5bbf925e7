package dialplan

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
	"tandem/lab"
	"tandem/models"
)

// someNumbers are a number of an application and one that is rejected.
func someNumbers() *fakeStore {
	busy := number("did_2", "cust_a", "+15550002567")
	busy.RouteMode, busy.RejectCode = models.RouteReject, 486
	return &fakeStore{
		trunks: []models.Trunk{inbound("trunk_1", "cust_a", "127.0.0.2", "")},
		dids:   []models.DID{number("did_1", "cust_a", "+15550001567"), busy},
	}
}

// TestFreeSWITCHRefusesWhenNobodyTakesCalls is the dead man's switch on a real one: a controller that says nothing any more is
// noticed by the switch itself.
func TestFreeSWITCHRefusesWhenNobodyTakesCalls(t *testing.T) {
	t.Parallel()
	l := startLive(t, someNumbers(), lab.Options{})
	const from, number, busy = "127.0.0.2", "+15550001567", "+15550002567"
	l.parked(t, from, number)
	require.NoError(t, l.control.RefuseCalls(within(t)))
	require.Equal(t, http.StatusServiceUnavailable, l.calls(t, from, number))
	require.Equal(t, 486, l.calls(t, from, busy), "what needs no controller goes on")

	task, err := l.control.AcceptCalls(within(t), time.Hour, "")
	require.NoError(t, err)
	l.parked(t, from, number)
	task, err = l.control.AcceptCalls(within(t), time.Second, task)
	require.NoError(t, err)
	require.NotEmpty(t, task)
	require.Eventually(t, func() bool { return l.attempt(t, from, number) == http.StatusServiceUnavailable }, 20*time.Second, 100*time.Millisecond)
	// Another controller takes over: what the first one left scheduled does not end its taking.
	_, err = l.control.AcceptCalls(within(t), 2*time.Second, "")
	require.NoError(t, err)
	_, err = l.control.AcceptCalls(within(t), time.Hour, "")
	require.NoError(t, err)
	require.Never(t, func() bool { return l.attempt(t, from, number) != 486 }, 3*time.Second, 300*time.Millisecond)
}

// attempt sends an INVITE, refuses it as busy where it is parked, and returns the status that it ends in.
func (l *live) attempt(t *testing.T, from, number string) int {
	status := make(chan int, 1)
	go func() {
		got, _ := lab.SendRequest(within(t), lab.Request{NodeSIP: l.sip, From: "+15559990000", To: number, Local: from})
		status <- got
	}()
	for {
		select {
		case e := <-l.parks:
			_ = l.control.Kill(within(t), e.ChannelID(), "USER_BUSY")
		case got := <-status:
			return got
		}
	}
}

// TestSimulatedSwitchRefusesWhenNobodyTakesCalls holds the simulated switch to the same.
func TestSimulatedSwitchRefusesWhenNobodyTakesCalls(t *testing.T) {
	t.Parallel()
	confDir := t.TempDir()
	sim, err := simswitch.New(simswitch.Config{Password: "a password", ConfDir: confDir, Speed: 20})
	require.NoError(t, err)
	require.NoError(t, sim.Start())
	t.Cleanup(func() { require.NoError(t, sim.Close()) })
	l := connectLive(t, someNumbers(), sim.Addr(), "a password", confDir)
	call := func(number string) {
		t.Helper()
		_, err := sim.CallIn(simswitch.IncomingCall{From: "+15559990000", To: number, SourceIP: "127.0.0.2"})
		require.NoError(t, err)
	}
	refused := func() string {
		t.Helper()
		return receive(t, l.ended).Variable("current_application_data")
	}
	taken := func() {
		t.Helper()
		call("+15550001567")
		require.NoError(t, l.control.Kill(within(t), receive(t, l.parks).ChannelID(), "USER_BUSY"))
		receive(t, l.ended)
	}
	taken()
	require.NoError(t, l.control.RefuseCalls(within(t)))
	call("+15550001567")
	require.Equal(t, refuseUnsteered, refused())
	call("+15550002567")
	require.Equal(t, "486", refused())

	task, err := l.control.AcceptCalls(within(t), time.Hour, "")
	require.NoError(t, err)
	taken()
	task, err = l.control.AcceptCalls(within(t), time.Hour, task)
	require.NoError(t, err)
	taken()
	_, err = l.control.AcceptCalls(within(t), time.Second, task) // fifty milliseconds, on this switch
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		call("+15550001567")
		select {
		case e := <-l.parks:
			require.NoError(t, l.control.Kill(within(t), e.ChannelID(), "USER_BUSY"))
			receive(t, l.ended)
			return false
		case e := <-l.ended:
			return e.Variable("current_application_data") == refuseUnsteered
		}
	}, 10*time.Second, 20*time.Millisecond)
	_, err = l.control.AcceptCalls(within(t), time.Hour, "")
	require.NoError(t, err)
	taken()
}
