package webhooks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Between these lines the documentation is written from the catalogue.
const (
	docBegin = "<!-- Written from the catalogue by: go test ./webhooks -run TestDocs -update -->\n"
	docEnd   = "<!-- The end of what is written from the catalogue. -->\n"
)

// TestDocs holds docs/webhooks.md to the catalogue: every kind, every field, and an example of each that passes CheckData.
func TestDocs(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "docs", "webhooks.md")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(raw), docBegin)
	require.True(t, found)
	got, after, found := strings.Cut(rest, docEnd)
	require.True(t, found)
	want := catalogueText(t)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+docBegin+want+docEnd+after), 0o600))
		return
	}
	require.Equal(t, want, got)

	// And the examples are what they are said to be, as a reader finds them.
	for _, section := range strings.Split(got, "\n### `")[1:] {
		kind, text, _ := strings.Cut(section, "`")
		_, block, found := strings.Cut(text, "```json\n")
		if known, _ := Find(kind); !found {
			require.Empty(t, known.Fields, kind)
			continue
		}
		block, _, _ = strings.Cut(block, "```")
		var data map[string]any
		require.NoError(t, json.Unmarshal([]byte(block), &data), kind)
		require.NoError(t, CheckData(kind, data))
	}
}

func catalogueText(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n| event | when | by default |\n|---|---|---|\n")
	for i := range Kinds {
		told := "yes"
		if !Kinds[i].Default() {
			told = "no"
		}
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s |\n", Kinds[i].Name, strings.ReplaceAll(Kinds[i].Name, ".", ""), Kinds[i].When, told)
	}
	for i := range Kinds {
		kind := &Kinds[i]
		fmt.Fprintf(&b, "\n### `%s`\n\n%s", kind.Name, kind.When)
		if len(kind.Fields) == 0 {
			b.WriteString(" Its `data` has nothing but the call.\n")
			continue
		}
		b.WriteString("\n\n| `data` | type | |\n|---|---|---|\n")
		fieldRows(&b, "", kind.Fields)
		fmt.Fprintf(&b, "\n```json\n%s\n```\n", ordered(t, kind.Fields, kind.Example))
	}
	b.WriteString("\n")
	return b.String()
}

func fieldRows(b *strings.Builder, prefix string, fields []Field) {
	for i := range fields {
		field := &fields[i]
		doc := field.Doc
		if field.Values != nil && !strings.Contains(doc, fmt.Sprintf("`%v`", field.Values[0])) {
			values := make([]string, len(field.Values))
			for i, value := range field.Values {
				values[i] = fmt.Sprintf("`%v`", value)
			}
			doc += " One of " + strings.Join(values, ", ") + "."
		}
		if field.Present != "" {
			doc += " Only where " + field.Present + "."
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s |\n", prefix, field.Name, field.Type, doc)
		fieldRows(b, prefix+field.Name+".", field.Fields)
	}
}

// ordered writes an example with its fields in the catalogue's order, in lines that can be read.
func ordered(t *testing.T, fields []Field, example map[string]any) string {
	t.Helper()
	const width = 130
	var lines []string
	line := "{"
	for i := range fields {
		value, found := example[fields[i].Name]
		if !found {
			continue
		}
		var text string
		if fields[i].Fields != nil {
			text = ordered(t, fields[i].Fields, value.(map[string]any))
		} else {
			raw, err := json.Marshal(value)
			require.NoError(t, err)
			text = strings.ReplaceAll(strings.ReplaceAll(string(raw), `":`, `": `), `,"`, `, "`)
		}
		part := fmt.Sprintf("%q: %s", fields[i].Name, text)
		if len(line)+len(part) > width {
			lines, line = append(lines, strings.TrimRight(line, " ")), " "
		}
		line += part + ", "
	}
	return strings.Join(slices.Concat(lines, []string{strings.TrimSuffix(line, ", ") + "}"}), "\n")
}
