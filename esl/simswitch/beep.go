package simswitch

import "time"

const avmdSyntax = "-USAGE: <uuid> < start | stop | set [inbound|outbound|default] | load [inbound|outbound] | reload | show >\n\n"

var fromBeep = origin{"mod_avmd.c", "avmd_fire_event"}

// avmd is avmd_api_main of mod_avmd.c for one channel: `<uuid> start|stop`. A session that the command starts has no detectors, so
// that it never finds anything: the command forgets to copy their number from the settings (1.10.12).
func (s *Switch) avmd(arg string) string {
	words := separate(arg, ' ', 10)
	if len(words) < 2 {
		return "-ERR, bad command!\n" + avmdSyntax
	}
	c := s.channel(words[0])
	if c == nil {
		return "-ERR, no FreeSWITCH session for uuid [" + words[0] + "]!\n" + avmdSyntax
	}
	switch words[1] {
	case "start":
		return c.startBeeps(false)
	case "stop":
		return c.stopBeeps()
	}
	s.log.Error("avmd command is not simulated", "command", arg)
	return "-ERR, did you mean\n api avmd " + words[0] + " start ?\n" + avmdSyntax
}

// beepDelay is how long a tone sounds before avmd is sure of it.
const beepDelay = 300 * time.Millisecond

// beeps is a running avmd session.
type beeps struct {
	begun    time.Time
	pending  *task
	detected bool
	deaf     bool
}

// appAvmdStart and appAvmdStop are avmd_start_app and avmd_stop_app. A tone that the far end sends is a beep once it has lasted for a
// moment; only the first of a session is told.
func (c *channel) appAvmdStart(string) { c.startBeeps(true) }

func (c *channel) appAvmdStop(string) { c.stopBeeps() }

func (c *channel) startBeeps(detects bool) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	where := "[" + c.uuid + "] [" + c.name + "]"
	switch {
	case c.beeps != nil:
		return "-ERR, avmd for FreeSWITCH session [" + c.uuid + "]\n already started\n\n"
	case !c.outbound:
		return "-ERR, can't set direction for channel [" + c.name + "]\n for FreeSWITCH session [" + c.uuid + "]. Please check avmd configuration\n\n" +
			"+ERR\n " + where + " NOT started!\n\n"
	case c.codec == "":
		return "-ERR, channel [" + c.name + "] for FreeSWITCH session [" + c.uuid + "]\n has no read codec assigned yet. Please try again.\n\n"
	}
	c.beeps = &beeps{begun: c.sw.clock.now(), deaf: !detects}
	c.fireBeepLocked("avmd::start", header{"Start-time", stamp(c.sw.clock.micros())})
	c.listenForBeepLocked()
	return "+OK\n " + where + " started!\n\n"
}

func (c *channel) stopBeeps() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	where := "[" + c.uuid + "] [" + c.name + "]"
	if c.beeps == nil {
		return "+ERR, avmd has not yet been started on\n " + where + "\n\n"
	}
	c.endBeepsLocked()
	return "+OK\n " + where + " stopped\n\n"
}

// dropBeepsLocked forgets the session of a channel that ends, which tells nobody.
func (c *channel) dropBeepsLocked() {
	if c.beeps != nil {
		c.sw.tasks.cancel(c.beeps.pending)
		c.beeps = nil
	}
}

func (c *channel) endBeepsLocked() {
	b := c.beeps
	if b == nil {
		return
	}
	c.beeps = nil
	c.sw.tasks.cancel(b.pending)
	status := "NOTDETECTED"
	if b.detected {
		status = "DETECTED"
	}
	c.fireBeepLocked("avmd::stop", header{"Beep-Status", status},
		header{"Total-time", stamp(c.sw.clock.now().Sub(b.begun).Microseconds())})
}

// listenForBeepLocked plans the event for the next tone that the far end will send, as far as its script tells.
func (c *channel) listenForBeepLocked() {
	b := c.beeps
	if b == nil || b.detected || b.deaf {
		return
	}
	c.sw.tasks.cancel(b.pending)
	now := c.sw.clock.now()
	for _, s := range c.voice {
		begin := s.begin
		if begin.Before(b.begun) {
			begin = b.begun
		}
		if at := begin.Add(beepDelay); s.tone && s.end.After(at) && at.After(now) {
			b.pending = c.sw.tasks.after(at.Sub(now), "", func() { c.beep(b) })
			return
		}
	}
}

func (c *channel) beep(b *beeps) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.beeps != b || c.cause != causeNone {
		return
	}
	b.detected = true
	c.fireBeepLocked("avmd::beep", header{"Beep-Status", "DETECTED"}, header{"Frequency", "1000.0"},
		header{"Detection-time", stamp(beepDelay.Microseconds())})
}

// fireBeepLocked raises an event of the session twice, as avmd does: once from its own thread with nothing of the channel, and once
// more from the channel's event queue.
func (c *channel) fireBeepLocked(subclass string, extra ...header) {
	for _, whole := range []bool{false, true} {
		c.sw.fire(evCustom, subclass, fromBeep, func(e *event) {
			e.add("Unique-ID", c.uuid)
			e.add("Call-command", "avmd")
			e.headers = append(e.headers, extra...)
			if whole {
				c.dataLocked(e)
			}
		})
	}
}
