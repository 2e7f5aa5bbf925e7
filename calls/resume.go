package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// A call outlives its controller: the switch plays, records, gathers and bridges on by itself, and parks the channel when it is done. The
// next controller of the node gives every call whose channel lives a session again, which goes on from the stored cursor:
//
//	cursor                                what the session does
//	no list                               asks the answer_url, for the first time or once more
//	an action that was not begun          does it
//	an application that the channel       waits for its end, with a marker queued behind it, and reads from the channel what it
//	  bears the trace of                  brought: digits, the recording, how the bridge went
//	an application that it does not bear  sends it: the first controller died before it could
//	an action that is done                goes on behind it; a question to the application that had no answer is asked again
//
// So nothing is heard, asked, dialled or recorded twice because a controller died, but for what docs/guarantees.md lists.

// resumption is the application that an earlier controller had begun last.
type resumption struct {
	event string
	ran   bool // the channel was given it
}

// estate is what the database holds of calls that an earlier controller has left, read for all at once.
type estate struct {
	apps  map[string]*models.Application
	tapes map[string][]*recording
	legs  map[string][]models.Leg
}

// readEstate reads what calls of the node need to go on. Nobody else changes it: the node's lease is ours.
func (n *node) readEstate(ctx context.Context, calls []*models.Call) (*estate, error) {
	e := &estate{apps: map[string]*models.Application{}, tapes: map[string][]*recording{}, legs: map[string][]models.Leg{}}
	if len(calls) == 0 {
		return e, nil
	}
	store := n.m.cfg.Store
	for _, call := range calls {
		if e.apps[call.ApplicationID] != nil {
			continue
		}
		app, err := store.ApplicationByID(ctx, call.ApplicationID)
		if errors.Is(err, models.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("take over call %q: %w", call.ID, err)
		}
		e.apps[app.ID] = app
	}
	tapes, err := store.LiveRecordings(ctx, n.row.ID)
	if err != nil {
		return nil, err
	}
	for _, row := range tapes {
		e.tapes[row.CallID] = append(e.tapes[row.CallID], &recording{row: row})
	}
	legs, err := store.LiveLegs(ctx, n.row.ID)
	if err != nil {
		return nil, err
	}
	for _, leg := range legs {
		e.legs[leg.CallID] = append(e.legs[leg.CallID], leg)
	}
	return e, nil
}

// takeOver gives calls of an earlier controller their sessions. All are known before the first of them runs: they may have to do with each
// other.
func (n *node) takeOver(calls []*models.Call, left *estate) {
	var sessions []*session
	now := n.m.cfg.Store.Now()
	for _, call := range calls {
		call.Fence = n.row.LeaseToken // not what the row says: another may have taken the node since
		s := newSession(n, call.ChannelID)
		s.adopted, s.since, s.purse.counted = true, now, false
		s.setCall(call)
		if err := n.m.register(s); err != nil {
			n.log.Error("call of an earlier controller not taken over", "call_id", call.ID, "fs_uuid", call.ChannelID, "error", err)
			continue
		}
		s.inherit(left)
		sessions = append(sessions, s)
	}
	for _, s := range sessions {
		s.log.Info("call of an earlier controller taken over", "status", s.call.Status)
		go s.run()
	}
}

// resume reads where the call stands, on the switch and in the database, and brings the two together.
func (s *session) resume() error {
	before := s.call.Status
	if s.app == nil {
		return fmt.Errorf("take the call over: its application %q: %w", s.call.ApplicationID, models.ErrNotFound)
	}
	recorded := len(s.tapes) > 0
	var err error
	if s.later, err = readIntent(s.call.Cursor.Later); err != nil {
		return err
	}
	if s.asked, err = readIntent(s.call.Cursor.Ending); err != nil {
		return err
	}
	channel, err := s.readChannel()
	if err != nil {
		return err
	}
	s.restoreChannel(channel)
	if err := s.restoreFlow(channel); err != nil {
		return err
	}
	if s.asked != nil {
		return errEnding
	}
	if err := s.takeOrders(); err != nil {
		return err
	}
	if channel.Get("Answer-State") == "answered" {
		if err := s.handleAnswer(microTime(channel.Get("Caller-Channel-Answered-Time"))); err != nil {
			return err
		}
	}
	if err := s.restoreCap(); err != nil {
		return err
	}
	if s.call.Direction == DirectionOutbound {
		err := s.overTrunks(func() error { return s.await(nil, func() bool { return s.answered && s.parked }) })
		if err != nil {
			return err
		}
	}
	if before != StatusInProgress {
		return nil
	}
	if err := s.concludeDetection(); err != nil {
		return err
	}
	if s.call.Record && !recorded {
		return s.recordAnew()
	}
	return nil
}

// inherit takes over the application, the recordings and the parties of the call. It may be in a conference or a queue.
func (s *session) inherit(left *estate) {
	s.app, s.tapes, s.grouped = left.apps[s.call.ApplicationID], left.tapes[s.call.ID], true
	for _, tape := range s.tapes {
		tape.background, tape.masked = true, tape.row.Masked
	}
	s.restoreLegs(left.legs[s.call.ID])
}

// takeOrders receives the commands that the call was given and that have had no effect yet. It waits for a database that is away: the list might come
// to its end meanwhile, and an end that is written later does not look for commands (endFlow).
func (s *session) takeOrders() error {
	var waiting []message
	err := s.lookUp("read the commands of the call", func(ctx context.Context) (err error) {
		waiting, err = s.m.pendingCommands(ctx, s.call.ID)
		return err
	})
	if err != nil {
		return err
	}
	for _, m := range waiting {
		s.box.put(m)
	}
	return nil
}

