package simswitch

import (
	"time"
)

const (
	// frameLength is the length of an audio frame.
	frameLength = 20 * time.Millisecond
	// silenceCountdown is how many more frames wait_for_silence reads once it has found the silence.
	silenceCountdown = 25
)

// silenceWait is the arguments of wait_for_silence: how many silent frames are awaited, after how many loud ones, and for how long
// at most, zero for ever.
type silenceWait struct {
	silent, loud int
	limit        time.Duration
}

// silenceResult is what wait_for_silence tells in its variables.
type silenceResult struct {
	over     bool
	timedOut bool
	heard    int
	left     int
}

// appWaitForSilence is wait_for_silence_function: `threshold silence_hits listen_hits timeout_ms`. What the far end says is its
// script (see utterance); whatever the threshold, speech is above it. Nothing ends the wait early but a hang-up or a transfer:
// switch_ivr_wait_for_silence looks neither at uuid_break nor at messages.
func (c *channel) appWaitForSilence(data string) {
	words := separate(data, ' ', 5)
	if len(words) < 4 || leadingInt(words[0]) <= 0 || leadingInt(words[1]) <= 0 {
		c.sw.log.Error("wait_for_silence needs a threshold, silence hits, listen hits and a timeout", "channel", c.uuid)
		return
	}
	w := silenceWait{silent: leadingInt(words[1]), loud: leadingInt(words[2]), limit: time.Duration(max(0, leadingInt(words[3]))) * time.Millisecond}
	begun := c.sw.clock.now()
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		at, result := w.run(begun, c.sounds(begun))
		if !c.pass(at, result.over, changed) {
			if !c.ready() {
				return
			}
			continue
		}
		c.mu.Lock()
		c.setLocked("wait_for_silence_timeout", map[bool]string{true: "true", false: "false"}[result.timedOut])
		c.setLocked("wait_for_silence_listenhits", itoa(result.heard))
		c.setLocked("wait_for_silence_silence_hits", itoa(result.left))
		c.mu.Unlock()
		return
	}
}

// pass lets time pass until at, or for ever. It reports false when the channel is wanted elsewhere or changed meanwhile.
func (c *channel) pass(at time.Time, ends bool, changed <-chan struct{}) bool {
	var expired <-chan time.Time
	if ends {
		timer := time.NewTimer(max(0, c.sw.clock.real(at.Sub(c.sw.clock.now()))))
		defer timer.Stop()
		expired = timer.C
	}
	if !c.ready() {
		return false
	}
	select {
	case <-expired:
		return c.ready()
	case <-changed:
		return false
	}
}

// run is the loop of switch_ivr_wait_for_silence over the frames of what the far end says. over is false when it would never end.
func (w silenceWait) run(begun time.Time, sounds []sound) (time.Time, silenceResult) {
	r := silenceResult{left: w.silent}
	at := begun
	countdown := 0
	for frame := 1; ; frame++ {
		at = at.Add(frameLength)
		if w.limit > 0 && time.Duration(frame)*frameLength >= w.limit {
			r.over, r.timedOut = true, true
			return at, r
		}
		if countdown > 0 {
			if countdown--; countdown == 0 {
				r.over = true
				return at, r
			}
			continue
		}
		for len(sounds) > 0 && !sounds[0].end.After(at) {
			sounds = sounds[1:]
		}
		if len(sounds) == 0 && w.loud > 0 && r.heard <= w.loud && w.limit == 0 {
			return at, r
		}
		loud := len(sounds) > 0 && !sounds[0].begin.After(at)
		if loud {
			r.heard++
		}
		if !loud && (w.loud == 0 || r.heard > w.loud) {
			if r.left--; r.left == 0 {
				countdown = silenceCountdown
			}
		} else {
			r.left = w.silent
		}
	}
}
