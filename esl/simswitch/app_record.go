package simswitch

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// recording is a file that a session is being recorded to.
type recording struct {
	path  string
	begun time.Time
	limit *task
	// channels is 2 when each side has its own (RECORD_STEREO).
	channels int
	// recorded is the length before begun, which is when it was resumed last.
	recorded time.Duration
	paused   bool
	// initial and final are the silences that end it: before anything was said, and after something was (RECORD_INITIAL_TIMEOUT_MS,
	// RECORD_FINAL_TIMEOUT_MS). 0 is never.
	initial, final time.Duration
	started        time.Time
	watch          *task
}

var (
	fromRecord      = origin{"switch_ivr_play_say.c", "switch_ivr_record_file_event"}
	fromRecordStart = origin{"switch_ivr_async.c", "record_callback"}
	fromRecordStop  = origin{"switch_ivr_async.c", "send_record_stop_event"}
)

// appRecord is record_function: `path [limit seconds [threshold [silence seconds]]]`. The simulated party is silent unless
// IncomingCall.TalkFor says that it talks, so a recording with a silence limit ends by it.
func (c *channel) appRecord(data string) {
	words := separate(data, ' ', 4)
	if len(words) == 0 {
		c.sw.log.Error("record without a file", "channel", c.uuid)
		return
	}
	path := words[0]
	if !filepath.IsAbs(path) {
		c.sw.log.Error("record needs an absolute path", "path", path, "channel", c.uuid)
		c.hangup(causeOutOfOrder)
		return
	}
	limit := endless
	word := func(i int) int {
		if i < len(words) {
			return leadingInt(words[i])
		}
		return 0
	}
	if seconds := word(1); seconds > 0 {
		limit = time.Duration(seconds) * time.Second
	}
	silence := false
	if seconds := word(3); seconds > 0 {
		quiet := c.talkLeft() + time.Duration(seconds)*time.Second
		if limit == endless || quiet < limit {
			limit, silence = quiet, true
		}
	}
	about := header{"Record-File-Path", path}
	c.set("silence_hits_exhausted", "false")
	c.fire(evRecordStart, fromRecord, about)
	begun := c.sw.clock.now()
	result := c.wait(limit, c.terminators())
	length := c.sw.clock.now().Sub(begun)
	if limit != endless && (result == finished || length > limit) {
		length = limit
	}
	size, err := writeWAV(path, length, 1)
	if err != nil {
		c.sw.log.Error("cannot record", "path", path, "channel", c.uuid, "error", err)
		c.hangup(causeOutOfOrder)
		return
	}
	c.mu.Lock()
	c.setLocked("silence_hits_exhausted", map[bool]string{true: "true", false: "false"}[silence && result == finished])
	c.setLocked("record_record_file_size", itoa(int(size)))
	c.recordVarsLocked(length, size)
	c.fireLocked(evRecordStop, fromRecord, about)
	c.mu.Unlock()
	if !c.ready() {
		c.hangup(causeOutOfOrder)
	}
}

func (c *channel) recordVarsLocked(length time.Duration, size int64) {
	c.setLocked("record_file_size", itoa(int(size)))
	c.setLocked("record_samples", itoa(int(length.Milliseconds())*recordRate/1000))
	c.setLocked("record_seconds", itoa(int(length.Seconds())))
	c.setLocked("record_ms", itoa(int(length.Milliseconds())))
}

// talkLeft is how much longer the simulated caller talks.
func (c *channel) talkLeft() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.incoming == nil || c.times.answered == 0 {
		return 0
	}
	spent := time.Duration(c.sw.clock.micros()-c.times.answered) * time.Microsecond
	return max(0, c.incoming.TalkFor-spent)
}

// appRecordSession is record_session_function: `path [+limit seconds]`.
func (c *channel) appRecordSession(data string) {
	words := separate(data, ' ', 3)
	if len(words) == 0 {
		return
	}
	limit := 0
	if len(words) > 1 {
		limit = leadingInt(words[1])
	}
	c.startRecording(words[0], limit, nil)
}

func (c *channel) appStopRecordSession(data string) { c.stopRecording(data) }

