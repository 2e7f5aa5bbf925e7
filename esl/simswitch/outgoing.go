package simswitch

import (
	"time"
)

// leg is one call that is being placed.
type leg struct {
	c     *channel
	limit time.Time
	cause cause
	rang  bool
	early bool
}

// dialing is switch_ivr_originate at work for one group of alternatives that ring at once.
type dialing struct {
	sw          *Switch
	caller      *channel
	legs        []*leg
	notify      chan struct{}
	ignoreEarly bool
	limit       time.Time
}

// dial is switch_ivr_originate: it places the legs of a dial string, group by group, and returns the first channel that
// answers, or that sends early media when that counts. caller is the channel that bridges, nil for the originate command.
func (s *Switch) dial(caller *channel, text string, timeout time.Duration, override *profile) (*channel, *dialString, cause) {
	d, err := parseDialString(text)
	if err != nil {
		s.log.Error("cannot originate", "error", err)
		return nil, nil, causeOutOfOrder
	}
	if value, ok := lookup(d.vars, "originate_timeout"); ok && leadingInt(value) > 0 {
		timeout = time.Duration(leadingInt(value)) * time.Second
	}
	why := causeOutOfOrder
	for _, group := range d.groups {
		run := &dialing{sw: s, caller: caller, notify: make(chan struct{}, 1)}
		if value, ok := lookup(d.vars, "ignore_early_media"); ok {
			run.ignoreEarly = isTrue(value)
		} else if caller != nil {
			run.ignoreEarly = isTrue(caller.variable("ignore_early_media"))
		}
		run.limit = s.clock.now().Add(timeout)
		for _, t := range group {
			run.place(t, d.vars, override)
		}
		var winner *channel
		if winner, why = run.wait(); winner != nil {
			return winner, d, causeSuccess
		}
		if caller != nil && !caller.up() {
			return nil, d, causeOriginatorCancel
		}
	}
	return nil, d, why
}

// place starts one leg.
func (r *dialing) place(t dialTarget, globals []header, override *profile) {
	vars := mergeHeaders(append([]header(nil), globals...), t.vars)
	l := &leg{limit: r.limit}
	r.legs = append(r.legs, l)
	if value, ok := lookup(vars, "leg_timeout"); ok && leadingInt(value) > 0 {
		l.limit = r.sw.clock.now().Add(time.Duration(leadingInt(value)) * time.Second)
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
	if r.caller != nil {
		r.caller.mu.Lock()
		r.caller.lastDial = c
		r.caller.mu.Unlock()
	}
	c.fire(evOutgoing, fromOutgoing)
	c.linkCaller(r.caller)
	go func() {
		defer r.sw.wg.Done()
		c.runOutgoing(to)
	}()
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

// wait waits for the first leg that counts as answered. On failure the cause is that of the leg that ended last.
func (r *dialing) wait() (*channel, cause) {
	why := causeOutOfOrder
	for {
		alive := false
		var next time.Time
		for _, l := range r.legs {
			if l.c == nil || l.cause != causeNone {
				if l.cause != causeNone {
					why = l.cause
				}
				continue
			}
			established := r.look(l)
			if l.cause != causeNone {
				why = l.cause
				continue
			}
			if established {
				r.loseRace(l.c)
				return l.c, causeSuccess
			}
			alive = true
			if next.IsZero() || l.limit.Before(next) {
				next = l.limit
			}
		}
		if !alive {
			return nil, why
		}
		if r.caller != nil && !r.caller.up() {
			r.abandon(causeOriginatorCancel)
			return nil, causeOriginatorCancel
		}
		r.sleep(next)
	}
}

func (r *dialing) sleep(until time.Time) {
	timer := time.NewTimer(max(0, r.sw.clock.real(until.Sub(r.sw.clock.now()))))
	defer timer.Stop()
	var callerWake <-chan struct{}
	if r.caller != nil {
		callerWake = r.caller.wake
	}
	select {
	case <-timer.C:
	case <-r.notify:
	case <-callerWake:
	}
}

// look reads how a leg stands, passes ringing and early media on to the caller, and hangs a leg up that took too long.
func (r *dialing) look(l *leg) (established bool) {
	l.c.mu.Lock()
	dead, answered := l.c.cause, l.c.answered && l.c.settled
	rang, early := l.c.rang, l.c.early
	l.c.mu.Unlock()
	switch {
	case dead != causeNone:
		l.cause = dead
		return false
	case answered:
		return true
	}
	if r.caller != nil {
		if rang && !l.rang {
			l.rang = true
			r.caller.ring()
		}
		if early && !l.early && !r.ignoreEarly {
			l.early = true
			r.caller.preAnswer()
		}
	}
	if early && !r.ignoreEarly {
		return true
	}
	if !r.sw.clock.now().Before(l.limit) {
		l.c.hangup(causeNoAnswer)
		l.cause = causeNoAnswer
	}
	return false
}

func (r *dialing) loseRace(winner *channel) {
	for _, l := range r.legs {
		if l.c != nil && l.c != winner && l.cause == causeNone {
			l.c.hangup(causeLoseRace)
			if r.caller != nil {
				r.caller.set("last_bridge_hangup_cause", causeLoseRace.String())
			}
		}
	}
}

func (r *dialing) abandon(why cause) {
	for _, l := range r.legs {
		if l.c != nil {
			l.c.hangup(why)
		}
	}
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
	c.follow(farEnd(to.user))
	for {
		c.runOnAnswer()
		c.mu.Lock()
		over, next := c.cause != causeNone, c.next
		c.next = nil
		c.mu.Unlock()
		if over {
			return
		}
		if next != nil {
			next()
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
