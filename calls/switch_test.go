package calls

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/esl/simswitch"
	"tandem/lab"
	"tandem/models"
)

// live is a scene on a switch that speaks the Event Socket, simulated or real, behind the real client.
type live struct {
	*scene
	esl *esl.Node
	// addr and password are the switch's Event Socket. succeed puts a new controller on it.
	addr, password string
	succeed        func(t testing.TB)
	relay          *relay
	sim            *simswitch.Switch // nil on a real one
	// carrier is the telephone company of a real switch, sipAddr where it calls the switch.
	carrier *lab.Carrier
	sipAddr string
	// callBridged lets a call in whose other end has a second party on the line, so that it can be transferred by a REFER.
	callBridged func(t testing.TB, to string)
	// callIn lets a call in that, once answered, waits and then types digits or hangs up.
	callIn func(t testing.TB, to, digits string, after, hangupAfter time.Duration)
}

// onSwitches runs fn on a simulated switch and, where there is one, on a real FreeSWITCH with a carrier.
func onSwitches(t *testing.T, fn func(t *testing.T, l *live)) {
	t.Helper()
	fitting{}.onSwitches(t, fn)
}

func newSimulated(t testing.TB, store *models.Store, speed float64, edit ...func(*Config)) *live {
	t.Helper()
	return fitting{edit: edit}.simulated(t, store, speed)
}

func (f fitting) simulated(t testing.TB, store *models.Store, speed float64) *live {
	t.Helper()
	s := newStage(t, store)
	modules := slices.DeleteFunc(slices.Concat(simswitch.DefaultModules(), f.with), func(name string) bool { return name == f.without })
	layOut(t, s.node.ConfDir, s.trunk.GatewayName, "127.0.0.1:5080")
	sim, err := simswitch.New(simswitch.Config{Password: "secret", ConfDir: s.node.ConfDir, Speed: speed, Modules: modules})
	require.NoError(t, err)
	require.NoError(t, sim.Start())
	t.Cleanup(func() { require.NoError(t, sim.Close()) })
	l := connect(t, s, sim.Addr(), "secret", f.edit...)
	l.sim = sim
	l.callBridged = func(t testing.TB, to string) {
		t.Helper()
		_, err := sim.CallIn(simswitch.IncomingCall{From: "+15559876543", To: to})
		require.NoError(t, err)
	}
	l.callIn = func(t testing.TB, to, digits string, after, hangupAfter time.Duration) {
		t.Helper()
		// The simulated clock runs fast and ours does not: leave our side time to get to where the digits are expected.
		_, err := sim.CallIn(simswitch.IncomingCall{From: "+15559876543", To: to, Digits: digits, DigitsAfter: 3 * after, HangupAfter: hangupAfter})
		require.NoError(t, err)
	}
	return l
}

func newReal(t *testing.T, store *models.Store) *live {
	t.Helper()
	return fitting{}.real(t, store)
}

func (f fitting) real(t *testing.T, store *models.Store) *live {
	t.Helper()
	s := newStage(t, store)
	carrier := lab.StartCarrier(t)
	node := lab.StartNode(t, lab.Options{Edit: func(confDir string) error {
		layOut(t, confDir, s.trunk.GatewayName, carrier.SIPAddr)
		return f.dropModule(confDir)
	}})
	s.node.ConfDir = node.ConfDir
	l := connect(t, s, node.ESLAddr, node.Password, f.edit...)
	l.carrier, l.sipAddr = carrier, node.SIPAddr
	l.callBridged = func(t testing.TB, to string) {
		t.Helper()
		require.NoError(t, carrier.CallIn("+15559876543", to, node.SIPAddr, "&bridge(sofia/external/+15550000702@"+carrier.SIPAddr+")"))
	}
	l.callIn = func(t testing.TB, to, digits string, after, hangupAfter time.Duration) {
		t.Helper()
		app := lab.AppEcho
		switch {
		case digits != "":
			app = lab.Types(after, digits)
		case hangupAfter > 0:
			app = lab.HangsUp(hangupAfter)
		}
		require.NoError(t, carrier.CallIn("+15559876543", to, node.SIPAddr, app))
	}
	return l
}

