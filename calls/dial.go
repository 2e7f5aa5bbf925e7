package calls

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// dialedLeg is the party that a dial action calls.
type dialedLeg struct {
	channel    string
	sendDigits string
	limit      time.Duration
	answeredAt time.Time
	facts      *hangupFacts
}

// doDial calls one party and joins it to the call. Control comes back when the other party is gone; the list goes on.
func (s *session) doDial(a *actions.Dial) (outcome, error) {
	target, failure, err := s.dialTarget(a)
	if err != nil || failure != nil {
		return outcome{result: failure}, err
	}
	dial, err := esl.NewDial(target)
	if err != nil {
		return outcome{}, err
	}
	if err := s.setBridgeVariables(); err != nil {
		return outcome{}, err
	}
	s.leg = &dialedLeg{channel: target.ChannelID, sendDigits: a.To[0].SendDigits, limit: a.MaxSeconds}
	s.m.nameLeg(s, target.ChannelID)
	defer s.m.forgetLeg(target.ChannelID)
	defer func() { s.leg = nil }()
	if a.Record && s.call.Record {
		a = withoutRecord(a) // the whole call is being recorded
	}
	done, err := s.bridge(a, esl.Bridge(dial))
	if err != nil {
		if errors.Is(err, errEnded) || errors.Is(err, errEnding) {
			s.killLeg()
		}
		return outcome{}, err
	}
	return outcome{result: s.dialResult(done)}, nil
}

func withoutRecord(a *actions.Dial) *actions.Dial {
	plain := *a
	plain.Record = false
	return &plain
}

// dialTarget chooses the way to the party. failure is the result when there is none.
func (s *session) dialTarget(a *actions.Dial) (target esl.Target, failure map[string]any, err error) {
	target = esl.Target{
		ChannelID: uuid.NewString(), CallerIDNumber: a.CallerID, Timeout: a.To[0].Timeout, SIPURI: a.To[0].SIP, Number: a.To[0].Number,
	}
	if target.CallerIDNumber == "" {
		if n, ok := switchNumber(s.call.From); ok {
			target.CallerIDNumber = n
		}
	}
	if a.To[0].SIP != "" {
		target.Profile = s.m.cfg.SIPProfile
		return target, nil, nil
	}
	trunk, err := s.dialTrunk(a.To[0].TrunkID)
	if errors.Is(err, models.ErrNotFound) {
		return target, map[string]any{"dial_status": "failed", "reason": "no_active_trunk", "seconds": 0.0}, nil
	}
	if err != nil {
		return target, nil, err
	}
	target.Gateway = trunk.GatewayName
	return target, nil, nil
}

// dialTrunk finds the trunk that a dial action names, or the customer's active one.
func (s *session) dialTrunk(id string) (*models.Trunk, error) {
	ctx, cancel := s.command()
	defer cancel()
	if id == "" {
		return s.m.cfg.Store.ActiveOutboundTrunk(ctx, s.call.CustomerID)
	}
	trunk, err := s.m.cfg.Store.Trunk(ctx, s.call.CustomerID, id)
	if err != nil {
		return nil, err
	}
	if trunk.Direction != DirectionOutbound || !trunk.IsActive {
		return nil, models.ErrNotFound
	}
	return trunk, nil
}

// setBridgeVariables keeps the call alive when the other party is not reached, or leaves: both are read from the call's own
// channel (mod_dptools.c, audio_bridge_function).
func (s *session) setBridgeVariables() error {
	if s.bridged {
		return nil
	}
	for _, v := range []esl.Var{{Name: "hangup_after_bridge", Value: "false"}, {Name: "continue_on_fail", Value: "true"}} {
		err := s.order("set up the bridge", func(ctx context.Context) error {
			return s.node.sw.SetVariable(ctx, s.channel, v.Name, v.Value)
		})
		if err != nil {
			return err
		}
	}
	s.bridged = true
	return nil
}

// bridge runs the bridge. An unanswered caller hears the other party ring and is answered by it, unless the action says
// otherwise.
func (s *session) bridge(a *actions.Dial, app esl.App) (*esl.Event, error) {
	s.flow.idle = 0
	id, err := s.begin()
	if err != nil {
		return nil, err
	}
	if !s.answered && s.call.Direction == DirectionInbound {
		if !a.AnswerOnBridge {
			if err := s.answer(esl.NewEventUUID()); err != nil {
				return nil, err
			}
		} else if err := s.capCall(a.To[0].Timeout); err != nil {
			// The switch answers the call by itself; handleAnswer caps it to the second, this is for when we are dead.
			return nil, err
		}
	}
	if err := s.setTerminators(noTerminators); err != nil {
		return nil, err
	}
	if !a.Record {
		return s.execute(id, app)
	}
	tape, err := s.newRecording()
	if err != nil {
		return nil, err
	}
	if err := s.announce(tape); err != nil {
		return nil, err
	}
	if err := s.order("record the dial", func(ctx context.Context) error { return s.node.sw.RecordStart(ctx, s.channel, tape.row.Path) }); err != nil {
		return nil, err
	}
	done, err := s.execute(id, app)
	if err != nil {
		return nil, err // the end of the call closes the recording
	}
	if err := s.order("end the recording", func(ctx context.Context) error { return s.node.sw.RecordStop(ctx, s.channel, tape.row.Path) }); err != nil {
		return nil, err
	}
	tape.close(s.m.cfg.Now(), 0)
	s.dropTape(tape)
	return done, s.change("recording ended", tape.save)
}

