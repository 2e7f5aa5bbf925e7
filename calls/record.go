package calls

import (
	"context"
	"time"

	"tandem/actions"
	"tandem/esl"
)

// silenceThreshold is the level below which a frame counts as silence, of FreeSWITCH's 0 to 32767.
const silenceThreshold = 200

// doRecord records the caller into a file of its own.
func (s *session) doRecord(a *actions.Record) (outcome, error) {
	if ok, err := s.canWrite(a, a.Format); err != nil || !ok {
		return outcome{result: map[string]any{"outcome": "failed"}}, err
	}
	tape, err := s.tapeOfRecord(a)
	if err != nil {
		s.log.Error("nothing recorded", "error", err)
		return outcome{result: map[string]any{"outcome": "failed"}}, s.skip(a, "", "the recording could not be started")
	}
	app, build := esl.Record(tape.row.Path, a.MaxSeconds, silenceThreshold, a.SilenceSeconds)
	if build != nil {
		return outcome{}, build
	}
	if over, _ := s.rounds(); a.Beep && over == 0 {
		if _, err := s.media(esl.Beep(), nil, noTerminators, false); err != nil {
			return outcome{}, err
		}
	}
	if tape.row.CreatedAt.IsZero() {
		s.tapes = append(s.tapes, tape)
		s.remember(recordState{RecordingID: tape.row.ID})
		s.along = tape.start
	}
	terminators := noTerminators
	if a.FinishOnKey != "" {
		terminators = a.FinishOnKey
	}
	begun, fresh := s.m.cfg.Now(), s.resumed == nil
	done, err := s.media(app, nil, terminators, false)
	if err != nil {
		return outcome{}, err // the end of the call closes the recording
	}
	now := s.m.cfg.Now()
	recorded := number(done.Variable("record_ms"))
	tape.close(now, recorded)
	lasted := now.Sub(begun)
	if !fresh {
		lasted = time.Duration(recorded) * time.Millisecond // nobody watched
	}
	result := map[string]any{"recording_id": tape.row.ID, "seconds": tape.row.Seconds, "outcome": recordOutcome(done, lasted, a)}
	if s.interrupted() {
		result["outcome"] = reasonInterrupted
	}
	if key := done.Variable(terminatorUsed); key != "" && a.FinishOnKey != "" {
		result["key"] = key
	}
	s.dropTape(tape)
	return outcome{result: result}, s.change("recording ended", tape.save)
}

// recordState is what a record needs to go on.
type recordState struct {
	RecordingID string `json:"recording_id"`
}

// tapeOfRecord is the recording that an earlier controller has begun for the action, or a new one.
func (s *session) tapeOfRecord(a *actions.Record) (*recording, error) {
	var at recordState
	if s.recalls(&at) {
		for _, tape := range s.tapes {
			if tape.row.ID == at.RecordingID {
				tape.background = false
				return tape, nil
			}
		}
	}
	return s.newTape(a.Format, mono)
}

// recordOutcome says what ended a recording.
func recordOutcome(done *esl.Event, lasted time.Duration, a *actions.Record) string {
	switch {
	case a.FinishOnKey != "" && done.Variable(terminatorUsed) != "":
		return "key"
	case lasted >= a.MaxSeconds:
		return "max"
	case done.Variable("silence_hits_exhausted") == "true":
		return "silence"
	default:
		return "max"
	}
}

// canWrite says whether the node can write files of a format, and tells when it cannot.
func (s *session) canWrite(a actions.Action, format string) (bool, error) {
	if format != actions.FormatMP3 {
		return true, nil
	}
	return s.hasModule(a, moduleMP3, "format", "this node cannot write MP3: it has no "+moduleMP3)
}

// moduleMP3 is the module of FreeSWITCH that reads and writes MP3.
const moduleMP3 = "mod_shout"

// hasModule says whether the node has a module, and tells when it has not.
func (s *session) hasModule(a actions.Action, module, field, message string) (has bool, err error) {
	err = s.order("ask for a module", func(ctx context.Context) (err error) {
		has, err = s.node.capable(ctx, module)
		return err
	})
	if err != nil || has {
		return has, err
	}
	return false, s.fail(a, codeNotSupported, field, message)
}
