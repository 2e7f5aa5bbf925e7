package calls

import (
	"context"
	"errors"
	"os"
	"time"

	"tandem/actions"
	"tandem/esl"
)

// A recording of a conference belongs to the call that asked for it: it begins when that call enters and ends when it leaves.
// What is recorded is what the room hears, so a muted member is not on it.

// recordRoom records the room from now on. A recording that cannot begin is told as failed; the conference goes on.
func (s *session) recordRoom(r *room) error {
	tape, err := s.newTape(actions.FormatWAV, mono)
	if err != nil {
		s.log.Error("conference not recorded", "error", err)
		return s.tell("recording.failed", map[string]any{"message": "the recording could not be started"})
	}
	if err := s.announce(tape); err != nil {
		return err
	}
	err = s.order("record the conference", func(ctx context.Context) error {
		return s.node.sw.ConferenceRecord(ctx, r.conference.Room, tape.row.Path)
	})
	var refused *esl.CommandError
	if !errors.As(err, &refused) {
		r.tape, r.taped = tape, s.m.cfg.Now()
		return err
	}
	s.log.Error("conference not recorded", "error", err)
	tape.close(s.m.cfg.Now(), 0)
	s.dropTape(tape)
	return s.change("recording ended", tape.save)
}

// How long the switch gets to finish a file, and how often it is looked at. It takes the next tick of the room, 20 ms.
const (
	tapeGrace = time.Second
	tapeLook  = 20 * time.Millisecond
)

// stopRoomTape ends the recording and waits until the switch has finished the file. It works on an ended call, too.
func (s *session) stopRoomTape(r *room) {
	if r.tape == nil {
		return
	}
	ctx, cancel := s.command()
	err := s.node.sw.ConferenceRecordStop(ctx, r.conference.Room, r.tape.row.Path)
	cancel()
	var refused *esl.CommandError
	if err != nil && !errors.As(err, &refused) { // refused: the conference has ended, and with it the recording
		s.log.Warn("recording of the conference not ended", "error", err)
		return
	}
	for waited := time.Duration(0); !r.tape.row.Remote && waited < tapeGrace; waited += tapeLook {
		length, err := fileSeconds(r.tape.row.Path)
		if errors.Is(err, os.ErrNotExist) || length > 0 {
			return
		}
		if err := s.pause(tapeLook, nil); err != nil {
			return
		}
	}
}

// keepRoomTape stores the recording of a stay that is over.
func (s *session) keepRoomTape(r *room) error {
	if r.tape == nil {
		return nil
	}
	tape := r.tape
	r.tape = nil
	now := s.m.cfg.Now()
	tape.close(now, int(now.Sub(r.taped).Milliseconds()))
	s.dropTape(tape)
	return s.change("recording ended", tape.save)
}
