package api

import (
	"encoding/json"
	"errors"
	"reflect"

	"github.com/getkin/kin-openapi/openapi3"

	"tandem/actions"
)

// rawType is that of fields which hold JSON as it is: lists of actions, settings that another package reads.
var rawType = reflect.TypeFor[json.RawMessage]()

// asRaw makes the schema of such a field: a list, an object or anything, as its tag says.
func asRaw(schema *openapi3.Schema, tag reflect.StructTag) {
	*schema = openapi3.Schema{Nullable: tag.Get("nullable") == "true"}
	switch tag.Get("raw") {
	case "list":
		schema.Type = &openapi3.Types{openapi3.TypeArray}
		schema.Items = openapi3.NewSchemaRef("", openapi3.NewObjectSchema())
	case "object":
		schema.Type = &openapi3.Types{openapi3.TypeObject}
	}
}

// actionError turns what is wrong with a list of actions into an error of the field that holds the list.
func actionError(field string, err error) error {
	var refused *actions.Error
	if !errors.As(err, &refused) {
		return err
	}
	path := refused.Path
	if path == "" {
		path = field
	}
	return &Error{Code: codeInvalidRequest, Field: field, Path: path, Message: refused.Error()}
}

// actionList checks a list of actions that a field holds and returns its canonical form; nil for null or an absent field.
func actionList(field string, raw json.RawMessage, parse func(raw json.RawMessage) ([]actions.Action, error)) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	list, err := parse(raw)
	if err != nil {
		return nil, actionError(field, err)
	}
	if len(list) == 0 {
		return nil, invalid(field, "%s must hold at least one action; null removes it", field)
	}
	canonical, err := actions.Encode(list)
	if err != nil {
		return nil, err
	}
	return canonical, nil
}
