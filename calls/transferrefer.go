package calls

import (
	"context"
	"errors"
	"net/http"
	"time"

	"tandem/actions"
	"tandem/esl"
)

// The switch's variables of a REFER: whether the call outlives it, the status of the reply, and what became of the new call.
const (
	referGoesOn  = "sip_refer_continue_after_reply"
	referReply   = "sip_refer_status_code"
	referOutcome = "sip_refer_target_status_code"
)

// referPoll is how often the switch is asked what became of a REFER: it raises no event of the channel for it.
const referPoll = 250 * time.Millisecond

// referAnswer is how long the other side may take to say whether it takes a REFER (RFC 3515, timer F).
const referAnswer = 32 * time.Second

// refer has the caller's own side call the target. An unanswered call is sent away with a 302, about which nothing more is heard;
// an answered one gets a REFER, and goes on when that leads nowhere.
func (s *session) refer(a *actions.Transfer) (outcome, error) {
	s.flow.idle = 0
	// Whoever calls the target, it may be on the account of ours.
	denied := (*DestinationError)(nil)
	if err := s.mayCallTarget(a.To.Number, a.To.SIP); errors.As(err, &denied) {
		if err := s.fail(a, ReasonDestination, "to", denied.Error()); err != nil {
			return outcome{}, err
		}
		return s.transferFailed(a, map[string]any{"transfer_status": transferFailed, "reason": ReasonDestination})
	} else if err != nil {
		return outcome{}, err
	}
	var channel *esl.Event
	err := s.order("read the channel", func(ctx context.Context) (err error) {
		channel, err = s.node.sw.Dump(ctx, s.channel)
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	uri := s.sipURI(a.To, channel)
	if s.answered {
		return s.deflect(a, uri)
	}
	return s.redirect302(a, uri)
}

// redirect302 answers the INVITE with another address. The call is over with it.
func (s *session) redirect302(a *actions.Transfer, uri string) (outcome, error) {
	app, err := esl.RedirectApp(uri)
	if err != nil {
		return outcome{}, err
	}
	id, err := s.begin(app)
	if err != nil {
		return outcome{}, err
	}
	if _, err := s.execute(id, app); err != nil {
		return outcome{}, err
	}
	s.note("call.transferred", transferData(a, map[string]any{"transfer_status": transferAccepted, "sip_code": http.StatusFound}))
	s.ask(intent{
		reason: ReasonCompleted, source: SourceActions, status: StatusRejected, cause: causeUnspecified, sip: http.StatusFound,
	})
	return outcome{}, errEnding
}

// deflect sends the REFER and waits for what comes of it.
func (s *session) deflect(a *actions.Transfer, uri string) (outcome, error) {
	app, err := esl.Deflect(uri)
	if err != nil {
		return outcome{}, err
	}
	for _, v := range []esl.Var{{Name: referGoesOn, Value: "true"}, {Name: referReply}, {Name: referOutcome}} {
		err := s.order("prepare the transfer", func(ctx context.Context) error {
			return s.node.sw.SetVariable(ctx, s.channel, v.Name, v.Value)
		})
		if err != nil {
			return outcome{}, err
		}
	}
	id, err := s.begin(app)
	if err != nil {
		return outcome{}, err
	}
	done, err := s.execute(id, app)
	if err != nil {
		return outcome{}, err
	}
	reply, target, err := s.awaitRefer(done, a.Timeout)
	if err != nil {
		if errors.Is(err, errEnded) && reply/100 == 2 {
			// The other side took the REFER and hung up without another word.
			s.note("call.transferred", transferData(a, map[string]any{"transfer_status": transferAccepted, "sip_code": reply}))
		}
		return outcome{}, err
	}
	result := referResult(reply, target)
	if s.interrupted() && target == 0 {
		result["outcome"] = reasonInterrupted
	}
	if status := result["transfer_status"]; status == transferCompleted || status == transferAccepted && !s.interrupted() {
		s.endList()
	}
	return s.transferFailed(a, result)
}

// awaitRefer waits for the reply to a REFER and then, for as long as the target may ring, for what became of the new call. Both
// are 0 as long as they are not known.
func (s *session) awaitRefer(channel attributes, ring time.Duration) (reply, target int, err error) {
	deadline := s.m.cfg.Now().Add(referAnswer)
	for {
		known := reply >= 200
		if code := number(channel.Variable(referReply)); code > 0 {
			reply = code
		}
		target = number(channel.Variable(referOutcome))
		now := s.m.cfg.Now()
		if reply >= 200 && !known {
			deadline = now.Add(ring)
		}
		if reply >= 300 || target >= 200 || !now.Before(deadline) || s.interrupted() {
			return reply, target, nil
		}
		if err := s.pause(referPoll, s.interrupted); err != nil {
			return reply, target, err
		}
		err := s.order("read the channel", func(ctx context.Context) error {
			event, err := s.node.sw.Dump(ctx, s.channel)
			if err == nil {
				channel = event
			}
			return err
		})
		if err != nil {
			return reply, target, err
		}
	}
}

// referResult is what the two statuses say.
func referResult(reply, target int) map[string]any {
	switch {
	case reply < 200:
		return map[string]any{"transfer_status": transferFailed, "reason": ReasonUnavailable}
	case reply >= 300:
		return map[string]any{"transfer_status": transferRejected, "sip_code": reply, "reason": ReasonDeclined}
	case target == 0:
		return map[string]any{"transfer_status": transferAccepted, "sip_code": reply}
	case target < 300:
		return map[string]any{"transfer_status": transferCompleted, "sip_code": target}
	}
	v := statusVerdict(target)
	status := dialStatuses[v.status]
	if v.reason == ReasonDeclined {
		status = transferRejected
	}
	return map[string]any{"transfer_status": status, "sip_code": target, "reason": v.reason}
}

// statusCauses are the causes that FreeSWITCH takes refusals of an INVITE for (sofia_glue.c, sofia_glue_sip_cause_to_freeswitch), for
// the statuses that mean something other than a failure of the carrier's.
var statusCauses = map[int]string{
	486: causeBusy, 600: causeBusy, 603: causeRejected, 607: causeRejected, 608: causeRejected, 401: causeRejected, 402: causeRejected,
	403: causeRejected, 407: causeRejected, 404: causeUnallocated, 410: "NUMBER_CHANGED", 484: "INVALID_NUMBER_FORMAT", 604: causeUnallocated,
	480: "NO_USER_RESPONSE", 408: causeNoAnswer, 487: causeNoAnswer, 488: "INCOMPATIBLE_DESTINATION", 606: "INCOMPATIBLE_DESTINATION",
}

// statusVerdict says what the status of a call that somebody else made means.
func statusVerdict(sip int) verdict { return unansweredVerdict(statusCauses[sip], sip) }