// connect puts a manager on a switch.
func connect(t testing.TB, s *scene, addr, password string, edit ...func(*Config)) *live {
	t.Helper()
	l := &live{scene: s, addr: addr, password: password}
	l.succeed = func(t testing.TB) {
		t.Helper()
		l.connect(t, edit...)
	}
	l.succeed(t)
	return l
}

func (l *live) connect(t testing.TB, edit ...func(*Config)) {
	t.Helper()
	s, addr, password := l.scene, l.addr, l.password
	s.newManager(append([]func(*Config){func(c *Config) {
		c.Providers = prefixes("127.0.0.0/8")
		c.RingAfter = 500 * time.Millisecond
	}}, edit...)...)
	handler := &relay{}
	node, err := esl.NewNode(esl.Config{
		Addr: addr, Password: password, Handler: handler, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	require.NoError(t, err)
	l.esl, l.relay = node, handler
	manager := s.manager
	handler.set(s.manager.AddNode(s.node, node))
	require.NoError(t, node.Start(t.Context()))
	// Last in, first out: the manager hangs up its calls while the node is still there.
	t.Cleanup(node.Stop)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		require.NoError(t, manager.Stop(ctx))
	})
	require.NoError(t, node.WaitUp(t.Context()))
}

// relay is the handler of a node that is made before its handler.
type relay struct {
	mu sync.Mutex
	esl.Handler
}

// set puts another handler in the place of the first.
func (r *relay) set(h esl.Handler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Handler = h
}

func (r *relay) HandleUp(snapshot esl.Snapshot) { r.get().HandleUp(snapshot) }
func (r *relay) HandleEvent(ev *esl.Event)      { r.get().HandleEvent(ev) }
func (r *relay) HandleDown(err error)           { r.get().HandleDown(err) }

func (r *relay) get() esl.Handler {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Handler
}

