package calls

import (
	"context"
	"errors"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// doRecordCall begins, steers and ends a recording that goes on beside the call's actions. There is one at a time, that of
// POST /v1/calls with record included.
func (s *session) doRecordCall(a *actions.RecordCall) (outcome, error) {
	tape := s.background()
	if a.Op == actions.OpStart {
		return s.startRecordCall(a, tape)
	}
	if tape == nil {
		return s.recordCallFailed(a, "op", "there is no recording to "+a.Op)
	}
	if a.Op == actions.OpStop {
		return recordCallDone(tape), s.stopTape(tape)
	}
	done, err := s.steerTape(tape, a.Op)
	switch {
	case err != nil:
		return outcome{}, err
	case !done:
		return s.recordCallFailed(a, "op", "the switch could not "+a.Op+" the recording")
	case tape.masked != tape.row.Masked:
		tape.row.Masked = tape.masked
		return recordCallDone(tape), s.saveTape(tape)
	}
	return recordCallDone(tape), nil
}

// background is the recording that goes on beside the call's actions, nil when there is none.
func (s *session) background() *recording {
	for _, tape := range s.tapes {
		if tape.background {
			return tape
		}
	}
	return nil
}

func recordCallDone(tape *recording) outcome {
	return outcome{result: map[string]any{"outcome": "done", "recording_id": tape.row.ID}}
}

func (s *session) recordCallFailed(a *actions.RecordCall, field, message string) (outcome, error) {
	return outcome{result: map[string]any{"outcome": "failed"}}, s.skip(a, field, message)
}

// startRecordCall begins the recording. Media must flow: an unanswered call is answered.
func (s *session) startRecordCall(a *actions.RecordCall, running *recording) (outcome, error) {
	if running != nil && s.repeats && running.row.Status == models.RecordingRunning {
		// An earlier controller has begun it and not told. To begin it again changes nothing (switch_ivr_async.c,
		// switch_ivr_record_session_event), should the switch not have heard of it.
		err := s.order("record the call", func(ctx context.Context) error {
			return s.node.sw.RecordStartWith(ctx, s.channel, running.row.Path, esl.RecordOptions{Stereo: running.row.Channels == stereo})
		})
		if refused := new(esl.CommandError); errors.As(err, &refused) {
			s.log.Warn("recording not begun again", "error", err) // by a channel that ends: its hangup is on the way
			err = nil
		}
		return recordCallDone(running), err
	}
	if running != nil {
		return s.recordCallFailed(a, "op", "the call is being recorded already")
	}
	if ok, err := s.canWrite(a, a.Format); err != nil || !ok {
		return outcome{result: map[string]any{"outcome": "failed"}}, err
	}
	channels := stereo
	if a.Channels == actions.ChannelsMono {
		channels = mono
	}
	tape, err := s.newTape(a.Format, channels)
	if err != nil {
		s.log.Error("call not recorded", "error", err)
		return s.recordCallFailed(a, "", "the recording could not be started")
	}
	tape.background = true
	if err := s.open(false); err != nil {
		return outcome{}, err
	}
	s.flow.idle = 0
	ran, err := s.runTape(tape)
	if err != nil {
		return outcome{}, err
	}
	if !ran {
		return s.recordCallFailed(a, "", "the switch could not start the recording")
	}
	return recordCallDone(tape), nil
}

// steerTape pauses, resumes, masks or unmasks a recording. done is false when the switch would not.
func (s *session) steerTape(tape *recording, op string) (done bool, err error) {
	sw := s.node.sw
	steer := map[string]func(ctx context.Context, channel, path string) error{
		actions.OpPause: sw.RecordPause, actions.OpResume: sw.RecordResume, actions.OpMask: sw.RecordMask, actions.OpUnmask: sw.RecordUnmask,
	}[op]
	err = s.order(op+" the recording", func(ctx context.Context) error { return steer(ctx, s.channel, tape.row.Path) })
	var refused *esl.CommandError
	if errors.As(err, &refused) {
		s.log.Warn("recording not steered", "op", op, "error", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	switch op {
	case actions.OpMask, actions.OpUnmask:
		tape.masked = op == actions.OpMask
		return true, nil
	case actions.OpPause:
		tape.row.Status = models.RecordingPaused
	default:
		tape.row.Status = models.RecordingRunning
	}
	return true, s.saveTape(tape)
}

// saveTape stores the state of a recording that runs.
func (s *session) saveTape(tape *recording) error {
	return s.change("recording", func(ctx context.Context, tx *models.Store, _ *models.Call) error {
		row := tape.row
		return tx.SaveRecording(ctx, &row)
	})
}

// maskTapes keeps what follows out of the recordings that run, and returns what undoes it: what a sensitive gather needs.
func (s *session) maskTapes() (unmask func() error, err error) {
	var masked []*recording
	for _, tape := range s.tapes {
		if tape.masked {
			continue
		}
		done, err := s.steerTape(tape, actions.OpMask)
		if err != nil {
			return nil, err
		}
		if done {
			masked = append(masked, tape)
		}
	}
	return func() error {
		for _, tape := range masked {
			if _, err := s.steerTape(tape, actions.OpUnmask); err != nil {
				return err
			}
		}
		return nil
	}, nil
}
