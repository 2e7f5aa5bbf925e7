package simswitch

import "time"

// utterance is something a simulated party lets one hear: speech, or a tone. after is the silence before it.
type utterance struct {
	after, length time.Duration
	tone          bool
}

// sound is an utterance on the switch's clock.
type sound struct {
	begin, end time.Time
	tone       bool
}

// hearLocked has the far end say something from now on, or after what it says already.
func (c *channel) hearLocked(says []utterance) {
	at := c.sw.clock.now()
	if n := len(c.voice); n > 0 && c.voice[n-1].end.After(at) {
		at = c.voice[n-1].end
	}
	for _, u := range says {
		at = at.Add(u.after)
		c.voice = append(c.voice, sound{begin: at, end: at.Add(u.length), tone: u.tone})
		at = at.Add(u.length)
	}
	c.listenForBeepLocked()
}

// sounds returns what the far end lets one hear from a time on, the first of it perhaps begun already.
func (c *channel) sounds(from time.Time) []sound {
	c.mu.Lock()
	defer c.mu.Unlock()
	var left []sound
	for _, s := range c.voice {
		if s.end.After(from) {
			left = append(left, s)
		}
	}
	return left
}

// utterances is what the script of an incoming call has the caller say.
func (call *IncomingCall) utterances() []utterance {
	var says []utterance
	seconds := func(f float64) time.Duration { return time.Duration(f * float64(time.Second)) }
	for i := 0; i+1 < len(call.Says); i += 2 {
		says = append(says, utterance{after: seconds(call.Says[i]), length: seconds(call.Says[i+1])})
	}
	return says
}
