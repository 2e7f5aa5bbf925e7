package lab_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
	"tandem/models/modelstest"
)

// execution is an application that the switch has begun.
type execution struct {
	at                time.Time
	channel, app, arg string
}

// executions are all that a switch has begun since it is listened to.
type executions struct {
	mu      sync.Mutex
	list    []execution
	changed chan struct{}
}

// listenTo follows a node until the end of the test.
func listenTo(t *testing.T, node *lab.Node) *executions {
	t.Helper()
	e := &executions{changed: make(chan struct{})}
	probe, err := lab.DialESL(t.Context(), node.ESLAddr, node.Password)
	require.NoError(t, err)
	require.NoError(t, probe.Subscribe(t.Context(), "CHANNEL_EXECUTE"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			event, err := probe.Next(ctx)
			if err != nil {
				return
			}
			e.mu.Lock()
			e.list = append(e.list, execution{at: time.Now(), channel: event.Event("Unique-ID"), app: event.Event("Application"), arg: event.Event("Application-Data")})
			close(e.changed)
			e.changed = make(chan struct{})
			e.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
		_ = probe.Close()
	})
	return e
}

// of are those of a channel, of the applications named.
func (e *executions) of(channel string, apps ...string) []execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []execution
	for _, x := range e.list {
		if x.channel == channel && slices.Contains(apps, x.app) {
			found = append(found, x)
		}
	}
	return found
}

// until waits until a channel has begun an application.
func (e *executions) until(ctx context.Context, t *testing.T, channel string, apps ...string) {
	t.Helper()
	for {
		e.mu.Lock()
		changed := e.changed
		e.mu.Unlock()
		if len(e.of(channel, apps...)) > 0 {
			return
		}
		wait(ctx, t, changed, fmt.Sprintf("%s never began %v", channel, apps))
	}
}

// after is the first application that a channel has begun after a moment, waiting for it.
func (e *executions) after(ctx context.Context, t *testing.T, channel string, moment time.Time) execution {
	t.Helper()
	for {
		e.mu.Lock()
		changed := e.changed
		for _, x := range e.list {
			if x.channel == channel && x.app != "park" && x.at.After(moment) {
				e.mu.Unlock()
				return x
			}
		}
		e.mu.Unlock()
		wait(ctx, t, changed, "no command on "+channel)
	}
}

// promptText is heard for some fifteen seconds.
const promptText = "This is a prompt that goes on for a while, so that there is time enough to kill the controller in the middle of it, and time enough for the next one to come. " +
	"And since nobody knows how busy the machine is, the same once more: there is time enough to kill the controller in the middle of it, and time enough for the next one to come."

// killed is a call whose controller is killed in the middle of what it does.
type killed struct {
	name, number string
	caller       string     // what the caller does
	rounds       [][]object // what the application says, first and after the result
	begun        []string   // the applications that the channel runs when the controller is killed
	// check is told what the application was asked in the end, and its events.
	check func(t *testing.T, s *system, asked []question, events []object, ran []execution)
}

// partedNumber is of the party that hangs up while nobody steers.
const partedNumber = "+15550820711"

