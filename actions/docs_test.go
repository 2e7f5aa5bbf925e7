package actions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const docs = "../docs/actions.md"

// generated finds the parts of the documentation that the tables make: what stands between the two marks.
var generated = regexp.MustCompile(`(?s)<!-- generated: ([a-z_]+) -->\n.*?<!-- end -->\n`)

// TestDocumentation holds docs/actions.md to the definitions: every verb and every object has its part, and it says what
// the tables say. Run with -update to write it.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	parts := map[string]string{"vocabulary": vocabularyTable(), "tones": toneTable()}
	for _, v := range verbs {
		parts[v.name] = verbPart(t, v)
	}
	for name, fields := range map[string][]field{
		"target": (&Target{}).fields(), "confirm": (&Confirm{}).fields(), "speech": (&Speech{}).fields(), "common": (&Answer{}).commonFields(),
	} {
		parts[name] = fieldTable(fields)
	}
	page, err := os.ReadFile(docs)
	require.NoError(t, err)
	found := map[string]bool{}
	written := generated.ReplaceAllFunc(page, func(old []byte) []byte {
		name := string(generated.FindSubmatch(old)[1])
		part, ok := parts[name]
		require.True(t, ok, "docs/actions.md has a part for %q, which is nothing", name)
		found[name] = true
		return []byte("<!-- generated: " + name + " -->\n" + part + "<!-- end -->\n")
	})
	for name := range parts {
		require.True(t, found[name], "docs/actions.md has no part for %q", name)
	}
	if *update {
		require.NoError(t, os.WriteFile(docs, written, 0o644)) //nolint:gosec // documentation is for everyone
		return
	}
	require.Equal(t, string(written), string(page), "docs/actions.md is out of date: go test ./actions -run TestDocumentation -update")
}

// TestDocumentedExamplesParse reads every example of the documentation that holds actions.
func TestDocumentedExamplesParse(t *testing.T) {
	t.Parallel()
	judge := compileSchema(t)
	page, err := os.ReadFile(docs)
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(page, -1)
	parsed := 0
	for _, block := range blocks {
		body := bytes.TrimSpace(block[1])
		if bytes.HasPrefix(body, []byte(`{"type"`)) {
			continue // what we send, not what we read
		}
		if bytes.HasPrefix(body, []byte(`{"action"`)) {
			body = append(append([]byte("["), body...), ']')
		}
		_, err := Parse(body)
		require.NoError(t, err, "%s", body)
		require.NoError(t, judge(body), "%s", body)
		parsed++
	}
	require.GreaterOrEqual(t, parsed, len(verbs))
}

func vocabularyTable() string {
	var b strings.Builder
	b.WriteString("| action | what it does | alias |\n|---|---|---|\n")
	for _, v := range verbs {
		alias := strings.Join(v.written()[1:], "`, `")
		if alias != "" {
			alias = "`" + alias + "`"
		}
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s |\n", v.name, v.name, v.doc, alias)
	}
	return b.String()
}

func toneTable() string {
	var b strings.Builder
	b.WriteString("| name | one period: on, off in milliseconds, then frequencies in hertz |\n|---|---|\n")
	for _, name := range ToneNames() {
		fmt.Fprintf(&b, "| `%s` | `%s` |\n", name, tones[name])
	}
	return b.String()
}

func verbPart(t *testing.T, v verb) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(v.doc)
	if v.media {
		b.WriteString(" Answers an unanswered call first.")
	}
	b.WriteString("\n\n")
	if fields := v.make().fields(); len(fields) > 0 {
		b.WriteString(fieldTable(fields) + "\n")
	}
	if len(v.results) > 0 {
		b.WriteString("| result | value | meaning |\n|---|---|---|\n")
		for _, r := range v.results {
			value := string(r.kind)
			if r.kind == resultWord {
				value = "`" + strings.Join(r.words, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.name, value, r.doc)
		}
		b.WriteString("\n")
	}
	require.True(t, json.Valid([]byte(v.example)), v.name)
	b.WriteString("```json\n" + v.example + "\n```\n")
	return b.String()
}

func fieldTable(fields []field) string {
	var b strings.Builder
	b.WriteString("| field | must be | default | meaning |\n|---|---|---|---|\n")
	for _, f := range fields {
		name := "`" + f.name + "`"
		if f.required {
			name += " (required)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, allowedWords(f.value), defaultWord(f.value), f.doc)
	}
	return b.String()
}

// allowedWords are what an error says of the field, with links in place of what has a part of its own.
func allowedWords(v value) string {
	switch v := v.(type) {
	case tone:
		return "the name of a [tone](#tones)"
	case ringback:
		return "the name of a [tone](#tones), `none`, or the URL of a file"
	case target:
		return "a [target](#targets)"
	case targets:
		return fmt.Sprintf("a [target](#targets), or a list of 1 to %d", maxTargets)
	case confirmation:
		return "an object, see [confirm](#confirm)"
	case listening:
		return "an object, see [speech](#speech)"
	case detection:
		return "true, false, or an object with the fields of [machine_detection](#machine_detection)"
	case choice:
		return "`" + strings.Join(v.words, "`, `") + "`"
	default:
		return v.allowed()
	}
}

func defaultWord(v value) string {
	value, ok := v.schema()["default"]
	if !ok {
		return ""
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return "`" + strings.Trim(string(raw), `"`) + "`"
}
