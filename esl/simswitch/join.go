package simswitch

// joining is two channels on their way into a bridge that uuid_bridge asked for.
type joining struct {
	originator, originatee *channel
	// asleep is closed once the called side waits, begun hands it the bridge.
	asleep chan struct{}
	begun  chan *bond
}

// uuidBridge is uuid_bridge_function of mod_commands.c: `<uuid> <other_uuid>`.
func (s *Switch) uuidBridge(arg string) string {
	words := separate(arg, ' ', 4)
	if len(words) < 2 {
		return "-USAGE: <uuid> <other_uuid>\n"
	}
	for _, other := range words[1:min(len(words), 3)] {
		a, b := s.channel(words[0]), s.channel(other)
		if a != nil && b != nil && a != b && s.joinChannels(a, b) {
			return "+OK " + other + "\n"
		}
	}
	return "-ERR Invalid uuid\n"
}

// joinChannels is switch_ivr_uuid_bridge: both channels leave whatever they run and meet in a bridge. One of them must have media;
// it becomes the first.
func (s *Switch) joinChannels(a, b *channel) bool {
	if !a.up() {
		return false
	}
	if !a.mediaReady() {
		if !b.mediaReady() {
			s.log.Error("neither channel is answered, cannot bridge them", "first", a.uuid, "second", b.uuid)
			return false
		}
		a, b = b, a
	}
	j := &joining{originator: a, originatee: b, asleep: make(chan struct{}), begun: make(chan *bond, 1)}
	callee, caller := a.meet("originatee", b), b.meet("originator", a)
	a.beginJoin(j, b, callee)
	b.beginJoin(j, a, caller)
	return true
}

func (c *channel) beginJoin(j *joining, peer *channel, other *otherLeg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked("bridge_channel", peer.name)
	c.setLocked("bridge_uuid", peer.uuid)
	c.setLocked("signal_bond", peer.uuid)
	c.setLocked("original_destination_number", c.profile.destination)
	c.setLocked("original_caller_id_name", c.profile.cidName)
	c.setLocked("original_caller_id_number", c.profile.cidNumber)
	if j.originatee == c {
		c.profile.cidName, c.profile.cidNumber = other.profile.cidName, other.profile.cidNumber
	}
	c.other = other
	c.joining, c.parkNext = j, false
	c.stopBroadcastLocked()
	c.transferred = true
	c.touchLocked()
}

// join is uuid_bridge_on_reset and uuid_bridge_on_soft_execute of switch_ivr_bridge.c: the second channel falls asleep, the first
// waits for that and bridges to it.
func (c *channel) join(j *joining) {
	if !c.enter(stateHibernate) || !c.enter(stateReset) || !c.enter(stateSoftExecute) {
		return
	}
	if j.originatee == c {
		c.awaitOriginator(j)
		return
	}
	peer := j.originatee
	for asleep := false; !asleep; {
		select {
		case <-j.asleep:
			asleep = true
		case <-peer.reported:
			c.alone()
			return
		case <-c.wake:
			if !c.ready() {
				peer.poke()
				return
			}
		}
	}
	if !peer.ready() {
		c.hangup(causeOutOfOrder)
		return
	}
	c.fireJoin(peer)
	peer.fireJoin(c)
	c.bridge(peer, func(b *bond) { j.begun <- b })
	if c.ready() {
		c.enter(stateExecute)
	}
}

// awaitOriginator is the sleep of the second channel. When the first one goes away meanwhile, so does the second.
func (c *channel) awaitOriginator(j *joining) {
	close(j.asleep)
	for {
		select {
		case b := <-j.begun:
			c.exchange(j.originator, b)
			return
		case <-j.originator.reported:
			c.alone()
			return
		case <-c.wake:
			if !c.ready() {
				j.originator.poke()
				return
			}
			if !j.originator.joins(j) {
				c.hangup(causeOutOfOrder)
				return
			}
		}
	}
}

// joins tells whether the first channel of a join is still on its way into it, or in it.
func (c *channel) joins(j *joining) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause == causeNone && (c.joining == j || !c.transferred)
}

// alone is what becomes of a channel whose other side went away before the two could be bridged.
func (c *channel) alone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isTrue(c.variableLocked("park_after_bridge")) {
		c.parkNext = true
		return
	}
	c.hangupLocked(causeOutOfOrder)
}

// fireJoin raises the CHANNEL_EXECUTE that uuid_bridge_on_soft_execute raises for show channels. No completion follows it.
func (c *channel) fireJoin(peer *channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.app, c.appData = "uuid_bridge", peer.uuid
	c.fireLocked(evExecute, fromJoin, header{"Application", "uuid_bridge"}, header{"Application-Data", peer.uuid})
}
