package simswitch

import (
	"strconv"
	"time"
)

var (
	fromState    = origin{"switch_channel.c", "switch_channel_perform_set_running_state"}
	fromRun      = origin{"switch_core_state_machine.c", "switch_core_session_run"}
	fromReport   = origin{"switch_core_state_machine.c", "switch_core_session_reporting_state"}
	fromDestroy  = origin{"switch_core_session.c", "switch_core_session_perform_destroy"}
	fromHangup   = origin{"switch_channel.c", "switch_channel_perform_hangup"}
	fromAnswer   = origin{"switch_channel.c", "switch_channel_perform_mark_answered"}
	fromRing     = origin{"switch_channel.c", "switch_channel_perform_mark_ring_ready_value"}
	fromPreAns   = origin{"switch_channel.c", "switch_channel_perform_mark_pre_answered"}
	fromExec     = origin{"switch_core_session.c", "switch_core_session_exec"}
	fromPark     = origin{"switch_ivr.c", "switch_ivr_park"}
	fromBridge   = origin{"switch_ivr_bridge.c", "switch_ivr_multi_threaded_bridge"}
	fromJoin     = origin{"switch_ivr_bridge.c", "uuid_bridge_on_soft_execute"}
	fromPlay     = origin{"switch_ivr_play_say.c", "switch_ivr_play_file"}
	fromCall     = origin{"switch_channel.c", "switch_channel_perform_set_callstate"}
	fromOutgoing = origin{"switch_core_session.c", "switch_core_session_outgoing_channel"}
)

// enter moves the channel to a state and raises CHANNEL_STATE, unless it has been hung up meanwhile.
func (c *channel) enter(st state) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != causeNone && st < stateHangup {
		return false
	}
	c.enterLocked(st)
	return true
}

func (c *channel) enterLocked(st state) {
	if c.cause == causeNone || st > c.state {
		c.state = st
	}
	c.running = st
	c.fireLocked(evState, fromState)
}

// callStateLocked changes the call state and raises CHANNEL_CALLSTATE.
func (c *channel) callStateLocked(next callState) {
	if c.callState == next {
		return
	}
	was := c.callState
	c.callState = next
	c.fireLocked(evCallState, fromCall, header{"Original-Channel-Call-State", was.String()},
		header{"Channel-Call-State-Number", strconv.Itoa(int(next))})
	c.touchLocked()
}

// hangup is switch_channel_hangup: the first cause wins. details are variables that the reason of the hang-up brings along;
// they are set before CHANNEL_HANGUP is raised.
func (c *channel) hangup(why cause, details ...header) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hangupLocked(why, details...)
}

func (c *channel) hangupLocked(why cause, details ...header) bool {
	if c.cause != causeNone {
		return false
	}
	if why == causeNone {
		why = causeNormalClearing
	}
	for _, d := range details {
		c.setLocked(d.name, d.value)
	}
	switch {
	case c.originator:
		c.setLocked("last_bridge_role", "originator")
	case c.bond != nil:
		c.setLocked("last_bridge_role", "originatee")
	}
	c.cause = why
	c.state = stateHangup
	c.fireLocked(evHangup, fromHangup)
	c.touchLocked()
	return true
}

// byeReceived is a BYE from the far end, or a CANCEL when the call was not answered (sofia.c, sofia_handle_sip_i_bye and
// sofia_handle_sip_i_cancel).
func (c *channel) byeReceived() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != causeNone {
		return
	}
	if !c.answered && !c.outbound {
		c.setLocked("sip_hangup_disposition", "recv_cancel")
		c.setLocked("sip_invite_failure_status", "487")
		c.setLocked("sip_invite_failure_phrase", "CANCEL")
		c.hangupLocked(causeOriginatorCancel, header{"sip_reason", `SIP;cause=487;text="ORIGINATOR_CANCEL"`},
			header{"sip_term_status", "487"}, header{"proto_specific_hangup_cause", "sip:487"}, header{"sip_term_cause", "487"})
		return
	}
	c.remote = true
	c.hangupLocked(causeNormalClearing, header{"sip_reason", `Q.850;cause=16;text="NORMAL_CLEARING"`},
		header{"sip_term_status", "200"}, header{"proto_specific_hangup_cause", "sip:200"}, header{"sip_term_cause", "16"})
	c.setLocked("sip_hangup_disposition", "recv_bye")
}

