package calls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// Two calls meet in a queue: the caller, who waits in it (enqueue.go), and the taker, who takes the first one out (dequeue.go).
// Each is a session with its own goroutine. They share nothing but a bond, which is never written after it was made, and
// three kinds of messages through their mailboxes:
//
//	taker                                                    caller
//	waiting ──── nothing in the queue: until the board nudges   waiting: wait actions
//	   │ takes the entry in the database
//	   ▼            ─────────────── offer ───────────────▶      │
//	offered                                                     ▼
//	   │            ◀────────────── ready ────────────────   called: the wait actions have stopped
//	   ▼
//	bridging (uuid_bridge)                                      │
//	   │ CHANNEL_BRIDGE                                         │
//	   ▼            ─────────────── made ────────────────▶      ▼
//	bridged                                                  bridged: the entry has left the queue
//	   │ CHANNEL_UNBRIDGE, max_seconds, live control            │ live control
//	   ▼            ◀────────────── over ────────────────▶      ▼
//	its list goes on                                         its list goes on
//
// The rules that make this safe, whoever hangs up, is cancelled, directed elsewhere or loses its node, and whenever:
//
//   - each side sends over exactly once per bond, when it wants no more of it, also when its call ends; so nobody waits for a
//     side that is gone;
//   - only the taker commands the bridge, and never after it has said over; so a caller who was called and wants to leave says
//     over and waits for the taker's over before its channel does anything else;
//   - the entry in the database is the caller's: the taker only takes it. A caller whose taker says over before made puts the
//     entry back, at its old place, and waits on;
//   - a taker whose caller says over before made takes the next one;
//   - a side whose channel the switch was told to bridge parks it again before its list goes on (settle).
//
// The switch bridges only channels of its own, so a taker gets only callers of its own node.
type bond struct {
	entryID string
	caller  *session
	taker   *session
	// callerCall and takerCall are the calls' ids.
	callerCall, takerCall string
}

// bondStep is what one side of a bond tells the other.
type bondStep int

const (
	bondOffer bondStep = iota // taker: you were taken, get ready
	bondReady                 // caller: nothing runs on my channel
	bondMade                  // taker: the switch has connected us
	bondOver                  // either: I want no more of it
)

// bondMessage is a step, with the bond that it belongs to.
type bondMessage struct {
	bond *bond
	step bondStep
	// bridging, with over from the taker, says that the switch was told to bridge.
	bridging bool
}

// tellCaller reports false when the caller has ended: an offer is declined then.
func (b *bond) tellCaller(step bondStep) bool {
	return b.caller.box.put(message{bond: &bondMessage{bond: b, step: step}})
}

func (b *bond) tellTaker(step bondStep) {
	b.taker.box.put(message{bond: &bondMessage{bond: b, step: step}})
}

// handleBond takes what the other side of a bond says. An offer that nobody waits for is declined: the caller has left.
func (s *session) handleBond(m *bondMessage) {
	switch {
	case m.step == bondOffer:
		if s.ticket == nil || !s.ticket.offered(m.bond) {
			m.bond.tellTaker(bondOver)
		}
	case m.bond.caller == s && s.ticket != nil && s.ticket.bond == m.bond:
		s.ticket.hear(m)
	case m.bond.taker == s && s.taking != nil && s.taking.bond == m.bond:
		s.taking.hear(m)
	}
}

// declineOffers tells the takers of a session that has ended what it will not any more.
func declineOffers(unread []message) {
	for _, m := range unread {
		if m.bond != nil && m.bond.step == bondOffer {
			m.bond.bond.tellTaker(bondOver)
		}
	}
}

// handleBridge takes CHANNEL_BRIDGE and CHANNEL_UNBRIDGE, which the switch raises about the channel that the bridge was
// commanded for: the taker's.
func (s *session) handleBridge(ev *esl.Event) {
	if s.taking == nil || s.taking.bond == nil {
		return
	}
	switch ev.Name() {
	case eventBridge:
		s.taking.bridged = s.taking.bridged || ev.Get("Bridge-B-Unique-ID") == s.taking.bond.caller.channel
	case eventUnbridge:
		s.taking.unbridged = s.taking.bridged
	}
}

// joinVariables keep a channel alive when the other one leaves the bridge, or hangs up before there is one
// (switch_ivr_bridge.c, audio_bridge_on_exchange_media and uuid_bridge_on_soft_execute), and however often it is parked again:
// each time counts as a transfer, and the 70th would be the last (switch_ivr.c, switch_ivr_session_transfer).
var joinVariables = []esl.Var{
	{Name: "park_after_bridge", Value: "true"}, {Name: "hangup_after_bridge", Value: "false"}, {Name: "uuid_bridge_park_on_cancel", Value: "true"},
	{Name: "max_session_transfers", Value: manyTransfers},
}

// prepareJoin sets the variables; the function that it returns takes back the one that would change what a dial does.
func (s *session) prepareJoin() (undo func() error, err error) {
	set := func(name, value string) error {
		return s.order("set up the bridge", func(ctx context.Context) error { return s.node.sw.SetVariable(ctx, s.channel, name, value) })
	}
	for _, v := range joinVariables {
		if err := set(v.Name, v.Value); err != nil {
			return nil, err
		}
	}
	return func() error { return set(joinVariables[0].Name, "") }, nil
}

