package dialplan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"tandem/models"
)

// Numbers finds a DID by its number; *models.Store is one.
type Numbers interface {
	RouteDID(ctx context.Context, number string) (*models.DID, error)
}

// dialled is how a number is written in the entry context's own condition, see renderEntry.
var dialled = regexp.MustCompile(`^(?:[+]|00)?([1-9][0-9]{6,14})$`)

// shardContext is the name of a shard's context.
var shardContext = regexp.MustCompile(`^` + shardPrefix + `([0-9]{3})$`)

// Answers routes single numbers for nodes that ask at each hunt (mod_xml_curl), with the documents that the files hold: the same functions
// write both. What it does not answer, the node finds in its own files.
type Answers struct {
	numbers Numbers
	profile string
}

// NewAnswers makes the answers of numbers; an empty profile means DefaultProfile.
func NewAnswers(numbers Numbers, profile string) (*Answers, error) {
	if profile == "" {
		profile = DefaultProfile
	}
	if numbers == nil || !profilePattern.MatchString(profile) {
		return nil, fmt.Errorf("dialplan: answers need numbers and the name of a SIP profile, was %q", profile)
	}
	return &Answers{numbers: numbers, profile: profile}, nil
}

// Hunt returns the document for a number that a node hunts in a context of the dialplan. found is false where the node's own files say it:
// in contexts that do not depend on the number, and in the entry context for numbers that are no DIDs. A number that is no DID any more
// gets the end of its shard, since the node's files may still have it.
func (a *Answers) Hunt(ctx context.Context, dialplanContext, number string) (document []byte, found bool, err error) {
	entry := dialplanContext == entryContext
	shard := shardContext.FindStringSubmatch(dialplanContext)
	digits := dialled.FindStringSubmatch(number)
	if !entry && shard == nil || digits == nil || shard != nil && !strings.HasSuffix(number, shard[1]) {
		return nil, false, nil
	}
	did, err := a.numbers.RouteDID(ctx, "+"+digits[1])
	if errors.Is(err, models.ErrNotFound) {
		did, err = nil, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("answer a hunt: %w", err)
	}
	switch {
	case entry && did == nil:
		return nil, false, nil
	case entry:
		return section(renderEntry([]string{shardOf(did.NumberE164)})), true, nil
	case did == nil:
		return section(renderShard(shard[1], nil)), true, nil
	}
	e, err := newExtension(did, a.profile)
	if e.number == "" {
		return nil, false, fmt.Errorf("answer a hunt for DID %s: %w", did.ID, err)
	}
	return section(renderShard(shard[1], []extension{e})), true, nil
}

// section puts contexts into a document of mod_xml_curl's. The preprocessor of the switch drops the lines of <include>, in files as here.
func section(contexts []byte) []byte {
	var b bytes.Buffer
	b.WriteString("<document type=\"freeswitch/xml\">\n<section name=\"dialplan\">\n")
	b.Write(contexts)
	b.WriteString("</section>\n</document>\n")
	return b.Bytes()
}
