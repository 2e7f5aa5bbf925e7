package actions

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// field is one row of a verb's table: a name, whether it must be given, and the kind of value bound to a struct field.
type field struct {
	name     string
	required bool
	value    value
}

// value is a kind of field bound to the place that holds it. decode's error is only the message: the parser adds where.
type value interface {
	// reset puts the default in place.
	reset()
	decode(p *parser, n *node) error
	// allowed says what the field may hold, to stand after "must be".
	allowed() string
	// encode returns the canonical JSON value, and false when it need not be written.
	encode() (any, bool)
}

// check is an extra rule on a text, run after the general ones; its error says what must hold.
type check func(string) error

// text is a string without control characters.
type text struct {
	to       *string
	fallback string
	max      int // characters
	check    check
}

func (t text) allowed() string { return fmt.Sprintf("a string of at most %d characters", t.max) }

func (t text) reset() { *t.to = t.fallback }

func (t text) decode(_ *parser, n *node) error {
	if n.kind != kindString {
		return fmt.Errorf("must be a string, was %s", n.describe())
	}
	if count := utf8.RuneCountInString(n.text); count > t.max {
		return fmt.Errorf("must be at most %d characters, was %d", t.max, count)
	}
	if err := checkControl(n.text); err != nil {
		return err
	}
	if t.check != nil {
		if err := t.check(n.text); err != nil {
			return err
		}
	}
	*t.to = n.text
	return nil
}

func (t text) encode() (any, bool) { return *t.to, *t.to != "" || t.fallback != "" }

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
		return fmt.Errorf("must not be empty")
	}
	return nil
}

// speakable refuses what FreeSWITCH reads as syntax in text it speaks: ${…} and #{…} are expanded, API calls included
// (switch_channel.c, switch_channel_expand_variables), and a leading {…} sets parameters of the engine
// (switch_core_speech.c).
func speakable(s string) error {
	if err := notBlank(s); err != nil {
		return err
	}
	for _, mark := range []string{"${", "$\\{", "#{"} {
		if strings.Contains(s, mark) {
			return fmt.Errorf("must not contain %q", mark)
		}
	}
	if strings.HasPrefix(strings.TrimLeft(s, " "), "{") {
		return fmt.Errorf("must not begin with \"{\"")
	}
	return nil
}

// characters returns a check that allows only those of a set.
func characters(allowed string) check {
	return func(s string) error {
		for _, r := range s {
			if !strings.ContainsRune(allowed, r) {
				return fmt.Errorf("must hold only the characters %s, was %q", allowed, shorten(s))
			}
		}
		return nil
	}
}

// integer is a whole number between two bounds.
type integer struct {
	to       *int
	fallback int
	min, max int
}

func (i integer) allowed() string {
	return fmt.Sprintf("a whole number between %d and %d", i.min, i.max)
}

func (i integer) reset() { *i.to = i.fallback }

func (i integer) decode(_ *parser, n *node) error {
	if n.kind != kindNumber {
		return fmt.Errorf("must be a whole number between %d and %d, was %s", i.min, i.max, n.describe())
	}
	number, err := strconv.ParseFloat(n.text, 64)
	if err != nil || number != math.Trunc(number) {
		return fmt.Errorf("must be a whole number between %d and %d, was %s", i.min, i.max, n.describe())
	}
	if number < float64(i.min) || number > float64(i.max) {
		return fmt.Errorf("must be between %d and %d, was %s", i.min, i.max, n.describe())
	}
	*i.to = int(number)
	return nil
}

func (i integer) encode() (any, bool) { return *i.to, *i.to != 0 || i.fallback != 0 }

// seconds is a duration, written as a number of seconds that may have a fraction. With zero set, 0 is allowed below min
// and means what zero says.
type seconds struct {
	to       *time.Duration
	fallback time.Duration
	min, max time.Duration
	zero     string
}

func (s seconds) reset() { *s.to = s.fallback }

func (s seconds) allowed() string { return "a number " + s.span() }

func (s seconds) span() string {
	span := fmt.Sprintf("between %s and %s seconds", formatSeconds(s.min), formatSeconds(s.max))
	if s.zero != "" {
		span += ", or 0 (" + s.zero + ")"
	}
	return span
}

func (s seconds) decode(_ *parser, n *node) error {
	if n.kind != kindNumber {
		return fmt.Errorf("must be %s, was %s", s.allowed(), n.describe())
	}
	number, err := strconv.ParseFloat(n.text, 64)
	if err != nil || number < 0 || number > s.max.Seconds() {
		return fmt.Errorf("must be %s, was %s", s.span(), n.describe())
	}
	d := time.Duration(math.Round(number*1000)) * time.Millisecond
	if d < s.min && (s.zero == "" || number != 0) {
		return fmt.Errorf("must be %s, was %s", s.span(), n.describe())
	}
	*s.to = d
	return nil
}

func (s seconds) encode() (any, bool) {
	return s.to.Seconds(), *s.to != 0 || s.fallback != 0
}

func formatSeconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// boolean is true or false.
type boolean struct {
	to       *bool
	fallback bool
}

func (boolean) allowed() string { return "true or false" }

func (b boolean) reset() { *b.to = b.fallback }

func (b boolean) decode(_ *parser, n *node) error {
	if n.kind != kindBool {
		return fmt.Errorf("must be true or false, was %s", n.describe())
	}
	*b.to = n.boolean
	return nil
}

func (b boolean) encode() (any, bool) { return *b.to, *b.to || b.fallback }

// choice is one of a few words.
type choice struct {
	to       *string
	fallback string
	words    []string
}

func (c choice) allowed() string { return "one of " + strings.Join(c.words, ", ") }

func (c choice) reset() { *c.to = c.fallback }

func (c choice) decode(_ *parser, n *node) error {
	if n.kind == kindString {
		for _, word := range c.words {
			if n.text == word {
				*c.to = word
				return nil
			}
		}
	}
	return fmt.Errorf("must be %s, was %s", c.allowed(), n.describe())
}

func (c choice) encode() (any, bool) { return *c.to, *c.to != "" || c.fallback != "" }

// later is a field of the vocabulary that this version cannot do. A neutral value (false or null) passes, so that a flow
// that switches the feature off explicitly still runs.
type later struct{}

func (later) allowed() string { return "false" }

func (later) reset() {}

func (later) decode(_ *parser, n *node) error {
	if n.kind == kindNull || n.kind == kindBool && !n.boolean {
		return nil
	}
	return fmt.Errorf("is not supported by this version")
}

func (later) encode() (any, bool) { return nil, false }
