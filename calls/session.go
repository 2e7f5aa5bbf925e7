package calls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// How the steps of a session end early. None is a failure of the step itself.
var (
	// errEnded: the channel is gone.
	errEnded = errors.New("the channel has ended")
	// errEnding: the call is to be ended; session.asked says why.
	errEnding = errors.New("the call is to be ended")
	// errReplaced: what the step waited for is no longer wanted, because session.interrupted. Nothing runs on the channel.
	errReplaced = errors.New("the step was interrupted")
	// errAbandoned: the manager stops at once, or another controller has written the call's end. The call is left alone.
	errAbandoned = errors.New("the call is left to another controller")
)

// session is one call. Its goroutine owns every field below box.
type session struct {
	m       *Manager
	node    *node
	channel string
	box     *mailbox
	gone    chan struct{} // closed when the session is forgotten

	log  *slog.Logger
	call *models.Call        // nil until an inbound leg is admitted
	app  *models.Application // who answers for the call

	park     *esl.Event // the event that announced an inbound leg
	since    time.Time  // when the session began, by the store's clock
	adopted  bool       // the call is an earlier controller's: the session goes on with it
	parked   bool
	bridged  bool // the channel's variables for bridges are set
	rung     bool // the caller was told that it rings
	early    bool // early media is open
	answered bool

	attempted time.Time     // when the channel of an outbound call was given to it
	limit     time.Duration // how long that may ring, where it is not the first
	dialedAt  time.Time     // when the switch took that, until the other side is first heard of
	job       *esl.Job      // the originate of an outbound call
	jobDone   bool
	jobErr    error
	stopJob   func()

	asked  *intent          // why we end the call
	ended  bool             // the channel is gone
	facts  hangupFacts      // what the switch said about it
	lost   bool             // the node is gone, and nobody said anything
	kills  int              // how often we tried to end the channel
	later  *intent          // a hangup that an action scheduled on the switch
	legs   map[string]*leg  // other parties, by channel; those that have ended too, until their dial is over
	onJoin func(*leg) error // what a dial does when a party is joined
	tapes  []*recording     // recordings that have not ended

	detections  []*detection // that have no verdict yet, or wait for a beep
	flow        flow
	replacement *directive       // the list that live control wants run instead, until the flow takes it
	appended    []actions.Action // what live control wants run after the first list, before there is one
	until       func() bool      // ends the wait actions that run, nil while none do
	room        *room            // the conference that the call is in
	grouped     bool             // the call was in a conference or a queue
	conferred   bool             // the channel's variables for conferences are set
	ticket      *ticket          // the queue that the call waits in
	taking      *taking          // the queue that the call takes from
	looked      bool             // the connection to the node was rebuilt since this was last made false
	reparked    bool             // the channel has parked since this was last made false
	notes       []note           // events to be written with the next change of the call
	backlog     backlog          // changes that wait for the database
	setUp       func()           // tells that a new inbound call has been admitted or refused
	orders      orders           // commands that were taken and are not deleted yet
	intake      sync.Mutex       // held while commands are put into the mailbox
	restored    bool             // that an adopted session takes commands; guarded by intake
	dial        *models.Command  // by which the call is yet to be dialled, nil when it was
	unplaced    atomic.Bool      // the switch was surely not told to dial yet: that it has no channel says nothing
	claiming    bool             // dial may be claimed already: the word of it was lost
	received    atomic.Int64     // position of the last command that was
	pending     atomic.Int64     // how many actions wait, for the bound on live control
	resumed     *resumption      // what an earlier controller had begun last, until the flow comes to it
	repeats     bool             // an earlier controller may have done the action at the cursor, or a part of it
	underway    string           // Event-UUID of an application that an earlier controller sent, until it is waited for
	along       transaction      // what belongs in the transaction that begins the next application
	next        string           // Event-UUID promised to the next application of the list
	waiting     bool             // wait actions run
	unsure      bool             // whether the switch has the application that was sent last
	running     string           // Event-UUID of the application that runs, "" for none
	marker      string           // Event-UUID of what was queued behind it after a reconnect
	completed   *esl.Event       // its completion
	terms       string           // the channel's playback_terminators, as far as we set them
	promptVoice string           // the voice of the channel's prompts, "" before the first
	movable     bool             // the channel may be transferred as often as it takes
	private     bool             // a sensitive gather runs: nobody is told what is typed
	keys        string           // that the call's party has pressed since listening began

	purse     purse
	questions []models.AnswerRequest // requests to the application, to be written with the next change of the call
}

func newSession(n *node, channel string) *session {
	box := newMailbox(channel)
	box.total = &n.m.load.mail
	return &session{m: n.m, node: n, channel: channel, box: box, gone: make(chan struct{}), legs: map[string]*leg{}, purse: purse{counted: true}, log: n.log.With("fs_uuid", channel)}
}

