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

// detection is machine detection on the call's own channel. The switch records what the party says until it pauses; the length of that
// greeting tells a human from a machine. It goes on beside whatever the call does, and a synchronous one is waited for. The beep of a
// mailbox is found by the switch's own detector (mod_avmd), which knows nothing else. A party that is dialled is judged before it is
// joined, by the same rule: see dialing.judge.
type detection struct {
	a     *actions.MachineDetection
	path  string
	begun time.Time
	timer *time.Timer

	beep    bool
	verdict string // "" until there is one
	done    bool
	after   time.Duration
}

// Bounds of the recording that is judged.
const (
	// greetingWait is how long a party may be silent before it says anything.
	greetingWait = 5 * time.Second
	// beepWait is how long the beep may follow the end of a machine's greeting.
	beepWait = 3 * time.Second
)

// reasonAnsweredMachine is why a call ended that a machine had answered.
const reasonAnsweredMachine = "machine"

// detectAtAnswer begins the detection that an outbound call was created with; a synchronous one is waited for.
func (s *session) detectAtAnswer() error {
	if len(s.call.MachineDetection) == 0 || s.call.Direction != DirectionOutbound {
		return nil
	}
	a, err := actions.ParseMachineDetection(s.call.MachineDetection)
	if err != nil {
		return fmt.Errorf("read machine_detection: %w", err)
	}
	if a == nil {
		return nil
	}
	_, err = s.detectMachine(a)
	if errors.Is(err, errReplaced) {
		return nil // live control has a list: it is not for the detection to wait for
	}
	return err
}

// detectMachine judges who is at the other end of the call.
func (s *session) detectMachine(a *actions.MachineDetection) (outcome, error) {
	if err := s.open(false); err != nil {
		return outcome{}, err
	}
	s.flow.idle = 0
	d, err := s.beginDetection(a)
	if err != nil {
		return outcome{}, err
	}
	switch {
	case d == nil:
		return outcome{result: map[string]any{"outcome": "failed"}}, nil
	case a.Async:
		return outcome{result: map[string]any{"outcome": "started"}}, nil
	}
	if err := s.await(nil, func() bool { return d.done || s.interrupted() }); err != nil {
		return outcome{}, err
	}
	if !d.done {
		s.dropDetection(d)
		interrupted := outcome{result: map[string]any{"outcome": reasonInterrupted}}
		if a.Mode == actions.ModeMessageEnd {
			return interrupted, s.listenForBeep(false)
		}
		return interrupted, nil
	}
	return outcome{result: map[string]any{
		"outcome": "done", "answered_by": d.verdict, "beep": d.beep, "after_ms": d.after.Milliseconds(),
	}}, nil
}

// beginDetection starts the recording that is judged. It is nil when the switch would not: that was told, and the call goes on.
func (s *session) beginDetection(a *actions.MachineDetection) (*detection, error) {
	if s.node.row.Remote() {
		return nil, s.fail(a, codeNotSupported, "", "this node's greetings cannot be listened to: its disk is not shared")
	}
	dir := s.m.cfg.RecordingDir(s.node.row)
	if err := s.node.makeFolder(dir); err != nil {
		return nil, fmt.Errorf("make the recordings folder: %w", err)
	}
	d := &detection{
		a: a, path: filepath.Join(dir, models.NewID("greeting_")+".wav"), begun: s.m.cfg.Now(),
	}
	if a.Mode == actions.ModeMessageEnd {
		if err := s.listenForBeep(true); err != nil {
			return nil, err
		}
	}
	err := s.order("record the greeting", func(ctx context.Context) error {
		return s.node.sw.RecordStartWith(ctx, s.channel, d.path, esl.RecordOptions{
			ReadOnly: true, InitialSilence: min(greetingWait, a.Timeout), FinalSilence: greetingPause, Threshold: greetingLevel,
		})
	})
	var refused *esl.CommandError
	switch {
	case errors.As(err, &refused):
		s.log.Warn("greeting not recorded", "error", err)
		return nil, s.fail(a, codeActionFailed, "", "the switch could not listen to the greeting")
	case err != nil:
		return nil, err
	}
	s.detections = append(s.detections, d)
	s.setAlarm(d, hearingTime(a))
	return d, nil
}

// setAlarm gives a detection its time.
func (s *session) setAlarm(d *detection, after time.Duration) {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer = time.AfterFunc(after, func() { s.box.put(message{expired: d}) })
}

