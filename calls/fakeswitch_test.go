package calls

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tandem/esl"
)

// command is one thing that the fake switch was told.
type command struct {
	verb    string // execute, originate, kill, break, setvar, sched_hangup, record_start, record_stop
	channel string
	args    string
	id      string // Event-UUID of an execute
}

// fakeSwitch is a scripted switch. By default it behaves: it answers, plays to the end at once and hangs up when told.
// A test changes what one application or command does through on.
type fakeSwitch struct {
	t       testing.TB
	handler esl.Handler

	mu       sync.Mutex
	down     bool
	commands []command
	channels map[string]*fakeChannel
	seq      int
	on       map[string]func(c command) error // by verb, or "execute " and the application's name
	modules  map[string]bool                  // that are loaded
	groups   fakeGroups                       // bridges and rooms
	told     chan command                     // every command, for tests that wait for one
	asked    func(channel string)             // called when it is asked whether a channel lives, where set
}

type fakeChannel struct {
	direction string
	answered  bool
	dead      bool
	stuck     bool // listed though dead
	unlisted  bool // alive and not listed
	headers   map[string]string
}

func newFakeSwitch(t testing.TB) *fakeSwitch {
	t.Helper()
	return &fakeSwitch{t: t, channels: map[string]*fakeChannel{}, on: map[string]func(command) error{}, told: make(chan command, 4096)}
}

// script replaces what a verb ("kill") or an application ("execute playback") does.
func (f *fakeSwitch) script(what string, fn func(c command) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on[what] = fn
}

// log returns the commands so far, as "verb args".
func (f *fakeSwitch) log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	lines := make([]string, len(f.commands))
	for i, c := range f.commands {
		lines[i] = strings.TrimSpace(idsOfSteps.ReplaceAllString(c.verb+" "+c.args, "$1"))
	}
	return lines
}

// idsOfSteps are the parts of commands that differ each time.
var idsOfSteps = regexp.MustCompile(`(sleep 1|tandem_digits_) ?[0-9a-z-]+`)

// await returns the next command of a kind ("kill", "execute playback").
func (f *fakeSwitch) await(what string) command {
	f.t.Helper()
	for {
		select {
		case c := <-f.told:
			if c.verb == what || strings.HasPrefix(c.verb+" "+c.args, what) {
				return c
			}
		case <-time.After(patience):
			require.Failf(f.t, "no command", "waited for %q, saw %q", what, f.log())
		}
	}
}

var errNoChannel = &esl.CommandError{Command: "fake", Reply: "-ERR No such channel!"}

// do records a command and runs its script, or the default.
func (f *fakeSwitch) do(c command, byDefault func() error) error {
	f.mu.Lock()
	if f.down {
		f.mu.Unlock()
		return esl.ErrDown
	}
	f.commands = append(f.commands, c)
	ch := f.channels[c.channel]
	fn := f.on[c.verb]
	if c.verb == "execute" {
		name, _, _ := strings.Cut(c.args, " ")
		fn = f.on["execute "+name]
	}
	gone := ch == nil && c.verb != "originate" && c.verb != "sched_del" || ch != nil && ch.dead
	f.mu.Unlock()
	f.told <- c
	if gone {
		return errNoChannel
	}
	if fn != nil {
		return fn(c)
	}
	return byDefault()
}

