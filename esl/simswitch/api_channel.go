package simswitch

import (
	"strings"
)

func (s *Switch) uuidExists(arg string) string {
	if s.channel(strings.TrimSpace(arg)) != nil {
		return "true"
	}
	return "false"
}

func (s *Switch) uuidKill(arg string) string {
	if arg == "" {
		return "-USAGE: <uuid> [cause]\n"
	}
	uuid, name, _ := strings.Cut(arg, " ")
	c := s.channel(uuid)
	if c == nil {
		return noSuchChannel
	}
	c.hangup(parseCause(name))
	return "+OK\n"
}

func (s *Switch) uuidBreak(arg string) string {
	if arg == "" {
		return "-USAGE: <uuid> [all]\n"
	}
	uuid, flag, _ := strings.Cut(arg, " ")
	c := s.channel(uuid)
	if c == nil {
		return noSuchChannel
	}
	c.stopApplications(strings.Contains(flag, "all"))
	if strings.Contains(flag, "both") {
		c.mu.Lock()
		partner := c.partner
		c.mu.Unlock()
		if partner != nil {
			partner.stopApplications(strings.Contains(flag, "all"))
		}
	}
	return "+OK\n"
}

func (s *Switch) uuidSetvar(arg string) string {
	words := separate(arg, ' ', 3)
	if len(words) < 2 || words[0] == "" {
		return "-USAGE: <uuid> <var> [value]\n"
	}
	c := s.channel(words[0])
	if c == nil {
		return noSuchChannel
	}
	if words[1] == "" {
		return "-ERR No variable specified\n"
	}
	value := ""
	if len(words) == 3 {
		value = words[2]
	}
	c.set(words[1], value)
	return "+OK\n"
}

func (s *Switch) uuidSetvarMulti(arg string) string {
	const usage = "-USAGE: <uuid> <var>=<value>;<var>=<value>...\n"
	uuid, list, found := strings.Cut(arg, " ")
	if arg == "" {
		return usage
	}
	if !found {
		return ""
	}
	c := s.channel(uuid)
	if c == nil {
		return noSuchChannel + usage
	}
	out, set := "", 0
	for _, pair := range separate(list, ';', 64) {
		name, value, _ := strings.Cut(pair, "=")
		if name == "" {
			out += "-ERR No variable specified\n"
			continue
		}
		c.checkedSet(name, value)
		set++
	}
	if set == 0 {
		return out + usage
	}
	return out + "+OK\n"
}

func (s *Switch) uuidGetvar(arg string) string {
	words := separate(arg, ' ', 4)
	if len(words) < 2 || words[0] == "" {
		return "-USAGE: <uuid> <var>\n"
	}
	c := s.channel(words[0])
	if c == nil {
		return noSuchChannel
	}
	if value := c.variable(words[1]); value != "" {
		return value
	}
	return "_undef_"
}

func (s *Switch) uuidDump(arg string) string {
	words := separate(arg, ' ', 2)
	if len(words) == 0 || words[0] == "" {
		return "-USAGE: <uuid> [format]\n"
	}
	c := s.channel(words[0])
	if c == nil {
		return noSuchChannel
	}
	form := "txt"
	if len(words) > 1 {
		form = strings.ToLower(words[1])
	}
	e := &event{id: evChannelData}
	s.begin(e, origin{"mod_commands.c", "uuid_dump_function"})
	c.mu.Lock()
	c.dataLocked(e)
	c.mu.Unlock()
	switch form {
	case "json":
		return string(e.appendJSON(nil))
	case "xml":
		s.log.Error("uuid_dump as XML is not simulated")
		return "-ERR Unable to create xml!\n"
	case "plain":
		var out strings.Builder
		for _, h := range e.headers {
			out.WriteString(h.name + ": " + h.value + "\n")
		}
		return out.String() + "\n"
	default:
		return string(e.appendPlain(nil))
	}
}

func (s *Switch) uuidRecord(arg string) string {
	const usage = "-USAGE: <uuid> [start|stop|mask|unmask] <path> [<limit>] [<recording_vars>]\n"
	words := separate(arg, ' ', 5)
	if len(words) < 3 || words[0] == "" || words[1] == "" || words[2] == "" {
		return usage
	}
	c := s.channel(words[0])
	if c == nil {
		return "-ERR Cannot locate session!\n"
	}
	switch strings.ToLower(words[1]) {
	case "start":
		limit := 0
		if len(words) > 3 {
			limit = leadingInt(words[3])
		}
		vars := map[string]string{}
		if len(words) > 4 {
			pairs, _, err := brackets(words[4], '{', '}', ',')
			if err != nil {
				return "-ERR Cannot record session!\n"
			}
			for _, pair := range pairs {
				vars[pair.name] = pair.value
			}
		}
		if !c.startRecording(words[2], limit, vars) {
			return "-ERR Cannot record session!\n"
		}
	case "stop":
		if !c.stopRecording(words[2]) {
			return "-ERR Cannot stop record session!\n"
		}
	case "mask", "unmask", "pause", "resume":
		verb := strings.ToLower(words[1])
		if !c.changeRecording(words[2], verb) {
			return "-ERR Cannot " + verb + " recording session!\n"
		}
	default:
		return usage
	}
	return "+OK Success\n"
}

