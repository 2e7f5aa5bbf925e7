package simswitch

import "time"

// place starts one leg.
func (r *dialing) place(t dialTarget, globals []header, override *profile) {
	vars := mergeHeaders(append([]header(nil), globals...), t.vars)
	l := &leg{start: r.start}
	r.legs = append(r.legs, l)
	if value, ok := lookup(vars, "leg_delay_start"); ok && leadingInt(value) > 0 {
		l.start = r.start.Add(time.Duration(leadingInt(value)) * time.Second)
	}
	if value, ok := lookup(vars, "leg_timeout"); ok && leadingInt(value) > 0 {
		l.limit = l.start.Add(time.Duration(leadingInt(value)) * time.Second)
	}
	uuid, ok := lookup(vars, "origination_uuid")
	if !ok || uuid == "" {
		uuid = newUUID()
	}
	to, why := r.sw.resolve(t.url)
	c := newChannel(r.sw, uuid, true)
	c.sessionID = r.sw.sessions.Add(1)
	c.watch = r.notify
	if to == nil {
		l.cause = why
		c.stillborn()
		return
	}
	c.prepare(to, r.caller, vars, override)
	c.outboundMediaVars(to)
	if err := r.sw.register(c); err != nil {
		r.sw.log.Error("cannot create channel", "channel", uuid, "error", err)
		l.cause = causeOutOfOrder
		return
	}
	if to.gateway != nil {
		to.gateway.callsOut.Add(1)
	}
	l.c = c
	c.dialedNumber = to.user
	c.fire(evOutgoing, fromOutgoing)
	c.linkCaller(r.caller)
	l.begin = func() {
		go func() {
			defer r.sw.wg.Done()
			c.runOutgoing(to)
		}()
	}
}

// stillborn raises what a channel raises that is destroyed before it was anything.
func (c *channel) stillborn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.append("direction", "outbound", "is_outbound", "true", "uuid", c.uuid, "call_uuid", c.uuid, "session_id", itoa(int(c.sessionID)))
	c.running = stateNone
	c.fireLocked(evDestroy, fromDestroy)
	c.running = stateDestroy
	c.fireLocked(evState, fromState)
}

// prepare fills a new leg: its profile, the caller's or the one the variables give, and its variables.
func (c *channel) prepare(to *target, caller *channel, vars []header, override *profile) {
	now := c.sw.clock.micros()
	c.gateway = to.gateway
	c.name = "sofia/" + profileName + "/" + to.user
	if to.gateway == nil {
		c.name += "@" + to.hostname
	}
	c.times = times{created: now, profileCreated: now}
	c.state, c.running = stateInit, stateNone
	c.profile = profile{source: "src/switch_ivr_originate.c", context: "default"}
	if override != nil {
		c.profile = *override
	}
	if caller != nil {
		caller.mu.Lock()
		c.profile = caller.profile
		other := &otherLeg{kind: "originator", uuid: caller.uuid, name: caller.name, direction: caller.direction(), profile: caller.profile}
		name, number := caller.variableLocked("effective_caller_id_name"), caller.variableLocked("effective_caller_id_number")
		caller.mu.Unlock()
		c.other = other
		if name != "" {
			c.profile.cidName = name
		}
		if number != "" {
			c.profile.cidNumber = number
		}
		c.profile.logicalDirection = "outbound"
	}
	if value, ok := lookup(vars, "origination_caller_id_name"); ok {
		c.profile.cidName = value
	}
	if value, ok := lookup(vars, "origination_caller_id_number"); ok {
		c.profile.cidNumber, c.profile.origNumber = value, value
		c.profile.ani = value
	}
	c.profile.origName = c.profile.cidName
	c.profile.calleeName, c.profile.calleeNumber = "Outbound Call", to.user
	c.profile.destination = to.user
	c.outboundVars(to)
	if caller != nil {
		c.append("originator", caller.uuid, "signal_bond", caller.uuid, "originating_leg_uuid", caller.uuid)
		c.exportFrom(caller)
	}
	for _, h := range vars {
		c.checkedSet(h.name, h.value)
	}
}

// exportFrom copies the variables that the caller exports (switch_channel_process_export).
func (c *channel) exportFrom(caller *channel) {
	for _, name := range separate(caller.variable("export_vars"), ',', 128) {
		if value := caller.variable(name); name != "" && value != "" {
			c.checkedSet(name, value)
		}
	}
}

// linkCaller gives the leg the call UUID of the channel it is placed for.
func (c *channel) linkCaller(caller *channel) {
	if caller == nil {
		return
	}
	c.mu.Lock()
	c.callUUID = caller.uuid
	c.setLocked("call_uuid", caller.uuid)
	c.mu.Unlock()
}

// runOutgoing is the session thread of a call that goes out: it consumes media until whoever placed it hands it over.
func (c *channel) runOutgoing(to *target) {
	defer c.finish()
	if !c.enter(stateInit) {
		return
	}
	c.mu.Lock()
	if c.cause == causeNone {
		c.state = stateRouting
	}
	c.fireLocked(evCreate, fromRun)
	c.fireLocked(evOriginate, fromRun)
	c.mu.Unlock()
	if !c.enter(stateRouting) || !c.enter(stateConsumeMedia) {
		return
	}
	steps, says := farEnd(to.user)
	c.says = says
	c.follow(steps)
	for {
		c.runOnAnswer()
		c.mu.Lock()
		over, next, errand := c.cause != causeNone, c.next, c.errand
		c.next, c.errand = nil, nil
		c.mu.Unlock()
		if over {
			return
		}
		if errand != nil {
			errand()
			continue
		}
		if next != nil {
			c.live(next)
			return
		}
		<-c.wake
	}
}

// handOver gives the channel's goroutine something to do after the call was placed.
func (c *channel) handOver(next func()) {
	c.mu.Lock()
	c.next = next
	c.poke()
	c.mu.Unlock()
}

// send gives the channel's goroutine something to do while whoever placed the call still waits for it.
func (c *channel) send(errand func()) {
	c.mu.Lock()
	c.errand = errand
	c.poke()
	c.mu.Unlock()
}
