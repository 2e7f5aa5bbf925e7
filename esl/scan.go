package esl

import (
	"encoding/json"
	"errors"
	"strings"
)

// errNotObject is returned for a document that is not one flat JSON object.
var errNotObject = errors.New("not a flat JSON object")

// field is where one header lies in the document of an event. Keys and string values are given without their quotes; an array is given with
// its brackets.
type field struct {
	keyStart, keyEnd     uint32
	valueStart, valueEnd uint32
	kind                 fieldKind
	keyEscaped           bool
	valueEscaped         bool
}

type fieldKind uint8

const (
	stringField fieldKind = iota
	arrayField
	otherField // number, true, false, null, object: never written by FreeSWITCH's event serialiser, kept as it stands
)

// averageFieldBytes sizes the index of an event before it is scanned: real events hold a header every 35 to 45 bytes.
const averageFieldBytes = 38

// scan indexes the headers of an event as switch_event_serialize_json (switch_event.c) writes them: one object of strings, with an array of
// strings for a header that was pushed or unshifted. It does not decode: a controller reads about twenty of two hundred headers. Duplicate
// keys and invalid UTF-8 are kept as they are, because FreeSWITCH produces both.
func scan(doc string) ([]field, error) {
	i := skipSpace(doc, 0)
	if i >= len(doc) || doc[i] != '{' {
		return nil, errNotObject
	}
	fields := make([]field, 0, len(doc)/averageFieldBytes+8)
	i = skipSpace(doc, i+1)
	if i < len(doc) && doc[i] == '}' {
		return finish(doc, i+1, fields)
	}
	for {
		if i >= len(doc) || doc[i] != '"' {
			return nil, errNotObject
		}
		end, escaped, ok := scanString(doc, i+1)
		if !ok {
			return nil, errNotObject
		}
		f := field{keyStart: uint32(i + 1), keyEnd: uint32(end), keyEscaped: escaped}
		i = skipSpace(doc, end+1)
		if i >= len(doc) || doc[i] != ':' {
			return nil, errNotObject
		}
		i = skipSpace(doc, i+1)
		if i, ok = scanValue(doc, i, &f); !ok {
			return nil, errNotObject
		}
		fields = append(fields, f)
		i = skipSpace(doc, i)
		if i >= len(doc) {
			return nil, errNotObject
		}
		switch doc[i] {
		case ',':
			i = skipSpace(doc, i+1)
		case '}':
			return finish(doc, i+1, fields)
		default:
			return nil, errNotObject
		}
	}
}

// finish accepts the index only when nothing but blanks follows the object.
func finish(doc string, i int, fields []field) ([]field, error) {
	if skipSpace(doc, i) != len(doc) {
		return nil, errNotObject
	}
	return fields, nil
}

func skipSpace(doc string, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\n' || doc[i] == '\t' || doc[i] == '\r') {
		i++
	}
	return i
}

// scanString returns the index of the quote that ends the string whose first character is at i.
func scanString(doc string, i int) (end int, escaped, ok bool) {
	for {
		q := strings.IndexByte(doc[i:], '"')
		if q < 0 {
			return 0, false, false
		}
		b := strings.IndexByte(doc[i:i+q], '\\')
		if b < 0 {
			return i + q, escaped, true
		}
		// An escape before the quote: step over it and look again, because it may be the quote's own.
		escaped = true
		i += b + 2
		if i > len(doc) {
			return 0, false, false
		}
	}
}

// scanValue records the value that starts at i and returns the index after it.
func scanValue(doc string, i int, f *field) (int, bool) {
	if i >= len(doc) {
		return 0, false
	}
	switch c := doc[i]; c {
	case '"':
		end, escaped, ok := scanString(doc, i+1)
		if !ok {
			return 0, false
		}
		f.valueStart, f.valueEnd, f.valueEscaped = uint32(i+1), uint32(end), escaped
		return end + 1, true
	case '[', '{':
		end, ok := scanNested(doc, i)
		if !ok {
			return 0, false
		}
		f.valueStart, f.valueEnd, f.kind = uint32(i), uint32(end), otherField
		if c == '[' {
			f.kind = arrayField
		}
		return end, true
	default:
		end := i
		for end < len(doc) && !strings.ContainsRune(",}] \n\r\t\"[{:", rune(doc[end])) {
			end++
		}
		if end == i {
			return 0, false
		}
		f.valueStart, f.valueEnd, f.kind = uint32(i), uint32(end), otherField
		return end, true
	}
}

// scanNested returns the index after the bracket that closes the one at i.
func scanNested(doc string, i int) (int, bool) {
	depth := 0
	for i < len(doc) {
		switch doc[i] {
		case '"':
			end, _, ok := scanString(doc, i+1)
			if !ok {
				return 0, false
			}
			i = end
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return i + 1, true
			}
		}
		i++
	}
	return 0, false
}

// unescape decodes the inside of a JSON string. What encoding/json refuses (a lone surrogate is replaced, a bad escape is an error) is given as
// it stands, so that one odd header never costs the event.
func unescape(s string) string {
	var out string
	if err := json.Unmarshal([]byte(`"`+s+`"`), &out); err != nil {
		return s
	}
	return out
}