// handleLeg takes an event of the other party.
func (s *session) handleLeg(ev *esl.Event) {
	leg := s.leg
	if leg == nil || ev.ChannelID() != leg.channel {
		return
	}
	switch ev.Name() {
	case eventAnswer:
		if !leg.answeredAt.IsZero() {
			return
		}
		leg.answeredAt = ev.Time()
		s.startLeg(leg)
	case eventHangupComplete:
		facts := readFacts(ev)
		leg.facts = &facts
	}
}

// startLeg limits the connection and sends the digits that the other party waits for.
func (s *session) startLeg(leg *dialedLeg) {
	ctx, cancel := s.command()
	defer cancel()
	if err := s.node.sw.SchedHangup(ctx, leg.channel, leg.limit, causeTimeLimit); err != nil && !errors.Is(err, esl.ErrNoSuchChannel) {
		s.log.Warn("dialed leg not limited", "leg", leg.channel, "error", err)
	}
	if leg.sendDigits == "" {
		return
	}
	app, err := esl.SendDTMF(leg.sendDigits, 0)
	if err == nil {
		err = s.node.sw.Execute(ctx, leg.channel, esl.NewEventUUID(), app)
	}
	if err != nil && !errors.Is(err, esl.ErrNoSuchChannel) {
		s.log.Warn("digits not sent to the dialed leg", "leg", leg.channel, "error", err)
	}
}

// killLeg ends the other party's channel, which may ring on after the call itself has ended.
func (s *session) killLeg() {
	ctx, cancel := s.command()
	defer cancel()
	if err := s.node.sw.Kill(ctx, s.leg.channel, causeCancel); err != nil && !errors.Is(err, esl.ErrNoSuchChannel) && !errors.Is(err, esl.ErrDown) {
		s.log.Warn("dialed leg not hung up", "leg", s.leg.channel, "error", err)
	}
}

// dialStatuses are the words of dial_status for the states that a call of its own would have.
var dialStatuses = map[string]string{
	StatusBusy: "busy", StatusNoAnswer: "no_answer", StatusCanceled: "canceled", StatusRejected: "failed", StatusFailed: "failed",
}

// dialResult reads what became of the other party from the variables that the bridge left on the call's own channel
// (switch_ivr_originate.c, switch_ivr_bridge.c).
func (s *session) dialResult(done *esl.Event) map[string]any {
	result := map[string]any{"leg_id": s.leg.channel, "seconds": 0.0}
	disposition := done.Variable("originate_disposition")
	if disposition == "SUCCESS" || !s.leg.answeredAt.IsZero() {
		result["dial_status"], result["sip_code"] = "answered", 200
		result["reason"] = s.bridgeEnd(done)
		from := s.leg.answeredAt
		if from.IsZero() {
			from = microTime(done.Get("Caller-Channel-Bridged-Time"))
		}
		if to := done.Time(); !from.IsZero() && to.After(from) {
			result["seconds"] = float64(to.Sub(from).Milliseconds()) / 1000
		}
		return result
	}
	sip := protocolStatus(done.Variable("last_bridge_proto_specific_hangup_cause"))
	cause := disposition
	if cause == "" {
		cause = done.Variable("last_bridge_hangup_cause")
	}
	if s.leg.facts != nil {
		cause, sip = s.leg.facts.cause, max(sip, s.leg.facts.sip)
	}
	v := unansweredVerdict(cause, sip)
	result["dial_status"], result["reason"], result["cause"] = dialStatuses[v.status], v.reason, cause
	if sip > 0 {
		result["sip_code"] = sip
	}
	return result
}

// bridgeEnd says why an answered connection ended, while the call goes on.
func (s *session) bridgeEnd(done *esl.Event) string {
	cause := done.Variable("last_bridge_hangup_cause")
	if s.leg.facts != nil {
		cause = s.leg.facts.cause
	}
	if cause == causeTimeLimit {
		return ReasonTimeLimit
	}
	return ReasonCalleeHangup
}

// microTime reads FreeSWITCH's microseconds since 1970; 0 and nonsense are the zero time.
func microTime(s string) time.Time {
	us := int64(number(s))
	if us <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
