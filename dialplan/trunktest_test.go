package dialplan

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/egress"
	"tandem/esl"
	"tandem/lab"
	"tandem/models"
	"tandem/sipprobe"
)

// answerer is a carrier on loopback that answers every request with a status, empty for none.
type answerer struct {
	addr   string
	mu     sync.Mutex
	status string
}

func startAnswerer(t *testing.T, status string) *answerer {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	a := &answerer{addr: conn.LocalAddr().String(), status: status}
	var done sync.WaitGroup
	done.Go(func() {
		packet := make([]byte, 65536)
		for {
			n, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			a.mu.Lock()
			status := a.status
			a.mu.Unlock()
			if status == "" {
				continue
			}
			lines := []string{"SIP/2.0 " + status}
			for _, line := range strings.Split(string(packet[:n]), "\r\n") {
				for _, name := range []string{"Via:", "From:", "To:", "Call-ID:", "CSeq:"} {
					if strings.HasPrefix(line, name) {
						lines = append(lines, line)
					}
				}
			}
			_, _ = conn.WriteTo([]byte(strings.Join(lines, "\r\n")+"\r\nContent-Length: 0\r\n\r\n"), from)
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		done.Wait()
	})
	return a
}

// onLoopback lets a test's Prober ask servers on loopback.
func onLoopback(patience time.Duration) *sipprobe.Prober {
	return sipprobe.New(sipprobe.Config{
		Egress: egress.Config{AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, Patience: patience,
	})
}

// outcomes are those of a report's steps, by name.
func outcomes(r *TrunkReport) map[string]string {
	all := map[string]string{}
	for _, step := range r.Steps {
		all[step.Name] = step.Outcome
	}
	return all
}

func stepOf(t *testing.T, r *TrunkReport, name string) TrunkStep {
	t.Helper()
	for _, step := range r.Steps {
		if step.Name == name {
			return step
		}
	}
	require.FailNow(t, "no such step", name)
	panic("unreachable")
}

func TestTrunkTest(t *testing.T) {
	t.Parallel()
	carrier := startAnswerer(t, "200 OK")
	silent := startAnswerer(t, "")
	for name, tt := range map[string]struct {
		edit    func(*models.Trunk)
		prepare func(*fakeSwitch, *fakeStore)
		test    TrunkTest
		outcome string
		want    map[string]string
		advice  [2]string // a step and a part of what it advises
	}{
		"all is well": {
			outcome: StepOK, want: map[string]string{StepDNS: StepOK, StepReachability: StepOK, StepOptions: StepOK, StepRegister: StepOK, StepInvite: StepSkipped},
		},
		"no gateway can be made": {
			edit: func(t *models.Trunk) { t.Port = 5070 }, outcome: StepFailed,
			want: map[string]string{StepConfiguration: StepFailed, StepDNS: StepSkipped, StepInvite: StepSkipped},
		},
		"inactive": {
			edit: func(t *models.Trunk) { t.IsActive = false }, outcome: StepFailed, want: map[string]string{StepConfiguration: StepFailed, StepOptions: StepOK},
			advice: [2]string{StepConfiguration, "is_active"},
		},
		"nobody there": {
			edit:    func(t *models.Trunk) { t.Proxy = silent.addr },
			prepare: func(f *fakeSwitch, _ *fakeStore) { f.gateways[0].State, f.gateways[0].Status = "FAIL_WAIT", "DOWN" },
			outcome: StepFailed, want: map[string]string{StepDNS: StepOK, StepOptions: StepFailed, StepRegister: StepFailed}, advice: [2]string{StepOptions, "firewall"},
		},
		"the nodes only": {
			edit: func(t *models.Trunk) { t.Proxy = silent.addr }, outcome: StepOK, want: map[string]string{StepOptions: StepOK, StepRegister: StepOK},
		},
		"the controller only": {
			edit:    func(t *models.Trunk) { t.Register = false },
			prepare: func(f *fakeSwitch, _ *fakeStore) { f.gateways[0].State, f.gateways[0].Status = "NOREG", "DOWN" },
			outcome: StepFailed, want: map[string]string{StepOptions: StepFailed, StepRegister: StepSkipped}, advice: [2]string{StepOptions, "addresses of the nodes"},
		},
		"not registered though the login is right": {
			prepare: func(f *fakeSwitch, _ *fakeStore) { f.gateways[0].State, f.gateways[0].Status = "TRYING", "DOWN" },
			outcome: StepWarning, want: map[string]string{StepOptions: StepWarning, StepRegister: StepWarning},
		},
		"some nodes only": {
			prepare: func(_ *fakeSwitch, s *fakeStore) {
				s.elsewhere = []models.GatewayStatus{{NodeID: "node_2", TrunkID: "trunk_1", State: "FAILED", Status: "DOWN"}}
			},
			outcome: StepWarning, want: map[string]string{StepRegister: StepWarning},
		},
		"a number that may not be called": {
			edit: func(t *models.Trunk) { t.Routing.AllowedPrefixes = []string{"+1"} }, test: TrunkTest{To: "+4930123"},
			outcome: StepFailed, want: map[string]string{StepInvite: StepFailed}, advice: [2]string{StepInvite, "allowed_prefixes"},
		},
		"a number that limits refuse": {
			edit: func(t *models.Trunk) { t.Limits.DeniedDestinations = []string{"DE"} }, test: TrunkTest{To: "+4930123456"},
			outcome: StepFailed, want: map[string]string{StepInvite: StepFailed}, advice: [2]string{StepInvite, "denied_destinations"},
		},
		"a type that limits refuse": {
			edit: func(t *models.Trunk) { t.Limits.AllowedDestinationTypes = []string{} }, test: TrunkTest{To: "+4909001234567"},
			outcome: StepFailed, want: map[string]string{StepInvite: StepFailed}, advice: [2]string{StepInvite, "allowed_destination_types"},
		},
		"no node for the call": {
			prepare: func(f *fakeSwitch, _ *fakeStore) { f.down = true }, test: TrunkTest{To: "+4930123"},
			outcome: StepWarning, want: map[string]string{StepInvite: StepSkipped, StepOptions: StepWarning},
		},
		"the switch refuses the call": {test: TrunkTest{To: "+4930123"}, outcome: StepFailed, want: map[string]string{StepInvite: StepFailed}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trunk := outbound("trunk_1", "cust_a", "one")
			trunk.Proxy, trunk.FromDomain = carrier.addr, ""
			if tt.edit != nil {
				tt.edit(&trunk)
			}
			store := &fakeStore{trunks: []models.Trunk{trunk}}
			control := &fakeSwitch{fail: map[string]error{}, gateways: []esl.Gateway{{Name: "one", State: "REGED", Status: "UP", PingMS: 3}}}
			if tt.prepare != nil {
				tt.prepare(control, store)
			}
			s, err := NewSyncer(Config{Store: store, Prober: onLoopback(700 * time.Millisecond)})
			require.NoError(t, err)
			s.AddNode(models.Node{ID: "node_1", ConfDir: t.TempDir()}, control)
			report, err := s.TestTrunk(t.Context(), &trunk, tt.test)
			require.NoError(t, err)
			require.Equal(t, tt.outcome, report.Outcome, "%+v", report.Steps)
			require.Len(t, report.Steps, 6)
			got := outcomes(report)
			for step, outcome := range tt.want {
				require.Equal(t, outcome, got[step], "%s: %+v", step, stepOf(t, report, step))
			}
			for _, step := range report.Steps {
				require.NotEmpty(t, step.Summary, step.Name)
				if step.Outcome == StepFailed && step.Name != StepConfiguration {
					require.NotEmpty(t, step.Advice, step.Name)
				}
				for _, line := range step.Evidence {
					require.NotContains(t, line, string(trunk.Password))
				}
			}
			if tt.advice[0] != "" {
				require.Contains(t, stepOf(t, report, tt.advice[0]).Advice, tt.advice[1])
			}
		})
	}
}

// A trunk is tested once at a time, and no address that the operator has not allowed is asked.
func TestTrunkTestIsBounded(t *testing.T) {
	t.Parallel()
	trunk := outbound("trunk_1", "cust_a", "one")
	trunk.Proxy = "127.0.0.1:5060"
	s, err := NewSyncer(Config{Store: &fakeStore{trunks: []models.Trunk{trunk}}})
	require.NoError(t, err)
	report, err := s.TestTrunk(t.Context(), &trunk, TrunkTest{})
	require.NoError(t, err)
	require.Equal(t, StepSkipped, outcomes(report)[StepReachability])
	require.Contains(t, strings.Join(stepOf(t, report, StepReachability).Evidence, "\n"), "not an address that this service connects to")

	end, ok := s.tests.begin(trunk.CustomerID, trunk.ID)
	require.True(t, ok)
	_, err = s.TestTrunk(t.Context(), &trunk, TrunkTest{})
	require.ErrorIs(t, err, ErrTestBusy)
	end()
	var ends []func()
	for i := range testsAtOnce {
		name := strings.Repeat("x", i+1)
		end, ok := s.tests.begin("cust_"+name[:i/testsOfCustomer+1], name)
		require.True(t, ok)
		ends = append(ends, end)
		if i == testsOfCustomer-1 {
			_, ok = s.tests.begin("cust_x", "one too many of the customer's")
			require.False(t, ok)
		}
	}
	_, err = s.TestTrunk(t.Context(), &trunk, TrunkTest{})
	require.ErrorIs(t, err, ErrTestBusy)
	for _, end := range ends {
		end()
	}
	_, err = s.TestTrunk(t.Context(), &trunk, TrunkTest{})
	require.NoError(t, err)
}

// TestFreeSWITCHTrunkTest tests trunks of a real switch to a real carrier.
func TestFreeSWITCHTrunkTest(t *testing.T) {
	t.Parallel()
	carrier := lab.StartCarrier(t)
	register := func(id, name, password string) models.Trunk {
		trunk := outbound(id, "cust_a", name)
		trunk.Proxy, trunk.Realm, trunk.FromDomain = carrier.SIPAddr, lab.CarrierRealm, lab.CarrierRealm
		trunk.Username, trunk.Password = lab.CarrierUsername, secret(password)
		trunk.Routing.Codecs = []string{"PCMA"}
		return trunk
	}
	store := &fakeStore{trunks: []models.Trunk{register("trunk_1", "right", lab.CarrierPassword), register("trunk_2", "wrong", "no such password")}}
	l := startLive(t, store, lab.Options{})
	l.syncer.prober = onLoopback(4 * time.Second)
	l.awaits(t, "right", "REGED")
	l.awaits(t, "wrong", "FAIL_WAIT")
	for _, tt := range []struct {
		to, outcome, says string
	}{
		{"", StepSkipped, ""},
		{"+15550000180", StepOK, "rings"},
		{"+15550000800", StepOK, "rings"},
		{"+15550000486", StepOK, "busy"},
		{"+15550000404", StepFailed, "does not know the number"},
		{"+15550000503", StepFailed, "no room"},
	} {
		report, err := l.syncer.TestTrunk(within(t), &store.trunks[0], TrunkTest{To: tt.to, From: "+15559990000"})
		require.NoError(t, err)
		got := outcomes(report)
		require.Equal(t, []string{StepOK, StepOK, StepOK, tt.outcome}, []string{got[StepDNS], got[StepOptions], got[StepRegister], got[StepInvite]}, "%s %+v", tt.to, report.Steps)
		require.Contains(t, stepOf(t, report, StepInvite).Summary, tt.says)
	}
	report, err := l.syncer.TestTrunk(within(t), &store.trunks[1], TrunkTest{To: "+15550000180"})
	require.NoError(t, err)
	step := stepOf(t, report, StepRegister)
	require.Equal(t, StepFailed, step.Outcome, "%+v", report.Steps)
	require.Equal(t, "The carrier refuses the login.", step.Summary)
	require.Contains(t, strings.Join(step.Evidence, "\n"), "node node_1: FAIL_WAIT; the carrier answered 403")
	require.Equal(t, StepFailed, outcomes(report)[StepInvite], "a gateway that is not registered is not used")
	// Nothing is left of the calls, and the carrier still has the node's binding and no other.
	require.Eventually(t, func() bool {
		channels, err := l.control.Channels(within(t))
		return err == nil && len(channels) == 0
	}, testTimeout, 100*time.Millisecond)
}
