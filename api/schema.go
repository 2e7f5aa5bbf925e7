package api

import (
	"reflect"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3gen"
)

// schemaOf makes the schema of a struct type from its fields and their tags:
//
//	json        the name; omitempty makes a response's field optional
//	required    "true" makes a request's field required
//	nullable    "true" lets a request's field be null; a response's field may be null when it is a pointer without omitempty
//	doc, example, enum, pattern, format, min, max, minimum, maximum
//
// In a request (a type named …Create, …Update, …Cancel or …Rotate) every field is a pointer, which says only that it may be
// absent, and no other field may be given.
func schemaOf(t reflect.Type) (*openapi3.Schema, error) {
	request := isRequest(t)
	customize := func(_ string, fieldType reflect.Type, tag reflect.StructTag, schema *openapi3.Schema) error {
		if fieldType == rawType {
			asRaw(schema, tag)
		}
		if fieldType.Kind() == reflect.Struct {
			schema.Required = required(fieldType, request)
			if request {
				schema.AdditionalProperties = openapi3.AdditionalProperties{Has: openapi3.Ptr(false)}
			}
		}
		return describeField(schema, tag, request)
	}
	generator := openapi3gen.NewGenerator(openapi3gen.SchemaCustomizer(customize))
	ref, err := generator.GenerateSchemaRef(t)
	if err != nil {
		return nil, err
	}
	if ref.Value.Type == nil {
		// The generator leaves a struct without fields untyped.
		ref.Value.Type = &openapi3.Types{openapi3.TypeObject}
	}
	// The generator names each schema's origin in Ref, which would make references to nowhere of them.
	inline(ref)
	return ref.Value, nil
}

func isRequest(t reflect.Type) bool {
	return slices.ContainsFunc([]string{"Create", "Update", "Cancel", "Rotate"}, func(suffix string) bool {
		return strings.HasSuffix(t.Name(), suffix)
	})
}

func required(t reflect.Type, request bool) []string {
	var names []string
	for _, field := range reflect.VisibleFields(t) {
		if field.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		optional := options == "omitempty"
		if request {
			optional = field.Tag.Get("required") != "true"
		}
		if !optional {
			names = append(names, name)
		}
	}
	return names
}

func describeField(schema *openapi3.Schema, tag reflect.StructTag, request bool) error {
	null := schema.Nullable
	if request {
		null = tag.Get("nullable") == "true"
	} else if strings.HasSuffix(tag.Get("json"), ",omitempty") {
		null = false
	}
	// nullable is OpenAPI 3.0; since 3.1 null is a type.
	schema.Nullable = false
	if schema.Type != nil && null {
		types := append(slices.Clone(*schema.Type), openapi3.TypeNull)
		schema.Type = &types
	}
	// The generator hands a map's tag to its values first; what describes the map does not describe them.
	if values := schema.AdditionalProperties.Schema; values != nil {
		values.Value.Description = ""
	}
	// Likewise a list's items, which are never null.
	if items := schema.Items; items != nil && items.Value != nil && items.Value.Type != nil {
		items.Value.Description = ""
		if kept := slices.DeleteFunc(slices.Clone(*items.Value.Type), func(name string) bool { return name == openapi3.TypeNull }); len(kept) > 0 {
			*items.Value.Type = kept
		}
	}
	if doc := tag.Get("doc"); doc != "" {
		schema.Description = doc
	}
	if example := tag.Get("example"); example != "" {
		schema.Examples = []any{example}
	}
	if values := tag.Get("enum"); values != "" {
		for _, value := range strings.Split(values, ",") {
			schema.Enum = append(schema.Enum, value)
		}
		if tag.Get("nullable") == "true" {
			schema.Enum = append(schema.Enum, nil)
		}
	}
	if pattern := tag.Get("pattern"); pattern != "" {
		schema.Pattern = pattern
	}
	if format := tag.Get("format"); format != "" {
		schema.Format = format
	}
	shortest, err := number(tag, "min")
	if err != nil {
		return err
	}
	if shortest != nil {
		schema.MinLength = uint64(*shortest)
	}
	longest, err := number(tag, "max")
	if err != nil {
		return err
	}
	if longest != nil {
		schema.MaxLength = openapi3.Ptr(uint64(*longest))
	}
	if schema.Min, err = number(tag, "minimum"); err != nil {
		return err
	}
	schema.Max, err = number(tag, "maximum")
	return err
}

// inline clears the references of a schema and of everything below it.
func inline(ref *openapi3.SchemaRef) {
	if ref == nil {
		return
	}
	ref.Ref = ""
	if ref.Value == nil {
		return
	}
	for _, property := range ref.Value.Properties {
		inline(property)
	}
	inline(ref.Value.Items)
	inline(ref.Value.AdditionalProperties.Schema)
}
