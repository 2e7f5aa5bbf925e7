package calls

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"tandem/billing"
	"tandem/esl"
	"tandem/models"
	"tandem/webhooks"
)

// A call may go on until its hold is used up, and the switch ends it then: its cap. Before that moment more is held, then the switch is given the
// later cap, and only then the old one is deleted, so that whoever dies meanwhile, the call is never without one:
//
//	what has happened                         what the switch does if we die now
//	nothing yet                               ends the call at the old cap
//	the larger hold is committed              the same; the next controller sends the new cap
//	the new cap is scheduled                  ends the call at the old cap, which is the earlier one
//	the old cap is deleted                    ends the call at the new cap
//
// Caps are numbered, and each is a group of the switch's scheduler: the first, which an originate takes along, that of the channel's own name.

const (
	// capLead is how long before the cap a call is extended.
	capLead = 20 * time.Second
	// capRetry is how long after an extension that failed the next one is tried: money may come, or the database.
	capRetry = 5 * time.Second
)

// purse is what a session knows of its call's money.
type purse struct {
	// until is when the switch ends the call; zero while it has no cap yet.
	until time.Time
	// guessed says that the switch may end it later: until is the first moment at which it may.
	guessed bool
	// spent is what the legs that have ended have cost, where counted says that it was reckoned up.
	spent   int64
	counted bool
	timer   *time.Timer
	// limited says that nothing more could be held for the limit on what is spent in a day, not for want of money.
	limited bool
	// noticed says that the parties have been told that the money runs out.
	noticed bool
	// moving says that a cap is under way to the switch, or is being reckoned: another one must not overtake it.
	moving bool
}

// capGroup is the scheduler's group of a call's cap.
func capGroup(channel string, n int) string {
	if n == 0 {
		return channel
	}
	return channel + "." + strconv.Itoa(n)
}

// laterGroup is the group of a hangup that an action has scheduled.
func laterGroup(channel string) string { return channel + ".later" }

// account is what the call costs as it goes on, with parties that are about to be called.
func (s *session) account(now time.Time, more ...*leg) (*billing.Account, error) {
	if !s.purse.counted {
		rows, err := s.storedLegs()
		if err != nil {
			return nil, err
		}
		s.purse.spent, s.purse.counted = 0, true
		for i := range rows {
			if rows[i].Status == models.LegEnded {
				s.purse.spent += billing.LegCost(&rows[i])
			}
		}
	}
	own := billing.Running{Rate: s.m.cfg.Rater.RateOf(s.call), Since: now}
	if s.call.AnsweredAt != nil {
		own.Since = earlier(*s.call.AnsweredAt, now)
	}
	account := &billing.Account{SpentMicros: s.purse.spent, Legs: []billing.Running{own}}
	for _, l := range s.legs {
		if l.facts == nil && l.row.Rate != nil {
			more = append(more, l)
		}
	}
	for _, l := range more {
		running := billing.Running{Rate: *l.row.Rate, Since: now}
		if !l.answered.IsZero() {
			running.Since = earlier(l.answered, now)
		}
		account.Legs = append(account.Legs, running)
	}
	return account, nil
}

// longest is when the call has lasted as long as it may.
func (s *session) longest(account *billing.Account) time.Time {
	return account.Legs[0].Since.Add(s.m.cfg.Rater.Longest(s.call))
}

// spend notes what a leg that has ended has cost.
func (s *session) spend(row *models.Leg) {
	if s.purse.counted {
		s.purse.spent += billing.LegCost(row)
	}
}

// watchCap wakes the session before its call's cap.
func (s *session) watchCap() {
	left := s.purse.until.Sub(s.m.cfg.Now())
	s.wakeForCap(max(left-min(capLead, left/2), time.Second))
}

func (s *session) wakeForCap(after time.Duration) {
	s.stopWatchingCap()
	s.purse.timer = time.AfterFunc(after, func() { s.box.put(message{due: true}) })
}

func (s *session) stopWatchingCap() {
	if s.purse.timer != nil {
		s.purse.timer.Stop()
	}
}

