package esl

import (
	"strings"
)

// Each layer of switch_separate_string (switch_utils.c) splits at a delimiter and then unescapes every part in cleanup_separated_string: outer
// blanks and lone quotes go, and backslash sequences for \ ' " the delimiter, n, r, t and s are decoded. escapeLayer is the inverse of one such
// layer: what it returns survives the split whole and is unescaped to s. The blank delimiter (' ') is escaped as \s by all layers alike.
func escapeLayer(s string, delim byte) string {
	extra := 0
	for i := range len(s) {
		if c := s[i]; c == '\\' || c == '\'' || c == '"' || c == ' ' || c == delim {
			extra++
		}
	}
	if extra == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + extra)
	for i := range len(s) {
		switch c := s[i]; c {
		case ' ':
			b.WriteString(`\s`)
		case '\\', '\'', '"', delim:
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// escapeVariable writes a value for a {name=value,…} list. The list is split at commas and each entry at its first '='
// (switch_event.c, switch_event_create_brackets).
func escapeVariable(value string) string {
	return escapeLayer(escapeLayer(value, '='), ',')
}

// escapeWord writes a value as one of several arguments that are split at blanks.
func escapeWord(value string) string { return escapeLayer(value, ' ') }

// checkVariableValue refuses what survives no escaping between braces: brackets end or begin lists wherever they stand, quoted or not
// (switch_utils.c, switch_find_end_paren); '|' and ":_:" fork (switch_ivr_originate.c); '^^' changes the delimiter; '$' begins an expansion.
func checkVariableValue(field, value string) error {
	if err := checkText(field, value, maxVariableBytes); err != nil {
		return err
	}
	if i := strings.IndexAny(value, "{}[]<>|^$"); i >= 0 {
		return refuse(field, "holds %q, which the dial string would read as syntax", value[i])
	}
	if strings.Contains(value, ":_:") {
		return refuse(field, "holds %q, which the dial string would read as syntax", ":_:")
	}
	if strings.Contains(strings.ToLower(value), "origination_nested_vars") {
		return refuse(field, "names origination_nested_vars, which would turn off a check of the switch")
	}
	return nil
}

const maxVariableBytes = 2048
