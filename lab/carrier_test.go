package lab_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// The carrier calls itself: each outcome of its dialplan, as its caller sees it.
func TestCarrierOutcomes(t *testing.T) {
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

func TestCarrierCallerTypes(t *testing.T) {
	t.Parallel()
	carrier := lab.StartCarrier(t)
	watch, err := lab.DialESL(t.Context(), carrier.ESLAddr, carrier.Password)
	require.NoError(t, err)
	defer func() { _ = watch.Close() }()
	require.NoError(t, watch.Subscribe(t.Context(), "DTMF"))
	require.NoError(t, carrier.CallIn("+15551111111", "+15550000003", carrier.SIPAddr, lab.Types(500*time.Millisecond, "42#")))
	for _, digit := range []string{"4", "2", "#"} {
		event, err := watch.Await(seconds(t, 20), "DTMF")
		require.NoError(t, err)
		require.Equal(t, digit, event.Event("DTMF-Digit"))
	}
}

func TestCarrierRegistrar(t *testing.T) {
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