// setCall gives the session its call.
func (s *session) setCall(call *models.Call) {
	s.call = call
	s.relog()
}

// relog names the call as it is now in whatever is logged of it.
func (s *session) relog() {
	s.log = s.node.log.With("fs_uuid", s.channel).With(logged(s.call)...)
	if s.park != nil {
		s.log = s.log.With("sip_call_id", s.park.Variable("sip_call_id"))
	}
}

// logged are the fields by which a call is found in the log, docs/metrics.md.
func logged(call *models.Call) []any {
	fields := []any{"call_id", call.ID, "customer_id", call.CustomerID, "application_id", call.ApplicationID}
	if call.TrunkID != nil {
		fields = append(fields, "trunk_id", *call.TrunkID)
	}
	if call.DIDID != nil {
		fields = append(fields, "did_id", *call.DIDID)
	}
	return fields
}

// run is the life of the call, from registration to the terminal event. The caller has registered the session.
func (s *session) run() {
	defer s.m.forget(s)
	defer func() {
		for channel := range s.legs {
			s.m.forgetLeg(channel)
		}
	}()
	defer func() {
		if s.stopJob != nil {
			s.stopJob()
		}
	}()
	defer s.stopWatchingCap()
	var err error
	defer s.recovered(&err) // the watchdog ends the call
	err = s.live()
	s.box.close()
	if s.call == nil {
		return // an inbound leg that was refused
	}
	if !s.ended && !errors.Is(err, errAbandoned) {
		err = s.bringDown()
	}
	s.dropDetections()
	if !s.ended && errors.Is(err, errAbandoned) {
		s.log.Info("call is left to the next controller")
		return // with the files that the switch may be playing
	}
	if s.ended {
		err = s.finish()
	}
	switch {
	case errors.Is(err, errAbandoned):
		s.log.Info("call left to the next controller", "status", s.call.Status)
	case err != nil && !errors.Is(err, errEnded):
		s.log.Error("call left without its end", "error", err)
	}
	s.m.media.release(s.flow.files)
}

// recovered, deferred, bounds a fault of ours to the call that has it: the others of this process go on.
func (s *session) recovered(err *error) {
	fault := recover()
	if fault == nil {
		return
	}
	s.log.Error("panic in a call", "panic", fmt.Sprint(fault), "stack", string(debug.Stack()))
	s.ask(intent{reason: ReasonInternalError, source: SourcePlatform, status: StatusFailed, cause: causeTempFailure, sip: 503})
	*err = errEnding
}

// live runs the call until its channel ends or it is to be ended.
func (s *session) live() (err error) {
	defer s.recovered(&err)
	switch {
	case s.adopted:
		err = s.resume()
	case s.park != nil:
		err = s.admit()
	default:
		if s.box.leaving() {
			return s.passOn()
		}
		err = s.overTrunks(s.dialOut)
	}
	if err != nil {
		return err
	}
	if s.adopted && s.flow.begun {
		// An earlier controller has begun what begins with the answer.
	} else if err := s.detectAtAnswer(); err != nil {
		return err
	}
	err = s.runFlow()
	if errors.Is(err, errEnded) || errors.Is(err, errEnding) || errors.Is(err, errAbandoned) {
		return err
	}
	if s.m.ctx.Err() != nil {
		return errAbandoned
	}
	s.log.Error("call ended for a failure of ours", "error", err)
	s.ask(intent{reason: ReasonInternalError, source: SourcePlatform, status: StatusFailed, cause: causeTempFailure, sip: 503})
	return errEnding
}

// ask notes why the call is to be ended. The first wish stands.
func (s *session) ask(why intent) {
	if s.asked == nil {
		s.asked = &why
	}
}

// await takes messages until the condition holds or wake is closed; either is success. It returns an error when the call
// is over, or is to be.
func (s *session) await(wake <-chan struct{}, done func() bool) error {
	for {
		for {
			if done != nil && done() {
				return nil
			}
			m, overflowed, ok := s.box.take()
			if !ok {
				break
			}
			if overflowed {
				s.log.Error("mailbox overflow: the call cannot be steered any more")
				m = message{ending: &intent{reason: ReasonInternalError, source: SourcePlatform, status: StatusFailed, cause: causeTempFailure, sip: 503}}
			}
			if err := s.handle(m); err != nil {
				return err
			}
		}
		select {
		case <-s.box.ready:
		case <-wake:
			return nil
		case <-s.m.ctx.Done():
			return errAbandoned
		}
	}
}

// pause is await for a length of time.
func (s *session) pause(d time.Duration, done func() bool) error {
	wake := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(wake) })
	defer timer.Stop()
	return s.await(wake, done)
}

