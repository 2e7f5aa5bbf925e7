package actions

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// compileSchema returns the verdict of an independent validator on documents, by the schema that we publish.
func compileSchema(t *testing.T, ref ...string) func([]byte) error {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	const address = "https://actions.example/schema.json"
	require.NoError(t, compiler.AddResource(address, document))
	compiled, err := compiler.Compile(address + strings.Join(ref, ""))
	require.NoError(t, err, "the schema must be one by the meta-schema of draft 2020-12")
	return func(body []byte) error {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err != nil {
			return err
		}
		return compiled.Validate(value)
	}
}

func TestSchemaAcceptsGood(t *testing.T) {
	t.Parallel()
	judge := compileSchema(t)
	for _, path := range fixtures(t, "good") {
		body, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, judge(body), path)
		golden, err := os.ReadFile(strings.TrimSuffix(path, ".json") + ".golden")
		require.NoError(t, err)
		require.NoError(t, judge(golden), path)
	}
}

// TestSchemaRefusesBad holds the schema to every bad reply. Those whose fault a schema cannot say are named, and really
// are beyond it.
func TestSchemaRefusesBad(t *testing.T) {
	t.Parallel()
	judge := compileSchema(t)
	beyond := []string{
		"gather_bounds", "gather_keys", // comparisons inside a document
		"duplicate_deep", "duplicate_envelope", "duplicate_key", // gone when JSON has been read
	}
	for _, path := range fixtures(t, "bad") {
		body, err := os.ReadFile(path)
		require.NoError(t, err)
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		if slices.Contains(beyond, name) {
			require.NoError(t, judge(body), name)
		} else {
			require.Error(t, judge(body), name)
		}
	}
}

func TestSchemaLimits(t *testing.T) {
	t.Parallel()
	judge := compileSchema(t)
	list := func(n int) []byte {
		return []byte("[" + strings.TrimSuffix(strings.Repeat(`{"action":"answer"},`, n), ",") + "]")
	}
	require.NoError(t, judge(list(MaxActions)))
	require.Error(t, judge(list(MaxActions+1)))
	require.NoError(t, judge([]byte(`{"actions":[],"variables":{"a":1}}`)))
	require.Error(t, judge([]byte(`{"variables":{"a":1}}`)))
	require.Error(t, judge([]byte(`"say"`)))

	wait := compileSchema(t, "#/$defs/wait_actions")
	require.NoError(t, wait([]byte(`[{"action":"say","text":"a"},{"verb":"wait"}]`)))
	require.Error(t, wait([]byte(`[]`)))
	require.Error(t, wait([]byte(`[{"action":"gather"}]`)))
}

// TestSchemaDocuments proves that every field is described, and that a default in the schema is the one of the parser.
func TestSchemaDocuments(t *testing.T) {
	t.Parallel()
	var published struct {
		Defs map[string]struct {
			Description string
			Properties  map[string]struct {
				Description string
				Default     any
			}
		} `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(Schema(), &published))
	for _, v := range verbs {
		def := published.Defs[v.name]
		require.Equal(t, v.doc, def.Description)
		action := v.make()
		fields := table(action)
		require.Len(t, def.Properties, len(fields)+2, v.name)
		for _, f := range fields {
			f.value.reset()
		}
		canonical := encodeTable(fields)
		for _, f := range fields {
			property := def.Properties[f.name]
			require.NotEmpty(t, f.doc, "%s.%s", v.name, f.name)
			require.Equal(t, f.doc, property.Description)
			require.True(t, strings.HasSuffix(f.doc, "."), "%s.%s is a sentence", v.name, f.name)
			if value, ok := canonical[f.name]; ok && !f.required {
				require.Equal(t, toJSON(t, value), toJSON(t, property.Default), "%s.%s", v.name, f.name)
			}
		}
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return string(raw)
}
