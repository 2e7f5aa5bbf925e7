package calls

import (
	"time"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// doDTMF sends digits to the other side.
func (s *session) doDTMF(a *actions.DTMF) (outcome, error) {
	app, err := esl.SendDTMF(a.Digits, time.Duration(a.ToneMS)*time.Millisecond)
	_, err = s.media(app, err, noTerminators, false)
	return outcome{}, err
}

// handleDTMF tells of a key that was pressed, by the call's party or by one that it dialled; of none while a sensitive gather runs.
func (s *session) handleDTMF(ev *esl.Event) error {
	digit := ev.Get("DTMF-Digit")
	if digit == "" || s.call == nil {
		return nil
	}
	if ev.ChannelID() == s.channel {
		s.keys += digit
	}
	if s.private {
		return nil
	}
	// The event counts samples at 8 kHz (switch_types.h, switch_dtmf_t).
	data := map[string]any{"digit": digit, "duration_ms": number(ev.Get("DTMF-Duration")) / 8}
	if l := s.legs[ev.ChannelID()]; l != nil {
		data["leg_id"] = l.row.ID
	}
	if !models.Wanted(s.app.EventKinds, "call.dtmf") {
		s.note("call.dtmf", data) // for the journal: it can wait for the next change
		return nil
	}
	return s.tell("call.dtmf", data)
}
