package calls

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
	"tandem/models"
	"tandem/models/modelstest"
)

// sink is a SIP server that answers every INVITE with 486 and remembers whom it was asked for.
type sink struct {
	addr string
	mu   sync.Mutex
	uris []string
}

func startSink(t *testing.T) *sink {
	t.Helper()
	s := &sink{}
	s.addr = lab.ServeSIP(t, func(request string) []string {
		rest, ok := strings.CutPrefix(request, "INVITE ")
		if !ok {
			return nil
		}
		uri, _, _ := strings.Cut(rest, " ")
		s.mu.Lock()
		defer s.mu.Unlock()
		s.uris = append(s.uris, uri)
		return []string{lab.FinalReply(request, "486 Busy Here")}
	})
	return s
}

// asked are the URIs of the INVITEs that came, each once.
func (s *sink) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.uris)
	slices.Sort(all)
	return slices.Compact(all)
}

// A destination that the customer's limits do not allow never leaves the switch as an INVITE, neither over a trunk nor to a SIP URI, by the API nor by an
// action; one that they allow does.
func TestFreeSWITCHRefusedDestinations(t *testing.T) {
	t.Parallel()
	carrier := lab.StartCarrier(t)
	s := newStage(t, modelstest.Open(t))
	far := startSink(t)
	node := lab.StartNode(t, lab.Options{Edit: func(confDir string) error {
		layOut(t, confDir, s.trunk.GatewayName, far.addr)
		return nil
	}})
	s.node.ConfDir = node.ConfDir
	l := connect(t, s, node.ESLAddr, node.Password)
	l.limit(models.CallLimits{Destinations: models.Destinations{AllowedDestinations: []string{"DE", "sip:*"}}})

	var denied *DestinationError
	_, err := l.manager.Create(t.Context(), CreateRequest{CustomerID: l.customer.ID, ApplicationID: l.app.ID, From: "+15550100001", To: "+18095550100"})
	require.ErrorAs(t, err, &denied)
	l.answers("/answer", reply(`[{"action":"dial","to":["+18095550101","+4930123456","sip:+18095550102@`+far.addr+`","sip:desk@`+far.addr+`"],"result_url":"/result"},
		{"action":"dial","to":"+18765550103","result_url":"/result"},
		{"action":"transfer","to":"sip:0018095550104@`+far.addr+`","result_url":"/result"},
		{"action":"transfer","mode":"refer","to":"+18095550105","result_url":"/result"}]`))
	l.answers("/result", status(http.StatusNoContent))
	require.NoError(t, carrier.CallIn("+15559876543", l.did.NumberE164, node.SIPAddr, lab.AppEcho))
	call := l.end()
	require.Equal(t, ReasonCompleted, call.Reason)
	results := l.results()
	require.Len(t, results, 4)
	require.Len(t, results[0]["refused"], 2)
	require.Equal(t, ReasonBusy, results[0]["reason"])
	require.Equal(t, ReasonDestination, results[1]["reason"])
	require.Equal(t, ReasonDestination, results[2]["reason"])
	require.Equal(t, ReasonDestination, results[3]["reason"])

	l.answers("/answer", reply(`[{"action":"hangup"}]`))
	l.create(func(r *CreateRequest) { r.To = "+4930123457" })
	require.Equal(t, ReasonBusy, l.end().Reason)
	require.Eventually(t, func() bool { return len(far.asked()) >= 3 }, patience, 10*time.Millisecond)
	asked := far.asked()
	require.Len(t, asked, 3, "%v", asked)
	for _, uri := range asked {
		require.True(t, strings.HasPrefix(uri, "sip:+4930123456@") || strings.HasPrefix(uri, "sip:+4930123457@") || strings.HasPrefix(uri, "sip:desk@"), uri)
	}
}
