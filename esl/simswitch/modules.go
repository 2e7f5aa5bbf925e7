package simswitch

import (
	"slices"
	"strings"
)

// DefaultModules are the modules that a switch has whose Config names none: those that freeswitch-conf loads.
func DefaultModules() []string {
	return []string{"mod_logfile", "mod_event_socket", "mod_commands", "mod_dptools", "mod_dialplan_xml", "mod_sofia", "mod_sndfile",
		"mod_tone_stream", "mod_json_cdr", "mod_flite", "mod_conference", "mod_avmd"}
}

// The modules that an application or a command belongs to. Where none is named, it is one that every switch has.
var (
	appModules     = map[string]string{"conference": "mod_conference", "avmd_start": "mod_avmd", "avmd_stop": "mod_avmd"}
	commandModules = map[string]string{"conference": "mod_conference", "avmd": "mod_avmd", "uuid_audio_stream": "mod_audio_stream",
		"http_get": "mod_http_cache", "http_put": "mod_http_cache"}
)

func (s *Switch) hasModule(name string) bool { return slices.Contains(s.cfg.Modules, name) }

// loaded tells whether the module of an application or a command is there.
func (s *Switch) loaded(modules map[string]string, name string) bool {
	module, ok := modules[name]
	return !ok || s.hasModule(module)
}

// moduleExists is module_exists_function of mod_commands.c.
func (s *Switch) moduleExists(arg string) string {
	name := strings.TrimSpace(arg)
	if name == "" {
		return ""
	}
	if s.hasModule(name) {
		return "true"
	}
	return "false"
}
