package calls

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// silenceThreshold is the level below which a frame counts as silence, of FreeSWITCH's 0 to 32767.
const silenceThreshold = 200

// recording is a file that the switch writes.
type recording struct {
	row models.Recording
}

// newRecording names a file below the node's recordings folder. Nothing of the name is the customer's.
func (s *session) newRecording() (*recording, error) {
	dir := s.m.cfg.RecordingDir(s.node.row)
	if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // the switch runs as another user and writes here
		return nil, fmt.Errorf("make the recordings folder: %w", err)
	}
	id := models.NewID("rec_")
	return &recording{row: models.Recording{
		ID: id, CallID: s.call.ID, CustomerID: s.call.CustomerID, Path: filepath.Join(dir, id+".wav"), Format: "wav",
		Status: models.RecordingRunning,
	}}, nil
}

// announce stores a recording that begins.
func (s *session) announce(tape *recording) error {
	s.tapes = append(s.tapes, tape)
	return s.change("recording.started", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		row := tape.row
		if err := tx.SaveRecording(ctx, &row); err != nil {
			return err
		}
		return emit(ctx, tx, call, "recording.started", map[string]any{"recording_id": row.ID, "format": row.Format})
	})
}

// recordCall records the whole call from now on. A recording that cannot begin is told as failed; the call goes on.
func (s *session) recordCall() error {
	tape, err := s.newRecording()
	if err != nil {
		s.log.Error("call not recorded", "error", err)
		return s.tell("recording.failed", map[string]any{"message": "the recording could not be started"})
	}
	if err := s.announce(tape); err != nil {
		return err
	}
	err = s.order("record the call", func(ctx context.Context) error {
		return s.node.sw.RecordStart(ctx, s.channel, tape.row.Path)
	})
	var refused *esl.CommandError
	if !errors.As(err, &refused) {
		return err
	}
	s.log.Error("call not recorded", "error", err)
	tape.close(s.m.cfg.Now(), 0)
	s.dropTape(tape)
	return s.change("recording ended", tape.save)
}

// doRecord records the caller into a file of its own.
func (s *session) doRecord(a *actions.Record) (outcome, error) {
	tape, err := s.newRecording()
	if err != nil {
		s.log.Error("nothing recorded", "error", err)
		return outcome{}, s.skip(a, "", "the recording could not be started")
	}
	app, build := esl.Record(tape.row.Path, a.MaxSeconds, silenceThreshold, a.SilenceSeconds)
	if build != nil {
		return outcome{}, build
	}
	if a.Beep {
		if _, err := s.media(esl.Beep(), nil, noTerminators, false); err != nil {
			return outcome{}, err
		}
	}
	if err := s.announce(tape); err != nil {
		return outcome{}, err
	}
	terminators := noTerminators
	if a.FinishOnKey != "" {
		terminators = a.FinishOnKey
	}
	begun := s.m.cfg.Now()
	done, err := s.media(app, nil, terminators, false)
	if err != nil {
		return outcome{}, err // the end of the call closes the recording
	}
	now := s.m.cfg.Now()
	tape.close(now, number(done.Variable("record_ms")))
	result := map[string]any{"recording_id": tape.row.ID, "seconds": tape.row.Seconds, "outcome": recordOutcome(done, now.Sub(begun), a)}
	if key := done.Variable(terminatorUsed); key != "" && a.FinishOnKey != "" {
		result["key"] = key
	}
	s.dropTape(tape)
	return outcome{result: result}, s.change("recording ended", tape.save)
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

func (s *session) dropTape(tape *recording) {
	kept := s.tapes[:0]
	for _, t := range s.tapes {
		if t != tape {
			kept = append(kept, t)
		}
	}
	s.tapes = kept
}

// closeTapes ends the recordings that the end of the call ended.
func (s *session) closeTapes(now time.Time) []*recording {
	for _, tape := range s.tapes {
		tape.close(now, s.facts.recordedMS)
	}
	return s.tapes
}

// close decides what became of a recording: its length is the file's own where it can be read, otherwise what the switch
// said.
func (r *recording) close(now time.Time, switchMS int) {
	r.row.EndedAt = &now
	length, err := fileSeconds(r.row.Path)
	switch {
	case err == nil:
		r.row.Status, r.row.Seconds = models.RecordingAvailable, length
	case switchMS > 0 && errors.Is(err, os.ErrNotExist):
		// The node's files are not here; the switch says it has one.
		r.row.Status, r.row.Seconds = models.RecordingAvailable, float64(switchMS)/1000
	default:
		r.row.Status = models.RecordingFailed
	}
}

func fileSeconds(path string) (float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() {
		_ = f.Close()
	}()
	info, err := readWAV(f)
	return info.seconds, err
}

// save stores a closed recording and tells of it.
func (r *recording) save(ctx context.Context, tx *models.Store, call *models.Call) error {
	row := r.row
	if err := tx.SaveRecording(ctx, &row); err != nil {
		return err
	}
	if row.Status != models.RecordingAvailable {
		return emit(ctx, tx, call, "recording.failed", map[string]any{"recording_id": row.ID})
	}
	return emit(ctx, tx, call, "recording.available", map[string]any{"recording_id": row.ID, "seconds": row.Seconds, "format": row.Format})
}
