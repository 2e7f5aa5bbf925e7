package simswitch

import (
	"slices"
	"strings"
	"time"
)

// appFunc runs one application on the channel's own goroutine and returns when the application has ended.
type appFunc func(c *channel, data string)

// app is one application: what it does, and whether it needs audio (no SAF_SUPPORT_NOMEDIA in mod_dptools.c), so that an
// unanswered incoming call is pre-answered first.
type app struct {
	run    appFunc
	media  bool
	zombie bool
}

var apps map[string]app

func init() {
	apps = map[string]app{
		"answer":                 {run: (*channel).appAnswer},
		"pre_answer":             {run: (*channel).appPreAnswer},
		"ring_ready":             {run: (*channel).appRingReady},
		"park":                   {run: (*channel).appPark},
		"playback":               {run: (*channel).appPlayback, media: true},
		"speak":                  {run: (*channel).appSpeak, media: true},
		"play_and_get_digits":    {run: (*channel).appPlayAndGetDigits, media: true},
		"record":                 {run: (*channel).appRecord, media: true},
		"record_session":         {run: (*channel).appRecordSession, media: true},
		"stop_record_session":    {run: (*channel).appStopRecordSession},
		"bridge":                 {run: (*channel).appBridge},
		"conference":             {run: (*channel).appConference, media: true},
		"play_and_detect_speech": {run: (*channel).appPlayAndDetectSpeech, media: true},
		"avmd_start":             {run: (*channel).appAvmdStart, media: true},
		"avmd_stop":              {run: (*channel).appAvmdStop, media: true},
		"wait_for_silence":       {run: (*channel).appWaitForSilence, media: true},
		"redirect":               {run: (*channel).appRedirect},
		"deflect":                {run: (*channel).appDeflect},
		"send_dtmf":              {run: (*channel).appSendDTMF},
		"flush_dtmf":             {run: (*channel).appFlushDTMF},
		"sleep":                  {run: (*channel).appSleep},
		"echo":                   {run: (*channel).appEcho, media: true},
		"set":                    {run: (*channel).appSet, zombie: true},
		"export":                 {run: (*channel).appExport},
		"unset":                  {run: (*channel).appUnset},
		"multiset":               {run: (*channel).appMultiset, zombie: true},
		"hangup":                 {run: (*channel).appHangup},
		"respond":                {run: (*channel).appRespond},
		"sched_hangup":           {run: (*channel).appSchedHangup},
		"transfer":               {run: (*channel).appTransfer},
		"log":                    {run: (*channel).appLog},
		"info":                   {run: (*channel).appLog},
	}
}

// knownApp reports whether the simulation has an application.
func knownApp(name string) bool {
	_, ok := apps[name]
	return ok
}

// execute is switch_core_session_execute_application. It reports false where FreeSWITCH returns anything but success.
func (c *channel) execute(name, data string) bool {
	a, ok := apps[name]
	ok = ok && c.sw.loaded(appModules, name)
	if !c.up() {
		if ok && a.zombie {
			c.exec(name, a, data)
			return true
		}
		return false
	}
	if !ok {
		c.sw.log.Error("invalid application", "application", name, "channel", c.uuid)
		c.hangup(causeOutOfOrder)
		return false
	}
	if a.media && !c.mediaReady() {
		if c.outbound {
			c.sw.log.Error("application needs media on an outgoing channel that has none", "application", name, "channel", c.uuid)
			return false
		}
		if !c.preAnswer() {
			return false
		}
	}
	c.exec(name, a, data)
	return true
}

func (c *channel) mediaReady() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered || c.early
}

// exec is switch_core_session_exec: it raises CHANNEL_EXECUTE and CHANNEL_EXECUTE_COMPLETE around the application.
func (c *channel) exec(name string, a app, data string) {
	c.mu.Lock()
	appUUID, given := c.hasVariableLocked("app_uuid")
	if given {
		c.setLocked("app_uuid", "")
	} else {
		appUUID = newUUID()
	}
	c.mu.Unlock()
	data = c.expandData(data)
	c.mu.Lock()
	c.lastApp, c.lastArg = name, data
	c.app, c.appData = name, data
	c.setLocked("current_application", name)
	c.setLocked("current_application_data", data)
	c.setLocked("current_application_response", "")
	headers := make([]header, 0, 4)
	headers = append(headers, header{"Application", name})
	if data != "" {
		headers = append(headers, header{"Application-Data", data})
	}
	c.fireLocked(evExecute, fromExec, append(slices.Clone(headers), header{"Application-UUID", appUUID})...)
	c.brk = false
	c.mu.Unlock()

	a.run(c, data)

	c.mu.Lock()
	response, _ := c.hasVariableLocked("current_application_response")
	if response == "" {
		response = "_none_"
	}
	headers = append(headers, header{"Application-Response", response}, header{"Application-UUID", appUUID})
	c.fireLocked(evExecuteComplete, fromExec, headers...)
	c.touchLocked()
	c.mu.Unlock()
}

// expandData is what switch_core_session_exec does to an application's data before it runs: nothing when
// app_disable_expand_variables is true on the channel, otherwise ${variable} is expanded, and ${command(args)} runs an API
// command unless api-expansion is off. The simulation never runs one.
func (c *channel) expandData(data string) string {
	if !strings.Contains(data, "${") || isTrue(c.variable("app_disable_expand_variables")) {
		return data
	}
	return c.expand(data)
}

