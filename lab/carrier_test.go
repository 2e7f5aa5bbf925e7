package lab_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// The carrier calls itself: each outcome of its dialplan, as its caller sees it.
func TestFreeSWITCHCarrierOutcomes(t *testing.T) {
	t.Parallel()
	carrier := lab.StartCarrier(t)
	for _, tc := range []struct {
		to, app, cause string
		answered       bool
		code           int
	}{
		{to: "+15550000486", cause: "USER_BUSY", code: 486},
		{to: "+15550000404", cause: "UNALLOCATED_NUMBER", code: 404},
		{to: "+15550000603", cause: "CALL_REJECTED", code: 603},
		{to: "+15550000503", cause: "NORMAL_TEMPORARY_FAILURE", code: 503},
		{to: "+15550000701", cause: "NORMAL_CLEARING", answered: true},
		{to: "+15550000001", app: lab.HangsUp(200 * time.Millisecond), cause: "NORMAL_CLEARING", answered: true},
		{to: "+15550000002", app: lab.Sounds(200 * time.Millisecond), cause: "NORMAL_CLEARING", answered: true},
	} {
		leg, err := carrier.Call(t.Context(), lab.Caller{From: "+15551111111", To: tc.to, NodeSIP: carrier.SIPAddr, App: tc.app})
		require.NoError(t, err)
		outcome, err := leg.Ended(seconds(t, 20))
		require.NoError(t, err, tc.to)
		require.Equal(t, tc.cause, outcome.Cause, tc.to)
		require.Equal(t, tc.answered, outcome.Answered, tc.to)
		require.Equal(t, tc.code, outcome.SIPCode, tc.to)
	}
}

func TestFreeSWITCHCarrierCallerTypes(t *testing.T) {
	t.Parallel()
	carrier := lab.StartCarrier(t)
	node := lab.StartNode(t, lab.Options{Edit: parksEverybody})
	watch := node.Probe(t)
	require.NoError(t, watch.Subscribe(t.Context(), "CHANNEL_PARK", "DTMF"))
	leg, err := carrier.Call(t.Context(), lab.Caller{From: "+15551111111", To: "+15550000003", NodeSIP: node.SIPAddr, App: lab.Types(500*time.Millisecond, "42#")})
	require.NoError(t, err)
	parked, err := watch.Await(seconds(t, 10), "CHANNEL_PARK")
	require.NoError(t, err)
	require.Equal(t, "+15550000003", parked.Event("Caller-Destination-Number"))
	require.Equal(t, "127.0.0.1", parked.Event("variable_sip_network_ip"))
	require.NoError(t, watch.Execute(t.Context(), parked.Event("Unique-ID"), "answer", ""))
	require.NoError(t, leg.Answered(seconds(t, 10)))
	for _, digit := range []string{"4", "2", "#"} {
		event, err := watch.Await(seconds(t, 20), "DTMF")
		require.NoError(t, err)
		require.Equal(t, digit, event.Event("DTMF-Digit"))
	}
	require.NoError(t, leg.HangUp(t.Context()))
	outcome, err := leg.Ended(seconds(t, 10))
	require.NoError(t, err)
	require.Equal(t, lab.Outcome{Cause: "NORMAL_CLEARING", HungUpBy: "send_bye"}, outcome)
}

func TestFreeSWITCHCarrierCallsFromOtherAddresses(t *testing.T) {
	t.Parallel()
	carrier := lab.StartCarrier(t)
	node := lab.StartNode(t, lab.Options{Edit: parksEverybody})
	watch := node.Probe(t)
	require.NoError(t, watch.Subscribe(t.Context(), "CHANNEL_PARK"))
	for source, addr := range map[string]string{lab.SourceSecond: "127.0.0.2", lab.SourceThird: "127.0.0.3"} {
		leg, err := carrier.Call(t.Context(), lab.Caller{From: "+15551111111", To: "+15550000004", NodeSIP: node.SIPAddr, Source: source})
		require.NoError(t, err)
		parked, err := watch.Await(seconds(t, 10), "CHANNEL_PARK")
		require.NoError(t, err)
		require.Equal(t, addr, parked.Event("variable_sip_network_ip"))
		require.NoError(t, leg.HangUp(t.Context()))
	}
}

func TestFreeSWITCHCarrierRegistrar(t *testing.T) {
	t.Parallel()
	carrier := lab.StartCarrier(t)
	node := lab.StartNode(t, lab.Options{Edit: gateways(map[string]string{
		"good": gateway(carrier, lab.CarrierPassword),
		"bad":  gateway(carrier, "wrong"),
	})})
	probe := node.Probe(t)
	for name, want := range map[string]string{"good": "REGED", "bad": "FAIL_WAIT"} {
		require.Eventually(t, func() bool {
			status, err := probe.API(t.Context(), "sofia xmlstatus gateway "+name)
			return err == nil && containsTag(status, "state", want)
		}, 20*time.Second, 50*time.Millisecond, "%s never became %s", name, want)
	}
}
