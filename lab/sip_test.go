package lab_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// A request is repeated until it is answered, what is no answer to it is passed over, and a final answer is acknowledged.
func TestSendRequest(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 8)
	addr := lab.ServeSIP(t, func(request string) []string {
		method, _, _ := strings.Cut(request, " ")
		heard <- method
		if method != "INVITE" || len(heard) < 2 {
			return nil // the first is lost
		}
		call := header(request, "Call-ID")
		return []string{
			"noise", "SIP/2.0 200 OK\r\nCall-ID: another\r\n\r\n",
			"SIP/2.0 100 Trying\r\nCall-ID: " + call + "\r\n\r\n", "SIP/2.0 403 Forbidden\r\nTo: <sip:1@x>;tag=t\r\nCall-ID: " + call + "\r\n\r\n",
		}
	})
	status, err := lab.SendRequest(seconds(t, 20), lab.Request{NodeSIP: addr, To: "1"})
	require.NoError(t, err)
	require.Equal(t, 403, status)
	require.Equal(t, []string{"INVITE", "INVITE", "ACK"}, []string{<-heard, <-heard, <-heard})
}

func header(message, name string) string {
	for line := range strings.SplitSeq(message, "\r\n") {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return value
		}
	}
	return fmt.Sprintf("no %s", name)
}
