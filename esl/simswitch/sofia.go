package simswitch

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"
)

// sofia is the one SIP profile, "external", and its gateways.
type sofia struct {
	sw       *Switch
	mu       sync.Mutex
	gateways []*gateway
}

func newSofia(s *Switch) *sofia { return &sofia{sw: s} }

const (
	// registerDelay is how long the simulated carrier takes for each step of a registration. FreeSWITCH looks once a second.
	registerDelay = 200 * time.Millisecond
	// defaultRetry is retry-seconds' default (sofia.c, parse_gateways).
	defaultRetry = 30
)

var fromGatewayState = origin{"sofia_reg.c", "sofia_reg_fire_custom_gateway_state_event"}

// find is sofia_reg_find_gateway.
func (f *sofia) find(name string) *gateway {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.findLocked(name)
}

func (f *sofia) findLocked(name string) *gateway {
	for _, g := range f.gateways {
		if g.name == name {
			return g
		}
	}
	return nil
}

// usable tells whether a call may go through a gateway. A call through a gateway that is DOWN fails at once.
func (f *sofia) usable(g *gateway) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return g.up
}

// add loads gateways that are not loaded yet. One that is loaded stays as it is, changed file or not (sofia.c,
// parse_gateways: "Ignoring duplicate gateway").
func (f *sofia) add(configs []*gatewayConfig) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, config := range configs {
		if f.findLocked(config.name) != nil {
			continue
		}
		g := &gateway{gatewayConfig: config, state: "UNREGED"}
		f.gateways = append([]*gateway{g}, f.gateways...)
		f.sw.fire(evCustom, "sofia::gateway_add", origin{"sofia.c", "parse_gateways"}, func(e *event) {
			e.add("Gateway", g.name)
			e.add("profile-name", profileName)
		})
		if !config.registers() {
			g.state = "NOREG"
			f.riseLocked(g)
			continue
		}
		f.laterLocked(g, registerDelay, f.tryLocked)
	}
}

func (f *sofia) riseLocked(g *gateway) {
	g.up = true
	g.upSince = f.sw.clock.now()
	if g.pingSeconds() > 0 {
		g.pinged = g.upSince
	}
}

// laterLocked runs a step of a gateway's registration after a while, unless the gateway is gone by then.
func (f *sofia) laterLocked(g *gateway, d time.Duration, step func(*gateway)) {
	g.pending = f.sw.tasks.after(d, "", func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.findLocked(g.name) == g {
			step(g)
		}
	})
}

func (f *sofia) stateLocked(g *gateway, state string, status int) {
	g.state = state
	f.sw.fire(evCustom, "sofia::gateway_state", fromGatewayState, func(e *event) {
		e.add("Gateway", g.name)
		e.add("State", state)
		e.add("Ping-Status", g.status())
		if g.known {
			e.add("Register-Network-IP", "127.0.0.1")
			e.add("Register-Network-Port", carrierPort)
		}
		if status != 0 {
			e.add("Phrase", sipPhrase(status))
			e.add("Status", itoa(status))
		}
	})
}

// tryLocked sends the REGISTER; the carrier answers at once, and FreeSWITCH draws the conclusion a tick later
// (sofia_reg.c, sofia_reg_check_gateway).
func (f *sofia) tryLocked(g *gateway) {
	f.stateLocked(g, "TRYING", 0)
	g.known = true
	refused := f.sw.clock.now().Before(g.refusedUntil)
	if g.accepted() && !refused {
		f.stateLocked(g, "REGISTER", 200)
		f.laterLocked(g, registerDelay, func(g *gateway) {
			f.riseLocked(g)
			f.stateLocked(g, "REGED", 0)
			refresh := time.Duration(max(30, leadingInt(g.expires()))) * time.Second / 2
			f.laterLocked(g, refresh, f.tryLocked)
		})
		return
	}
	g.up = false
	status := 403
	if refused {
		status = 503
	}
	f.stateLocked(g, "FAILED", status)
	f.laterLocked(g, registerDelay, func(g *gateway) {
		retry := time.Duration(max(1, leadingInt(cmp.Or(g.params["retry-seconds"], itoa(defaultRetry))))) * time.Second
		if rest := g.refusedUntil.Sub(f.sw.clock.now()); refused && rest > 0 {
			retry = rest // whoever asked for a loss of some seconds is not to wait for retry-seconds
		}
		g.retryAt = f.sw.clock.now().Add(retry)
		f.stateLocked(g, "FAIL_WAIT", 0)
		f.laterLocked(g, retry, func(g *gateway) {
			f.stateLocked(g, "UNREGED", 0)
			f.laterLocked(g, registerDelay, f.tryLocked)
		})
	})
}

