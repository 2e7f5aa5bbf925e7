package simswitch

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// element is one XML element of a configuration file.
type element struct {
	name     string
	attrs    map[string]string
	children []*element
	text     string
	line     int
}

// descendants are all elements of a name below e.
func (e *element) descendants(name string) []*element {
	var found []*element
	for _, child := range e.children {
		if child.name == name {
			found = append(found, child)
		}
		found = append(found, child.descendants(name)...)
	}
	return found
}

// ConfigError says which configuration file a real FreeSWITCH would not load, or would load as something else than meant,
// or which construct of it the simulation does not know.
type ConfigError struct {
	// File is the path below the configuration directory, Line counts from 1.
	File string
	Line int
	// Reason says what is wrong.
	Reason string
}

// Error names file, line and reason.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
}

// readFolder parses every file that a wildcard matches, in the order in which FreeSWITCH includes them (glob: sorted).
func readFolder(confDir, folder string, known schema) ([]fileElements, error) {
	paths, err := filepath.Glob(filepath.Join(confDir, "tandem", folder, "*.xml"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	sort.Strings(paths)
	var files []fileElements
	for _, path := range paths {
		name := filepath.ToSlash(filepath.Join("tandem", folder, filepath.Base(path)))
		content, err := os.ReadFile(path) // #nosec G304 -- below the configured directory.
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		roots, err := parseXML(name, string(content), known)
		if err != nil {
			return nil, err
		}
		files = append(files, fileElements{name, roots})
	}
	return files, nil
}

// fileElements are the top elements of one file, with <include> opened.
type fileElements struct {
	name  string
	roots []*element
}

// schema says which elements may stand where, and with which attributes. FreeSWITCH silently ignores what it does not
// know; a generated file that holds such a thing is wrong, so it is refused here.
type schema map[string]elementRule

type elementRule struct {
	children []string
	attrs    []string
	required []string
	text     bool
}

// parseXML reads a file that FreeSWITCH includes into its configuration. It refuses what FreeSWITCH's preprocessor
// (switch_xml.c, preprocess) would rewrite or drop before the parser sees it.
func parseXML(file, content string, known schema) ([]*element, error) {
	if err := checkPreprocessor(file, content); err != nil {
		return nil, err
	}
	dec := xml.NewDecoder(strings.NewReader(content))
	dec.Strict = true
	top := &element{name: ""}
	stack := []*element{top}
	fail := func(format string, args ...any) error {
		line, _ := dec.InputPos()
		return &ConfigError{File: file, Line: line, Reason: fmt.Sprintf(format, args...)}
	}
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fail("%v", err)
		}
		parent := stack[len(stack)-1]
		switch t := token.(type) {
		case xml.StartElement:
			e, err := startElement(t, parent, known)
			if err != nil {
				return nil, fail("%v", err)
			}
			e.line, _ = dec.InputPos()
			if len(stack) == 1 && e.name == "include" {
				stack = append(stack, parent)
			} else {
				parent.children = append(parent.children, e)
				stack = append(stack, e)
			}
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		case xml.CharData:
			text := strings.TrimSpace(string(t))
			if text != "" && (parent == top || !known[parent.name].text) {
				return nil, fail("text %q inside <%s> means nothing", text, parent.name)
			}
			parent.text += text
		case xml.Directive:
			return nil, fail("a <!…> directive is not allowed")
		}
	}
	if len(stack) != 1 {
		return nil, fail("<%s> is never closed", stack[len(stack)-1].name)
	}
	return top.children, nil
}

var errElement = errors.New("unknown element")

func startElement(t xml.StartElement, parent *element, known schema) (*element, error) {
	e := &element{name: t.Name.Local, attrs: map[string]string{}}
	if e.name == "include" && parent.name == "" {
		return e, nil
	}
	rule, ok := known[e.name]
	if !ok || !slices.Contains(known[parent.name].children, e.name) {
		return nil, fmt.Errorf("%w <%s> inside <%s>", errElement, e.name, parent.name)
	}
	for _, a := range t.Attr {
		name := a.Name.Local
		if !slices.Contains(rule.attrs, name) && !slices.Contains(rule.required, name) {
			return nil, fmt.Errorf("<%s> has an attribute %q that the simulated switch does not know", e.name, name)
		}
		if _, twice := e.attrs[name]; twice {
			return nil, fmt.Errorf("<%s> has the attribute %q twice", e.name, name)
		}
		e.attrs[name] = a.Value
	}
	for _, name := range rule.required {
		if e.attrs[name] == "" {
			return nil, fmt.Errorf("<%s> has no attribute %q", e.name, name)
		}
	}
	return e, nil
}

var preprocessor = regexp.MustCompile(`(?i)x-pre-process|<!--\s*#|\$\$\{`)

// checkPreprocessor refuses what is text to an XML parser and a command to FreeSWITCH: X-PRE-PROCESS anywhere, <!--#exec,
// $${variable}, and lines that are dropped because they hold <? or <include beside something else.
func checkPreprocessor(file, content string) error {
	for i, line := range strings.Split(content, "\n") {
		if found := preprocessor.FindString(line); found != "" {
			return &ConfigError{file, i + 1, fmt.Sprintf("%q is a command to FreeSWITCH's preprocessor", found)}
		}
		trimmed := strings.TrimSpace(line)
		for _, tag := range []string{"<?", "<include", "</include"} {
			at := strings.Index(trimmed, tag)
			if at < 0 {
				continue
			}
			end := strings.IndexByte(trimmed[at:], '>')
			if at != 0 || end < 0 || strings.TrimSpace(trimmed[at+end+1:]) != "" {
				return &ConfigError{file, i + 1, fmt.Sprintf("FreeSWITCH drops the whole line that holds %q", tag)}
			}
		}
		if strings.IndexFunc(line, func(r rune) bool { return r < ' ' && r != '\t' && r != '\r' }) >= 0 {
			return &ConfigError{file, i + 1, "control character"}
		}
	}
	return nil
}
