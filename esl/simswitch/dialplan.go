package simswitch

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// plan is the loaded dialplan and the address list that names callers. It is never changed, only replaced.
type plan struct {
	contexts map[string]*planContext
	sources  []source
	blocked  []source
}

type planContext struct {
	name       string
	line       int
	extensions []*planExtension
	// exact finds the extensions whose first condition can match only one destination number, so that a context of many
	// numbers does not cost a walk per call. FreeSWITCH walks; the result is the same.
	exact map[string][]int
	rest  []int
}

type planExtension struct {
	name       string
	goesOn     bool
	conditions []planCondition
}

type planCondition struct {
	field      string
	expression string
	pattern    *regexp.Regexp
	breaks     string
	actions    []planAction
	anti       []planAction
}

type planAction struct {
	application
	inline bool
}

// source is a user of the directory's domain "tandem": calls from its addresses carry its token in acl_token
// (switch_core.c, switch_load_network_lists; sofia.c, sofia_handle_sip_i_invite).
type source struct {
	prefix netip.Prefix
	token  string
	vars   []header
}

var dialplanSchema = schema{
	"":            {children: []string{"context"}},
	"context":     {children: []string{"extension"}, required: []string{"name"}},
	"extension":   {children: []string{"condition"}, attrs: []string{"continue"}, required: []string{"name"}},
	"condition":   {children: []string{"action", "anti-action"}, attrs: []string{"field", "expression", "break"}},
	"action":      {attrs: []string{"data", "inline"}, required: []string{"application"}, text: true},
	"anti-action": {attrs: []string{"data", "inline"}, required: []string{"application"}, text: true},
}

var directorySchema = schema{
	"":       {children: []string{"domain"}},
	"domain": {children: []string{"user", "users", "groups", "params", "variables"}, required: []string{"name"}},
	"groups": {children: []string{"group"}},
	"group":  {children: []string{"users"}, required: []string{"name"}},
	"users":  {children: []string{"user"}},
	"user":   {children: []string{"params", "variables"}, attrs: []string{"cidr"}, required: []string{"id"}},
	"params": {children: []string{"param"}}, "param": {attrs: []string{"value"}, required: []string{"name"}},
	"variables": {children: []string{"variable"}}, "variable": {attrs: []string{"value"}, required: []string{"name"}},
}

// loadConfiguration reads what Tandem wrote below confDir: the dialplan, the directory of source addresses and the gateways.
func (s *shelf) loadConfiguration(confDir string) (*plan, []*gatewayConfig, error) {
	p, err := s.loadPlan(confDir)
	if err != nil {
		return nil, nil, err
	}
	gateways, err := loadGateways(confDir)
	if err != nil {
		return nil, nil, err
	}
	return p, gateways, nil
}

func (s *shelf) loadPlan(confDir string) (*plan, error) {
	p := &plan{contexts: map[string]*planContext{}}
	if confDir != "" {
		files, err := s.readDialplan(confDir)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			for _, context := range file.contexts {
				if _, twice := p.contexts[context.name]; twice {
					return nil, &ConfigError{file.name, context.line, fmt.Sprintf("context %q exists already: FreeSWITCH uses the first and ignores this one", context.name)}
				}
				p.contexts[context.name] = context
			}
		}
		if err := p.loadSources(confDir); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"public", "default"} {
		if _, given := p.contexts[name]; !given {
			p.contexts[name] = refuseContext(name)
		}
	}
	return p, nil
}

// refuseContext is dialplan/refuse.xml of a node's base configuration: what Tandem has not written refuses.
func refuseContext(name string) *planContext {
	context := &planContext{name: name, extensions: []*planExtension{{
		name:       "uninvited",
		conditions: []planCondition{{actions: []planAction{{application: application{"respond", "403"}}}}},
	}}}
	context.index()
	return context
}

func newContext(file string, e *element) (*planContext, error) {
	context := &planContext{name: e.attrs["name"], line: e.line}
	for _, child := range e.children {
		ext, err := newExtension(file, child)
		if err != nil {
			return nil, err
		}
		context.extensions = append(context.extensions, ext)
	}
	context.index()
	return context, nil
}

