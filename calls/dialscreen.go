package calls

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// screening is machine detection on a dialled party: what it says after its answer is recorded and judged by the rule of the call's
// own, see greeting.go. Meanwhile it is held in silence, or, when the detection is asynchronous, heard by the caller.
type screening struct {
	path  string
	timer *time.Timer
}

// screenLeg begins to listen to a party that has answered.
func (s *session) screenLeg(l *leg) error {
	if l.detect == nil || l.screen != nil {
		return nil
	}
	dir := s.m.cfg.RecordingDir(s.node.row)
	if s.node.row.Remote() {
		s.log.Warn("greeting not judged: the node's disk is not shared", "leg_id", l.row.ID)
		return s.releaseLeg(l)
	}
	if err := s.node.makeFolder(dir); err != nil {
		s.log.Error("greeting not recorded", "leg_id", l.row.ID, "error", err)
		return s.releaseLeg(l)
	}
	path := filepath.Join(dir, models.NewID("greeting_")+".wav")
	ctx, cancel := s.command()
	defer cancel()
	err := s.node.sw.RecordStartWith(ctx, l.row.ChannelID, path, esl.RecordOptions{
		ReadOnly: true, InitialSilence: min(greetingWait, l.detect.Timeout), FinalSilence: greetingPause, Threshold: greetingLevel,
	})
	if errors.Is(err, esl.ErrNoSuchChannel) {
		return nil // its end is on the way
	}
	if err != nil {
		s.log.Warn("greeting not recorded", "leg_id", l.row.ID, "error", err)
		return s.releaseLeg(l)
	}
	l.screen = &screening{path: path, timer: time.AfterFunc(hearingTime(l.detect), func() { s.box.put(message{screened: l}) })}
	return nil
}

// judgeLeg says who answered, hangs up on a machine where that is wished, and lets everybody else in.
func (s *session) judgeLeg(l *leg) error {
	if l.screen == nil || l.row.AnsweredBy != "" || l.facts != nil {
		return nil
	}
	s.stopScreen(l)
	spoken, err := greetingLength(l.screen.path)
	if err != nil {
		s.log.Warn("greeting not judged", "leg_id", l.row.ID, "error", err)
	}
	s.dropScreen(l)
	row := l.row
	row.AnsweredBy = judgeGreeting(spoken)
	data := map[string]any{
		"answered_by": row.AnsweredBy, "beep": false, "after_ms": max(0, s.m.cfg.Now().Sub(*row.AnsweredAt).Milliseconds()), "leg_id": row.ID,
	}
	err = s.change("call.machine_detected", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		stored := row
		if err := tx.SaveLeg(ctx, &stored); err != nil {
			return err
		}
		return emit(ctx, tx, call, "call.machine_detected", data)
	})
	if err != nil {
		return err
	}
	l.row = row
	if row.AnsweredBy != answeredMachine || l.detect.OnMachine != actions.OnMachineHangup {
		return s.releaseLeg(l)
	}
	l.machine = true
	ctx, cancel := s.command()
	defer cancel()
	if err := s.node.sw.Kill(ctx, row.ChannelID, causeNormal); err != nil && !errors.Is(err, esl.ErrNoSuchChannel) {
		s.log.Warn("machine not hung up", "leg_id", row.ID, "error", err)
	}
	return nil
}

// stopScreen ends the recording of a greeting, should it go on.
func (s *session) stopScreen(l *leg) {
	ctx, cancel := s.command()
	defer cancel()
	err := s.node.sw.RecordStop(ctx, l.row.ChannelID, l.screen.path)
	var refused *esl.CommandError
	if err != nil && !errors.As(err, &refused) {
		s.log.Warn("greeting not ended", "leg_id", l.row.ID, "error", err)
	}
}

// dropScreen forgets the recording of a greeting.
func (s *session) dropScreen(l *leg) {
	l.screen.timer.Stop()
	if err := os.Remove(l.screen.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Warn("greeting not removed", "leg_id", l.row.ID, "error", err)
	}
}

// releaseLeg joins a party that was held until it was known who has answered.
func (s *session) releaseLeg(l *leg) error {
	if !l.held || l.facts != nil {
		return nil
	}
	l.held = false
	ctx, cancel := s.command()
	defer cancel()
	err := s.node.sw.Break(ctx, l.row.ChannelID)
	if err != nil && !errors.Is(err, esl.ErrNoSuchChannel) {
		// The switch joins it by itself when the time of the detection is over.
		s.log.Warn("dialed leg not released", "leg_id", l.row.ID, "error", err)
	}
	return nil
}
