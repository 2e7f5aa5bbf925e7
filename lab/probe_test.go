package lab_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// eventSocket is a server that answers each command with the next of its scripted replies.
func eventSocket(t *testing.T, replies ...string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	go func() {
		defer close(done)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		reader := bufio.NewReader(conn)
		for _, reply := range replies {
			_, _ = fmt.Fprint(conn, reply)
			for {
				line, err := reader.ReadString('\n')
				if err != nil {
					return
				}
				if line == "\n" {
					break
				}
			}
		}
	}()
	return ln.Addr().String()
}

const (
	greeting = "Content-Type: auth/request\n\n"
	accepted = "Content-Type: command/reply\nReply-Text: +OK accepted\n\n"
)

func TestProbeKeepsEventsThatComeBeforeAReply(t *testing.T) {
	t.Parallel()
	event := "Event-Name: CHANNEL_PARK\nUnique-ID: a%20b\n\n"
	addr := eventSocket(t, greeting, accepted,
		fmt.Sprintf("Content-Length: %d\nContent-Type: text/event-plain\n\n%s", len(event), event)+"Content-Type: api/response\nContent-Length: 4\n\ntrue", "")
	probe, err := lab.DialESL(seconds(t, 10), addr, "secret")
	require.NoError(t, err)
	defer func() { _ = probe.Close() }()
	// The reply to the command is the one that the server sends after the authentication.
	reply, err := probe.API(seconds(t, 10), "fsctl ready_check")
	require.NoError(t, err)
	require.Equal(t, "true", reply)
	parked, err := probe.Await(seconds(t, 10), "CHANNEL_PARK")
	require.NoError(t, err)
	require.Equal(t, "a b", parked.Event("Unique-ID"))
}

func TestProbeTellsARefusal(t *testing.T) {
	t.Parallel()
	for name, replies := range map[string][]string{
		"password": {greeting, "Content-Type: command/reply\nReply-Text: -ERR invalid\n\n"},
		"address":  {"Content-Type: text/rude-rejection\nContent-Length: 24\n\n" + strings.Repeat("x", 24)},
	} {
		_, err := lab.DialESL(seconds(t, 10), eventSocket(t, replies...), "secret")
		require.ErrorIs(t, err, lab.ErrDenied, name)
	}
}