func newExtension(file string, e *element) (*planExtension, error) {
	ext := &planExtension{name: e.attrs["name"], goesOn: isTrue(e.attrs["continue"])}
	if len(e.children) == 0 {
		return nil, &ConfigError{file, e.line, fmt.Sprintf("extension %q has no condition and can never match", ext.name)}
	}
	for _, child := range e.children {
		cond := planCondition{field: shared(child.attrs["field"]), expression: child.attrs["expression"], breaks: shared(child.attrs["break"])}
		switch cond.breaks {
		case "", "on-true", "on-false", "always", "never":
		default:
			return nil, &ConfigError{file, child.line, fmt.Sprintf("break=%q is unknown", cond.breaks)}
		}
		if cond.field == "" && cond.expression != "" {
			return nil, &ConfigError{file, child.line, "an expression without a field always matches"}
		}
		if err := checkField(cond.field); err != nil {
			return nil, &ConfigError{file, child.line, err.Error()}
		}
		// What matches one number only is compiled when that is called: there may be a million.
		if !strings.Contains(cond.expression, "${") && !literalNumber.MatchString(cond.expression) {
			cond.expression = shared(cond.expression)
			re, err := compile(cond.expression)
			if err != nil {
				return nil, &ConfigError{file, child.line, err.Error()}
			}
			cond.pattern = re
		}
		for _, a := range child.children {
			action := planAction{application: application{shared(a.attrs["application"]), shared(a.attrs["data"])}, inline: isTrue(a.attrs["inline"])}
			if a.text != "" {
				action.data = a.text
			}
			if !knownApp(action.name) {
				return nil, &ConfigError{file, a.line, fmt.Sprintf("application %q is not simulated", action.name)}
			}
			if action.inline && action.name != "set" && action.name != "unset" && action.name != "multiset" && action.name != "export" {
				return nil, &ConfigError{file, a.line, fmt.Sprintf("application %q cannot run inline", action.name)}
			}
			if a.name == "anti-action" {
				cond.anti = append(cond.anti, action)
			} else {
				cond.actions = append(cond.actions, action)
			}
		}
		ext.conditions = append(ext.conditions, cond)
	}
	return ext, nil
}

// checkField refuses a condition field that would always be empty.
func checkField(field string) error {
	if field == "" || strings.HasPrefix(field, "${") && strings.HasSuffix(field, "}") {
		return nil
	}
	if _, ok := (&profile{}).field(field); !ok {
		return fmt.Errorf("condition field %q is not simulated", field)
	}
	return nil
}

// literalNumber is an expression that matches one number only.
var literalNumber = regexp.MustCompile(`^\^(\[\+\]|\\\+|)([0-9]+)\$$`)

func (x *planContext) index() {
	x.exact = map[string][]int{}
	for i, ext := range x.extensions {
		if first := ext.conditions[0]; first.field == "destination_number" && len(first.anti) == 0 &&
			(first.breaks == "" || first.breaks == "on-false") {
			if m := literalNumber.FindStringSubmatch(first.expression); m != nil {
				number := m[2]
				if m[1] != "" {
					number = "+" + number
				}
				x.exact[number] = append(x.exact[number], i)
				continue
			}
		}
		x.rest = append(x.rest, i)
	}
}

// candidates are the extensions that may match, in file order.
func (x *planContext) candidates(destination string) []int {
	exact := x.exact[destination]
	if len(exact) == 0 {
		return x.rest
	}
	merged := make([]int, 0, len(exact)+len(x.rest))
	i, j := 0, 0
	for i < len(exact) || j < len(x.rest) {
		if j == len(x.rest) || (i < len(exact) && exact[i] < x.rest[j]) {
			merged = append(merged, exact[i])
			i++
		} else {
			merged = append(merged, x.rest[j])
			j++
		}
	}
	return merged
}

func (p *plan) loadSources(confDir string) error {
	files, err := readFolder(confDir, "directory", directorySchema)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, file := range files {
		for _, domain := range file.roots {
			name := domain.attrs["name"]
			if seen[name] {
				return &ConfigError{file.name, domain.line, fmt.Sprintf("domain %q exists already: FreeSWITCH uses the first", name)}
			}
			seen[name] = true
			into := &p.sources
			switch name {
			case "tandem":
			case "tandem_blocked":
				into = &p.blocked
			default:
				return &ConfigError{file.name, domain.line, fmt.Sprintf("no address list reads domain %q", name)}
			}
			for _, user := range domain.descendants("user") {
				found, err := sourcesOf(file.name, user, name)
				if err != nil {
					return err
				}
				*into = append(*into, found...)
			}
		}
	}
	return nil
}

