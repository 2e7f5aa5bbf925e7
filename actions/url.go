package actions

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// maxURL is the longest URL that the vocabulary takes, in bytes.
const maxURL = 2048

// link is an http or https URL; with relative set it may also be relative to the answer_url.
type link struct {
	to       *string
	relative bool
}

func (l link) reset() { *l.to = "" }

func (l link) decode(_ *parser, n *node) error {
	if n.kind != kindString {
		return fmt.Errorf("must be a URL, was %s", n.describe())
	}
	if err := checkURL(n.text, l.relative); err != nil {
		return err
	}
	*l.to = n.text
	return nil
}

func (l link) encode() (any, bool) { return *l.to, *l.to != "" }

// checkURL holds a URL to RFC 3986: what may not stand in a URL unescaped is refused, not repaired, so that the URL we
// fetch is the one that was checked.
func checkURL(raw string, relative bool) error {
	wanted := "an absolute http or https URL"
	if relative {
		wanted = "an http or https URL, absolute or relative"
	}
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
	absolute := (parsed.Scheme == "http" || parsed.Scheme == "https") && parsed.Hostname() != "" && parsed.Opaque == ""
	local := relative && parsed.Scheme == "" && parsed.Opaque == "" && (parsed.Host == "" || parsed.Hostname() != "")
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

func (l links) decode(_ *parser, n *node) error {
	items := []*node{n}
	if n.kind == kindList {
		items = n.items
	}
	if len(items) == 0 || len(items) > l.max {
		return fmt.Errorf("must be a URL or a list of 1 to %d URLs, was a list of %d", l.max, len(items))
	}
	urls := make([]string, len(items))
	for i, item := range items {
		if err := (link{to: &urls[i]}).decode(nil, item); err != nil {
			if n.kind == kindList {
				return fmt.Errorf("[%d] %w", i, err)
			}
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
