package calls

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
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
	over   *way // nil for a SIP URI
	detect *actions.MachineDetection
	limit  time.Duration // of the connection
	// asks says that the party is heard, or hears something, after it has answered and before it is joined; confirms, that it must
	// press a key; held, that it waits for the verdict of machine detection.
	asks, confirms, held bool

	answered time.Time // by the switch's clock
	bridged  time.Time // when the switch joined it with the call, perhaps before it answered
	joinedAt time.Time // the later of the two, once there are both
	screen   *screening
	limited  bool         // the switch has its limit from this controller
	machine  bool         // a machine has answered, and is thrown out for it
	facts    *hangupFacts // how its channel ended, nil while it lives
}

// newLeg names the channel of a party before it is dialled.
func (s *session) newLeg(kind string, target actions.Target, over *way) *leg {
	l := &leg{target: target, over: over, row: models.Leg{
		ID: models.NewID(models.PrefixLeg), CallID: s.call.ID, CustomerID: s.call.CustomerID, ChannelID: uuid.NewString(), Kind: kind,
		To: targetName(target), Status: models.LegDialing,
	}}
	if over != nil {
		l.row.TrunkID = &over.trunk.ID
	}
	return l
}

// targetName is how a target is told of: its number or its SIP URI.
func targetName(target actions.Target) string { return cmp.Or(target.Number, target.SIP) }