// kill is `killgw`: from now on nobody finds the gateway; the events follow once it has unregistered.
func (f *sofia) kill(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, g := range f.gateways {
		if g.name != name {
			continue
		}
		f.gateways = append(f.gateways[:i:i], f.gateways[i+1:]...)
		f.sw.tasks.cancel(g.pending)
		f.sw.tasks.after(registerDelay, "", func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			g.up = false
			if g.registers() {
				f.stateLocked(g, "DOWN", 0)
			}
			f.sw.fire(evCustom, "sofia::gateway_delete", origin{"sofia_reg.c", "sofia_reg_check_gateway"}, func(e *event) {
				e.add("profile-name", profileName)
				e.add("Gateway", g.name)
			})
		})
		return true
	}
	return false
}

// register starts a registration now, unregister ends it (`sofia profile external register NAME`).
func (f *sofia) register(name string, on bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.findLocked(name)
	if g == nil || !g.registers() {
		return g != nil
	}
	f.sw.tasks.cancel(g.pending)
	if on {
		f.laterLocked(g, registerDelay, f.tryLocked)
		return true
	}
	f.laterLocked(g, registerDelay, func(g *gateway) {
		g.up = false
		f.stateLocked(g, "DOWN", 0)
	})
	return true
}

// command is the `sofia` API command (mod_sofia.c, sofia_function), as far as a controller uses it.
func (f *sofia) command(arg string) string {
	words := separate(arg, ' ', 10)
	word := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch {
	case strings.EqualFold(word(0), "xmlstatus"):
		return f.xmlStatus(word(1), word(2))
	case strings.EqualFold(word(0), "status"):
		return f.statusText(word(1), word(2))
	case strings.EqualFold(word(0), "profile") && word(1) != "":
		if word(1) != profileName {
			return "Invalid Profile [" + word(1) + "]"
		}
		return f.profileCommand(words, word(2), word(3))
	}
	f.sw.log.Error("sofia command is not simulated", "command", arg)
	return "-ERR the simulated switch does not know this sofia command\n"
}

func (f *sofia) profileCommand(words []string, verb, name string) string {
	switch strings.ToLower(verb) {
	case "rescan":
		verdict, gateways := f.sw.reload()
		f.add(gateways)
		return "Reload XML [" + verdict + "]\n+OK scan complete\n"
	case "killgw":
		if len(words) < 4 {
			return "-ERR missing gw name\n"
		}
		if strings.EqualFold(name, "_all_") {
			for _, g := range f.list() {
				f.kill(g.name)
			}
			return "+OK every gateway marked for deletion.\n"
		}
		if !f.kill(name) {
			return "-ERR no such gateway.\n"
		}
		return "+OK gateway marked for deletion.\n"
	case "register", "unregister":
		if len(words) < 4 {
			return "-ERR missing gw name\n"
		}
		if !f.register(name, strings.EqualFold(verb, "register")) {
			return "Invalid gateway!\n"
		}
		return "+OK\n"
	}
	f.sw.log.Error("sofia profile command is not simulated", "command", verb)
	return "-ERR Unknown command!\n"
}

func (f *sofia) list() []*gateway {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*gateway(nil), f.gateways...)
}

const xmlHeader = "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>\n"

var xmlEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// xmlStatus is cmd_xml_status and xml_gateway_status (mod_sofia.c).
func (f *sofia) xmlStatus(kind, name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out strings.Builder
	switch {
	case strings.EqualFold(kind, "gateway") && name != "":
		g := f.findLocked(name)
		if g == nil {
			return "Invalid Gateway!\n"
		}
		out.WriteString(xmlHeader)
		f.writeGatewayLocked(&out, g)
	case kind != "":
		out.WriteString(xmlHeader + "<gateways>\n")
		for _, g := range f.gateways {
			f.writeGatewayLocked(&out, g)
		}
		out.WriteString("</gateways>\n")
	default:
		fmt.Fprintf(&out, "%s<profiles>\n<profile>\n<name>%s</name>\n<type>profile</type>\n<data>sip:mod_sofia@127.0.0.1:%s</data>\n<state>RUNNING (%d)</state>\n</profile>\n",
			xmlHeader, profileName, sipPort, f.sw.live.Load())
		for _, g := range f.gateways {
			fmt.Fprintf(&out, "<gateway>\n<name>%s</name>\n<type>gateway</type>\n<data>%s</data>\n<state>%s</state>\n</gateway>\n%s\n",
				g.name, xmlEscape.Replace("sip:"+g.username()+"@"+g.realm()), g.state, f.retryLocked(g))
		}
		out.WriteString("</profiles>\n")
	}
	return out.String()
}

func (f *sofia) retryLocked(g *gateway) string {
	if g.state != "FAIL_WAIT" {
		return ""
	}
	return fmt.Sprintf(" (retry: %ds)", f.retrySecondsLocked(g))
}

