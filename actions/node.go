package actions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// maxDepth bounds how deep the JSON of a reply may nest. The vocabulary itself needs 6; notify payloads take the rest.
const maxDepth = 32

type kind int

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindList
	kindObject
)

// node is a JSON value that keeps what encoding/json would forget and validation needs: the order and repetition of
// keys, the spelling of numbers, and the raw bytes.
type node struct {
	kind    kind
	boolean bool
	text    string // kindString: the value; kindNumber: its literal
	raw     []byte
	items   []*node
	keys    []string
	values  map[string]*node
}

// none tells whether the node is a customer's way to switch an object off: null or false.
func (n *node) none() bool { return n.kind == kindNull || n.kind == kindBool && !n.boolean }

// describe says what the node is, short enough for an error message.
func (n *node) describe() string {
	switch n.kind {
	case kindNull:
		return "null"
	case kindBool, kindNumber:
		return shorten(string(n.raw))
	case kindString:
		return fmt.Sprintf("%q", shorten(n.text))
	case kindList:
		return fmt.Sprintf("a list of %d", len(n.items))
	default:
		return "an object"
	}
}

// shorten cuts a value to what an error message can carry.
func shorten(s string) string {
	const limit = 48
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit]) + "…"
}

// duplicateError reports a key that an object holds twice. The path is put together on the way out, so that replies
// without the fault pay nothing for it.
type duplicateError struct{ path, key string }

func (e *duplicateError) Error() string { return fmt.Sprintf("key %q appears twice", e.key) }

// within adds the place that holds the one in which err was found.
func within(err error, place string) error {
	var duplicate *duplicateError
	if errors.As(err, &duplicate) {
		duplicate.path = place + duplicate.path
	}
	return err
}

type reader struct {
	dec  *json.Decoder
	body []byte
}

// readJSON parses body into nodes. It refuses what encoding/json lets pass: invalid UTF-8, duplicate keys, data after
// the value.
func readJSON(body []byte) (*node, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("is not valid UTF-8")
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, errors.New("is empty; it must be JSON")
	}
	r := &reader{dec: json.NewDecoder(bytes.NewReader(body)), body: body}
	r.dec.UseNumber()
	root, err := r.value(0)
	if err != nil {
		var duplicate *duplicateError
		if errors.As(err, &duplicate) {
			return nil, err
		}
		return nil, fmt.Errorf("is not valid JSON: %s", syntaxMessage(err, r.dec.InputOffset()))
	}
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("is not valid JSON: more data after the value at byte %d", r.dec.InputOffset())
	}
	return root, nil
}

func syntaxMessage(err error, offset int64) string {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		offset = syntax.Offset
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends too early"
	}
	return fmt.Sprintf("%s at byte %d", err.Error(), offset)
}

func (r *reader) value(depth int) (*node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d levels deep", maxDepth)
	}
	start := r.dec.InputOffset()
	token, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	n := &node{}
	switch t := token.(type) {
	case nil:
		n.kind = kindNull
	case bool:
		n.kind, n.boolean = kindBool, t
	case json.Number:
		n.kind, n.text = kindNumber, t.String()
	case string:
		n.kind, n.text = kindString, t
	case json.Delim:
		if t == '[' {
			err = r.list(n, depth)
		} else {
			err = r.object(n, depth)
		}
		if err != nil {
			return nil, err
		}
		if _, err := r.dec.Token(); err != nil { // the closing delimiter
			return nil, err
		}
	}
	// The decoder's offset before a value stands before the separator that precedes it.
	n.raw = bytes.TrimLeft(r.body[start:r.dec.InputOffset()], " \t\r\n,:")
	return n, nil
}

func (r *reader) list(n *node, depth int) error {
	n.kind = kindList
	for i := 0; r.dec.More(); i++ {
		item, err := r.value(depth + 1)
		if err != nil {
			return within(err, fmt.Sprintf("[%d]", i))
		}
		n.items = append(n.items, item)
	}
	return nil
}

func (r *reader) object(n *node, depth int) error {
	n.kind, n.values = kindObject, map[string]*node{}
	for r.dec.More() {
		token, err := r.dec.Token()
		if err != nil {
			return err
		}
		key, ok := token.(string)
		if !ok {
			return fmt.Errorf("object key %v is not a string", token)
		}
		if _, repeated := n.values[key]; repeated {
			return &duplicateError{key: shorten(key)}
		}
		value, err := r.value(depth + 1)
		if err != nil {
			return within(err, "."+shorten(key))
		}
		n.keys = append(n.keys, key)
		n.values[key] = value
	}
	return nil
}
