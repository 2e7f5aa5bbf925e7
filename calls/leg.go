package calls

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// Why a leg of a call ended, beyond the reasons of calls.
const (
	reasonAnsweredElsewhere = "answered_elsewhere"
	reasonNotConfirmed      = "not_confirmed"
	reasonMachine           = "machine"
	reasonInterrupted       = "interrupted"
)

// leg is another party of a call, from the moment that it is dialled.
type leg struct {
	row    models.Leg
	target actions.Target
	party  *called
	trunk  *models.Trunk
	detect *actions.MachineDetection
	limit  time.Duration // of the connection
	asks   bool          // the party must press a key, or hear something out, before it is joined

	joinedAt time.Time
	machine  bool         // machine detection has thrown it out
	facts    *hangupFacts // how its channel ended, nil while it lives
}

// newLeg names the channel of a party before it is dialled.
func (s *session) newLeg(kind string, target actions.Target, trunk *models.Trunk) *leg {
	l := &leg{target: target, row: models.Leg{
		ID: models.NewID(models.PrefixLeg), CallID: s.call.ID, CustomerID: s.call.CustomerID, ChannelID: uuid.NewString(), Kind: kind,
		To: cmp.Or(target.Number, target.SIP), Status: models.LegDialing,
	}}
	if trunk != nil {
		l.row.TrunkID = &trunk.ID
	}
	return l
}

// follow makes the events of a leg come to the session, until its channel has ended.
func (s *session) followLeg(l *leg) {
	s.legs[l.row.ChannelID] = l
	s.m.nameLeg(s, l.row.ChannelID)
}

// handleLeg takes an event of another party.
func (s *session) handleLeg(ev *esl.Event) error {
	l := s.legs[ev.ChannelID()]
	if l == nil || l.facts != nil {
		return nil
	}
	switch ev.Name() {
	case eventProgress, eventProgressMedia:
		if l.row.Status != models.LegDialing {
			return nil
		}
		now := s.m.cfg.Now()
		return s.moveLeg(l, "leg.ringing", func(row *models.Leg) { row.Status, row.RingingAt = models.LegRinging, &now })
	case eventAnswer:
		return s.answerLeg(l, ev.Time())
	case eventDTMF:
		return s.handleDTMF(ev)
	case eventHangupComplete:
		facts := readFacts(ev)
		if at := microTime(ev.Get("Caller-Channel-Bridged-Time")); !at.IsZero() && l.joinedAt.IsZero() {
			l.joinedAt = at
		}
		return s.endLeg(l, facts, ev.Time())
	}
	return nil
}

// moveLeg stores a change of a leg with its event.
func (s *session) moveLeg(l *leg, kind string, edit func(row *models.Leg)) error {
	row := l.row
	edit(&row)
	err := s.change(kind, func(ctx context.Context, tx *models.Store, call *models.Call) error {
		if err := tx.SaveLeg(ctx, &row); err != nil {
			return err
		}
		return emit(ctx, tx, call, kind, legData(&row))
	})
	if err == nil {
		l.row = row
	}
	return err
}

// legData is what the events of a leg say.
func legData(row *models.Leg) map[string]any {
	data := map[string]any{"leg_id": row.ID, "kind": row.Kind, "to": row.To}
	if row.TrunkID != nil {
		data["trunk_id"] = *row.TrunkID
	}
	if row.AnsweredBy != "" {
		data["answered_by"] = row.AnsweredBy
	}
	if row.Status == models.LegEnded {
		data["dial_status"], data["reason"], data["cause"], data["seconds"] = row.DialStatus, row.Reason, row.Cause, row.Seconds
		data["q850"], data["sip_code"] = row.Q850, row.SIPCode
	}
	return data
}

// answerLeg notes the answer of a party, and does what it waits for. The length of the connection is held by the switch.
func (s *session) answerLeg(l *leg, at time.Time) error {
	if l.row.AnsweredAt != nil {
		return nil
	}
	now := s.m.cfg.Now()
	seen := at
	if seen.IsZero() || seen.After(now) {
		seen = now
	}
	err := s.moveLeg(l, "leg.answered", func(row *models.Leg) { row.Status, row.AnsweredAt = models.LegAnswered, &seen })
	if err != nil {
		return err
	}
	if !l.asks {
		// Joined in this moment, unless another was faster: the end of the leg tells.
		l.joinedAt = cmp.Or(at, now)
		s.startLeg(l)
	}
	return s.screenLeg(l)
}

// joinLeg notes that a party and the call hear each other.
func (s *session) joinLeg(l *leg, at time.Time) {
	if !l.joinedAt.IsZero() {
		return
	}
	l.joinedAt = at
	if l.asks {
		s.startLeg(l)
	}
}

