package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var twoCustomers = listOf(
	object{"id": "cust_2", "name": "Bee\x1b[31m\tred", "currency": "EUR", "balance": "1.00", "held": "0.00", "created_at": "2026-01-02T00:00:00Z"},
	object{"id": "cust_1", "name": "", "currency": "USD", "balance": "-0.5", "held": "0.00", "created_at": "2026-01-01T00:00:00Z"},
)

// TestOutputs prints one list in every way. What does not print is shown as such, but left alone in JSON, which escapes it.
func TestOutputs(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	api.says("GET /customers", 200, twoCustomers)
	require.Equal(t, strings.Join([]string{
		"ID      NAME          STATUS  BALANCE  HELD  CURRENCY",
		"cust_2  Bee�[31m�red  -       1.00     0.00  EUR",
		"cust_1  -             -       -0.5     0.00  USD",
		"",
	}, "\n"), runs(t, 0, "customers", "ls").out)
	require.Contains(t, runs(t, 0, "customers", "ls", "-o", "wide").out, "2026-01-02T00:00:00Z")
	require.Equal(t, "cust_2\ncust_1\n", runs(t, 0, "customers", "ls", "-o", "name").out)

	var read []object
	require.NoError(t, json.Unmarshal([]byte(runs(t, 0, "customers", "ls", "-o", "json").out), &read))
	require.Equal(t, "Bee\x1b[31m\tred", read[0]["name"])
	out := runs(t, 0, "customers", "ls", "-o", "yaml").out
	require.NoError(t, yaml.Unmarshal([]byte(out), &read))
	require.Equal(t, "Bee\x1b[31m\tred", read[0]["name"])
	require.Equal(t, "1.00", read[0]["balance"], "a text stays one")

	api.says("GET /customers", 200, listOf())
	require.Equal(t, "[]\n", runs(t, 0, "customers", "ls", "-o", "json").out)
	require.Equal(t, "[]\n", runs(t, 0, "customers", "ls", "-o", "yaml").out)
	require.Empty(t, runs(t, 0, "customers", "ls", "-o", "name").out)
	require.Equal(t, "ID  NAME  STATUS  BALANCE  HELD  CURRENCY\n", runs(t, 0, "customers", "ls").out)
}

// TestYAMLKeepsOrder: members stand as the server sent them.
func TestYAMLKeepsOrder(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, (&options{output: outputYAML}).structured(&out, json.RawMessage(`{"z": 1, "a": {"on": true, "no": null, "n": "1e3"}, "list": [], "more": [1.50, "x: y", "two\nlines"]}`)))
	require.Equal(t, "z: 1\na:\n  \"on\": true\n  \"no\": null\n  \"n\": \"1e3\"\nlist: []\nmore:\n  - 1.50\n  - 'x: y'\n  - |-\n    two\n    lines\n", out.String())
}

// FuzzYAML: whatever JSON the server sends, its YAML says the same.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{`{"a": "yes", "b": [1, -2.5e-3, null], "c": {"~": ""}}`, `"#\u0000"`, `[[], {}, "- x", "é\u2028"]`, `12345678901234567890`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want any
		decoder := json.NewDecoder(strings.NewReader(text))
		if decoder.Decode(&want) != nil || decoder.More() {
			return
		}
		raw, err := json.Marshal(want)
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, (&options{output: outputYAML}).structured(&out, raw))
		var got any
		require.NoError(t, yaml.Unmarshal(out.Bytes(), &got), "%s", out.Bytes())
		again, err := json.Marshal(got)
		require.NoError(t, err, "%s", out.Bytes())
		require.JSONEq(t, string(raw), string(again), "%s", out.Bytes())
	})
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b]0;title\x07\u202eb\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range printable(text) {
			require.False(t, r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0, "%q", text)
		}
		require.NotContains(t, printable(text), "\u202e")
	})
}
