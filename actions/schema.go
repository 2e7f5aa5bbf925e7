package actions

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Schema returns the vocabulary as a JSON Schema of draft 2020-12: what Parse accepts, made from the tables that Parse
// walks. Parse is stricter in what a schema cannot say: sizes in bytes, the number of actions with nested ones, keys named
// twice, max_digits below min_digits, and URLs in every detail. The result must not be changed.
func Schema() json.RawMessage { return published() }

var published = sync.OnceValue(func() json.RawMessage {
	out, err := marshal(wholeSchema())
	if err != nil {
		panic(fmt.Sprintf("actions: marshal the schema: %v", err)) // maps of strings and numbers
	}
	return out
})

func wholeSchema() schema {
	defs := schema{
		"target":        targetSchema(),
		"variables":     variables{}.schema(),
		"action":        oneOf("action", nil),
		"prompt_action": oneOf("prompt action", prompting),
		"wait_action":   oneOf("wait action", waiting),
		"list":          schema{"type": "array", "maxItems": MaxActions, "items": schema{"$ref": "#/$defs/action"}},
		"wait_actions":  schema{"type": "array", "minItems": 1, "maxItems": waiting.max, "items": schema{"$ref": "#/$defs/wait_action"}},
		"reply": schema{
			"type":                 "object",
			"properties":           schema{"actions": schema{"$ref": "#/$defs/list"}, "variables": schema{"$ref": "#/$defs/variables"}},
			"required":             []string{"actions"},
			"additionalProperties": false,
		},
	}
	for _, v := range verbs {
		defs[v.name] = v.schema(nil)
	}
	for _, l := range []*nesting{prompting, waiting} {
		for _, v := range verbs {
			if slices.Contains(l.verbs, v.name) {
				defs[l.def+"_"+v.name] = v.schema(l)
			}
		}
	}
	return schema{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"title":       "Actions",
		"description": "What an answer_url says: a list of actions, or an object with the list and with variables of the call.",
		"if":          schema{"type": "object"},
		"then":        schema{"$ref": "#/$defs/reply"},
		"else":        schema{"$ref": "#/$defs/list"},
		"$defs":       defs,
	}
}

// object is the schema of an object that a table describes.
func object(table []field) schema {
	properties := schema{}
	required := []string{}
	for _, f := range table {
		property := f.value.schema()
		property["description"] = f.doc
		properties[f.name] = property
		if f.required {
			required = append(required, f.name)
		}
	}
	out := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// having is the schema of objects that have a field.
func having(name string) schema { return schema{"required": []string{name}} }

// without is the schema of objects where texts are not given, or empty.
func without(names ...string) schema {
	properties := schema{}
	for _, name := range names {
		properties[name] = schema{"maxLength": 0}
	}
	return schema{"properties": properties}
}

// written returns the names that customers may write for a verb.
func (v verb) written() []string {
	names := []string{v.name}
	for alias, name := range aliases {
		if name == v.name {
			names = append(names, alias)
		}
	}
	slices.Sort(names[1:])
	return names
}

// schema is the schema of the verb, at the top or inside a nested list.
func (v verb) schema(in *nesting) schema {
	action := v.make()
	out := object(table(action))
	out["title"], out["description"] = v.name, v.doc
	if in == nil {
		out["examples"] = []any{json.RawMessage(v.example)}
	}
	properties := out["properties"].(schema)
	name := schema{"enum": v.written(), "description": "The name of the action."}
	properties["action"], properties["verb"] = name, name
	out["oneOf"] = []schema{having("action"), having("verb")}
	if ruled, ok := action.(interface{ rules() []schema }); ok {
		out["allOf"] = ruled.rules()
	}
	if in != nil {
		delete(properties, "result_url")
		if loop, ok := properties["loop"].(schema); ok {
			loop["minimum"] = 1
		}
		if early, ok := properties["early"].(schema); ok {
			early["const"] = false
		}
	}
	return out
}

// oneOf is the schema of an action of any verb. It looks at the name first, so that a validator speaks of the fields of
// the verb that was meant and not of all verbs.
func oneOf(title string, in *nesting) schema {
	var names []string
	var cases []schema
	for _, v := range verbs {
		def := v.name
		if in != nil {
			if !slices.Contains(in.verbs, v.name) {
				continue
			}
			def = in.def + "_" + v.name
		}
		names = append(names, v.written()...)
		is := schema{"enum": v.written()}
		cases = append(cases, schema{
			"if": schema{"anyOf": []schema{
				{"properties": schema{"action": is}, "required": []string{"action"}},
				{"properties": schema{"verb": is}, "required": []string{"verb"}},
			}},
			"then": schema{"$ref": "#/$defs/" + def},
		})
	}
	name := schema{"enum": names, "description": "One of " + strings.Join(names, ", ") + "."}
	return schema{
		"title": title, "type": "object",
		"properties": schema{"action": name, "verb": name},
		"oneOf":      []schema{having("action"), having("verb")},
		"allOf":      cases,
	}
}
