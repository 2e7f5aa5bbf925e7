package esl

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// DefaultProfile is the SIP profile that dials a SIP URI when a [Target] names none.
const DefaultProfile = "external"

// Var is a channel variable of a leg that is about to be created.
type Var struct {
	Name, Value string
}

// Target is one party to call: a number through a gateway, or a SIP URI.
type Target struct {
	Gateway string // name of a gateway; with Number
	Number  string // digits with an optional leading +
	SIPURI  string // sip:user@host[:port][;transport=udp|tcp|tls], instead of Gateway and Number
	Profile string // SIP profile for SIPURI; default DefaultProfile

	ChannelID      string // the new leg's Unique-ID, chosen by us so that it can be found again
	CallerIDNumber string
	CallerIDName   string
	Timeout        time.Duration // until answered; default FreeSWITCH's 60 s
	// Codecs are offered to the party, the first one first, and no others; none offers what the profile is set to.
	Codecs    []string
	Variables []Var
}

// DialString is a dial string for [Bridge], made by [NewDial].
type DialString struct {
	text string
}

// String is the dial string as the switch will get it.
func (d DialString) String() string { return d.text }

// NewDial writes the dial string of one target for an application, where two layers of the switch unescape variables. The globals are variables
// too: they stand before the target's own, which win.
func NewDial(t Target, globals ...Var) (DialString, error) {
	if len(globals) > 0 {
		t.Variables = append(append(make([]Var, 0, len(globals)+len(t.Variables)), globals...), t.Variables...)
	}
	vars, err := t.variables(nil)
	if err != nil {
		return DialString{}, err
	}
	address, err := t.address()
	if err != nil {
		return DialString{}, err
	}
	return DialString{text: vars.list() + address}, nil
}

// address writes where to call.
func (t *Target) address() (string, error) {
	if t.SIPURI != "" {
		if t.Gateway != "" || t.Number != "" {
			return "", refuse("sip_uri", "excludes gateway and number")
		}
		uri, err := cleanSIPURI(t.SIPURI)
		if err != nil {
			return "", err
		}
		profile := cmp.Or(t.Profile, DefaultProfile)
		if err := checkPattern("profile", profile, gatewayPattern, "letters, digits, '.', '_' or '-'"); err != nil {
			return "", err
		}
		return "sofia/" + profile + "/" + uri, nil
	}
	if err := checkPattern("gateway", t.Gateway, gatewayPattern, "letters, digits, '.', '_' or '-'"); err != nil {
		return "", err
	}
	if err := checkPattern("number", t.Number, numberPattern, "1 to 32 digits with an optional leading +"); err != nil {
		return "", err
	}
	return "sofia/gateway/" + t.Gateway + "/" + t.Number, nil
}

var (
	sipUserPattern = regexp.MustCompile(`^[A-Za-z0-9+._~*!-]{1,64}$`)
	hostPattern    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9]([A-Za-z0-9-]{0,62}))*\.?$`)
)

// cleanSIPURI parses a SIP URI and writes it anew from the parts that we know: nothing of the input is pasted. IPv6 hosts are refused, because
// FreeSWITCH reads their brackets as the beginning of variables.
func cleanSIPURI(raw string) (string, error) {
	scheme, rest, ok := strings.Cut(raw, ":")
	scheme = strings.ToLower(scheme)
	if !ok || (scheme != "sip" && scheme != "sips") {
		return "", refuse("sip_uri", "must begin with sip: or sips:")
	}
	rest, params, _ := strings.Cut(rest, ";")
	user, hostport, ok := strings.Cut(rest, "@")
	if !ok {
		return "", refuse("sip_uri", "must have the form sip:user@host")
	}
	if !sipUserPattern.MatchString(user) {
		return "", refuse("sip_uri", "must have a user of letters, digits and + . _ ~ * ! -")
	}
	host, port := hostport, ""
	if strings.Contains(hostport, ":") {
		var err error
		if host, port, err = net.SplitHostPort(hostport); err != nil {
			return "", refuse("sip_uri", "must have one host and port")
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
			return "", refuse("sip_uri", "must have a port from 1 to 65535")
		}
	}
	if addr, err := netip.ParseAddr(host); err == nil && !addr.Is4() || len(host) > 253 || !hostPattern.MatchString(host) {
		return "", refuse("sip_uri", "must have a host name or an IPv4 address")
	}
	clean := scheme + ":" + user + "@" + host
	if port != "" {
		clean += ":" + port
	}
	if params == "" {
		return clean, nil
	}
	values, err := url.ParseQuery(params)
	if err != nil || len(values) != 1 || len(values["transport"]) != 1 {
		return "", refuse("sip_uri", "must have no parameter but transport")
	}
	switch transport := strings.ToLower(values.Get("transport")); transport {
	case "udp", "tcp", "tls":
		return clean + ";transport=" + transport, nil
	}
	return "", refuse("sip_uri", "must have the transport udp, tcp or tls")
}

// variables are the pairs of a {} list in their order, with values already checked.
type variables []Var

// variables gathers the target's own fields and its free variables; more is put between them.
func (t *Target) variables(more []Var) (variables, error) {
	var vars variables
	if t.ChannelID != "" {
		if err := checkID("channel_id", t.ChannelID); err != nil {
			return nil, err
		}
		vars = append(vars, Var{"origination_uuid", t.ChannelID})
	}
	if t.CallerIDNumber != "" {
		if err := checkPattern("caller_id_number", t.CallerIDNumber, callerPattern, "1 to 64 letters, digits and + . _ -"); err != nil {
			return nil, err
		}
		vars = append(vars, Var{"origination_caller_id_number", t.CallerIDNumber})
	}
	if t.CallerIDName != "" {
		// The name goes between quotes into the From header, which FreeSWITCH does not escape.
		if strings.ContainsAny(t.CallerIDName, `"\`) {
			return nil, refuse("caller_id_name", "must not hold quotation marks or backslashes")
		}
		if err := checkVariableValue("caller_id_name", t.CallerIDName); err != nil {
			return nil, err
		}
		vars = append(vars, Var{"origination_caller_id_name", t.CallerIDName})
	}
	if t.Timeout != 0 {
		seconds, err := wholeSeconds("timeout", t.Timeout, time.Second, time.Hour)
		if err != nil {
			return nil, err
		}
		vars = append(vars, Var{"originate_timeout", seconds})
	}
	if len(t.Codecs) > 0 {
		codecs, err := codecString(t.Codecs)
		if err != nil {
			return nil, err
		}
		vars = append(vars, Var{codecVariable, codecs})
	}
	vars = append(vars, more...)
	for _, v := range t.Variables {
		if err := v.check(); err != nil {
			return nil, err
		}
		vars = append(vars, v)
	}
	return vars, nil
}