// layOut writes what the dialplan package writes for one gateway and for numbers that all go to the controller.
func layOut(t testing.TB, confDir, gateway, proxy string) {
	t.Helper()
	for name, text := range map[string]string{
		// Line by line: FreeSWITCH drops a line that holds an include tag, whatever else is on it.
		"gateways/" + gateway + ".xml": "<include>\n<gateway name=\"" + gateway + "\">\n<param name=\"proxy\" value=\"" + proxy +
			"\"/>\n<param name=\"realm\" value=\"" + lab.CarrierRealm + "\"/>\n<param name=\"username\" value=\"" + lab.CarrierUsername +
			"\"/>\n<param name=\"password\" value=\"" + lab.CarrierPassword +
			"\"/>\n<param name=\"register\" value=\"false\"/>\n<param name=\"caller-id-in-from\" value=\"true\"/>\n</gateway>\n</include>\n",
		"dialplan/public.xml": `<include>
<context name="public">
<extension name="all">
<condition field="${acl_token}" expression="@tandem$">
<action application="park"/>
</condition>
</extension>
</context>
</include>
`,
		"directory/sources.xml": `<include>
<domain name="tandem">
<groups>
<group name="00">
<users>
<user id="provider.1.did" cidr="127.0.0.0/8"></user>
</users>
</group>
</groups>
</domain>
</include>
`,
	} {
		path := filepath.Join(confDir, "tandem", filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
}

func TestFreeSWITCHOutboundEndings(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"say","text":"Hello from Tandem"},{"action":"hangup"}]`))
		for _, tt := range []struct {
			to, status, reason, source, cause string
			sip                               int
		}{
			{"+15550000486", StatusBusy, ReasonBusy, SourceCallee, "USER_BUSY", 486},
			{"+15550000404", StatusFailed, ReasonInvalidNumber, SourceCarrier, "UNALLOCATED_NUMBER", 404},
			{"+15550000603", StatusRejected, ReasonDeclined, SourceCallee, "CALL_REJECTED", 603},
			{"+15550000503", StatusFailed, ReasonCarrierError, SourceCarrier, "NORMAL_TEMPORARY_FAILURE", 503},
			{"+15550000180", StatusNoAnswer, ReasonNoAnswer, SourcePlatform, "NO_ANSWER", 487},
			{"+15550000800", StatusCompleted, ReasonCompleted, SourceActions, "NORMAL_CLEARING", 200},
		} {
			l.create(func(r *CreateRequest) { r.To, r.Timeout = tt.to, 5 })
			call := l.end()
			require.Equal(t, []any{tt.status, tt.reason, tt.source, tt.cause, tt.sip}, []any{call.Status, call.Reason, call.HangupSource, call.Cause, call.SIPCode}, tt.to)
		}
	})
}

func TestFreeSWITCHGatewayThatDoesNotExist(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.trunk.GatewayName = "no-such-gateway"
		require.NoError(t, l.store.UpdateTrunk(t.Context(), l.trunk))
		l.create()
		call := l.end()
		require.Equal(t, []any{StatusFailed, ReasonTrunkUnavailable, "INVALID_GATEWAY"}, []any{call.Status, call.Reason, call.Cause})
	})
}

func TestFreeSWITCHCancelWhileRinging(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		for _, to := range []string{"+15550000180", "+15550000180"} {
			created := l.create(func(r *CreateRequest) { r.To = to })
			require.Eventually(t, func() bool {
				call, err := l.store.CallByID(t.Context(), created.ID)
				return err == nil && call.Status == StatusRinging
			}, patience, 5*time.Millisecond)
			_, err := l.manager.Cancel(t.Context(), l.customer.ID, created.ID, nil)
			require.NoError(t, err)
			call := l.end()
			require.Equal(t, []any{StatusCanceled, ReasonCanceled, SourceAPI, "ORIGINATOR_CANCEL", 487}, []any{call.Status, call.Reason, call.HangupSource, call.Cause, call.SIPCode})
		}
		// At once, before there is a channel.
		created := l.create(func(r *CreateRequest) { r.To = "+15550000180" })
		_, err := l.manager.Cancel(t.Context(), l.customer.ID, created.ID, nil)
		require.NoError(t, err)
		call := l.end()
		require.Equal(t, []any{StatusCanceled, ReasonCanceled}, []any{call.Status, call.Reason})
	})
}

func TestFreeSWITCHInboundGather(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"say","text":"Welcome!"},
			{"action":"gather","id":"menu","max_digits":6,"timeout":60,"prompt":[{"action":"say","text":"It's time: type, please! Or don't."},{"action":"say","text":"Now."}],"result_url":"/digits"}]`))
		l.answers("/digits", reply(`[{"action":"say","text":"Thank you"},{"action":"hangup"}]`))
		l.callIn(t, l.did.NumberE164, "4321#", 5*time.Second, 0)
		call := l.end()
		require.Equal(t, []any{StatusCompleted, ReasonCompleted, SourceActions}, []any{call.Status, call.Reason, call.HangupSource})
		asks := l.requests()
		require.Len(t, asks, 2)
		require.Equal(t, "digits", asks[1].Result["outcome"])
		require.Equal(t, "4321", asks[1].Result["digits"])
		require.Equal(t, "#", asks[1].Result["terminator"])
		require.Equal(t, "menu", asks[1].Result["id"])
		require.Equal(t, []string{"call.ringing", "call.answered", "call.completed"}, l.kinds(call.ID))
	})
}

func TestFreeSWITCHGatherTimesOut(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"gather","timeout":1,"tries":2,"prompt":[{"action":"say","text":"Type."}],"invalid_prompt":[{"action":"say","text":"Again."}],"result_url":"/digits"}]`))
		l.answers("/digits", status(http.StatusNoContent))
		l.callIn(t, l.did.NumberE164, "", 0, 0)
		l.end()
		asks := l.requests()
		require.Equal(t, []any{"timeout", 2.0}, []any{asks[1].Result["outcome"], asks[1].Result["tries"]})
	})
}

func TestFreeSWITCHCallerHangsUpInMidPrompt(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"say","text":"This is a very long story that nobody wants to hear to its end, and it goes on and on and on.","loop":5}]`))
		l.callIn(t, l.did.NumberE164, "", 0, 1500*time.Millisecond)
		call := l.end()
		require.Equal(t, []any{StatusCompleted, ReasonCallerHangup, SourceCaller}, []any{call.Status, call.Reason, call.HangupSource})
		require.Positive(t, call.CostMicros)
	})
}