// setDown makes every command fail with ErrDown.
func (f *fakeSwitch) setDown(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

// event sends an event of a channel. pairs are header, value, …
func (f *fakeSwitch) event(name, channel string, pairs ...string) {
	f.mu.Lock()
	f.seq++
	headers := map[string]string{
		"Event-Name": name, "Unique-ID": channel, "Event-Sequence": strconv.Itoa(f.seq),
		"Event-Date-Timestamp": strconv.FormatInt(time.Now().UnixMicro(), 10),
	}
	if ch := f.channels[channel]; ch != nil {
		headers["Call-Direction"] = ch.direction
		for k, v := range ch.headers {
			headers[k] = v
		}
	}
	f.mu.Unlock()
	for i := 0; i+1 < len(pairs); i += 2 {
		headers[pairs[i]] = pairs[i+1]
	}
	doc, err := json.Marshal(headers)
	require.NoError(f.t, err)
	ev, err := esl.ParseEvent(string(doc))
	require.NoError(f.t, err)
	f.handler.HandleEvent(ev)
}

// complete ends an application.
func (f *fakeSwitch) complete(c command, pairs ...string) {
	name, _, _ := strings.Cut(c.args, " ")
	f.event("CHANNEL_EXECUTE_COMPLETE", c.channel, append([]string{"Application", name, "Application-UUID", c.id}, pairs...)...)
}

// addChannel makes a channel live.
func (f *fakeSwitch) addChannel(direction string, headers map[string]string) string {
	id := uuid.NewString()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.channels[id] = &fakeChannel{direction: direction, headers: headers}
	return id
}

// callIn parks an inbound channel.
func (f *fakeSwitch) callIn(from, to, source string) string {
	id := f.addChannel("inbound", map[string]string{
		"Caller-Caller-ID-Number": from, "Caller-Destination-Number": to, "variable_sip_network_ip": source, "variable_sip_h_X-Test": "yes",
	})
	f.event("CHANNEL_PARK", id)
	return id
}

// answer answers a channel.
func (f *fakeSwitch) answer(channel string) {
	f.mu.Lock()
	f.channels[channel].answered = true
	f.mu.Unlock()
	f.event("CHANNEL_ANSWER", channel)
}

// hangup ends a channel.
func (f *fakeSwitch) hangup(channel, cause string, pairs ...string) {
	f.mu.Lock()
	f.channels[channel].dead = true
	f.mu.Unlock()
	f.event("CHANNEL_HANGUP_COMPLETE", channel, append([]string{
		"Hangup-Cause", cause, "variable_hangup_cause", cause, "variable_hangup_cause_q850", strconv.Itoa(q850[cause]), "variable_billsec", "7",
	}, pairs...)...)
}

// disposition is how the switch says that it sent the end of a channel.
func (f *fakeSwitch) disposition(channel string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ch := f.channels[channel]
	switch {
	case ch.answered:
		return "send_bye"
	case ch.direction == "inbound":
		return "send_refuse"
	default:
		return "send_cancel"
	}
}

func (f *fakeSwitch) Up() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.down
}

func (f *fakeSwitch) Execute(_ context.Context, channel, id string, app esl.App) error {
	c := command{verb: "execute", channel: channel, args: strings.TrimSpace(app.Name() + " " + app.Args()), id: id}
	return f.do(c, func() error {
		if app.Name() == "answer" {
			f.answer(channel)
		}
		if app.Name() == "respond" {
			f.hangup(channel, "NORMAL_TEMPORARY_FAILURE", "variable_sip_hangup_disposition", "send_refuse")
			return nil
		}
		f.complete(c)
		return nil
	})
}

func (f *fakeSwitch) Originate(ctx context.Context, o esl.Originate) (*esl.Job, error) {
	if err := o.Begin(ctx); err != nil {
		return nil, err
	}
	args := "gateway=" + o.Gateway + " number=" + o.Number + " from=" + o.CallerIDNumber + " timeout=" + o.Timeout.String()
	for _, app := range o.ExecuteOnAnswer {
		args += " answer=" + app.Name() + " " + app.Args()
	}
	c := command{verb: "originate", channel: o.ChannelID, args: args}
	f.mu.Lock()
	if !f.down {
		f.channels[o.ChannelID] = &fakeChannel{direction: "outbound"}
	}
	f.mu.Unlock()
	err := f.do(c, func() error {
		f.event("CHANNEL_PROGRESS", o.ChannelID)
		f.answer(o.ChannelID)
		f.event("CHANNEL_PARK", o.ChannelID)
		return nil
	})
	if unsent(err) {
		f.mu.Lock()
		delete(f.channels, o.ChannelID)
		f.mu.Unlock()
	}
	// A job that never ends by itself: the channel's events tell.
	return &esl.Job{ID: uuid.NewString()}, err
}

func (f *fakeSwitch) Kill(_ context.Context, channel, cause string) error {
	return f.do(command{verb: "kill", channel: channel, args: cause}, func() error {
		f.hangup(channel, cause, "variable_sip_hangup_disposition", f.disposition(channel))
		return nil
	})
}

func (f *fakeSwitch) Break(_ context.Context, channel string) error {
	return f.do(command{verb: "break", channel: channel}, func() error { return nil })
}

func (f *fakeSwitch) Park(_ context.Context, channel string) error {
	return f.do(command{verb: "park", channel: channel}, func() error {
		f.event("CHANNEL_PARK", channel)
		return nil
	})
}