// secondsTo is the time to a cap in whole seconds, at least one. What passed since it was reckoned does not cost one.
func (s *session) secondsTo(until time.Time) time.Duration {
	return max((until.Sub(s.m.cfg.Now()) + 10*time.Millisecond).Truncate(time.Second), time.Second)
}

// capAnswered notes the cap that the switch has since the call was answered. A call in had it before, nobody knows for how long.
func (s *session) capAnswered() {
	if s.purse.until.IsZero() && s.call.AnsweredAt != nil {
		since := *s.call.AnsweredAt
		if s.call.Direction == DirectionInbound && s.call.RingingAt != nil {
			since, s.purse.guessed = *s.call.RingingAt, true
		}
		s.purse.until = since.Add(time.Duration(s.call.GrantedSeconds) * time.Second)
		s.watchCap()
	}
}

// capCall gives the switch the first cap of a call that we answer: it must never be up without a limit, even if we die now.
func (s *session) capCall() error {
	if !s.purse.until.IsZero() {
		return nil
	}
	granted := time.Duration(s.call.GrantedSeconds) * time.Second
	if s.adopted {
		return s.capAdopted(granted)
	}
	until := s.m.cfg.Now().Add(granted)
	err := s.order("cap the call", func(ctx context.Context) error {
		return s.node.sw.SchedHangup(ctx, s.channel, granted, causeTimeLimit)
	})
	if err != nil {
		return err
	}
	s.purse.until = until
	s.watchCap()
	return nil
}

// capAdopted is capCall for a call that was taken over. An earlier controller may have capped it for a party that was to answer it: a second cap under
// the same name could not be told from that one, which ends the call earlier.
func (s *session) capAdopted(granted time.Duration) error {
	defer s.moving()()
	err := s.change("cap the call", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		call.Caps++
		return tx.UpdateCall(ctx, call, "caps")
	})
	if err != nil {
		return err
	}
	return s.moveCap(s.m.cfg.Now().Add(granted), 1)
}

// moving notes that a cap is under way, until what it returns is called.
func (s *session) moving() func() {
	before := s.purse.moving
	s.purse.moving = true
	return func() { s.purse.moving = before }
}

