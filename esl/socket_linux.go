package esl

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// limitUnacked makes the kernel give up a connection whose sent bytes were not acknowledged for so long; without it a powered-off peer is
// noticed after a quarter of an hour.
func limitUnacked(limit time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var failed error
		if err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
		}); err != nil {
			return err
		}
		return failed
	}
}
