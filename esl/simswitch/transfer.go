package simswitch

import (
	"strings"
	"time"
)

// maxTransfers is how often a call may be transferred unless one of its variables says otherwise
// (switch_ivr.c, switch_ivr_session_transfer).
const maxTransfers = 70

// uuidTransfer is transfer_function of mod_commands.c for the channel itself: `<uuid> <dest> [<dialplan> [<context>]]`.
func (s *Switch) uuidTransfer(arg string) string {
	const usage = "-USAGE: <uuid> [-bleg|-both] <dest-exten> [<dialplan>] [<context>]\n"
	words := separate(arg, ' ', 5)
	if len(words) < 2 {
		return usage
	}
	c := s.channel(words[0])
	if c == nil {
		return noSuchChannel
	}
	if strings.HasPrefix(words[1], "-") {
		s.log.Error("uuid_transfer is simulated for the channel itself only", "command", arg)
		return "-ERR\n"
	}
	word := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	if !c.transfer(words[1], word(2), word(3)) {
		return "-ERR\n"
	}
	return "+OK\n"
}

// appTransfer is transfer_function of mod_dptools.c: `extension [dialplan [context]]`.
func (c *channel) appTransfer(data string) {
	parts := separate(data, ' ', 4)
	if len(parts) == 0 || parts[0] == "-aleg" || parts[0] == "-bleg" || parts[0] == "-both" {
		c.sw.log.Error("transfer is simulated for the channel itself only", "data", data, "channel", c.uuid)
		return
	}
	parts = append(parts, "", "")
	c.transfer(parts[0], parts[1], parts[2])
}

// transfer is switch_ivr_session_transfer: the channel leaves whatever it runs and is routed anew.
func (c *channel) transfer(extension, dialplan, context string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := "max_session_transfers"
	value, given := c.hasVariableLocked(limit)
	if !given {
		limit = "max_forwards"
		value, given = c.hasVariableLocked(limit)
	}
	left := maxTransfers
	if given {
		left = leadingInt(value) - 1
	}
	if left <= 0 {
		c.hangupLocked(causeExchangeRouting)
		return false
	}
	switch {
	case dialplan == "" && strings.EqualFold(c.profile.dialplan, dialplanInline):
		dialplan = "XML"
	case dialplan == "":
		dialplan = c.profile.dialplan
	case !strings.EqualFold(dialplan, "XML") && !strings.EqualFold(dialplan, dialplanInline):
		c.sw.log.Error("dialplan is not simulated", "dialplan", dialplan, "channel", c.uuid)
		c.hangupLocked(causeNoRoute)
		return false
	}
	c.setLocked(limit, itoa(left))
	c.other = nil
	c.profile.rdnis = c.profile.destination
	c.profile.destination = extension
	c.profile.dialplan = dialplan
	if context != "" {
		c.profile.context = context
	}
	c.times.profileCreated = c.sw.clock.micros()
	c.times.transfer = c.times.profileCreated
	c.setLocked("signal_bond", "")
	c.setLocked("transfer_source", itoa(int(c.sw.clock.now().Unix()))+":"+newUUID()+":bl_xfer:"+extension+"/"+c.profile.context+"/"+dialplan)
	c.parkNext, c.joining = false, nil
	c.stopBroadcastLocked()
	c.transferred = true
	c.touchLocked()
	return true
}

const dialplanInline = "inline"

// inlineApplications is inline_dialplan_hunt of mod_dptools.c: `app:data,app:data`. The number that was dialled before the
// transfer comes back.
func (c *channel) inlineApplications() []application {
	c.mu.Lock()
	defer c.mu.Unlock()
	var applications []application
	for _, one := range separate(c.profile.destination, ',', 128) {
		name, data, _ := strings.Cut(one, ":")
		applications = append(applications, application{strings.TrimLeft(name, " "), data})
	}
	c.profile.destination, c.profile.rdnis = c.profile.rdnis, ""
	return applications
}

// live is the state machine of a channel from its first step on (switch_core_state_machine.c, switch_core_session_run): each
// step runs until the channel is wanted elsewhere, and a channel that nobody wants is at its end.
func (c *channel) live(step func()) {
	for step != nil {
		step()
		step = c.following()
	}
}

func (c *channel) following() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	join, park, route := c.joining, c.parkNext, c.transferred
	c.joining, c.parkNext, c.transferred = nil, false, false
	switch {
	case c.cause != causeNone:
		return nil
	case join != nil:
		return func() { c.join(join) }
	case park:
		return c.parkState
	case route:
		return c.route
	}
	c.hangupLocked(causeNormalClearing)
	return nil
}

// route is the routing and executing half of the state machine: hunt and execute.
func (c *channel) route() {
	if !c.enter(stateRouting) {
		return
	}
	var applications []application
	if strings.EqualFold(c.dialplan(), dialplanInline) {
		applications = c.inlineApplications()
	} else {
		applications = c.hunt()
	}
	if applications == nil {
		if c.up() {
			c.hangup(causeNoRoute)
		}
		return
	}
	c.mu.Lock()
	c.hitPlan = true
	c.mu.Unlock()
	c.runExtension(applications)
}

func (c *channel) dialplan() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.profile.dialplan
}

// runExtension is switch_core_standard_on_execute.
func (c *channel) runExtension(applications []application) {
	if !c.enter(stateExecute) {
		return
	}
	for _, a := range applications {
		if !c.ready() || !c.execute(a.name, a.data) {
			return
		}
	}
}

// parkState is the state CS_PARK, into which park_after_bridge puts a channel: a park with no application around it.
func (c *channel) parkState() {
	if c.enter(statePark) {
		c.appPark("")
	}
}

// wanted says that the channel is to leave what it runs for something that has been decided on already.
func (c *channel) wanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.transferred
}

// parkTimeLocked is park_timeout, `seconds[:cause]`, which a park takes away when it begins.
func (c *channel) parkTimeLocked() (time.Duration, cause) {
	value, ok := c.hasVariableLocked("park_timeout")
	if !ok {
		return -1, causeNormalClearing
	}
	c.setLocked("park_timeout", "")
	seconds, name, found := strings.Cut(value, ":")
	why := causeNormalClearing
	if found {
		why = parseCause(name)
	}
	return time.Duration(leadingInt(seconds)) * time.Second, why
}
