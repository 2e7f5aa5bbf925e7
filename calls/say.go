package calls

import (
	"time"

	"tandem/actions"
)

// briefest is the shortest time in which anything can be heard. What is to be repeated until the caller hangs up, and is
// over sooner, failed on the switch: it is not tried over and over.
const briefest = 20 * time.Millisecond

// doSay speaks a text, as often as asked.
func (s *session) doSay(a *actions.Say) (outcome, error) {
	spoken, failure, err := s.prepareSpeech(a)
	if err != nil {
		return outcome{}, err
	}
	if failure != nil {
		return outcome{result: map[string]any{"outcome": "failed", "played_ms": 0}}, s.fail(a, soundCode(failure), "text", failure.Error())
	}
	app, build := spoken.app(s.m.cfg.VoiceEngine)
	terminators := noTerminators
	if a.BargeIn {
		terminators = anyTerminators
	}
	over, begun := s.rounds()
	result := map[string]any{"outcome": "played"}
	for round := 1 + over; a.Loop == 0 || round <= a.Loop; round++ {
		started, fresh := s.m.cfg.Now(), s.resumed == nil
		done, err := s.media(app, build, terminators, a.Early)
		if err != nil {
			return outcome{}, err
		}
		if s.interrupted() {
			result["outcome"] = reasonInterrupted
			break
		}
		if digit := done.Variable(terminatorUsed); a.BargeIn && digit != "" {
			result["outcome"], result["digit"] = reasonInterrupted, digit
			break
		}
		if a.Loop == 0 && fresh && s.m.cfg.Now().Sub(started) < briefest {
			result["outcome"] = "failed"
			break
		}
	}
	result["played_ms"] = s.m.cfg.Now().Sub(begun).Milliseconds()
	return outcome{result: result}, nil
}

// terminatorUsed is the channel variable that holds the digit which ended the last prompt (switch_types.h,
// SWITCH_PLAYBACK_TERMINATOR_USED); every prompt empties it first.
const terminatorUsed = "playback_terminator_used"
