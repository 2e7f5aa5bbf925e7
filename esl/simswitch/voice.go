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

// hear fixes what the far end says from now on, in place of what it had yet to say.
func (c *channel) hearLocked(says []utterance) {
	at := c.sw.clock.now()
	c.voice = c.voice[:0:0]
	for _, u := range says {
		at = at.Add(u.after)
		c.voice = append(c.voice, sound{begin: at, end: at.Add(u.length), tone: u.tone})
		at = at.Add(u.length)
	}
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
