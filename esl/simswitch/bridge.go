package simswitch

import (
	"strings"
	"time"
)

// appBridge is audio_bridge_function (mod_dptools.c) with switch_ivr_multi_threaded_bridge.
func (c *channel) appBridge(data string) {
	if data == "" {
		return
	}
	timeout := 60 * time.Second
	if n := leadingInt(c.variable("call_timeout")); n > 0 {
		timeout = time.Duration(n) * time.Second
	}
	c.mu.Lock()
	c.lastDial = nil
	c.setLocked("originate_disposition", "failure")
	c.setLocked("DIALSTATUS", "INVALIDARGS")
	c.mu.Unlock()
	peer, _, why := c.sw.dial(c, data, timeout, nil)
	if peer == nil {
		c.bridgeFailed(why)
		return
	}
	peer.mu.Lock()
	answered := peer.answered
	peer.mu.Unlock()
	if answered {
		c.answer()
		c.runOnAnswer()
	}
	number := peer.destination()
	c.mu.Lock()
	c.setLocked("originate_disposition", "SUCCESS")
	c.setLocked("DIALSTATUS", "SUCCESS")
	c.setLocked("originate_causes", peer.uuid+";NONE")
	c.setLocked("originated_legs", peer.uuid+";Outbound Call;"+number)
	c.mu.Unlock()
	c.bridge(peer)
}

// dialStatus is the DIALSTATUS variable for a cause (switch_ivr_originate.c).
func dialStatus(why cause) string {
	switch why {
	case causeOriginatorCancel:
		return "CANCEL"
	case 17:
		return "BUSY"
	case causeNoAnswer:
		return "NOANSWER"
	case causeOutOfOrder, causeInvalidProfile:
		return "INVALIDARGS"
	case 21:
		return "DONTCALL"
	default:
		return why.String()
	}
}

// bridgeFailed sets the variables of a bridge that came to nothing and ends the call unless it is told to go on
// (switch_channel_handle_cause).
func (c *channel) bridgeFailed(why cause) {
	number := ""
	if c.lastDial != nil {
		number = c.lastDial.destination()
	}
	c.mu.Lock()
	c.setLocked("originate_disposition", why.String())
	c.setLocked("DIALSTATUS", dialStatus(why))
	if c.lastDial != nil {
		c.setLocked("last_bridge_hangup_cause", why.String())
		for name, value := range c.lastDial.get("sip_invite_failure_status", "sip_invite_failure_phrase", "proto_specific_hangup_cause") {
			if name == "proto_specific_hangup_cause" {
				name = "last_bridge_proto_specific_hangup_cause"
			}
			c.setLocked(name, value)
		}
		c.setLocked("originate_causes", c.lastDial.uuid+";"+why.String())
		c.setLocked("originated_legs", c.lastDial.uuid+";Outbound Call;"+number)
	}
	c.setLocked("originate_failed_cause", why.String())
	goesOn, given := c.hasVariableLocked("continue_on_fail")
	failures, limited := c.hasVariableLocked("failure_causes")
	c.mu.Unlock()
	switch {
	case limited && !containsCause(failures, why):
		return
	case given && (isTrue(goesOn) || containsCause(goesOn, why)):
		return
	case !given && !limited && (why == causeNoAnswer || why == causeNoUserResponse || why == causeOriginatorCancel):
		return
	}
	c.hangup(why)
}

func containsCause(list string, why cause) bool {
	for _, item := range separate(list, ',', 256) {
		if strings.EqualFold(item, why.String()) || item == itoa(int(why)) {
			return true
		}
	}
	return false
}

func (c *channel) destination() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.profile.destination
}

// meet copies what an event of one leg tells about the other.
func (c *channel) meet(kind string, peer *channel) *otherLeg {
	peer.mu.Lock()
	defer peer.mu.Unlock()
	return &otherLeg{kind: kind, uuid: peer.uuid, name: peer.name, direction: peer.direction(), profile: peer.profile, times: peer.times}
}