// codecVariable is what a leg offers, whatever its profile is set to (switch_core_media.c, switch_core_media_prepare_codecs).
const codecVariable = "absolute_codec_string"

// maxCodecs is how many codecs a leg may offer.
const maxCodecs = 16

func codecString(codecs []string) (string, error) {
	if len(codecs) > maxCodecs {
		return "", refuse("codecs", "must be at most %d", maxCodecs)
	}
	for _, codec := range codecs {
		if err := checkPattern("codecs", codec, codecPattern, "named with letters, digits and '-'"); err != nil {
			return "", err
		}
	}
	return strings.Join(codecs, ","), nil
}

// list writes the variables between braces, escaped for the two layers that every dial string goes through.
func (vars variables) list() string {
	if len(vars) == 0 {
		return ""
	}
	var b strings.Builder
	for i, v := range vars {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(v.Name)
		b.WriteByte('=')
		b.WriteString(escapeVariable(v.Value))
	}
	b.WriteByte('}')
	return b.String()
}

// check refuses names and values that would do more than set a variable.
func (v Var) check() error {
	if err := checkVariableName("variables", v.Name); err != nil {
		return err
	}
	field := "variables." + v.Name
	if strings.Trim(v.Value, " ") == "" {
		return refuse(field, "is empty, which a dial string cannot carry")
	}
	if err := checkVariableValue(field, v.Value); err != nil {
		return err
	}
	if isSIPHeader(v.Name) {
		// FreeSWITCH writes the value raw into the message (sofia_glue.c, sofia_glue_get_extra_headers).
		if strings.Contains(v.Value, `\`) {
			return refuse(field, "holds a backslash, which a SIP header must not")
		}
		return checkASCII(field, v.Value)
	}
	return nil
}

func isSIPHeader(name string) bool {
	for _, prefix := range []string{"sip_h_", "sip_rh_", "sip_ph_", "sip_bye_h_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// actingVariables are variables that make the switch run something, or that belong to a typed field; by their beginning.
var actingVariables = []string{
	"execute_on", "api_on", "api_hangup_hook", "api_reporting_hook", "api_after_bridge", "exec_after", "bridge_pre_execute", "bridge_terminate",
	"group_confirm", "session_in_hangup_hook", "transfer_", "origination_uuid", "origination_nested_vars", "origination_caller_id", "originate_timeout",
	"app_disable_expand_variables", "app_uuid", "hangup_hook", "record_post_process_exec", "curl_",
}

func checkVariableName(field, name string) error {
	if err := checkPattern(field, name, variablePattern, "named with a letter, then letters, digits and _ . -"); err != nil {
		return err
	}
	lower := strings.ToLower(name)
	for _, prefix := range actingVariables {
		if strings.HasPrefix(lower, prefix) {
			return refuse(field, "must not name %s: it makes the switch act", name)
		}
	}
	if strings.Contains(lower, "_execute_on_") || strings.Contains(lower, "_api_on_") || strings.HasPrefix(lower, "nolocal:") {
		return refuse(field, "must not name %s: it makes the switch act", name)
	}
	return nil
}
