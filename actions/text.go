package actions

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"unicode"
	"unicode/utf8"
)

// text is a string without control characters that keeps a rule.
type text struct {
	to       *string
	fallback string
	max      int // characters
	rule     rule
}

// rule is what a text must keep beyond its length.
type rule struct {
	check func(string) error
	// says describes the texts that pass, for people. With open set it does so for any length.
	says string
	open bool
	// schema describes them as JSON Schema, in place of the pattern that refuses control characters.
	schema schema
}

func (t text) reset() { *t.to = t.fallback }

func (t text) decode(_ *parser, n *node) error {
	if n.kind != kindString {
		return fmt.Errorf("must be %s, was %s", t.allowed(), n.describe())
	}
	if count := utf8.RuneCountInString(n.text); count > t.max {
		return fmt.Errorf("must be at most %d characters, was %d", t.max, count)
	}
	if err := checkControl(n.text); err != nil {
		return err
	}
	if t.rule.check != nil {
		if err := t.rule.check(n.text); err != nil {
			return err
		}
	}
	*t.to = n.text
	return nil
}

func (t text) encode() (any, bool) { return *t.to, *t.to != "" || t.fallback != "" }

func (t text) allowed() string {
	switch {
	case t.rule.says == "":
		return fmt.Sprintf("a string of at most %d characters", t.max)
	case t.rule.open:
		return fmt.Sprintf("at most %d %s", t.max, t.rule.says)
	default:
		return t.rule.says
	}
}

func (t text) schema() schema {
	s := schema{"type": "string", "maxLength": t.max, "pattern": withoutControl}
	maps.Copy(s, t.rule.schema)
	if t.fallback != "" {
		s["default"] = t.fallback
	}
	return s
}

// withoutControl is checkControl as a pattern: category Cc and the two separators. The characters themselves stand in
// it, because the dialects of regular expressions escape them differently.
const withoutControl = "^[^\x00-\x1f\x7f-\u009f\u2028\u2029]*$"

// checkControl refuses what no field of the vocabulary may hold: line breaks end an ESL message (DESIGN §4), NUL ends a
// C string, and the rest can only be a mistake.
func checkControl(s string) error {
	position := 0
	for _, r := range s {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return fmt.Errorf("must not contain control characters, found %U at character %d", r, position)
		}
		position++
	}
	return nil
}

// notBlank refuses a text of nothing but spaces.
func notBlank(s string) error {
	if strings.TrimSpace(s) == "" {
		return fmt.Errorf("must not be empty, was %q", shorten(s))
	}
	return nil
}

// visible is notBlank as a pattern: one character that is no space.
const visible = "[^ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]"

// speakable is a text that FreeSWITCH reads as nothing but text: ${…} and #{…} are expanded, API calls included
// (switch_channel.c, switch_channel_expand_variables), and a leading {…} sets parameters of the engine
// (switch_core_speech.c).
var speakable = rule{
	check: func(s string) error {
		if err := notBlank(s); err != nil {
			return err
		}
		for _, mark := range []string{"${", "$\\{", "#{"} {
			if strings.Contains(s, mark) {
				return fmt.Errorf("must not contain %q", mark)
			}
		}
		if strings.HasPrefix(strings.TrimLeft(s, " "), "{") {
			return errors.New(`must not begin with "{"`)
		}
		return nil
	},
	schema: schema{"allOf": []schema{
		{"pattern": visible},
		{"not": schema{"pattern": `\$\{|\$\\\{|#\{`}},
		{"not": schema{"pattern": `^ *\{`}},
	}},
}

// word is the name of a thing, none of whose characters means anything to FreeSWITCH; it may be empty, for none.
var word = rule{
	check:  characters(wordCharacters, "letters, digits, -, _ and ."),
	says:   "letters, digits, -, _ and .",
	open:   true,
	schema: schema{"pattern": `^[A-Za-z0-9_.-]*$`},
}

// someWord is a word that must be given.
var someWord = rule{
	check: func(s string) error {
		if err := notBlank(s); err != nil {
			return err
		}
		return word.check(s)
	},
	says:   word.says,
	open:   true,
	schema: schema{"pattern": `^[A-Za-z0-9_.-]+$`},
}

const wordCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

// characters returns a check that allows only those of a set, which says describes.
func characters(allowed, says string) func(string) error {
	return func(s string) error {
		for _, r := range s {
			if !strings.ContainsRune(allowed, r) {
				return fmt.Errorf("must hold only %s, was %q", says, shorten(s))
			}
		}
		return nil
	}
}