func TestFreeSWITCHRefusals(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		for _, tt := range []struct {
			list, cause string
			sip         int
		}{
			{`[{"action":"reject","reason":"busy"}]`, "USER_BUSY", 486},
			{`[{"action":"reject"}]`, "CALL_REJECTED", 603},
			{`[{"action":"reject","sip_code":433}]`, "", 433},
			{`[]`, "NO_ANSWER", 480},
		} {
			l.answers("/answer", reply(tt.list))
			l.callIn(t, l.did.NumberE164, "", 0, 0)
			call := l.end()
			require.Equal(t, []any{StatusRejected, SourceActions, tt.sip}, []any{call.Status, call.HangupSource, call.SIPCode}, tt.list)
			if tt.cause != "" {
				require.Equal(t, tt.cause, call.Cause, tt.list)
			}
		}
	})
}

func TestFreeSWITCHRecordings(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"say","text":"Leave a message after the tone."},{"action":"record","max_seconds":2,"silence_seconds":0,"result_url":"/result"}]`))
		l.answers("/result", status(http.StatusNoContent))
		l.create(func(r *CreateRequest) { r.To, r.Record = "+15550000702", true })
		call := l.end()
		require.Equal(t, ReasonCompleted, call.Reason)
		require.Equal(t, []string{
			"call.created", "call.ringing", "call.answered", "recording.started", "recording.started", "recording.available", "recording.available", "call.completed",
		}, l.kinds(call.ID))
		rows, err := l.store.RecordingsOfCall(t.Context(), l.customer.ID, call.ID)
		require.NoError(t, err)
		require.Len(t, rows, 2)
		for _, row := range rows {
			require.Equal(t, models.RecordingAvailable, row.Status)
			length, err := fileSeconds(row.Path)
			require.NoError(t, err, "a playable file")
			require.InDelta(t, row.Seconds, length, 0.001)
			require.Positive(t, row.Seconds)
			t.Logf("%s lasts %.2f s", row.ID, row.Seconds)
		}
		asks := l.requests()
		require.Equal(t, "max", asks[1].Result["outcome"])
		require.Equal(t, rows[1].ID, asks[1].Result["recording_id"])
		require.Greater(t, rows[0].Seconds, rows[1].Seconds, "the whole call is longer than the message")
	})
}

func TestFreeSWITCHRecordEndsByKey(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"record","max_seconds":60,"silence_seconds":0,"beep":false,"finish_on_key":"*","result_url":"/result"}]`))
		l.answers("/result", status(http.StatusNoContent))
		l.callIn(t, l.did.NumberE164, "*", 2*time.Second, 0)
		l.end()
		asks := l.requests()
		require.Equal(t, []any{"key", "*"}, []any{asks[1].Result["outcome"], asks[1].Result["key"]})
	})
}

