package simswitch

import (
	"strings"
)

// dispatch is parse_command of mod_event_socket.c after authentication. It reports whether the connection goes on.
func (s *Switch) dispatch(l *listener, m *message) bool {
	cmd := m.command
	switch {
	case hasPrefixFold(cmd, "exit"), strings.HasPrefix(cmd, "..."):
		l.reply("+OK bye")
		return false
	case hasPrefixFold(cmd, "filter "):
		l.reply(l.filter(cmd[len("filter "):]))
	case hasPrefixFold(cmd, "sendmsg"):
		return s.sendmsg(l, m)
	case hasPrefixFold(cmd, "sendevent"):
		s.log.Error("event socket command is not simulated", "command", "sendevent")
		l.reply("-ERR command not found")
	case hasPrefixFold(cmd, "api "):
		name, arg, _ := strings.Cut(cmd[len("api "):], " ")
		reply := s.api(name, arg)
		if reply == "" {
			reply = "-ERR no reply\n"
		}
		l.sendAPI(reply)
	case hasPrefixFold(cmd, "bgapi "):
		s.bgapi(l, m)
	case hasPrefixFold(cmd, "log"):
		level := strings.TrimSpace(cmd[len("log"):])
		l.reply("+OK log level " + level + " [7]")
	case hasPrefixFold(cmd, "linger"), hasPrefixFold(cmd, "nolinger"):
		l.reply("-ERR not controlling a session")
	case hasPrefixFold(cmd, "nolog"):
		l.reply("-ERR not loging")
	case hasPrefixFold(cmd, "divert_events"):
		l.reply("-ERR not controlling a session.")
	case hasPrefixFold(cmd, "event"):
		l.reply(l.event(cmd[len("event"):]))
	case hasPrefixFold(cmd, "nixevent"):
		l.reply(l.nixevent(cmd[len("nixevent"):]))
	case hasPrefixFold(cmd, "noevents"):
		l.reply(l.noevents())
	default:
		l.reply("-ERR command not found")
	}
	return true
}

func (l *listener) sendAPI(reply string) {
	l.send("Content-Type: api/response\nContent-Length: ", itoa(len(reply)), "\n\n", reply)
}

// event subscribes: `event plain|json NAME … CUSTOM SUBCLASS …`.
func (l *listener) event(args string) string {
	sub := l.subscription.Load().clone()
	_, args, found := strings.Cut(args, " ")
	if !found {
		return "-ERR no keywords supplied"
	}
	keys, custom := 0, false
	for i, word := range strings.Split(args, " ") {
		if i == 0 {
			switch strings.ToLower(word) {
			case "plain":
				sub.format = formatPlain
				continue
			case "json":
				sub.format = formatJSON
				continue
			case "xml":
				l.sw.log.Error("event format is not simulated", "format", "xml")
				return "-ERR xml events are not simulated"
			}
		}
		if custom {
			sub.custom[word] = true
			continue
		}
		id, ok := parseEventName(word)
		if !ok {
			continue
		}
		keys++
		if id == evAll {
			sub.all = true
		}
		sub.events[id] = true
		custom = id == evCustom
	}
	if keys == 0 {
		return "-ERR no keywords supplied"
	}
	sub.enabled = true
	l.subscription.Store(sub)
	return "+OK event listener enabled " + sub.format.String()
}

func (l *listener) nixevent(args string) string {
	sub := l.subscription.Load().clone()
	_, args, found := strings.Cut(args, " ")
	if !found {
		return "-ERR no keywords supplied"
	}
	keys, custom := 0, false
	for word := range strings.SplitSeq(args, " ") {
		if custom {
			delete(sub.custom, word)
			continue
		}
		id, ok := parseEventName(word)
		if !ok {
			continue
		}
		keys++
		switch id {
		case evCustom:
			custom = true
		case evAll:
			sub.all = false
			sub.events = [maxEvents]bool{}
		default:
			if sub.all {
				sub.all = false
				for i := range sub.events {
					sub.events[i] = eventID(i) != evAll
				}
			}
			sub.events[id] = false
		}
	}
	if keys == 0 {
		return "-ERR no keywords supplied"
	}
	sub.enabled = true
	l.subscription.Store(sub)
	return "+OK events nixed"
}

func (l *listener) noevents() string {
	sub := l.subscription.Load().clone()
	if !sub.enabled {
		return "-ERR not listening for events"
	}
	sub.enabled, sub.all = false, false
	sub.events = [maxEvents]bool{}
	sub.custom = map[string]bool{}
	l.subscription.Store(sub)
	return "+OK no longer listening for events"
}

// filter adds or deletes a filter. `filter delete all` deletes every one, `filter delete NAME` those of a header.
func (l *listener) filter(args string) string {
	name, value, found := strings.Cut(strings.TrimLeft(args, " "), " ")
	sub := l.subscription.Load().clone()
	if strings.EqualFold(name, "delete") && found {
		name, value, _ = strings.Cut(value, " ")
		var kept []filter
		for _, f := range sub.filters {
			all := strings.EqualFold(name, "all")
			same := strings.EqualFold(f.name, name) && (value == "" || f.value == value)
			if !all && !same {
				kept = append(kept, f)
			}
		}
		sub.filters = kept
		l.subscription.Store(sub)
		return "+OK filter deleted. [" + name + "][" + value + "]"
	}
	if !found {
		return "-ERR invalid syntax"
	}
	if strings.EqualFold(name, "add") {
		if name, value, found = strings.Cut(value, " "); !found {
			return "-ERR invalid syntax"
		}
	}
	sub.filters = append(sub.filters, newFilter(name, value))
	l.subscription.Store(sub)
	return "+OK filter added. [" + name + "]=[" + value + "]"
}

// sendmsg queues a message for a channel. More than 256 of them waiting make FreeSWITCH drop the connection: the failed
// push is the return value of parse_command.
func (s *Switch) sendmsg(l *listener, m *message) bool {
	uuid := strings.TrimSpace(m.command[len("sendmsg"):])
	if uuid == "" {
		uuid = m.get("session-id")
	}
	c := s.channel(uuid)
	if c == nil {
		l.reply("-ERR invalid session id [" + uuid + "]")
		return true
	}
	if !c.queue(m) {
		l.reply("-ERR memory error")
		return false
	}
	l.reply("+OK")
	return true
}

// bgapi runs a command aside and raises BACKGROUND_JOB with its output. The client may choose the Job-UUID.
func (s *Switch) bgapi(l *listener, m *message) {
	name, arg, hasArg := strings.Cut(m.command[len("bgapi "):], " ")
	job := m.get("job-uuid")
	if job == "" {
		job = newUUID()
	}
	l.reply("+OK Job-UUID: " + job + "\nJob-UUID: " + job)
	s.background(func() {
		reply := s.api(name, arg)
		s.fire(evBackgroundJob, "", origin{"mod_event_socket.c", "api_exec"}, func(e *event) {
			e.add("Job-UUID", job)
			e.add("Job-Command", name)
			if hasArg {
				e.add("Job-Command-Arg", arg)
			}
			e.body, e.hasBody = reply, true
		})
	})
}
