package dialplan

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
)

// preprocessor models what FreeSWITCH does to a file's text before it parses it (switch_xml.c, preprocess and expand_vars):
// line by line it expands $${global variables}, drops lines that hold "<include>", "</include>" or "<?", and runs directives.
// ran collects the directives, which would be commands on the switch.
type preprocessor struct {
	globals map[string]string
	ran     []string
	comment bool // inside <!--# that did not end on its line
}

func (p *preprocessor) run(text string) string {
	var out strings.Builder
	for line := range strings.SplitAfterSeq(text, "\n") {
		expanded := p.expand(line)
		if strings.Contains(line, "<include>") || strings.Contains(line, "</include>") || strings.Contains(line, "<?") {
			continue
		}
		if p.comment {
			_, after, ended := strings.Cut(expanded, "-->")
			if !ended {
				continue
			}
			p.comment, expanded = false, after
		}
		if at := strings.Index(strings.ToLower(expanded), "x-pre-process"); at >= 0 {
			p.ran = append(p.ran, expanded[at:])
			continue
		}
		if before, command, found := strings.Cut(expanded, "<!--#"); found {
			out.WriteString(before)
			command, after, ended := strings.Cut(command, "-->")
			out.WriteString(after)
			p.comment = !ended
			p.ran = append(p.ran, command)
			continue
		}
		out.WriteString(expanded)
	}
	return out.String()
}

func (p *preprocessor) expand(line string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(line, "$${")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		depth, end := 1, -1
		for i := range len(rest) {
			switch rest[i] {
			case '{':
				depth++
			case '}':
				depth--
			}
			if depth == 0 {
				end = i
				break
			}
		}
		if end < 0 {
			out.WriteString("$${")
			line = rest
			continue
		}
		out.WriteString(p.globals[rest[:end]])
		line = rest[end+1:]
	}
}

// element is a parsed element.
type element struct {
	Name     string
	Attrs    map[string]string
	Children []*element
}

func (e *element) all(name string) []*element {
	var found []*element
	for _, child := range e.Children {
		if child.Name == name {
			found = append(found, child)
		}
		found = append(found, child.all(name)...)
	}
	return found
}

// load reads a document as the switch does: preprocessed, then parsed. It returns a root that holds the file's elements.
func load(content []byte) (*element, *preprocessor, error) {
	p := &preprocessor{globals: map[string]string{"x": "EXPANDED", "system": "EXPANDED"}}
	d := xml.NewDecoder(strings.NewReader(p.run(string(content))))
	root := &element{}
	stack := []*element{root}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			if len(stack) != 1 {
				return nil, nil, errors.New("elements left open")
			}
			return root, p, nil
		}
		if err != nil {
			return nil, nil, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{Name: token.Name.Local, Attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.Attrs[a.Name.Local] = a.Value
			}
			stack[len(stack)-1].Children = append(stack[len(stack)-1].Children, e)
			stack = append(stack, e)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		case xml.CharData:
			if strings.TrimSpace(string(token)) != "" {
				return nil, nil, errors.New("text outside attributes")
			}
		}
	}
}