// killedCalls are one for each thing that a call may be doing. Each is asked for by an own number.
var killedCalls = []killed{
	{
		name: "prompt", number: "+15557000801", caller: lab.AppPark, begun: []string{"speak", "playback"},
		rounds: [][]object{{{"action": "say", "id": "prompt", "text": promptText}, {"action": "say", "text": "Goodbye."}, {"action": "hangup"}}},
		check: func(t *testing.T, _ *system, _ []question, events []object, ran []execution) {
			heard := 0
			for _, x := range ran {
				if strings.Contains(x.arg, "goes on for a while") {
					heard++
				}
			}
			require.Equal(t, 1, heard, "the prompt was begun again: %v", ran)
			require.Equal(t, []string{"say", "say"}, done(events))
		},
	},
	{
		name: "gather", number: "+15557000802", caller: lab.AppPark, begun: []string{"play_and_get_digits"},
		rounds: [][]object{{{"action": "gather", "id": "digits", "num_digits": 4, "timeout": 60, "digit_timeout": 20, "result_url": "/answer"}}, {{"action": "say", "text": "Goodbye."}, {"action": "hangup"}}},
		check: func(t *testing.T, _ *system, asked []question, _ []object, _ []execution) {
			require.Equal(t, "1234", asked[1].result().text("digits"), "typed before and after the kill")
		},
	},
	{
		name: "bridge", number: "+15557000803", caller: lab.AppPark, begun: []string{"bridge"},
		rounds: [][]object{{{"action": "dial", "id": "party", "to": "+15550810711", "max_seconds": 15, "result_url": "/answer"}}, {{"action": "say", "text": "Goodbye."}, {"action": "hangup"}}},
		check: func(t *testing.T, _ *system, asked []question, _ []object, _ []execution) {
			require.Equal(t, "answered", asked[1].result().text("dial_status"))
			seconds, _ := asked[1].result()["seconds"].(float64)
			require.InDelta(t, 15, seconds, 4, "the limit of the dial holds although its controller has died")
		},
	},
	{
		name: "bridge that ends unseen", number: "+15557000804", caller: lab.AppPark, begun: []string{"bridge"},
		rounds: [][]object{{{"action": "dial", "id": "party", "to": partedNumber, "result_url": "/answer"}}, {{"action": "say", "text": "Goodbye."}, {"action": "hangup"}}},
		check: func(t *testing.T, _ *system, asked []question, _ []object, _ []execution) {
			require.Equal(t, "answered", asked[1].result().text("dial_status"))
			seconds, _ := asked[1].result()["seconds"].(float64)
			require.Less(t, seconds, 40.0, "until the party hung up")
		},
	},
	{
		name: "recording", number: "+15557000805", caller: "&playback(tone_stream://%(60000,0,440))", begun: []string{"record"},
		rounds: [][]object{{{"action": "record", "id": "message", "max_seconds": 15, "silence_seconds": 0, "finish_on_key": "", "result_url": "/answer"}}, {{"action": "say", "text": "Goodbye."}, {"action": "hangup"}}},
		check: func(t *testing.T, s *system, asked []question, _ []object, ran []execution) {
			require.Equal(t, "max", asked[1].result().text("outcome"))
			length, loudness := listen(t, s.recording(asked[1].result().text("recording_id")))
			require.InDelta(t, 15, length, 1.5, "all of it is in one file")
			require.Greater(t, loudness, 500.0)
			records := 0
			for _, x := range ran {
				if x.app == "record" {
					records++
				}
			}
			require.Equal(t, 1, records, "the recording was begun again: %v", ran)
		},
	},
	{
		name: "recording of the call", number: "+15557000806", caller: lab.AppPark, begun: []string{"speak", "playback"},
		rounds: [][]object{{{"action": "record_call"}, {"action": "say", "text": promptText}, {"action": "record_call", "op": "stop"}, {"action": "hangup"}}},
		check: func(t *testing.T, s *system, _ []question, events []object, _ []execution) {
			for _, event := range events {
				if event.text("type") == "recording.available" {
					length, loudness := listen(t, s.recording(event.part("data").text("recording_id")))
					require.Greater(t, length, 5.0)
					require.Greater(t, loudness, 100.0)
					return
				}
			}
			require.Fail(t, "no recording", "%v", kinds(events))
		},
	},
}

func done(events []object) []string {
	var list []string
	for _, event := range events {
		if event.text("type") == "call.action_completed" {
			list = append(list, event.part("data").text("action"))
		}
	}
	return list
}

