package simswitch

import (
	"strings"
	"time"
)

// confirmation is what group_confirm_key and its like ask of the party that answered a leg.
type confirmation struct {
	key, file, errorFile string
	timeout              time.Duration
}

// confirm has the party of an answered leg asked for a key, when the dial string wants one
// (switch_ivr_originate.c, check_channel_status). It reports false when nothing is to be asked.
func (r *dialing) confirm(l *leg) bool {
	vars := l.c.get("group_confirm_key", "group_confirm_file", "group_confirm_error_file", "group_confirm_read_timeout",
		"group_confirm_timeout", "group_confirm_cancel_timeout")
	k := confirmation{key: vars["group_confirm_key"], file: vars["group_confirm_file"], errorFile: vars["group_confirm_error_file"],
		timeout: 5 * time.Second}
	if k.key == "" {
		return false
	}
	if ms := leadingInt(vars["group_confirm_read_timeout"]); ms > 0 {
		k.timeout = time.Duration(ms) * time.Millisecond
	}
	value, given := vars["group_confirm_timeout"]
	seconds := leadingInt(value)
	switch {
	case given && seconds > 0:
		l.limit = r.sw.clock.now().Add(time.Duration(seconds) * time.Second)
	case given, isTrue(vars["group_confirm_cancel_timeout"]):
		l.limit = time.Time{}
	}
	l.asked = true
	l.c.send(func() { l.c.collectKey(k) })
	return true
}

// collectKey is collect_thread_run of switch_ivr_originate.c: the file is played again and again until the key is pressed. The
// key "exec" runs the application that the file names instead.
func (c *channel) collectKey(k confirmation) {
	defer c.touch()
	if strings.EqualFold(k.key, "exec") {
		name, data, _ := strings.Cut(k.file, " ")
		if c.execute(name, data) {
			c.win()
		}
		return
	}
	file := k.file
	if file == "" {
		file = "silence"
	}
	for c.ready() {
		digits, result := c.read(gather{least: len(k.key), most: len(k.key), prompt: file, timeout: k.timeout, digitTimeout: k.timeout})
		if digits == k.key {
			c.win()
			return
		}
		switch result {
		case missing:
			c.sw.log.Error("cannot play the file that asks for the key", "file", file, "channel", c.uuid)
			c.hangup(causeOutOfOrder)
		case hungUp:
			return
		}
		if k.errorFile != "" {
			c.play(k.errorFile, nil)
		}
	}
}

// win makes a leg the one that is bridged.
func (c *channel) win() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != causeNone {
		return
	}
	c.winner = true
	for _, name := range []string{"group_confirm_key", "group_confirm_file", "group_confirm_error_file", "group_confirm_cancel_timeout",
		"group_confirm_read_timeout"} {
		c.setLocked(name, "")
	}
}

func (c *channel) touch() {
	c.mu.Lock()
	c.touchLocked()
	c.mu.Unlock()
}
