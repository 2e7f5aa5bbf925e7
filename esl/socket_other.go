//go:build !linux

package esl

import (
	"syscall"
	"time"
)

// limitUnacked does nothing where the system has no TCP_USER_TIMEOUT; keepalive and the probe remain.
func limitUnacked(time.Duration) func(network, address string, c syscall.RawConn) error { return nil }
