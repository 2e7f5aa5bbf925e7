package simswitch

import (
	"strconv"
	"strings"
)

// commands is filled by init, because some of them look it up.
var commands map[string]func(s *Switch, arg string) string

func init() {
	commands = map[string]func(s *Switch, arg string) string{
		"status":            func(s *Switch, _ string) string { return s.status() },
		"strmicroepoch":     (*Switch).microEpoch,
		"version":           func(_ *Switch, arg string) string { return version(arg) },
		"show":              (*Switch).show,
		"sofia":             func(s *Switch, arg string) string { return s.sofia.command(arg) },
		"reloadxml":         func(s *Switch, _ string) string { verdict, _ := s.reload(); return "+OK [" + verdict + "]\n" },
		"reloadacl":         (*Switch).reloadACL,
		"global_getvar":     func(s *Switch, arg string) string { return s.globalVariable(arg) },
		"global_setvar":     (*Switch).setGlobal,
		"originate":         (*Switch).originate,
		"create_uuid":       func(*Switch, string) string { return newUUID() },
		"fsctl":             (*Switch).control,
		"hupall":            (*Switch).hangupAll,
		"uuid_answer":       (*Switch).uuidAnswer,
		"uuid_break":        (*Switch).uuidBreak,
		"uuid_dump":         (*Switch).uuidDump,
		"uuid_exists":       (*Switch).uuidExists,
		"uuid_getvar":       (*Switch).uuidGetvar,
		"uuid_kill":         (*Switch).uuidKill,
		"uuid_record":       (*Switch).uuidRecord,
		"uuid_bridge":       (*Switch).uuidBridge,
		"uuid_transfer":     (*Switch).uuidTransfer,
		"conference":        (*Switch).conference,
		"uuid_audio_stream": (*Switch).uuidAudioStream,
		"avmd":              (*Switch).avmd,
		"module_exists":     (*Switch).moduleExists,
		"file_exists":       (*Switch).fileExists,
		"http_get":          (*Switch).httpGet,
		"http_put":          (*Switch).httpPut,
		"uuid_send_dtmf":    (*Switch).uuidSendDTMF,
		"uuid_setvar":       (*Switch).uuidSetvar,
		"uuid_setvar_multi": (*Switch).uuidSetvarMulti,
		"sched_api":         (*Switch).schedAPI,
		"uuid_displace":     (*Switch).uuidDisplace,
		"sched_hangup":      (*Switch).apiSchedHangup,
		"sched_del":         (*Switch).schedDel,
		"sim_call":          (*Switch).simCall,
		"sim_result":        (*Switch).simResult,
		"sim_unregister":    (*Switch).simUnregister,
	}
}

// api runs one API command and returns its output, as switch_api_execute does.
func (s *Switch) api(name, arg string) string {
	run, ok := commands[name]
	if !ok || !s.loaded(commandModules, name) {
		s.log.Warn("API command is not simulated", "command", name)
		return "-ERR " + name + " Command not found!\n"
	}
	return run(s, arg)
}

const noSuchChannel = "-ERR No such channel!\n"

func version(arg string) string {
	if strings.Contains(arg, "short") {
		return "1.10.12\n"
	}
	return "FreeSWITCH Version " + Version + " (" + strings.TrimPrefix(humanVersion, "1.10.12-release ") + ")\n"
}

// reload is reloadxml: everything is read anew, and on an error all of it stays as it was and the verdict tells why. It does not
// touch the address list in force, only reloadacl does. The gateways are returned for a rescan, which is what loads them.
func (s *Switch) reload() (verdict string, gateways []*gatewayConfig) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	p, gateways, err := s.shelf.loadConfiguration(s.cfg.ConfDir)
	if err != nil {
		s.log.Error("configuration does not load", "error", err)
		return err.Error(), nil
	}
	p.sources, p.blocked = s.plan.Load().sources, s.plan.Load().blocked
	s.plan.Store(p)
	s.fire(evReloadXML, "", origin{"switch_xml.c", "switch_xml_open_root"}, nil)
	return "Success", gateways
}

// reloadACL is reloadacl: reloadxml, and the address list made anew from what was read.
func (s *Switch) reloadACL(string) string {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	p, err := s.shelf.loadPlan(s.cfg.ConfDir)
	if err != nil {
		s.log.Error("configuration does not load", "error", err)
		return "-ERR [" + err.Error() + "]\n"
	}
	s.plan.Store(p)
	s.fire(evReloadXML, "", origin{"switch_xml.c", "switch_xml_open_root"}, nil)
	return "+OK acl reloaded\n"
}

func (s *Switch) globalVariable(name string) string {
	if name != "" {
		return s.global(name)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out strings.Builder
	for name, value := range s.globals {
		out.WriteString(name + "=" + value + "\n")
	}
	return out.String()
}

func (s *Switch) setGlobal(arg string) string {
	name, value, _ := strings.Cut(arg, "=")
	if name == "" {
		return "-USAGE: <var>=<value> [=<value2>]\n"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if value == "" {
		delete(s.globals, name)
	} else {
		s.globals[name] = value
	}
	return "+OK"
}

// control is fsctl, as far as a controller uses it.
func (s *Switch) control(arg string) string {
	words := strings.Fields(arg)
	word := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch word(0) {
	case "pause", "resume":
		s.pause(word(0) == "pause", word(1))
		return "+OK\n"
	case "pause_check":
		return strconv.FormatBool(s.pausedFor(word(1)))
	case "shutdown_check":
		return "false"
	case "api_expansion":
		if s.cfg.APIExpansion {
			return "+OK api_expansion is on \n"
		}
		return "+OK api_expansion is off \n"
	case "shutdown":
		// Close waits for the goroutine that called it if that one were counted, so it runs on its own.
		go func() {
			if err := s.Close(); err != nil {
				s.log.Error("shutdown failed", "error", err)
			}
		}()
		return "+OK\n"
	}
	s.log.Error("fsctl command is not simulated", "command", arg)
	return "-ERR the simulated switch does not know this fsctl command\n"
}

// pause is fsctl pause and resume, of calls in, of legs out, or of both.
func (s *Switch) pause(paused bool, direction string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.EqualFold(direction, "outbound") {
		s.pausedIn = paused
	}
	if !strings.EqualFold(direction, "inbound") {
		s.pausedOut = paused
	}
}

func (s *Switch) pausedFor(direction string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch strings.ToLower(direction) {
	case "inbound":
		return s.pausedIn
	case "outbound":
		return s.pausedOut
	default:
		return s.pausedIn && s.pausedOut
	}
}

// microEpoch is strmicroepoch of mod_dptools.c without an argument: the switch's clock.
func (s *Switch) microEpoch(arg string) string {
	if arg != "" {
		s.log.Error("strmicroepoch of a date is not simulated", "date", arg)
		return "-ERR the simulated switch converts no dates\n"
	}
	return strconv.FormatInt(s.clock.micros(), 10)
}

func (s *Switch) hangupAll(arg string) string {
	why := causeManagerRequest
	words := strings.Fields(arg)
	if len(words) > 1 {
		return "-ERR hupall by variable is not simulated\n"
	}
	if len(words) == 1 {
		why = parseCause(words[0])
	}
	for _, c := range s.snapshot() {
		c.hangup(why)
	}
	return "+OK hangup all channels with cause " + why.String() + "\n"
}
