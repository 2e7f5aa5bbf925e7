package models

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"gorm.io/gorm/schema"
)

// moment is the gorm serializer of time.Time and *time.Time: microseconds since the Unix epoch.
type moment struct{}

func init() { schema.RegisterSerializer("moment", moment{}) }

// Scan implements schema.SerializerInterface.
func (moment) Scan(ctx context.Context, field *schema.Field, dst reflect.Value, dbValue any) error {
	target := field.ReflectValueOf(ctx, dst)
	if dbValue == nil {
		target.SetZero()
		return nil
	}
	micros, ok := dbValue.(int64)
	if !ok {
		return fmt.Errorf("column %s holds %T, not microseconds", field.DBName, dbValue)
	}
	at := time.UnixMicro(micros).UTC()
	if target.Kind() == reflect.Pointer {
		target.Set(reflect.ValueOf(&at))
		return nil
	}
	target.Set(reflect.ValueOf(at))
	return nil
}

// Value implements schema.SerializerValuerInterface.
func (moment) Value(_ context.Context, field *schema.Field, _ reflect.Value, fieldValue any) (any, error) {
	switch at := fieldValue.(type) {
	case time.Time:
		return at.UnixMicro(), nil
	case *time.Time:
		if at == nil {
			return nil, nil
		}
		return at.UnixMicro(), nil
	default:
		return nil, fmt.Errorf("field %s is %T, not a time", field.Name, fieldValue)
	}
}

// micros gives a moment the form it has in a statement.
func micros(at time.Time) int64 { return at.UnixMicro() }

// cut brings a time given by a caller into the form that comes back from the database: UTC, microseconds.
func cut(at *time.Time) *time.Time {
	if at == nil {
		return nil
	}
	short := at.UTC().Truncate(time.Microsecond)
	return &short
}
