package calls

import (
	"sync"
	"sync/atomic"

	"tandem/esl"
)

// mailboxLimit is how many events wait for one session. A call makes a handful of events a second, so a full mailbox
// means that its session is stuck behind the database, not that it is busy.
const mailboxLimit = 256

// message is one thing a session is told. Exactly one field is set.
type message struct {
	event  *esl.Event
	up     *nodeUp
	job    *jobResult
	ending *intent // someone other than the switch wants the call to end
	lost   bool    // the node is gone and with it the channel
	ring   bool    // the caller has waited long enough to be told that it rings
	// directed is a list that live control gives the call.
	directed *directive
	// bond is what the other call of a queue says, group what live control wants of a member or a caller in a queue.
	bond  *bondMessage
	group *groupOrder
	// expired is machine detection whose time is up.
	expired *detection
	// screened is a dialled party whose greeting has lasted long enough to be judged.
	screened *leg
	// due is that the call comes to its cap, held a file that was fetched for it and is kept until its end.
	due  bool
	held string
	// leave is that the call is another controller's from now on.
	leave bool
	// broken is that the time of a playback was over and it was broken off.
	broken bool
	// nudge carries nothing: it makes the session look again at what it waits for. It takes no room.
	nudge bool
}

// nodeUp tells a session that its node's connection was rebuilt, and whether its channel was still there; restarted, that the switch may be
// another process, whose list is worth nothing.
type nodeUp struct {
	restarted bool
	present   bool
}

// jobResult is how the originate job of a channel of an outbound call ended.
type jobResult struct {
	channel string
	err     error
}

// mailbox carries messages to one session. put never blocks: the node's event workers call it. Events beyond the limit
// are dropped and overflowed is set, so that the session ends the call rather than wait for what it lost; keys that are typed
// have half of the room, and are dropped without more ado beyond. What ends a call is kept apart and cannot be dropped: the hangup event, the loss of the node, and the first wish to end the call.
type mailbox struct {
	channel string        // the call's own channel; hangups of others are events like any
	ready   chan struct{} // holds one token while there is something to take
	total   *atomic.Int64 // counts what waits in all mailboxes

	mu         sync.Mutex
	queue      []message
	hangup     *esl.Event
	lost       bool
	ending     *intent
	overflowed bool
	closed     bool // no more of them is accepted
	left       bool // the call is another controller's: nothing else is taken any more
	dead       bool // the session has ended: nobody takes anything any more
}

func newMailbox(channel string) *mailbox {
	return &mailbox{channel: channel, ready: make(chan struct{}, 1), total: &atomic.Int64{}}
}

// put adds a message. It reports false when the message was dropped.
func (b *mailbox) put(m message) bool {
	b.mu.Lock()
	kept := b.add(m)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
	return kept
}

// offer is put for what can be offered again: where there is no room, nothing is lost and nothing happens.
func (b *mailbox) offer(m message) bool {
	b.mu.Lock()
	room := m.ending != nil || len(b.queue) < mailboxLimit/2
	if room {
		b.add(m)
	}
	b.mu.Unlock()
	if room {
		select {
		case b.ready <- struct{}{}:
		default:
		}
	}
	return room
}

func (b *mailbox) add(m message) bool {
	switch {
	case m.event != nil && m.event.Name() == eventHangupComplete && m.event.ChannelID() == b.channel:
		if b.hangup == nil {
			b.hangup = m.event
		}
		return true
	case m.lost:
		b.lost = true
		return true
	case m.nudge:
		return true
	case m.leave:
		b.left = true
		return true
	case m.ending != nil:
		if b.ending == nil {
			b.ending = m.ending
		}
		return true
	case b.dead:
		return false
	case len(b.queue) >= mailboxLimit/2 && m.event != nil && m.event.Name() == eventDTMF:
		return false // whoever hammers on the keys while the call waits for the database does not end it
	case len(b.queue) >= mailboxLimit:
		b.overflowed = true
		return false
	default:
		b.queue = append(b.queue, m)
		b.total.Add(1)
		return true
	}
}

// rename makes the mailbox that of another channel of the call. What the one before has said last is of no interest any more.
func (b *mailbox) rename(channel string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.channel, b.hangup = channel, nil
}

// close says that the call takes no more lists.
func (b *mailbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// takesLists says whether the call may take a list still.
func (b *mailbox) takesLists() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.closed
}

// discard gives back what nobody will take.
func (b *mailbox) discard() []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total.Add(-int64(len(b.queue)))
	left := b.queue
	b.queue, b.dead = nil, true
	return left
}

// leaving says that the call is another controller's.
func (b *mailbox) leaving() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left
}

// empty says whether there is nothing to take.
func (b *mailbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.left && b.ending == nil && len(b.queue) == 0 && !b.overflowed && b.hangup == nil && !b.lost
}

// take returns the next message. That the call is another's comes first, and again and again; then wishes to end the call, then the queue in order, then the overflow mark,
// and the hangup only after everything that happened before it.
func (b *mailbox) take() (m message, overflowed, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.left:
		m = message{leave: true}
	case b.ending != nil:
		m = message{ending: b.ending}
		b.ending = nil
	case len(b.queue) > 0:
		m = b.queue[0]
		b.total.Add(-1)
		b.queue[0] = message{}
		b.queue = b.queue[1:]
		if len(b.queue) == 0 {
			b.queue = nil
		}
	case b.overflowed:
		b.overflowed = false
		return message{}, true, true
	case b.hangup != nil:
		m = message{event: b.hangup}
		b.hangup = nil
	case b.lost:
		m = message{lost: true}
		b.lost = false
	default:
		return message{}, false, false
	}
	return m, false, true
}
