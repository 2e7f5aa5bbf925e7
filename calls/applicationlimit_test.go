package calls

import (
	"errors"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
	"tandem/numbering"
)

// bound sets the limits of the scene's application.
func (s *scene) bound(limits models.CallLimits) {
	s.t.Helper()
	s.app.Limits = limits
	require.NoError(s.t, s.store.UpdateApplication(s.t.Context(), s.app))
}

// An application's own lists hold for calls, however they are asked for, and for whom its calls dial. They open nothing that its customer may not call.
func TestDestinationsOfAnApplication(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.limit(models.CallLimits{Destinations: models.Destinations{AllowedDestinations: []string{"US", "+1555", "DE"}}})
		s.bound(models.CallLimits{Destinations: models.Destinations{AllowedDestinations: []string{"US", "+1555", "DO"}, DeniedDestinations: []string{"+1202"}}})
		for _, c := range []struct{ to, subject, why string }{
			{"+18095550100", models.SubjectCustomer, "not among the allowed destinations"}, {"+4930123456", models.SubjectApplication, "not among the allowed destinations"},
			{"+12025550100", models.SubjectApplication, "denied by +1202"}, {"+19002345678", models.SubjectCustomer, "premium numbers are not allowed"},
		} {
			for _, queued := range []bool{false, true} {
				_, err := s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: c.to, Queued: queued})
				var denied *DestinationError
				require.ErrorAs(t, err, &denied)
				require.Equal(t, DestinationError{c.subject, c.why}, *denied)
			}
		}
		s.noCalls()
		s.answers("/answer", reply(`[{"action":"dial","to":["+12025550100","+19002345678"],"result_url":"`+s.server.URL+`/result"}]`))
		s.answers("/result", reply(`[{"action":"transfer","to":"+4930123456","result_url":"`+s.server.URL+`/last"}]`))
		s.answers("/last", reply(`[{"action":"hangup"}]`))
		s.callIn()
		call := s.end()
		asks := s.requests()
		results := asks[len(asks)-2:]
		require.Equal(t, []any{dialFailed, ReasonDestination}, []any{results[0].Result["dial_status"], results[0].Result["reason"]})
		require.Equal(t, []any{transferFailed, ReasonDestination}, []any{results[1].Result["transfer_status"], results[1].Result["reason"]})
		var told []any
		for _, data := range s.dataOf(call.ID, "call.error") {
			told = append(told, data["message"])
		}
		require.Equal(t, []any{
			"the application may not call there: denied by +1202", "the customer may not call there: premium numbers are not allowed",
			"the application may not call there: not among the allowed destinations",
		}, told)
	})
}

// The types of numbers that an application is allowed are of those that its customer is; null leaves it all of them.
func TestTypesOfAnApplication(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		const premium, satellite, shared = "+19002345678", "+881612345678", "+491801234567"
		s.limit(models.CallLimits{Destinations: models.Destinations{AllowedDestinationTypes: []string{numbering.TypePremium, numbering.TypeSatellite}}})
		for _, c := range []struct {
			types   []string
			refused map[string]string // by whose limits
		}{
			{nil, map[string]string{shared: models.SubjectCustomer}},
			{[]string{numbering.TypePremium, numbering.TypeSharedCost}, map[string]string{satellite: models.SubjectApplication, shared: models.SubjectCustomer}},
			{[]string{}, map[string]string{premium: models.SubjectApplication, satellite: models.SubjectApplication, shared: models.SubjectCustomer}},
		} {
			s.bound(models.CallLimits{Destinations: models.Destinations{AllowedDestinationTypes: c.types}})
			for _, to := range []string{premium, satellite, shared} {
				_, err := s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: to, Queued: true})
				denied := &DestinationError{}
				if errors.As(err, &denied) {
					require.Contains(t, denied.Why, "numbers are not allowed")
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, c.refused[to], denied.Subject, "%s %v", to, c.types)
			}
		}
	})
}

