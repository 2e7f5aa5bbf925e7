package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// flow is where a call stands in what its application told it to do.
type flow struct {
	over       way               // of an outbound call
	sipHeaders map[string]string // of an inbound call

	list  []actions.Action
	raw   json.RawMessage // list, as the cursor stores it
	index int
	at    progress // within the action at index

	begun       bool             // there is a list, or there was one
	waitActions []actions.Action // of the application, for when its answer_url is slow
	fellBack    bool             // the list comes from the application's fallback_actions

	idle   int            // answer_url requests since the last media or input
	last   map[string]any // the result of the last action, as everybody may see it
	result map[string]any // the same, as the application is told
	files  []string       // fetched files that this call holds
}

// requestVariables are the variables that an application is told: the call's own, and the last result.
func (f *flow) requestVariables(call *models.Call) map[string]any {
	variables := make(map[string]any, len(call.Variables)+1)
	for name, value := range call.Variables {
		variables[name] = value
	}
	if f.last != nil {
		variables["last_result"] = f.last
	}
	return variables
}

// outcome is what an action led to.
type outcome struct {
	// result is told to the application; nil when the verb has none.
	result map[string]any
	// masked, when set, is what everybody else is told instead of result: events and later requests.
	masked map[string]any
	// ask makes the result, or the verb itself, a request whose reply replaces the list.
	ask *question
}

// runFlow asks the application and does what it says, or what live control says instead, until the list ends or the call does.
func (s *session) runFlow() error {
	var err error
	if s.adopted && s.flow.begun {
		err = s.goOn()
	} else {
		err = s.firstList()
	}
	for {
		if err != nil && !errors.Is(err, errReplaced) {
			return err
		}
		if err = s.poll(); err != nil {
			return err
		}
		switch {
		case s.replacement != nil:
			list := s.replacement.list
			s.replacement = nil
			s.flow.idle, s.flow.fellBack = 0, false
			err = s.newList(list)
		case s.flow.index >= len(s.flow.list):
			if err = s.endOfList(); err != nil {
				return err
			}
		default:
			err = s.step(s.flow.list[s.flow.index])
		}
	}
}

// endOfList ends the call whose list is done, unless live control has more for it: what it has accepted by now still runs.
func (s *session) endOfList() error {
	return s.endFlow(s.listEnd(), func() bool { return s.flow.index < len(s.flow.list) || s.interrupted() })
}

// firstList gets the list that the call begins with, from live control if that was faster than the answer_url.
func (s *session) firstList() error {
	defer func() { s.flow.begun = true }()
	if err := s.readWaitActions(); err != nil {
		return err
	}
	if s.replacement != nil {
		return errReplaced
	}
	if s.app.AnswerURL == "" {
		reply, err := s.fallBack([]*replyError{{Err: errors.New("the application has no answer_url")}})
		if err != nil {
			return err
		}
		return s.take(reply)
	}
	prepared := s.prepare()
	reply, err := s.fetch(question{kind: askAnswer, url: s.app.AnswerURL, sipHeaders: s.flow.sipHeaders})
	prepared()
	if err != nil {
		return err
	}
	return s.take(reply)
}

// readWaitActions reads the application's wait_actions. They were validated when they were stored.
func (s *session) readWaitActions() error {
	if len(s.app.WaitActions) == 0 {
		return nil
	}
	list, err := actions.Decode(s.app.WaitActions)
	if err != nil {
		s.log.Error("stored wait_actions cannot be read", "application_id", s.app.ID, "error", err)
		return nil
	}
	s.flow.waitActions = list
	return nil
}

// poll handles what is in the mailbox, without waiting.
func (s *session) poll() error {
	return s.await(closed, func() bool { return s.box.empty() })
}