func (s *Switch) uuidAnswer(arg string) string {
	c := s.channel(strings.TrimSpace(arg))
	if c == nil || (!c.outbound && !c.answer()) {
		return "-ERROR\n"
	}
	return "+OK\n"
}

func (s *Switch) uuidSendDTMF(arg string) string {
	words := separate(arg, ' ', 2)
	if len(words) < 2 || words[0] == "" || words[1] == "" {
		return "-USAGE: <uuid> <dtmf_data>\n"
	}
	c := s.channel(words[0])
	if c == nil {
		return "-ERR Cannot locate session!\n"
	}
	if !s.sendDTMF(c, words[1]) {
		return "-ERR Operation failed\n"
	}
	return "+OK " + words[0] + " sent DTMF " + words[1] + ".\n"
}

func (s *Switch) apiSchedHangup(arg string) string {
	words := separate(arg, ' ', 4)
	if len(words) < 1 || words[0] == "" {
		return "-USAGE: [+]<time> <uuid> [<cause>]\n"
	}
	uuid := ""
	if len(words) > 1 {
		uuid = words[1]
	}
	c := s.channel(uuid)
	if c == nil {
		return noSuchChannel
	}
	why := causeAllottedTimeout
	if len(words) > 2 {
		why = parseCause(words[2])
	}
	s.schedHangup(c, words[0], why)
	return "+OK\n"
}

// uuidDisplace is session_displace_function (mod_commands.c): `<uuid> [start|stop] <path> [<limit>] [<flags>]`. Nothing is heard of it here.
func (s *Switch) uuidDisplace(arg string) string {
	words := separate(arg, ' ', 5)
	if len(words) < 3 || words[0] == "" || words[2] == "" {
		return displaceUsage
	}
	c := s.channel(words[0])
	if c == nil {
		return "-ERR Cannot locate session!\n"
	}
	switch strings.ToLower(words[1]) {
	case "start":
		if !c.displace(words[2]) {
			return "-ERR Cannot displace session!\n"
		}
	case "stop":
		if !c.undisplace(words[2]) {
			return "-ERR Cannot stop displace session!\n"
		}
	default:
		return displaceUsage
	}
	return "+OK Success\n"
}

const displaceUsage = "-USAGE: <uuid> [start|stop] <path> [<limit>] [mux]\n"

// displace begins to mix a sound in: once at a time (switch_ivr_async.c, switch_ivr_displace_session).
func (c *channel) displace(path string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.displaced[path] {
		return false
	}
	if c.displaced == nil {
		c.displaced = map[string]bool{}
	}
	c.displaced[path] = true
	return true
}

func (c *channel) undisplace(path string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.displaced[path]
	delete(c.displaced, path)
	return was
}

// schedAPI is sched_api_function (mod_commands.c): `[+]<time> <group_name> <command_string>`, once. Its `@<time>`, which repeats, is
// not simulated.
func (s *Switch) schedAPI(arg string) string {
	when, rest, _ := strings.Cut(arg, " ")
	group, line, ok := strings.Cut(rest, " ")
	if !ok || strings.HasPrefix(when, "@") {
		return "-ERR Invalid syntax. USAGE: [+@]<time> <group_name> <command_string>[&]\n"
	}
	name, args, _ := strings.Cut(strings.TrimSuffix(line, "&"), " ")
	t := s.tasks.after(s.until(when), group, func() { s.api(name, args) })
	return "+OK Added: " + itoa(int(t.id)) + "\n"
}

func (s *Switch) schedDel(arg string) string {
	if arg == "" {
		return "-ERR Invalid syntax\n"
	}
	if strings.Trim(arg, "0123456789") == "" {
		id := leadingInt(arg)
		if id <= 0 || int64(id) > 1<<32-1 {
			return "+OK Deleted: 0\n"
		}
		return "+OK Deleted: " + itoa(s.tasks.cancelMatching("", uint32(id))) + "\n" // #nosec G115 -- checked above.
	}
	return "+OK Deleted: " + itoa(s.tasks.cancelMatching(arg, 0)) + "\n"
}
