package simswitch

import (
	"sort"
	"strings"
	"time"
)

// show is show_function, for what a controller asks: channels and calls, as JSON or counted.
func (s *Switch) show(arg string) string {
	words := strings.Fields(arg)
	if len(words) == 0 {
		return "-USAGE: codec|endpoint|application|api|dialplan|file|timer|calls [count]|channels [count]|calls|detailed_calls|bridged_calls|detailed_bridged_calls|aliases|complete|chat|management|modules|nat_map|say|interfaces|interface_types|tasks|limits|status\n"
	}
	kind, rest := strings.ToLower(words[0]), strings.ToLower(strings.Join(words[1:], " "))
	if kind == "status" {
		return s.status()
	}
	if kind == "registrations" && rest == "count as json" {
		return "{\"row_count\":0}\n" // nobody registers here
	}
	if kind != "channels" && kind != "calls" {
		s.log.Error("show command is not simulated", "command", arg)
		return "-ERR the simulated switch does not know this show command\n"
	}
	channels := s.snapshot()
	sort.Slice(channels, func(i, j int) bool { return channels[i].sessionID < channels[j].sessionID })
	var rows [][]header
	for _, c := range channels {
		c.mu.Lock()
		if c.running != stateDestroy && (kind == "channels" || !c.outbound || c.other == nil) {
			rows = append(rows, c.rowLocked())
		}
		c.mu.Unlock()
	}
	switch rest {
	case "count":
		return "\n" + itoa(len(rows)) + " total.\n"
	case "count as json":
		return `{"row_count":` + itoa(len(rows)) + "}\n"
	case "as json":
		return rowsJSON(rows)
	}
	s.log.Error("show format is not simulated", "command", arg)
	return "-ERR the simulated switch shows channels and calls as json or counted\n"
}

func rowsJSON(rows [][]header) string {
	if len(rows) == 0 {
		return "{\"row_count\": 0}\n"
	}
	b := make([]byte, 0, len(rows)*900)
	b = append(b, `{"row_count":`...)
	b = append(b, itoa(len(rows))...)
	b = append(b, `,"rows":[`...)
	for i, row := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		e := event{headers: row}
		b = e.appendJSON(b)
	}
	return string(append(b, "]}\n"...))
}

// rowLocked is a row of the core database's channels table, in its order.
func (c *channel) rowLocked() []header {
	p := &c.profile
	created := time.UnixMicro(c.times.created).UTC()
	callUUID := ""
	if c.other != nil {
		callUUID = c.callUUID
	}
	codec, rate, bits := c.codec, "", ""
	if codec != "" {
		rate, bits = "8000", "64000"
	}
	return []header{
		{"uuid", c.uuid}, {"direction", c.direction()}, {"created", created.Format(time.DateTime)},
		{"created_epoch", stamp(created.Unix())}, {"name", c.name}, {"state", stateNames[c.running]}, {"cid_name", p.cidName},
		{"cid_num", p.cidNumber}, {"ip_addr", p.networkAddr}, {"dest", p.destination}, {"application", c.app},
		{"application_data", c.appData}, {"dialplan", p.dialplan}, {"context", p.context}, {"read_codec", codec},
		{"read_rate", rate}, {"read_bit_rate", bits}, {"write_codec", codec}, {"write_rate", rate}, {"write_bit_rate", bits},
		{"secure", ""}, {"hostname", c.sw.hostname}, {"presence_id", ""}, {"presence_data", ""}, {"accountcode", ""},
		{"callstate", c.callState.String()}, {"callee_name", p.calleeName}, {"callee_num", p.calleeNumber}, {"callee_direction", ""},
		{"call_uuid", callUUID}, {"sent_callee_name", ""}, {"sent_callee_num", ""}, {"initial_cid_name", p.origName},
		{"initial_cid_num", p.origNumber}, {"initial_ip_addr", p.networkAddr}, {"initial_dest", p.destination},
		{"initial_dialplan", p.dialplan}, {"initial_context", p.context},
	}
}
