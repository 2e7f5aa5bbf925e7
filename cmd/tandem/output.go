package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// How lists and objects are printed.
const (
	outputTable = "table"
	outputWide  = "wide"
	outputJSON  = "json"
	outputYAML  = "yaml"
	// outputName prints only what names an object to other commands, one in a line.
	outputName = "name"
)

var outputs = []string{outputTable, outputWide, outputJSON, outputYAML, outputName}

// column is a column of a table. wide ones are shown only with -o wide.
type column[T any] struct {
	title string
	wide  bool
	text  func(*T) string
}

// view is how objects of a kind are shown: T has the members that the table needs. JSON and YAML show what the API answered.
type view[T any] struct {
	columns []column[T]
	// name is what other commands take for the object.
	name func(*T) string
}

// show prints one object.
func show[T any](o *options, w io.Writer, v view[T], item json.RawMessage) error {
	if o.output == outputJSON || o.output == outputYAML {
		return o.structured(w, item)
	}
	return showList(o, w, v, []json.RawMessage{item})
}

// showList prints a list.
func showList[T any](o *options, w io.Writer, v view[T], items []json.RawMessage) error {
	switch o.output {
	case outputJSON, outputYAML:
		all, err := json.Marshal(append([]json.RawMessage{}, items...))
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
		return o.structured(w, all)
	default:
		read, err := decodeAll[T](items)
		if err != nil {
			return err
		}
		if o.output == outputName {
			return v.names(w, read)
		}
		return v.table(w, o.output == outputWide, true, read)
	}
}

func decodeAll[T any](items []json.RawMessage) ([]T, error) {
	read := make([]T, len(items))
	for i, item := range items {
		if err := json.Unmarshal(item, &read[i]); err != nil {
			return nil, fmt.Errorf("the server answered something that this version does not understand: %w", err)
		}
	}
	return read, nil
}

func (v view[T]) names(w io.Writer, items []T) error {
	for i := range items {
		if _, err := fmt.Fprintln(w, printable(v.name(&items[i]))); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

// table prints the items in columns, below a header where that is wanted.
func (v view[T]) table(w io.Writer, wide, header bool, items []T) error {
	var rows [][]string
	if header {
		var titles []string
		for _, c := range v.columns {
			if wide || !c.wide {
				titles = append(titles, c.title)
			}
		}
		rows = append(rows, titles)
	}
	for i := range items {
		var cells []string
		for _, c := range v.columns {
			if wide || !c.wide {
				cells = append(cells, c.text(&items[i]))
			}
		}
		rows = append(rows, cells)
	}
	return writeTable(w, rows)
}

// writeTable aligns rows of cells. What does not print is shown escaped: names and numbers come from customers and callers, and
// a terminal does what it is told.
func writeTable(w io.Writer, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cells[i] = printable(cell); cells[i] == "" {
				cells[i] = "-"
			}
		}
		if _, err := fmt.Fprintln(table, strings.Join(cells, "\t")); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// printable replaces what a terminal would not show but obey, or what would break a row.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// print writes a value as JSON or YAML, or rows as a table below a header; their first cells are the names.
func (o *options) print(w io.Writer, value any, header []string, rows [][]string) error {
	switch o.output {
	case outputJSON, outputYAML:
		encoded, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
		return o.structured(w, encoded)
	case outputName:
		for _, row := range rows {
			if _, err := fmt.Fprintln(w, printable(row[0])); err != nil {
				return fmt.Errorf("print: %w", err)
			}
		}
		return nil
	default:
		return writeTable(w, append([][]string{header}, rows...))
	}
}

// structured prints JSON as it is, indented, or as YAML.
func (o *options) structured(w io.Writer, raw json.RawMessage) error {
	var out bytes.Buffer
	if o.output == outputYAML {
		node, err := yamlOf(raw)
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
		encoder := yaml.NewEncoder(&out)
		encoder.SetIndent(2)
		if err := encoder.Encode(node); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	} else {
		if err := json.Indent(&out, raw, "", "  "); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		out.WriteByte('\n')
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// yamlOf makes YAML of JSON, its members in their order.
func yamlOf(raw json.RawMessage) (*yaml.Node, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return yamlNode(decoder)
}

func yamlNode(decoder *json.Decoder) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch value := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		if value == '{' {
			node.Kind = yaml.MappingNode
		}
		for decoder.More() {
			below, err := yamlNode(decoder)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, below)
		}
		if len(node.Content) == 0 {
			node.Style = yaml.FlowStyle
		}
		_, err := decoder.Token()
		return node, err
	case string:
		// Not SetString: it leaves words bare that YAML 1.1 takes for booleans.
		node := &yaml.Node{}
		return node, node.Encode(value)
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(value.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(value)}, nil
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
}