func (f *sofia) retrySecondsLocked(g *gateway) int {
	return max(0, int(g.retryAt.Sub(f.sw.clock.now())/time.Second))
}

func (f *sofia) writeGatewayLocked(out *strings.Builder, g *gateway) {
	line := func(name, value string) {
		fmt.Fprintf(out, "    <%s>%s</%s>\n", name, xmlEscape.Replace(value), name)
	}
	ping, uptime, pingTime := int64(0), int64(0), "0.00"
	if g.pingSeconds() > 0 && !g.pinged.IsZero() {
		every := int64(g.pingSeconds())
		since := int64(f.sw.clock.now().Sub(g.pinged) / time.Second)
		ping, pingTime = g.pinged.Unix()+(since/every+1)*every, "1.00"
	}
	if g.up {
		uptime = f.sw.clock.now().Sub(g.upSince).Microseconds()
	}
	minimum, maximum := "0", "0"
	if g.pingSeconds() > 0 {
		minimum, maximum = cmp.Or(g.params["ping-min"], "1"), cmp.Or(g.params["ping-max"], "1")
	}
	out.WriteString("  <gateway>\n")
	line("name", g.name)
	line("profile", profileName)
	line("scheme", "Digest")
	line("realm", g.realm())
	line("username", g.username())
	password := "no"
	if g.params["password"] != "" {
		password = "yes"
	}
	line("password", password)
	line("from", "<sip:"+g.username()+"@"+g.domain()+">")
	line("contact", "<sip:gw+"+g.name+"@127.0.0.1:"+sipPort+";transport=udp;gw="+g.name+">")
	line("exten", cmp.Or(g.params["extension"], g.username()))
	line("to", "sip:"+g.username()+"@"+g.proxy())
	line("proxy", "sip:"+g.proxy())
	line("context", cmp.Or(g.params["context"], "public"))
	line("expires", g.expires())
	line("freq", g.expires())
	line("ping", itoa(int(ping)))
	line("pingfreq", itoa(g.pingSeconds()))
	line("pingmin", minimum)
	line("pingcount", maximum)
	line("pingmax", maximum)
	line("pingtime", pingTime)
	line("pinging", "0")
	line("state", g.state)
	line("status", g.status())
	line("uptime-usec", itoa(int(uptime)))
	line("calls-in", "0")
	line("calls-out", itoa(int(g.callsOut.Load())))
	line("failed-calls-in", "0")
	line("failed-calls-out", itoa(int(g.failedOut.Load())))
	if g.state == "FAIL_WAIT" {
		line("retry", itoa(f.retrySecondsLocked(g))+"s")
	}
	out.WriteString("  </gateway>\n")
}

// statusText is cmd_status (mod_sofia.c).
func (f *sofia) statusText(kind, name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	rule := strings.Repeat("=", 97) + "\n"
	var out strings.Builder
	if strings.EqualFold(kind, "gateway") && name != "" {
		g := f.findLocked(name)
		if g == nil {
			return "Invalid Gateway!\n"
		}
		out.WriteString(rule)
		uptime := 0
		if g.up {
			uptime = int(f.sw.clock.now().Sub(g.upSince) / time.Second)
		}
		for _, row := range [][2]string{{"Name", g.name}, {"Profile", profileName}, {"Scheme", "Digest"}, {"Realm", g.realm()},
			{"Username", g.username()}, {"Password", "yes"}, {"From", "<sip:" + g.username() + "@" + g.domain() + ">"},
			{"Context", cmp.Or(g.params["context"], "public")}, {"Expires", g.expires()}, {"PingFreq", itoa(g.pingSeconds())},
			{"State", g.state}, {"Status", g.status()}, {"Uptime", itoa(uptime) + "s"}, {"CallsIN", "0"},
			{"CallsOUT", itoa(int(g.callsOut.Load()))}, {"FailedCallsIN", "0"}, {"FailedCallsOUT", itoa(int(g.failedOut.Load()))}} {
			fmt.Fprintf(&out, "%-8s\t%s\n", row[0], row[1])
		}
		out.WriteString(rule)
		return out.String()
	}
	fmt.Fprintf(&out, "%25s\t%s\t  %40s\t%s\n%s", "Name", "   Type", "Data", "State", rule)
	fmt.Fprintf(&out, "%25s\t%s\t  %40s\t%s (%d)\n", profileName, "profile", "sip:mod_sofia@127.0.0.1:"+sipPort, "RUNNING", f.sw.live.Load())
	for _, g := range f.gateways {
		fmt.Fprintf(&out, "%25s\t%s\t  %40s\t%s%s\n", profileName+"::"+g.name, "gateway", "sip:"+g.username()+"@"+g.realm(), g.state, f.retryLocked(g))
	}
	out.WriteString(rule + "1 profile 0 aliases\n")
	return out.String()
}