// bridge joins two legs until one of them hangs up.
func (c *channel) bridge(peer *channel) {
	now := c.sw.clock.micros()
	other := c.meet("originatee", peer)
	c.mu.Lock()
	if !c.readyLocked() {
		c.mu.Unlock()
		peer.hangup(causeOriginatorCancel)
		return
	}
	c.partner = peer
	c.other = other
	c.times.bridged = now
	if c.times.progress == 0 {
		c.times.progress = other.times.progress
	}
	c.profile.calleeName, c.profile.calleeNumber = other.profile.destination, other.profile.destination
	c.setLocked("signal_bond", peer.uuid)
	c.fireLocked(evBridge, fromBridge, header{"Bridge-A-Unique-ID", c.uuid}, header{"Bridge-B-Unique-ID", peer.uuid})
	c.setLocked("bridge_to", peer.uuid)
	c.setLocked("last_bridge_to", peer.uuid)
	c.setLocked("bridge_channel", peer.name)
	c.setLocked("bridge_uuid", peer.uuid)
	c.mu.Unlock()
	peer.mu.Lock()
	peer.partner = c
	peer.times.bridged = now
	peer.watch = nil
	peer.mu.Unlock()
	peer.handOver(func() { peer.exchange(c) })
	c.talk(peer)
	c.unbridge(peer)
}

// talk runs the calling side of a bridge until it or its peer has been hung up. Digits go on to the other side.
func (c *channel) talk(peer *channel) {
	for c.ready() && peer.up() {
		c.parseEvents()
		c.passDigits(peer)
		c.passAnswer(peer)
		if !c.ready() || !peer.up() {
			return
		}
		select {
		case <-c.wake:
		case <-peer.reported:
			return
		}
	}
}

func (c *channel) passDigits(peer *channel) {
	for {
		digit, ok := c.takeDigit()
		if !ok {
			return
		}
		peer.mu.Lock()
		tap := peer.tap
		peer.mu.Unlock()
		if tap != nil {
			tap(digit)
		}
	}
}

// passAnswer answers the caller when a peer that was bridged in early media answers.
func (c *channel) passAnswer(peer *channel) {
	peer.mu.Lock()
	answered := peer.answered
	peer.mu.Unlock()
	if answered {
		c.answer()
		c.runOnAnswer()
	}
}

// exchange is the called side's half of a bridge, on its own goroutine.
func (c *channel) exchange(caller *channel) {
	c.mu.Lock()
	c.setLocked("bridge_to", caller.uuid)
	c.setLocked("last_bridge_to", caller.uuid)
	c.setLocked("bridge_channel", caller.name)
	c.setLocked("bridge_uuid", caller.uuid)
	c.setLocked("last_bridge_role", "originatee")
	c.mu.Unlock()
	if !c.enter(stateExchangeMedia) {
		caller.poke()
		return
	}
	for c.ready() && caller.up() {
		c.parseEvents()
		c.runOnAnswer()
		c.passDigits(caller)
		caller.poke()
		if !c.ready() || !caller.up() {
			break
		}
		<-c.wake
	}
	caller.mu.Lock()
	why := caller.cause
	caller.mu.Unlock()
	c.set("bridge_to", "")
	if why != causeNone {
		c.set("bridge_hangup_cause", why.String())
	}
}

// unbridge ends the caller's side: the peer is hung up, its end is waited for, and the side that did not hang up first
// learns how the other ended.
func (c *channel) unbridge(peer *channel) {
	c.mu.Lock()
	mine := c.cause
	c.mu.Unlock()
	if mine != causeNone && peer.up() {
		peer.learn(c)
		peer.hangup(mine)
	} else {
		peer.hangup(causeNormalClearing)
		c.learn(peer)
	}
	<-peer.reported
	peer.mu.Lock()
	ended := peer.cause
	peer.mu.Unlock()
	c.mu.Lock()
	c.setLocked("bridge_to", "")
	c.setLocked("bridge_hangup_cause", ended.String())
	c.fireLocked(evUnbridge, fromBridge, header{"Bridge-A-Unique-ID", c.uuid}, header{"Bridge-B-Unique-ID", peer.uuid})
	c.partner = nil
	after := isTrue(c.variableLocked("hangup_after_bridge"))
	c.mu.Unlock()
	if after {
		c.hangup(ended)
	}
}

// learn sets the variables that tell a leg how the one it was bridged to ended.
func (c *channel) learn(gone *channel) {
	gone.mu.Lock()
	why := gone.cause
	proto, _ := gone.hasVariableLocked("proto_specific_hangup_cause")
	reason, _ := gone.hasVariableLocked("sip_reason")
	gone.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked("last_bridge_hangup_cause", why.String())
	if proto == "" {
		return
	}
	c.setLocked("last_bridge_proto_specific_hangup_cause", proto)
	c.setLocked("sip_hangup_phrase", sipPhrase(leadingInt(strings.TrimPrefix(proto, "sip:"))))
	c.setLocked("sip_reason", reason)
}