// listenForBeep starts or ends the switch's detector of beeps. It is an application that is over at once; nobody waits for it. The
// API command of the same name detects nothing in FreeSWITCH 1.10.12 (mod_avmd.c, avmd_api_main copies no settings).
func (s *session) listenForBeep(on bool) error {
	has := false
	err := s.order("ask for a module", func(ctx context.Context) (err error) {
		has, err = s.node.capable(ctx, moduleBeep)
		return err
	})
	if err != nil || !has {
		return err
	}
	app := esl.AVMDStart()
	if !on {
		app = esl.AVMDStop()
	}
	return s.order("listen for a beep", func(ctx context.Context) error {
		return s.node.sw.Execute(ctx, s.channel, esl.NewEventUUID(), app)
	})
}

// moduleBeep is the module that finds the beep of a mailbox.
const moduleBeep = "mod_avmd"

// handleRecordStop takes the end of a recording: a greeting that is over, or has not begun in time.
func (s *session) handleRecordStop(ev *esl.Event) error {
	path := ev.Get("Record-File-Path")
	for _, d := range s.detections {
		if d.path == path && d.verdict == "" {
			return s.judge(d)
		}
	}
	return nil
}

// handleBeep takes the beep of a mailbox. The switch tells of it twice.
func (s *session) handleBeep(*esl.Event) error {
	for _, d := range s.detections {
		if d.beep || d.a.Mode != actions.ModeMessageEnd {
			continue
		}
		d.beep = true
		d.verdict = answeredMachine // only machines beep
		return s.finishDetection(d)
	}
	return nil
}

// expire takes the end of a detection's time.
func (s *session) expire(d *detection) error {
	switch {
	case d.done:
		return nil
	case d.verdict == "":
		return s.judge(d)
	default:
		return s.finishDetection(d)
	}
}

// judge measures the greeting. A machine's message may still be going to end with a beep.
func (s *session) judge(d *detection) error {
	s.stopGreeting(d)
	spoken, err := greetingLength(d.path)
	if err != nil {
		s.log.Warn("greeting not judged", "error", err)
	}
	d.verdict = judgeGreeting(spoken)
	if d.verdict != answeredMachine || d.a.Mode != actions.ModeMessageEnd || d.beep {
		return s.finishDetection(d)
	}
	left := d.a.Timeout - s.m.cfg.Now().Sub(d.begun)
	if left <= 0 {
		return s.finishDetection(d)
	}
	s.setAlarm(d, min(left, beepWait))
	return nil
}

// stopGreeting ends the recording of a greeting, should it go on.
func (s *session) stopGreeting(d *detection) {
	ctx, cancel := s.command()
	defer cancel()
	err := s.node.sw.RecordStop(ctx, s.channel, d.path)
	var refused *esl.CommandError
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, esl.ErrNoSuchChannel) {
		s.log.Warn("greeting not ended", "error", err)
	}
}

// finishDetection tells the verdict, and hangs up on a machine where that is wanted.
func (s *session) finishDetection(d *detection) error {
	d.done = true
	d.after = s.m.cfg.Now().Sub(d.begun)
	s.dropDetection(d)
	if d.a.Mode == actions.ModeMessageEnd && !s.ended {
		if err := s.listenForBeep(false); err != nil {
			return err
		}
	}
	data := map[string]any{"answered_by": d.verdict, "beep": d.beep, "after_ms": d.after.Milliseconds()}
	err := s.change("call.machine_detected", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		call.AnsweredBy = d.verdict
		if err := tx.UpdateCall(ctx, call, "answered_by"); err != nil {
			return err
		}
		return emit(ctx, tx, call, "call.machine_detected", data)
	})
	if err != nil {
		return err
	}
	if d.verdict == answeredMachine && d.a.OnMachine == actions.OnMachineHangup {
		s.ask(intent{reason: reasonAnsweredMachine, source: SourcePlatform, cause: causeNormal})
		return errEnding
	}
	return nil
}

// dropDetection forgets a detection and its file.
func (s *session) dropDetection(d *detection) {
	d.timer.Stop()
	kept := s.detections[:0]
	for _, other := range s.detections {
		if other != d {
			kept = append(kept, other)
		}
	}
	s.detections = kept
	if d.verdict == "" {
		s.stopGreeting(d)
	}
	if err := os.Remove(d.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Warn("greeting not removed", "error", err)
	}
}

// dropDetections forgets the detections of a call that is over.
func (s *session) dropDetections() {
	for len(s.detections) > 0 {
		d := s.detections[0]
		d.verdict = cmp.Or(d.verdict, answeredUnknown)
		s.dropDetection(d)
	}
}
