package numbering

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// MaxEntries is how many entries each list of a Policy may have.
const MaxEntries = 500

// The entries that are no prefix, country or host.
const (
	anything = "*"
	anySIP   = "sip:*"
)

// Policy says where calls may go. An entry is a prefix of E.164 numbers (+44), a country (ISO 3166-1: US), the host of SIP URIs
// (sip:pbx.example.com), all SIP URIs (sip:*) or everything (*). What is in neither list is not allowed.
//
// Where several entries fit, the most exact one counts: the longest prefix, where a country is as long as its country calling code, with +1 as its
// area codes (four digits); the host before all SIP URIs; everything last. Of two that are as exact as each other, the one of Deny counts.
type Policy struct {
	// Allow is nil where everything is allowed that Deny does not name; an empty list allows nothing.
	Allow []string
	Deny  []string
	// Types are the types of numbers that may be called, see Types. A number of another type is not allowed, whatever else is.
	Types []string
}

// Within is the policy of whoever has a part of what another policy allows: types is nil for all of Types, so that those count which the other allows.
func Within(allow, deny, types []string) Policy {
	if types == nil {
		types = Types
	}
	return Policy{Allow: allow, Deny: deny, Types: types}
}

// Verdict is what a Policy says of a destination, and by which entry: empty where none fits. Type is that of a number which is refused for it.
type Verdict struct {
	Allowed bool
	Entry   string
	Type    string
}

// String says why, in words for people.
func (v Verdict) String() string {
	switch {
	case v.Allowed:
		return "allowed by " + v.Entry
	case v.Type != "":
		return v.Type + " numbers are not allowed"
	case v.Entry == "":
		return "not among the allowed destinations"
	default:
		return "denied by " + v.Entry
	}
}

var (
	prefixEntry = regexp.MustCompile(`^\+[1-9][0-9]{0,14}$`)
	hostEntry   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,62})(\.[a-z0-9]([a-z0-9-]{0,62}))*$`)
)

// ParseEntry returns the one normal form of an entry, or an error that says what an entry is.
func ParseEntry(s string) (string, error) {
	s = strings.TrimSpace(s)
	switch {
	case s == anything, prefixEntry.MatchString(s):
		return s, nil
	case IsCountry(strings.ToUpper(s)):
		return strings.ToUpper(s), nil
	}
	if host, ok := strings.CutPrefix(strings.ToLower(s), "sip:"); ok && len(host) <= 253 {
		if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && addr.Zone() == "" {
			return "sip:" + addr.Unmap().String(), nil
		}
		if host = strings.TrimSuffix(host, "."); host == anything || hostEntry.MatchString(host) {
			return "sip:" + host, nil
		}
	}
	return "", fmt.Errorf("must be a prefix such as +44, a country such as US, sip:HOST, sip:* or *")
}

// Unrestricted says whether there is nothing to look up.
func (p Policy) Unrestricted() bool {
	return p.listless() && p.typeless()
}

// typeless says whether the type of a number does not matter.
func (p Policy) typeless() bool {
	return !slices.ContainsFunc(Types, func(kind string) bool { return !slices.Contains(p.Types, kind) })
}

func (p Policy) listless() bool { return p.Allow == nil && len(p.Deny) == 0 }

// Number says whether an E.164 number may be called.
func (p Policy) Number(number string) Verdict {
	verdict := p.listed(number)
	if !verdict.Allowed {
		return verdict
	}
	if refused := p.ofType(number); !refused.Allowed {
		return refused
	}
	return verdict
}

// listed says what the lists say of a number.
func (p Policy) listed(number string) Verdict {
	if p.listless() {
		return Verdict{Allowed: true, Entry: anything}
	}
	country, digits, asked := "", 0, false
	return p.decide(func(entry string) int {
		switch {
		case entry == anything:
			return 0
		case strings.HasPrefix(entry, "+"):
			if strings.HasPrefix(number, entry) {
				return len(entry) - 1
			}
		case len(entry) == 2:
			if !asked {
				country, digits = Country(number)
				asked = true
			}
			if country == entry {
				return digits
			}
		}
		return -1
	})
}

// decide weighs the entries that fit: fit returns how exact an entry is, less than 0 where it does not fit.
func (p Policy) decide(fit func(entry string) int) Verdict {
	best, verdict := -1, Verdict{}
	if p.Allow == nil {
		best, verdict = 0, Verdict{Allowed: true, Entry: anything}
	}
	for _, entry := range p.Allow {
		if exact := fit(entry); exact > best {
			best, verdict = exact, Verdict{Allowed: true, Entry: entry}
		}
	}
	for _, entry := range p.Deny {
		if exact := fit(entry); exact >= 0 && exact >= best {
			best, verdict = exact, Verdict{Entry: entry}
		}
	}
	return verdict
}

// SIP says whether a SIP URI may be called. One whose user is a telephone number leads to the telephone network where its host does: so the number
// must be allowed as well, unless the host is named.
func (p Policy) SIP(uri string) Verdict {
	if p.Unrestricted() {
		return Verdict{Allowed: true, Entry: anything}
	}
	user, host := split(uri)
	verdict := p.decide(func(entry string) int {
		switch entry {
		case anything:
			return 0
		case anySIP:
			return 1
		case "sip:" + host:
			return 2
		default:
			return -1
		}
	})
	if !verdict.Allowed || verdict.Entry == "sip:"+host {
		return verdict
	}
	for _, number := range readings(user) {
		if read := p.Number(number); !read.Allowed {
			return read
		}
	}
	return verdict
}

// split returns user and host of a SIP URI, without port and parameters.
func split(uri string) (user, host string) {
	_, rest, _ := strings.Cut(uri, ":")
	rest, _, _ = strings.Cut(rest, "?")
	if name, after, found := strings.Cut(rest, "@"); found {
		user, rest = name, after
	}
	rest, _, _ = strings.Cut(rest, ";")
	rest = strings.ToLower(rest)
	if end := strings.IndexByte(rest, ']'); strings.HasPrefix(rest, "[") && end > 0 {
		rest = rest[1:end]
	} else {
		rest, _, _ = strings.Cut(rest, ":")
	}
	if addr, err := netip.ParseAddr(rest); err == nil {
		return user, addr.Unmap().String()
	}
	return user, strings.TrimSuffix(rest, ".")
}

// telephone is how many digits make the user of a SIP URI a telephone number rather than an extension.
const telephone = 7

// readings are the numbers that whoever owns the host may take the user for: as it is, and without what is dialled before a number abroad. One that
// is no E.164 number either way is only allowed where everything is.
func readings(user string) []string {
	user, _, _ = strings.Cut(user, ";")
	digits := strings.Map(func(r rune) rune {
		if strings.ContainsRune("+-._*#()", r) {
			return -1
		}
		return r
	}, user)
	if len(digits) < telephone || strings.Trim(digits, "0123456789") != "" {
		return nil
	}
	found := []string{"+" + digits}
	for _, abroad := range []string{"00", "011"} {
		if rest, ok := strings.CutPrefix(digits, abroad); ok && rest != "" {
			found = append(found, "+"+rest)
		}
	}
	if len(found) > 1 {
		return found[1:] // 00 begins no E.164 number
	}
	return found
}