func (f *fakeSwitch) HasModule(_ context.Context, name string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return false, esl.ErrDown
	}
	return f.modules[name], nil
}

func (f *fakeSwitch) SetVariable(_ context.Context, channel, name, value string) error {
	return f.do(command{verb: "setvar", channel: channel, args: name + "=" + value}, func() error { return nil })
}

func (f *fakeSwitch) SetRingback(_ context.Context, channel string, ringback esl.Ringback) error {
	return f.do(command{verb: "ringback", channel: channel, args: ringback.String()}, func() error { return nil })
}

func (f *fakeSwitch) SchedHangup(_ context.Context, channel string, after time.Duration, cause string) error {
	return f.do(command{verb: "sched_hangup", channel: channel, args: after.String() + " " + cause}, func() error { return nil })
}

func (f *fakeSwitch) ScheduleKill(_ context.Context, channel, group string, after time.Duration, cause string) error {
	return f.do(command{verb: "sched_api", channel: channel, args: group + " " + after.String() + " " + cause}, func() error { return nil })
}

func (f *fakeSwitch) Unschedule(_ context.Context, group string) error {
	return f.do(command{verb: "sched_del", args: group}, func() error { return nil })
}

func (f *fakeSwitch) Overlay(_ context.Context, channel, path string) error {
	return f.do(command{verb: "displace", channel: channel, args: path}, func() error { return nil })
}

func (f *fakeSwitch) RecordStartWith(_ context.Context, channel, path string, o esl.RecordOptions) error {
	args := path
	if o.Stereo {
		args += " stereo"
	}
	if o.ReadOnly {
		args += " read"
	}
	return f.do(command{verb: "record_start", channel: channel, args: args}, func() error { return nil })
}

func (f *fakeSwitch) record(verb, channel, path string) error {
	return f.do(command{verb: "record_" + verb, channel: channel, args: path}, func() error { return nil })
}

func (f *fakeSwitch) RecordStop(_ context.Context, channel, path string) error {
	return f.record("stop", channel, path)
}

func (f *fakeSwitch) RecordPause(_ context.Context, channel, path string) error {
	return f.record("pause", channel, path)
}

func (f *fakeSwitch) RecordResume(_ context.Context, channel, path string) error {
	return f.record("resume", channel, path)
}

func (f *fakeSwitch) RecordMask(_ context.Context, channel, path string) error {
	return f.record("mask", channel, path)
}

func (f *fakeSwitch) RecordUnmask(_ context.Context, channel, path string) error {
	return f.record("unmask", channel, path)
}

func (f *fakeSwitch) StreamStart(_ context.Context, channel string, s esl.AudioStream) error {
	return f.do(command{verb: "stream_start", channel: channel, args: s.URL + " " + s.Mix}, func() error { return nil })
}

func (f *fakeSwitch) StreamStop(_ context.Context, channel string) error {
	return f.do(command{verb: "stream_stop", channel: channel}, func() error { return nil })
}

func (f *fakeSwitch) Exists(_ context.Context, channel string) (bool, error) {
	if f.asked != nil {
		f.asked(channel)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return false, esl.ErrDown
	}
	ch := f.channels[channel]
	return ch != nil && !ch.dead, nil
}

func (f *fakeSwitch) Channels(context.Context) ([]esl.Channel, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, esl.ErrDown
	}
	var list []esl.Channel
	for channel, ch := range f.channels {
		if !ch.dead && !ch.unlisted || ch.stuck {
			list = append(list, esl.Channel{UUID: channel, Direction: ch.direction})
		}
	}
	return list, nil
}

func (f *fakeSwitch) Dump(_ context.Context, channel string) (*esl.Event, error) {
	f.mu.Lock()
	ch := f.channels[channel]
	headers := map[string]string{"Event-Name": "CHANNEL_DATA", "Unique-ID": channel}
	if ch != nil {
		headers["Call-Direction"] = ch.direction
		headers["Answer-State"] = "ringing"
		if ch.answered {
			headers["Answer-State"] = "answered"
			headers["Caller-Channel-Answered-Time"] = strconv.FormatInt(time.Now().UnixMicro(), 10)
		}
		for k, v := range ch.headers {
			headers[k] = v
		}
	}
	gone := ch == nil || ch.dead
	f.mu.Unlock()
	if gone {
		return nil, errNoChannel
	}
	doc, err := json.Marshal(headers)
	require.NoError(f.t, err)
	return esl.ParseEvent(string(doc))
}