// TestFreeSWITCHKilledInTheMiddle kills the controller while calls hear a prompt, type, talk and are recorded. The callers notice nothing, and
// the next controller goes on with every one of them.
func TestFreeSWITCHKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	s := startSystem(t, lab.Options{})
	s.outboundTrunk(t, s.customer, "acme", lab.CarrierPassword, "REGED")
	s.inboundTrunk(t, "127.0.0.1")
	heard := listenTo(t, s.node)

	type live struct {
		killed
		app     *application
		leg     *lab.Leg
		call    string
		channel string
	}
	var calls []*live
	for _, k := range killedCalls {
		app := s.newApplication(t, s.customer, k.name, nil, func(q question) any {
			if q.kind() == "answer" {
				return k.rounds[0]
			}
			return k.rounds[1]
		})
		s.change(t, app, object{"events": []string{"*"}})
		s.did(t, app, k.number)
		calls = append(calls, &live{killed: k, app: app})
	}
	for _, c := range calls {
		leg, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230800", To: c.number, NodeSIP: s.node.SIPAddr, App: c.caller})
		require.NoError(t, err)
		c.leg = leg
	}
	for _, c := range calls {
		c.call = c.app.first(soon(t), t, "call.answered").part("call").text("id")
		c.channel = s.channelOf(t, "+15551230800", c.number)
	}
	for _, c := range calls {
		heard.until(soon(t), t, c.channel, c.begun...)
	}
	var typist *lab.Leg
	for _, c := range calls {
		if c.name == "gather" {
			typist = c.leg
		}
		if slices.Contains(c.begun, "bridge") {
			c.app.until(soon(t), t, c.call, "leg.answered")
		}
	}
	require.NoError(t, typist.Types(t.Context(), "12"))
	require.True(t, rest(t.Context(), time.Second))
	s.stop(syscall.SIGKILL)
	require.NoError(t, typist.Types(t.Context(), "34"))
	s.partsAtCarrier(t, partedNumber)
	require.True(t, rest(t.Context(), time.Second))
	s.start(t)
	for _, c := range calls { //nolint:paralleltest // the calls themselves go on at the same time
		t.Run(c.name, func(t *testing.T) {
			end, events := c.app.ended(seconds(t, 90), t, s, c.call)
			t.Logf("%v: %v", kinds(events), end.part("data"))
			require.Equal(t, "call.completed", end.text("type"))
			require.Equal(t, "completed", end.part("call").text("reason"))
			require.Equal(t, "actions", end.part("call").text("hangup_source"))
			outcome, err := c.leg.Ended(soon(t))
			require.NoError(t, err)
			require.Equal(t, lab.Outcome{Answered: true, Cause: "NORMAL_CLEARING", HungUpBy: "recv_bye"}, outcome)
			asked := c.app.asked(c.call)
			require.Len(t, asked, len(c.rounds))
			c.check(t, s, asked, events, heard.of(c.channel, "speak", "playback", "record", "play_and_get_digits", "bridge"))
		})
	}
	out, err := s.command(t, "ledger", "verify").CombinedOutput()
	require.NoError(t, err, string(out))
}

// channelOf is the node's channel of a caller.
func (s *system) channelOf(t *testing.T, from, to string) string {
	t.Helper()
	probe := s.node.Probe(t)
	var channel string
	// The switch writes its table of channels a moment later.
	require.Eventually(t, func() bool {
		reply, err := probe.API(t.Context(), "show channels as json")
		channel = inboundChannel(reply, from, to)
		return err == nil && channel != ""
	}, 20*time.Second, 50*time.Millisecond, "no channel from %s to %s", from, to)
	return channel
}

// partsAtCarrier lets the party with a number hang up.
func (s *system) partsAtCarrier(t *testing.T, number string) {
	t.Helper()
	reply, err := s.carrier.API(t.Context(), "show channels as json")
	require.NoError(t, err)
	channel := inboundChannel(reply, "", number)
	require.NotEmpty(t, channel, "%s in %s", number, reply)
	reply, err = s.carrier.API(t.Context(), "uuid_kill "+channel)
	require.NoError(t, err)
	require.Contains(t, reply, "+OK")
}

// inboundChannel finds an inbound channel in the answer to show channels by who called, unless that is empty, and which number.
func inboundChannel(shown, from, to string) string {
	var answer struct {
		Rows []struct {
			UUID      string `json:"uuid"`
			Direction string `json:"direction"`
			Caller    string `json:"cid_num"`
			Number    string `json:"dest"`
		} `json:"rows"`
	}
	if json.Unmarshal([]byte(shown), &answer) != nil {
		return ""
	}
	for _, row := range answer.Rows {
		if row.Direction == "inbound" && (from == "" || row.Caller == from) && strings.HasSuffix(row.Number, strings.TrimPrefix(to, "+")) {
			return row.UUID
		}
	}
	return ""
}

// Takeover, measured: this many calls, this often.
const (
	takenCalls  = 10
	takenRounds = 5
	takenLease  = 2 * time.Second
)

