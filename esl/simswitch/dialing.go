package simswitch

import "time"

// leg is one call that is being placed.
type leg struct {
	c     *channel
	begin func()
	// start is when the leg's INVITE goes out, limit when it is given up; zero is never.
	start, limit time.Time
	cause        cause
	rang         bool
	early        bool
	begun        bool
	asked        bool
}

// dialing is switch_ivr_originate at work for one group of alternatives that ring at once.
type dialing struct {
	sw          *Switch
	caller      *channel
	legs        []*leg
	notify      chan struct{}
	ignoreEarly bool
	ringback    bool
	start       time.Time
	limit       time.Time
	last        *channel
}

// placed is what became of a dial string: the channel that answered, or the cause of the failure, and every leg there was.
type placed struct {
	winner *channel
	cause  cause
	legs   []*leg
	// last is the leg that ended last.
	last *channel
}

// dial is switch_ivr_originate: it places the legs of a dial string, group by group, and returns the first channel that
// answers, or that sends early media when that counts. caller is the channel that bridges, nil for the originate command.
func (s *Switch) dial(caller *channel, text string, timeout time.Duration, override *profile) placed {
	d, err := parseDialString(text)
	if err != nil {
		s.log.Error("cannot originate", "error", err)
		return placed{cause: causeOutOfOrder}
	}
	if value, ok := lookup(d.vars, "originate_timeout"); ok && leadingInt(value) > 0 {
		timeout = time.Duration(leadingInt(value)) * time.Second
	}
	result := placed{cause: causeOutOfOrder}
	for _, group := range d.groups {
		run := &dialing{sw: s, caller: caller, notify: make(chan struct{}, 1), start: s.clock.now()}
		run.ignoreEarly = isTrue(d.option(caller, "ignore_early_media"))
		run.ringback = caller != nil && (caller.variable("ringback") != "" || d.option(nil, "ringback") != "")
		run.limit = run.start.Add(timeout)
		for _, t := range group {
			run.place(t, d.vars, override)
		}
		if run.ringback && isTrue(d.option(caller, "instant_ringback")) {
			caller.preAnswer()
		}
		result.winner, result.cause = run.wait()
		result.legs = append(result.legs, run.legs...)
		if run.last != nil {
			result.last = run.last
		}
		if result.winner != nil {
			return result
		}
		if caller != nil && !caller.ready() {
			result.cause = causeOriginatorCancel
			return result
		}
	}
	return result
}

// option is a variable of the dial string, or of the channel that dials.
func (d *dialString) option(caller *channel, name string) string {
	if value, ok := lookup(d.vars, name); ok || caller == nil {
		return value
	}
	return caller.variable(name)
}

// wait waits for the first leg that counts as answered.
func (r *dialing) wait() (*channel, cause) {
	for {
		r.beginDue()
		alive := false
		next := r.limit
		for _, l := range r.legs {
			if l.c == nil || l.cause != causeNone {
				continue
			}
			established := r.look(l)
			if l.cause != causeNone {
				r.tellCaller(l)
				continue
			}
			if established {
				r.loseRace(l.c)
				return l.c, causeSuccess
			}
			alive = true
			for _, at := range []time.Time{l.limit, l.start} {
				if !at.IsZero() && at.After(r.sw.clock.now()) && at.Before(next) {
					next = at
				}
			}
		}
		if !alive {
			return nil, r.failure()
		}
		if r.caller != nil && !r.caller.ready() {
			r.tellLast()
			r.abandon(causeOriginatorCancel)
			return nil, causeOriginatorCancel
		}
		if !r.sw.clock.now().Before(r.limit) {
			r.abandon(causeNoAnswer)
			return nil, causeNoAnswer
		}
		r.sleep(next)
	}
}

// failure is the cause of a group that came to nothing: that of its first leg that has one.
func (r *dialing) failure() cause {
	for _, l := range r.legs {
		if l.cause != causeNone {
			return l.cause
		}
	}
	return causeOutOfOrder
}

// beginDue sends the INVITEs whose leg_delay_start has passed, and the next of them when no other leg is left.
func (r *dialing) beginDue() {
	active := false
	for _, l := range r.legs {
		active = active || l.c != nil && l.begun && l.cause == causeNone
	}
	var first *leg
	for _, l := range r.legs {
		if l.c == nil || l.begun {
			continue
		}
		if !l.start.After(r.sw.clock.now()) {
			active = true
			l.beginOnce()
			continue
		}
		if first == nil || l.start.Before(first.start) {
			first = l
		}
	}
	if !active && first != nil {
		first.beginOnce()
	}
}

func (l *leg) beginOnce() {
	if l.c != nil && !l.begun {
		l.begun = true
		l.begin()
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

// look reads how a leg stands, passes ringing and early media on to the caller, has a key asked for, and hangs a leg up that took
// too long.
func (r *dialing) look(l *leg) (established bool) {
	l.c.mu.Lock()
	dead, answered := l.c.cause, l.c.answered && l.c.settled
	rang, early, winner := l.c.rang, l.c.early, l.c.winner
	l.c.mu.Unlock()
	switch {
	case dead != causeNone:
		l.cause = dead
		l.beginOnce()
		return false
	case winner:
		return true
	case answered && !l.asked:
		if !r.confirm(l) {
			return true
		}
	}
	if r.caller != nil && !answered {
		if rang && !l.rang {
			l.rang = true
			if r.ringback {
				r.caller.preAnswer()
			} else {
				r.caller.ring()
			}
		}
		if early && !l.early && !r.ignoreEarly {
			l.early = true
			r.caller.preAnswer()
		}
	}
	if early && !answered && !r.ignoreEarly {
		return true
	}
	if !l.limit.IsZero() && !r.sw.clock.now().Before(l.limit) {
		l.c.hangup(causeAllottedTimeout)
		l.cause = causeAllottedTimeout
	}
	return false
}

// tellCaller tells the caller how a leg ended, as the leg's hang-up does through signal_bond
// (switch_channel.c, switch_channel_perform_hangup).
func (r *dialing) tellCaller(l *leg) {
	r.last = l.c
	if r.caller == nil || !r.caller.up() {
		return
	}
	proto := l.c.get("proto_specific_hangup_cause")["proto_specific_hangup_cause"]
	r.caller.mu.Lock()
	defer r.caller.mu.Unlock()
	r.caller.setLocked("last_bridge_hangup_cause", l.cause.String())
	if proto != "" {
		r.caller.setLocked("last_bridge_proto_specific_hangup_cause", proto)
	}
}

// tellLast tells the leg that was placed last how the caller hung up, if it did.
func (r *dialing) tellLast() {
	if r.caller.up() {
		return
	}
	for i := len(r.legs) - 1; i >= 0; i-- {
		if l := r.legs[i]; l.c != nil {
			l.c.learn(r.caller)
			return
		}
	}
}

func (r *dialing) loseRace(winner *channel) {
	for _, l := range r.legs {
		if l.c != nil && l.c != winner && l.cause == causeNone {
			r.end(l, causeLoseRace)
		}
	}
}

func (r *dialing) abandon(why cause) {
	for _, l := range r.legs {
		if l.c != nil && l.cause == causeNone {
			r.end(l, why)
		}
	}
}

func (r *dialing) end(l *leg, why cause) {
	l.c.hangup(why)
	l.cause = why
	l.beginOnce()
	r.tellCaller(l)
}
