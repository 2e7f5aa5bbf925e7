package calls

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"time"

	"tandem/actions"
	"tandem/egress"
	"tandem/esl"
	"tandem/models"
	"tandem/webhooks"
)

// What an answer_url is asked: for the first list of a call or a new one, or what follows from a result.
const (
	askAnswer = "answer"
	askResult = "result"
)

// question is one request to an application.
type question struct {
	kind       string
	url        string // absolute
	result     map[string]any
	sipHeaders map[string]string
}

// questionBody is the JSON that an application gets.
type questionBody struct {
	Type       string            `json:"type"`
	RequestID  string            `json:"request_id"`
	Attempt    int               `json:"attempt"`
	Call       any               `json:"call"`
	Variables  map[string]any    `json:"variables"`
	Result     map[string]any    `json:"result,omitempty"`
	SIPHeaders map[string]string `json:"sip_headers,omitempty"`
	// Simulated says that there is no call: a simulation asks.
	Simulated bool `json:"simulated,omitempty"`
}

// attemptsPerURL: one try, and one more where the failure may pass.
const attemptsPerURL = 2

// replyError is why one URL gave no actions. It becomes a call.error event.
type replyError struct {
	URL      string
	Status   int // of the last response, 0 when there was none
	Attempts int
	Retry    bool
	Err      error
}

func (e *replyError) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("answered %d: %s", e.Status, e.Err)
	}
	return e.Err.Error()
}

func (e *replyError) Unwrap() error { return e.Err }

// eventData is what the call.error event says: the URL, the status, for a refused action its index and field, and what
// follows: the next URL while one is left to ask, otherwise then.
func (e *replyError) eventData(left []*replyError, then string) map[string]any {
	if len(left) > 0 {
		then = nextFallbackURL
	}
	data := map[string]any{"code": ReasonAnswerURLFailed, "attempts": e.Attempts, "message": e.Err.Error(), "next": then}
	if e.URL != "" {
		data["url"] = e.URL
	}
	if e.Status != 0 {
		data["status"] = e.Status
	}
	var refused *actions.Error
	if errors.As(e.Err, &refused) {
		data["code"] = "invalid_actions"
		data["message"] = refused.Message
		if refused.Index >= 0 {
			data["index"] = refused.Index
		}
		if refused.Action != "" {
			data["action"] = refused.Action
		}
		if refused.Field != "" {
			data["field"] = refused.Field
		}
		if refused.Path != "" {
			data["path"] = refused.Path
		}
	}
	return data
}

// asker makes the requests of one question. It holds copies of what it needs, because it runs beside the session.
type asker struct {
	m         *Manager
	app       *models.Application
	call      *models.Call
	variables map[string]any
	question  question
	// made are the requests so far, status is that of the last answer, 0 where none came. Only the goroutine that asks changes them.
	made   []models.AnswerRequest
	status int
}

