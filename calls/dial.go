package calls

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// dialing is one dial or transfer: who is to be called, and how it goes. Parties are called in rounds, each one bridge of the
// switch: all at once or one after the other, and once more those that failed for a reason of their trunk's, on the next trunk.
type dialing struct {
	s    *session
	kind string // models.LegDial or LegTransfer
	a    *actions.Dial
	// announce is heard by the party that answers before it is joined.
	announce []actions.Action

	parties    []*called
	limit      time.Duration
	joined     func(*leg) error // called once a party is joined, and is wanted
	told       bool             // joined was called
	full       bool             // a trunk was passed over that had all the calls that it may have
	bounded    bool             // the customer may have only so many calls
	appBounded bool             // so may the application
	tape       *recording       // of the connection
	group      esl.Group        // what all rounds have in common
	ringback   esl.Ringback
	legs       []*leg // of all rounds, in order
	begins     int    // where the current round's legs begin
	first      int    // party of the current rounds, of a sequential dial
	resumed    []*leg // of the round that an earlier controller had begun, until it is gone on with
}

// called is one target and the ways to reach it by.
type called struct {
	index   int
	target  actions.Target
	ways    []way // nil for a SIP URI
	tried   int
	begun   bool   // it was called over one of them, not only passed over
	refused string // the reason, where the customer's limits do not let it be called
}

// doDial calls the parties and joins the one that answers to the call. Control comes back when it is gone; the list goes on.
func (s *session) doDial(a *actions.Dial) (outcome, error) {
	d := &dialing{s: s, kind: models.LegDial, a: a, limit: a.MaxSeconds}
	failed, err := d.prepare("dial")
	if err != nil || failed {
		return outcome{result: map[string]any{"dial_status": dialFailed, "reason": codeActionFailed, "seconds": 0.0}}, err
	}
	if d.a.Record && !s.call.Record {
		d.joined = d.record
	}
	if err := d.run(); err != nil {
		return outcome{}, err
	}
	return outcome{result: d.result()}, d.stopRecord()
}

// prepare finds the ways to the parties and what will be heard. failed says that something could not be had, which was told.
func (d *dialing) prepare(verb string) (failed bool, err error) {
	for i, target := range d.a.To {
		party := &called{index: i, target: target}
		if target.Number != "" {
			// The seed is that of this target of this dial, for whoever goes on with it.
			seed := fmt.Sprintf("%s %d %d", d.s.call.ID, d.s.flow.index, i)
			if party.ways, err = d.s.waysTo(target.TrunkID, target.Number, d.caller(), seed); err != nil {
				return false, err
			}
		}
		d.parties = append(d.parties, party)
	}
	if err := d.allow(verb); err != nil {
		return false, err
	}
	if failed, err = d.prepareRingback(verb); err != nil || failed {
		return failed, err
	}
	if failed, err = d.prepareQuestion(verb); err != nil || failed {
		return failed, err
	}
	return false, d.recall()
}

// defaultRingback is what an answered caller hears while a party rings that sends nothing itself.
const defaultRingback = "ringback_us"

// prepareRingback decides what the caller hears while the parties ring.
func (d *dialing) prepareRingback(verb string) (failed bool, err error) {
	name := d.a.Ringback
	// With several parties there is no one whose sound could be passed on. The sound of one that is asked something would end the
	// question before it is put.
	d.group.IgnoreEarlyMedia = name != "" || len(d.parties) > 1 || d.a.Confirm != nil || d.a.MachineDetection != nil || len(d.announce) > 0
	if name == "" || name == actions.RingbackNone {
		return false, nil
	}
	if spec, ok := actions.ToneSpec(name); ok {
		d.ringback, err = esl.ToneRingback(spec)
		return false, err
	}
	files, failure, err := d.s.fetchFiles([]string{name})
	if err != nil {
		return false, err
	}
	if failure != nil {
		return true, d.s.failVerb(verb, soundCode(failure), "ringback", failure.Error())
	}
	d.ringback, err = esl.FileRingback(files[0])
	return false, err
}

// prepareQuestion builds what the party hears before it is joined.
func (d *dialing) prepareQuestion(verb string) (failed bool, err error) {
	voice := d.s.m.cfg.Voice
	switch {
	case d.a.Confirm == nil && d.a.MachineDetection != nil && !d.a.MachineDetection.Async:
		d.group.Hold = d.a.MachineDetection.Timeout + time.Second
	case d.a.Confirm != nil:
		heard, failed, err := d.s.promptFor(verb, d.a.Confirm.Prompt, "confirm.prompt")
		if err != nil || failed {
			return failed, err
		}
		d.group.Confirm = &esl.Confirm{
			Key: d.a.Confirm.Key, Prompt: heard, Timeout: d.a.Confirm.Timeout,
			Engine: d.s.m.cfg.VoiceEngine, Voice: firstVoice(d.a.Confirm.Prompt, voice),
		}
	case len(d.announce) > 0:
		heard, failed, err := d.s.promptFor(verb, d.announce, "announce")
		if err != nil || failed {
			return failed, err
		}
		d.group.Announce = &esl.Announcement{
			Prompt: heard, Engine: d.s.m.cfg.VoiceEngine, Voice: firstVoice(d.announce, voice), Limit: announceLimit,
		}
	}
	return false, nil
}