// A limit that an application gets counts for whom its live calls dial from then on.
func TestLimitsOfAnApplicationChange(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		change := func(limits models.CallLimits, body string) func(http.ResponseWriter, asked) {
			return func(w http.ResponseWriter, a asked) {
				app := *s.app
				app.Limits = limits
				assert.NoError(t, store.UpdateApplication(t.Context(), &app))
				reply(body)(w, a)
			}
		}
		s.answers("/answer", change(models.CallLimits{Destinations: models.Destinations{DeniedDestinations: []string{"+1202"}}},
			`[{"action":"dial","to":["+12025550100"],"result_url":"`+s.server.URL+`/result"}]`))
		s.answers("/result", change(models.CallLimits{MaxCalls: 1}, `[{"action":"dial","to":["+15550100003"],"result_url":"`+s.server.URL+`/last"}]`))
		s.answers("/last", reply(`[{"action":"hangup"}]`))
		s.callIn()
		s.end()
		asks := s.requests()
		results := asks[len(asks)-2:]
		require.Equal(t, []any{dialFailed, ReasonDestination}, []any{results[0].Result["dial_status"], results[0].Result["reason"]})
		require.Equal(t, []any{dialFailed, ReasonApplicationLimit}, []any{results[1].Result["dial_status"], results[1].Result["reason"]})
	})
}

// Of the parties of a dial as many are called as the application has room for, and who calls in finds out as well.
func TestDialKeepsToTheApplicationsLimit(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		seen := &observed{}
		s := newScene(t, store, func(c *Config) { c.Observer = seen })
		s.bound(models.CallLimits{MaxCalls: 2})
		s.answers("/answer", reply(`[{"action":"dial","to":["+15550100003","+15550100004"],"result_url":"`+s.server.URL+`/result"}]`))
		s.answers("/result", reply(`[{"action":"hangup"}]`))
		s.sw.script("execute bridge", func(command) error { return nil })
		first := s.callIn()
		bridge := s.sw.await("execute bridge")
		require.Contains(t, bridge.args, "+15550100003")
		require.NotContains(t, bridge.args, "+15550100004")
		second := s.callIn()
		require.Equal(t, second, s.sw.await("kill").channel)
		s.refusedCall(second, ReasonApplicationLimit)
		s.sw.hangup(first, "ORIGINATOR_CANCEL", "variable_sip_hangup_disposition", "recv_bye")
		call := s.end()
		require.Equal(t, ReasonApplicationLimit, s.dataOf(call.ID, "call.error")[0]["code"])
		seen.mu.Lock()
		defer seen.mu.Unlock()
		require.Equal(t, []string{RefusedMaxCalls, RefusedMaxCalls}, seen.refused)
	})
}

// refusedCall waits until an inbound call is stored as one that was refused.
func (s *scene) refusedCall(channel, reason string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		call, err := s.store.CallByChannel(s.t.Context(), channel)
		return err == nil && call.Status == StatusFailed && call.Reason == reason
	}, patience, 5*time.Millisecond)
}

// Calls in are refused where the day may not cost more, whosesoever limit it is, and end with its reason; calls out as well.
func TestSpendOfADay(t *testing.T) {
	t.Parallel()
	daily := models.DailyLimits{MaxSpendPerDayMicros: 1}
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		seen := &observed{}
		s := newScene(t, store, func(c *Config) { c.Observer = seen })
		inbound, err := store.InboundTrunkByAddress(t.Context(), netip.MustParseAddr(s.source))
		require.NoError(t, err)
		for _, subject := range []string{models.SubjectCustomer, models.SubjectApplication, models.SubjectTrunk} {
			s.customer.Limits.CallLimits, s.app.Limits, s.trunk.Limits, inbound.Limits = models.CallLimits{}, models.CallLimits{}, models.CallLimits{}, models.CallLimits{}
			switch subject {
			case models.SubjectCustomer:
				s.customer.Limits.DailyLimits = daily
			case models.SubjectApplication:
				s.app.Limits.DailyLimits = daily
			case models.SubjectTrunk:
				s.trunk.Limits.DailyLimits, inbound.Limits.DailyLimits = daily, daily
			}
			s.limit(s.customer.Limits.CallLimits)
			s.bound(s.app.Limits)
			require.NoError(t, store.UpdateTrunk(t.Context(), s.trunk))
			require.NoError(t, store.UpdateTrunk(t.Context(), inbound))
			_, err := s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002", Overflow: true})
			require.ErrorIs(t, err, models.ErrSpendLimit, "it does not wait for another day")
			var full *models.LimitError
			require.ErrorAs(t, err, &full)
			require.Equal(t, subject, full.Subject)
			channel := s.callIn()
			require.Equal(t, channel, s.sw.await("kill").channel)
			s.refusedCall(channel, ReasonSpendLimit)
		}
		customer, err := store.Customer(t.Context(), s.customer.ID)
		require.NoError(t, err)
		require.Zero(t, customer.HeldMicros)
		seen.mu.Lock()
		defer seen.mu.Unlock()
		require.Len(t, seen.refused, 6)
		require.Equal(t, RefusedDailySpend, seen.refused[0])
	})
}