// closed is a channel that is always ready.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// step does the action at the cursor and what follows from it.
func (s *session) step(action actions.Action) error {
	if s.m.cfg.OnAction != nil {
		s.m.cfg.OnAction(s.call.ID, s.flow.index, action)
	}
	if s.resumed == nil {
		s.enter()
	}
	out, err := s.perform(action)
	s.resumed, s.underway, s.next, s.repeats = nil, "", "", false
	if err != nil {
		return err
	}
	q, err := s.finishAction(action, out)
	if err != nil {
		return err
	}
	return s.follow(q)
}

// prepare tells the switch, while the answer_url is asked, what every prompt of an inbound leg needs. The function that it
// returns waits until that is done.
func (s *session) prepare() (wait func()) {
	if s.call.Direction != DirectionInbound {
		return func() {}
	}
	done := make(chan error, 1)
	go func() {
		ctx, cancel := s.command()
		defer cancel()
		done <- s.node.sw.SetVariable(ctx, s.channel, terminatorsVariable, noTerminators)
	}()
	return func() {
		if err := <-done; err == nil {
			s.terms = noTerminators
		}
	}
}

// take makes a reply the call's list. What live control appended before there was one comes after it.
func (s *session) take(reply *actions.Reply) error {
	s.setVariables(reply.Variables)
	list := reply.Actions
	if len(s.appended) > 0 {
		list = join(list, s.appended)
		s.appended = nil
	}
	return s.newList(list)
}

// newList makes a list the call's, from its beginning.
func (s *session) newList(list []actions.Action) error {
	s.flow.at = progress{}
	return s.setList(list, 0)
}

// setList makes a list the call's, to go on at an index.
func (s *session) setList(list []actions.Action, index int) error {
	raw, err := actions.Encode(list)
	if err != nil {
		return fmt.Errorf("store the list: %w", err)
	}
	s.flow.list, s.flow.raw, s.flow.index = list, raw, index
	s.flow.at.changed = true
	if s.replacement == nil && len(s.appended) == 0 {
		s.orders.take()
	}
	s.count()
	return nil
}

// setVariables merges variables into the call's. They are stored with the next change of the call.
func (s *session) setVariables(variables map[string]string) {
	if len(variables) == 0 {
		return
	}
	merged := make(map[string]string, len(s.call.Variables)+len(variables))
	maps.Copy(merged, s.call.Variables)
	maps.Copy(merged, variables)
	s.call.Variables = merged
	s.flow.at.changed = true
}

// follow goes on after an action: with the next one, or with what the application says to its result. Nobody is asked what
// follows an action that live control interrupted.
func (s *session) follow(q *question) error {
	if s.interrupted() {
		s.pass()
		return errReplaced
	}
	if q == nil {
		s.pass()
		return nil
	}
	reply, err := s.fetch(*q)
	if errors.Is(err, errReplaced) {
		s.pass()
	}
	if err != nil {
		return err
	}
	if len(reply.Actions) == 0 {
		// Nothing new: the list goes on.
		s.setVariables(reply.Variables)
		s.pass()
		return nil
	}
	return s.take(reply)
}

// pass leaves the action at the cursor behind.
func (s *session) pass() {
	s.flow.index++
	s.flow.at = progress{changed: true}
	s.count()
}

// finishAction notes that the action at the cursor is done: its result is the last one, and the event that tells of it is written with the
// next change, as is what the result asks the application.
func (s *session) finishAction(action actions.Action, out outcome) (*question, error) {
	s.reportAction(action, out)
	q := out.ask
	if result := s.flow.result; result != nil {
		ref := action.Meta().ResultURL
		if ref == "" && action.Verb() == "gather" {
			ref = s.app.AnswerURL
		}
		if ref != "" {
			target, err := resolve(s.app.AnswerURL, ref)
			if err != nil {
				return nil, err
			}
			q = &question{kind: askResult, url: target, result: result}
		}
	}
	s.flow.at.done, s.flow.at.ask, s.flow.at.changed = true, q, true
	// What nobody but the application may know is not stored: should it not be told, the action is repeated.
	s.flow.at.again = q != nil && out.masked != nil
	return q, nil
}