// refused is a final SIP status above 299 on an outgoing call (sofia.c, sofia_handle_sip_r_invite).
func (c *channel) refused(status int) {
	why := causeOfSIP(status)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.profile.networkAddr = "127.0.0.1"
	c.hangupLocked(why, header{"sip_reply_host", "127.0.0.1"}, header{"sip_reply_port", "5090"}, header{"sip_network_ip", "127.0.0.1"},
		header{"sip_network_port", "5090"}, header{"sip_hangup_disposition", "recv_refuse"},
		header{"sip_invite_failure_status", itoa(status)}, header{"sip_invite_failure_phrase", sipPhrase(status)},
		header{"sip_term_status", itoa(status)}, header{"proto_specific_hangup_cause", "sip:" + itoa(status)},
		header{"sip_term_cause", itoa(int(why))})
}

// ring is switch_channel_mark_ring_ready: 180 sent or received.
func (c *channel) ring() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != causeNone || c.rang || c.early || c.answered {
		return false
	}
	c.rang = true
	c.times.progress = c.sw.clock.micros()
	c.progressVarsLocked()
	c.fireLocked(evProgress, fromRing)
	c.callStateLocked(callRinging)
	return true
}

// preAnswer is switch_channel_mark_pre_answered: 183 with media, sent or received.
func (c *channel) preAnswer() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != causeNone {
		return false
	}
	if c.early || c.answered {
		return true
	}
	c.early, c.hasMedia = true, true
	c.times.progressMedia = c.sw.clock.micros()
	c.progressVarsLocked()
	c.mediaVarsLocked("EARLY MEDIA")
	c.fireLocked(evProgressMedia, fromPreAns)
	c.callStateLocked(callEarly)
	return true
}

// answer is switch_channel_mark_answered: 200 sent or received. Applications that execute_on_answer names run once the
// session goroutine gets to them.
func (c *channel) answer() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != causeNone {
		return false
	}
	if c.answered {
		return true
	}
	c.answered, c.hasMedia = true, true
	c.times.answered = c.sw.clock.micros()
	if c.outbound && c.callState == callDown {
		c.callStateLocked(callRinging)
	}
	c.progressVarsLocked()
	c.mediaVarsLocked("")
	c.fireLocked(evAnswer, fromAnswer)
	c.setLocked("endpoint_disposition", "ANSWER")
	// What execute_on_answer names still sees the state before; runOnAnswer sets it then.
	if len(c.onAnswerLocked()) == 0 {
		c.callStateLocked(callActive)
	}
	c.hearLocked(c.says)
	if c.script != nil {
		c.script.answered()
	}
	c.touchLocked()
	return true
}

// finish runs the end of a channel: hang-up handlers, the CDR, CHANNEL_HANGUP_COMPLETE once that is delivered
// (switch_core_state_machine.c, switch_core_session_reporting_state), CHANNEL_DESTROY.
func (c *channel) finish() {
	c.mu.Lock()
	if c.cause == causeNone {
		c.hangupLocked(causeNormalClearing)
	}
	c.enterLocked(stateHangup)
	c.stopRecordingsLocked()
	c.dropBeepsLocked()
	c.endStreamLocked()
	c.times.hangup = c.sw.clock.micros()
	c.disposeLocked()
	c.callStateLocked(callHangup)
	c.enterLocked(stateReporting)
	c.reportLocked()
	if c.sw.recorder != nil && !c.unrecorded {
		record := c.recordLocked()
		c.mu.Unlock()
		c.sw.report(c.uuid, record)
		c.mu.Lock()
	}
	c.fireLocked(evHangupComplete, fromReport)
	c.mu.Unlock()
	close(c.reported)
	c.destroy()
}