// ask asks the question's URL and then the application's fallback_url. It returns the reply, and why each URL that was
// asked in vain gave none; the reply is nil when all failed.
func (a *asker) ask(ctx context.Context) (*actions.Reply, []*replyError) {
	var failures []*replyError
	id := models.NewID("req_")
	for _, target := range a.targets() {
		reply, failure := a.askURL(ctx, target, id)
		if failure == nil {
			return reply, failures
		}
		failures = append(failures, failure)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failures
}

// targets are the URLs to ask, in order, none twice.
func (a *asker) targets() []string {
	targets := []string{a.question.url}
	if a.app.FallbackURL != "" && a.app.FallbackURL != a.question.url {
		targets = append(targets, a.app.FallbackURL)
	}
	return targets
}

func (a *asker) askURL(ctx context.Context, target, id string) (*actions.Reply, *replyError) {
	for attempt := 1; ; attempt++ {
		begun, started := a.m.cfg.Now(), time.Now()
		reply, failure := a.try(ctx, target, id, attempt)
		took := time.Since(started)
		if failure != nil && errors.Is(failure.Err, context.Canceled) && ctx.Err() != nil {
			failure.Err = errGivenUp
		}
		a.made = append(a.made, a.request(id, target, attempt, begun, took, reply, failure))
		if !errors.Is(ctx.Err(), context.Canceled) { // else the call has ended meanwhile
			a.m.cfg.Observer.AnswerURL(answerURLResult(failure), took)
		}
		if failure == nil {
			return reply, nil
		}
		failure.URL, failure.Attempts = target, attempt
		if !failure.Retry || attempt == attemptsPerURL || ctx.Err() != nil {
			return nil, failure
		}
	}
}

// try makes one request.
func (a *asker) try(ctx context.Context, target, id string, attempt int) (*actions.Reply, *replyError) {
	a.status = 0
	body, err := json.Marshal(questionBody{
		Type: a.question.kind, RequestID: id, Attempt: attempt, Call: webhooks.CallObject(a.call), Variables: a.variables,
		Result: a.question.result, SIPHeaders: a.question.sipHeaders,
		Simulated: a.m.cfg.Simulated,
	})
	if err != nil {
		return nil, &replyError{Err: fmt.Errorf("write the request: %w", err)}
	}
	ctx, cancel := context.WithTimeout(ctx, a.m.cfg.RequestTimeout)
	defer cancel()
	ctx, stop := boundConnect(ctx, a.m.cfg.ConnectTimeout)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return nil, &replyError{Err: fmt.Errorf("make the request: %w", err)}
	}
	now := a.m.cfg.signedAt()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	webhooks.SetHeaders(req.Header, webhooks.Keys(a.app, now), id, now, body)
	resp, err := a.m.cfg.Client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errConnectTimeout) {
			err = cause
		}
		return nil, &replyError{Err: plain(err), Retry: passing(err)}
	}
	defer func() {
		_ = resp.Body.Close()
	}()
	a.status = resp.StatusCode
	return readReply(resp)
}

// errGivenUp: nobody waits for the answer any more.
var errGivenUp = errors.New(models.RequestGivenUp)

// errConnectTimeout: no connection in time.
var errConnectTimeout = errors.New("no connection in time")

// boundConnect cancels a request that has no connection after limit, whatever the client's own limit is.
func boundConnect(ctx context.Context, limit time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(errConnectTimeout) })
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { timer.Stop() }})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// readReply reads the actions out of a response.
func readReply(resp *http.Response) (*actions.Reply, *replyError) {
	fail := func(retry bool, err error) (*actions.Reply, *replyError) {
		return nil, &replyError{Status: resp.StatusCode, Err: err, Retry: retry}
	}
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return &actions.Reply{}, nil
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return fail(false, errors.New("redirects are not followed"))
	case resp.StatusCode < 200 || resp.StatusCode >= 300:
		return fail(slices.Contains(passingStatuses, resp.StatusCode), errors.New("only 2xx is an answer"))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, actions.MaxBytes+1))
	if err != nil {
		return fail(passing(err), fmt.Errorf("read the reply: %w", plain(err)))
	}
	if len(body) > actions.MaxBytes {
		return fail(false, fmt.Errorf("the reply is larger than %d bytes", actions.MaxBytes))
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return &actions.Reply{}, nil
	}
	reply, err := actions.Parse(body)
	if err != nil {
		return fail(false, err)
	}
	return reply, nil
}

// passingStatuses are worth a second try.
var passingStatuses = []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// passing says whether a failed request is worth a second try: connecting failed, or it took too long. An address that we
// refuse to connect to is not.
func passing(err error) bool {
	if errors.Is(err, errConnectTimeout) {
		return true
	}
	if errors.Is(err, egress.ErrBlocked) || errors.Is(err, context.Canceled) {
		return false
	}
	var network net.Error
	if errors.As(err, &network) && network.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// plain strips the method and URL that net/http puts before an error.
func plain(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		if wrapped.Timeout() {
			return fmt.Errorf("no answer in time: %w", wrapped.Err)
		}
		return wrapped.Err
	}
	return err
}

