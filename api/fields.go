package api

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"tandem/dialplan"
	"tandem/models"
)

// Limits of the fields, in characters unless said otherwise. docs/api.md lists them.
const (
	maxNameLength       = 100
	maxURLLength        = 2048
	maxSecretLength     = 255
	maxCredentialLength = 128
	maxGatewayName      = 64
	maxSIPURILength     = 255
	maxMetadataEntries  = 50
	maxMetadataKey      = 64
	maxMetadataBytes    = 1024
)

// checks validates fields one after the other and keeps the first failure: one clear message is easier to act on than ten.
// Each check returns the value to use, which is the zero value when the field is absent.
type checks struct{ first *Error }

// failed returns the first failure as an error, nil when there was none.
func (c *checks) failed() error {
	if c.first == nil {
		return nil
	}
	return c.first
}

func (c *checks) refuse(field, format string, args ...any) {
	if c.first == nil {
		c.first = invalid(field, format, args...)
	}
}

// required refuses an absent or blank field.
func (c *checks) required(field string, value *string) {
	if value == nil || strings.TrimSpace(*value) == "" {
		c.refuse(field, "%s is required", field)
	}
}

// text accepts printable text of at most limit characters; line breaks and other control characters are refused, because
// names end up in configuration files, logs and terminals.
func (c *checks) text(field string, value *string, limit int) string {
	if value == nil {
		return ""
	}
	if utf8.RuneCountInString(*value) > limit {
		c.refuse(field, "%s must be at most %d characters long", field, limit)
		return ""
	}
	if strings.IndexFunc(*value, isControl) >= 0 {
		c.refuse(field, "%s must not contain control characters", field)
		return ""
	}
	return *value
}

// name accepts the text of a required name, without blanks around it.
func (c *checks) name(field string, value *string) string {
	c.required(field, value)
	return strings.TrimSpace(c.text(field, value, maxNameLength))
}

// isControl reports what no text field may hold: control and format-breaking characters, and what XML 1.0 cannot carry.
func isControl(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == '\ufffe' || r == '\uffff'
}

// webURL accepts an absolute http or https URL.
func (c *checks) webURL(field string, value *string) string {
	if value == nil {
		return ""
	}
	if len(*value) > maxURLLength {
		c.refuse(field, "%s must be at most %d characters long", field, maxURLLength)
		return ""
	}
	if !isWebURL(*value) {
		c.refuse(field, "%s must be a valid http or https URL", field)
		return ""
	}
	if parsed, err := url.Parse(*value); err == nil && parsed.User != nil {
		c.refuse(field, "%s must not contain a user name or password", field)
		return ""
	}
	return *value
}

// isWebURL reports whether raw is an absolute http or https URL with a host. Whether the host may be reached is decided when
// connecting: an address that is checked here could be another one by then.
func isWebURL(raw string) bool {
	if strings.IndexFunc(raw, func(r rune) bool { return r <= ' ' || isControl(r) }) >= 0 {
		return false
	}
	parsed, err := url.Parse(raw)
	if err != nil || parsed.Opaque != "" || parsed.Hostname() == "" {
		return false
	}
	scheme := strings.ToLower(parsed.Scheme)
	if scheme != "http" && scheme != "https" {
		return false
	}
	if strings.HasSuffix(parsed.Host, ":") {
		return false
	}
	return parsed.Port() == "" || isPort(parsed.Port())
}

// oneOf accepts one of the given values.
func (c *checks) oneOf(field string, value *string, allowed ...string) string {
	if value == nil {
		return ""
	}
	for _, candidate := range allowed {
		if *value == candidate {
			return candidate
		}
	}
	c.refuse(field, "%s must be one of %s", field, strings.Join(allowed, ", "))
	return ""
}

// between accepts an integer within the bounds, both included.
func (c *checks) between(field string, value *int, low, high int) int {
	if value == nil {
		return 0
	}
	if *value < low || *value > high {
		c.refuse(field, "%s must be between %d and %d", field, low, high)
		return 0
	}
	return *value
}

// number accepts an E.164 phone number.
func (c *checks) number(field string, value *string) string {
	c.required(field, value)
	if value == nil {
		return ""
	}
	if !models.IsE164(*value) {
		c.refuse(field, "%s must be an E.164 number such as +31201234567", field)
		return ""
	}
	return *value
}

var gatewayNamePattern = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// gatewayName accepts a name that is safe as a file name, in a dial string and in a command. _all_ is refused because
// `sofia profile … killgw _all_` removes every gateway (mod_sofia.c, cmd_profile).
func (c *checks) gatewayName(field string, value *string) string {
	if value == nil {
		return ""
	}
	switch {
	case *value == "":
		c.refuse(field, "%s must not be empty", field)
	case len(*value) > maxGatewayName:
		c.refuse(field, "%s must be at most %d characters long", field, maxGatewayName)
	case !gatewayNamePattern.MatchString(*value):
		c.refuse(field, "%s may contain only letters, digits, dots, underscores and dashes", field)
	case strings.EqualFold(*value, "_all_"):
		c.refuse(field, "%s must not be _all_", field)
	default:
		return *value
	}
	return ""
}

// host accepts host or host:port, the host being a name, an IPv4 address or an IPv6 address in brackets. What passes is what
// the dialplan can write into a gateway: it is the same check.
func (c *checks) host(field string, value *string) string {
	if value == nil {
		return ""
	}
	if strings.ContainsAny(*value, "@;") || !isSIPURI("sip:"+*value) {
		c.refuse(field, "%s must be a host name or IP address, with an optional port", field)
		return ""
	}
	return *value
}

