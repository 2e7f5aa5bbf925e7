package simswitch

import (
	"strconv"
)

func stamp(us int64) string {
	if us == 0 {
		return "0"
	}
	return strconv.FormatInt(us, 10)
}

// fireLocked raises an event of this channel. The caller holds c.mu, so that no other event of the channel can overtake it.
func (c *channel) fireLocked(id eventID, from origin, extra ...header) {
	c.sw.fire(id, "", from, func(e *event) {
		c.dataLocked(e)
		e.headers = append(e.headers, extra...)
	})
}

func (c *channel) fire(id eventID, from origin, extra ...header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fireLocked(id, from, extra...)
}

func (c *channel) answerState() string {
	switch {
	case c.cause != causeNone:
		return "hangup"
	case c.answered:
		return "answered"
	case c.early:
		return "early"
	default:
		return "ringing"
	}
}

// dataLocked is switch_channel_event_set_data (switch_channel.c): state, caller profile, the other leg's profile and, for
// the events that carry them, all variables.
func (c *channel) dataLocked(e *event) {
	e.add("Channel-State", stateNames[c.running])
	e.add("Channel-Call-State", c.callState.String())
	e.add("Channel-State-Number", strconv.Itoa(int(c.state)))
	e.add("Channel-Name", c.name)
	e.add("Unique-ID", c.uuid)
	e.add("Call-Direction", c.direction())
	e.add("Presence-Call-Direction", c.direction())
	e.add("Channel-HIT-Dialplan", strconv.FormatBool(c.hitPlan))
	e.add("Channel-Call-UUID", c.callUUID)
	e.add("Answer-State", c.answerState())
	if c.cause != causeNone {
		e.add("Hangup-Cause", c.cause.String())
	}
	if c.codec != "" {
		e.add("Channel-Read-Codec-Name", c.codec)
		e.add("Channel-Read-Codec-Rate", "8000")
		e.add("Channel-Read-Codec-Bit-Rate", "64000")
		e.add("Channel-Write-Codec-Name", c.codec)
		e.add("Channel-Write-Codec-Rate", "8000")
		e.add("Channel-Write-Codec-Bit-Rate", "64000")
	}
	if c.profile.destination != "" && (c.outbound || c.running != stateNew) {
		c.profile.add(e, callerNames, c.direction(), c.uuid, c.name, &c.times)
	}
	if c.other != nil {
		e.add("Other-Type", c.other.kind)
		c.other.profile.add(e, otherNames, c.other.direction, c.other.uuid, c.other.name, &c.other.times)
	}
	if verboseEvents[e.id] && !e.basic {
		e.headers = append(e.headers, c.vars...)
	}
}

// profileNames are the header names of a caller profile under one prefix.
type profileNames struct {
	direction, logical, username, dialplan, cidName, cidNumber, origName, origNumber, calleeName, calleeNumber, network, ani,
	destination, unique, source, context, channel, index, profileCreated, created, answered, progress, progressMedia, hangup,
	transfer, resurrect, bridged, lastHold, holdAccum, screen, hideName, hideNumber string
}

func newProfileNames(prefix string) *profileNames {
	return &profileNames{
		direction: prefix + "-Direction", logical: prefix + "-Logical-Direction", username: prefix + "-Username",
		dialplan: prefix + "-Dialplan", cidName: prefix + "-Caller-ID-Name", cidNumber: prefix + "-Caller-ID-Number",
		origName: prefix + "-Orig-Caller-ID-Name", origNumber: prefix + "-Orig-Caller-ID-Number",
		calleeName: prefix + "-Callee-ID-Name", calleeNumber: prefix + "-Callee-ID-Number", network: prefix + "-Network-Addr",
		ani: prefix + "-ANI", destination: prefix + "-Destination-Number", unique: prefix + "-Unique-ID", source: prefix + "-Source",
		context: prefix + "-Context", channel: prefix + "-Channel-Name", index: prefix + "-Profile-Index",
		profileCreated: prefix + "-Profile-Created-Time", created: prefix + "-Channel-Created-Time",
		answered: prefix + "-Channel-Answered-Time", progress: prefix + "-Channel-Progress-Time",
		progressMedia: prefix + "-Channel-Progress-Media-Time", hangup: prefix + "-Channel-Hangup-Time",
		transfer: prefix + "-Channel-Transfer-Time", resurrect: prefix + "-Channel-Resurrect-Time",
		bridged: prefix + "-Channel-Bridged-Time", lastHold: prefix + "-Channel-Last-Hold", holdAccum: prefix + "-Channel-Hold-Accum",
		screen: prefix + "-Screen-Bit", hideName: prefix + "-Privacy-Hide-Name", hideNumber: prefix + "-Privacy-Hide-Number",
	}
}

var (
	callerNames = newProfileNames("Caller")
	otherNames  = newProfileNames("Other-Leg")
)

// add is switch_caller_profile_event_set_data (switch_caller.c).
func (p *profile) add(e *event, n *profileNames, direction, uuid, channelName string, t *times) {
	optional := func(name, value string) {
		if value != "" {
			e.add(name, value)
		}
	}
	e.add(n.direction, direction)
	if p.logicalDirection != "" {
		e.add(n.logical, p.logicalDirection)
	} else {
		e.add(n.logical, direction)
	}
	optional(n.username, p.username)
	optional(n.dialplan, p.dialplan)
	optional(n.cidName, p.cidName)
	optional(n.cidNumber, p.cidNumber)
	optional(n.origName, p.origName)
	optional(n.origNumber, p.origNumber)
	optional(n.calleeName, p.calleeName)
	optional(n.calleeNumber, p.calleeNumber)
	optional(n.network, p.networkAddr)
	optional(n.ani, p.ani)
	e.add(n.destination, p.destination)
	e.add(n.unique, uuid)
	optional(n.source, p.source)
	optional(n.context, p.context)
	e.add(n.channel, channelName)
	if n == callerNames {
		e.add(n.index, "1")
	}
	e.add(n.profileCreated, stamp(t.profileCreated))
	e.add(n.created, stamp(t.created))
	e.add(n.answered, stamp(t.answered))
	e.add(n.progress, stamp(t.progress))
	e.add(n.progressMedia, stamp(t.progressMedia))
	e.add(n.hangup, stamp(t.hangup))
	e.add(n.transfer, stamp(t.transfer))
	e.add(n.resurrect, "0")
	e.add(n.bridged, stamp(t.bridged))
	e.add(n.lastHold, "0")
	e.add(n.holdAccum, "0")
	e.add(n.screen, "true")
	e.add(n.hideName, "false")
	e.add(n.hideNumber, "false")
}
