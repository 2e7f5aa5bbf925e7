package dialplan

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// pieces are the parts of one of our documents that people think in: the parameters of a gateway, the numbers of a shard, the sources of calls. Each
// has a name, and its own text as it is written.
type pieces map[string]string

// pieceNames are the elements that are pieces, with the attribute that names each.
var pieceNames = map[string]string{"param": "name", "extension": "name", "user": "id"}

// secretParams are parameters whose value nobody is shown.
var secretParams = []string{"password"}

// readPieces takes a document apart. An error says that somebody else has written it.
func readPieces(content []byte) (pieces, error) {
	p := pieces{}
	d := xml.NewDecoder(bytes.NewReader(content))
	context := ""
	for {
		before := d.InputOffset()
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return p, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read a document: %w", err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if start.Name.Local == "context" {
			context = attributeOf(start, "name") + " "
		}
		named, ok := pieceNames[start.Name.Local]
		if !ok {
			continue
		}
		if err := d.Skip(); err != nil {
			return nil, fmt.Errorf("read a document: %w", err)
		}
		text := string(content[before:d.InputOffset()])
		name := attributeOf(start, named)
		if start.Name.Local == "param" {
			text = attributeOf(start, "value")
		}
		if start.Name.Local == "extension" {
			name = context + name
		}
		p[start.Name.Local+" "+name] = strings.TrimSpace(text)
	}
}

func attributeOf(start xml.StartElement, name string) string {
	for _, a := range start.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// describe says in words how a document differs from another, never a secret. Nil stands for one that is not there.
func describe(before, after []byte) []string {
	if before == nil || after == nil {
		return nil
	}
	old, err := readPieces(before)
	if err != nil {
		return []string{"is no document of ours any more"}
	}
	wanted, err := readPieces(after)
	if err != nil {
		return []string{"cannot be read"}
	}
	var lines []string
	names := slices.Collect(maps.Keys(wanted))
	for name := range old {
		if _, both := wanted[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		was, there := old[name]
		is, stays := wanted[name]
		kind, rest, _ := strings.Cut(name, " ")
		what := pieceWords[kind] + rest
		hidden := kind == "param" && slices.Contains(secretParams, rest)
		switch {
		case !there:
			lines = append(lines, what+" added"+shown(kind, hidden, " as %s", is))
		case !stays:
			lines = append(lines, what+" removed")
		case was != is:
			lines = append(lines, what+" changed"+shown(kind, hidden, " from %s", was)+shown(kind, hidden, " to %s", is))
		}
	}
	if len(lines) == 0 && !bytes.Equal(before, after) {
		return []string{"differs in what is between its parts"}
	}
	return lines
}

var pieceWords = map[string]string{"param": "", "extension": "number ", "user": "source "}

// secretValue is the value of a parameter that nobody is shown, in one of our documents: a line of its own (renderGateway).
var secretValue = regexp.MustCompile(`(<param name="(?:` + strings.Join(secretParams, "|") + `)" value=")[^"]*(")`)

// HideSecrets returns a document of ours with the values that nobody is shown replaced.
func HideSecrets(content []byte) []byte {
	return secretValue.ReplaceAll(content, []byte("${1}(hidden)${2}"))
}

// shown is a value as people are shown it, nothing for what is hidden or long.
func shown(kind string, hidden bool, format, value string) string {
	if kind != "param" || hidden {
		return ""
	}
	return fmt.Sprintf(format, fmt.Sprintf("%q", shortened(value)))
}

// sameXML tells whether two texts are the same elements with the same attributes and texts, however they are written: FreeSWITCH writes what it has
// loaded in its own way (switch_xml.c, switch_xml_toxml).
func sameXML(a, b []byte) bool {
	x, y := xml.NewDecoder(bytes.NewReader(a)), xml.NewDecoder(bytes.NewReader(b))
	for {
		s, errS := significant(x)
		t, errT := significant(y)
		if errS != nil || errT != nil {
			return errors.Is(errS, io.EOF) && errors.Is(errT, io.EOF)
		}
		if s != t {
			return false
		}
	}
}

// significant returns the next token that means something, as text.
func significant(d *xml.Decoder) (string, error) {
	for {
		token, err := d.Token()
		if err != nil {
			return "", err
		}
		switch t := token.(type) {
		case xml.StartElement:
			if t.Name.Local == "include" {
				continue
			}
			attributes := make([]string, 0, len(t.Attr))
			for _, a := range t.Attr {
				attributes = append(attributes, fmt.Sprintf("%s=%q", a.Name.Local, a.Value))
			}
			slices.Sort(attributes)
			return "<" + t.Name.Local + " " + strings.Join(attributes, " "), nil
		case xml.EndElement:
			if t.Name.Local == "include" {
				continue
			}
			return ">", nil
		case xml.CharData:
			if text := strings.TrimSpace(string(t)); text != "" {
				return text, nil
			}
		}
	}
}

// contextOf cuts the context of a name out of a document of ours.
func contextOf(content []byte, name string) []byte {
	d := xml.NewDecoder(bytes.NewReader(content))
	for {
		before := d.InputOffset()
		token, err := d.Token()
		if err != nil {
			return nil
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "context" {
			continue
		}
		if err := d.Skip(); err != nil {
			return nil
		}
		if attributeOf(start, "name") == name {
			return bytes.TrimSpace(content[before:d.InputOffset()])
		}
	}
}
