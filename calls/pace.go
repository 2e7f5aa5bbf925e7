package calls

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"tandem/esl"
)

// pace holds the dialling of a node's calls within the rate of new sessions that its switch takes, which refuses whatever is faster
// (switch_core_session.c, switch_core_session_request_uuid: "Throttle Error"). What comes in, and the parties of live calls, are counted and never held.
//
// A call waits twice: for its turn, as long as it takes, before anything is begun; and for a moment right before the switch is told, where what lies
// between, the database above all, has brought calls together that were apart.
type pace struct {
	limiter *rate.Limiter

	mu sync.Mutex
	// most is how many sessions may begin in a second, 0 for any number; begun is when those of the last paceSecond did, oldest first.
	most  int
	begun []time.Time
}

const (
	// paceBurst is how much of a second's sessions may begin at once: one in so many. The rest follows evenly, so that no second has more than all.
	paceBurst = 5
	// paceSecond is a second, and what a command may take in the switch until the session begins.
	paceSecond = 1250 * time.Millisecond
	// paceShare is how much of what begin lets through has its turn: whoever waits in begin holds a place among the commands that the node takes at a
	// time, so those that wait there must become fewer, however long there is more to dial.
	paceShare = 0.95
)

func newPace() *pace { return &pace{limiter: rate.NewLimiter(rate.Inf, 1)} }

// limit takes the limit of the switch: one more than how many sessions it begins in a second, 0 where that is not known.
func (p *pace) limit(perSecond int) {
	if perSecond <= 0 {
		return
	}
	usable := max(perSecond-1, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most == usable {
		return
	}
	p.most = usable
	burst := max(usable/paceBurst, 1)
	p.limiter.SetBurst(burst)
	evenly := min(float64(max(usable-burst, 1)), paceShare*float64(usable)/paceSecond.Seconds())
	p.limiter.SetLimit(rate.Limit(evenly))
}

// count notes sessions that begin without waiting for their turn. However many there are, those that wait are held back by a second's sessions at
// most.
func (p *pace) count(sessions int) {
	now := time.Now()
	p.mu.Lock()
	p.recall(now)
	for range min(sessions, p.most) {
		p.begun = append(p.begun, now)
	}
	p.mu.Unlock()
	for range sessions {
		if p.wait() < time.Second {
			p.limiter.Reserve()
		}
	}
}

// turn takes the next turn and returns how long it is until then.
func (p *pace) turn() time.Duration { return p.limiter.Reserve().Delay() }

// wait is how long it is until the next turn.
func (p *pace) wait() time.Duration {
	if p.limiter.Limit() == rate.Inf {
		return 0
	}
	missing := 1 - p.limiter.Tokens()
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(p.limiter.Limit()) * float64(time.Second))
}

// recall forgets the sessions of seconds that are over. p.mu is held.
func (p *pace) recall(now time.Time) {
	over := 0
	for over < len(p.begun) && now.Sub(p.begun[over]) >= paceSecond {
		over++
	}
	p.begun = append(p.begun[:0], p.begun[over:]...)
}

// begin waits until the switch may be told of another session, and notes it. An error, of a ctx that has ended, is esl.ErrBusy: nothing was sent.
func (p *pace) begin(ctx context.Context) error {
	for {
		now := time.Now()
		p.mu.Lock()
		p.recall(now)
		if p.most == 0 || len(p.begun) < p.most {
			if p.most > 0 {
				p.begun = append(p.begun, now)
			}
			p.mu.Unlock()
			return nil
		}
		// As many must be over as there are too many.
		until := p.begun[len(p.begun)-p.most].Add(paceSecond)
		p.mu.Unlock()
		timer := time.NewTimer(until.Sub(now))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("wait for the rate of the switch: %w: %w", esl.ErrBusy, context.Cause(ctx))
		}
	}
}