// reportAction tells of the action at the cursor.
func (s *session) reportAction(action actions.Action, out outcome) {
	done := map[string]any{"index": s.flow.index, "action": action.Verb()}
	if id := action.Meta().ID; id != "" {
		done["id"] = id
	}
	if out.result == nil && out.ask == nil && action.Meta().ResultURL != "" {
		// A verb that has no result of its own still reports that it is done.
		out.result = map[string]any{"outcome": "done"}
	}
	s.flow.result = out.result
	if out.result == nil {
		s.note("call.action_completed", done)
		return
	}
	shown := out.result
	if out.masked != nil {
		shown = out.masked
	}
	told := maps.Clone(done)
	told["result"] = maps.Clone(shown)
	s.note("call.action_completed", told)
	maps.Copy(out.result, done)
	if out.masked != nil {
		maps.Copy(out.masked, done)
	}
	s.flow.last = shown
}

// listEnd is how a call ends whose application has nothing more to say: an answered one is done, a caller who was never
// answered is refused with 480.
func (s *session) listEnd() intent {
	return intent{
		reason: ReasonCompleted, source: SourceActions, status: StatusRejected, cause: s.quietCause(), sip: 480,
	}
}

// quietCause ends an answered call normally and refuses an unanswered one as unavailable.
func (s *session) quietCause() string {
	if s.answered {
		return causeNormal
	}
	return refusals[480]
}

// media runs an application that the caller hears or that listens to the caller. It answers the call when nobody has.
func (s *session) media(app esl.App, build error, terminators string, early bool) (*esl.Event, error) {
	return s.mediaUntil(app, build, terminators, early, s.breakOff)
}

// mediaUntil is media for applications that something else than a break ends.
func (s *session) mediaUntil(app esl.App, build error, terminators string, early bool, stop func(ctx context.Context) error) (*esl.Event, error) {
	if build != nil {
		return nil, build
	}
	s.flow.idle = 0
	id, err := s.beginWith(app, s.along)
	s.along = nil
	if err != nil {
		return nil, err
	}
	if err := s.open(early); err != nil {
		return nil, err
	}
	if err := s.setTerminators(terminators); err != nil {
		return nil, err
	}
	return s.executeUntil(id, app, stop)
}

// open makes sure that media flows: it answers an inbound call, or opens early media.
func (s *session) open(early bool) error {
	if s.answered || s.call.Direction == DirectionOutbound {
		return nil
	}
	if early {
		if s.early {
			return nil
		}
		_, err := s.execute(esl.NewEventUUID(), esl.PreAnswer())
		s.early = err == nil
		return err
	}
	return s.answer(esl.NewEventUUID())
}

// answer answers an inbound call, capped in the switch first: it must never be up without a limit, even if we die now.
func (s *session) answer(id string) error {
	if s.answered {
		return nil
	}
	if err := s.capCall(); err != nil {
		return err
	}
	if _, err := s.execute(id, esl.Answer()); err != nil {
		return err
	}
	if !s.answered && s.interrupted() {
		return errReplaced // broken off before its turn came: whatever needs it next answers
	}
	if !s.answered {
		s.log.Warn("the switch did not answer the call")
		s.ask(intent{reason: ReasonInternalError, source: SourcePlatform, status: StatusFailed, cause: causeTempFailure, sip: http.StatusServiceUnavailable})
		return errEnding
	}
	return nil
}

// The channel variable that says which digits end a prompt, and its values. FreeSWITCH's default is that * does.
const (
	terminatorsVariable = "playback_terminators"
	noTerminators       = "none"
	anyTerminators      = "any"
)

func (s *session) setTerminators(value string) error {
	if s.terms == value {
		return nil
	}
	err := s.order("set terminators", func(ctx context.Context) error {
		return s.node.sw.SetVariable(ctx, s.channel, terminatorsVariable, value)
	})
	if err == nil {
		s.terms = value
	}
	return err
}
