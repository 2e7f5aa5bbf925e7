package calls

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// limit sets the limits of the scene's customer.
func (s *scene) limit(limits models.CallLimits) {
	s.t.Helper()
	s.customer.Limits.CallLimits = limits
	require.NoError(s.t, s.store.SetLimits(s.t.Context(), s.customer))
}

// A call to where the customer's limits do not let it go is not stored, and never dialled, however it is asked for. A change counts for the next one.
func TestDestinationsOfACustomer(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		seen := &observed{}
		s := newScene(t, store, func(c *Config) { c.Observer = seen })
		s.limit(models.CallLimits{Destinations: models.Destinations{AllowedDestinations: []string{"US"}, DeniedDestinations: []string{"+1900"}}})
		dominican := CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+18095550100"}
		for _, c := range []struct {
			to     string
			queued bool
			why    string
		}{
			{"+18095550100", false, "not among the allowed destinations"}, {"+18095550100", true, "not among the allowed destinations"},
			{"+19005550100", false, "denied by +1900"}, {"+4930123456", false, "not among the allowed destinations"},
		} {
			req := dominican
			req.To, req.Queued = c.to, c.queued
			_, err := s.manager.Create(t.Context(), req)
			var denied *DestinationError
			require.ErrorAs(t, err, &denied)
			require.Equal(t, c.why, denied.Why)
		}
		s.noCalls()

		// What was queued while it was allowed is looked at again when it is started, and an ended call when it is repeated.
		s.limit(models.CallLimits{Destinations: models.Destinations{AllowedDestinations: []string{"US", "DO"}}})
		s.sw.script("originate", func(c command) error {
			s.sw.hangup(c.channel, "USER_BUSY", "variable_sip_term_status", "486")
			return nil
		})
		dominican.Queued = true
		waiting, err := s.manager.Create(t.Context(), dominican)
		require.NoError(t, err)
		dominican.Queued = false
		_, err = s.manager.Create(t.Context(), dominican)
		require.NoError(t, err)
		s.sw.await("originate")
		ended := s.end()
		s.limit(models.CallLimits{Destinations: models.Destinations{DeniedDestinations: []string{"DO"}}})
		var denied *DestinationError
		_, err = s.manager.StartCall(t.Context(), s.customer.ID, waiting.ID, nil)
		require.ErrorAs(t, err, &denied)
		require.Equal(t, "denied by DO", denied.Why)
		_, err = s.manager.Retry(t.Context(), s.customer.ID, ended.ID, nil)
		require.ErrorAs(t, err, &denied)
		s.limit(models.CallLimits{})
		_, err = s.manager.StartCall(t.Context(), s.customer.ID, waiting.ID, nil)
		require.NoError(t, err)
		s.sw.await("originate")
		s.end()
		seen.mu.Lock()
		defer seen.mu.Unlock()
		require.Equal(t, []string{"destination", "destination", "destination", "destination", "destination", "destination"}, seen.refused)
	})
}

