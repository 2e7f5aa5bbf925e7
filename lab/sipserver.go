package lab

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ServeSIP hears SIP requests over UDP on a port of its own until the test ends, and sends what hear returns of each, as a datagram each.
func ServeSIP(t testing.TB, hear func(request string) []string) (addr string) {
	t.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	go func() {
		defer close(done)
		buffer := make([]byte, 64<<10)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			for _, reply := range hear(string(buffer[:n])) {
				_, _ = conn.WriteTo([]byte(reply), from)
			}
		}
	}()
	return conn.LocalAddr().String()
}

// FinalReply is the answer to a request with a status such as "486 Busy Here" and further header lines.
func FinalReply(request, status string, lines ...string) string {
	var reply strings.Builder
	reply.WriteString("SIP/2.0 " + status + "\r\n")
	head, _, _ := strings.Cut(request, "\r\n\r\n")
	for line := range strings.SplitSeq(head, "\r\n") {
		switch name, _, _ := strings.Cut(line, ":"); name {
		case "Via", "From", "Call-ID", "CSeq":
			reply.WriteString(line + "\r\n")
		case "To":
			reply.WriteString(line + ";tag=final\r\n")
		}
	}
	for _, line := range append(lines, "Content-Length: 0", "") {
		reply.WriteString(line + "\r\n")
	}
	return reply.String()
}