// proxy accepts a host as above, and ;transport=udp, tcp or tls behind it.
func (c *checks) proxy(field string, value *string) string {
	if value == nil {
		return ""
	}
	if strings.Contains(*value, "@") || !isSIPURI("sip:"+*value) {
		c.refuse(field, "%s must be a host name or IP address, with an optional port and ;transport=udp, tcp or tls", field)
		return ""
	}
	return *value
}

func isSIPURI(value string) bool {
	if len(value) > maxSIPURILength {
		return false
	}
	_, err := dialplan.NormalizeSIPURI(value)
	return err == nil
}

func isPort(value string) bool {
	number, err := strconv.ParseUint(value, 10, 16)
	return err == nil && number > 0
}

// credential accepts a part of a SIP digest login: printable ASCII without the given characters, which SIP or FreeSWITCH's
// own digest notation (scheme:"realm":user:password, sofia_reg.c) would read as syntax.
func (c *checks) credential(field string, value *string, refused string) string {
	if value == nil {
		return ""
	}
	if len(*value) > maxCredentialLength {
		c.refuse(field, "%s must be at most %d characters long", field, maxCredentialLength)
		return ""
	}
	for _, r := range *value {
		if r < ' ' || r > '~' {
			c.refuse(field, "%s may contain only printable ASCII characters", field)
			return ""
		}
		if strings.ContainsRune(refused, r) {
			c.refuse(field, "%s must not contain %s", field, describe(r))
			return ""
		}
	}
	return *value
}

func describe(r rune) string {
	if r == ' ' {
		return "blanks"
	}
	return string(r)
}

// address accepts an IP address or a network in CIDR notation and returns its one normal form. Very wide networks are
// refused: nobody's carrier owns them, and calls from all of them would be this customer's.
func (c *checks) address(field string, value *string) string {
	if value == nil {
		return ""
	}
	prefix, normal, err := models.ParseInboundIP(*value)
	if err != nil {
		c.refuse(field, "%s must be an IP address or a network such as 192.0.2.0/28", field)
		return ""
	}
	widest := 16
	if prefix.Addr().Is6() {
		widest = 32
	}
	if prefix.Bits() < widest {
		c.refuse(field, "%s must not be wider than /%d", field, widest)
		return ""
	}
	if prefix.Addr().IsUnspecified() || prefix.Addr().IsMulticast() {
		c.refuse(field, "%s must be an address that calls can come from", field)
		return ""
	}
	return normal
}

// addresses accepts the addresses of an inbound trunk, given as one or as a list.
func (c *checks) addresses(one *string, list []string, given fieldSet) []string {
	const field = "inbound_ips"
	if one != nil && given.has(field) {
		c.refuse(field, "inbound_ip and inbound_ips cannot both be given: inbound_ips holds all of them")
		return nil
	}
	if !given.has(field) {
		if one == nil {
			return nil
		}
		return []string{c.address("inbound_ip", one)}
	}
	if len(list) == 0 || len(list) > models.MaxInboundIPs {
		c.refuse(field, "inbound_ips must hold 1 to %d addresses", models.MaxInboundIPs)
		return nil
	}
	normal := make([]string, len(list))
	prefixes := make([]netip.Prefix, len(list))
	for i := range list {
		place := fmt.Sprintf("%s[%d]", field, i)
		if normal[i] = c.address(place, &list[i]); normal[i] == "" {
			return nil
		}
		prefixes[i], _, _ = models.ParseInboundIP(normal[i]) // it has just been parsed
		if other := slices.IndexFunc(prefixes[:i], prefixes[i].Overlaps); other >= 0 {
			c.refuse(place, "%s overlaps inbound_ips[%d]", place, other)
			return nil
		}
	}
	return normal
}

// sipURI accepts sip:user@host[:port][;transport=udp|tcp|tls] and nothing else, by the dialplan's own check: what is left
// out has no use in a route and much in an attack.
func (c *checks) sipURI(field string, value *string) string {
	if value == nil {
		return ""
	}
	if !isSIPURI(*value) {
		c.refuse(field, "%s must be a SIP URI such as sip:desk@pbx.example.com", field)
		return ""
	}
	return *value
}

// metadata accepts the client's own strings: no more than the limits, without control characters other than tabs and line
// breaks in the values.
func (c *checks) metadata(field string, values map[string]string) map[string]string {
	if len(values) > maxMetadataEntries {
		c.refuse(field, "%s must have at most %d entries", field, maxMetadataEntries)
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := values[key]
		path := field + "." + clip(key)
		switch {
		case key == "" || utf8.RuneCountInString(key) > maxMetadataKey || strings.IndexFunc(key, isControl) >= 0:
			c.refuse(path, "%s: a name must have 1 to %d characters and no control characters", path, maxMetadataKey)
		case len(value) > maxMetadataBytes:
			c.refuse(path, "%s must be at most %d bytes long", path, maxMetadataBytes)
		case strings.IndexFunc(value, func(r rune) bool { return isControl(r) && !strings.ContainsRune("\t\r\n", r) }) >= 0:
			c.refuse(path, "%s must not contain control characters", path)
		}
	}
	return values
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)

// isID reports whether the value could be an identifier at all; what could not is not sent to the database.
func isID(value string) bool { return idPattern.MatchString(value) }

// isGroupName reports whether the value could be the name of a conference or a queue, as actions gives the rule.
func isGroupName(value string) bool { return groupNamePattern.MatchString(value) }

var groupNamePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// id accepts an identifier in a query.
func (c *checks) id(field string, value *string) string {
	if value != nil && !isID(*value) {
		c.refuse(field, "%s is not an identifier", field)
		return ""
	}
	if value == nil {
		return ""
	}
	return *value
}