// handle does what a message means for the call as a whole.
func (s *session) handle(m message) error {
	switch {
	case m.leave:
		return errAbandoned
	case m.event != nil:
		return s.handleEvent(m.event)
	case m.ending != nil:
		if s.asked != nil {
			return nil
		}
		s.ask(*m.ending)
		return errEnding
	case m.job != nil:
		if m.job.channel == s.channel {
			s.jobDone, s.jobErr = true, m.job.err
		}
		return nil
	case m.up != nil:
		s.looked = true
		if s.taking != nil {
			s.taking.look = true
		}
		return s.handleUp(*m.up)
	case m.broken:
		// A break also drops what is queued and has not begun, without a word (switch_ivr.c, switch_core_session_flush_private_events):
		// the playback itself, or the marker behind one that an earlier controller began.
		if s.running != "" && s.completed == nil && !s.unsure {
			return s.mark()
		}
		return nil
	case m.lost:
		if !s.ended { // otherwise the switch has had its say
			s.ended, s.lost = true, true
		}
		return errEnded
	case m.ring:
		return s.ring()
	case m.directed != nil:
		return s.direct(m.directed)
	case m.expired != nil:
		return s.expire(m.expired)
	case m.screened != nil:
		return s.judgeLeg(m.screened)
	case m.bond != nil:
		s.handleBond(m.bond)
	case m.group != nil:
		return s.handleGroup(m.group)
	case m.due:
		return s.due()
	case m.held != "":
		s.flow.files = append(s.flow.files, m.held)
	}
	return nil
}

func (s *session) handleEvent(ev *esl.Event) error {
	if ev.ChannelID() != s.channel {
		return s.handleLeg(ev)
	}
	switch ev.Name() {
	case eventProgress, eventProgressMedia:
		s.early = s.early || ev.Name() == eventProgressMedia
		s.setUpDone()
		return s.move(onProgress, nil)
	case eventAnswer:
		s.setUpDone()
		return s.handleAnswer(ev.Time())
	case eventPark:
		s.parked, s.reparked = true, true
	case eventUnbridge:
		s.handleBridge(ev)
	case eventExecuteComplete:
		if id := ev.Get("Application-UUID"); id != "" && (id == s.running || id == s.marker) {
			s.completed = ev
		}
	case eventBridge:
		s.handleBridge(ev)
		if l := s.legs[ev.Get("Other-Leg-Unique-ID")]; l != nil {
			return s.bridgeLeg(l, ev.Time())
		}
	case eventDTMF:
		return s.handleDTMF(ev)
	case eventRecordStop:
		return s.handleRecordStop(ev)
	case eventCustom:
		return s.handleCustom(ev)
	case eventHangupComplete:
		s.ended = true
		s.facts = readFacts(ev)
		s.heard(ev)
		return errEnded
	}
	return nil
}

// handleAnswer makes the call in_progress and starts what begins with the answer.
func (s *session) handleAnswer(at time.Time) error {
	if s.answered {
		return nil
	}
	s.answered = true
	if now := s.m.cfg.Now(); at.IsZero() || at.After(now) {
		at = now
	}
	if err := s.move(onAnswer, func(call *models.Call) { call.AnsweredAt = &at }); err != nil {
		return err
	}
	if s.call.Direction == DirectionOutbound || s.adopted {
		s.capAnswered()
	} else if err := s.capCall(); err != nil { // a dialled party answered it, not we
		return err
	}
	if s.call.Record {
		return s.recordCall()
	}
	return nil
}

// command returns a context for one command to the switch. Commands outlive nothing but the manager's hard stop.
func (s *session) command() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.m.ctx, s.m.cfg.CommandTimeout)
}

// unsent tells whether a command surely never reached the switch: the node was away, or busy with those before it for too long.
func unsent(err error) bool {
	return errors.Is(err, esl.ErrBusy) || errors.Is(err, esl.ErrDown) && !errors.Is(err, esl.ErrNoReply)
}

// order sends one command that is not one of the list's applications. That the channel is gone is no failure: its hangup is on the
// way. One that was not sent, or whose reply was lost or is late, is sent again when the node is there: what is ordered may be done
// twice.
func (s *session) order(what string, send func(ctx context.Context) error) error {
	for {
		ctx, cancel := s.command()
		err := send(ctx)
		cancel()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, esl.ErrNoSuchChannel):
			return s.awaitHangup()
		case unsent(err), errors.Is(err, esl.ErrNoReply):
			if err := s.awaitUp(); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// awaitUp waits until the node is back, or is given up.
func (s *session) awaitUp() error {
	delay := 20 * time.Millisecond
	for {
		if err := s.pause(delay, nil); err != nil {
			return err
		}
		if s.node.connected() && s.node.sw.Up() {
			return nil
		}
		delay = min(2*delay, time.Second)
	}
}

// awaitHangup waits for the last word on a channel that the switch does not know any more.
func (s *session) awaitHangup() error {
	if err := s.pause(s.m.cfg.HangupGrace, nil); err != nil {
		return err
	}
	s.log.Warn("the switch ended the channel without a word")
	s.ended, s.lost = true, true
	return errEnded
}
