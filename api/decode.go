package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// fieldSet says which fields a body named: true with a value, false with null.
type fieldSet map[string]bool

// has reports whether the body named the field at all, be it with null.
func (f fieldSet) has(field string) bool {
	_, ok := f[field]
	return ok
}

// decode reads one JSON object into the struct that dst points at and says which fields the body named. It is stricter than
// encoding/json, because a typing error that is silently ignored costs somebody an afternoon: names match exactly, an
// unknown name, a name given twice, a wrong type and a null where none belongs are each refused with the field's name.
// dst's fields are of the types *string, *bool, *int, []string and map[string]string, and json.RawMessage for what another package
// reads; a flat body is the one that people can read. It returns invalid_json where the body is no JSON, otherwise invalid_request.
func decode(body []byte, dst any) (fieldSet, error) {
	if !utf8.Valid(body) {
		return nil, &Error{Code: codeInvalidJSON, Message: "the body is not valid JSON: it is not UTF-8"}
	}
	if err := checkSyntax(body); err != nil {
		return nil, err
	}
	target := reflect.ValueOf(dst).Elem()
	fields := fieldsOf(target.Type())
	given := fieldSet{}
	err := eachMember(body, func(name string, raw json.RawMessage) error {
		field, ok := fields[name]
		if !ok {
			return invalid(clip(name), "%s is not a field of this request", clip(name))
		}
		if given.has(name) {
			return invalid(name, "%s is given twice", name)
		}
		if string(raw) == "null" {
			if !field.nullable {
				return invalid(name, "%s must not be null", name)
			}
			given[name] = false
			return nil
		}
		given[name] = true
		return setField(target.FieldByIndex(field.index), name, raw)
	})
	if errors.Is(err, errNotObject) {
		return nil, invalid("", "the body must be a JSON object")
	}
	return given, err
}

func checkSyntax(body []byte) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return &Error{Code: codeInvalidJSON, Message: "the body is not valid JSON: it is empty"}
	}
	var whole json.RawMessage
	err := json.Unmarshal(body, &whole)
	if err == nil {
		return nil
	}
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return &Error{Code: codeInvalidJSON, Message: fmt.Sprintf("the body is not valid JSON: %s at byte %d", syntax.Error(), syntax.Offset)}
	}
	return &Error{Code: codeInvalidJSON, Message: "the body is not valid JSON", cause: err}
}

var errNotObject = errors.New("not a JSON object")

// eachMember calls fn for each member of a JSON object, in order, duplicates included.
func eachMember(object []byte, fn func(name string, raw json.RawMessage) error) error {
	dec := json.NewDecoder(bytes.NewReader(object))
	start, err := dec.Token()
	if err != nil {
		return fmt.Errorf("read JSON object: %w", err)
	}
	if start != json.Delim('{') {
		return errNotObject
	}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return fmt.Errorf("read JSON member name: %w", err)
		}
		name, _ := token.(string)
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return fmt.Errorf("read JSON member: %w", err)
		}
		if err := fn(name, raw); err != nil {
			return err
		}
	}
	return nil
}

// setField stores raw in field, or says which type the field wants.
func setField(field reflect.Value, name string, raw json.RawMessage) error {
	switch target := field.Addr().Interface().(type) {
	case *json.RawMessage:
		*target = append(json.RawMessage(nil), raw...)
	case *[]string:
		values := []string{}
		if json.Unmarshal(raw, &values) != nil {
			return invalid(name, "%s must be a list of strings", name)
		}
		*target = values
	case **string:
		var value string
		if json.Unmarshal(raw, &value) != nil {
			return invalid(name, "%s must be a string", name)
		}
		*target = &value
	case **bool:
		var value bool
		if json.Unmarshal(raw, &value) != nil {
			return invalid(name, "%s must be a boolean", name)
		}
		*target = &value
	case **int:
		value, err := strconv.ParseInt(string(raw), 10, 32)
		if err != nil {
			return invalid(name, "%s must be an integer", name)
		}
		number := int(value)
		*target = &number
	case **int64:
		value, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil {
			return invalid(name, "%s must be an integer", name)
		}
		*target = &value
	case *map[string]string:
		values := map[string]string{}
		err := eachMember(raw, func(key string, raw json.RawMessage) error {
			path := name + "." + clip(key)
			if _, twice := values[key]; twice {
				return invalid(path, "%s is given twice", path)
			}
			var value *string
			if json.Unmarshal(raw, &value) != nil || value == nil {
				return invalid(path, "%s must be a string", path)
			}
			values[key] = *value
			return nil
		})
		if errors.Is(err, errNotObject) {
			return invalid(name, "%s must be an object", name)
		}
		if err != nil {
			return err
		}
		*target = values
	default:
		return fmt.Errorf("decode %s: no rule for %s", name, field.Type())
	}
	return nil
}

// clip makes a name that the client chose fit to be shown: short, and quoted where it has anything but plain characters.
func clip(name string) string {
	const limit = 64
	if len(name) > limit {
		name = strings.ToValidUTF8(name[:limit], "") + "…"
	}
	plain := name != "" && strings.IndexFunc(name, func(r rune) bool { return r <= ' ' || r == '"' || !strconv.IsPrint(r) }) < 0
	if plain {
		return name
	}
	return strconv.Quote(name)
}

type bodyField struct {
	index    []int
	nullable bool
}

// bodyFields remembers the fields of each request type: the routes are few and fixed.
var bodyFields sync.Map // reflect.Type → map[string]bodyField

func fieldsOf(t reflect.Type) map[string]bodyField {
	if known, ok := bodyFields.Load(t); ok {
		return known.(map[string]bodyField)
	}
	fields := make(map[string]bodyField, t.NumField())
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = bodyField{index: f.Index, nullable: f.Tag.Get("nullable") == "true"}
	}
	bodyFields.Store(t, fields)
	return fields
}
