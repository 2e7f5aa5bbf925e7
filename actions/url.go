package actions

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// maxURL is the longest URL that the vocabulary takes, in bytes.
const maxURL = 2048

// urlForm is what a URL may be.
type urlForm int

const (
	urlMedia    urlForm = iota // http or https, absolute
	urlRelative                // http or https, or relative to the answer_url
	urlSocket                  // wss, absolute
)

func (f urlForm) String() string {
	switch f {
	case urlRelative:
		return "an http or https URL, absolute or relative"
	case urlSocket:
		return "a wss URL"
	default:
		return "an absolute http or https URL"
	}
}

// schemes returns what an absolute URL may begin with.
func (f urlForm) schemes() []string {
	if f == urlSocket {
		return []string{"wss"}
	}
	return []string{"http", "https"}
}

// pattern describes the URLs as far as a regular expression can: no character that must be escaped, and in an absolute URL
// a host without a user before it.
func (f urlForm) pattern() string {
	const (
		not       = "[^\x00-\x20\x7f-\u009f\u2028\u2029\"<>\\\\^`{|}" // to be closed with ]
		escaped   = "|%[0-9A-Fa-f]{2}"
		path      = "(?:" + not + "?#%]" + escaped + ")*"
		behind    = "(?:\\?" + not + "#]*)?(?:#(?:" + not + "%]" + escaped + ")*)?$"
		authority = "(?:\\[[0-9A-Za-z:.%_~-]+\\]|" + not + ":/?#@]+)(?::[0-9]*)?"
		absolute  = "://" + authority + "(?:/" + path + ")?" + behind
		relative  = "(?:" + not + ":/?#%]" + escaped + ")*(?:/" + path + ")?" + behind
	)
	switch f {
	case urlRelative:
		return "^[Hh][Tt][Tt][Pp][Ss]?" + absolute + "|^" + relative
	case urlSocket:
		return "^[Ww][Ss][Ss]" + absolute
	default:
		return "^[Hh][Tt][Tt][Pp][Ss]?" + absolute
	}
}

// link is a URL of one form.
type link struct {
	to   *string
	form urlForm
}

func (l link) reset() { *l.to = "" }

func (l link) decode(_ *parser, n *node) error {
	if n.kind != kindString {
		return fmt.Errorf("must be a URL, was %s", n.describe())
	}
	if err := checkURL(n.text, l.form); err != nil {
		return err
	}
	*l.to = n.text
	return nil
}

func (l link) encode() (any, bool) { return *l.to, *l.to != "" }

func (l link) allowed() string { return l.form.String() + fmt.Sprintf(" of at most %d bytes", maxURL) }

func (l link) schema() schema {
	return schema{"type": "string", "minLength": 1, "maxLength": maxURL, "pattern": l.form.pattern()}
}

// checkURL holds a URL to RFC 3986: what may not stand in a URL unescaped is refused, not repaired, so that the URL we
// fetch is the one that was checked.
func checkURL(raw string, wanted urlForm) error {
	if len(raw) > maxURL {
		return fmt.Errorf("must be at most %d bytes, was %d", maxURL, len(raw))
	}
	if raw == "" {
		return errors.New("must not be empty")
	}
	if err := checkControl(raw); err != nil {
		return err
	}
	if i := strings.IndexAny(raw, " \"<>\\^`{|}"); i >= 0 {
		return fmt.Errorf("must be %s with %q percent-encoded, was %q", wanted, raw[i:i+1], shorten(raw))
	}
	parsed, err := url.Parse(raw)
	if err != nil {
		return fmt.Errorf("must be %s, was %q", wanted, shorten(raw))
	}
	absolute := slices.Contains(wanted.schemes(), parsed.Scheme) && parsed.Hostname() != "" && parsed.Opaque == ""
	local := wanted == urlRelative && parsed.Scheme == "" && parsed.Opaque == "" && (parsed.Host == "" || parsed.Hostname() != "")
	if !absolute && !local {
		return fmt.Errorf("must be %s, was %q", wanted, shorten(raw))
	}
	if parsed.User != nil {
		return errors.New("must not hold a user name or password")
	}
	return nil
}

// links is one absolute URL or a list of them.
type links struct {
	to  *[]string
	max int
}

func (l links) reset() { *l.to = nil }

func (l links) decode(p *parser, n *node) error {
	if n.kind != kindList {
		var one string
		if err := (link{to: &one}).decode(p, n); err != nil {
			return err
		}
		*l.to = []string{one}
		return nil
	}
	if len(n.items) == 0 || len(n.items) > l.max {
		return fmt.Errorf("must be a URL or a list of 1 to %d URLs, was %s", l.max, n.describe())
	}
	urls := make([]string, len(n.items))
	for i, item := range n.items {
		if err := p.decode(fmt.Sprintf("[%d]", i), link{to: &urls[i]}, item); err != nil {
			return err
		}
	}
	*l.to = urls
	return nil
}

func (l links) encode() (any, bool) {
	if len(*l.to) == 1 {
		return (*l.to)[0], true
	}
	return *l.to, len(*l.to) > 0
}

func (l links) allowed() string {
	return fmt.Sprintf("%s, or a list of 1 to %d of them", link{}.allowed(), l.max)
}

func (l links) schema() schema {
	one := link{}.schema()
	return schema{"anyOf": []schema{one, {"type": "array", "items": one, "minItems": 1, "maxItems": l.max}}}
}
