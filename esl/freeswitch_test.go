package esl

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// live is a node of ours on a real FreeSWITCH, with a carrier behind it.
type live struct {
	*Node
	t       testing.TB
	node    *lab.Node
	carrier *lab.Carrier
	heard   *journal
}

// journal keeps every event and lets a test wait for one.
type journal struct {
	mu     sync.Mutex
	events []*Event
	more   chan struct{}
	up     chan Snapshot
	down   chan error
}

func newJournal() *journal {
	return &journal{more: make(chan struct{}), up: make(chan Snapshot, 10), down: make(chan error, 10)}
}

func (j *journal) HandleUp(s Snapshot)  { j.up <- s }
func (j *journal) HandleDown(err error) { j.down <- err }

func (j *journal) HandleEvent(e *Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
	close(j.more)
	j.more = make(chan struct{})
}

// await returns the first event that fits, past or future.
func (j *journal) await(ctx context.Context, fits func(*Event) bool) (*Event, error) {
	for at := 0; ; {
		j.mu.Lock()
		events, more := j.events, j.more
		j.mu.Unlock()
		for ; at < len(events); at++ {
			if fits(events[at]) {
				return events[at], nil
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *live) event(name, channel string) *Event {
	l.t.Helper()
	e, err := l.heard.await(deadlineTB(l.t, 20*time.Second), func(e *Event) bool { return e.Name() == name && e.ChannelID() == channel })
	require.NoError(l.t, err, "no %s of %s", name, channel)
	return e
}

func (l *live) completion(eventUUID string) *Event {
	l.t.Helper()
	e, err := l.heard.await(deadlineTB(l.t, 4*time.Minute), func(e *Event) bool { return e.ApplicationID() == eventUUID })
	require.NoError(l.t, err, "no completion of %s", eventUUID)
	return e
}

func deadlineTB(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// connectLive connects to a node that runs.
func connectLive(t testing.TB, node *lab.Node, carrier *lab.Carrier) *live {
	t.Helper()
	heard := newJournal()
	n, err := NewNode(Config{Addr: node.ESLAddr, Password: node.Password, Handler: heard, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(n.Stop)
	require.NoError(t, n.WaitUp(deadlineTB(t, 20*time.Second)))
	return &live{Node: n, t: t, node: node, carrier: carrier, heard: heard}
}

func startLive(t *testing.T, options lab.Options) *live {
	carrier := lab.StartCarrier(t)
	return connectLive(t, lab.StartNode(t, options), carrier)
}

// call places a call to a number of the carrier and waits until it is parked.
func (l *live) call(number string, vars ...Var) (channel string) {
	l.t.Helper()
	channel = uuid.NewString()
	job, err := l.Originate(deadlineTB(l.t, 20*time.Second), Originate{
		ChannelID: channel, SIPURI: "sip:" + number + "@" + l.carrier.SIPAddr, CallerIDNumber: "+15550199", Timeout: 20 * time.Second, Variables: vars,
	})
	require.NoError(l.t, err)
	reply, err := job.Wait(deadlineTB(l.t, 20*time.Second))
	require.NoError(l.t, err)
	require.Equal(l.t, "+OK "+channel, reply)
	l.event("CHANNEL_PARK", channel)
	l.t.Cleanup(func() { _ = l.Kill(context.Background(), channel, "NORMAL_CLEARING") })
	return channel
}

// run executes an application and waits for its completion.
func (l *live) run(channel string, app App, err error) *Event {
	l.t.Helper()
	require.NoError(l.t, err)
	id := NewEventUUID()
	require.NoError(l.t, l.Execute(l.t.Context(), channel, id, app))
	return l.completion(id)
}

func TestFreeSWITCHOnlyOurCompletionsAreDelivered(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	snapshot := <-l.heard.up
	require.Regexp(t, `^[0-9a-f-]{36}$`, snapshot.CoreUUID)
	require.False(t, snapshot.Restarted)
	version, err := l.Version(t.Context())
	require.NoError(t, err)
	require.Contains(t, version, "FreeSWITCH")

	channel := l.call("+15550000010")
	probe := l.node.Probe(t)
	require.NoError(t, probe.Subscribe(t.Context(), "CHANNEL_EXECUTE_COMPLETE"))
	require.NoError(t, probe.Execute(t.Context(), channel, "sleep", "10"))
	theirs, err := probe.Await(deadline(t, 10*time.Second), "CHANNEL_EXECUTE_COMPLETE")
	require.NoError(t, err)
	require.NotEmpty(t, theirs.Event("Application-UUID"), "the switch raised a completion for an application that is not ours")

	app, err := Silence(50 * time.Millisecond)
	done := l.run(channel, app, err)
	require.Equal(t, "CHANNEL_EXECUTE_COMPLETE", done.Name())
	require.Equal(t, channel, done.ChannelID())
	require.Equal(t, "playback", done.Get("Application"))
	require.Equal(t, snapshot.CoreUUID, done.CoreUUID())

	exists, err := l.Exists(t.Context(), channel)
	require.NoError(t, err)
	require.True(t, exists)
	channels, err := l.Channels(t.Context())
	require.NoError(t, err)
	require.Len(t, channels, 1)
	require.Equal(t, channel, channels[0].UUID)

	require.NoError(t, l.Kill(t.Context(), channel, "USER_BUSY"))
	end := l.event("CHANNEL_HANGUP_COMPLETE", channel)
	require.Equal(t, "USER_BUSY", end.Get("Hangup-Cause"))
	require.ErrorIs(t, l.Kill(t.Context(), channel, "USER_BUSY"), ErrNoSuchChannel)
	err = l.Execute(t.Context(), channel, NewEventUUID(), Answer())
	require.ErrorIs(t, err, ErrNoSuchChannel)

	l.heard.mu.Lock()
	defer l.heard.mu.Unlock()
	for _, e := range l.heard.events {
		if strings.HasPrefix(e.Name(), "CHANNEL_EXECUTE") {
			require.True(t, strings.HasPrefix(e.ApplicationID(), EventUUIDPrefix), "%s of %s", e.Name(), e.ApplicationID())
		}
		require.Contains(t, DefaultEvents(), e.Name())
	}
}

func TestFreeSWITCHVariablesComeBackUnchanged(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	values := []string{
		"O'Brien, Ltd", `back\slash \n \s \\`, " blanks around ", `a=b=c,d='e','f`, `"quoted" 'single'`, "''", "naïve é 日本", "100%25 %20 a%2Fb", "semi;colon:_;", "(a) &park()", "~!@#*/?`",
		`\'`, `\,`, `it's, its', 's`, "undef", "true",
	}
	var vars []Var
	for i, value := range values {
		vars = append(vars, Var{fmt.Sprintf("awkward_%d", i), value})
	}
	vars = append(vars, Var{"sip_h_X-Note", "O'Brien, Ltd = 5; a"})
	channel := l.call("+15550000010", vars...)
	dump, err := l.Dump(t.Context(), channel)
	require.NoError(t, err)
	for _, v := range vars {
		require.Equal(t, v.Value, dump.Variable(v.Name), v.Name)
	}
	for i, value := range values {
		require.NoError(t, l.SetVariable(t.Context(), channel, fmt.Sprintf("later_%d", i), value))
	}
	require.NoError(t, l.SetVariable(t.Context(), channel, "awkward_0", ""))
	dump, err = l.Dump(t.Context(), channel)
	require.NoError(t, err)
	for i, value := range values {
		require.Equal(t, value, dump.Variable(fmt.Sprintf("later_%d", i)))
	}
	require.Empty(t, dump.Variable("awkward_0"))

	// The same through bridge, whose dial string has two layers and not three.
	leg := uuid.NewString()
	dial, err := NewDial(Target{SIPURI: "sip:+15550000011@" + l.carrier.SIPAddr, ChannelID: leg, CallerIDName: "O'Brien, Ltd", Variables: vars})
	require.NoError(t, err)
	require.NoError(t, l.Execute(t.Context(), channel, NewEventUUID(), Bridge(dial)))
	l.event("CHANNEL_BRIDGE", channel)
	dump, err = l.Dump(t.Context(), leg)
	require.NoError(t, err)
	for _, v := range vars {
		require.Equal(t, v.Value, dump.Variable(v.Name), v.Name)
	}
	require.Equal(t, "O'Brien, Ltd", dump.Variable("origination_caller_id_name"))
}

func TestFreeSWITCHNinthApplicationWaits(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	channel := l.call("+15550000010")
	app, err := Silence(400 * time.Millisecond)
	require.NoError(t, err)
	var ids []string
	for range 8 {
		ids = append(ids, NewEventUUID())
		require.NoError(t, l.Execute(t.Context(), channel, ids[len(ids)-1], app))
	}
	early, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, l.Execute(early, channel, NewEventUUID(), app), context.DeadlineExceeded, "the ninth waits")
	require.NoError(t, l.Execute(t.Context(), channel, NewEventUUID(), app), "until one completes")
	first, last := l.completion(ids[0]), l.completion(ids[7])
	require.Greater(t, last.Time().Sub(first.Time()), 2*time.Second, "one after the other, not nested")

	// Interrupt what plays and forget what waits: the slots are free again.
	long, err := Silence(time.Hour)
	require.NoError(t, err)
	ids = ids[:0]
	for range 8 {
		ids = append(ids, NewEventUUID())
		require.NoError(t, l.Execute(t.Context(), channel, ids[len(ids)-1], long))
	}
	require.NoError(t, l.Break(t.Context(), channel))
	l.run(channel, app, nil)
}

func TestFreeSWITCHGathersDigits(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	for name, prompt := range map[string]func() (Prompt, error){
		"silence": func() (Prompt, error) { return Prompt{}, nil },
		"speech":  func() (Prompt, error) { return SpeechPrompt("It's 5! Type, please: ${system(touch /tmp/x)}") },
		"both": func() (Prompt, error) {
			tone, err := TonePrompt("%(200,0,640)")
			if err != nil {
				return Prompt{}, err
			}
			speech, err := SpeechPrompt("Don't wait!")
			return Prompts(tone, speech), err
		},
	} {
		channel := l.call("+15550000700") // types 1 2 3 4 # after 1.5 s
		require.NoError(t, l.SetVariable(t.Context(), channel, "tts_engine", "flite"))
		require.NoError(t, l.SetVariable(t.Context(), channel, "tts_voice", "slt"))
		require.NoError(t, l.SetVariable(t.Context(), channel, "playback_delimiter", PromptDelimiter))
		p, err := prompt()
		require.NoError(t, err)
		app, err := PlayAndGetDigits(Digits{Min: 1, Max: 8, Timeout: 8 * time.Second, Terminators: "#", Prompt: p, Variable: "gathered", Regexp: `^\d+$`})
		done := l.run(channel, app, err)
		require.Equal(t, "1234", done.Variable("gathered"), name)
	}
}

func TestFreeSWITCHGateways(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	file := filepath.Join(l.node.ConfDir, "tandem", "gateways", "acme.xml")
	require.NoError(t, os.WriteFile(file, []byte("<include>\n"+`<gateway name="acme"><param name="username" value="acme"/><param name="password" value="`+lab.CarrierPassword+
		`"/><param name="realm" value="`+lab.CarrierRealm+`"/><param name="proxy" value="`+l.carrier.SIPAddr+`"/><param name="register" value="true"/></gateway>`+"\n</include>\n"), 0o600))
	require.NoError(t, l.ReloadXML(t.Context()))
	require.NoError(t, l.ReloadACL(t.Context()))
	require.NoError(t, l.RescanProfile(t.Context(), DefaultProfile))
	require.Eventually(t, func() bool {
		list, err := l.Gateways(t.Context())
		return err == nil && len(list) == 1 && list[0].Name == "acme" && list[0].State == "REGED"
	}, 20*time.Second, 100*time.Millisecond)
	state, err := l.heard.await(deadline(t, 10*time.Second), func(e *Event) bool { return e.Subclass() == "sofia::gateway_state" && e.Get("State") == "REGED" })
	require.NoError(t, err)
	require.Equal(t, "acme", state.Get("Gateway"))

	place := func(number string) error {
		job, err := l.Originate(t.Context(), Originate{ChannelID: uuid.NewString(), Gateway: "acme", Number: number, Timeout: 10 * time.Second})
		require.NoError(t, err)
		_, err = job.Wait(deadline(t, 30*time.Second))
		return err
	}
	refused := new(CommandError)
	require.ErrorAs(t, place("+15550000486"), &refused)
	require.Equal(t, "USER_BUSY", refused.Cause())
	require.NoError(t, place("+15550000010"))
	require.NoError(t, l.KillGateway(t.Context(), DefaultProfile, "acme"))
	require.Eventually(t, func() bool {
		list, err := l.Gateways(t.Context())
		return err == nil && len(list) == 0
	}, 20*time.Second, 100*time.Millisecond)
}

func TestFreeSWITCHEndsCallsByItself(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	limit, err := SchedHangupApp(time.Second, "ALLOTTED_TIMEOUT")
	require.NoError(t, err)
	channel := uuid.NewString()
	_, err = l.Originate(t.Context(), Originate{
		ChannelID: channel, SIPURI: "sip:+15550000010@" + l.carrier.SIPAddr, Timeout: 10 * time.Second, ExecuteOnAnswer: []App{limit},
	})
	require.NoError(t, err)
	require.Equal(t, "ALLOTTED_TIMEOUT", l.event("CHANNEL_HANGUP_COMPLETE", channel).Get("Hangup-Cause"))
	channel = l.call("+15550000010")
	require.NoError(t, l.SchedHangup(t.Context(), channel, time.Second, "ALLOTTED_TIMEOUT"))
	require.Equal(t, "ALLOTTED_TIMEOUT", l.event("CHANNEL_HANGUP_COMPLETE", channel).Get("Hangup-Cause"))
}

func TestFreeSWITCHRestartIsTold(t *testing.T) {
	t.Parallel()
	node := lab.StartNode(t, lab.Options{})
	l := connectLive(t, node, nil)
	before := receive(t, l.heard.up)
	require.NoError(t, node.Restart(deadline(t, time.Minute)))
	require.Error(t, receive(t, l.heard.down))
	after := receive(t, l.heard.up)
	require.True(t, after.Restarted)
	require.NotEqual(t, before.CoreUUID, after.CoreUUID)

	wrong := newJournal()
	n, err := NewNode(Config{Addr: node.ESLAddr, Password: "wrong", Handler: wrong})
	require.NoError(t, err)
	_, err = n.cfg.dial(t.Context())
	require.ErrorIs(t, err, ErrBadPassword)
}

// wallsDown takes away what freeswitch-conf puts up against text that runs, so that this package's own wall stands alone.
func wallsDown(confDir string) error {
	for file, change := range map[string][2]string{
		"vars.xml":                         {`data="app_disable_expand_variables=true"`, `data="app_disable_expand_variables=false"`},
		"autoload_configs/switch.conf.xml": {`name="api-expansion" value="false"`, `name="api-expansion" value="true"`},
	} {
		path := filepath.Join(confDir, file)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		open := strings.ReplaceAll(strings.ReplaceAll(string(text), change[0], change[1]), `_commands=true"`, `_commands=false"`)
		if open == string(text) {
			return fmt.Errorf("no wall in %s", file)
		}
		if err := os.WriteFile(path, []byte(open), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func TestFreeSWITCHBuildersAreAWallOfTheirOwn(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{Edit: wallsDown})
	dir, err := os.MkdirTemp("", "w") //nolint:usetesting // short, because the paths are spoken
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	channel := l.call("+15550000010")
	attack := func(name string) (file, text string) {
		file = filepath.Join(dir, name)
		return file, "${system(touch " + file + ")}"
	}

	// Without the builders the attack works on this switch, or nothing below proves anything.
	file, text := attack("raw")
	probe := l.node.Probe(t)
	require.NoError(t, probe.Execute(t.Context(), channel, "log", "NOTICE "+text))
	require.Eventually(t, func() bool { _, err := os.Stat(file); return err == nil }, 10*time.Second, 20*time.Millisecond)

	var files, running []string
	execute := func(channel string, app App, err error) {
		require.NoError(t, err)
		running = append(running, NewEventUUID())
		require.NoError(t, l.Execute(t.Context(), channel, running[len(running)-1], app))
	}
	for name, wrap := range map[string]func(string) string{
		"plain":     func(s string) string { return s },
		"backslash": func(s string) string { return strings.Replace(s, "${", `$\{`, 1) },
		"doubled":   func(s string) string { return "$" + s },
		"escaped":   func(s string) string { return `\` + s + `\n` },
		"engine":    func(s string) string { return "{a=" + s + "}x" },
		"message":   func(s string) string { return "x\n\napi log NOTICE " + s + "\n\n" },
		"delimiter": func(s string) string { return "x!" + s },
	} {
		file, text := attack(name)
		files = append(files, file)
		text = wrap(text)
		channel := l.call("+15550000010")
		for variable, value := range map[string]string{"tts_engine": "flite", "tts_voice": "slt", "playback_delimiter": PromptDelimiter} {
			require.NoError(t, l.SetVariable(t.Context(), channel, variable, value))
		}
		app, err := Speak("flite", "slt", text)
		execute(channel, app, err)
		prompt, err := SpeechPrompt(text)
		require.NoError(t, err)
		app, err = PlayAndGetDigits(Digits{Max: 1, Timeout: time.Second, Prompt: prompt, Variable: "gathered"})
		execute(channel, app, err)
		require.ErrorIs(t, l.SetVariable(t.Context(), channel, "note", text), ErrRefusedInput)
		for _, o := range []Originate{
			{Variables: []Var{{"note", text}}}, {CallerIDName: text}, {CallerIDNumber: text}, {Number: text, Gateway: "gw"}, {SIPURI: "sip:" + text + "@127.0.0.1"}, {ChannelID: text},
		} {
			if o.ChannelID == "" {
				o.ChannelID = uuid.NewString()
			}
			if o.SIPURI == "" && o.Gateway == "" {
				o.SIPURI = "sip:+15550000010@" + l.carrier.SIPAddr
			}
			_, err := l.Originate(t.Context(), o)
			require.ErrorIs(t, err, ErrRefusedInput)
			_, err = NewDial(Target{Gateway: o.Gateway, Number: o.Number, SIPURI: o.SIPURI, ChannelID: o.ChannelID, CallerIDName: o.CallerIDName,
				CallerIDNumber: o.CallerIDNumber, Variables: o.Variables})
			require.ErrorIs(t, err, ErrRefusedInput)
		}
		for _, refused := range []error{
			l.Kill(t.Context(), channel, text), l.Kill(t.Context(), text, "USER_BUSY"), l.RecordStartWith(t.Context(), channel, text, RecordOptions{}), l.RescanProfile(t.Context(), text),
			l.KillGateway(t.Context(), "external", text), l.SetVariable(t.Context(), channel, text, "x"), l.Execute(t.Context(), channel, EventUUIDPrefix+text, Answer()),
		} {
			require.ErrorIs(t, refused, ErrRefusedInput)
		}
	}
	for _, id := range running {
		l.completion(id)
	}
	for _, file := range files {
		require.NoFileExists(t, file)
	}
}
