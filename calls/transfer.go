package calls

import (
	"tandem/actions"
	"tandem/models"
)

// The words of transfer_status.
const (
	transferCompleted = "completed"
	transferAccepted  = "accepted"
	transferRejected  = "rejected"
	transferFailed    = "failed"
)

// doTransfer hands the call to another party. Control is kept until that has worked; then the list is over.
func (s *session) doTransfer(a *actions.Transfer) (outcome, error) {
	if a.Mode == actions.TransferRefer {
		return s.refer(a)
	}
	d := &dialing{
		s: s, kind: models.LegTransfer, announce: a.Announce, limit: a.MaxSeconds,
		a: &actions.Dial{To: []actions.Target{a.To}, CallerID: a.CallerID, Ringback: a.Ringback, AnswerOnBridge: true},
	}
	d.joined = func(l *leg) error {
		s.endList()
		return s.tell("call.transferred", transferData(a, map[string]any{"transfer_status": transferCompleted, "sip_code": 200, "leg_id": l.row.ID}))
	}
	failed, err := d.prepare("transfer")
	if err != nil {
		return outcome{}, err
	}
	if failed {
		return s.transferFailed(a, map[string]any{"transfer_status": transferFailed, "reason": codeActionFailed})
	}
	if err := d.run(); err != nil {
		return outcome{}, err
	}
	result := d.result()
	dialed := result["dial_status"]
	delete(result, "dial_status")
	delete(result, "cause")
	switch {
	case dialed == dialAnswered:
		result["transfer_status"] = transferCompleted
		return outcome{result: result}, nil
	case result["reason"] == ReasonDeclined:
		result["transfer_status"] = transferRejected
	default:
		result["transfer_status"] = dialed
	}
	return s.transferFailed(a, result)
}

// transferFailed tells of a transfer that did not come about. The list goes on.
func (s *session) transferFailed(a *actions.Transfer, result map[string]any) (outcome, error) {
	s.note("call.transferred", transferData(a, result))
	return outcome{result: result}, nil
}

// transferData is what call.transferred says, out of a result.
func transferData(a *actions.Transfer, result map[string]any) map[string]any {
	data := map[string]any{"mode": a.Mode, "to": targetName(a.To)}
	for _, name := range []string{"transfer_status", "sip_code", "leg_id"} {
		if value, ok := result[name]; ok {
			data[name] = value
		}
	}
	return data
}

// endList drops what the list holds after the action at the cursor. What live control appends later comes after it.
func (s *session) endList() {
	s.flow.at.changed = true
	s.flow.list = s.flow.list[:min(s.flow.index+1, len(s.flow.list))]
	if raw, err := actions.Encode(s.flow.list); err == nil {
		s.flow.raw = raw
	}
	s.count()
}

// sipURI is the address that a target has for somebody else's switch. A number is one of the network that the call came from, or
// went to.
func (s *session) sipURI(target actions.Target, channel attributes) string {
	if target.SIP != "" {
		return target.SIP
	}
	names := []string{"sip_from_host", "sip_network_ip"}
	if s.call.Direction == DirectionOutbound {
		names = []string{"sip_to_host", "sip_network_ip"}
	}
	for _, name := range names {
		if host := channel.Variable(name); host != "" {
			return "sip:" + target.Number + "@" + host
		}
	}
	return ""
}
