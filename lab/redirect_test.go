package lab_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"tandem/lab"
)

// redirects is a SIP server that answers every INVITE with 302 and counts the different calls it was asked for.
func redirects(t *testing.T, contact string) (addr string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	return lab.ServeSIP(t, func(request string) []string {
		if !strings.HasPrefix(request, "INVITE ") {
			return nil
		}
		asked.Add(1)
		return []string{lab.FinalReply(request, "302 Moved Temporarily", "Contact: <"+contact+">")}
	}), asked
}
