package calls

import (
	"tandem/actions"
)

// doReject refuses a call that nobody has answered, with a SIP status. An answered one is hung up.
func (s *session) doReject(a *actions.Reject) (outcome, error) {
	if s.answered {
		return outcome{}, s.endInAction(intent{reason: a.Reason, source: SourceActions, cause: causeNormal})
	}
	return outcome{}, s.endInAction(s.refusal(a.Reason, a.SIPCode))
}

// refusal is the wish to refuse an unanswered call for a reason of the vocabulary. sip is the status to send, 0 for the
// reason's own. Where a cause makes FreeSWITCH send that status, the cause does it, at once; other statuses are sent by an
// application.
func (s *session) refusal(reason string, sip int) intent {
	if reason == actions.ReasonCompleted {
		reason = actions.ReasonDeclined
	}
	if sip == 0 {
		sip = actions.SIPCode(reason)
	}
	why := intent{reason: reason, source: SourceActions, status: StatusRejected, sip: sip}
	cause, known := refusals[sip]
	if !known {
		cause = refusals[actions.SIPCode(reason)]
		why.respond = true
	}
	why.cause = cause
	return why
}
