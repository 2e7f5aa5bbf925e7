package calls

import "time"

// The words of dial_status.
const (
	dialAnswered = "answered"
	dialBusy     = "busy"
	dialNoAnswer = "no_answer"
	dialFailed   = "failed"
	dialCanceled = "canceled"
	dialMachine  = "machine"
)

// dialStatuses are the words of dial_status for the states that a call of its own would have.
var dialStatuses = map[string]string{
	StatusBusy: dialBusy, StatusNoAnswer: dialNoAnswer, StatusCanceled: dialCanceled, StatusRejected: dialFailed, StatusFailed: dialFailed,
}

// result is what became of a dial: of the party that was joined, or of the last one that said something.
func (d *dialing) result() map[string]any {
	told, refused := d.telling(), d.refusals()
	if told == nil {
		reason := "no_active_trunk"
		switch {
		case d.full:
			reason = ReasonTrunkLimit
		case len(refused) > 0:
			reason = refused[0].(map[string]any)["reason"].(string)
		}
		result := map[string]any{"dial_status": dialFailed, "reason": reason, "seconds": 0.0}
		if len(refused) > 0 && len(d.parties) > 1 {
			result["refused"] = refused
		}
		return result
	}
	result := told.result()
	delete(result, "to")
	if cause := told.row.Cause; cause != "" {
		result["cause"] = cause
	}
	if told.row.AnsweredBy != "" {
		result["answered_by"] = told.row.AnsweredBy
	}
	if d.s.interrupted() {
		result["outcome"] = reasonInterrupted
	}
	if len(d.legs) > 1 || len(d.parties) > 1 {
		legs := make([]any, len(d.legs))
		for i, l := range d.legs {
			legs[i] = l.result()
		}
		result["legs"] = legs
	}
	if len(refused) > 0 {
		result["refused"] = refused
	}
	for _, l := range d.legs {
		delete(d.s.legs, l.row.ChannelID)
	}
	return result
}

// telling is the leg whose end stands for the whole: the one that was joined; otherwise the last that did not merely lose a race or
// get canceled.
func (d *dialing) telling() *leg {
	if winner := d.winner(); winner != nil {
		return winner
	}
	var last, canceled *leg
	for _, l := range d.legs {
		if l.row.DialStatus == dialCanceled {
			canceled = l
			continue
		}
		last = l
	}
	if last != nil {
		return last
	}
	return canceled
}

// result is what is told of one leg.
func (l *leg) result() map[string]any {
	result := map[string]any{
		"leg_id": l.row.ID, "to": l.row.To, "dial_status": l.row.DialStatus, "reason": l.row.Reason, "seconds": l.row.Seconds,
	}
	if l.row.SIPCode > 0 {
		result["sip_code"] = l.row.SIPCode
	}
	return result
}

// microTime reads FreeSWITCH's microseconds since 1970; 0 and nonsense are the zero time.
func microTime(s string) time.Time {
	us := int64(number(s))
	if us <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
