package calls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"tandem/esl"
	"tandem/models"
)

// bringDown ends the channel and waits until the switch says so. It returns errEnded when the channel is gone.
func (s *session) bringDown() error {
	if s.asked == nil {
		s.ask(intent{reason: ReasonInternalError, source: SourcePlatform, status: StatusFailed, cause: causeTempFailure, sip: 503})
	}
	// Stored before the switch is told: should nobody be here to hear how the call ended, it is known why.
	if len(s.call.Cursor.Ending) == 0 {
		s.flow.at.changed = true
	}
	if err := s.keep(); errors.Is(err, errAbandoned) {
		return err
	}
	delay := 100 * time.Millisecond
	for unknown := 0; ; {
		if s.jobFailed() {
			return s.awaitJobHangup()
		}
		err := s.sendEnd()
		switch {
		case err == nil:
			unknown = 0
		case errors.Is(err, esl.ErrNoSuchChannel):
			// While the originate is under way, the channel may not exist yet.
			if s.job == nil || s.jobDone {
				unknown++
			}
		case errors.Is(err, esl.ErrDown):
		default:
			s.log.Warn("hangup failed, trying again", "error", err)
		}
		if unknown > 0 && time.Duration(unknown)*delay >= s.m.cfg.HangupGrace {
			s.ended, s.lost = true, true
			return errEnded
		}
		if err := s.pause(delay, nil); err != nil && !errors.Is(err, errEnding) {
			return err
		}
		if unknown == 0 {
			delay = min(2*delay, 2*time.Second)
		}
	}
}

// sendEnd sends the command that ends the channel: a status that no cause stands for through the respond application
// first, then, and in every other case, the cause.
func (s *session) sendEnd() error {
	s.kills++
	ctx, cancel := s.command()
	defer cancel()
	if s.asked.respond && s.kills == 1 && !s.answered && s.call.Direction == DirectionInbound {
		app, err := esl.Respond(s.asked.sip)
		if err == nil {
			err = s.node.sw.Execute(ctx, s.channel, esl.NewEventUUID(), app)
		}
		return err
	}
	cause := s.asked.cause
	if s.answered && cause == causeCancel {
		cause = causeNormal // a call that was answered is not canceled but hung up
	}
	return s.node.sw.Kill(ctx, s.channel, cause)
}

// refuseAside ends the channel of a leg that gets no session, without blocking the caller.
func (s *session) refuseAside(cause string) {
	s.m.goWork(func() { s.refuse(cause) })
}

// refuse ends the channel of a leg that gets no call.
func (s *session) refuse(cause string) {
	ctx, cancel := s.command()
	defer cancel()
	if err := s.node.sw.Kill(ctx, s.channel, cause); err != nil && !errors.Is(err, esl.ErrNoSuchChannel) {
		s.log.Warn("refused leg not hung up", "error", err)
	}
}

// refuseWith is refuse with a SIP status.
func (s *session) refuseWith(sip int) {
	if app, err := esl.Respond(sip); err == nil && sip != http.StatusServiceUnavailable {
		ctx, cancel := s.command()
		err := s.node.sw.Execute(ctx, s.channel, esl.NewEventUUID(), app)
		cancel()
		if err == nil {
			return
		}
		s.log.Warn("inbound leg not refused with its status", "sip_code", sip, "error", err)
	}
	s.refuse(causeTempFailure)
}

// awaitJobHangup waits a moment for the switch's hangup event, which knows more than the result of the originate, and
// otherwise ends the call with that result. Some failures, such as a gateway that is down, never have a channel; errNoRoom is one that may be
// gone in a moment.
func (s *session) awaitJobHangup() error {
	cause := causeTempFailure
	var refused *esl.CommandError
	if errors.As(s.jobErr, &refused) && refused.Cause() != "" {
		cause = refused.Cause()
	}
	switch cause {
	case causeGatewayDown, causeNoGateway, causeNoProfile:
	default:
		wake := make(chan struct{})
		timer := time.AfterFunc(s.m.cfg.HangupGrace, func() { close(wake) })
		defer timer.Stop()
		for {
			err := s.await(wake, nil)
			if errors.Is(err, errEnding) {
				continue
			}
			if err != nil {
				return err
			}
			break
		}
	}
	if cause == causeOutOfOrder && s.asked == nil {
		return errNoRoom
	}
	s.ended = true
	s.facts = hangupFacts{cause: cause}
	return errEnded
}

// finish writes the call's end: the last word of the switch, the money and the one terminal event, in one transaction.
func (s *session) finish() error {
	if s.lost {
		if err := s.askCDR(); err != nil {
			return err
		}
	}
	if !s.answered && !s.facts.answeredAt.IsZero() {
		// The answer was lost with a connection; the end remembers it.
		s.answered = true
		if err := s.move(onAnswer, func(call *models.Call) { call.AnsweredAt = &s.facts.answeredAt }); err != nil {
			return err
		}
	}
	if err := s.clearLegs(); err != nil {
		return err
	}
	s.dropCaps()
	end := s.conclude()
	if end.reason == ReasonTimeLimit && s.purse.limited {
		end.reason = ReasonSpendLimit
	}
	now := s.m.cfg.Now()
	tapes := s.closeTapes(now)
	err := s.change("end", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		for _, tape := range tapes {
			if err := tape.save(ctx, tx, call); err != nil {
				return err
			}
		}
		if s.grouped {
			if err := leaveGroups(ctx, tx, call, now); err != nil {
				return err
			}
		}
		return s.m.end(ctx, tx, call, end, endOf(call, s.facts, now))
	})
	if err != nil {
		return err
	}
	if s.m.cfg.OnEnd != nil {
		s.m.cfg.OnEnd(*s.call)
	}
	s.log.Info("call ended", "status", s.call.Status, "reason", s.call.Reason, "hangup_source", s.call.HangupSource,
		"cause", s.call.Cause, "sip_code", s.call.SIPCode, "billed_seconds", s.call.BilledSeconds)
	return nil
}