// How long the switch gets to park a channel whose bridge is over, and how often it is told to.
const (
	settleGrace = 2 * time.Second
	settleTries = 5
)

// deadline is a moment of the manager's clock. It wakes the session when it has come.
type deadline struct {
	at    time.Time
	now   func() time.Time
	timer *time.Timer
	come  atomic.Bool
}

// deadline begins one; stop ends it.
func (s *session) deadline(after time.Duration) *deadline {
	d := &deadline{at: s.m.cfg.Now().Add(after), now: s.m.cfg.Now}
	d.timer = time.AfterFunc(after, func() {
		d.come.Store(true)
		s.box.put(message{nudge: true})
	})
	return d
}

func (d *deadline) stop() { d.timer.Stop() }

// over says that the moment has come. A simulation's clock may be there before the timer.
func (d *deadline) over() bool { return d.come.Load() || !d.now().Before(d.at) }

// stillness is what is played until a deadline to whoever waits with nothing to hear, so that media keeps flowing towards them.
func (d *deadline) stillness() []actions.Action {
	return []actions.Action{&actions.Pause{Seconds: min(max(d.at.Sub(d.now())+time.Millisecond, time.Second), 5*time.Minute)}}
}

// settle makes sure that the channel is parked after it was bridged, or was about to be. A channel whose peer has gone parks
// by itself; now skips waiting for that.
func (s *session) settle(now bool) error {
	parked := func() bool { return s.reparked }
	for try := 0; try <= settleTries; try++ {
		if try > 0 || now {
			s.reparked = false
			err := s.order("park the channel", s.tearOut)
			var refused *esl.CommandError
			if errors.As(err, &refused) {
				s.log.Warn("channel not parked, trying again", "error", err)
			} else if err != nil {
				return err
			}
		}
		if err := s.pause(settleGrace, parked); err != nil {
			return err
		}
		if s.reparked {
			return nil
		}
	}
	return errors.New("park the channel after its bridge: it does not park")
}

// queueKey names a queue on a node.
type queueKey struct {
	customerID, name, nodeID string
}

// board lists the takers that wait for a caller, so that whoever puts one into a queue can wake them, in their order and one
// for each caller. Its mutex guards nothing but the lists.
type board struct {
	mu    sync.Mutex
	lines map[queueKey]*line
}

// line is the takers of one queue.
type line struct {
	waiting []*place
	// missed says that a caller came while every taker was looking already.
	missed bool
}

// place is one taker's place in a line. looking says that it was woken, or has not looked yet.
type place struct {
	s       *session
	looking bool
}

func newBoard() *board { return &board{lines: map[queueKey]*line{}} }

// join puts a taker at the end of the line. It is to look at once.
func (b *board) join(key queueKey, s *session) *place {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[key]
	if l == nil {
		l = &line{}
		b.lines[key] = l
	}
	p := &place{s: s, looking: true}
	l.waiting = append(l.waiting, p)
	return p
}

// leave takes a taker out. What it was woken for goes to the next one.
func (b *board) leave(key queueKey, p *place) {
	b.mu.Lock()
	l := b.lines[key]
	l.waiting = slices.DeleteFunc(l.waiting, func(other *place) bool { return other == p })
	owed := l.missed || p.looking
	l.missed = false
	if len(l.waiting) == 0 {
		delete(b.lines, key)
	}
	b.mu.Unlock()
	if owed {
		b.wake(key)
	}
}

// rest says that a taker has looked and found nothing. It reports false when it must look again.
func (b *board) rest(key queueKey, p *place) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[key]
	if l.missed {
		l.missed = false
		return false
	}
	p.looking = false
	return true
}

// woken says whether a taker that rests was woken.
func (b *board) woken(p *place) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return p.looking
}

// wake makes the first taker that rests look for a caller. It is called for each caller that comes or comes back, and after
// each that was taken: there may be more of them than takers were woken.
func (b *board) wake(key queueKey) {
	b.mu.Lock()
	var first *place
	if l := b.lines[key]; l != nil {
		i := slices.IndexFunc(l.waiting, func(p *place) bool { return !p.looking })
		if i < 0 {
			l.missed = true
		} else {
			first = l.waiting[i]
			first.looking = true
		}
	}
	b.mu.Unlock()
	if first != nil {
		first.s.box.put(message{nudge: true})
	}
}

// leaveGroups ends, in the transaction that ends a call, the call's place in a queue and its membership of a conference.
func leaveGroups(ctx context.Context, tx *models.Store, call *models.Call, now time.Time) error {
	entry, err := tx.QueueEntryOfCall(ctx, call.CustomerID, call.ID)
	switch {
	case err == nil && entry.State == models.QueueBridged: // it was told
		err = moved(tx.LeaveQueue(ctx, entry.ID, queueBridged))
	case err == nil:
		err = leaveQueue(ctx, tx, call, entry, queueHangup, "", now)
	}
	if err != nil && !errors.Is(err, models.ErrNotFound) {
		return fmt.Errorf("leave the queue: %w", err)
	}
	member, err := tx.ConferenceMemberOfCall(ctx, call.CustomerID, call.ID)
	if err == nil {
		err = leaveConference(ctx, tx, call, member, roomHangup, now)
	}
	if err != nil && !errors.Is(err, models.ErrNotFound) {
		return fmt.Errorf("leave the conference: %w", err)
	}
	return nil
}
