package esl

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// RecordOptions say how both sides of a channel are recorded (switch_ivr_async.c, switch_ivr_record_session_event).
type RecordOptions struct {
	// Stereo gives each side a channel of the file: what the party says the left one, what it hears the right one.
	Stereo bool
	// ReadOnly leaves out what the party hears.
	ReadOnly bool
	// InitialSilence ends a recording in which nothing was heard yet, FinalSilence one after something was: both count as
	// silence what is below Threshold, of 1 to 32767. 0 is never.
	InitialSilence, FinalSilence time.Duration
	Threshold                    int
}

// variables are the options as uuid_record takes them. They hold nothing but words and digits of ours.
func (o RecordOptions) variables() (string, error) {
	var pairs []string
	if o.Stereo {
		pairs = append(pairs, "RECORD_STEREO=true")
	}
	if o.ReadOnly {
		pairs = append(pairs, "RECORD_READ_ONLY=true")
	}
	for _, limit := range []struct {
		field, name string
		d           time.Duration
	}{{"initial_silence", "RECORD_INITIAL_TIMEOUT_MS", o.InitialSilence}, {"final_silence", "RECORD_FINAL_TIMEOUT_MS", o.FinalSilence}} {
		if limit.d == 0 {
			continue
		}
		ms, err := milliseconds(limit.field, limit.d, 20*time.Millisecond, time.Hour)
		if err != nil {
			return "", err
		}
		pairs = append(pairs, limit.name+"="+ms)
	}
	if o.Threshold != 0 {
		if o.Threshold < 1 || o.Threshold > 32767 {
			return "", refuse("threshold", "must be from 1 to 32767")
		}
		pairs = append(pairs, "RECORD_SILENCE_THRESHOLD="+strconv.Itoa(o.Threshold))
	}
	if len(pairs) == 0 {
		return "", nil
	}
	return " 0 {" + strings.Join(pairs, ",") + "}", nil
}

// RecordStartWith records both sides of a channel into a file, from now on.
func (n *Node) RecordStartWith(ctx context.Context, channel, path string, options RecordOptions) error {
	vars, err := options.variables()
	if err != nil {
		return err
	}
	return n.record(ctx, channel, "start", path, vars)
}

// RecordStop ends what RecordStartWith began.
func (n *Node) RecordStop(ctx context.Context, channel, path string) error {
	return n.record(ctx, channel, "stop", path, "")
}

// RecordPause leaves out of a recording what follows, until RecordResume.
func (n *Node) RecordPause(ctx context.Context, channel, path string) error {
	return n.record(ctx, channel, "pause", path, "")
}

// RecordResume goes on after RecordPause.
func (n *Node) RecordResume(ctx context.Context, channel, path string) error {
	return n.record(ctx, channel, "resume", path, "")
}

// RecordMask records silence, until RecordUnmask.
func (n *Node) RecordMask(ctx context.Context, channel, path string) error {
	return n.record(ctx, channel, "mask", path, "")
}

// RecordUnmask goes on after RecordMask.
func (n *Node) RecordUnmask(ctx context.Context, channel, path string) error {
	return n.record(ctx, channel, "unmask", path, "")
}

func (n *Node) record(ctx context.Context, channel, verb, path, more string) error {
	if err := checkID("channel_id", channel); err != nil {
		return err
	}
	if err := checkFile("path", path); err != nil {
		return err
	}
	_, err := n.api(ctx, "uuid_record", channel+" "+verb+" "+path+more)
	return err
}