// A hundred at once: exactly as many calls are placed as may live, whatever else is refused.
func TestCustomerLimitOfCreates(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		const most, tries = 5, 100
		s := newScene(t, store)
		_, err := store.Credit(t.Context(), s.customer.ID, "more", "topup", 100*startBalance, "")
		require.NoError(t, err)
		s.limit(models.CallLimits{MaxCalls: most})
		s.sw.script("originate", func(command) error { return nil })
		var all sync.WaitGroup
		var full atomic.Int64
		placed := make(chan *models.Call, tries)
		wrong := make(chan error, tries)
		for range tries {
			all.Go(func() {
				call, err := s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
				switch {
				case err == nil:
					placed <- call
				case errors.Is(err, models.ErrCustomerFull):
					full.Add(1)
				default:
					wrong <- err
				}
			})
		}
		all.Wait()
		close(wrong)
		for err := range wrong {
			require.NoError(t, err)
		}
		require.Len(t, placed, most)
		require.EqualValues(t, tries-most, full.Load())
		customer, err := store.Customer(t.Context(), s.customer.ID)
		require.NoError(t, err)
		var held int64
		for range most {
			call := <-placed
			held += call.HoldMicros
			s.sw.await("originate")
			defer s.end()
			defer s.sw.hangup(call.ChannelID, "USER_BUSY", "variable_sip_term_status", "486")
		}
		require.Equal(t, held, customer.HeldMicros, "what was refused holds nothing")

		// Waiting calls take no place, and cannot be started while there is none.
		waiting := s.create(func(r *CreateRequest) { r.Queued = true })
		_, err = s.manager.StartCall(t.Context(), s.customer.ID, waiting.ID, nil)
		require.ErrorIs(t, err, models.ErrCustomerFull)
		// Calls in count as well.
		in := s.callIn()
		require.Equal(t, command{verb: "kill", channel: in, args: causeTempFailure}, s.sw.await("kill"))
		var rows []models.Call
		require.Eventually(t, func() bool {
			rows, _, err = store.ListCalls(t.Context(), s.customer.ID, models.CallFilter{Status: StatusFailed}, models.Page{Limit: 10})
			return err != nil || len(rows) > 0
		}, patience, 5*time.Millisecond)
		require.NoError(t, err)
		require.Equal(t, []any{ReasonCustomerLimit, http.StatusServiceUnavailable, in}, []any{rows[0].Reason, rows[0].SIPCode, rows[0].ChannelID})
		s.limit(models.CallLimits{MaxCalls: most + 1})
		_, err = s.manager.StartCall(t.Context(), s.customer.ID, waiting.ID, nil)
		require.NoError(t, err)
		last := s.sw.await("originate")
		s.sw.hangup(last.channel, "USER_BUSY", "variable_sip_term_status", "486")
		s.end()
	})
}

func TestDialToDeniedDestinations(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.limit(models.CallLimits{Destinations: models.Destinations{AllowedDestinations: []string{"DE", "sip:pbx.example.com"}}})
	s.answers("/answer", reply(`[{"action":"dial","to":["+18095550100","+4930123456","sip:desk@pbx.example.com","sip:desk@elsewhere.example.com"],"result_url":"`+s.server.URL+`/result"}]`))
	s.answers("/result", reply(`[{"action":"dial","to":"+18095550100","result_url":"`+s.server.URL+`/second"}]`))
	s.answers("/second", reply(`[{"action":"transfer","to":"sip:desk@elsewhere.example.com","result_url":"`+s.server.URL+`/third"}]`))
	s.answers("/third", reply(`[{"action":"transfer","mode":"refer","to":"+18095550100","result_url":"`+s.server.URL+`/fourth"}]`))
	s.answers("/fourth", reply(`[{"action":"hangup"}]`))
	s.sw.script("execute bridge", func(c command) error {
		s.sw.complete(c, "variable_originate_disposition", "USER_BUSY")
		return nil
	})
	s.callIn()
	bridge := s.sw.await("execute bridge")
	require.Contains(t, bridge.args, "+4930123456")
	require.Contains(t, bridge.args, "desk@pbx.example.com")
	require.NotContains(t, bridge.args, "8095550100")
	require.NotContains(t, bridge.args, "elsewhere")
	call := s.end()
	asks := s.requests()
	results := asks[len(asks)-4:]
	require.Equal(t, []any{
		map[string]any{"to": "+18095550100", "reason": ReasonDestination}, map[string]any{"to": "sip:desk@elsewhere.example.com", "reason": ReasonDestination},
	}, results[0].Result["refused"])
	require.Equal(t, []any{dialFailed, ReasonDestination}, []any{results[1].Result["dial_status"], results[1].Result["reason"]})
	for _, result := range results[2:] {
		require.Equal(t, []any{transferFailed, ReasonDestination}, []any{result.Result["transfer_status"], result.Result["reason"]})
	}
	for _, line := range s.sw.log() {
		require.NotContains(t, line, "8095550100")
		require.NotContains(t, line, "elsewhere")
	}
	legs, err := s.store.LegsOfCall(t.Context(), s.customer.ID, call.ID)
	require.NoError(t, err)
	require.Len(t, legs, 2)
	var told [][]any
	for _, data := range s.dataOf(call.ID, "call.error") {
		told = append(told, []any{data["action"], data["code"], data["field"]})
	}
	require.Equal(t, [][]any{
		{"dial", ReasonDestination, "to[0]"}, {"dial", ReasonDestination, "to[3]"}, {"dial", ReasonDestination, "to[0]"}, {"transfer", ReasonDestination, "to"},
		{"transfer", ReasonDestination, "to"},
	}, told)
}