func TestFreeSWITCHDial(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"dial","to":"+15550000486","result_url":"/result"},{"action":"dial","to":"+15550000701","result_url":"/result"},{"action":"say","text":"Good bye"}]`))
		l.answers("/result", status(http.StatusNoContent))
		l.callIn(t, l.did.NumberE164, "", 0, 0)
		call := l.end()
		require.Equal(t, []any{StatusCompleted, ReasonCompleted, SourceActions, 200}, []any{call.Status, call.Reason, call.HangupSource, call.SIPCode})
		asks := l.requests()
		require.Len(t, asks, 3)
		require.Equal(t, []any{"busy", 486.0}, []any{asks[1].Result["dial_status"], asks[1].Result["sip_code"]})
		require.Equal(t, "ringing", asks[1].Call["status"], "the caller is answered by the party, not before")
		require.Equal(t, []any{"answered", ReasonCalleeHangup}, []any{asks[2].Result["dial_status"], asks[2].Result["reason"]})
		require.InDelta(t, 10, asks[2].Result["seconds"], 8.5, "two seconds, and what a busy machine adds")
		require.Equal(t, "in_progress", asks[2].Call["status"])
	})
}

func TestFreeSWITCHDialEndsWithTheCaller(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"dial","to":"+15550000800","max_seconds":30}]`))
		l.callIn(t, l.did.NumberE164, "", 0, time.Second)
		call := l.end()
		require.Equal(t, []any{StatusCompleted, ReasonCallerHangup, SourceCaller}, []any{call.Status, call.Reason, call.HangupSource})
		require.Eventually(t, func() bool {
			channels, err := l.esl.Channels(t.Context())
			return err == nil && len(channels) == 0
		}, patience, 10*time.Millisecond, "no leg is left")
	})
}

func TestFreeSWITCHDialMaxSeconds(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"dial","to":"+15550000800","max_seconds":2,"result_url":"/result"}]`))
		l.answers("/result", status(http.StatusNoContent))
		l.callIn(t, l.did.NumberE164, "", 0, 0)
		l.end()
		asks := l.requests()
		require.Equal(t, []any{"answered", ReasonTimeLimit}, []any{asks[1].Result["dial_status"], asks[1].Result["reason"]})
	})
}

func TestFreeSWITCHPlay(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/tone.wav", func(w http.ResponseWriter, _ asked) { _, _ = w.Write(silentWAV()) })
		l.answers("/answer", reply(fmt.Sprintf(`[{"action":"play","url":["%[1]s/tone.wav","%[1]s/tone.wav"],"result_url":"/result"},{"action":"play","url":"%[1]s/tone.wav","loop":0,"max_seconds":2,"result_url":"/result"},
			{"action":"pause","seconds":0.5},{"action":"dtmf","digits":"12"}]`, l.server.URL)))
		l.answers("/result", status(http.StatusNoContent))
		l.create(func(r *CreateRequest) { r.To = "+15550000800" })
		call := l.end()
		require.Equal(t, ReasonCompleted, call.Reason, l.kinds(call.ID))
		var results []map[string]any
		for _, q := range l.requests() {
			if q.Type == "result" {
				results = append(results, q.Result)
			}
		}
		require.Equal(t, []any{"played", "max_seconds"}, []any{results[0]["outcome"], results[1]["outcome"]})
	})
}

func TestFreeSWITCHSlowAnswerURLRings(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		rung := make(chan struct{})
		watch := &ringWatch{Handler: l.relay.get(), rung: rung}
		l.relay.set(watch)
		l.answers("/answer", func(w http.ResponseWriter, q asked) {
			select {
			case <-rung:
				reply(`[{"action":"answer"},{"action":"pause","seconds":0.5}]`)(w, q)
			case <-time.After(4 * time.Second):
				w.WriteHeader(http.StatusBadRequest)
			}
		})
		l.callIn(t, l.did.NumberE164, "", 0, 0)
		call := l.end()
		require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason}, "the caller was told that it rings")
	})
}

// ringWatch notes that the switch has told an inbound caller that it rings.
type ringWatch struct {
	esl.Handler
	once sync.Once
	rung chan struct{}
}

func (w *ringWatch) HandleEvent(ev *esl.Event) {
	if ev.Name() == eventProgress {
		w.once.Do(func() { close(w.rung) })
	}
	w.Handler.HandleEvent(ev)
}

func TestFreeSWITCHBargeIn(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"say","barge_in":true,"loop":20,"result_url":"/result","text":"This is a very long story that nobody wants to hear to its end."}]`))
		l.answers("/result", status(http.StatusNoContent))
		l.callIn(t, l.did.NumberE164, "7", 2*time.Second, 0)
		l.end()
		asks := l.requests()
		require.Equal(t, []any{"interrupted", "7"}, []any{asks[1].Result["outcome"], asks[1].Result["digit"]})
	})
}