// startLeg limits the connection and sends the digits that the other party waits for.
func (s *session) startLeg(l *leg) {
	ctx, cancel := s.command()
	defer cancel()
	channel := l.row.ChannelID
	if l.limit > 0 {
		if err := s.node.sw.SchedHangup(ctx, channel, l.limit, causeTimeLimit); err != nil && !errors.Is(err, esl.ErrNoSuchChannel) {
			s.log.Warn("dialed leg not limited", "leg_id", l.row.ID, "error", err)
		}
	}
	if l.target.SendDigits == "" {
		return
	}
	app, err := esl.SendDTMF(l.target.SendDigits, 0)
	if err == nil {
		err = s.node.sw.Execute(ctx, channel, esl.NewEventUUID(), app)
	}
	if err != nil && !errors.Is(err, esl.ErrNoSuchChannel) {
		s.log.Warn("digits not sent to the dialed leg", "leg_id", l.row.ID, "error", err)
	}
}

// endLeg stores how a party's channel ended.
func (s *session) endLeg(l *leg, facts hangupFacts, at time.Time) error {
	l.facts = &facts
	s.m.forgetLeg(l.row.ChannelID)
	now := s.m.cfg.Now()
	seen := at
	if at.IsZero() {
		at = now
	}
	if seen.IsZero() || seen.After(now) {
		seen = now
	}
	return s.moveLeg(l, "leg.ended", func(row *models.Leg) {
		row.Status, row.EndedAt = models.LegEnded, &seen
		row.Cause, row.Q850, row.SIPCode = facts.cause, cmp.Or(facts.q850, q850[facts.cause]), facts.sip
		row.DialStatus, row.Reason = s.legVerdict(l, facts)
		if row.AnsweredAt != nil && row.SIPCode == 0 {
			row.SIPCode = 200
		}
		if row.DialStatus == "answered" && at.After(l.joinedAt) {
			row.Seconds = float64(at.Sub(l.joinedAt).Milliseconds()) / 1000
		}
	})
}

// joined says whether the party and the call heard each other.
func (l *leg) joined() bool { return !l.joinedAt.IsZero() }

// legVerdict is what a leg's end is told as: the word of dial_status, and the reason.
func (s *session) legVerdict(l *leg, f hangupFacts) (status, reason string) {
	switch {
	case l.machine:
		return "machine", reasonMachine
	case f.cause == causeLoseRace || f.cause == causePickedOff:
		return "canceled", reasonAnsweredElsewhere
	case l.joined():
		switch {
		case f.cause == causeTimeLimit:
			return "answered", ReasonTimeLimit
		case s.interrupted():
			return "answered", reasonInterrupted
		case f.disposition == "send_bye":
			// The switch hung up on the party: the caller had left.
			return "answered", ReasonCallerHangup
		}
		return "answered", ReasonCalleeHangup
	case s.interrupted() && (f.cause == causeCancel || f.cause == causeNormal):
		return "canceled", reasonInterrupted
	case f.cause == causeCancel:
		return "canceled", ReasonCallerHangup
	case l.row.AnsweredAt != nil && l.asks:
		return "no_answer", reasonNotConfirmed
	}
	v := unansweredVerdict(f.cause, f.sip)
	return dialStatuses[v.status], v.reason
}

// killLegs ends the channels of parties that live, whatever they do.
func (s *session) killLegs(ctx context.Context) error {
	for _, l := range s.legs {
		if l.facts != nil {
			continue
		}
		cause := causeCancel
		if l.row.AnsweredAt != nil {
			cause = causeNormal
		}
		err := s.node.sw.Kill(ctx, l.row.ChannelID, cause)
		if err != nil && !errors.Is(err, esl.ErrNoSuchChannel) {
			return err
		}
	}
	return nil
}

// legsEnded says whether nobody but the call itself is left.
func (s *session) legsEnded() bool {
	for _, l := range s.legs {
		if l.facts == nil {
			return false
		}
	}
	return true
}

// awaitLegs waits a moment for the last words on the parties' channels, which may come after the word that the bridge is over,
// and makes one up where none comes.
func (s *session) awaitLegs(facts hangupFacts, at time.Time) error {
	if err := s.pause(s.m.cfg.HangupGrace, s.legsEnded); err != nil {
		return err
	}
	for _, l := range s.legs {
		if l.facts != nil {
			continue
		}
		s.log.Warn("the switch ended a dialed leg without a word", "leg_id", l.row.ID)
		if err := s.endLeg(l, facts, at); err != nil {
			return err
		}
	}
	return nil
}

// clearLegs ends the parties of a call that is over, before its own last event.
func (s *session) clearLegs() error {
	if s.legsEnded() {
		return nil
	}
	if !s.lost {
		ctx, cancel := s.command()
		if err := s.killLegs(ctx); err != nil && !errors.Is(err, esl.ErrDown) {
			s.log.Warn("dialed legs not hung up", "error", err)
		}
		cancel()
	}
	for {
		err := s.awaitLegs(hangupFacts{cause: causeCancel}, time.Time{})
		if !errors.Is(err, errEnding) && !errors.Is(err, errEnded) {
			return err
		}
	}
}