func sourcesOf(file string, user *element, domain string) (found []source, err error) {
	vars := []header{{"user_name", user.attrs["id"]}, {"domain_name", domain}}
	for _, v := range user.descendants("variable") {
		vars = append(vars, header{v.attrs["name"], v.attrs["value"]})
	}
	for cidr := range strings.SplitSeq(user.attrs["cidr"], ",") {
		cidr = strings.TrimSpace(cidr)
		if cidr == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, &ConfigError{file, user.line, fmt.Sprintf("cidr %q: FreeSWITCH needs an address and a prefix length", cidr)}
		}
		found = append(found, source{prefix.Masked(), user.attrs["id"] + "@" + domain, vars})
	}
	return found, nil
}

// refuses tells whether the profile refuses an address at once: one that the list "tandem" does not know and "tandem_open" denies
// (freeswitch-conf, external.xml and acl.conf.xml).
func (p *plan) refuses(addr netip.Addr) bool {
	return slices.ContainsFunc(p.blocked, func(s source) bool { return s.prefix.Contains(addr.Unmap()) })
}

// owner is who owns an address, nil for nobody: the most specific prefix wins (switch_utils.c,
// switch_network_list_validate_ip_token).
func (p *plan) owner(addr netip.Addr) *source {
	var best *source
	addr = addr.Unmap()
	for i := range p.sources {
		s := &p.sources[i]
		if s.prefix.Contains(addr) && (best == nil || s.prefix.Bits() > best.prefix.Bits()) {
			best = s
		}
	}
	return best
}

// hunt is dialplan_hunt (mod_dialplan_xml.c): the applications that the channel's context has for it, or nil.
func (c *channel) hunt() []application {
	p := c.sw.plan.Load()
	c.mu.Lock()
	name, destination := c.profile.context, c.profile.destination
	c.mu.Unlock()
	context, ok := p.contexts[name]
	if !ok {
		if context, ok = p.contexts["global"]; !ok {
			c.sw.log.Warn("context not found", "context", name, "channel", c.uuid)
			return nil
		}
	}
	var found []application
	for _, i := range context.candidates(destination) {
		ext := context.extensions[i]
		proceed := c.parseExtension(ext, &found)
		if proceed && !ext.goesOn {
			break
		}
	}
	return found
}

// parseExtension is parse_exten: conditions in order, their actions collected, with FreeSWITCH's rules of break.
func (c *channel) parseExtension(ext *planExtension, found *[]application) (proceed bool) {
	for i := range ext.conditions {
		cond := &ext.conditions[i]
		var groups []string
		matched := true
		if cond.field != "" {
			var value string
			if strings.Contains(cond.field, "$") {
				value = c.expand(cond.field)
			} else {
				c.mu.Lock()
				value, _ = c.profile.field(cond.field)
				c.mu.Unlock()
			}
			re := cond.pattern
			if re == nil {
				expression := cond.expression
				if strings.Contains(expression, "${") {
					expression = c.expand(expression)
				}
				var err error
				if re, err = compile(expression); err != nil {
					c.sw.log.Error("condition does not compile", "extension", ext.name, "channel", c.uuid, "error", err)
				}
			}
			matched = false
			if re != nil {
				groups = re.FindStringSubmatch(value)
				matched = groups != nil
			}
		}
		proceed = matched
		actions := cond.anti
		if matched {
			actions = cond.actions
		}
		for _, a := range actions {
			data := a.data
			if len(groups) > 0 && strings.Contains(cond.expression, "(") {
				data = substitute(data, groups)
			}
			if a.inline {
				c.exec(a.name, apps[a.name], data)
				continue
			}
			*found = append(*found, application{a.name, data})
		}
		switch {
		case !matched && (cond.breaks == "" || cond.breaks == "on-false"), matched && cond.breaks == "on-true", cond.breaks == "always":
			return proceed
		}
	}
	return proceed
}

// substitute is switch_perform_substitution: $1 to $99 become the groups of the condition's match.
func substitute(s string, groups []string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) || s[i+1] < '0' || s[i+1] > '9' {
			out.WriteByte(s[i])
			continue
		}
		j := i + 1
		for j < len(s) && j < i+3 && s[j] >= '0' && s[j] <= '9' {
			j++
		}
		if n := leadingInt(s[i+1 : j]); n < len(groups) {
			out.WriteString(groups[n])
		}
		i = j - 1
	}
	return out.String()
}
