package simswitch

import (
	"errors"
	"strings"
)

// separate is switch_separate_string (switch_utils.c): it splits s at delim, honouring single quotes and backslashes, and
// unescapes each part. The last of max parts keeps the rest. A leading `^^x` makes x the delimiter.
func separate(s string, delim byte, limit int) []string {
	if len(s) >= 4 && s[0] == '^' && s[1] == '^' {
		delim = s[2]
		s = s[3:]
	}
	var parts []string
	if delim == ' ' {
		parts = separateBlank(s, limit)
	} else {
		parts = separateChar(s, delim, limit)
	}
	for i, part := range parts {
		if delim == ' ' {
			parts[i] = unescapePart(part, 0)
		} else {
			parts[i] = unescapePart(part, delim)
		}
	}
	return parts
}

func separateChar(s string, delim byte, limit int) []string {
	var parts []string
	for i := 0; i < len(s); {
		start := i
		if len(parts) == limit-1 {
			return append(parts, s[start:])
		}
		quoted, cut := false, false
		for i < len(s) {
			switch {
			case s[i] == '\\':
				i++
			case s[i] == '\'' && (quoted || strings.IndexByte(s[i+1:], '\'') >= 0):
				quoted = !quoted
			case s[i] == delim && !quoted:
				cut = true
			}
			if cut {
				break
			}
			i++
		}
		end := min(i, len(s))
		parts = append(parts, s[start:end])
		i = end + 1
	}
	return parts
}

func separateBlank(s string, limit int) []string {
	var parts []string
	quoted := false
	for i := 0; i < len(s); {
		start := i
		if len(parts) == limit-1 {
			return append(parts, s[start:])
		}
		for i < len(s) && s[i] == ' ' {
			i++
		}
		for i < len(s) {
			if s[i] == '\\' {
				i++
			} else if s[i] == '\'' {
				quoted = !quoted
			} else if s[i] == ' ' && !quoted {
				break
			}
			i++
		}
		end := min(i, len(s))
		parts = append(parts, s[start:end])
		i = end
		for i < len(s) && s[i] == ' ' {
			i++
		}
	}
	return parts
}

// unescapePart is cleanup_separated_string: it strips quotes and unquoted blanks at both ends and resolves escapes.
func unescapePart(s string, delim byte) string {
	s = strings.TrimLeft(s, " ")
	out := make([]byte, 0, len(s))
	end := -1
	quoted := false
	for i := 0; i < len(s); i++ {
		ch := s[i]
		if ch == '\\' && i+1 < len(s) {
			e := s[i+1]
			u := e
			switch e {
			case 'n':
				u = '\n'
			case 'r':
				u = '\r'
			case 't':
				u = '\t'
			case 's':
				u = ' '
			}
			if u != e || e == '\'' || e == '"' || e == '\\' || (delim != 0 && e == delim) {
				i++
				out = append(out, u)
				end = len(out)
				continue
			}
		}
		if ch == '\'' && (quoted || strings.IndexByte(s[i+1:], '\'') >= 0) {
			if quoted = !quoted; quoted {
				end = len(out)
			}
			continue
		}
		out = append(out, ch)
		if ch != ' ' || quoted {
			end = len(out)
		}
	}
	if end >= 0 {
		out = out[:end]
	}
	return string(out)
}

// closing is switch_find_end_paren: the index of the bracket that closes the one s begins with, or -1.
func closing(s string, opening, ending byte) int {
	i := 0
	for i < len(s) && s[i] == ' ' {
		i++
	}
	if i == len(s) || s[i] != opening {
		return -1
	}
	depth := 0
	for ; i < len(s); i++ {
		switch s[i] {
		case opening:
			depth++
		case ending:
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

var errUnclosedBracket = errors.New("bracket is never closed")

// brackets is switch_event_create_brackets: it takes one `{name=value,…}` from the front of s and returns its pairs and
// the rest. Quotes do not protect a closing bracket. `^^x` at the front makes x the delimiter.
func brackets(s string, opening, ending, delim byte) (pairs []header, rest string, err error) {
	end := closing(s, opening, ending)
	if end < 0 {
		return nil, "", errUnclosedBracket
	}
	inner := strings.TrimLeft(s[:end], " ")[1:]
	rest = s[end+1:]
	if strings.HasPrefix(inner, "^^") && len(inner) > 2 {
		delim = inner[2]
		inner = inner[3:]
	}
	for _, part := range separate(inner, delim, 1024) {
		if pair := separate(part, '=', 2); len(pair) == 2 {
			pairs = append(pairs, header{pair[0], pair[1]})
		}
	}
	return pairs, rest, nil
}
