package calls

import (
	"cmp"
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

// recording is a file that the switch writes.
type recording struct {
	row models.Recording
	// background says that it runs beside the call's actions, and was begun by record_call or for the whole call.
	background bool
	masked     bool // the application wants silence
	// lost says why it has failed; empty: the switch left no file.
	lost string
}

// newTape names a file below the node's recordings folder. Nothing of the name is the customer's.
func (s *session) newTape(format string, channels int) (*recording, error) {
	dir := s.m.cfg.RecordingDir(s.node.row)
	if err := s.node.makeFolder(dir); err != nil {
		return nil, fmt.Errorf("make the recordings folder: %w", err)
	}
	id := models.NewID("rec_")
	return &recording{row: models.Recording{
		ID: id, CallID: s.call.ID, CustomerID: s.call.CustomerID, Path: filepath.Join(dir, id+"."+format), Format: format, Channels: channels,
		Status: models.RecordingRunning, Remote: s.node.row.Remote(),
	}}, nil
}

// announce stores a recording that begins.
func (s *session) announce(tape *recording) error {
	s.tapes = append(s.tapes, tape)
	return s.change("recording.started", tape.start)
}

// start is the part of a change that stores a recording and tells that it begins.
func (r *recording) start(ctx context.Context, tx *models.Store, call *models.Call) error {
	row := r.row
	if err := tx.SaveRecording(ctx, &row); err != nil {
		return err
	}
	return emit(ctx, tx, call, "recording.started", map[string]any{"recording_id": row.ID, "format": row.Format, "channels": row.Channels})
}

// runTape begins a recording of both sides that goes on beside the call's actions. ran is false when the switch would not: that
// was told, and the call goes on.
func (s *session) runTape(tape *recording) (ran bool, err error) {
	if err := s.announce(tape); err != nil {
		return false, err
	}
	err = s.order("record the call", func(ctx context.Context) error {
		return s.node.sw.RecordStartWith(ctx, s.channel, tape.row.Path, esl.RecordOptions{Stereo: tape.row.Channels == stereo})
	})
	var refused *esl.CommandError
	if !errors.As(err, &refused) {
		return err == nil, err
	}
	s.log.Error("call not recorded", "error", err)
	return false, s.endTape(tape)
}

// The channels of a recording: everybody on one, or each side on its own.
const (
	mono   = 1
	stereo = 2
)

// stopTape ends a recording that goes on beside the call's actions.
func (s *session) stopTape(tape *recording) error {
	err := s.order("end the recording", func(ctx context.Context) error { return s.node.sw.RecordStop(ctx, s.channel, tape.row.Path) })
	var refused *esl.CommandError
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	return s.endTape(tape)
}

// endTape stores what became of a recording that has ended.
func (s *session) endTape(tape *recording) error {
	tape.close(s.m.cfg.Now(), 0)
	s.dropTape(tape)
	return s.change("recording ended", tape.save)
}

// recordCall records the whole call from now on. A recording that cannot begin is told as failed; the call goes on.
func (s *session) recordCall() error {
	tape, err := s.newTape(actions.FormatWAV, stereo)
	if err != nil {
		s.log.Error("call not recorded", "error", err)
		return s.tell("recording.failed", map[string]any{"message": "the recording could not be started"})
	}
	tape.background = true
	_, err = s.runTape(tape)
	return err
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
	if r.row.Remote {
		// What the node has is known when it has come.
		r.row.Status, r.row.Seconds = models.RecordingProcessing, float64(switchMS)/1000
		return
	}
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
	if row.Status == models.RecordingProcessing {
		if call.NodeID == nil {
			return fmt.Errorf("recording %q of a call without a node", row.ID)
		}
		return tx.AwaitRecording(ctx, row.ID, *call.NodeID, row.Path, tx.Now().Add(uploadSettle))
	}
	if row.Status != models.RecordingAvailable {
		return emit(ctx, tx, call, "recording.failed", map[string]any{"recording_id": row.ID, "message": cmp.Or(r.lost, "there is no sound file")})
	}
	return emit(ctx, tx, call, "recording.available", map[string]any{
		"recording_id": row.ID, "seconds": row.Seconds, "format": row.Format, "channels": row.Channels,
	})
}