// startRecording is switch_ivr_record_session: the session is recorded from now on, beside whatever it runs.
// What vars, the variables of uuid_record, do not say, the channel's do.
func (c *channel) startRecording(path string, seconds int, vars map[string]string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != causeNone || !c.hasMedia || !filepath.IsAbs(path) {
		c.sw.log.Error("cannot record session", "path", path, "channel", c.uuid, "media", c.hasMedia)
		return false
	}
	for _, r := range c.recordings {
		if r.path == path {
			return true
		}
	}
	now := c.sw.clock.now()
	r := &recording{path: path, begun: now, started: now, channels: 1}
	variable := func(name string) string {
		if value, given := vars[name]; given {
			return value
		}
		return c.variableLocked(name)
	}
	if isTrue(variable("RECORD_STEREO")) {
		r.channels = 2
	}
	r.initial = time.Duration(max(0, leadingInt(variable("RECORD_INITIAL_TIMEOUT_MS")))) * time.Millisecond
	r.final = time.Duration(max(0, leadingInt(variable("RECORD_FINAL_TIMEOUT_MS")))) * time.Millisecond
	c.recordings = append(c.recordings, r)
	if seconds > 0 {
		r.limit = c.sw.tasks.after(time.Duration(seconds)*time.Second, "", func() { c.stopRecording(path) })
	}
	c.fireLocked(evRecordStart, fromRecordStart, header{"Record-File-Path", path})
	if r.initial > 0 || r.final > 0 {
		r.watch = c.sw.tasks.after(silenceLook, "", func() { c.watchSilence(r) })
	}
	return true
}

// silenceLook is how often a recording that silence ends is looked at.
const silenceLook = 5 * frameLength

// watchSilence ends a recording once the far end has been silent for long enough (switch_ivr_async.c, record_callback).
func (c *channel) watchSilence(r *recording) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.recordings, r)
	if at < 0 {
		return
	}
	now := c.sw.clock.now()
	quiet, limit, completion := r.started, r.initial, "no-input-timeout"
	for _, s := range c.voice {
		if s.end.After(r.started) && !s.begin.After(now) {
			quiet, limit, completion = s.end, r.final, "success-silence"
		}
	}
	if limit == 0 || now.Sub(quiet) < limit {
		r.watch = c.sw.tasks.after(silenceLook, "", func() { c.watchSilence(r) })
		return
	}
	c.recordings = slices.Delete(c.recordings, at, at+1)
	c.endRecordingLocked(r, completion)
}

// stopRecording is switch_ivr_stop_record_session: one file, or all of them.
func (c *channel) stopRecording(path string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var kept []*recording
	for _, r := range c.recordings {
		if r.path == path || strings.EqualFold(path, "all") {
			c.endRecordingLocked(r, "success-maxtime")
		} else {
			kept = append(kept, r)
		}
	}
	stopped := len(kept) < len(c.recordings)
	c.recordings = kept
	return stopped
}

// changeRecording pauses or masks a recording, or takes that back. A paused recording grows no longer; a masked
// one holds silence, which simulated recordings do anyway.
func (c *channel) changeRecording(path, verb string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.recordings {
		if r.path != path {
			continue
		}
		now := c.sw.clock.now()
		switch {
		case verb == "pause" && !r.paused:
			r.paused, r.recorded = true, r.recorded+now.Sub(r.begun)
		case verb == "resume" && r.paused:
			r.paused, r.begun = false, now
		}
		return true
	}
	return false
}

func (c *channel) stopRecordingsLocked() {
	for _, r := range c.recordings {
		c.endRecordingLocked(r, "success-silence")
	}
	c.recordings = nil
}

func (c *channel) endRecordingLocked(r *recording, completion string) {
	c.sw.tasks.cancel(r.limit)
	if r.watch != nil {
		c.sw.tasks.cancel(r.watch)
	}
	length := r.recorded
	if !r.paused {
		length += c.sw.clock.now().Sub(r.begun)
	}
	size, err := writeWAV(r.path, length, r.channels)
	if err == nil && r.watch != nil {
		err = writeSpeech(r.path, r.channels, r.started, length, c.voice)
	}
	if err != nil {
		c.sw.log.Error("cannot write recording", "path", r.path, "channel", c.uuid, "error", err)
	}
	c.recordVarsLocked(length, size)
	c.setLocked("record_completion_cause", completion)
	c.fireLocked(evRecordStop, fromRecordStop, header{"Record-File-Path", r.path},
		header{"Record-Completion-Cause", completion})
}