// moveCap gives the switch the call's cap of the number that is stored, and deletes the ones before it: as many as may be left.
func (s *session) moveCap(until time.Time, left int) error {
	n := s.call.Caps
	err := s.order("cap the call", func(ctx context.Context) error {
		return s.node.sw.ScheduleKill(ctx, s.channel, capGroup(s.channel, n), s.secondsTo(until), causeTimeLimit)
	})
	if err != nil {
		return err
	}
	s.purse.until, s.purse.guessed = until, false
	s.watchCap()
	for old := n - 1; old >= max(n-left, 0); old-- {
		err := s.order("delete the old cap", func(ctx context.Context) error { return s.node.sw.Unschedule(ctx, capGroup(s.channel, old)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// regrant writes a later or earlier cap into a call.
func (s *session) regrant(call *models.Call, until time.Time) {
	since := s.m.cfg.Now()
	if call.AnsweredAt != nil {
		since = *call.AnsweredAt
	}
	call.GrantedSeconds = max(int(until.Sub(since)/time.Second), 1)
	call.Caps++
}

// restoreCap gives a call that was taken over its cap anew, unless it has had but its first. What an earlier controller was doing when it died may
// have left a cap more than is stored.
func (s *session) restoreCap() error {
	if s.call.AnsweredAt == nil && s.call.Caps == 0 && s.legsEnded() {
		return nil
	}
	if s.call.Caps == 0 && s.legsEnded() {
		s.capAnswered()
		return nil
	}
	defer s.moving()()
	now := s.m.cfg.Now()
	account, err := s.account(now)
	if err != nil {
		return err
	}
	until, _ := s.m.cfg.Rater.Covers(s.call, account, now, s.longest(account))
	err = s.change("restore the cap", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		s.regrant(call, until)
		call.Caps++ // the number that may be taken
		return tx.UpdateCall(ctx, call, "granted_seconds", "caps")
	})
	if err != nil {
		return err
	}
	return s.moveCap(until, 3)
}

// due is called before the cap: a call with money left goes on, one without is told that it will end.
func (s *session) due() error {
	if s.ended || s.asked != nil || s.purse.until.IsZero() {
		return nil
	}
	if s.purse.moving {
		s.wakeForCap(time.Second)
		return nil
	}
	if s.m.outage.holds(s) {
		// Nothing can be held without the database.
		s.wakeForCap(capRetry)
		return nil
	}
	err := s.extend()
	s.purse.limited = errors.Is(err, models.ErrSpendLimit)
	if unpaid(err) {
		return s.runDry()
	}
	return err
}

// unpaid says whether nothing more can be held: there is not enough on the balance, or the limit on what is spent in a day is reached.
func unpaid(err error) bool {
	return errors.Is(err, models.ErrInsufficientBalance) || errors.Is(err, models.ErrSpendLimit)
}

// extend lets the call last longer, or as long with parties that are about to be called, and holds what that may cost where what is held does not pay
// for it. The error is unpaid where the balance, or what may be spent on a day, does not either.
func (s *session) extend(more ...*leg) error {
	defer s.moving()()
	now := s.m.cfg.Now()
	account, err := s.account(now, more...)
	if err != nil {
		return err
	}
	limit := s.longest(account)
	until, enough := s.m.cfg.Rater.Covers(s.call, account, now, limit)
	switch {
	case enough && len(more) > 0:
		return s.coverUntil(until)
	case enough && until.After(s.purse.until):
		return s.recap(until)
	case enough:
		if s.purse.until.Before(limit) {
			s.watchCap()
		}
		return nil // it will have lasted as long as it may
	}
	next, err := s.holdMore(account, now, limit, true, len(more) > 0)
	if errors.Is(err, models.ErrBalanceTaken) || errors.Is(err, models.ErrSpendLimit) {
		next, err = s.holdMore(account, now, limit, false, len(more) > 0)
	}
	if unpaid(err) && len(more) == 0 && (until.After(s.purse.until) || s.purse.guessed) {
		// All that is paid for is given, before it is told that there is no more.
		if failed := s.recap(until); failed != nil {
			return failed
		}
		return err
	}
	if err != nil {
		return err
	}
	return s.moveCap(next.Until, 1)
}

// recap gives the switch a later cap without holding more: parties that have left, or did not answer at once, left more than was reckoned with.
func (s *session) recap(until time.Time) error {
	err := s.change("extend", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		s.regrant(call, until)
		return tx.UpdateCall(ctx, call, "granted_seconds", "caps")
	})
	if err != nil {
		return err
	}
	return s.moveCap(until, 1)
}

// coverUntil gives the switch an earlier cap, or the first one: what is held pays for the parties that are about to be called no longer. A later one has
// time until the old one is near.
func (s *session) coverUntil(until time.Time) error {
	if !s.purse.until.IsZero() && !until.Before(s.purse.until) && !s.purse.guessed {
		return nil
	}
	if s.purse.until.IsZero() && s.call.Caps == 0 {
		s.call.GrantedSeconds = min(s.call.GrantedSeconds, int(s.secondsTo(until)/time.Second)) // stored with the parties
		return s.capCall()
	}
	s.regrant(s.call, until) // stored with the parties
	return s.moveCap(until, 1)
}

// holdMore holds what the account may cost beyond what is held. whole refuses less than the least: nobody is called to be cut off at once.
func (s *session) holdMore(account *billing.Account, now, limit time.Time, greedy, whole bool) (billing.Extension, error) {
	h := &holding{s: s, account: account, now: now, limit: limit, greedy: greedy, whole: whole}
	err := s.change("extend", h.hold)
	if err == nil && h.short {
		s.notice()
	}
	return h.next, err
}

// holding is how more is held for a call, in a transaction that leaves no mark where it tells nothing.
type holding struct {
	s             *session
	account       *billing.Account
	now, limit    time.Time
	greedy, whole bool

	next  billing.Extension
	short bool
	tried *models.Call // what the last try has made of the call
}

func (h *holding) hold(ctx context.Context, tx *models.Store, call *models.Call) error {
	if h.tried != nil {
		stored, err := tx.CallByID(ctx, call.ID)
		if err != nil {
			return err
		}
		if stored.Caps == h.tried.Caps && stored.HoldMicros == h.tried.HoldMicros {
			*call = *h.tried // committed, and the word of it was lost
			return nil
		}
	}
	next, err := h.s.m.cfg.Rater.Extend(ctx, tx, call, h.account, h.now, h.limit, h.greedy)
	if err != nil {
		return err
	}
	if next.Last && h.whole {
		return fmt.Errorf("pay for another party: %w", models.ErrInsufficientBalance)
	}
	h.s.regrant(call, next.Until)
	h.short = next.Last && call.ShortAt == nil
	switch {
	case h.short:
		if err := h.s.tellShort(ctx, tx, call, next.Until); err != nil {
			return err
		}
	case !next.Last:
		call.ShortAt = nil // money has come
	}
	if err := tx.UpdateCall(ctx, call, "granted_seconds", "caps", "short_at"); err != nil {
		return err
	}
	made := *call
	h.next, h.tried = next, &made
	return nil
}

// runDry tells of a call whose balance pays for no more. It ends at its cap, unless money comes before.
func (s *session) runDry() error {
	s.wakeForCap(max(min(capRetry, s.purse.until.Sub(s.m.cfg.Now())/2), time.Second))
	if s.call.ShortAt != nil {
		return nil
	}
	err := s.change(webhooks.KindBalanceLow, func(ctx context.Context, tx *models.Store, call *models.Call) error {
		if err := s.tellShort(ctx, tx, call, s.purse.until); err != nil {
			return err
		}
		return tx.UpdateCall(ctx, call, "short_at")
	})
	if err == nil {
		s.notice()
	}
	return err
}

// tellShort notes that the balance does not pay for the call beyond a moment.
func (s *session) tellShort(ctx context.Context, tx *models.Store, call *models.Call, until time.Time) error {
	now := s.m.cfg.Now()
	call.ShortAt = &now
	s.log.Info("the balance pays for the call no longer", "ends_at", until, "hold_micros", call.HoldMicros)
	customer, err := tx.Customer(ctx, call.CustomerID)
	if err != nil {
		return fmt.Errorf("read the balance: %w", err)
	}
	if err := webhooks.EmitCallShort(ctx, tx, call, customer, int(max(until.Sub(now), 0)/time.Second)); err != nil {
		return fmt.Errorf("emit %s: %w", webhooks.KindBalanceLow, err)
	}
	return nil
}

// notice mixes the application's notice into what both sides hear. The flow goes on meanwhile.
func (s *session) notice() {
	url := s.app.BalanceNoticeURL
	if url == "" || s.purse.noticed {
		return
	}
	s.purse.noticed = true
	channels := []string{s.channel}
	for _, l := range s.legs {
		if l.facts == nil && l.joined() {
			channels = append(channels, l.row.ChannelID)
		}
	}
	m, n, log := s.m, s.node, s.log
	m.goWork(func() {
		path, err := m.media.fetch(m.ctx, m.cfg.mediaDir(n.row), url, false)
		if err != nil {
			log.Warn("balance notice not played", "error", err)
			return
		}
		if !s.box.put(message{held: path}) { // the call has ended
			m.media.release([]string{path})
			return
		}
		file, err := n.place(m.ctx, path)
		for _, channel := range channels {
			if err == nil {
				ctx, cancel := context.WithTimeout(m.ctx, m.cfg.CommandTimeout)
				err = n.sw.Overlay(ctx, channel, file)
				cancel()
			}
		}
		if err != nil && !errors.Is(err, esl.ErrNoSuchChannel) {
			log.Warn("balance notice not played", "error", err)
		}
	})
}

// dropCaps deletes what the switch would keep scheduled although the call has ended.
func (s *session) dropCaps() {
	s.stopWatchingCap()
	var groups []string
	if s.call.Caps > 0 {
		groups = append(groups, capGroup(s.channel, s.call.Caps))
	}
	if s.later != nil {
		groups = append(groups, laterGroup(s.channel))
	}
	for _, group := range groups {
		ctx, cancel := s.command()
		err := s.node.sw.Unschedule(ctx, group)
		cancel()
		if err != nil {
			s.log.Debug("what was scheduled is left to the switch", "group", group, "error", err)
		}
	}
}