// parseEvents is switch_ivr_parse_all_events: messages that wait for the channel run here, inside whatever runs now, unless
// that one was sent with event-lock.
func (c *channel) parseEvents() {
	c.runOnAnswer()
	c.mu.Lock()
	if c.stack >= maxStack {
		c.mu.Unlock()
		c.sw.log.Error("too many stacked applications", "channel", c.uuid, "depth", maxStack)
		return
	}
	c.stack++
	c.mu.Unlock()
	for {
		c.mu.Lock()
		if c.eventLock > 0 || len(c.private) == 0 || c.cause != causeNone {
			c.stack--
			c.mu.Unlock()
			return
		}
		m := c.private[0]
		c.private = c.private[1:]
		c.mu.Unlock()
		c.parseEvent(m)
		c.firePrivate(m)
		if c.peekBreak() {
			c.mu.Lock()
			c.stack--
			c.mu.Unlock()
			return
		}
	}
}

func (c *channel) peekBreak() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.brk
}

// firePrivate raises PRIVATE_COMMAND with the headers of the message once it has been handled.
func (c *channel) firePrivate(m *message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sw.fire(evPrivateCommand, "", origin{"switch_ivr.c", "switch_ivr_parse_next_event"}, func(e *event) {
		e.add("Command", m.command)
		e.headers = append(e.headers, m.headers...)
		c.dataLocked(e)
	})
}

// parseEvent is switch_ivr_parse_event: one sendmsg.
func (c *channel) parseEvent(m *message) {
	command := m.get("call-command")
	if command == "" {
		c.sw.log.Error("message without call-command", "channel", c.uuid)
		return
	}
	if isTrue(m.get("event-lock")) {
		c.mu.Lock()
		c.eventLock++
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			c.eventLock--
			c.mu.Unlock()
		}()
	}
	switch strings.ToLower(command) {
	case "execute":
		c.executeMessage(m)
	case "hangup":
		why := causeNormalClearing
		if name := m.get("hangup-cause"); name != "" {
			why = parseCause(name)
		}
		c.hangup(why)
	default:
		c.sw.log.Error("call-command is not simulated", "command", command, "channel", c.uuid)
	}
}

// executeMessage is the execute part of switch_ivr_parse_event: loops end early when an application took less than half a
// second, and a broken inner application breaks the one around it.
func (c *channel) executeMessage(m *message) {
	name, data := m.get("execute-app-name"), m.get("execute-app-arg")
	if name == "" {
		return
	}
	if data == "" && strings.EqualFold(m.get("content-type"), "text/plain") {
		data = m.body
	}
	loops := 1
	if l := m.get("loops"); l != "" {
		loops = leadingInt(l)
	}
	c.mu.Lock()
	c.stopBroadcast = false
	inner := c.partner == nil
	if !c.broadcast {
		c.broadcast = true
		inner = false
	}
	c.mu.Unlock()
	for x := 0; x < loops || loops < 0; x++ {
		begun := time.Now()
		c.mu.Lock()
		if id := m.get("event-uuid"); id != "" {
			c.setLocked("app_uuid", id)
		}
		c.setLocked("current_loop", itoa(x+1))
		c.setLocked("total_loops", itoa(loops))
		c.mu.Unlock()
		if !c.execute(name, data) {
			break
		}
		c.mu.Lock()
		stop := !c.readyLocked() || c.stopBroadcast
		c.mu.Unlock()
		if stop || time.Since(begun) < c.sw.clock.real(500*time.Millisecond) {
			break
		}
	}
	c.mu.Lock()
	c.setLocked("current_loop", "")
	c.setLocked("total_loops", "")
	if !inner {
		c.broadcast = false
	}
	if c.stopBroadcast {
		c.broadcast = false
		c.brk = true
	}
	c.mu.Unlock()
}

// outcome is how a media operation ended (switch_status_t, as far as it matters).
type outcome int

const (
	finished outcome = iota // it ran to its end
	broken                  // a digit, or uuid_break
	hungUp                  // the channel went away
	missing                 // no such file
	timedOut
	tooSmall
	restarted
)

// input says what a media operation does with digits: nil leaves them queued.
type input func(digit byte) (stop bool)

// wait lets d of the switch's time pass, while messages and digits are served, and returns early on a break or hang-up.
// A negative d waits for ever.
func (c *channel) wait(d time.Duration, in input) outcome {
	return c.waitUntil(d, in, nil)
}

// waitUntil is wait that also ends, as broken, once something else has happened.
func (c *channel) waitUntil(d time.Duration, in input, happened func() bool) outcome {
	var expired <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(c.sw.clock.real(d))
		defer timer.Stop()
		expired = timer.C
	}
	over := d == 0
	for {
		if !c.ready() {
			return hungUp
		}
		c.parseEvents()
		if !c.ready() {
			return hungUp
		}
		if c.takeBreak() || happened != nil && happened() {
			return broken
		}
		for in != nil && c.hasDigit() {
			digit, ok := c.takeDigit()
			if ok && in(digit) {
				return broken
			}
		}
		if over {
			return finished
		}
		select {
		case <-c.wake:
		case <-expired:
			over = true
		}
	}
}

// terminators is on_dtmf of mod_dptools.c: the digits that end a playback or a recording, by default the star.
func (c *channel) terminators() input {
	set := "*"
	if value := c.variable("playback_terminators"); value != "" {
		set = value
	}
	switch strings.ToLower(set) {
	case "any":
		set = "1234567890*#"
	case "none":
		set = ""
	}
	c.set("playback_terminator_used", "")
	return func(digit byte) bool {
		if strings.IndexByte(set, digit) < 0 {
			return false
		}
		c.set("playback_terminator_used", string(digit))
		return true
	}
}
