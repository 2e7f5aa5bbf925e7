package simswitch

import (
	"strings"
	"sync"
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
	c.setLocked("originate_disposition", "failure")
	c.setLocked("DIALSTATUS", "INVALIDARGS")
	// An answered caller waits while others ring (switch_channel.c, CF_ORIGINATOR).
	if c.answered && c.cause == causeNone {
		c.callStateLocked(callWaiting)
	}
	c.mu.Unlock()
	result := c.sw.dial(c, data, timeout, nil)
	peer := result.winner
	c.mu.Lock()
	if c.callState == callWaiting && c.cause == causeNone {
		c.callStateLocked(callActive)
	}
	c.mu.Unlock()
	if peer == nil {
		c.bridgeFailed(result)
		return
	}
	peer.mu.Lock()
	answered := peer.answered
	peer.mu.Unlock()
	if answered {
		c.answer()
		c.runOnAnswer()
	}
	c.mu.Lock()
	c.setLocked("originate_disposition", "SUCCESS")
	c.setLocked("DIALSTATUS", "SUCCESS")
	c.legsLocked(result)
	c.mu.Unlock()
	c.bridge(peer, func(b *bond) { peer.handOver(func() { peer.exchange(c, b) }) })
}

// legsLocked sets the variables that list every leg of a dial string and how it ended.
func (c *channel) legsLocked(result placed) {
	var causes, legs []string
	for _, l := range result.legs {
		if l.c == nil {
			continue
		}
		causes = append(causes, l.c.uuid+";"+l.cause.String())
		legs = append(legs, l.c.uuid+";Outbound Call;"+l.c.dialedNumber)
	}
	c.setLocked("originate_causes", arrayValue(causes))
	c.setLocked("originated_legs", arrayValue(legs))
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
func (c *channel) bridgeFailed(result placed) {
	why := result.cause
	var failure map[string]string
	if result.last != nil {
		failure = result.last.get("sip_invite_failure_status", "sip_invite_failure_phrase", "proto_specific_hangup_cause")
		// A leg that this side gave up has no status of the far end's yet.
		if failure["proto_specific_hangup_cause"] == "" {
			failure = nil
		}
		delete(failure, "proto_specific_hangup_cause")
	}
	c.mu.Lock()
	c.setLocked("originate_disposition", why.String())
	c.setLocked("DIALSTATUS", dialStatus(why))
	for name, value := range failure {
		c.setLocked(name, value)
	}
	c.legsLocked(result)
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

// meet copies what an event of one leg tells about the other.
func (c *channel) meet(kind string, peer *channel) *otherLeg {
	peer.mu.Lock()
	defer peer.mu.Unlock()
	return &otherLeg{kind: kind, uuid: peer.uuid, name: peer.name, direction: peer.direction(), profile: peer.profile, times: peer.times}
}

// bond is two legs that are bridged. It is over as soon as one of them is wanted elsewhere or hangs up.
type bond struct {
	once sync.Once
	// over is closed by whoever leaves first, left when the called side has left too.
	over, left chan struct{}
}

func newBond() *bond { return &bond{over: make(chan struct{}), left: make(chan struct{})} }

func (b *bond) end() { b.once.Do(func() { close(b.over) }) }

func (b *bond) ended() bool {
	select {
	case <-b.over:
		return true
	default:
		return false
	}
}

// bridge is the caller's half of switch_ivr_multi_threaded_bridge: it joins two legs until one of them leaves. begin puts the
// called side on its half.
func (c *channel) bridge(peer *channel, begin func(*bond)) {
	now := c.sw.clock.micros()
	other := c.meet("originatee", peer)
	b := newBond()
	c.mu.Lock()
	if !c.readyLocked() {
		c.mu.Unlock()
		peer.hangup(causeOriginatorCancel)
		return
	}
	c.partner, c.bond = peer, b
	c.originator = true
	c.other = other
	c.times.bridged = now
	if c.times.progress == 0 {
		c.times.progress = other.times.progress
	}
	c.profile.calleeName, c.profile.calleeNumber = other.profile.destination, other.profile.destination
	c.setLocked("signal_bond", peer.uuid)
	sides := []header{{"Bridge-A-Unique-ID", c.uuid}, {"Bridge-B-Unique-ID", peer.uuid}}
	c.fireLocked(evBridge, fromBridge, sides...)
	c.setLocked("bridge_to", peer.uuid)
	c.setLocked("last_bridge_to", peer.uuid)
	c.setLocked("bridge_channel", peer.name)
	c.setLocked("bridge_uuid", peer.uuid)
	c.touchLocked()
	c.mu.Unlock()
	peer.mu.Lock()
	peer.partner, peer.bond = c, b
	peer.times.bridged = now
	peer.watch = nil
	peer.mu.Unlock()
	begin(b)
	c.talk(peer, b)
	c.unbridge(peer, b, sides)
}

// talk runs one side of a bridge until it or its peer leaves. Digits go on to the other side.
func (c *channel) talk(peer *channel, b *bond) {
	told := false
	for c.ready() && !b.ended() {
		c.parseEvents()
		c.runOnAnswer()
		c.passDigits(peer)
		c.passAnswer(peer)
		if !told && c.isAnswered() {
			told = true
			peer.poke()
		}
		if !c.ready() {
			break
		}
		select {
		case <-c.wake:
		case <-b.over:
		case <-peer.reported:
			b.end()
		}
	}
	// What the other side learns of a hang-up it learns before it goes on.
	if !c.up() && !b.ended() {
		peer.learn(c)
	}
	b.end()
	peer.poke()
}

func (c *channel) isAnswered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered
}

func (c *channel) passDigits(peer *channel) {
	for {
		digit, ok := c.takeDigit()
		if !ok {
			return
		}
		peer.farEndHears(digit)
	}
}

// passAnswer answers the caller when a peer that was bridged in early media answers.
func (c *channel) passAnswer(peer *channel) {
	if c.outbound {
		return
	}
	peer.mu.Lock()
	answered := peer.answered
	peer.mu.Unlock()
	if answered {
		c.answer()
		c.runOnAnswer()
	}
}

// exchange is the called side's half of a bridge, on its own goroutine (switch_ivr_bridge.c, audio_bridge_on_exchange_media).
func (c *channel) exchange(caller *channel, b *bond) {
	c.mu.Lock()
	c.setLocked("bridge_to", caller.uuid)
	c.setLocked("last_bridge_to", caller.uuid)
	c.setLocked("bridge_channel", caller.name)
	c.setLocked("bridge_uuid", caller.uuid)
	c.setLocked("signal_bond", caller.uuid)
	c.mu.Unlock()
	defer close(b.left)
	if !c.enter(stateExchangeMedia) {
		caller.learn(c)
		b.end()
		caller.poke()
		return
	}
	c.talk(caller, b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked("bridge_to", "")
	c.partner, c.bond = nil, nil
	if c.cause != causeNone || c.transferred {
		return
	}
	if isTrue(c.variableLocked("park_after_bridge")) {
		c.parkNext = true
		return
	}
	if c.answered {
		c.hangupLocked(causeNormalClearing)
	} else {
		c.hangupLocked(causeOriginatorCancel)
	}
}

// unbridge ends the caller's side: the other side's leaving is waited for, and then it is decided whether the caller parks, goes on
// or ends.
func (c *channel) unbridge(peer *channel, b *bond, sides []header) {
	peer.mu.Lock()
	peer.stopBroadcastLocked()
	peer.mu.Unlock()
	select {
	case <-b.left:
	case <-peer.reported:
	}
	peer.mu.Lock()
	ended, answered := peer.cause, peer.answered
	peer.mu.Unlock()
	if ended != causeNone {
		<-peer.reported
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked("bridge_to", "")
	if ended != causeNone {
		c.setLocked("bridge_hangup_cause", ended.String())
	}
	if c.cause != causeNone {
		// The caller's thread tells the other side last (switch_ivr_bridge.c, switch_ivr_multi_threaded_bridge).
		defer peer.set("bridge_hangup_cause", c.cause.String())
	}
	c.fireLocked(evUnbridge, fromBridge, sides...)
	c.partner, c.bond, c.originator = nil, nil, false
	if !c.readyLocked() || !answered {
		return
	}
	switch {
	case isTrue(c.variableLocked("park_after_bridge")):
		c.parkNext = true
		c.transferred = true
	case isTrue(c.variableLocked("hangup_after_bridge")):
		c.hangupLocked(ended)
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