// conclude decides how the call is told to have ended.
func (s *session) conclude() ending {
	asked := s.asked
	if asked == nil {
		asked = s.later
	}
	if !s.lost {
		return conclude(s.call.Direction, s.answered, s.facts, asked)
	}
	end := ending{status: StatusFailed, reason: ReasonNodeLost, source: SourcePlatform}
	if asked != nil {
		// We had ended the channel; only the switch's word on it is missing.
		end.reason, end.source, end.cause, end.q850, end.sip = asked.reason, asked.source, asked.cause, q850[asked.cause], asked.sip
		if asked.status != "" {
			end.status = asked.status
		}
	}
	switch {
	case s.answered:
		end.status, end.sip = StatusCompleted, 200
		end.billed = s.secondsSinceAnswer()
	case asked != nil:
		end.reason = cmp.Or(asked.early, asked.reason)
	}
	return end
}

// secondsSinceAnswer is what a call is billed when the switch never said: the time until its node was last seen.
func (s *session) secondsSinceAnswer() int {
	return billable(s.call, s.node.lastSeen())
}

// billable is how many seconds passed between the answer of a call and a moment, at most what the cap in the switch
// allowed.
func billable(call *models.Call, until time.Time) int {
	if call.AnsweredAt == nil || !until.After(*call.AnsweredAt) {
		return 0
	}
	seconds := int((until.Sub(*call.AnsweredAt) + time.Second - 1) / time.Second)
	if call.GrantedSeconds > 0 {
		seconds = min(seconds, call.GrantedSeconds)
	}
	return seconds
}

// billableLeg is how many seconds passed between the answer of a party and a moment.
func billableLeg(row *models.Leg, until time.Time) int {
	if row.AnsweredAt == nil || !until.After(*row.AnsweredAt) {
		return 0
	}
	return int((until.Sub(*row.AnsweredAt) + time.Second - 1) / time.Second)
}

// end writes the end of a call inside a transaction. It works on any live call, with or without a session, and is
// ErrStale when the call has ended already: that makes it run once.
func (m *Manager) end(ctx context.Context, tx *models.Store, call *models.Call, e ending, at time.Time) error {
	arrow, ok := next(call.Status, onEnd)
	if !ok {
		return fmt.Errorf("end a call that is %s: %w", call.Status, models.ErrStale)
	}
	call.Status, call.Reason, call.HangupSource = e.status, e.reason, e.source
	call.Cause, call.Q850, call.SIPCode = e.cause, e.q850, e.sip
	call.EndedAt = &at
	if call.Reason == ReasonTimeLimit {
		reason, err := m.limitReason(ctx, tx, call)
		if err != nil {
			return err
		}
		call.Reason = reason
	}
	if err := m.cfg.Rater.Settle(ctx, tx, call, e.billed, e.reached || call.RingingAt != nil); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	return transit(ctx, tx, call, arrow, endingData(call))
}

// limitReason is why the switch has ended a call at its cap: it had lasted as long as it may, or its balance paid for no more.
func (m *Manager) limitReason(ctx context.Context, tx *models.Store, call *models.Call) (string, error) {
	if call.ShortAt != nil {
		return ReasonInsufficientBalance, nil
	}
	rate := m.cfg.Rater.RateOf(call)
	if rate.PerMinuteMicros == 0 || time.Duration(call.GrantedSeconds)*time.Second >= m.cfg.Rater.Longest(call) {
		return ReasonTimeLimit, nil
	}
	// Nobody was there to extend it. It may be that nobody could have: not even by a second.
	customer, err := tx.Customer(ctx, call.CustomerID)
	if err != nil {
		return "", fmt.Errorf("read the balance: %w", err)
	}
	if customer.FreeMicros() < rate.Cost(true, call.GrantedSeconds+1)-rate.Cost(true, call.GrantedSeconds) {
		return ReasonInsufficientBalance, nil
	}
	return ReasonTimeLimit, nil
}

// endingData is what a terminal event says besides the call.
func endingData(call *models.Call) map[string]any {
	data := map[string]any{
		"reason": call.Reason, "hangup_source": call.HangupSource, "cause": call.Cause, "q850": call.Q850, "sip_code": call.SIPCode,
		"duration_seconds": seconds(call.CreatedAt, call.EndedAt), "billed_seconds": call.BilledSeconds,
		"cost_micros": call.CostMicros,
	}
	if call.RingingAt != nil {
		until := call.EndedAt
		if call.AnsweredAt != nil {
			until = call.AnsweredAt
		}
		data["ring_seconds"] = seconds(*call.RingingAt, until)
	}
	if call.AnsweredAt != nil {
		data["talk_seconds"] = seconds(*call.AnsweredAt, call.EndedAt)
		if call.AnsweredBy != "" {
			data["answered_by"] = call.AnsweredBy
		}
	}
	return data
}

// seconds is the time between two moments in seconds, with milliseconds, never negative.
func seconds(from time.Time, to *time.Time) float64 {
	if to == nil || to.Before(from) {
		return 0
	}
	return float64(to.Sub(from).Milliseconds()) / 1000
}