// Of the parties of a dial as many are called as there is room for; with none, nobody is.
func TestDialKeepsToTheCustomersLimit(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		seen := &observed{}
		s := newScene(t, store, func(c *Config) { c.Observer = seen })
		s.limit(models.CallLimits{MaxCalls: 3})
		s.answers("/answer", reply(`[{"action":"dial","to":["+15550100003","+15550100004","+15550100005"],"result_url":"`+s.server.URL+`/result"}]`))
		s.answers("/result", reply(`[{"action":"transfer","to":"+15550100006","result_url":"`+s.server.URL+`/last"}]`))
		s.answers("/last", reply(`[{"action":"hangup"}]`))
		s.sw.script("execute bridge", func(command) error { return nil })
		first := s.callIn()
		bridge := s.sw.await("execute bridge")
		require.Contains(t, bridge.args, "+15550100003")
		require.Contains(t, bridge.args, "+15550100004")
		require.NotContains(t, bridge.args, "+15550100005")
		s.limit(models.CallLimits{MaxCalls: 4})
		second := s.callIn() // itself the fourth
		require.Equal(t, second, s.sw.await("kill").channel)
		call := s.end()
		asks := s.requests()
		results := asks[len(asks)-2:]
		require.Equal(t, []any{dialFailed, ReasonCustomerLimit}, []any{results[0].Result["dial_status"], results[0].Result["reason"]})
		require.Len(t, results[0].Result["refused"], 3)
		require.Equal(t, []any{transferFailed, ReasonCustomerLimit}, []any{results[1].Result["transfer_status"], results[1].Result["reason"]})
		require.Len(t, s.dataOf(call.ID, "call.error"), 4)
		legs, err := store.LegsOfCall(t.Context(), s.customer.ID, call.ID)
		require.NoError(t, err)
		require.Empty(t, legs)
		s.sw.hangup(first, "ORIGINATOR_CANCEL", "variable_sip_hangup_disposition", "recv_bye")
		s.end()
		seen.mu.Lock()
		defer seen.mu.Unlock()
		require.Equal(t, []string{RefusedMaxCalls, RefusedMaxCalls, RefusedMaxCalls}, seen.refused)
	})
}

// A number that was denied after the first attempt is not dialled over the next trunk.
func TestRerouteKeepsToTheDestinations(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.trunks(2)
	s.sw.script("originate", func(command) error { return nil })
	created := s.create()
	s.sw.await("originate")
	s.limit(models.CallLimits{Destinations: models.Destinations{DeniedDestinations: []string{"+1"}}})
	s.sw.hangup(created.ChannelID, busyCarrier[0], "variable_sip_term_status", busyCarrier[1])
	call := s.end()
	require.Equal(t, []any{ReasonCarrierError, *created.TrunkID}, []any{call.Reason, *call.TrunkID})
	require.Empty(t, s.dataOf(call.ID, "call.rerouted"))
}

// A party that its first trunk has no room for begins when it is called over the next one.
func TestPartiesOverTheNextTrunkCount(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		trunks := s.trunks(2)
		trunks[0].Limits.MaxCalls = 1 // the call itself
		require.NoError(t, store.UpdateTrunk(t.Context(), trunks[0]))
		s.limit(models.CallLimits{DailyLimits: models.DailyLimits{MaxCallsPerDay: 2}})
		s.answers("/answer", reply(`[{"action":"dial","to":["+15550000200","+15550000201"],"strategy":"sequential"},{"action":"hangup"}]`))
		s.sw.dials(map[string]dialedParty{"0200": {cause: "USER_BUSY", sip: "486"}, "0201": {cause: "USER_BUSY", sip: "486"}})
		call := s.create()
		s.end()
		bridges := s.bridges()
		require.Len(t, bridges, 1)
		require.Contains(t, bridges[0], "0200")
		require.NotContains(t, bridges[0], "15550000201")
		result := s.data(call.ID, "call.action_completed")["result"].(map[string]any)
		require.Equal(t, []any{map[string]any{"to": "+15550000201", "reason": ReasonCustomerLimit}}, result["refused"])
	})
}
