package simswitch

import (
	"strings"
	"time"
)

// appRedirect is redirect_function: an INVITE that nobody answered yet is answered 302 with another address, which ends the call.
// On an answered call it does nothing.
func (c *channel) appRedirect(data string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if data == "" || c.answered || c.outbound {
		c.sw.log.Warn("redirect on a channel that cannot be redirected", "channel", c.uuid)
		return
	}
	c.respondCode = statusRedirect
	c.hangupLocked(causeNormalUnspecified)
}

const (
	statusRedirect = 302
	// referPatience is how long deflect waits for what becomes of a REFER (mod_sofia.c, SWITCH_MESSAGE_INDICATE_DEFLECT).
	referPatience = 10 * time.Second
)

// appDeflect is deflect_function with mod_sofia: the far end is sent a REFER, and its NOTIFY is waited for. The call ends whatever that
// says, unless sip_refer_continue_after_reply lets it go on, in which case nothing is waited for. The end of the number that the
// far end is sent to picks what it reports: 403, 404, 486, 503 and 603 refuse, 180 never answers, others do.
func (c *channel) appDeflect(data string) {
	if data == "" {
		return
	}
	user, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(data, "<"), "sip:"), "sips:"), "@")
	status := 200
	for _, code := range []int{403, 404, 486, 503, 603} {
		if strings.HasSuffix(user, itoa(code)) {
			status = code
		}
	}
	silent := strings.HasSuffix(user, "180")
	goesOn := isTrue(c.variable("sip_refer_continue_after_reply"))
	notified := make(chan struct{})
	c.sw.tasks.after(answerDelay, "", func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.setLocked("sip_refer_status_code", "202")
		if !silent {
			c.setLocked("sip_refer_target_status_code", itoa(status))
			c.setLocked("sip_refer_reply", "SIP/2.0 "+itoa(status)+" "+sipPhrase(status)+"\r\n")
			if status == 200 && !goesOn {
				c.hangupLocked(causeBlindTransfer)
			}
		}
		close(notified)
	})
	if goesOn {
		return
	}
	timer := time.NewTimer(c.sw.clock.real(referPatience))
	defer timer.Stop()
	for waiting := true; waiting && c.up(); {
		select {
		case <-notified:
			waiting = silent
			notified = nil
		case <-timer.C:
			waiting = false
		case <-c.wake:
		}
	}
	c.hangup(causeBlindTransfer)
}
