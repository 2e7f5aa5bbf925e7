package esl

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// A drained switch refuses whoever calls in with 503, keeps its limits and its clock, and goes on dialling.
func TestFreeSWITCHDrain(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	ctx := deadlineTB(t, time.Minute)
	status, err := l.Status(ctx)
	require.NoError(t, err)
	require.True(t, status.Ready)
	require.Equal(t, 2000, status.MaxSessions, "as freeswitch-conf has it")
	require.Equal(t, 200, status.MaxRate)
	require.Contains(t, status.Version, "1.10")
	require.Positive(t, status.Uptime)
	clock, err := l.Clock(ctx)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), clock, 2*time.Second)

	tally, err := l.Tally(ctx)
	require.NoError(t, err)
	require.Zero(t, tally)

	pause, err := l.Paused(ctx)
	require.NoError(t, err)
	require.Zero(t, pause)
	answers := func(method string) int {
		status, err := lab.SendRequest(ctx, lab.Request{Method: method, NodeSIP: l.node.SIPAddr, To: "+15550100001"})
		require.NoError(t, err, method)
		return status
	}
	require.Equal(t, []int{200, 403}, []int{answers("OPTIONS"), answers("INVITE")}, "nobody has invited it")
	require.NoError(t, l.Drain(ctx))
	pause, err = l.Paused(ctx)
	require.NoError(t, err)
	require.Equal(t, Pause{Inbound: true, Draining: true}, pause)
	status, err = l.Status(ctx)
	require.NoError(t, err)
	require.True(t, status.Ready, "it still calls out")
	require.Equal(t, []int{503, 503}, []int{answers("OPTIONS"), answers("INVITE")})
	require.NoError(t, l.Undrain(ctx))
	pause, err = l.Paused(ctx)
	require.NoError(t, err)
	require.Zero(t, pause)
	require.Equal(t, []int{200, 403}, []int{answers("OPTIONS"), answers("INVITE")})
}
