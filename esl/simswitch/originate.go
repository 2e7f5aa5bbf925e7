package simswitch

import (
	"strings"
	"time"
)

const originateUsage = "-USAGE: <call url> <exten>|&<application_name>(<app_args>) [<dialplan>] [<context>] [<cid_name>] [<cid_num>] [<timeout_sec>]\n"

// originate is originate_function (mod_commands.c): it places a call and gives it an application or an extension.
func (s *Switch) originate(arg string) string {
	words := separate(arg, ' ', 10)
	if len(words) < 2 || len(words) > 7 {
		return originateUsage
	}
	word := func(i int) string {
		if i < len(words) && !strings.EqualFold(words[i], "undef") {
			return words[i]
		}
		return ""
	}
	if _, target, ok := strings.Cut(words[0], "}"); ok && strings.HasPrefix(target, "null/") && strings.EqualFold(word(2), "inline") {
		return s.renames(words[1])
	}
	timeout := 60 * time.Second
	if n := leadingInt(word(6)); n > 0 {
		timeout = time.Duration(n) * time.Second
	}
	override := &profile{cidName: word(4), cidNumber: word(5), origNumber: word(5), ani: word(5),
		source: "src/switch_ivr_originate.c", context: "default"}
	s.mu.RLock()
	paused := s.pausedOut
	s.mu.RUnlock()
	if paused {
		return "-ERR DESTINATION_OUT_OF_ORDER\n"
	}
	result := s.dial(nil, words[0], timeout, override)
	c := result.winner
	if c == nil {
		return "-ERR " + result.cause.String() + "\n"
	}
	exten := words[1]
	name, isApp := strings.CutPrefix(exten, "&")
	c.flipCallerID()
	if isApp && name != "" {
		name, _, _ = strings.Cut(name, ")")
		name, data, _ := strings.Cut(name, "(")
		c.handOver(func() { c.runExtension([]application{{name, data}}) })
		return "+OK " + c.uuid + "\n"
	}
	dialplan, context := word(2), word(3)
	if dialplan != "" && !strings.EqualFold(dialplan, "XML") {
		s.log.Error("dialplan is not simulated", "dialplan", dialplan)
		c.hangup(causeNoRoute)
		return "+OK " + c.uuid + "\n"
	}
	c.mu.Lock()
	c.profile.destination = exten
	c.profile.context = "default"
	if context != "" {
		c.profile.context = context
	}
	c.mu.Unlock()
	c.handOver(c.route)
	return "+OK " + c.uuid + "\n"
}

// flipCallerID turns the caller profile of an originated channel around: from now on the party that was called is the
// caller (switch_channel_flip_cid).
func (c *channel) flipCallerID() {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.profile
	c.setLocked("pre_transfer_caller_id_name", p.cidName)
	c.setLocked("pre_transfer_caller_id_number", p.cidNumber)
	number := p.cidNumber
	p.cidName, p.cidNumber = p.destination, p.destination
	p.calleeName, p.calleeNumber = "", number
	c.setLocked("channel_cid_flipped", "yes")
	c.hitPlan = true
}