// resolve makes a URL of an action absolute: it is relative to the application's answer_url.
func resolve(base, ref string) (string, error) {
	from, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("parse answer_url: %w", err)
	}
	to, err := from.Parse(ref)
	if err != nil {
		return "", fmt.Errorf("resolve %q: %w", ref, err)
	}
	return to.String(), nil
}

// Loop guards: an application that only sends the call from URL to URL is stopped.
const (
	maxIdleFetches = 20
	maxFetches     = 1000
)

// What follows when a URL gave no actions, as call.error tells.
const (
	nextFallbackURL     = "fallback_url"
	nextFallbackActions = "fallback_actions"
	nextEnd             = "end"
)

// fetch asks the application and waits for its reply, while the call goes on being watched; an answered caller who waits long
// hears the application's wait_actions. When no URL answers, the stored fallback_actions are the reply, once until a URL
// answers again; without them the call is to be ended. A nil reply without an error never happens.
func (s *session) fetch(q question) (*actions.Reply, error) {
	s.flow.idle++
	s.call.Cursor.Request++
	if s.flow.idle > maxIdleFetches || s.call.Cursor.Request > maxFetches {
		failure := &replyError{URL: q.url, Err: fmt.Errorf("the call asked %d times without media or input, or more than %d times in all", maxIdleFetches, maxFetches)}
		return nil, s.giveUp([]*replyError{failure})
	}
	call := *s.call
	a := &asker{m: s.m, app: s.app, call: &call, variables: s.flow.requestVariables(s.call), question: q}
	var reply *actions.Reply
	var failures []*replyError
	err := s.besideWith(func(ctx context.Context) { reply, failures = a.ask(ctx) }, s.flow.waitActions)
	s.questions = append(s.questions, a.made...)
	if err != nil {
		return nil, err
	}
	if reply == nil {
		return s.fallBack(failures)
	}
	s.flow.fellBack = false
	for i, failure := range failures {
		if err := s.tell("call.error", failure.eventData(failures[i+1:], nextFallbackURL)); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

// fallBack replies with the application's stored fallback_actions, unless they were the last reply: they cannot ask anybody
// who has not just failed.
func (s *session) fallBack(failures []*replyError) (*actions.Reply, error) {
	if s.flow.fellBack || len(s.app.FallbackActions) == 0 {
		return nil, s.giveUp(failures)
	}
	list, err := actions.Decode(s.app.FallbackActions)
	if err != nil {
		s.log.Error("stored fallback_actions cannot be read", "application_id", s.app.ID, "error", err)
		return nil, s.giveUp(failures)
	}
	if err := s.complain(failures, nextFallbackActions); err != nil {
		return nil, err
	}
	s.flow.fellBack = true
	return &actions.Reply{Actions: list}, nil
}

// complain tells why no URL answered and what follows from the last failure.
func (s *session) complain(failures []*replyError, then string) error {
	for i, failure := range failures {
		s.log.Warn("no actions from the application", "application_id", s.app.ID, "attempts", failure.Attempts, "status", failure.Status)
		if err := s.tell("call.error", failure.eventData(failures[i+1:], then)); err != nil {
			return err
		}
	}
	return nil
}

// giveUp tells why no URL answered and ends the call: 503 to a caller who was not answered.
func (s *session) giveUp(failures []*replyError) error {
	if err := s.complain(failures, nextEnd); err != nil {
		return err
	}
	s.ask(intent{reason: ReasonAnswerURLFailed, source: SourcePlatform, status: StatusFailed, cause: causeTempFailure, sip: http.StatusServiceUnavailable})
	return errEnding
}

// ring tells an inbound caller that the phone rings; parking alone says nothing to them. Nothing waits for its completion.
func (s *session) ring() error {
	if s.rung || s.answered {
		return nil
	}
	s.rung = true
	if err := s.keep(); err != nil {
		return err
	}
	return s.order("ring", func(ctx context.Context) error {
		return s.node.sw.Execute(ctx, s.channel, esl.NewEventUUID(), esl.RingReady())
	})
}
