package lab_test

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// redirects is a SIP server that answers every INVITE with 302 and counts the different calls it was asked for.
func redirects(t *testing.T, contact string) (addr string, asked *atomic.Int64) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	asked = new(atomic.Int64)
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
			request := string(buffer[:n])
			if !strings.HasPrefix(request, "INVITE ") {
				continue
			}
			asked.Add(1)
			var reply strings.Builder
			reply.WriteString("SIP/2.0 302 Moved Temporarily\r\n")
			head, _, _ := strings.Cut(request, "\r\n\r\n")
			for line := range strings.SplitSeq(head, "\r\n") {
				switch name, _, _ := strings.Cut(line, ":"); name {
				case "Via", "From", "Call-ID", "CSeq":
					reply.WriteString(line + "\r\n")
				case "To":
					reply.WriteString(line + ";tag=moved\r\n")
				}
			}
			fmt.Fprintf(&reply, "Contact: <%s>\r\nContent-Length: 0\r\n\r\n", contact)
			_, _ = conn.WriteTo([]byte(reply.String()), from)
		}
	}()
	return conn.LocalAddr().String(), asked
}