// TestFreeSWITCHTakeover kills whichever of two controllers steers the node and measures how long each call goes without its next command.
func TestFreeSWITCHTakeover(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	first := newSystem(t, modelstest.PostgresURL(t))
	first.env = append(first.env, "TANDEM_NODE_LEASE="+takenLease.String(), "TANDEM_LOG_LEVEL=info")
	var started sync.WaitGroup
	started.Go(func() { first.carrier = lab.StartCarrier(t) })
	first.node = lab.StartNode(t, lab.Options{})
	started.Wait()
	require.NotNil(t, first.carrier)
	first.open(t, first.node.ESLAddr, first.node.PasswordFile, first.node.ConfDir)
	second := &system{node: first.node, carrier: first.carrier, binary: first.binary, addr: freeAddr(t), log: filepath.Join(t.TempDir(), "second.log"), customer: first.customer}
	second.env = append(slices.Clone(first.env), "TANDEM_HTTP_ADDR="+second.addr, "TANDEM_API_URL=http://"+second.addr)
	t.Cleanup(func() {
		second.stop(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("log of the second:\n%s", second.story())
		}
	})
	second.start(t)
	first.inboundTrunk(t, "127.0.0.1")
	heard := listenTo(t, first.node)

	// Each call needs a command ten times in three seconds, for as long as it is asked to.
	app := first.newApplication(t, first.customer, "taken", nil, func(question) any {
		var list []object
		for range 90 {
			list = append(list, object{"action": "pause", "seconds": 0.3})
		}
		return append(list, object{"action": "redirect", "url": "/answer"})
	})
	first.did(t, app, "+15557000810")
	var legs []*lab.Leg
	var channels []string
	for i := range takenCalls {
		from := fmt.Sprintf("+155512381%02d", i)
		leg, err := first.carrier.Call(t.Context(), lab.Caller{From: from, To: "+15557000810", NodeSIP: first.node.SIPAddr, App: lab.AppPark})
		require.NoError(t, err)
		require.NoError(t, leg.Answered(soon(t)))
		legs = append(legs, leg)
		channels = append(channels, first.channelOf(t, from, "+15557000810"))
		heard.until(soon(t), t, channels[i], "playback")
	}
	var waits []time.Duration
	for round := range takenRounds {
		steers := first
		if second.holds(t) {
			steers = second
		}
		struck := time.Now()
		steers.stop(syscall.SIGKILL)
		var slowest time.Duration
		for _, channel := range channels {
			took := heard.after(seconds(t, 30), t, channel, struck.Add(underWay)).at.Sub(struck)
			waits = append(waits, took)
			slowest = max(slowest, took)
		}
		t.Logf("round %d: the slowest call had its next command after %s", round+1, slowest.Round(time.Millisecond))
		require.Less(t, slowest, takenLease+3*time.Second)
		steers.start(t)
	}
	slices.Sort(waits)
	t.Logf("from the kill to the next command on the same call, with a lease of %s: p50 %s, p99 %s (%d calls, %d kills)", takenLease, quantile(waits, 0.5), quantile(waits, 0.99), takenCalls, takenRounds)
	for _, leg := range legs {
		require.NoError(t, leg.HangUp(t.Context()), "the caller noticed that controllers died")
	}
	require.Eventually(t, func() bool {
		ended, _ := app.count(terminal)
		return ended == takenCalls
	}, 60*time.Second, 50*time.Millisecond)
	out, err := first.command(t, "ledger", "verify").CombinedOutput()
	require.NoError(t, err, string(out))
}

// holds tells whether this controller has the lease of the node.
func (s *system) holds(t *testing.T) bool {
	t.Helper()
	s.mu.Lock()
	pid := 0
	if s.serve != nil {
		pid = s.serve.Process.Pid
	}
	s.mu.Unlock()
	held := false
	require.Eventually(t, func() bool {
		out, err := s.command(t, "nodes", "list", "-o", "json").CombinedOutput()
		require.NoError(t, err, string(out))
		held = strings.Contains(string(out), fmt.Sprintf("/%d/", pid))
		return held || strings.Contains(string(out), "/")
	}, 30*time.Second, 100*time.Millisecond)
	return held
}
