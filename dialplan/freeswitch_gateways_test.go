package dialplan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/lab"
	"tandem/models"
)

// dial places a call over a gateway and returns its channel once it is answered.
func (l *live) dial(t *testing.T, gateway, number string) string {
	t.Helper()
	channel := uuid.NewString()
	job, err := l.control.Originate(within(t), esl.Originate{ChannelID: channel, Gateway: gateway, Number: number, Timeout: 20 * time.Second})
	require.NoError(t, err)
	_, err = job.Wait(within(t))
	require.NoError(t, err)
	return channel
}

// alive requires that all channels are there.
func (l *live) alive(t *testing.T, channels []string) {
	t.Helper()
	for _, channel := range channels {
		there, err := l.control.Exists(within(t), channel)
		require.NoError(t, err)
		require.True(t, there, channel)
	}
}

// hangUpAll ends the channels and requires that each was alive until then, and was heard to the end.
func (l *live) hangUpAll(t *testing.T, channels []string) {
	t.Helper()
	for _, channel := range channels {
		require.NoError(t, l.control.Kill(within(t), channel, "NORMAL_CLEARING"))
	}
	left := slices.Clone(channels)
	for len(left) > 0 {
		e := receive(t, l.ended)
		if at := slices.Index(left, e.ChannelID()); at >= 0 {
			require.Equal(t, "NORMAL_CLEARING", e.Get("Hangup-Cause"))
			require.Equal(t, "send_bye", e.Variable("sip_hangup_disposition"))
			left = slices.Delete(left, at, at+1)
		}
	}
}

// TestFreeSWITCHPasswordChange changes the password of a trunk that is registered and carries calls: the next registration uses the new one, and the
// calls live on. One of them ends by the carrier's word, which the dialog of the gateway that is gone must still take.
func TestFreeSWITCHPasswordChange(t *testing.T) {
	t.Parallel()
	carrier := lab.StartCarrier(t)
	trunk := outbound("trunk_1", "cust_a", "carrier-a")
	trunk.Proxy, trunk.Realm, trunk.FromDomain = carrier.SIPAddr, lab.CarrierRealm, lab.CarrierRealm
	trunk.Username, trunk.Password = lab.CarrierUsername, secret(lab.CarrierPassword)
	store := &fakeStore{trunks: []models.Trunk{trunk}}
	l := startLive(t, store, lab.Options{})
	l.awaits(t, "carrier-a", "REGED")
	calls := []string{l.dial(t, "carrier-a", "+15550000800"), l.dial(t, "carrier-a", "+15550000800"), l.dial(t, "carrier-a", "+15550000999")}

	change := func(password, state string) {
		t.Helper()
		began := time.Now()
		store.set(func(f *fakeStore) { f.trunks[0].Password = secret(password) })
		report := l.sync(t)
		require.Equal(t, []string{"carrier-a"}, report.Killed)
		l.awaits(t, "carrier-a", state)
		t.Logf("password changed: told the switch in %s, %s after %s", report.Took.Round(time.Millisecond), state, time.Since(began).Round(time.Millisecond))
		l.alive(t, calls)
	}
	change("no such password", "FAIL_WAIT")
	change(lab.CarrierPassword, "REGED")
	// And a new call over it goes through.
	calls = append(calls, l.dial(t, "carrier-a", "+15550000800"))
	l.alive(t, calls)

	// The carrier hangs one up that began on the first gateway.
	_, err := carrier.API(within(t), "hupall NORMAL_CLEARING")
	require.NoError(t, err)
	for left := slices.Clone(calls); len(left) > 0; {
		e := receive(t, l.ended)
		if at := slices.Index(left, e.ChannelID()); at >= 0 {
			require.Equal(t, "recv_bye", e.Variable("sip_hangup_disposition"))
			left = slices.Delete(left, at, at+1)
		}
	}
}

// TestFreeSWITCHManyGateways adds, changes and removes gateways by the thousand while calls are up over some of those that change and go, and
// notes what it takes.
func TestFreeSWITCHManyGateways(t *testing.T) {
	t.Parallel()
	const count, live, changed, removed, added = 5000, 25, 2500, 1000, 500
	carrier := lab.StartCarrier(t)
	pings := startAnswerer(t, "200 OK")
	gateway := func(i int) models.Trunk {
		trunk := outbound(fmt.Sprintf("trunk_%05d", i), "cust_a", fmt.Sprintf("gw-%05d", i))
		trunk.Register, trunk.Proxy, trunk.FromDomain = false, pings.addr, ""
		if i%(count/live) == 0 {
			trunk.Proxy = carrier.SIPAddr
		}
		return trunk
	}
	store := &fakeStore{trunks: []models.Trunk{gateway(0)}}
	l := startLive(t, store, lab.Options{})
	step := func(what string, change func(f *fakeStore)) Report {
		t.Helper()
		store.set(change)
		report := l.sync(t)
		t.Logf("%s: %s (%d files written, %d removed, %d gateways unloaded)", what, report.Took.Round(time.Millisecond), len(report.Written), len(report.Removed), len(report.Killed))
		return report
	}
	loaded := func(want int) {
		t.Helper()
		require.Eventually(t, func() bool { return len(l.gatewayNames(t)) == want }, testTimeout, 100*time.Millisecond)
	}
	report := step(fmt.Sprintf("%d gateways added", count-1), func(f *fakeStore) {
		for i := 1; i < count; i++ {
			f.trunks = append(f.trunks, gateway(i))
		}
	})
	require.Len(t, report.Written, count-1)
	loaded(count)

	var calls []string
	for i := range live {
		calls = append(calls, l.dial(t, fmt.Sprintf("gw-%05d", i*(count/live)), "+15550000800"))
	}
	l.alive(t, calls)
	report = step(fmt.Sprintf("%d gateways changed, %d calls up", changed, live), func(f *fakeStore) {
		for i := range changed {
			f.trunks[i].Password = "another"
		}
	})
	require.Len(t, report.Killed, changed)
	loaded(count)
	l.alive(t, calls)
	report = step(fmt.Sprintf("%d gateways removed", removed), func(f *fakeStore) { f.trunks = f.trunks[removed:] })
	require.Len(t, report.Removed, removed)
	loaded(count - removed)
	l.alive(t, calls)
	step(fmt.Sprintf("%d gateways added", added), func(f *fakeStore) {
		for i := range added {
			f.trunks = append(f.trunks, gateway(count+i))
		}
	})
	loaded(count - removed + added)
	l.alive(t, calls)
	one := step("1 gateway changed", func(f *fakeStore) { f.trunks[0].Password = "a third" })
	require.Len(t, one.Killed, 1)
	began := time.Now()
	l.syncer.pollAll(within(t))
	t.Logf("the status of %d gateways polled: %s", count-removed+added, time.Since(began).Round(time.Millisecond))
	l.hangUpAll(t, calls)
}