func (c *channel) destroy() {
	c.mu.Lock()
	c.state = stateDestroy
	c.callUUID = c.uuid
	c.fireLocked(evDestroy, fromDestroy)
	c.enterLocked(stateDestroy)
	result := c.resultLocked()
	c.touchLocked()
	c.mu.Unlock()
	c.sw.tasks.cancelMatching(c.uuid, 0)
	c.sw.unregister(c, result)
	if c.script != nil {
		c.script.stop()
	}
	close(c.done)
}

// disposeLocked is sofia_on_hangup (mod_sofia.c): how the SIP side ended when this side ended it.
func (c *channel) disposeLocked() {
	if c.gateway != nil && !c.answered {
		c.gateway.failedOut.Add(1)
	}
	if _, done := c.hasVariableLocked("sip_hangup_disposition"); done {
		return
	}
	switch {
	case c.cause == causeBlindTransfer:
		// The far end was told to leave by REFER and hangs up itself.
	case c.answered:
		c.setLocked("sip_hangup_disposition", "send_bye")
	case c.outbound:
		c.setLocked("sip_hangup_disposition", "send_cancel")
		c.setLocked("sip_invite_failure_status", "487")
		c.setLocked("sip_invite_failure_phrase", "CANCEL")
	default:
		c.setLocked("sip_hangup_disposition", "send_refuse")
	}
}

// reportLocked is switch_channel_set_timestamps (switch_channel.c): every stamp, epoch and duration of the call. Whole
// seconds are differences of whole epoch seconds, so they may be one off the rounded duration, as on the real switch.
func (c *channel) reportLocked() {
	t := &c.times
	c.setLocked("hangup_cause", c.cause.String())
	c.setLocked("hangup_cause_q850", itoa(c.cause.q850()))
	digits := "none"
	if len(c.dialed) > 0 {
		digits = string(c.dialed)
	}
	c.setLocked("digits_dialed", digits)
	c.soundVarsLocked()
	add := func(name, value string) { c.vars = append(c.vars, header{sessionHeaderPrefix + name, value}) }
	when := func(name string, us int64) {
		if us != 0 {
			add(name+"_stamp", time.UnixMicro(us).UTC().Format(time.DateTime))
		}
	}
	when("start", t.created)
	when("profile_start", t.profileCreated)
	when("answer", t.answered)
	when("bridge", t.bridged)
	when("progress", t.progress)
	when("progress_media", t.progressMedia)
	when("end", t.hangup)
	epoch := func(name string, us int64) {
		add(name+"_epoch", stamp(us/1e6))
		add(name+"_uepoch", stamp(us))
	}
	epoch("start", t.created)
	epoch("profile_start", t.profileCreated)
	epoch("answer", t.answered)
	epoch("bridge", t.bridged)
	epoch("progress", t.progress)
	epoch("progress_media", t.progressMedia)
	epoch("end", t.hangup)
	if c.lastApp != "" {
		add("last_app", c.lastApp)
		if c.lastArg != "" {
			add("last_arg", c.lastArg)
		}
	}
	if c.profile.cidName != "" {
		add("caller_id", `"`+c.profile.cidName+`" <`+c.profile.cidNumber+`>`)
	} else {
		add("caller_id", c.profile.cidNumber)
	}
	since := func(name string, from, to int64) {
		var sec, msec, usec int64
		if from != 0 && to != 0 {
			sec, msec, usec = to/1e6-from/1e6, to/1e3-from/1e3, to-from
		}
		if name == "duration" {
			add("duration", stamp(sec))
			add("mduration", stamp(msec))
			add("uduration", stamp(usec))
			return
		}
		add(name+"sec", stamp(sec))
		add(name+"msec", stamp(msec))
		add(name+"usec", stamp(usec))
	}
	since("duration", t.created, t.hangup)
	since("bill", t.answered, t.hangup)
	since("progress", t.created, t.progress)
	since("answer", t.created, t.answered)
	since("wait", t.created, t.bridged)
	since("progress_media", t.created, t.progressMedia)
	if t.answered != 0 {
		since("flow_bill", t.created, t.hangup)
	} else {
		since("flow_bill", 0, 0)
	}
}
