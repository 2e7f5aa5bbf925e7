package actions

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var e164 = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)

func number(s string) error {
	if !e164.MatchString(s) {
		return fmt.Errorf(`must be an E.164 number such as "+14155550100", was %q`, shorten(s))
	}
	return nil
}

func numberOrSIP(s string) error {
	if !e164.MatchString(s) {
		return fmt.Errorf(`must be an E.164 number such as "+14155550100" or a SIP URI such as "sip:alice@example.com", was %q`, shorten(s))
	}
	return nil
}

func isSIP(s string) bool {
	scheme, _, ok := strings.Cut(s, ":")
	return ok && (strings.EqualFold(scheme, "sip") || strings.EqualFold(scheme, "sips"))
}

// sipPattern is the part of RFC 3261 §19.1.1 that we accept: scheme, an optional user of characters that mean nothing in
// a dial string, a host name, IPv4 or bracketed IPv6, an optional port and an optional transport. Everything else (other
// parameters, headers, passwords, escapes) is refused rather than passed on.
var sipPattern = regexp.MustCompile(
	`^(?i:(sips?)):(?:([A-Za-z0-9._+*#-]{1,64})@)?` +
		`([A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])` +
		`(?::([0-9]{1,5}))?(?:;transport=(?i:(udp|tcp|tls)))?$`)

// sipURI is a SIP URI of that grammar, rebuilt from its parts with the scheme and transport in lower case.
type sipURI struct{ to *string }

func (sipURI) allowed() string { return `a SIP URI such as "sip:alice@example.com:5060;transport=tcp"` }

func (s sipURI) reset() { *s.to = "" }

func (s sipURI) decode(_ *parser, n *node) error {
	if n.kind != kindString {
		return fmt.Errorf("must be a SIP URI, was %s", n.describe())
	}
	parts := sipPattern.FindStringSubmatch(n.text)
	if parts == nil {
		return fmt.Errorf(`must be a SIP URI such as "sip:alice@example.com:5060;transport=tcp", was %q`, shorten(n.text))
	}
	uri := strings.ToLower(parts[1]) + ":"
	if parts[2] != "" {
		uri += parts[2] + "@"
	}
	uri += parts[3]
	if parts[4] != "" {
		port, err := strconv.Atoi(parts[4])
		if err != nil || port < 1 || port > 65535 {
			return errors.New("must have a port between 1 and 65535, was " + parts[4])
		}
		uri += ":" + strconv.Itoa(port)
	}
	if parts[5] != "" {
		uri += ";transport=" + strings.ToLower(parts[5])
	}
	*s.to = uri
	return nil
}

func (s sipURI) encode() (any, bool) { return *s.to, *s.to != "" }
