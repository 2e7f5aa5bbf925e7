package esl

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestDialledSocketNoticesADeadPeer(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	c, err := defaultDial()(t.Context(), "tcp", ln.Addr().String())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	raw, err := c.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	options := map[int]int{}
	require.NoError(t, raw.Control(func(fd uintptr) {
		for _, o := range []int{unix.TCP_USER_TIMEOUT, unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT} {
			options[o], _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, o)
		}
		options[-1], _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
	}))
	require.Equal(t, map[int]int{unix.TCP_USER_TIMEOUT: 20000, unix.TCP_KEEPIDLE: 5, unix.TCP_KEEPINTVL: 5, unix.TCP_KEEPCNT: 3, -1: 1}, options)
}
