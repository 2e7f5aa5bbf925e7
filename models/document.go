package models

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"gorm.io/gorm/schema"
)

// document is the gorm serializer of JSON columns. They are TEXT, which both databases have; nothing searches in them. A nil
// map is stored as {} and comes back empty.
type document struct{}

func init() { schema.RegisterSerializer("document", document{}) }

// Scan implements schema.SerializerInterface.
func (document) Scan(ctx context.Context, field *schema.Field, dst reflect.Value, dbValue any) error {
	var raw []byte
	switch text := dbValue.(type) {
	case nil:
		return nil
	case string:
		raw = []byte(text)
	case []byte:
		raw = text
	default:
		return fmt.Errorf("column %s holds %T, not JSON", field.DBName, dbValue)
	}
	target := field.ReflectValueOf(ctx, dst)
	fresh := reflect.New(target.Type())
	if err := json.Unmarshal(raw, fresh.Interface()); err != nil {
		return fmt.Errorf("read JSON of column %s: %w", field.DBName, err)
	}
	target.Set(fresh.Elem())
	return nil
}

// Value implements schema.SerializerValuerInterface.
func (document) Value(_ context.Context, field *schema.Field, _ reflect.Value, fieldValue any) (any, error) {
	if value := reflect.ValueOf(fieldValue); value.Kind() == reflect.Map && value.IsNil() {
		return "{}", nil
	}
	raw, err := json.Marshal(fieldValue)
	if err != nil {
		return nil, fmt.Errorf("write JSON of field %s: %w", field.Name, err)
	}
	return string(raw), nil
}

// optional is the gorm serializer of JSON columns that may be NULL, which a nil slice or pointer is. A json.RawMessage is stored byte for
// byte.
type optional struct{ document }

func init() { schema.RegisterSerializer("optional", optional{}) }

// Value implements schema.SerializerValuerInterface.
func (o optional) Value(ctx context.Context, field *schema.Field, dst reflect.Value, fieldValue any) (any, error) {
	if raw, ok := fieldValue.(json.RawMessage); ok && raw != nil {
		if !json.Valid(raw) {
			return nil, fmt.Errorf("field %s is not JSON", field.Name)
		}
		return string(raw), nil
	}
	if value := reflect.ValueOf(fieldValue); (value.Kind() == reflect.Slice || value.Kind() == reflect.Pointer) && value.IsNil() {
		return nil, nil
	}
	return o.document.Value(ctx, field, dst, fieldValue)
}

// reference is the gorm serializer of a string that may be NULL, which the empty one is.
type reference struct{}

func init() { schema.RegisterSerializer("reference", reference{}) }

// Scan implements schema.SerializerInterface.
func (reference) Scan(ctx context.Context, field *schema.Field, dst reflect.Value, dbValue any) error {
	switch text := dbValue.(type) {
	case nil:
		field.ReflectValueOf(ctx, dst).SetString("")
	case string:
		field.ReflectValueOf(ctx, dst).SetString(text)
	case []byte:
		field.ReflectValueOf(ctx, dst).SetString(string(text))
	default:
		return fmt.Errorf("column %s holds %T, not text", field.DBName, dbValue)
	}
	return nil
}

// Value implements schema.SerializerValuerInterface.
func (reference) Value(_ context.Context, _ *schema.Field, _ reflect.Value, fieldValue any) (any, error) {
	if fieldValue == "" {
		return nil, nil
	}
	return fieldValue, nil
}