// announceLimit ends a party that has not heard its announcement out.
const announceLimit = 3 * time.Minute

// run calls the parties, round by round, until one was joined, nobody is left, or the call is interrupted.
func (d *dialing) run() error {
	if err := d.s.setBridgeVariables(); err != nil {
		return err
	}
	if d.a.Strategy == actions.StrategySequential {
		for i := d.first; i < len(d.parties); i++ {
			d.first = i
			if over, err := d.rounds(d.parties[i : i+1]); err != nil || over {
				return err
			}
		}
		return nil
	}
	_, err := d.rounds(d.parties)
	return err
}

// rounds calls parties at once, and those that failed for a reason of their trunk's on the next one. over says that the dial is
// done, whoever else there might be to call.
func (d *dialing) rounds(parties []*called) (over bool, err error) {
	for {
		legs := d.resumed
		if legs == nil {
			legs = d.callable(parties)
		}
		if d.resumed == nil {
			if legs, err = d.fund(legs); err != nil {
				return true, err
			}
		}
		if len(legs) == 0 {
			return false, nil
		}
		switch err := d.round(legs); {
		case errors.Is(err, models.ErrTrunkFull):
			d.passOver(legs, err)
			continue
		case errors.Is(err, models.ErrLimit):
			if err := d.makeDo(legs, err); err != nil {
				return true, err
			}
			continue
		case err != nil:
			return true, err
		}
		if d.s.interrupted() || d.winner() != nil {
			return true, nil
		}
		parties = again(parties, legs)
	}
}

// callable makes the legs of a round: one for each party that there is a way to.
func (d *dialing) callable(parties []*called) []*leg {
	var legs []*leg
	for _, party := range parties {
		if l := d.legTo(party); l != nil {
			legs = append(legs, l)
		}
	}
	return legs
}

// legTo is a leg to a party by the next way, nil where there is none.
func (d *dialing) legTo(party *called) *leg {
	var over *way
	switch {
	case party.refused != "":
		return nil
	case party.target.Number == "":
		if party.tried > 0 {
			return nil
		}
	case party.tried == len(party.ways):
		return nil
	default:
		over = &party.ways[party.tried]
	}
	party.tried++
	l := d.s.newLeg(d.kind, party.target, over)
	l.party, l.limit = party, d.limit
	l.confirms, l.held = d.group.Confirm != nil, d.group.Hold > 0
	l.asks = l.confirms || l.held || d.group.Announce != nil
	l.detect = d.a.MachineDetection
	return l
}

// passOver takes back a round that was not begun because a trunk has all the calls that it may have, or would have: those for whom there is no room
// are called over the next one.
func (d *dialing) passOver(legs []*leg, err error) {
	var full *models.LimitError
	errors.As(err, &full)
	d.s.log.Info("trunk takes no more calls now", "trunk_id", full.ID, "limit", full.Limit)
	d.legs, d.full = d.legs[:len(d.legs)-len(legs)], true
	room := full.Room
	for _, l := range legs {
		again := l.over == nil || l.over.trunk.ID != full.ID
		if !again && room > 0 {
			again, room = true, room-1
		}
		if again {
			l.party.tried--
		}
	}
}

// again are the parties that failed for a reason of their trunk's: the only ones that another trunk may reach. A party that was
// busy, declined or did not answer is never called again.
func again(parties []*called, legs []*leg) []*called {
	var left []*called
	for _, party := range parties {
		for _, l := range legs {
			if l.party == party && failsOver(l.row.Reason) {
				left = append(left, party)
			}
		}
	}
	return left
}

// failsOver says whether the next trunk is worth trying after a reason.
func failsOver(reason string) bool {
	switch reason {
	case ReasonTrunkAuthFailed, ReasonCarrierRejected, ReasonCarrierError, ReasonTrunkUnavailable, ReasonCodecMismatch:
		return true
	default:
		return false
	}
}

