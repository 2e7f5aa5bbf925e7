package simswitch

import (
	"strings"
	"time"
)

// step is one thing the party at the far end of an outgoing call does, after the one before it.
type step struct {
	after time.Duration
	do    func(c *channel)
}

const (
	// answerDelay is how long the simulated carrier takes to react to an INVITE.
	answerDelay = 5 * time.Millisecond
	// digitSpacing is the time between two digits that a simulated party sends, beside their own length.
	digitSpacing = 280 * time.Millisecond
)

func rings(c *channel)   { c.ring() }
func answers(c *channel) { c.answer() }
func hangsUp(c *channel) { c.byeReceived() }

// outcomeOf is what the telephone company does with the numbers that end in suffix, where a dot is any digit.
type outcomeOf struct {
	suffix string
	steps  func(last int) []step
	// says is what the party at the far end lets one hear from the answer on.
	says []utterance
}

// carrier is what the telephone company does with a number, chosen by how it ends; the same as the dialplan of the lab's
// carrier.
var carrier = []outcomeOf{
	{suffix: "486", steps: refuses(486)},
	{suffix: "404", steps: refuses(404)},
	{suffix: "603", steps: refuses(603)},
	{suffix: "503", steps: refuses(503)},
	// The carrier's dialplan ends after a minute of ringing, and FreeSWITCH refuses with 480 then.
	{suffix: "180", steps: does(step{answerDelay, rings}, step{60 * time.Second, func(c *channel) { c.refused(480) }})},
	{suffix: "183", steps: does(step{answerDelay, func(c *channel) { c.preAnswer() }}, step{6 * time.Second, answers}, step{3 * time.Second, hangsUp})},
	{suffix: "700", steps: picksUp(append(dials("1234#", 1500*time.Millisecond, 150*time.Millisecond+digitSpacing), step{20 * time.Second, hangsUp})...)},
	{suffix: "701", steps: picksUp(step{2 * time.Second, hangsUp})},
	{suffix: "702", steps: picksUp(step{20 * time.Second, hangsUp}), says: []utterance{{length: 20 * time.Second, tone: true}}},
	{suffix: "703", steps: picksUp(step{8 * time.Second, hangsUp})},
	{suffix: "71.", steps: func(last int) []step {
		return []step{{answerDelay, rings}, {time.Duration(last) * time.Second, answers}, {minute, hangsUp}}
	}},
	{suffix: "720", steps: picksUp(step{minute, hangsUp}), says: []utterance{{after: 500 * time.Millisecond, length: 600 * time.Millisecond}}},
	{suffix: "721", steps: picksUp(step{minute, hangsUp}), says: []utterance{{after: 300 * time.Millisecond, length: greeting},
		{length: 500 * time.Millisecond, tone: true}}},
	{suffix: "722", steps: picksUp(step{minute, hangsUp}), says: []utterance{{after: 300 * time.Millisecond, length: greeting}}},
	{suffix: "723", steps: picksUp(step{minute, hangsUp})},
	{suffix: "73.", steps: func(last int) []step {
		return picksUp(step{time.Second, func(c *channel) { c.press("0123456789"[last]) }}, step{minute, hangsUp})(last)
	}},
	{suffix: "", steps: picksUp()},
}

const (
	minute = time.Minute
	// greeting is about how long the lab's carrier takes for what its machines say.
	greeting = 9 * time.Second
)

func does(steps ...step) func(int) []step { return func(int) []step { return steps } }

func refuses(status int) func(int) []step {
	return does(step{answerDelay, func(c *channel) { c.refused(status) }})
}

// picksUp rings for a moment, answers, and goes on with more.
func picksUp(more ...step) func(int) []step {
	return does(append([]step{{answerDelay, rings}, {300 * time.Millisecond, answers}}, more...)...)
}

func dials(digits string, first, every time.Duration) []step {
	var steps []step
	for i := range len(digits) {
		digit := digits[i]
		wait := every
		if i == 0 {
			wait = first
		}
		steps = append(steps, step{wait, func(c *channel) { c.press(digit) }})
	}
	return steps
}

// farEnd is what the party does that a number reaches.
func farEnd(number string) (steps []step, says []utterance) {
	for _, o := range carrier {
		if last, ok := endsIn(number, o.suffix); ok {
			return o.steps(last), o.says
		}
	}
	return nil, nil
}

// endsIn compares the end of a number with a suffix whose dot is any digit, and returns that digit.
func endsIn(number, suffix string) (last int, ok bool) {
	stem, dotted := strings.CutSuffix(suffix, ".")
	if !dotted {
		return 0, strings.HasSuffix(number, suffix)
	}
	if number == "" {
		return 0, false
	}
	digit := number[len(number)-1]
	return int(digit - '0'), digit >= '0' && digit <= '9' && strings.HasSuffix(number[:len(number)-1], stem)
}

// follow plays a script; the channel's end takes back what has not happened.
func (c *channel) follow(steps []step) {
	if len(steps) == 0 {
		return
	}
	c.sw.tasks.after(steps[0].after, c.uuid, func() {
		if !c.up() {
			return
		}
		steps[0].do(c)
		c.follow(steps[1:])
	})
}
