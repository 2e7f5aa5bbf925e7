package calls

import "tandem/esl"

// Subclasses of CUSTOM events that a session reads.
const (
	subclassConference = "conference::maintenance"
	subclassBeep       = "avmd::beep"
)

// handleCustom takes an event that a module raised about the call's channel.
func (s *session) handleCustom(ev *esl.Event) error {
	switch ev.Get("Event-Subclass") {
	case subclassConference:
		return s.handleConference(ev)
	case subclassBeep:
		return s.handleBeep(ev)
	}
	return nil
}