// followLeg makes the events of a leg come to the session, until its channel has ended.
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
	case eventRecordStop:
		if l.screen != nil && ev.Get("Record-File-Path") == l.screen.path {
			return s.judgeLeg(l)
		}
	case eventHangupComplete:
		facts := readFacts(ev)
		if bridged := microTime(ev.Get("Caller-Channel-Bridged-Time")); l.joinedAt.IsZero() && !bridged.IsZero() && !facts.answeredAt.IsZero() {
			// It was joined, and the word of it was lost, or is still on the way.
			l.joinedAt = later(bridged, facts.answeredAt)
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

// answerLeg notes the answer of a party.
func (s *session) answerLeg(l *leg, at time.Time) error {
	if l.row.AnsweredAt != nil {
		return nil
	}
	now := s.m.cfg.Now()
	l.answered = at
	if at.IsZero() {
		l.answered = now
	}
	seen := earlier(l.answered, now)
	err := s.moveLeg(l, "leg.answered", func(row *models.Leg) { row.Status, row.AnsweredAt = models.LegAnswered, &seen })
	if err != nil {
		return err
	}
	if err := s.screenLeg(l); err != nil {
		return err
	}
	return s.joinLeg(l)
}

// bridgeLeg notes that the switch has joined a party with the call: when it answered, or before, for the sake of what it sends.
func (s *session) bridgeLeg(l *leg, at time.Time) error {
	if !l.bridged.IsZero() || l.facts != nil {
		return nil
	}
	if at.IsZero() {
		at = s.m.cfg.Now()
	}
	l.bridged = at
	return s.joinLeg(l)
}

// joinLeg begins the connection once a party has answered and is joined. The two are told in either order.
func (s *session) joinLeg(l *leg) error {
	if l.answered.IsZero() || l.bridged.IsZero() {
		return nil
	}
	l.joinedAt = later(l.answered, l.bridged)
	// Stored first: whoever takes over must not send the party its digits once more.
	row := l.row
	row.JoinedAt = &l.joinedAt
	err := s.change("leg joined", func(ctx context.Context, tx *models.Store, _ *models.Call) error {
		stored := row
		return tx.SaveLeg(ctx, &stored)
	})
	if err != nil {
		return err
	}
	l.row = row
	if err := s.startLeg(l); err != nil {
		return err
	}
	if s.onJoin == nil {
		return nil
	}
	return s.onJoin(l)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// startLeg limits the connection and sends the digits that the other party waits for.
func (s *session) startLeg(l *leg) error {
	if err := s.limitLeg(l); err != nil || l.target.SendDigits == "" {
		return err
	}
	app, err := esl.SendDTMF(l.target.SendDigits, 0)
	if err != nil {
		s.log.Warn("digits not sent to the dialed leg", "leg_id", l.row.ID, "error", err)
		return nil
	}
	return s.order("send the digits", func(ctx context.Context) error {
		err := s.node.sw.Execute(ctx, l.row.ChannelID, esl.NewEventUUID(), app)
		if err == nil || unsent(err) {
			return err
		}
		// Digits that may have been sent are not sent twice.
		return s.aside(l, "send digits", err)
	})
}

// limitLeg has the switch end the connection when its time is over, whoever steers it then.
func (s *session) limitLeg(l *leg) error {
	if l.limit <= 0 || l.limited || l.joinedAt.IsZero() {
		return nil
	}
	err := s.order("limit the connection", func(ctx context.Context) error {
		// The word that it was joined may have come late; the switch's clock may be ahead of ours.
		late := max(s.m.cfg.Now().Sub(l.joinedAt).Truncate(time.Second), 0)
		err := s.node.sw.SchedHangup(ctx, l.row.ChannelID, max(l.limit-late, time.Second), causeTimeLimit)
		if err == nil || unsent(err) || errors.Is(err, esl.ErrNoReply) {
			return err
		}
		return s.aside(l, "limit", err)
	})
	l.limited = err == nil
	return err
}

// aside notes what the switch refused to do with a leg, which is no failure of the call. The leg may be gone: its end is on the way.
func (s *session) aside(l *leg, what string, err error) error {
	if !errors.Is(err, esl.ErrNoSuchChannel) {
		s.log.Warn("dialed leg not told what to do", "command", what, "leg_id", l.row.ID, "error", err)
	}
	return nil
}

// endLeg stores how a party's channel ended.
func (s *session) endLeg(l *leg, facts hangupFacts, at time.Time) error {
	l.facts = &facts
	s.m.forgetLeg(l.row.ChannelID)
	if l.screen != nil {
		s.dropScreen(l)
	}
	now := s.m.cfg.Now()
	if at.IsZero() {
		at = now
	}
	seen := earlier(at, now)
	var ended models.Leg
	err := s.moveLeg(l, "leg.ended", func(row *models.Leg) {
		row.Status, row.EndedAt = models.LegEnded, &seen
		if row.AnsweredAt == nil && !facts.answeredAt.IsZero() {
			answered := earlier(facts.answeredAt, seen) // the word of it was lost
			row.AnsweredAt = &answered
		}
		row.Cause, row.Q850, row.SIPCode = facts.cause, cmp.Or(facts.q850, q850[facts.cause]), facts.sip
		row.DialStatus, row.Reason = s.legVerdict(l, facts)
		if row.AnsweredAt != nil && row.SIPCode == 0 {
			row.SIPCode = http.StatusOK
		}
		if l.joined() && at.After(l.joinedAt) {
			row.Seconds = float64(at.Sub(l.joinedAt).Milliseconds()) / 1000
		}
		row.BilledSeconds = s.legSeconds(row, facts, seen)
		ended = *row
	})
	if err == nil {
		s.spend(&ended)
	}
	return err
}

// legSeconds is for how long a party is billed: as the switch says, and otherwise until the last moment at which it is known to have lived.
func (s *session) legSeconds(row *models.Leg, facts hangupFacts, end time.Time) int {
	if row.AnsweredAt == nil || facts.billed > 0 || !facts.answeredAt.IsZero() {
		return facts.billed
	}
	if s.lost {
		end = earlier(end, s.node.lastSeen())
	}
	return billableLeg(row, end)
}

// joined says whether the party and the call heard each other.
func (l *leg) joined() bool { return !l.joinedAt.IsZero() }

// legVerdict is what a leg's end is told as: the word of dial_status, and the reason.
func (s *session) legVerdict(l *leg, f hangupFacts) (status, reason string) {
	// The switch hung up on the party, and for no reason of its own: because the call left, or because we wanted it.
	dropped := f.cause == causeCancel || f.cause == causeNormal && !strings.HasPrefix(f.disposition, "recv_")
	switch {
	case l.machine:
		return dialMachine, reasonMachine
	case f.cause == causeLoseRace || f.cause == causePickedOff:
		return dialCanceled, reasonAnsweredElsewhere
	case l.joined() && f.cause == causeTimeLimit:
		return dialAnswered, ReasonTimeLimit
	case l.joined() && dropped:
		return dialAnswered, s.dropReason()
	case l.joined():
		return dialAnswered, ReasonCalleeHangup
	case dropped:
		return dialCanceled, s.dropReason()
	case l.row.AnsweredAt != nil && l.confirms:
		return dialNoAnswer, reasonNotConfirmed
	case l.row.AnsweredAt != nil && l.asks:
		return dialNoAnswer, ReasonCalleeHangup
	}
	v := unansweredVerdict(f.cause, f.sip)
	return dialStatuses[v.status], v.reason
}

// dropReason is why we let go of a party.
func (s *session) dropReason() string {
	switch {
	case s.interrupted():
		return reasonInterrupted
	case s.asked != nil && (!s.ended || !strings.HasPrefix(s.facts.disposition, "recv_")):
		// Not because the caller had left before: the end of the call may be heard of before that of the party.
		return s.asked.reason
	default:
		return ReasonCallerHangup
	}
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
// and otherwise takes what their CDRs say, or makes one up where there is none.
func (s *session) awaitLegs(causes roundCauses, at time.Time) error {
	for _, l := range s.legs {
		if l.facts == nil && causes.neverWas(l) {
			if err := s.endLeg(l, hangupFacts{cause: causes.of(l)}, at); err != nil {
				return err
			}
		}
	}
	if err := s.pause(s.m.cfg.HangupGrace, s.legsEnded); err != nil {
		return err
	}
	for _, l := range s.legs {
		if l.facts != nil {
			continue
		}
		s.log.Warn("the switch ended a dialed leg without a word", "leg_id", l.row.ID)
		facts, ended, err := s.testimony(l.row.ChannelID)
		if err != nil {
			return err
		}
		if facts != nil {
			if err := s.endLeg(l, *facts, ended); err != nil {
				return err
			}
			continue
		}
		if err := s.endLeg(l, hangupFacts{cause: causes.of(l), sip: causes.sip}, at); err != nil {
			return err
		}
	}
	return nil
}

// roundCauses is what the switch says at the end of a bridge about the legs that it tried.
type roundCauses struct {
	each string // "uuid;CAUSE" of every leg that had a channel (switch_ivr_originate.c, originate_causes)
	all  string // of the whole
	sip  int
}

// readCauses reads them from the completion of a bridge.
func readCauses(done attributes) roundCauses {
	c := roundCauses{each: done.Variable("originate_causes"), all: done.Variable("originate_disposition")}
	if c.all == "" || c.all == "SUCCESS" {
		c.all = cmp.Or(done.Variable("last_bridge_hangup_cause"), causeNormal)
	}
	if c.all == done.Variable("last_bridge_hangup_cause") {
		// Otherwise it is what remains of an earlier bridge.
		c.sip = protocolStatus(done.Variable("last_bridge_proto_specific_hangup_cause"))
	}
	return c
}

// neverWas says that the switch made no channel for a leg: its trunk is not there, or is down.
func (c roundCauses) neverWas(l *leg) bool {
	if strings.Contains(c.each, l.row.ChannelID) {
		return false
	}
	switch c.all {
	case causeNoGateway, causeGatewayDown, causeNoProfile:
		return true
	}
	return c.each != ""
}

// of is the cause of one leg.
func (c roundCauses) of(l *leg) string {
	if _, rest, ok := strings.Cut(c.each, l.row.ChannelID+";"); ok {
		end := strings.IndexFunc(rest, func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') })
		if end >= 0 {
			rest = rest[:end]
		}
		return cmp.Or(rest, causeNormal)
	}
	switch {
	case !c.neverWas(l):
		return c.all
	case c.all == causeGatewayDown, c.all == causeNoProfile:
		return c.all
	case l.over == nil:
		return causeNoProfile
	default:
		return causeNoGateway
	}
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
		err := s.awaitLegs(roundCauses{all: causeCancel}, time.Time{})
		if !errors.Is(err, errEnding) && !errors.Is(err, errEnded) {
			return err
		}
	}
}
