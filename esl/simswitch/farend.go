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

func refuse(status int) []step {
	return []step{{answerDelay, func(c *channel) { c.refused(status) }}}
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

// carrier is what the telephone company does with a number, chosen by how it ends; the same as the dialplan of the lab's
// carrier.
var carrier = []struct {
	suffix string
	steps  []step
}{
	{"486", refuse(486)},
	{"404", refuse(404)},
	{"603", refuse(603)},
	{"503", refuse(503)},
	// The carrier's dialplan ends after a minute of ringing, and FreeSWITCH refuses with 480 then.
	{"180", []step{{answerDelay, rings}, {60 * time.Second, func(c *channel) { c.refused(480) }}}},
	{"183", []step{{answerDelay, func(c *channel) { c.preAnswer() }}, {6 * time.Second, answers}, {3 * time.Second, hangsUp}}},
	{"700", append([]step{{answerDelay, rings}, {300 * time.Millisecond, answers}},
		append(dials("1234#", 1500*time.Millisecond, 150*time.Millisecond+digitSpacing), step{20 * time.Second, hangsUp})...)},
	{"701", []step{{answerDelay, rings}, {300 * time.Millisecond, answers}, {2 * time.Second, hangsUp}}},
	{"702", []step{{answerDelay, rings}, {300 * time.Millisecond, answers}, {20 * time.Second, hangsUp}}},
	{"", []step{{answerDelay, rings}, {300 * time.Millisecond, answers}}},
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

// farEnd is the script of the party that a number reaches.
func farEnd(number string) []step {
	for _, outcome := range carrier {
		if strings.HasSuffix(number, outcome.suffix) {
			return outcome.steps
		}
	}
	return nil
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
