package actions

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// integer is a whole number between two bounds.
type integer struct {
	to       *int
	fallback int
	min, max int
}

func (i integer) reset() { *i.to = i.fallback }

func (i integer) decode(_ *parser, n *node) error {
	if n.kind != kindNumber {
		return fmt.Errorf("must be %s, was %s", i.allowed(), n.describe())
	}
	number, err := strconv.ParseFloat(n.text, 64)
	if err != nil || number != math.Trunc(number) {
		return fmt.Errorf("must be %s, was %s", i.allowed(), n.describe())
	}
	if number < float64(i.min) || number > float64(i.max) {
		return fmt.Errorf("must be between %d and %d, was %s", i.min, i.max, n.describe())
	}
	*i.to = int(number)
	return nil
}

func (i integer) encode() (any, bool) { return *i.to, *i.to != 0 || i.fallback != 0 }

func (i integer) allowed() string {
	return fmt.Sprintf("a whole number between %d and %d", i.min, i.max)
}

func (i integer) schema() schema {
	s := schema{"type": "integer", "minimum": i.min, "maximum": i.max}
	if i.fallback >= i.min {
		s["default"] = i.fallback
	}
	return s
}

// shorthand is an integer that stands for other fields and is therefore never written back.
type shorthand struct{ integer }

func (shorthand) encode() (any, bool) { return nil, false }

// seconds is a duration, written as a number of seconds that may have a fraction, exact to the millisecond. With zero
// set, 0 is allowed below min and means what zero says.
type seconds struct {
	to       *time.Duration
	fallback time.Duration
	min, max time.Duration
	zero     string
}

func (s seconds) reset() { *s.to = s.fallback }

func (s seconds) decode(_ *parser, n *node) error {
	if n.kind != kindNumber {
		return fmt.Errorf("must be %s, was %s", s.allowed(), n.describe())
	}
	number, err := strconv.ParseFloat(n.text, 64)
	inside := err == nil && number >= s.min.Seconds() && number <= s.max.Seconds()
	if !inside && (s.zero == "" || err != nil || number != 0) {
		return fmt.Errorf("must be %s, was %s", s.span(), n.describe())
	}
	*s.to = time.Duration(math.Round(number*1000)) * time.Millisecond
	return nil
}

func (s seconds) encode() (any, bool) { return s.to.Seconds(), *s.to != 0 || s.fallback != 0 }

func (s seconds) allowed() string { return "a number " + s.span() }

func (s seconds) span() string {
	span := fmt.Sprintf("between %s and %s seconds", formatSeconds(s.min), formatSeconds(s.max))
	if s.zero != "" {
		span += ", or 0 (" + s.zero + ")"
	}
	return span
}

func (s seconds) schema() schema {
	out := schema{"type": "number", "maximum": s.max.Seconds()}
	if s.zero == "" {
		out["minimum"] = s.min.Seconds()
	} else {
		out["anyOf"] = []schema{{"const": 0}, {"minimum": s.min.Seconds()}}
	}
	if s.fallback >= s.min || s.zero != "" {
		out["default"] = s.fallback.Seconds()
	}
	return out
}

func formatSeconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
