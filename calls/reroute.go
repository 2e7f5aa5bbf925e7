package calls

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"tandem/billing"
	"tandem/models"
	"tandem/webhooks"
)

// An outbound call whose trunk cannot take it is dialled over the customer's next one: on a new channel, with what is left of its time to ring. What
// failed becomes a leg of the call. The next attempt is stored with a command to dial, like the first: whoever dies, it is made once.

// overTrunks makes the first attempt to dial, and further ones as long as it is the trunk that fails.
func (s *session) overTrunks(first func() error) error {
	begun := s.m.cfg.Now()
	err := first()
	for errors.Is(err, errEnded) {
		again, fault := s.reroute(begun)
		if fault != nil {
			return fault
		}
		if !again {
			break
		}
		err = s.dialOut()
	}
	return err
}

// reroute moves a call whose attempt has failed to its next trunk, and reports false where it has ended for good. begun is when it was first dialled.
func (s *session) reroute(begun time.Time) (bool, error) {
	// The switch's last word, and a wish to end the call, may have come meanwhile.
	if err := s.poll(); err != nil && !errors.Is(err, errEnded) {
		return false, s.unlessOver(err)
	}
	if s.answered || !s.facts.answeredAt.IsZero() || s.lost || s.asked != nil || s.box.leaving() || s.call.TrunkID == nil {
		return false, nil
	}
	failed := conclude(DirectionOutbound, false, s.facts, nil)
	if !failsOver(failed.reason) || s.timeToRing(begun) < minRing*time.Second {
		return false, nil
	}
	rows, err := s.storedLegs()
	if err != nil {
		return false, s.unlessOver(err)
	}
	tried := []string{*s.call.TrunkID}
	for i := range rows {
		if rows[i].Kind == models.LegAttempt && rows[i].TrunkID != nil {
			tried = append(tried, *rows[i].TrunkID)
		}
	}
	if err := s.mayCallTarget(s.call.To, ""); err != nil {
		if denied := (*DestinationError)(nil); errors.As(err, &denied) {
			return false, nil // since it was first dialled: it ends with what the first trunk said
		}
		return false, s.unlessOver(err)
	}
	ways, err := s.waysTo("", s.call.To, s.call.From, s.call.ID)
	if err != nil {
		return false, s.unlessOver(err)
	}
	for i := range ways {
		if slices.Contains(tried, ways[i].trunk.ID) {
			continue
		}
		rate, err := s.quote(priced(s.call, &ways[i].trunk))
		if errors.Is(err, billing.ErrUnlisted) {
			continue
		}
		if err != nil {
			return false, s.unlessOver(err)
		}
		err = s.takeWay(&ways[i], rate, failed, len(tried))
		if errors.Is(err, models.ErrTrunkFull) || unpaid(err) {
			s.log.Info("trunk does not take the call", "trunk_id", ways[i].trunk.ID, "error", err)
			continue
		}
		if err != nil {
			return false, err
		}
		s.limit = s.timeToRing(begun)
		return true, nil
	}
	return false, nil
}

// unlessOver is an error of what was looked for after an attempt has failed: none where somebody wants the call to end meanwhile, which has ended then.
func (s *session) unlessOver(err error) error {
	if errors.Is(err, errEnding) || errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// timeToRing is what is left of the time that the call may ring, in whole seconds.
func (s *session) timeToRing(begun time.Time) time.Duration {
	return (time.Duration(s.call.TimeoutSeconds)*time.Second - s.m.cfg.Now().Sub(begun)).Truncate(time.Second)
}

// takeWay stores that an attempt has failed and that the call is dialled over another trunk, on a channel of its own, and makes the session that of
// the new channel.
func (s *session) takeWay(over *way, rate models.Rate, failed ending, attempt int) error {
	now := s.m.cfg.Now()
	leg := models.Leg{
		ID: models.NewID(models.PrefixLeg), CallID: s.call.ID, CustomerID: s.call.CustomerID, ChannelID: s.channel, Kind: models.LegAttempt, To: s.call.To,
		TrunkID: s.call.TrunkID, Status: models.LegEnded, DialStatus: dialStatuses[failed.status], Reason: failed.reason, Cause: failed.cause, Q850: failed.q850,
		SIPCode: failed.sip, CreatedAt: s.attempted, EndedAt: &now,
	}
	if s.attempted.IsZero() { // by an earlier controller
		leg.CreatedAt = s.call.CreatedAt
	}
	promised := s.m.cfg.Rater.RateOf(s.call)
	leg.Rate = &promised
	if rung := s.call.RingingAt; rung != nil && !rung.Before(leg.CreatedAt) {
		leg.RingingAt = rung
	}
	if _, err := s.account(now); err != nil { // what its earlier attempts have cost
		return err
	}
	cost := s.purse.spent + billing.LegCost(&leg)
	channel := uuid.NewString()
	var command *models.Command
	err := s.change(webhooks.KindRerouted, func(ctx context.Context, tx *models.Store, call *models.Call) error {
		row := leg
		if err := tx.SaveLeg(ctx, &row); err != nil {
			return err
		}
		call.TrunkID, call.ChannelID = &over.trunk.ID, channel
		call.MaxSeconds = longest(call.MaxSeconds, over.trunk.Limits.MaxCallSeconds)
		outlasts := time.Duration(call.GrantedSeconds)*time.Second > s.m.cfg.Rater.Longest(call)
		if rate != promised || cost != s.purse.spent || outlasts {
			if err := s.m.cfg.Rater.Repromise(ctx, tx, call, rate, cost); err != nil {
				return err
			}
		}
		if err := tx.UpdateCall(ctx, call, "trunk_id", "channel_id", "rate", "price_per_minute_micros", "granted_seconds", "max_seconds"); err != nil {
			return err
		}
		if over.trunk.Limits.Bounded() {
			tx.TakeTrunk(ctx, over.trunk.ID, models.Beginning{Lives: 1, Starts: 1, SpendMicros: call.HoldMicros})
		}
		stored, err := giveCommand(ctx, tx, call, &order{kind: models.CommandDial, payload: struct{}{}})
		if err != nil {
			return err
		}
		command = stored
		return emit(ctx, tx, call, webhooks.KindRerouted, map[string]any{
			"attempt": attempt, "leg_id": leg.ID, "trunk_id": *leg.TrunkID, "next_trunk_id": over.trunk.ID,
			"reason": failed.reason, "cause": failed.cause, "q850": failed.q850, "sip_code": failed.sip,
		})
	})
	if err != nil {
		return err
	}
	s.purse.spent = cost
	s.log.Info("call goes over the next trunk", "trunk_id", *leg.TrunkID, "next_trunk_id", over.trunk.ID, "reason", failed.reason, "sip_code", failed.sip)
	if s.stopJob != nil {
		s.stopJob()
	}
	s.unplaced.Store(true)
	s.m.rename(s, channel)
	s.relog()
	s.flow.over, s.dial, s.claiming = *over, command, false
	s.job, s.jobDone, s.jobErr, s.stopJob = nil, false, nil, nil
	s.ended, s.facts, s.parked, s.early, s.kills = false, hangupFacts{}, false, false, 0
	return nil
}

// rename makes a session that of another channel.
func (m *Manager) rename(s *session, channel string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byChannel, s.channel)
	s.channel = channel
	s.box.rename(channel)
	m.byChannel[channel] = s
}

// carries says whether the session's channel is one of those. Only the session's own goroutine may read the channel without the manager's lock.
func (m *Manager) carries(s *session, channels map[string]bool) (channel string, present bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return s.channel, channels[s.channel]
}
