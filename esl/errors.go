package esl

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrDown is returned for every command while the node is not connected and resynchronised.
	ErrDown = errors.New("node is down")
	// ErrBusy is returned for a command that was never sent, because its caller waits no longer: those before it kept the switch or the channel
	// busy, or it was not known in time whether the switch is ours.
	ErrBusy = errors.New("switch is busy with other commands")
	// ErrNoReply is returned when a command was sent but its reply did not come in time, or not before the connection ended: the switch may or
	// may not have run it.
	ErrNoReply = errors.New("no reply from the switch")
	// ErrStopped ends a node that [Node.Stop] was called on.
	ErrStopped = errors.New("node was stopped")
	// ErrNoSuchChannel is found in the *CommandError of a command for a channel that is gone.
	ErrNoSuchChannel = errors.New("no such channel")

	// ErrRejected says that the switch refused our address (its apply-inbound-acl).
	ErrRejected = errors.New("address refused by the switch's access list")
	// ErrBadPassword says that the switch refused our password.
	ErrBadPassword = errors.New("password refused")
	// ErrSilent says that the peer accepted the connection and then did not speak the protocol in time.
	ErrSilent = errors.New("peer is silent")
	// ErrNotFreeSWITCH says that the peer speaks something else.
	ErrNotFreeSWITCH = errors.New("peer is not an event socket")

	// ErrOverflow says that events came faster than the handler took them, for longer than the queues last.
	ErrOverflow = errors.New("event queue overflow")
	// ErrHandlerStuck says that the handler kept one call for longer than the watchdog allows.
	ErrHandlerStuck = errors.New("event handler is stuck")
	// ErrHeartbeatLost says that two heartbeats in a row did not come.
	ErrHeartbeatLost = errors.New("heartbeats missing")
	// ErrDisconnected says that the switch ended the connection.
	ErrDisconnected = errors.New("disconnected by the switch")
	// ErrRestarted says that the switch is no longer the process it was.
	ErrRestarted = errors.New("switch was restarted")
)

// CommandError is a command that the switch refused.
type CommandError struct {
	Command string // the command's verb, without arguments
	Reply   string // what the switch said, such as "-ERR USER_BUSY"
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("esl: %s: switch replied %q", e.Command, clip(e.Reply))
}

// Is reports ErrNoSuchChannel when the reply says that the channel does not exist.
func (e *CommandError) Is(target error) bool {
	if target != ErrNoSuchChannel {
		return false
	}
	reply := strings.ToLower(e.Reply)
	return strings.Contains(reply, "no such channel") || strings.Contains(reply, "invalid session id") ||
		strings.Contains(reply, "cannot locate session")
}

// Cause is the hangup cause that a failed originate names, or empty.
func (e *CommandError) Cause() string {
	if word, ok := strings.CutPrefix(strings.TrimSpace(e.Reply), "-ERR "); ok && causes[word] {
		return word
	}
	return ""
}

// ConnectError says at which step connecting to a switch failed. It wraps one of the sentinels above or the network's error.
type ConnectError struct {
	Addr string
	Step string // "dial", "greeting", "auth", "subscribe", "claim", "resync"
	Err  error
}

func (e *ConnectError) Error() string { return fmt.Sprintf("esl: %s at %s: %s", e.Step, e.Addr, e.Err) }

func (e *ConnectError) Unwrap() error { return e.Err }

// needsOperator reports whether trying again soon cannot help.
func needsOperator(err error) bool {
	return errors.Is(err, ErrRejected) || errors.Is(err, ErrBadPassword) || errors.Is(err, ErrNotFreeSWITCH) || errors.Is(err, ErrSilent)
}
