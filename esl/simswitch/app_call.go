package simswitch

import (
	"strings"
	"time"
)

func (c *channel) appAnswer(string) {
	if c.outbound {
		return
	}
	c.answer()
	c.runOnAnswer()
}

func (c *channel) appPreAnswer(string) { c.preAnswer() }

func (c *channel) appRingReady(string) { c.ring() }

// appPark is switch_ivr_park: the channel waits for messages until it is hung up, transferred, or park_timeout (read once,
// when it is parked) has passed.
func (c *channel) appPark(string) {
	c.mu.Lock()
	if c.parked {
		c.mu.Unlock()
		c.sw.log.Error("cannot park a channel that is parked already", "channel", c.uuid)
		return
	}
	limit, why := c.parkTimeLocked()
	c.parked = true
	c.fireLocked(evPark, fromPark)
	c.touchLocked()
	c.mu.Unlock()
	for c.wait(limit, func(byte) bool { return false }) != hungUp {
		// A break does not end a park; its flag is only consumed.
		if limit >= 0 {
			c.hangup(why)
			break
		}
	}
	c.mu.Lock()
	c.parked = false
	c.fireLocked(evUnpark, fromPark)
	c.mu.Unlock()
}

// appSleep is sleep_function: milliseconds, during which digits stay queued.
func (c *channel) appSleep(data string) {
	ms := leadingInt(data)
	if ms <= 0 {
		return
	}
	c.wait(time.Duration(ms)*time.Millisecond, nil)
}

// appEcho returns the caller's own audio until the call ends.
func (c *channel) appEcho(string) {
	c.wait(-1, func(byte) bool { return false })
}

func (c *channel) appHangup(data string) { c.hangup(parseCause(data)) }

// appRespond is respond_function: the INVITE is answered with a status; 300 and above end the call with the cause
// that belongs to the status.
func (c *channel) appRespond(data string) {
	code := leadingInt(data)
	if code == 0 {
		code = 488
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered || c.outbound || code < 300 {
		c.sw.log.Warn("respond on a channel it cannot refuse", "channel", c.uuid, "status", code)
		return
	}
	c.respondCode = code
	c.hangupLocked(causeOfSIP(code))
}

// appSet is set_function: it always expands its argument once more, whatever app_disable_expand_variables says.
func (c *channel) appSet(data string) {
	name, value, found := strings.Cut(data, "=")
	if name == "" {
		c.sw.log.Error("set without a variable name", "channel", c.uuid)
		return
	}
	name = strings.TrimSpace(strings.TrimPrefix(name, "nolocal:"))
	if !found || value == "_undef_" {
		value = ""
	}
	c.set(name, c.expand(value))
}

// appFlushDTMF is flush_dtmf_function: digits that wait are dropped without an event.
func (c *channel) appFlushDTMF(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dtmf = nil
}

// appExport is export_function: it sets a variable and lets the legs this channel dials have it too.
func (c *channel) appExport(data string) {
	name, _, _ := strings.Cut(data, "=")
	c.appSet(data)
	name = strings.TrimPrefix(name, "nolocal:")
	if exported := c.variable("export_vars"); exported != "" {
		name = exported + "," + name
	}
	c.set("export_vars", name)
}

func (c *channel) appUnset(data string) { c.set(strings.TrimSpace(data), "") }

func (c *channel) appMultiset(data string) {
	delim := byte(' ')
	if strings.HasPrefix(data, "^^") && len(data) > 2 {
		delim, data = data[2], data[3:]
	}
	for _, pair := range separate(data, delim, 256) {
		c.appSet(pair)
	}
}

func (c *channel) appLog(string) {}

// appSchedHangup is sched_hangup_function: `[+]<time> [<cause>]`.
func (c *channel) appSchedHangup(data string) {
	parts := separate(data, ' ', 5)
	if len(parts) == 0 {
		return
	}
	why := causeAllottedTimeout
	if len(parts) > 1 {
		why = parseCause(parts[1])
	}
	c.sw.schedHangup(c, parts[0], why)
}

// schedHangup hangs a channel up at a time: `+N` seconds from now, or seconds since 1970. `+0` means at once.
func (s *Switch) schedHangup(c *channel, when string, why cause) {
	if when == "" {
		return
	}
	if leadingInt(when[1:]) == 0 {
		c.hangup(why)
		return
	}
	s.tasks.after(s.until(when), c.uuid, func() { c.hangup(why) })
}

// until is how long it is until a time: `+N` seconds from now, or seconds since 1970.
func (s *Switch) until(when string) time.Duration {
	if seconds, relative := strings.CutPrefix(when, "+"); relative {
		return max(0, time.Duration(leadingInt(seconds))*time.Second)
	}
	return max(0, time.Unix(int64(leadingInt(when)), 0).Sub(s.clock.now()))
}

// appSendDTMF is send_dtmf_function: `digits[@duration]`; w and W are pauses of half a second and a second. It returns
// at once, the digits are sent after it.
func (c *channel) appSendDTMF(data string) { c.sw.sendDTMF(c, data) }

// sendDTMF sends digits to the far end; Result tells what it heard.
func (s *Switch) sendDTMF(c *channel, data string) bool {
	digits, _, _ := strings.Cut(data, "@")
	if digits == "" || strings.Trim(digits, "0123456789*#ABCDabcdFfwW+~") != "" {
		return false
	}
	for i := range len(digits) {
		if strings.IndexByte("wW+~", digits[i]) < 0 {
			c.farEndHears(digits[i])
		}
	}
	return true
}

// farEndHears is a digit on its way out of the switch.
func (c *channel) farEndHears(digit byte) {
	c.mu.Lock()
	c.heard = append(c.heard, digit)
	c.touchLocked()
	c.mu.Unlock()
}

// runOnAnswer runs what execute_on_answer, and every variable whose name begins with it, names (switch_channel.c,
// switch_channel_execute_on). It runs on the session goroutine, once per answer.
func (c *channel) runOnAnswer() {
	c.mu.Lock()
	if !c.answered || c.onAnswerDone {
		c.mu.Unlock()
		return
	}
	c.onAnswerDone = true
	lines := c.onAnswerLocked()
	c.mu.Unlock()
	for _, line := range lines {
		name, data, found := strings.Cut(line, "::")
		if !found {
			name, data, _ = strings.Cut(line, " ")
		}
		c.execute(name, data)
	}
	c.mu.Lock()
	c.settled = true
	if c.cause == causeNone {
		c.callStateLocked(callActive)
	}
	c.touchLocked()
	c.mu.Unlock()
}

func (c *channel) onAnswerLocked() []string {
	const prefix = "execute_on_answer"
	var lines []string
	for i := range c.vars {
		if hasPrefixFold(c.vars[i].name[len(sessionHeaderPrefix):], prefix) {
			lines = append(lines, c.vars[i].value)
		}
	}
	return lines
}
