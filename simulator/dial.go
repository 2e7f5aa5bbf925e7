package simulator

import (
	"regexp"
	"strings"
	"time"

	"tandem/actions"
)

// outcomes are what may become of a party that is called: the cause and the SIP status of the refusal. An answered one has none.
var outcomes = []struct {
	name, cause, sip string
}{
	{"answered", "", ""},
	{"busy", "USER_BUSY", "486"},
	{"no_answer", "NO_ANSWER", ""},
	{"declined", "CALL_REJECTED", "603"},
	{"invalid_number", "UNALLOCATED_NUMBER", "404"},
	{"failed", "NORMAL_TEMPORARY_FAILURE", "503"},
}

func dialOutcomes() []string {
	names := make([]string, len(outcomes))
	for i, o := range outcomes {
		names[i] = o.name
	}
	return names
}

// party is one target of a dial string.
type party struct {
	channel, address string
}

// target matches one target of a dial string as this project's esl package writes it: its variables, among them its channel, in
// brackets or braces, and its address, in which neither commas nor bars occur.
var target = regexp.MustCompile(`origination_uuid='?([0-9a-f-]{36})[^\]}]*[\]}]+([^,|\[{]*)`)

// parties reads the targets of a dial string.
func parties(dial string) []party {
	var list []party
	for _, match := range target.FindAllStringSubmatch(dial, -1) {
		list = append(list, party{channel: match[1], address: match[2]})
	}
	return list
}

// bridge calls the parties of a dial string and talks with the first that answers. over is false while that party is judged.
func (g *stage) bridge(channelID, eventUUID, dial string) (result []string, over bool) {
	var last []string
	var answered *party
	var how *Dial
	list := parties(dial)
	for i := range list {
		p := &list[i]
		g.add(p.channel, "outbound", nil)
		g.event("CHANNEL_PROGRESS", p.channel)
	}
	for i := range list {
		p := &list[i]
		in := g.cast.next(g.current, func(in *Input) bool {
			return in.Dial != nil && (in.Dial.To == "" || strings.HasSuffix(p.address, in.Dial.To) || strings.HasSuffix(p.address, strings.TrimPrefix(in.Dial.To, "+")))
		})
		scripted := &Dial{Outcome: "no_answer"}
		if in != nil {
			scripted = in.Dial
		}
		if scripted.Outcome == "answered" {
			if answered == nil {
				answered, how = p, scripted
			}
			continue
		}
		for _, o := range outcomes {
			if o.name != scripted.Outcome {
				continue
			}
			g.clock.pass(time.Second)
			last = []string{
				"variable_originate_disposition", o.cause, "variable_last_bridge_hangup_cause", o.cause,
				"variable_last_bridge_proto_specific_hangup_cause", "sip:" + o.sip,
			}
			g.hangUp(p.channel, o.cause, theyRefused, "variable_sip_term_status", o.sip)
		}
	}
	if answered == nil {
		return last, true
	}
	for i := range list {
		if list[i].channel != answered.channel {
			g.hangUp(list[i].channel, "LOSE_RACE", weCanceled)
		}
	}
	g.clock.pass(3 * time.Second)
	detection := g.detection()
	if detection != nil {
		g.mu.Lock()
		g.pending = &pending{channel: channelID, eventUUID: eventUUID, app: "bridge", party: answered, how: how}
		g.mu.Unlock()
	}
	g.answer(answered.channel)
	if detection == nil || detection.Async {
		g.answer(channelID)
		g.event("CHANNEL_BRIDGE", channelID, "Other-Leg-Unique-ID", answered.channel)
	}
	if detection != nil {
		return nil, false
	}
	return g.converse(channelID, answered, how), true
}

// detection is the machine detection of the dial that runs, nil when it has none.
func (g *stage) detection() *actions.MachineDetection {
	if d, ok := g.current.(*actions.Dial); ok {
		return d.MachineDetection
	}
	return nil
}

// converse lets caller and party talk until one hangs up. The result is nil when it was the caller.
func (g *stage) converse(channelID string, p *party, how *Dial) []string {
	g.clock.pass(duration(how.Seconds))
	if how.EndedBy == "caller" {
		g.leave(channelID)
		g.hangUp(p.channel, "NORMAL_CLEARING", weHungUp)
		return nil
	}
	g.hangUp(p.channel, "NORMAL_CLEARING", theyHungUp)
	return []string{"variable_originate_disposition", "SUCCESS", "variable_last_bridge_hangup_cause", "NORMAL_CLEARING"}
}