// round is one bridge: it is over when all its legs are.
func (d *dialing) round(legs []*leg) error {
	s := d.s
	group := d.group
	for _, l := range legs {
		group.Targets = append(group.Targets, d.address(l))
	}
	dial, err := esl.NewDialGroup(group)
	if err != nil {
		return err
	}
	app := esl.Bridge(dial)
	id, err := d.begin(app, legs)
	if err != nil {
		return err
	}
	s.node.pace.count(len(legs))
	if err := d.open(); err != nil {
		return err
	}
	s.onJoin = d.join
	if d.resumed != nil {
		err = d.catchUp()
	}
	var ended *esl.Event
	if err == nil {
		ended, err = s.executeUntil(id, app, s.killLegs)
	}
	s.onJoin = nil
	if err != nil {
		return err // the end of the call ends the legs
	}
	if d.resumed != nil || ended.Get("Application-UUID") != id {
		// The end of the bridge was not heard, nor perhaps those of the legs.
		d.resumed = nil
		if err := s.recallLegs(ended); err != nil {
			return err
		}
	}
	if d.a.AnswerOnBridge && !s.answered && d.winner() != nil {
		// The switch has answered the call; its event is on the way.
		if err := s.pause(s.m.cfg.HangupGrace, func() bool { return s.answered }); err != nil {
			return err
		}
	}
	if err := s.awaitLegs(readCauses(ended), ended.Time()); err != nil {
		return err
	}
	if l := d.winner(); l != nil && d.kind == models.LegTransfer && !d.told {
		// The word that it was joined was lost with a connection; its end remembers it.
		return d.join(l)
	}
	return nil
}

// address is how the switch reaches a leg's party.
func (d *dialing) address(l *leg) esl.Target {
	t := esl.Target{ChannelID: l.row.ChannelID, Timeout: l.target.Timeout, SIPURI: l.target.SIP}
	if l.over != nil {
		t.Gateway, t.Number, t.CallerIDNumber = l.over.trunk.GatewayName, l.over.number, l.over.callerID
		t.Codecs = l.over.trunk.Routing.Codecs
	} else {
		t.Profile, t.CallerIDNumber = d.s.m.cfg.SIPProfile, d.caller()
	}
	return t
}

// caller is the number that the parties are to be shown, empty where there is none.
func (d *dialing) caller() string {
	if d.a.CallerID != "" {
		return d.a.CallerID
	}
	n, ok := switchNumber(d.s.call.From)
	if !ok {
		return ""
	}
	return n
}

// begin stores the legs and the cursor before anything is dialled.
func (d *dialing) begin(app esl.App, legs []*leg) (string, error) {
	s := d.s
	s.flow.idle = 0
	before := s.flow.at
	if d.resumed == nil {
		d.legs = append(d.legs, legs...)
	}
	d.remember(len(d.legs) - len(legs))
	id, err := s.beginWith(app, func(ctx context.Context, tx *models.Store, call *models.Call) error {
		if err := tx.UpdateCall(ctx, call, "granted_seconds", "caps"); err != nil { // see fund
			return err
		}
		for _, l := range legs {
			row := l.row
			if err := tx.SaveLeg(ctx, &row); err != nil {
				return err
			}
			if d.resumed == nil && l.over != nil && l.over.trunk.Limits.Bounded() {
				tx.TakeTrunks(ctx, l.over.trunk.ID)
			}
			d.take(ctx, tx, l)
		}
		return nil
	})
	if errors.Is(err, models.ErrLimit) {
		s.flow.at = before
	}
	if err != nil {
		return "", fmt.Errorf("store the legs: %w", err)
	}
	for _, l := range legs {
		l.party.begun = true
		if l.facts == nil {
			s.followLeg(l)
		}
	}
	return id, nil
}

// open prepares the call's own channel: an unanswered caller hears the other party ring and is answered by it, unless the action
// says otherwise.
func (d *dialing) open() error {
	s := d.s
	if !s.answered && s.call.Direction == DirectionInbound {
		if !d.a.AnswerOnBridge {
			if err := s.answer(esl.NewEventUUID()); err != nil {
				return err
			}
		} else if err := s.capCall(); err != nil { // the switch answers the call by itself
			return err
		}
	}
	ringback := d.ringback
	if d.a.Ringback == "" && (s.answered || s.early) {
		// Whoever has heard a sound of ours hears no ringing of the network's any more.
		spec, _ := actions.ToneSpec(defaultRingback)
		var err error
		if ringback, err = esl.ToneRingback(spec); err != nil {
			return err
		}
	}
	err := s.order("set the ringback", func(ctx context.Context) error { return s.node.sw.SetRingback(ctx, s.channel, ringback) })
	if err != nil {
		return err
	}
	return s.setTerminators(noTerminators)
}

// winner is the leg that was joined, nil while there is none.
func (d *dialing) winner() *leg {
	for _, l := range d.legs {
		if l.facts == nil && l.joined() || l.facts != nil && l.row.DialStatus == dialAnswered {
			return l
		}
	}
	return nil
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