// restoreChannel takes over what the channel says of itself.
func (s *session) restoreChannel(channel *esl.Event) {
	state := channel.Get("Answer-State")
	s.answered = s.call.Status == StatusInProgress
	s.parked = s.call.Direction == DirectionInbound || s.answered || state == "answered"
	s.early = state == "early"
	s.rung = s.early || state == "ringing"
	s.terms = channel.Variable(terminatorsVariable)
	if channel.Variable("playback_delimiter") == esl.PromptDelimiter {
		s.promptVoice = channel.Variable("tts_voice")
	}
	s.movable = channel.Variable("max_session_transfers") == manyTransfers
	s.bridged = channel.Variable("continue_on_fail") == "true" && channel.Variable("hangup_after_bridge") == "false"
	s.conferred = channel.Variable("hangup_after_conference") != ""
	if s.call.Direction == DirectionInbound {
		s.flow.sipHeaders = sipHeaders(channel)
	}
}

// restoreFlow takes over the cursor, and the parties that the call has dialled.
func (s *session) restoreFlow(channel *esl.Event) error {
	c, f := s.call.Cursor, &s.flow
	f.last, f.idle, f.fellBack = c.Last, c.Idle, c.FellBack
	if len(c.List) == 0 {
		return nil
	}
	list, err := actions.Decode(c.List)
	if err != nil {
		return fmt.Errorf("read the stored list: %w", err)
	}
	f.list, f.raw, f.index, f.begun = list, c.List, c.Index, true
	f.at = progress{step: c.Step, event: c.EventUUID, application: c.Application, state: c.State, done: c.Done}
	if c.BegunAt != nil {
		f.at.begunAt = *c.BegunAt
	}
	if len(c.Ask) > 0 {
		var ask storedQuestion
		if err := json.Unmarshal(c.Ask, &ask); err != nil {
			return fmt.Errorf("read the question: %w", err)
		}
		f.at.ask = &question{kind: ask.Kind, url: ask.URL, result: ask.Result}
	}
	if !c.Done {
		s.repeats = true
		if c.Begun {
			s.resumed = &resumption{event: c.EventUUID, ran: took(channel, c.EventUUID, c.Application)}
		}
	}
	s.count()
	return nil
}

// restoreLegs follows the parties whose end nobody has told of.
func (s *session) restoreLegs(rows []models.Leg) {
	for _, row := range rows {
		if row.Status == models.LegEnded {
			continue
		}
		l := &leg{row: row}
		l.restoreTimes()
		s.followLeg(l)
	}
}

// goOn goes on with a list that an earlier controller had begun.
func (s *session) goOn() error {
	if err := s.readWaitActions(); err != nil {
		return err
	}
	if s.flow.at.done {
		return s.follow(s.flow.at.ask)
	}
	if err := s.poll(); err != nil {
		return err
	}
	if s.interrupted() && s.flow.index < len(s.flow.list) && s.holdsChannel() {
		// Live control has another list by now: the action gives up what it has.
		return s.step(s.flow.list[s.flow.index])
	}
	return nil
}

// holdsChannel says whether the action at the cursor has something that must be ended before another one begins: an application that
// runs, a party, a place in a queue or a conference.
func (s *session) holdsChannel() bool {
	switch s.flow.list[s.flow.index].(type) {
	case *actions.Enqueue, *actions.Dequeue, *actions.Conference:
		return true
	}
	return s.resumed != nil && s.resumed.ran
}

// concludeDetection ends a machine detection that was under way: what it has heard by now tells nothing.
func (s *session) concludeDetection() error {
	if !s.call.Cursor.Detecting && (len(s.call.MachineDetection) == 0 || s.call.AnsweredBy != "") {
		return nil
	}
	return s.change("call.machine_detected", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		call.AnsweredBy = answeredUnknown
		if err := tx.UpdateCall(ctx, call, "answered_by"); err != nil {
			return err
		}
		return emit(ctx, tx, call, "call.machine_detected", map[string]any{"answered_by": answeredUnknown, "beep": false, "after_ms": int64(0)})
	})
}

// recordAnew begins the recording of the whole call where an earlier controller has died between the answer and that.
func (s *session) recordAnew() error {
	var rows []models.Recording
	err := s.lookUp("read the recordings", func(ctx context.Context) (err error) {
		rows, err = s.m.cfg.Store.RecordingsOfCall(ctx, s.call.CustomerID, s.call.ID)
		return err
	})
	if err != nil || len(rows) > 0 {
		return err
	}
	return s.recordCall()
}

// testimony is what a CDR says of a channel that has ended, and when it did; nil without one.
func (s *session) testimony(channel string) (facts *hangupFacts, ended time.Time, err error) {
	var cdr *models.CDR
	err = s.lookUp("read the CDR", func(ctx context.Context) (err error) {
		cdr, err = s.m.cfg.Store.CDR(ctx, s.node.row.ID, channel)
		return err
	})
	switch {
	case errors.Is(err, models.ErrNotFound):
		if cdr = s.node.bringCDR(s.m.ctx, channel); cdr == nil {
			return nil, time.Time{}, nil
		}
	case err != nil:
		return nil, time.Time{}, err
	}
	found := factsOf(cdr)
	return &found, cdr.EndedAt, nil
}
