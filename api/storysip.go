package api

import (
	"fmt"
	"strings"
	"time"

	"tandem/models"
	"tandem/webhooks"
)

// signalling tells what SIP is known of the call and its legs. Tandem sees no SIP messages: the node's record of a channel (its CDR)
// has the times of the first INVITE, the answer and the end, who ended the dialogue and how; the call's own times tell of a
// channel that has no record yet.
func (t *storyteller) signalling() {
	call := &t.story.Call
	own := dialogue{name: "call", outbound: call.Direction == models.Outbound, party: call.To, ringing: call.RingingAt, answered: call.AnsweredAt, ended: call.EndedAt, code: call.SIPCode}
	if !own.outbound {
		own.party = call.From
	}
	if call.ChannelID != "" {
		t.dialogue(call.ChannelID, own, t.dialled())
	}
	for i := range t.story.Legs {
		leg := &t.story.Legs[i]
		if leg.ChannelID == "" || leg.Kind == models.LegQueue {
			continue // the other call's own channel
		}
		t.dialogue(leg.ChannelID, dialogue{
			name: leg.ID, outbound: true, party: leg.To, ringing: leg.RingingAt, answered: leg.AnsweredAt, ended: leg.EndedAt, code: leg.SIPCode,
		}, leg.CreatedAt)
	}
}

// dialled is the moment before which the call was not dialled: that of the event which tells that it will be.
func (t *storyteller) dialled() time.Time {
	at := t.story.Call.CreatedAt
	for i := range t.story.Events {
		if kind := t.story.Events[i].Type; kind == webhooks.KindCreated || kind == webhooks.KindDialing {
			at = t.story.Events[i].CreatedAt
		}
	}
	return at
}

// dialogue is what Tandem itself knows of a SIP dialogue.
type dialogue struct {
	name                     string
	outbound                 bool
	party                    string
	ringing, answered, ended *time.Time
	code                     int
}

func (t *storyteller) cdr(channel string) *models.CDR {
	for i := range t.story.CDRs {
		if t.story.CDRs[i].ChannelID == channel {
			return &t.story.CDRs[i]
		}
	}
	return nil
}

// dialogue tells a dialogue: by the node's record where there is one.
func (t *storyteller) dialogue(channel string, d dialogue, begun time.Time) {
	cdr := t.cdr(channel)
	arrow, back := "<- ", "-> "
	if d.outbound {
		arrow, back = "-> ", "<- "
	}
	about := ""
	if d.name != "call" {
		about = " (" + d.name + ")"
	}
	if cdr != nil && (!d.outbound || cdr.StartedAt.After(begun)) {
		begun = cdr.StartedAt // by the node's clock, but nothing is dialled before it was stored
	}
	t.add(fromSignalling, begun, laneSIP, d.name+"/invite", true, "%sINVITE %s%s%s", arrow, d.party, identity(cdr), about)
	if d.ringing != nil {
		t.add(fromSignalling, *d.ringing, laneSIP, d.name+"/ringing", true, "%s180 or 183%s", back, about)
	}
	answered, ended := d.answered, d.ended
	if cdr != nil {
		ended = &cdr.EndedAt
		if cdr.AnsweredAt != nil {
			answered = cdr.AnsweredAt
		}
	}
	if answered != nil {
		t.add(fromSignalling, *answered, laneSIP, d.name+"/answer", true, "%s200 OK%s", back, about)
	}
	if ended == nil {
		return
	}
	t.add(fromSignalling, *ended, laneSIP, d.name+"/end", true, "%s%s", ending(d, cdr, back, answered != nil), about)
	if cdr != nil {
		t.add(fromSignalling, cdr.EndedAt, laneSwitch, d.name+"/cdr", !silent(cdr), "channel %s ended: %s (Q.850 %d), %d s from the answer%s%s", channel, cdr.Cause, cdr.Q850, cdr.BilledSeconds,
			media(cdr), about)
	}
}

// identity is how a capture of the network knows a dialogue.
func identity(cdr *models.CDR) string {
	text := ""
	if cdr != nil && cdr.Peer != "" {
		text += ", peer " + cdr.Peer
	}
	if cdr != nil && cdr.SIPCallID != "" {
		text += ", Call-ID " + cdr.SIPCallID
	}
	return text
}

// media says what sound there was.
func media(cdr *models.CDR) string {
	text := ""
	if cdr.Codec != "" {
		text += ", " + cdr.Codec
	}
	if cdr.PacketsIn != nil && cdr.PacketsOut != nil {
		text += fmt.Sprintf(", %d packets of sound received and %d sent", *cdr.PacketsIn, *cdr.PacketsOut)
	}
	return text
}

// silentAfter is for how many seconds a channel must have been answered before it is odd that no sound came.
const silentAfter = 5

// silent reports whether no sound came from a party that was answered for a while.
func silent(cdr *models.CDR) bool {
	return cdr.AnsweredAt != nil && cdr.BilledSeconds >= silentAfter && cdr.PacketsIn != nil && *cdr.PacketsIn == 0
}

// ending says how a dialogue ended. What the switch calls its disposition is who sent the message that ended it
// (sofia.c, sip_hangup_disposition: send_bye, recv_bye, send_cancel, recv_cancel, send_refuse, recv_refuse).
func ending(d dialogue, cdr *models.CDR, back string, answered bool) string {
	code := d.code
	if cdr != nil {
		if cdr.SIPCode != 0 {
			code = cdr.SIPCode
		}
		direction, message, known := strings.Cut(cdr.Disposition, "_")
		if known && (direction == "send" || direction == "recv") {
			sign := map[string]string{"send": "-> ", "recv": "<- "}[direction]
			if message == "refuse" {
				return sign + refusalOf(code)
			}
			return sign + strings.ToUpper(message)
		}
	}
	if answered {
		return "BYE"
	}
	return back + refusalOf(code)
}

func refusalOf(code int) string {
	if code == 0 {
		return "the end, with no final answer"
	}
	return fmt.Sprint(code)
}
