package simswitch

import (
	"errors"
	"fmt"
	"strings"
)

// dialString is a parsed dial string: `<…>{…}[…]endpoint/target,…|…`.
type dialString struct {
	vars   []header
	groups [][]dialTarget
}

// dialTarget is one alternative of a dial string with its own variables.
type dialTarget struct {
	vars []header
	url  string
}

var (
	errDialString  = errors.New("dial string cannot be parsed")
	errEnterprise  = errors.New("enterprise originate (:_:) is not simulated")
	errNestedVars  = errors.New("origination_nested_vars is not simulated")
	errEmptyTarget = errors.New("no target")
)

const maxPeers = 128

// parseDialString is the parsing part of switch_ivr_originate: global variables in any number of braces, alternatives in
// turn between pipes, at once between commas, each with its own variables in brackets.
func parseDialString(s string) (*dialString, error) {
	if strings.Contains(s, ":_:") {
		return nil, errEnterprise
	}
	if strings.Contains(strings.ToLower(s), "origination_nested_vars=true") {
		return nil, errNestedVars
	}
	d := &dialString{}
	s = strings.TrimLeft(s, " ")
	for _, pair := range [][2]byte{{'<', '>'}, {'{', '}'}} {
		for strings.HasPrefix(s, string(pair[0])) {
			vars, rest, err := brackets(s, pair[0], pair[1], ',')
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errDialString, err)
			}
			d.vars = mergeHeaders(d.vars, vars)
			s = rest
		}
	}
	s = strings.TrimLeft(s, " ")
	if s == "" {
		return nil, fmt.Errorf("%w: %w", errDialString, errEmptyTarget)
	}
	for _, group := range splitOutside(s, '|') {
		var targets []dialTarget
		for _, one := range splitOutside(group, ',') {
			target, err := parseTarget(one)
			if err != nil {
				return nil, err
			}
			targets = append(targets, target)
			if len(targets) > maxPeers {
				return nil, fmt.Errorf("%w: more than %d targets", errDialString, maxPeers)
			}
		}
		d.groups = append(d.groups, targets)
	}
	return d, nil
}

func parseTarget(s string) (dialTarget, error) {
	var t dialTarget
	s = strings.TrimLeft(s, " ")
	for strings.HasPrefix(s, "[") {
		vars, rest, err := brackets(s, '[', ']', ',')
		if err != nil {
			return t, fmt.Errorf("%w: %w", errDialString, err)
		}
		t.vars = mergeHeaders(t.vars, vars)
		s = strings.TrimLeft(rest, " ")
	}
	if s == "" {
		return t, fmt.Errorf("%w: %w", errDialString, errEmptyTarget)
	}
	t.url = s
	return t, nil
}

// splitOutside splits at a character that stands outside brackets and quotes.
func splitOutside(s string, at byte) []string {
	var parts []string
	depth, quoted, start := 0, false, 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case s[i] == '\'':
			quoted = !quoted
		case quoted:
		case s[i] == '[':
			depth++
		case s[i] == ']' && depth > 0:
			depth--
		case s[i] == at && depth == 0:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

// mergeHeaders adds variables; a later one of the same name replaces the earlier (EF_UNIQ_HEADERS).
func mergeHeaders(vars, more []header) []header {
	for _, h := range more {
		replaced := false
		for i := range vars {
			if strings.EqualFold(vars[i].name, h.name) {
				vars[i].value, replaced = h.value, true
				break
			}
		}
		if !replaced {
			vars = append(vars, h)
		}
	}
	return vars
}

// target is where one leg goes.
type target struct {
	gateway  *gateway
	user     string
	hostname string
}

func (t *target) host() string {
	if t.gateway != nil {
		return t.gateway.proxy()
	}
	return t.hostname
}

// resolve finds the endpoint of a target: a gateway, or a SIP address over the profile. The cause is what
// switch_core_session_outgoing_channel returns for what is wrong with it.
func (s *Switch) resolve(url string) (*target, cause) {
	rest, ok := strings.CutPrefix(url, "sofia/")
	if !ok {
		s.log.Error("endpoint is not simulated", "target", url)
		return nil, causeChanNotImplemented
	}
	if rest, ok := strings.CutPrefix(rest, "gateway/"); ok {
		name, user, found := strings.Cut(rest, "/")
		if !found || user == "" {
			return nil, causeInvalidURL
		}
		g := s.sofia.find(name)
		if g == nil {
			return nil, causeInvalidGateway
		}
		if !s.sofia.usable(g) {
			g.failedOut.Add(1)
			return nil, causeGatewayDown
		}
		return &target{gateway: g, user: user}, causeNone
	}
	profile, address, found := strings.Cut(rest, "/")
	if !found || address == "" {
		return nil, causeInvalidURL
	}
	if profile != profileName {
		s.log.Error("no such SIP profile", "profile", profile)
		return nil, causeInvalidProfile
	}
	address = strings.TrimPrefix(strings.TrimPrefix(address, "sip:"), "sips:")
	address, _, _ = strings.Cut(address, ";")
	user, host, found := strings.Cut(address, "@")
	if !found || user == "" || host == "" {
		return nil, causeInvalidURL
	}
	return &target{user: user, hostname: host}, causeNone
}
