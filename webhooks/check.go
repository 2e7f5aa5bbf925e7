package webhooks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// CheckData holds an event's data, as given to Emit or as it stands in a body, to the catalogue: every field that is always
// there, none that is not in the catalogue, and each of its type. The call that stands in the data of a call's events need not
// be there.
func CheckData(kind string, data map[string]any) error {
	known, ok := Find(kind)
	if !ok {
		return fmt.Errorf("event %s is not in the catalogue", kind)
	}
	// Through JSON, as a receiver sees it: a struct is an object then, and every number a json.Number.
	raw, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("event %s: %w", kind, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var plain map[string]any
	if err := decoder.Decode(&plain); err != nil {
		return fmt.Errorf("event %s: %w", kind, err)
	}
	if known.OfCall() || known.CallToo {
		if call, found := plain["call"]; found {
			if _, object := call.(map[string]any); !object {
				return fmt.Errorf("event %s: data.call is %s, not an object", kind, jsonType(call))
			}
			delete(plain, "call")
		}
	}
	if err := checkFields("data", known.Fields, plain); err != nil {
		return fmt.Errorf("event %s: %w", kind, err)
	}
	return nil
}

func checkFields(path string, fields []Field, object map[string]any) error {
	for i := range fields {
		value, found := object[fields[i].Name]
		at := path + "." + fields[i].Name
		if !found {
			if fields[i].Present == "" {
				return fmt.Errorf("%s is missing", at)
			}
			continue
		}
		if err := fields[i].check(at, value); err != nil {
			return err
		}
	}
	for name := range object {
		if !slices.ContainsFunc(fields, func(f Field) bool { return f.Name == name }) {
			return fmt.Errorf("%s.%s is not in the catalogue", path, name)
		}
	}
	return nil
}

func (f *Field) check(path string, value any) error {
	if is := jsonType(value); f.Type != TypeAny && is != f.Type && (f.Type != TypeNumber || is != TypeInteger) {
		return fmt.Errorf("%s is %s, not %s", path, is, f.Type)
	}
	if f.Values != nil && !slices.ContainsFunc(f.Values, func(allowed any) bool { return fmt.Sprint(allowed) == fmt.Sprint(value) }) {
		return fmt.Errorf("%s is %v, not one of %v", path, value, f.Values)
	}
	if f.Fields == nil {
		return nil
	}
	object, _ := value.(map[string]any) // its type was checked
	return checkFields(path, f.Fields, object)
}

// jsonType names the type of a decoded value.
func jsonType(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		return TypeString
	case bool:
		return TypeBoolean
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return TypeNumber
		}
		return TypeInteger
	case map[string]any:
		return TypeObject
	default:
		return "array"
	}
}
