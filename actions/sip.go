package actions

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// e164Pattern is the form of numbers: ITU-T E.164 §6.2.1, at most 15 digits behind the +.
const e164Pattern = `^\+[1-9][0-9]{6,14}$`

var e164 = regexp.MustCompile(e164Pattern)

// maxNumber is the length of the longest E.164 number with its +.
const maxNumber = 16

// number is an E.164 number.
var number = rule{
	check: func(s string) error {
		if !e164.MatchString(s) {
			return fmt.Errorf(`must be an E.164 number such as "+14155550100", was %q`, shorten(s))
		}
		return nil
	},
	says:   `an E.164 number such as "+14155550100"`,
	schema: schema{"pattern": e164Pattern},
}

// numberOrSIP is number where a SIP URI could stand as well.
var numberOrSIP = rule{
	check: func(s string) error {
		if !e164.MatchString(s) {
			return fmt.Errorf(`must be an E.164 number such as "+14155550100" or a SIP URI such as "sip:alice@example.com", was %q`, shorten(s))
		}
		return nil
	},
	schema: number.schema,
}

func isSIP(s string) bool {
	scheme, _, ok := strings.Cut(s, ":")
	return ok && (strings.EqualFold(scheme, "sip") || strings.EqualFold(scheme, "sips"))
}

// The parts of a SIP URI that we accept of RFC 3261 §19.1.1: scheme, an optional user of characters that mean nothing in
// a dial string, a host name, IPv4 or bracketed IPv6, an optional port and an optional transport. Everything else (other
// parameters, headers, passwords, escapes) is refused rather than passed on.
const (
	sipScheme    = `[Ss][Ii][Pp][Ss]?`
	sipUser      = `[A-Za-z0-9._+*#-]{1,64}`
	sipHost      = `[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]`
	sipPort      = `[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]`
	sipTransport = `[Uu][Dd][Pp]|[Tt][Cc][Pp]|[Tt][Ll][Ss]`
)

// sipPattern finds the parts; the port is held to its bounds afterwards, for a message of its own.
var sipPattern = regexp.MustCompile(
	`^(` + sipScheme + `):(?:(` + sipUser + `)@)?(` + sipHost + `)(?::([0-9]{1,5}))?(?:;transport=(` + sipTransport + `))?$`)

// sipURI is a SIP URI of that grammar, rebuilt from its parts with the scheme and transport in lower case.
type sipURI struct{ to *string }

func (s sipURI) reset() { *s.to = "" }

func (s sipURI) decode(_ *parser, n *node) error {
	if n.kind != kindString {
		return fmt.Errorf("must be %s, was %s", s.allowed(), n.describe())
	}
	parts := sipPattern.FindStringSubmatch(n.text)
	if parts == nil {
		return fmt.Errorf(`must be %s, was %q`, s.allowed(), shorten(n.text))
	}
	uri := strings.ToLower(parts[1]) + ":"
	if parts[2] != "" {
		uri += parts[2] + "@"
	}
	uri += parts[3]
	if parts[4] != "" {
		port, err := strconv.Atoi(parts[4])
		if err != nil || parts[4][0] == '0' || port > 65535 {
			return errors.New("must have a port between 1 and 65535, was " + parts[4])
		}
		uri += ":" + parts[4]
	}
	if parts[5] != "" {
		uri += ";transport=" + strings.ToLower(parts[5])
	}
	*s.to = uri
	return nil
}

func (s sipURI) encode() (any, bool) { return *s.to, *s.to != "" }

func (sipURI) allowed() string { return `a SIP URI such as "sip:alice@example.com:5060;transport=tcp"` }

func (sipURI) schema() schema {
	return schema{"type": "string", "pattern": `^` + sipScheme + `:(?:` + sipUser + `@)?(?:` + sipHost + `)(?::(?:` + sipPort + `))?(?:;transport=(?:` + sipTransport + `))?$`}
}
