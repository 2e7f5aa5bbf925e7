package simswitch

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

// gatewayConfig is one <gateway> as it stands in a file.
type gatewayConfig struct {
	name   string
	params map[string]string
}

var gatewaySchema = schema{
	"":          {children: []string{"gateway"}},
	"gateway":   {children: []string{"param", "variables"}, required: []string{"name"}},
	"param":     {attrs: []string{"value"}, required: []string{"name"}},
	"variables": {children: []string{"variable"}},
	"variable":  {attrs: []string{"value", "direction"}, required: []string{"name"}},
}

// gatewayParams are the parameters of a gateway that the simulation knows (sofia.c, parse_gateways).
var gatewayParams = map[string]bool{
	"username": true, "auth-username": true, "password": true, "realm": true, "proxy": true, "register": true, "from-domain": true,
	"from-user": true, "expire-seconds": true, "retry-seconds": true, "ping": true, "ping-min": true, "ping-max": true,
	"caller-id-in-from": true, "extension": true, "extension-in-contact": true, "register-proxy": true, "outbound-proxy": true,
	"register-transport": true, "contact-params": true, "context": true, "cid-type": true, "rfc-5626": true, "sip-cid-type": true,
	"ping-user-agent": true,
}

// gatewayName is the expression parse_gateways holds names to; others are skipped with an error in the log.
var gatewayName = regexp.MustCompile(`^[\w.\-]+$`)

func loadGateways(confDir string) ([]*gatewayConfig, error) {
	if confDir == "" {
		return nil, nil
	}
	files, err := readFolder(confDir, "gateways", gatewaySchema)
	if err != nil {
		return nil, err
	}
	var gateways []*gatewayConfig
	seen := map[string]bool{}
	for _, file := range files {
		for _, e := range file.roots {
			g, err := newGatewayConfig(file.name, e)
			if err != nil {
				return nil, err
			}
			if seen[g.name] {
				return nil, &ConfigError{file.name, e.line, fmt.Sprintf("gateway %q exists already: FreeSWITCH ignores the second", g.name)}
			}
			seen[g.name] = true
			gateways = append(gateways, g)
		}
	}
	return gateways, nil
}

func newGatewayConfig(file string, e *element) (*gatewayConfig, error) {
	g := &gatewayConfig{name: e.attrs["name"], params: map[string]string{}}
	if !gatewayName.MatchString(g.name) {
		return nil, &ConfigError{file, e.line, fmt.Sprintf("FreeSWITCH ignores the invalid gateway name %q", g.name)}
	}
	for _, child := range e.children {
		if child.name == "variables" {
			continue
		}
		name := child.attrs["name"]
		if !gatewayParams[name] {
			return nil, &ConfigError{file, child.line, fmt.Sprintf("gateway parameter %q is not simulated", name)}
		}
		if _, twice := g.params[name]; twice {
			return nil, &ConfigError{file, child.line, fmt.Sprintf("gateway parameter %q is given twice", name)}
		}
		g.params[name] = child.attrs["value"]
	}
	// parse_gateways: "ERROR: username param is REQUIRED!" and the same for the password when the gateway registers.
	if g.registers() {
		if g.params["username"] == "" {
			return nil, &ConfigError{file, e.line, "FreeSWITCH ignores a gateway that registers without a username"}
		}
		if g.params["password"] == "" {
			return nil, &ConfigError{file, e.line, "FreeSWITCH ignores a gateway that registers without a password"}
		}
	}
	return g, nil
}

func (g *gatewayConfig) registers() bool {
	value, given := g.params["register"]
	return !given || isTrue(value)
}

// gateway is a loaded gateway. Its mutable part belongs to sofia.mu.
type gateway struct {
	*gatewayConfig
	state   string
	up      bool
	upSince time.Time
	retryAt time.Time
	// refusedUntil is until when the carrier refuses to register it, see lose.
	refusedUntil time.Time
	pinged       time.Time
	known        bool
	pending      *task
	callsOut     atomic.Int64
	failedOut    atomic.Int64
}

func (g *gateway) realm() string {
	return cmp.Or(g.params["realm"], g.params["proxy"], g.name)
}

func (g *gateway) domain() string { return cmp.Or(g.params["from-domain"], g.realm()) }

func (g *gateway) proxy() string { return cmp.Or(g.params["proxy"], g.realm()) }

func (g *gateway) username() string { return cmp.Or(g.params["username"], "FreeSWITCH") }

func (g *gateway) expires() string { return cmp.Or(g.params["expire-seconds"], "3600") }

// accepted is how the simulated carrier answers a REGISTER: it takes every account but one whose username or password
// begins with "wrong".
func (g *gateway) accepted() bool {
	return !strings.HasPrefix(g.params["password"], "wrong") && !strings.HasPrefix(g.params["username"], "wrong")
}

func (g *gateway) status() string {
	if g.up {
		return "UP"
	}
	return "DOWN"
}

func (g *gateway) pingSeconds() int { return leadingInt(g.params["ping"]) }
